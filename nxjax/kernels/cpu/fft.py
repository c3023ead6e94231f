"""Fourier transforms of many lines: one line per lane, passes of butterflies between two pieces of scratch memory.

A pass of radix r takes elements that stand n / r apart, transforms them in registers and turns them by roots of unity;
Stockham's order of the results makes the last pass leave all in place (C. Van Loan, "Computational Frameworks for the
Fast Fourier Transform", 1992, 1.7). A length with a large prime is a convolution of a smooth length (L. Bluestein, "A
linear filtering approach to the computation of the discrete Fourier transform", 1970).

`fft_lines` says which lines and has their constants, `fft_block` writes passes, `fft_butterfly` what is in registers,
and `fft_real` is the step of long real lines.

Lines may stand in memory in two ways: side by side, element by element, which loads fill lanes with; or one after the
other, which squares of registers are transposed for. Real lines of even length are complex ones of half the length, and
a step apart from those; of odd length, complex ones with zeros.

A long line is a matrix: its columns are transformed and turned by roots of the whole length (``twist``), then its rows,
whose results go to columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import final

import numpy as np

from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, Touches, plain, pointer
from nxjax.kernels.cpu.fft_block import FftBlock
from nxjax.kernels.cpu.fft_butterfly import roots
from nxjax.kernels.cpu.fft_lines import Lines, NDArray, table
from nxjax.kernels.cpu.ir import LlvmModule
from nxjax.kernels.cpu.isa import Isa


@final
class FftLines(Kernel):
    """``lines`` from the first operand to the output; the second one is `table`."""

    def __init__(self, lines: Lines) -> None:
        self.of = lines
        self.items = lines.groups * lines.blocks
        self.size = lines.size
        self.scratch = 2 * lines.room * 2 * lines.width
        work = lines.worked * lines.lanes
        self.grain = max(1, 1 << 15 >> (work - 1).bit_length())
        if lines.source == lines.target and lines.kind == "complex":
            self.inplace = ((0, 0),)

    @property
    def key(self) -> str:
        x = self.of
        steps = f"{list(x.source)}{list(x.target)}".replace(" ", "")
        return (
            f"fft({x.dtype.name},{x.kind},{x.inverse:d},{x.length},{x.groups},{x.lines},{steps},{x.lanes},"
            f"{x.eights:d},{x.twist},{x.divisor})"
        )

    # --- contract ---

    def _box(self, which: str) -> Box:
        x = self.of
        steps = x.source if which == "source" else x.target
        real = (x.kind, which) in (("real", "source"), ("back", "target"))
        count = x.length if real or x.kind == "complex" else x.frequencies
        strides = (*steps[:2], 1 if real else steps.element)
        parts = 1 if real else 2
        return Box(parts * self.size, (x.groups, x.lines, count), tuple(s * self.size for s in strides))

    def _strided(self, flat: NDArray, which: str) -> NDArray:
        box = self._box(which)
        dtype = self.of.dtype if box.size == self.size else np.dtype(f"c{box.size}")
        return np.ndarray(box.shape, dtype, flat, 0, box.strides)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        x = self.of
        a = self._strided(np.ascontiguousarray(xs[0]).ravel(), "source")
        if x.kind == "real":
            y = np.fft.rfft(a)
        elif x.kind == "back":
            y = np.fft.irfft(a, x.length) * x.length
        else:
            y = np.fft.ifft(a) * x.length if x.inverse else np.fft.fft(a)
        if x.twist:
            w = roots(x.twist, np.outer(np.arange(x.lines), np.arange(x.length)))
            y = y * (w.conj() if x.inverse else w)
        out = np.zeros(self._box("target").end // self.size, x.dtype)
        self._strided(out, "target")[...] = y / x.divisor
        return [out]

    def touches(self) -> Touches:
        return plain((self._box("source"), Box(table(self.of)[0].nbytes)), (self._box("target"),))

    def cost(self) -> KernelCost:
        x = self.of
        count = x.groups * x.lines
        n = x.elements
        length = x.worked
        flops = 5.0 * count * length * max(1.0, math.log2(max(length, 2))) * (2 if x.padded else 1)
        nbytes = 2.0 * count * n * self.size
        return KernelCost(flops, nbytes, nbytes)

    # --- code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        x, y, constants = pointer(f, words, 0), pointer(f, words, 2), pointer(f, words, 1)
        with f.loop(lo, hi) as item:
            FftBlock(self.of, f, x, y, constants, scratch, item.index).write()
        f.ret()
