"""What a convolution in memory is: sizes and strides of its dimensions, and what it reads and writes.

`conv`, `pool` and `winograd` compute it. Knows no machine code, no program and no dimension numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box

DType = np.dtype[Any]


@final
@dataclass(frozen=True, slots=True)
class ConvAxis:
    """A spatial dimension; strides are in bytes.

    Output ``o`` sees, by tap ``k``, input ``o * step + k * dilation - low``, which is zero outside of [0, size).
    """

    size: int
    outputs: int
    taps: int
    step: int
    dilation: int
    low: int
    x: int
    w: int
    y: int

    @property
    def padded(self) -> bool:
        """Whether some tap of some output lies outside."""
        last = (self.outputs - 1) * self.step + (self.taps - 1) * self.dilation - self.low
        return self.outputs > 0 and self.taps > 0 and (self.low > 0 or last >= self.size)

    @property
    def seen(self) -> tuple[int, tuple[int, int], tuple[int, int]]:
        """Where the first input lies that windows see, and how many there are at what steps, along two loops."""
        if not self.padded:
            return -self.low * self.x, (self.outputs, self.step * self.x), (self.taps, self.dilation * self.x)
        return 0, (self.size, self.x), (1, 0)


NONE: Final = ConvAxis(1, 1, 1, 1, 1, 0, 0, 0, 0)


@final
@dataclass(frozen=True, slots=True)
class Extra:
    """An operand of the epilogue: bytes per element of the batch, spatial dimensions and group.

    ``channels``: its channels lie one after the other; otherwise it has one value for all of them.
    """

    dtype: DType
    n: int
    axes: tuple[int, int, int]
    group: int
    channels: bool

    @property
    def row(self) -> bool:
        """It is the same for all pixels."""
        return not any((self.n, *self.axes))

    @property
    def text(self) -> str:
        """What machine code depends on."""
        return f"{self.dtype.name}{'c' if self.channels else ''}{'r' if self.row else ''}"


@final
@dataclass(frozen=True, slots=True)
class ConvProblem:
    """A convolution in memory; strides are in bytes.

    Attributes:
        batch, groups: how many.
        inputs: features that are summed per group; of "pairs", pairs of them.
        outputs: channels per group, one after the other in the result.
        axes: three spatial dimensions, `NONE` where there are fewer.
        x_n, x_c, x_group, y_n, y_group: of the input and the result.
        w_c, w_block, w_group: of the weights: per input feature, per block of output channels, per group.
        odd: of the last pair of inputs only the first half counts; the other is read, and multiplied by 0.
    """

    batch: int
    groups: int
    inputs: int
    outputs: int
    axes: tuple[ConvAxis, ConvAxis, ConvAxis]
    x_n: int
    x_c: int
    x_group: int
    w_c: int
    w_block: int
    w_group: int
    y_n: int
    y_group: int
    odd: bool = False

    @property
    def pixels(self) -> int:
        return self.batch * math.prod(a.outputs for a in self.axes)

    @property
    def read(self) -> int:
        """Pixels of the input that are read, for cost. An axis that needs no bounds may say any size."""
        return min(self.batch * math.prod(a.size for a in self.axes), self.pixels * self.taps)

    @property
    def taps(self) -> int:
        return math.prod(a.taps for a in self.axes)


def inputs(p: ConvProblem, size: int) -> tuple[Box, ...]:
    """What is read of the input; elements, or pairs, have ``size`` bytes."""
    if not p.taps:
        return ()
    seen = [a.seen for a in p.axes]
    loops = [(p.batch, p.x_n), *(loop for _, *two in seen for loop in two), (p.groups, p.x_group)]
    points, steps, at = tuple(n for n, _ in loops), tuple(s for _, s in loops), sum(first for first, *_ in seen)
    if not p.odd:
        return (Box(size, (*points, p.inputs), (*steps, p.x_c), at),)
    last = at + (p.inputs - 1) * p.x_c
    whole = Box(size, (*points, p.inputs - 1), (*steps, p.x_c), at)
    return whole, Box(size // 2, points, steps, last), Box(size, points, steps, last, idle=True)


def ends(
    problem: ConvProblem,
    extras: Sequence[Extra],
    more: Sequence[Extra],
    outs: Sequence[DType],
    channels: tuple[int, int],
) -> tuple[list[Box], list[Box]]:
    """What an epilogue touches of its operands and of the results; ``channels``: groups, and channels of each."""
    p = problem
    first = Extra(outs[0], p.y_n, (p.axes[0].y, p.axes[1].y, p.axes[2].y), p.y_group, True)
    shape = (p.batch, *(a.outputs for a in p.axes), *channels)

    def box(e: Extra, dtype: DType) -> Box:
        return Box(dtype.itemsize, shape, (e.n, *e.axes, e.group, dtype.itemsize if e.channels else 0))

    results = [box(e, d) for e, d in zip((first, *more), outs, strict=True)]
    return [box(e, e.dtype) for e in extras], results


def used(problem: ConvProblem) -> tuple[int, ...]:
    """The spatial dimensions that do something; one at least."""
    return tuple(i for i, a in enumerate(problem.axes) if a != NONE) or (2,)
