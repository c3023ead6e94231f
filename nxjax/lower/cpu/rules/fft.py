"""Fourier transforms: axis by axis, by kernels that transform as many lines as there are lanes.

Lines too long for that, or too few of them, are matrices of lines; see `kernels.cpu.fft`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import Kernel
from nxjax.kernels.cpu.fft import FftLines
from nxjax.kernels.cpu.fft_butterfly import is_smooth
from nxjax.kernels.cpu.fft_lines import FftSteps, Lines, table
from nxjax.kernels.cpu.fft_real import RealLines
from nxjax.kernels.cpu.isa import Isa
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.ops.fft import FftType
from nxjax.trace import dtypes
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType, Shape

NEAR: Final = 4096  # elements of a line that a core's second cache holds, in all lanes
FAR: Final = 1 << 15  # of one that scratch memory holds
FEW: Final = 256  # elements of a line that is not worth two kernels
# A kernel, its table and the type of what it writes.
Stage = tuple[Kernel, Any, ArrayType]


@rule("fft")
def fft(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    type, out = e.inputs[0].type, e.outputs[0].type
    kind, lengths = e.params["fft_type"], e.params["fft_lengths"]
    target = isa.current()
    if target.reproducible:
        raise NoKernel("roots of unity have the processor's bits")
    if not type.size or not out.size:
        raise NoKernel("nothing to compute")
    real = dtypes.real_part(type.dtype)
    plan = _Plan(target, real, kind in (FftType.IFFT, FftType.IRFFT))
    axes = range(out.ndim - len(lengths), out.ndim - (kind in (FftType.RFFT, FftType.IRFFT)))
    if kind is FftType.RFFT:
        plan.real(out.shape[:-1], lengths[-1])
    shape = type.shape if kind is FftType.IRFFT else out.shape
    for axis in reversed(axes):
        plan.along(shape, axis)
    if kind is FftType.IRFFT:
        plan.back(out.shape)
    y = b.dense(x)
    for kernel, constants, made in plan.stages:
        y, operand = b.new(made), y
        b.call(kernel, (operand, b.const(constants)), (y,))
    return (y,)


class _Plan:
    """Collects the kernels before any is called, so that what has none is refused whole."""

    def __init__(self, target: Isa, dtype: Any, inverse: bool) -> None:
        self.lanes, self.eights = target.lanes(dtype.itemsize), target.registers > 16
        self.dtype, self.inverse = dtype, inverse
        self.complex = dtypes.complex_of(dtype)
        self.stages: list[Stage] = []

    def _lines(self, shape: Shape, dtype: Any, *, kind: str, **what: Any) -> None:
        x = Lines(dtype=self.dtype, kind=kind, lanes=self.lanes, eights=self.eights, **what)
        if (x.padded or x.elements) > FAR:
            raise NoKernel("lines too long, and of no two factors")
        self.stages.append((FftLines(x), table(x)[0], ArrayType(shape, dtype)))

    def along(self, shape: Shape, axis: int) -> None:
        """Complex to complex."""
        n = shape[axis]
        before, behind = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        if n == 1:
            return
        divisor = n if self.inverse else 1
        if behind > 1:
            steps = FftSteps(2 * n * behind, 2, 2 * behind)
            self._lines(shape, self.complex, kind="complex", inverse=self.inverse, length=n, groups=before,
                        lines=behind, source=steps, target=steps, divisor=divisor)  # fmt: skip
        else:
            self._rows(shape, before, n, divisor)

    def _rows(self, shape: Shape, count: int, n: int, divisor: int) -> None:
        """Lines one after the other."""
        common: dict[str, Any] = {"kind": "complex", "inverse": self.inverse}
        if cut := self._cut(count, n):
            a, b = cut
            # As [a, b]: columns in place, then rows, whose result k goes to column k.
            columns = FftSteps(2 * n, 2, 2 * b)
            self._lines(shape, self.complex, length=a, groups=count, lines=b, source=columns, target=columns,
                        twist=n, **common)  # fmt: skip
            self._lines(shape, self.complex, length=b, groups=count, lines=a, source=FftSteps(2 * n, 2 * b, 2),
                        target=FftSteps(2 * n, 2, 2 * a), divisor=divisor, **common)  # fmt: skip
            return
        steps = FftSteps(2 * n * count, 2 * n, 2)
        self._lines(shape, self.complex, length=n, groups=1, lines=count, source=steps, target=steps,
                    divisor=divisor, **common)  # fmt: skip

    def _cut(self, count: int, n: int) -> tuple[int, int] | None:
        """The two factors of a line that is a matrix of lines; None where it better is not."""
        if n <= (NEAR if 2 * count > self.lanes else FEW) or not is_smooth(n):
            return None
        pairs = [(a, n // a) for a in range(2, math.isqrt(n) + 1) if n % a == 0]
        near = [(a, b) for a, b in pairs if a >= self.lanes // 2 and b <= NEAR]
        if not near:
            return None
        a, b = max(near, key=lambda p: (p[1] % self.lanes == 0 and p[0] % self.lanes == 0, p[0]))
        return b, a

    def real(self, front: Shape, n: int) -> None:
        """Real to complex, along the last axis."""
        count, frequencies, m = math.prod(front), n // 2 + 1, n // 2
        shape = (*front, frequencies)
        if n % 2 == 0 and self._cut(count, m):
            self._rows((*front, m), count, m, 1)
            self._apart(shape, False, count, m)
            return
        x = {"source": FftSteps(n * count, n, 1), "target": FftSteps(2 * frequencies * count, 2 * frequencies, 2)}
        self._lines(shape, self.complex, kind="real", inverse=False, length=n, groups=1, lines=count, **x)

    def back(self, shape: Shape) -> None:
        """Complex to real, along the last axis."""
        n = shape[-1]
        count, frequencies, m = math.prod(shape[:-1]), n // 2 + 1, n // 2
        if n % 2 == 0 and self._cut(count, m):
            self._apart((*shape[:-1], m), True, count, m)
            self._rows((*shape[:-1], m), count, m, n)
            kernel, constants, _ = self.stages.pop()
            self.stages.append((kernel, constants, ArrayType(shape, self.dtype)))
            return
        x = {"source": FftSteps(2 * frequencies * count, 2 * frequencies, 2), "target": FftSteps(n * count, n, 1)}
        self._lines(shape, self.dtype, kind="back", inverse=True, length=n, groups=1, lines=count, divisor=n, **x)

    def _apart(self, shape: Shape, back: bool, count: int, m: int) -> None:
        kernel = RealLines(self.dtype, back, count, m, self.lanes)
        self.stages.append((kernel, kernel.table(), ArrayType(shape, self.complex)))
