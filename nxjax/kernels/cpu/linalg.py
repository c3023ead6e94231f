"""Factorizations and triangular systems of many small matrices, one matrix per lane.

Some matrices are spread over the lanes of vectors in scratch memory (element (i, j) of each stands side by side there),
worked on by loops that know no lanes, and put back. So a batch of small matrices runs at the rate of vector
arithmetic, which libraries that take one matrix at a time cannot reach. Large matrices are better left to them.

Cholesky is by inner products, LU by rank-one updates in the order of `eval` and rounded as it rounds, solutions by
forward substitution: a transposed or an upper system is a lower one with other strides.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu.base import Kernel, KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.ops.linalg_lu import lu
from nxjax.ops.linalg_triangular import cholesky, triangular_solve

DType = np.dtype[Any]
NDArray = np.ndarray[Any, Any]
GROUP: Final = 64  # bytes that the lanes of one element take: 16 floats, 8 doubles
DTYPES: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}


class Batched(Kernel):
    """``count`` dense matrices, as many as there are lanes to an item."""

    grain = 1

    def __init__(self, dtype: DType, count: int) -> None:
        self.dtype = dtype
        self.count = count
        self.lanes = GROUP // dtype.itemsize
        self.scalar = DTYPES[dtype]
        self.vector = vector(self.scalar, self.lanes)
        self.items = -(-count // self.lanes)

    def group(self, f: Function, item: Value) -> tuple[Value, Value]:
        """The first matrix of an item, and how many it has."""
        first = item * self.lanes
        left = f.constant("i64", self.count) - first
        return first, f.intrinsic("smin", "i64", left, f.constant("i64", self.lanes))

    def each(self, f: Function, valid: Value, rows: int, columns: int, body: Callable[..., None]) -> None:
        """``body(lane, row, column)`` for all elements of the item's matrices."""
        with f.loop(0, valid) as lane, f.loop(0, rows) as row, f.loop(0, columns) as column:
            body(lane.index, row.index, column.index)

    def slot(self, f: Function, scratch: Value, columns: int, row: Value | int, column: Value | int) -> Value:
        """Where element (row, column) of all lanes stands in scratch memory."""
        place = f.value(row, "i64") * columns + column
        return f.at(scratch, place, GROUP)

    def load(self, f: Function, place: Value) -> Value:
        return f.load(self.vector, place, GROUP)

    def one(self, f: Function, x: Value, place: Value, lane: Value) -> None:
        """A scalar into one lane."""
        f.store(x, f.at(place, lane, self.dtype.itemsize))

    def spread(
        self, f: Function, scratch: Value, valid: Value, source: Value, shape: tuple[int, int], steps: Sequence[int]
    ) -> None:
        """Matrices into lanes; ``steps`` are elements to the next matrix, row and column, -1 and so on from the end.

        Lanes without a matrix have zeros: arithmetic on what may lie there, below the normal range, takes far longer.
        """
        size = self.dtype.itemsize
        if self.count % self.lanes:
            with f.if_(valid.lt(self.lanes)):
                nbytes = f.constant("i64", shape[0] * shape[1] * GROUP)
                f.call("memset", "ptr", scratch, f.constant("i32", 0), nbytes)

        def body(lane: Value, row: Value, column: Value) -> None:
            place = lane * steps[0] + row * steps[1] + column * steps[2]
            self.one(
                f, f.load(self.scalar, f.at(source, place, size)), self.slot(f, scratch, shape[1], row, column), lane
            )

        self.each(f, valid, *shape, body)

    def gathered(
        self, f: Function, scratch: Value, valid: Value, target: Value, shape: tuple[int, int], steps: Sequence[int]
    ) -> None:
        """The inverse of `spread`."""
        size = self.dtype.itemsize

        def body(lane: Value, row: Value, column: Value) -> None:
            place = lane * steps[0] + row * steps[1] + column * steps[2]
            x = f.load(self.scalar, f.at(self.slot(f, scratch, shape[1], row, column), lane, size))
            f.store(x, f.at(target, place, size))

        self.each(f, valid, *shape, body)


class Alike(Kernel):
    """A kernel that computes what another one does in another order."""

    @abstractmethod
    def alike(self) -> Kernel:
        """The other one."""

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return self.alike().meaning(*xs)

    def touches(self) -> Touches:
        return self.alike().touches()

    def cost(self) -> KernelCost:
        return self.alike().cost()


@final
class Cholesky(Batched):
    """[count, n, n] to the lower factor; its triangle is NaN where a pivot is 0 or less. NaN spreads, as in LAPACK."""

    def __init__(self, dtype: DType, count: int, n: int) -> None:
        super().__init__(dtype, count)
        self.n = n
        self.scratch = (n * n + 1) * GROUP

    @property
    def key(self) -> str:
        return f"cholesky({self.dtype.name},{self.count},{self.n})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return [cholesky.eval(xs[0].reshape(self.count, self.n, self.n))]

    def touches(self) -> Touches:
        nbytes = dense(self.count * self.n**2 * self.dtype.itemsize)
        return plain(nbytes, nbytes)

    def cost(self) -> KernelCost:
        nbytes = self.count * self.n**2 * self.dtype.itemsize
        return KernelCost(self.count * self.n**3 / 3, nbytes, nbytes)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        n, size = self.n, self.dtype.itemsize
        x, y = pointer(f, words, 0), pointer(f, words, 1)
        steps = (n * n, n, 1)
        with f.loop(lo, hi) as item:
            first, valid = self.group(f, item.index)
            self.spread(f, scratch, valid, f.at(x, first, n * n * size), (n, n), steps)
            good = self._factorized(f, scratch)
            zero, nan = f.constant(self.vector, 0.0), f.constant(self.vector, float("nan"))
            with f.loop(0, n) as row:
                with f.loop(0, row.index + 1) as column:
                    place = self.slot(f, scratch, n, row.index, column.index)
                    f.store(f.select(good, self.load(f, place), nan), place, GROUP)
                with f.loop(row.index + 1, n) as column:
                    f.store(zero, self.slot(f, scratch, n, row.index, column.index), GROUP)
            self.gathered(f, scratch, valid, f.at(y, first, n * n * size), (n, n), steps)
        f.ret()

    def _factorized(self, f: Function, scratch: Value) -> Value:
        """Column by column; the lanes in which no pivot was 0 or less."""
        n = self.n
        good = f.constant(vector("i1", self.lanes), True)
        with f.loop(0, n, 1, (good,)) as column:
            j = column.index
            (pivot,) = self._reduced(f, scratch, j, j, 1)
            (before,) = column.carried
            column.next(before & ~pivot.le(0.0))
            root = f.intrinsic("sqrt", self.vector, pivot)
            f.store(root, self.slot(f, scratch, n, j, j), GROUP)
            inverse = 1.0 / root
            # Four rows share the loads of row j.
            whole = j + 1 + (f.constant("i64", n - 1) - j).udiv(4) * 4
            for start, stop, rows in ((j + 1, whole, 4), (whole, n, 1)):
                with f.loop(start, stop, rows) as row:
                    found = self._reduced(f, scratch, row.index, j, rows)
                    for r, value in enumerate(found):
                        f.store(value * inverse, self.slot(f, scratch, n, row.index + r, j), GROUP)
        return column.results[0]

    def _reduced(self, f: Function, scratch: Value, i: Value, j: Value, rows: int) -> tuple[Value, ...]:
        """Elements (i ... i + rows - 1, j) less the inner products of the rows found so far."""
        n = self.n
        start = [self.load(f, self.slot(f, scratch, n, i + r, j)) for r in range(rows)]
        with f.loop(0, j, 1, start) as k:
            other = self.load(f, self.slot(f, scratch, n, j, k.index))
            k.next(
                *(
                    f.fma(-self.load(f, self.slot(f, scratch, n, i + r, k.index)), other, total)
                    for r, total in enumerate(k.carried)
                )
            )
        return k.results


@final
class Solve(Batched):
    """X with L X = B for lower triangular L: [count, n, n] and [count, n, k] to [count, n, k].

    Attributes:
        transposed: L stands transposed in memory.
        upper: what stands there is upper triangular (after ``transposed``): rows and columns are counted from the end.
        unit: the diagonal counts as ones.
        turned: B and X stand transposed in memory.
    """

    def __init__(
        self, dtype: DType, count: int, n: int, k: int, *, transposed: bool, upper: bool, unit: bool, turned: bool
    ) -> None:
        super().__init__(dtype, count)
        self.n, self.k = n, k
        self.transposed, self.upper, self.unit, self.turned = transposed, upper, unit, turned
        self.scratch = (n * n + n * k) * GROUP

    @property
    def key(self) -> str:
        flags = f"{self.transposed:d}{self.upper:d}{self.unit:d}{self.turned:d}"
        return f"triangular_solve({self.dtype.name},{self.count},{self.n},{self.k},{flags})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        a = xs[0].reshape(self.count, self.n, self.n)
        b = xs[1].reshape(self.count, *((self.k, self.n) if self.turned else (self.n, self.k)))
        a = a.swapaxes(1, 2) if self.transposed else a
        b = b.swapaxes(1, 2) if self.turned else b
        y = triangular_solve.eval(
            a, b, left_side=True, lower=not self.upper, transpose_a=False, conjugate_a=False, unit_diagonal=self.unit
        )
        return [np.ascontiguousarray(y.swapaxes(1, 2) if self.turned else y)]

    def touches(self) -> Touches:
        n, size = self.n, self.count * self.dtype.itemsize
        return plain(dense(size * n * n, size * n * self.k), dense(size * n * self.k))

    def cost(self) -> KernelCost:
        size = self.count * self.dtype.itemsize
        return KernelCost(self.count * self.n**2 * self.k, size * (self.n**2 + self.n * self.k), size * self.n * self.k)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        n, k, size = self.n, self.k, self.dtype.itemsize
        a, b, y = (pointer(f, words, i) for i in range(3))
        row, column = (1, n) if self.transposed else (n, 1)
        across, along = (1, n) if self.turned else (k, 1)
        skipped = 0
        if self.upper:
            a = f.at(a, (n - 1) * (row + column), size)
            skipped = (n - 1) * across
            row, column, across = -row, -column, -across
        right = f.at(scratch, n * n, GROUP)
        with f.loop(lo, hi) as item:
            first, valid = self.group(f, item.index)
            self.spread(f, scratch, valid, f.at(a, first, n * n * size), (n, n), (n * n, row, column))
            source, target = (f.at(f.at(p, first, n * k * size), skipped, size) for p in (b, y))
            self.spread(f, right, valid, source, (n, k), (n * k, across, along))
            with f.loop(0, n) as i:
                self._row(f, scratch, right, i.index)
            self.gathered(f, right, valid, target, (n, k), (n * k, across, along))
        f.ret()

    def _row(self, f: Function, left: Value, right: Value, i: Value) -> None:
        """Row i of the solution from those before it, four columns at a time."""
        n, k = self.n, self.k
        pivot = None if self.unit else self.load(f, self.slot(f, left, n, i, i))
        whole = k // 4 * 4
        for start, stop, width in ((0, whole, 4), (whole, k, 1)):
            with f.loop(start, stop, width) as column:
                begin = [self.load(f, self.slot(f, right, k, i, column.index + c)) for c in range(width)]
                with f.loop(0, i, 1, begin) as j:
                    factor = -self.load(f, self.slot(f, left, n, i, j.index))
                    found = [self.load(f, self.slot(f, right, k, j.index, column.index + c)) for c in range(width)]
                    j.next(*(f.fma(factor, x, total) for x, total in zip(found, j.carried, strict=True)))
                for c, value in enumerate(j.results):
                    place = self.slot(f, right, k, i, column.index + c)
                    f.store(value if pivot is None else value / pivot, place, GROUP)


@final
class Lu(Batched):
    """[count, m, n] to the packed factors, the row swaps and the permutation, bit for bit as `eval`."""

    def __init__(self, dtype: DType, count: int, m: int, n: int) -> None:
        super().__init__(dtype, count)
        self.m, self.n = m, n
        self.scratch = (m * n + 1) * GROUP

    @property
    def key(self) -> str:
        return f"lu({self.dtype.name},{self.count},{self.m},{self.n})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return lu.eval(xs[0].reshape(self.count, self.m, self.n))

    def touches(self) -> Touches:
        m, n = self.m, self.n
        nbytes = self.count * m * n * self.dtype.itemsize
        return plain(dense(nbytes), dense(nbytes, 4 * self.count * min(m, n), 4 * self.count * m))

    def cost(self) -> KernelCost:
        k, nbytes = min(self.m, self.n), self.count * self.m * self.n * self.dtype.itemsize
        return KernelCost(self.count * k**2 * (max(self.m, self.n) - k / 3), nbytes, nbytes)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        m, n, size = self.m, self.n, self.dtype.itemsize
        x, y, pivots, order = (pointer(f, words, i) for i in range(4))
        steps = (m * n, n, 1)
        with f.loop(lo, hi) as item:
            first, valid = self.group(f, item.index)
            self.spread(f, scratch, valid, f.at(x, first, m * n * size), (m, n), steps)
            swaps = f.at(pivots, first, 4 * min(m, n))
            rows = f.at(order, first, 4 * m)
            with f.loop(0, valid) as lane, f.loop(0, m) as row:
                f.store(row.index.convert("i32"), f.at(rows, lane.index * m + row.index, 4))
            with f.loop(0, min(m, n)) as step:
                chosen = f.at(scratch, m * n, GROUP)
                f.store(self._chosen(f, scratch, step.index), chosen, GROUP)
                with f.loop(0, valid) as lane:
                    p = f.load(self.word, f.at(chosen, lane.index, size)).convert("i64")
                    f.store(p.convert("i32"), f.at(swaps, lane.index * min(m, n) + step.index, 4))
                    with f.if_(p.ne(step.index)):
                        self._swapped(f, scratch, f.at(rows, lane.index, 4 * m), lane.index, step.index, p)
                self._updated(f, scratch, step.index)
            self.gathered(f, scratch, valid, f.at(y, first, m * n * size), (m, n), steps)
        f.ret()

    @property
    def word(self) -> str:
        return f"i{8 * self.dtype.itemsize}"

    def _chosen(self, f: Function, scratch: Value, k: Value) -> Value:
        """Per lane, the first row from k on whose element in column k is largest; NaN is larger than all."""
        numbers = vector(self.word, self.lanes)
        size = lambda row: f.intrinsic("fabs", self.vector, self.load(f, self.slot(f, scratch, self.n, row, k)))
        here = f.splat(k.convert(self.word), self.lanes)
        with f.loop(k + 1, self.m, 1, (size(k), here)) as row:
            largest, where = row.carried
            other = size(row.index)
            wins = other.gt(largest) | (other.is_nan() & ~largest.is_nan())
            number = f.splat(row.index.convert(self.word), self.lanes)
            assert number.type == numbers
            row.next(f.select(wins, other, largest), f.select(wins, number, where))
        return row.results[1]

    def _swapped(self, f: Function, scratch: Value, rows: Value, lane: Value, k: Value, p: Value) -> None:
        """Rows k and p of one lane, and their numbers, exchanged."""
        with f.loop(0, self.n) as column:
            places = [
                f.at(self.slot(f, scratch, self.n, row, column.index), lane, self.dtype.itemsize) for row in (k, p)
            ]
            a, b = (f.load(self.scalar, place) for place in places)
            f.store(b, places[0])
            f.store(a, places[1])
        places = [f.at(rows, row, 4) for row in (k, p)]
        a, b = (f.load("i32", place) for place in places)
        f.store(b, places[0])
        f.store(a, places[1])

    def _updated(self, f: Function, scratch: Value, k: Value) -> None:
        """The rows below divided by the pivot, and the rest less their product with row k, each rounded."""
        n = self.n
        pivot = self.load(f, self.slot(f, scratch, n, k, k))
        pivot = f.select(pivot.eq(0.0), 1.0, pivot)
        with f.loop(k + 1, self.m) as row:
            place = self.slot(f, scratch, n, row.index, k)
            factor = self.load(f, place) / pivot
            f.store(factor, place, GROUP)
            with f.loop(k + 1, n) as column:
                place = self.slot(f, scratch, n, row.index, column.index)
                top = self.load(f, self.slot(f, scratch, n, k, column.index))
                f.store(self.load(f, place) - factor * top, place, GROUP)
