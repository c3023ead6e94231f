"""LU factorization of matrices one at a time, columns in lanes; beside `linalg.Lu`, which has matrices in lanes.

By rank-one updates in the order of `eval` and rounded as it rounds. The matrix stands in scratch memory, its rows
filled up to whole vectors, so that no row has a rest. A vector of columns, a panel, is found by itself; those behind it
take what it changes of them while they are in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.kernels.cpu.base import Kernel, KernelCost, Touches, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, DType, Lu, NDArray
from nxjax.kernels.cpu.linalg_lu import LuBlocks
from nxjax.kernels.cpu.math_base import fabs
from nxjax.ops.linalg_lu import lu

ROWS = 4  # that are worked on together


@final
class LuRows(Kernel):
    """[count, m, n] to the packed factors, the row swaps and the permutation."""

    grain = 1

    def __init__(self, dtype: DType, count: int, m: int, n: int) -> None:
        self.dtype, self.count, self.m, self.n = dtype, count, m, n
        self.items = count
        self.lanes = GROUP // dtype.itemsize
        self.stride = -(-n // self.lanes) * self.lanes  # elements from one row to the next
        self.scratch = m * self.stride * dtype.itemsize

    @property
    def key(self) -> str:
        return f"lu_rows({self.dtype.name},{self.count},{self.m},{self.n})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return lu.eval(xs[0].reshape(self.count, self.m, self.n))

    def touches(self) -> Touches:
        return Lu(self.dtype, self.count, self.m, self.n).touches()

    def cost(self) -> KernelCost:
        return Lu(self.dtype, self.count, self.m, self.n).cost()

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        m, n, size = self.m, self.n, self.dtype.itemsize
        x, y, pivots, order = (pointer(f, words, i) for i in range(4))
        nbytes = f.constant("i64", n * size)
        with f.loop(lo, hi) as item:
            swaps = f.at(pivots, item.index, 4 * min(m, n))
            numbers = f.at(order, item.index, 4 * m)
            for source, copying in ((x, True), (y, False)):
                with f.loop(0, m) as row:
                    if copying and n < self.stride:  # no arithmetic on what lay there, which may be slow
                        zero, last = f.constant(vector(DTYPES[self.dtype], self.lanes), 0.0), self.stride - self.lanes
                        f.store(zero, self._place(f, scratch, row.index, last), GROUP)
                    outside = f.at(source, item.index * m + row.index, n * size)
                    inside = self._place(f, scratch, row.index, 0)
                    f.call("memcpy", "ptr", *((inside, outside) if copying else (outside, inside)), nbytes)
                    if copying:
                        f.store(row.index.convert("i32"), f.at(numbers, row.index, 4))
                if copying:
                    with f.loop(0, min(m, n), self.lanes) as panel:
                        first = panel.index
                        stop = f.intrinsic("smin", "i64", first + self.lanes, f.constant("i64", min(m, n)))
                        with f.loop(first, stop) as step:
                            k = step.index
                            p = self._chosen(f, scratch, k)
                            f.store(p.convert("i32"), f.at(swaps, k, 4))
                            with f.if_(p.ne(k)):
                                self._swapped(f, scratch, numbers, k, p)
                            self._updated(f, scratch, first, k)
                        self._behind(f, scratch, first, stop)
        f.ret()

    def _place(self, f: Function, scratch: Value, row: Value, column: Value | int) -> Value:
        return f.at(scratch, row * self.stride + column, self.dtype.itemsize)

    def _chosen(self, f: Function, scratch: Value, k: Value) -> Value:
        """The first row from k on whose element in column k is largest; NaN is larger than all."""
        scalar = DTYPES[self.dtype]
        size = lambda row: fabs(f, f.load(scalar, self._place(f, scratch, row, k)))

        def larger(a: Value, i: Value, b: Value, j: Value) -> tuple[Value, Value]:
            both = a.eq(b) | (a.is_nan() & b.is_nan())
            wins = b.gt(a) | (b.is_nan() & ~a.is_nan()) | (both & j.lt(i))
            return f.select(wins, b, a), f.select(wins, j, i)

        # Several rows at a time, so that none waits for the one before.
        whole = k + 1 + (f.constant("i64", self.m - 1) - k).udiv(ROWS) * ROWS
        with f.loop(k + 1, whole, ROWS, (size(k), k) * ROWS) as row:
            mine = zip(row.carried[::2], row.carried[1::2], strict=True)
            lines = [row.index + r for r in range(ROWS)]
            row.next(*[x for line, (a, i) in zip(lines, mine, strict=True) for x in larger(a, i, size(line), line)])
        most, where = row.results[:2]
        for r in range(1, ROWS):
            most, where = larger(most, where, row.results[2 * r], row.results[2 * r + 1])
        with f.loop(whole, self.m, 1, (most, where)) as row:
            most, where = row.carried
            row.next(*larger(most, where, size(row.index), row.index))
        return row.results[1]

    def _swapped(self, f: Function, scratch: Value, numbers: Value, k: Value, p: Value) -> None:
        type = vector(DTYPES[self.dtype], self.lanes)
        with f.loop(0, self.stride, self.lanes) as column:
            places = [self._place(f, scratch, row, column.index) for row in (k, p)]
            a, b = (f.load(type, place, GROUP) for place in places)
            f.store(b, places[0], GROUP)
            f.store(a, places[1], GROUP)
        places = [f.at(numbers, row, 4) for row in (k, p)]
        a, b = (f.load("i32", place) for place in places)
        f.store(b, places[0])
        f.store(a, places[1])

    def _updated(self, f: Function, scratch: Value, first: Value, k: Value) -> None:
        """The rows below divided by the pivot, and what the panel has of them less their product with row k."""
        scalar = DTYPES[self.dtype]
        type = vector(scalar, self.lanes)
        pivot = f.load(scalar, self._place(f, scratch, k, k))
        pivot = f.select(pivot.eq(0.0), 1.0, pivot)
        word = f"i{8 * self.dtype.itemsize}"
        numbers, mine = f.constants(word, range(self.lanes)), f.splat((k - first).convert(word), self.lanes)
        top = f.load(type, self._place(f, scratch, k, first), GROUP)
        whole = k + 1 + (f.constant("i64", self.m - 1) - k).udiv(ROWS) * ROWS
        for start, stop, rows in ((k + 1, whole, ROWS), (whole, self.m, 1)):
            with f.loop(start, stop, rows) as row:
                lines = [row.index + r for r in range(rows)]
                factors = [f.load(scalar, self._place(f, scratch, line, k)) / pivot for line in lines]
                for line, factor in zip(lines, factors, strict=True):
                    place, spread = self._place(f, scratch, line, first), f.splat(factor, self.lanes)
                    old = f.load(type, place, GROUP)
                    # The panel's columns before k stay. That is not chosen last: LLVM would make masked stores of it,
                    # which AMD's processors take long for. Masks made here, not before the loop, take one register.
                    new = f.select(numbers.lt(mine), old, old - spread * top)
                    f.store(f.select(numbers.eq(mine), spread, new), place, GROUP)

    def _behind(self, f: Function, scratch: Value, first: Value, stop: Value) -> None:
        """The columns behind the panel, of its own rows and of those below, less their products, each rounded."""
        m, end = f.constant("i64", self.m), f.constant("i64", self.stride)
        whole = stop + (m - stop).udiv(ROWS) * ROWS
        # Row k of the panel is done when the rows after it need it.
        for start, last, rows in ((first + 1, stop, 1), (stop, whole, ROWS), (whole, m, 1)):
            with f.loop(start, last, rows) as row, f.loop(first + self.lanes, end, self.lanes) as column:
                lines = [row.index + r for r in range(rows)]
                known = f.intrinsic("smin", "i64", row.index, stop)
                self._less(f, scratch, lines, column.index, first, known)

    def _less(self, f: Function, scratch: Value, lines: list[Value], column: Value, first: Value, stop: Value) -> None:
        """A vector of each of ``lines`` less its products with those of rows ``first`` to ``stop``."""
        scalar = DTYPES[self.dtype]
        type = vector(scalar, self.lanes)
        places = [self._place(f, scratch, line, column) for line in lines]
        with f.loop(first, stop, 1, [f.load(type, place, GROUP) for place in places]) as k:
            top = f.load(type, self._place(f, scratch, k.index, column), GROUP)
            factors = [f.load(scalar, self._place(f, scratch, line, k.index)) for line in lines]
            spread = [f.splat(factor, self.lanes) for factor in factors]
            k.next(*(old - factor * top for old, factor in zip(k.carried, spread, strict=True)))
        for place, value in zip(places, k.results, strict=True):
            f.store(value, place, GROUP)


def kernel(dtype: DType, count: int, m: int, n: int, *, exact: bool = False) -> Lu | LuRows | LuBlocks:
    """The quickest: matrices in lanes where there are enough of them and they are small.

    ``exact``: numbers are rounded as `eval` rounds them.
    """
    lanes = GROUP // dtype.itemsize
    if m * n * GROUP <= 1 << 18 and 2 * count >= lanes:
        return Lu(dtype, count, m, n)
    blocks = min(m, n) >= 2 * lanes and not exact
    return (LuBlocks if blocks else LuRows)(dtype, count, m, n)
