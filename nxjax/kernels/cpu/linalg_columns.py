"""Triangular systems of any size: columns of the right-hand side in lanes, elements of the matrix one by one.

Beside `linalg.Solve`, which has matrices in lanes, for few or large matrices. A block of columns stands in scratch
memory while each row of it is found from those before.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from nxjax.kernels.cpu.base import Kernel, KernelCost, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, DType, NDArray, Solve

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
        row, column = (1, n) if self.transposed else (n, 1)
        across, along = (1, n) if self.turned else (k, 1)
        skipped = 0
        if self.upper:  # counted from the end it is lower
            a = f.at(a, (n - 1) * (row + column), size)
            skipped = (n - 1) * across
            row, column, across = -row, -column, -across
        with f.loop(lo, hi) as item:
            which, block = item.index.udiv(self.blocks), item.index.urem(self.blocks)
            start = block * self.columns
            valid = f.intrinsic("smin", "i64", f.constant("i64", k) - start, f.constant("i64", self.columns))
            matrix = f.at(a, which * (n * n), size)
            source, target = (f.at(f.at(p, which * (n * k), size), start * along + skipped, size) for p in (b, y))
            for copying in (True, False):
                with f.loop(0, n) as i, f.loop(0, valid) as c:
                    outside = f.at(source if copying else target, i.index * across + c.index * along, size)
                    inside = f.at(scratch, i.index * self.columns + c.index, size)
                    here, there = (outside, inside) if copying else (inside, outside)
                    f.store(f.load(DTYPES[self.dtype], here), there)
                if copying:
                    self._solved(f, matrix, scratch, row, column)
        f.ret()

    def _solved(self, f: Function, matrix: Value, scratch: Value, row: int, column: int) -> None:
        scalar, size = DTYPES[self.dtype], self.dtype.itemsize
        type = vector(scalar, self.lanes)
        places = lambda i: [f.at(scratch, i * self.width + w, GROUP) for w in range(self.width)]
        with f.loop(0, self.n) as i:
            left = f.at(matrix, i.index * row, size)
            mine = places(i.index)
            with f.loop(0, i.index, 1, [f.load(type, p, GROUP) for p in mine]) as j:
                factor = f.splat(-f.load(scalar, f.at(left, j.index * column, size)), self.lanes)
                found = [f.load(type, p, GROUP) for p in places(j.index)]
                j.next(*(f.fma(factor, x, total) for x, total in zip(found, j.carried, strict=True)))
            pivot = f.splat(f.load(scalar, f.at(left, i.index * column, size)), self.lanes)
            for place, value in zip(mine, j.results, strict=True):
                f.store(value if self.unit else value / pivot, place, GROUP)


def kernel(dtype: DType, count: int, n: int, k: int, **flags: bool) -> Solve | SolveColumns:
    """The quicker of the two: matrices in lanes where there are enough of them and they are small."""
    lanes = GROUP // dtype.itemsize
    small = (n * n + n * k) * GROUP <= 1 << 18
    used = np.ceil(count / lanes) * lanes / count  # what idle lanes cost
    idle = np.ceil(k / lanes) * lanes / k
    return Solve(dtype, count, n, k, **flags) if small and used < idle else SolveColumns(dtype, count, n, k, **flags)
