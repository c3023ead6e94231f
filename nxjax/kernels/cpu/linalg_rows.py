"""LU factorization of matrices one at a time, columns in lanes; beside `linalg.Lu`, which has matrices in lanes.

By rank-one updates in the order of `eval` and rounded as it rounds. The matrix stands in scratch memory, its rows
filled up to whole vectors, so that no row has a rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.kernels.cpu.base import Kernel, KernelCost, Touches, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, DType, Lu, NDArray
from nxjax.kernels.cpu.math_base import fabs
from nxjax.ops.linalg_lu import lu

ROWS = 4  # that are updated together


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
                    outside = f.at(source, item.index * m + row.index, n * size)
                    inside = self._place(f, scratch, row.index, 0)
                    f.call("memcpy", "ptr", *((inside, outside) if copying else (outside, inside)), nbytes)
                    if copying:
                        f.store(row.index.convert("i32"), f.at(numbers, row.index, 4))
                if copying:
                    with f.loop(0, min(m, n)) as step:
                        k = step.index
                        p = self._chosen(f, scratch, k)
                        f.store(p.convert("i32"), f.at(swaps, k, 4))
                        with f.if_(p.ne(k)):
                            self._swapped(f, scratch, numbers, k, p)
                        self._updated(f, scratch, k)
        f.ret()

    def _place(self, f: Function, scratch: Value, row: Value, column: Value | int) -> Value:
        return f.at(scratch, row * self.stride + column, self.dtype.itemsize)

    def _chosen(self, f: Function, scratch: Value, k: Value) -> Value:
        """The first row from k on whose element in column k is largest; NaN is larger than all."""
        scalar = DTYPES[self.dtype]
        size = lambda row: fabs(f, f.load(scalar, self._place(f, scratch, row, k)))
        with f.loop(k + 1, self.m, 1, (size(k), k)) as row:
            largest, where = row.carried
            other = size(row.index)
            wins = other.gt(largest) | (other.is_nan() & ~largest.is_nan())
            row.next(f.select(wins, other, largest), f.select(wins, row.index, where))
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

    def _updated(self, f: Function, scratch: Value, k: Value) -> None:
        """The rows below divided by the pivot, and the rest less their product with row k, each rounded."""
        scalar = DTYPES[self.dtype]
        type = vector(scalar, self.lanes)
        pivot = f.load(scalar, self._place(f, scratch, k, k))
        pivot = f.select(pivot.eq(0.0), 1.0, pivot)
        # The vector that holds column k has columns before it, which stay.
        first = k.udiv(self.lanes) * self.lanes
        later = f.constants("i64", range(self.lanes)).gt(f.splat(k - first, self.lanes))
        whole = k + 1 + (f.constant("i64", self.m - 1) - k).udiv(ROWS) * ROWS
        for start, stop, rows in ((k + 1, whole, ROWS), (whole, self.m, 1)):
            with f.loop(start, stop, rows) as row:
                lines = [row.index + r for r in range(rows)]
                factors = [f.load(scalar, self._place(f, scratch, line, k)) / pivot for line in lines]
                spread = [f.splat(factor, self.lanes) for factor in factors]

                def update(column: Value, lines: list[Value], spread: list[Value], mask: Value | None = None) -> None:
                    top = f.load(type, self._place(f, scratch, k, column), GROUP)
                    for line, factor in zip(lines, spread, strict=True):
                        place = self._place(f, scratch, line, column)
                        old = f.load(type, place, GROUP)
                        new = old - factor * top
                        f.store(new if mask is None else f.select(mask, new, old), place, GROUP)

                update(first, lines, spread, later)
                with f.loop(first + self.lanes, self.stride, self.lanes) as column:
                    update(column.index, lines, spread)
                for line, factor in zip(lines, factors, strict=True):
                    f.store(factor, self._place(f, scratch, line, k))


def kernel(dtype: DType, count: int, m: int, n: int) -> Lu | LuRows:
    """The quicker of the two: matrices in lanes where there are enough of them and they are small."""
    lanes = GROUP // dtype.itemsize
    if m * n * GROUP <= 1 << 18 and 2 * count >= lanes:
        return Lu(dtype, count, m, n)
    return LuRows(dtype, count, m, n)
