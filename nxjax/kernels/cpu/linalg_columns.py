"""Triangular systems of any size: columns of the right-hand side in lanes, elements of the matrix one by one.

Beside `linalg.Solve`, which has matrices in lanes, for few or large matrices. A block of columns stands in scratch
memory while each row of it is found from those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import final

import numpy as np

from nxjax.kernels.cpu.base import Kernel, KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, Alike, DType, NDArray, Solve
from nxjax.kernels.cpu.linalg_tiles import Tile, tile

WIDTH = 4  # vectors of columns that are worked on together


@final
class SolveColumns(Kernel):
    """As `Solve`, with its attributes."""

    grain = 1

    def __init__(
        self, dtype: DType, count: int, n: int, k: int, *, transposed: bool, upper: bool, unit: bool, turned: bool
    ) -> None:
        self.dtype, self.count, self.n, self.k = dtype, count, n, k
        self.transposed, self.upper, self.unit, self.turned = transposed, upper, unit, turned
        self.lanes = GROUP // dtype.itemsize
        self.width = min(WIDTH, -(-k // self.lanes))
        self.columns = self.width * self.lanes
        self.blocks = -(-k // self.columns)
        self.items = count * self.blocks
        self.scratch = n * self.columns * dtype.itemsize

    @property
    def key(self) -> str:
        flags = f"{self.transposed:d}{self.upper:d}{self.unit:d}{self.turned:d}"
        return f"triangular_columns({self.dtype.name},{self.count},{self.n},{self.k},{flags})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        flags = {"transposed": self.transposed, "upper": self.upper, "unit": self.unit, "turned": self.turned}
        return Solve(self.dtype, self.count, self.n, self.k, **flags).meaning(*xs)

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
        steps = (1, n) if self.transposed else (n, 1)
        across, along = (1, n) if self.turned else (k, 1)
        skipped = 0
        if self.upper:  # counted from the end it is lower
            a = f.at(a, (n - 1) * (n + 1), size)
            skipped = (n - 1) * across
            steps, across = (-steps[0], -steps[1]), -across
        with f.loop(lo, hi) as item:
            which, block = item.index.udiv(self.blocks), item.index.urem(self.blocks)
            start = block * self.columns
            valid = f.intrinsic("smin", "i64", f.constant("i64", k) - start, f.constant("i64", self.columns))
            matrix = f.at(a, which * (n * n), size)
            source, target = (f.at(f.at(p, which * (n * k), size), start * along + skipped, size) for p in (b, y))
            if k % self.columns:  # no arithmetic on what lay there, which may be slow
                with f.if_(valid.lt(self.columns)):
                    f.call("memset", "ptr", scratch, f.constant("i32", 0), f.constant("i64", self.scratch))
            self._copied(f, scratch, source, (across, along), valid)
            of = tile(isa, DTYPES[self.dtype], size, self.columns // isa.lanes(size))
            with f.loop(0, self.columns, of.columns) as column:
                self._solved(f, of, matrix, f.at(scratch, column.index, size), steps)
            self._copied(f, scratch, target, (across, along), valid, back=True)
        f.ret()

    def _copied(
        self, f: Function, inside: Value, outside: Value, steps: tuple[int, int], valid: Value, *, back: bool = False
    ) -> None:
        """A block to scratch memory, or from there; ``steps`` are elements outside to the next row and column."""
        size = self.dtype.itemsize
        with f.loop(0, self.n) as i:
            line, mine = f.at(outside, i.index * steps[0], size), f.at(inside, i.index * self.columns, size)
            if steps[1] == 1:
                f.call("memcpy", "ptr", *((line, mine) if back else (mine, line)), valid * size)
            else:
                with f.loop(0, valid) as c:
                    there, here = f.at(line, c.index * steps[1], size), f.at(mine, c.index, size)
                    source, target = (here, there) if back else (there, here)
                    f.store(f.load(DTYPES[self.dtype], source), target)

    def _solved(self, f: Function, of: Tile, matrix: Value, scratch: Value, steps: tuple[int, int]) -> None:
        """Some rows at a time: less what those before take of them, then what they take of each other, in registers."""
        size, rest = self.dtype.itemsize, self.n % of.rows
        for start, stop, rows in ((0, self.n - rest, of.rows), (self.n - rest, self.n, rest))[: 2 if rest else 1]:
            with f.loop(start, stop, rows) as i:
                left = f.at(matrix, i.index * steps[0], size)
                corner = f.at(left, i.index * steps[1], size)
                element = partial(self._element, f, corner, steps)
                places = [f.at(scratch, (i.index + r) * self.columns, size) for r in range(rows)]
                found = of.less(f, of.load(f, places), left, steps, scratch, self.columns, (0, i.index))
                for r in range(rows):
                    for q in range(r):
                        factor = of.factor(f, element(r, q))
                        found[r] = [f.fma(factor, x, y) for x, y in zip(found[q], found[r], strict=True)]
                    if not self.unit:
                        pivot = f.splat(f.load(of.scalar, element(r, r)), of.lanes)
                        found[r] = [x / pivot for x in found[r]]
                of.store(f, found, places)

    def _element(self, f: Function, corner: Value, steps: tuple[int, int], row: int, column: int) -> Value:
        return f.at(corner, row * steps[0] + column * steps[1], self.dtype.itemsize)


@final
class SolveVector(Alike):
    """As `Solve` with one right-hand side, for large matrices: each is read in the order in which it stands.

    Rows are multiplied with what of the solution is known; of a matrix that stands transposed, columns are taken from
    what is left. Sums are in an order of their own.
    """

    grain = 1

    def __init__(self, dtype: DType, count: int, n: int, *, transposed: bool, upper: bool, unit: bool) -> None:
        self.dtype, self.count, self.n = dtype, count, n
        self.transposed, self.upper, self.unit = transposed, upper, unit
        self.items = count
        self.lanes = 2 * GROUP // dtype.itemsize
        self.scratch = n * dtype.itemsize

    @property
    def key(self) -> str:
        flags = f"{self.transposed:d}{self.upper:d}{self.unit:d}"
        return f"triangular_vector({self.dtype.name},{self.count},{self.n},{flags})"

    def alike(self) -> Solve:
        flags = {"transposed": self.transposed, "upper": self.upper, "unit": self.unit, "turned": False}
        return Solve(self.dtype, self.count, self.n, 1, **flags)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        n, size, scalar = self.n, self.dtype.itemsize, DTYPES[self.dtype]
        a, b, y = (pointer(f, words, i) for i in range(3))
        nbytes = f.constant("i64", n * size)
        with f.loop(lo, hi) as item:
            matrix = f.at(a, item.index * (n * n), size)
            source, target = (f.at(p, item.index * n, size) for p in (b, y))
            f.call("memcpy", "ptr", scratch, source, nbytes)
            with f.loop(0, n) as step:
                i = f.constant("i64", n - 1) - step.index if self.upper else step.index
                line, mine = f.at(matrix, i * n, size), f.at(scratch, i, size)
                # Lines of a lower matrix begin with what is known; of columns, it is what is not.
                before = self.upper == self.transposed
                start, stop = (f.constant("i64", 0), i) if before else (i + 1, f.constant("i64", n))
                value = f.load(scalar, mine)
                if not self.transposed:
                    value = value - self._product(f, line, scratch, start, stop)
                if not self.unit:
                    value = value / f.load(scalar, f.at(line, i, size))
                f.store(value, mine)
                if self.transposed:
                    self._taken(f, line, scratch, start, stop, value)
            f.call("memcpy", "ptr", target, scratch, nbytes)
        f.ret()

    def _whole(self, start: Value, stop: Value) -> tuple[Value, Value]:
        """Where whole vectors end, and the lanes of a last one that is not whole."""
        f = start.f
        end = start + (stop - start).udiv(self.lanes) * self.lanes
        return end, f.lanes_below(stop - end, self.lanes)

    def _product(self, f: Function, line: Value, known: Value, start: Value, stop: Value) -> Value:
        type, size = vector(DTYPES[self.dtype], self.lanes), self.dtype.itemsize
        end, rest = self._whole(start, stop)
        with f.loop(start, end, self.lanes, (f.constant(type, 0.0),)) as loop:
            x, z = (f.load(type, f.at(p, loop.index, size), size) for p in (line, known))
            loop.next(f.fma(x, z, loop.carried[0]))
        x, z = (f.load_masked(type, f.at(p, end, size), rest) for p in (line, known))
        total, lanes = f.fma(x, z, loop.results[0]), self.lanes
        while lanes > 1:
            lanes //= 2
            total = f.shuffle(total, None, range(lanes)) + f.shuffle(total, None, range(lanes, 2 * lanes))
        return f.extract(total, 0)

    def _taken(self, f: Function, line: Value, left: Value, start: Value, stop: Value, value: Value) -> None:
        type, size = vector(DTYPES[self.dtype], self.lanes), self.dtype.itemsize
        end, rest = self._whole(start, stop)
        factor = -f.splat(value, self.lanes)
        with f.loop(start, end, self.lanes) as loop:
            place = f.at(left, loop.index, size)
            x = f.load(type, f.at(line, loop.index, size), size)
            f.store(f.fma(x, factor, f.load(type, place, size)), place, size)
        place = f.at(left, end, size)
        x, z = (f.load_masked(type, p, rest) for p in (f.at(line, end, size), place))
        f.store_masked(f.fma(x, factor, z), place, rest)


def kernel(
    dtype: DType, count: int, n: int, k: int, *, exact: bool = False, **flags: bool
) -> Solve | SolveColumns | SolveVector:
    """The quickest: matrices in lanes where there are enough of them and they are small.

    ``exact``: sums are in the order that all processors have.
    """
    lanes = GROUP // dtype.itemsize
    if k == 1 and n >= 2 * lanes and count < lanes and not exact:
        return SolveVector(dtype, count, n, **{name: flags[name] for name in ("transposed", "upper", "unit")})
    small = (n * n + n * k) * GROUP <= 1 << 18
    used = np.ceil(count / lanes) * lanes / count  # what idle lanes cost
    idle = np.ceil(k / lanes) * lanes / k
    return Solve(dtype, count, n, k, **flags) if small and used < idle else SolveColumns(dtype, count, n, k, **flags)
