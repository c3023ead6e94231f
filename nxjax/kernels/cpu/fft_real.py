"""Long real lines as complex ones of half the length: a step apart from these, which have several kernels."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import final

import numpy as np

from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, Touches, plain, pointer
from nxjax.kernels.cpu.fft_butterfly import Pair, times
from nxjax.kernels.cpu.fft_lines import SCALARS, DType, NDArray, apart
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa


@final
class RealLines(Kernel):
    """`Lines` of one element each way, for long real ones: ``2 m`` reals as ``m`` complex numbers, transformed.

    Forwards the ``m`` frequencies of those to the ``m + 1`` of the reals; ``back`` the other way, so that a transform
    backwards follows, times two. Frequencies k and m - k are made together, as many as there are lanes.
    """

    def __init__(self, dtype: DType, back: bool, lines: int, m: int, lanes: int) -> None:
        self.dtype, self.back, self.lines, self.m, self.lanes = dtype, back, lines, m, lanes
        self.size = dtype.itemsize
        self.blocks = max(1, -(-(m // 2) // lanes))  # of k from 1 to m // 2
        self.items = lines * self.blocks
        self.grain = max(1, 2048 // lanes)

    @property
    def key(self) -> str:
        return f"fft_real({self.dtype.name},{self.back:d},{self.lines},{self.m},{self.lanes})"

    @property
    def _boxes(self) -> tuple[Box, Box]:
        short, long = (Box(2 * self.size * self.lines * n) for n in (self.m, self.m + 1))
        return (long, short) if self.back else (short, long)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        m, kind = self.m, np.dtype(f"c{2 * self.size}")
        x = np.ascontiguousarray(xs[0]).view(kind).reshape(self.lines, -1)
        if self.back:
            y = np.fft.fft(np.fft.irfft(x, 2 * m).reshape(self.lines, m, 2) @ np.array([2, 2j]))
        else:
            z = np.fft.ifft(x)
            y = np.fft.rfft(np.stack([z.real, z.imag], -1).reshape(self.lines, 2 * m))
        return [y.astype(kind)]

    def touches(self) -> Touches:
        source, target = self._boxes
        return plain((source, Box((self.m // 2 + 1) * 2 * self.size)), (target,))

    def cost(self) -> KernelCost:
        nbytes = 2.0 * self.lines * self.m * self.size
        return KernelCost(8.0 * self.lines * self.m, nbytes, nbytes)

    def table(self) -> NDArray:
        """The second operand: `fft_lines.apart`."""
        return _table(self.dtype, self.m)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        x, w, y = (pointer(f, words, i) for i in range(3))
        m, n = self.m, self.lanes
        counts = (m + 1, m) if self.back else (m, m + 1)
        with f.loop(lo, hi) as item:
            line, block = item.index.udiv(self.blocks), item.index.urem(self.blocks)
            source, target = (f.at(p, line * c, 2 * self.size) for p, c in zip((x, y), counts, strict=True))
            with f.if_(block.eq(0)):
                self._ends(f, source, target)
            first = block * n + 1
            count = f.intrinsic("smin", "i64", f.constant("i64", m // 2 + 1) - first, f.constant("i64", n))
            whole = count.eq(n)
            with f.if_(whole):
                self._pairs(f, source, w, target, first, n)
            with f.if_(~whole), f.loop(first, first + count) as k:
                self._pairs(f, source, w, target, k.index, 1)
        f.ret()

    def _ends(self, f: Function, source: Value, target: Value) -> None:
        scalar, m = SCALARS[self.dtype], self.m
        one = lambda p, i: f.at(p, i, self.size)
        a, b = f.load(scalar, source), f.load(scalar, one(source, 2 * m if self.back else 1))
        f.store(a + b, target)
        f.store(a - b, one(target, 1 if self.back else 2 * m))
        if not self.back:
            for i in (1, 2 * m + 1):
                f.store(f.constant(scalar, 0.0), one(target, i))

    def _pairs(self, f: Function, source: Value, w: Value, target: Value, k: Value, n: int) -> None:
        """Frequencies from ``k`` on, ``n`` of them, and those that they are told apart from."""
        scalar, half = SCALARS[self.dtype], f.constant(vector(SCALARS[self.dtype], n), 0.5)
        type, mirror = vector(scalar, 2 * n), list(range(n))[::-1]
        behind = f.constant("i64", self.m - n + 1) - k

        def read(p: Value, i: Value) -> Pair:
            z = f.load(type, f.at(p, i, 2 * self.size), self.size)
            return f.shuffle(z, None, range(0, 2 * n, 2)), f.shuffle(z, None, range(1, 2 * n, 2))

        def write(p: Value, i: Value, z: Pair) -> None:
            mixed = f.shuffle(*z, [j // 2 + j % 2 * n for j in range(2 * n)])
            f.store(mixed, f.at(p, i, 2 * self.size), self.size)

        turned = lambda z: (f.shuffle(z[0], None, mirror), f.shuffle(z[1], None, mirror))
        (a, b), (c, d) = read(source, k), turned(read(source, behind))
        turn = read(w, k)
        even = a + c, b - d
        if self.back:
            turn = -(turn[0] + turn[0]), turn[1] + turn[1]
        else:
            even = even[0] * half, even[1] * half
        odd = times(f, (a - c, b + d), turn)
        plus, minus = (even[0] + odd[0], even[1] + odd[1]), (even[0] - odd[0], even[1] - odd[1])
        here, there = (plus, minus) if self.back else (minus, plus)
        write(target, behind, turned((there[0], -there[1])))
        write(target, k, here)


@lru_cache(16)
def _table(dtype: DType, m: int) -> NDArray:
    return apart(m).view(np.float64).astype(dtype)
