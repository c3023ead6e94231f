"""Convolutions of bytes by the matrix unit, or four bytes at a time: when, and how their input lies in memory.

The input is copied to bytes, with its padding. Of a dimension with steps the lines that one tap meets lie together, in
as many *phases* as there are steps, so that lines of outputs follow each other at the distance of lines. A dimension
with one tap has only what is met. See `kernels.cpu.conv_tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import isa, knobs
from nxjax.kernels.cpu.conv_tiles import TileConv, TileProblem, height_for, lines_for, shares_for
from nxjax.kernels.cpu.matrix_unit import SIDE
from nxjax.kernels.cpu.tile_weights import UNIT, TileWeights
from nxjax.lower.cpu.builder import Builder, View
from nxjax.lower.cpu.layout import copy, fill, ordered, shifted
from nxjax.lower.cpu.rules.conv_shape import Setup, SpatialDim
from nxjax.lower.cpu.rules.conv_tail import Tail, at
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

_LEAST: Final = 1 << 17  # products: fewer are over before the unit has begun
_LEAST_QUADS: Final = 1 << 16  # the same by vectors
_RUN: Final = 8  # bytes of a run: with fewer, nearly all of a step is zeros
NOTHING: Final = SpatialDim(1, 1, 1, 1, 1, 0, 0, 0, 0)


@final
@dataclass(frozen=True, slots=True)
class StoredWeights:
    """What a convolution's weights are: floats that are divided by the ``scales`` of output channels, up to ``last``;
    or bytes."""

    view: View
    scales: View | None = None
    last: int = 0


def mode() -> str:
    """How products are made, as `TileConv` says; empty: there are no instructions for it."""
    target = isa.current()
    return "tile_ss" if target.tiles else "quads" if target.vnni and target.bits == 512 else ""


def byte_for(zero: int) -> int:
    """What stands for the signed byte ``zero`` in the input: products in vectors take unsigned bytes."""
    return zero + 128 if mode() == "quads" else zero


def blank(b: Builder, image: View, zero: int) -> None:
    """What stands for nothing everywhere."""
    fill(b, image, (zero + 128) % 256 - 128)


def possible(s: Setup) -> bool:
    """Whether there are instructions for it, and the kernel can compute ``s``."""
    return mode() != "" and len(s.dims) <= 2 and math.prod(d.taps for d in s.dims) > 0


def pays(s: Setup) -> bool:
    """Whether that takes less time than vectors do."""
    if not possible(s):
        return False
    run = s.inputs * (s.dims[-1].taps if s.dims and s.dims[-1].dilation == 1 else 1)
    work = s.pixels * s.groups * s.inputs * s.outputs * math.prod(d.taps for d in s.dims)
    least, bytes_ = (_LEAST, _RUN) if isa.current().tiles else (_LEAST_QUADS, UNIT)
    return work >= least and s.pixels >= SIDE and s.outputs >= SIDE // 2 and run >= bytes_


@final
@dataclass(frozen=True, slots=True)
class Image:
    """A convolution's input in bytes: where it lies, and in which steps it is read; see `TileProblem`.

    ``joined``: the taps of a line are one run.
    """

    x: View
    x_n: int
    x_group: int
    line: int
    step: int
    runs: tuple[int, ...]
    joined: bool


def tiles(b: Builder, s: Setup, image: Image, w: StoredWeights, t: Tail, dtype: DType, zero: int) -> None:
    """Weights in panels, and the products; ``zero`` is the byte that stands for nothing, of `byte_for`."""
    how = mode()
    matrix = how != "quads"
    high, wide = _two(s)
    depth = s.inputs * (wide.taps if image.joined else 1)
    images, groups = (s.y_n, *s.more_n), (s.y_group, *s.more_group)
    lines, pixels = ((d.y, *(d.more or (0,) * len(s.more_n))) for d in (high, wide))
    # The tail's operands come first, and the first result before those after it.
    operands = len(t.operands)
    order = [*range(1, 1 + operands), 0, *range(1 + operands, len(images))]
    problem = TileProblem(
        s.batch, s.groups, s.outputs, high.outputs, image.line, wide.outputs, image.step, image.runs, depth,
        image.x_n, image.x_group, tuple((images[i], lines[i], pixels[i], groups[i]) for i in order),
        SIDE if matrix else 1,
    )  # fmt: skip
    panels, starts = _panels(b, s, w, (high, wide), image.joined, zero, problem.deep)
    shape = (height_for(problem.positions), 0) if matrix else lines_for(problem)
    run, share = shares_for(problem, shape[0], knobs.CONV_ITEMS(), shape[1])
    extras, _, ins, outs = t.extras(s)
    kernel = TileConv(problem, how, *shape, run, share, dtype, t.expression, tuple(extras))
    b.call(kernel, [image.x, panels, starts, *ins], outs)


def _two(s: Setup) -> tuple[SpatialDim, SpatialDim]:
    high, wide = (*[NOTHING] * (2 - len(s.dims)), *s.dims)
    return high, wide


def slack(inputs: int) -> int:
    """Bytes behind an image of so many features that lies without gaps, which may be read and mean nothing."""
    return 2 * SIDE * inputs + 4 * SIDE


def lying(s: Setup, x: View) -> Image:
    """An input that is bytes already, with its padding, and steps of one."""
    high, wide = _two(s)
    step = wide.x if wide.outputs > 1 else s.inputs
    line = high.x // step if high.outputs > 1 else wide.outputs
    joined = wide.taps == 1 or (wide.dilation == 1 and wide.x == s.inputs)
    return Image(at(x, s.x_offset), s.x_n, s.x_group, line, step, _runs(high, wide, joined), joined)


def _runs(high: SpatialDim, wide: SpatialDim, joined: bool) -> tuple[int, ...]:
    taps = range(1 if joined else wide.taps)
    return tuple(i * high.dilation * high.x + j * wide.dilation * wide.x for i in range(high.taps) for j in taps)


def copied(b: Builder, s: Setup, x: View, zero: int, to_bytes: Callable[[Builder, View, View], None]) -> Image:
    """A copy of the input in bytes, which ``to_bytes`` makes of elements: [batch, groups, phases, lines, line, inputs].

    The line of a phase is such that steps of the outputs are whole.
    """
    high, wide = _two(s)
    near, low = _beside(wide), _beside(high)
    line = -(-_length(near) // near.step)
    rows = -(-_length(low) // low.step)
    strides = _strides((s.batch, s.groups, low.step, rows, line * near.step, s.inputs))
    joined = near.dilation == 1
    step = near.step * s.inputs
    runs = tuple(
        i * low.dilation % low.step * strides[2] + i * low.dilation // low.step * strides[3] + j
        for i in range(low.taps)
        for j in ((0,) if joined else range(0, near.taps * near.dilation * s.inputs, near.dilation * s.inputs))
    )
    whole = s.batch * strides[0]
    image = ordered((whole,), dtypes.int8, (0,), slack(step) + (low.step - 1) * strides[2])
    if s.padded:
        blank(b, image, zero)
    _fill(b, s, x, image, strides, to_bytes)
    return Image(image, strides[0], strides[1], line, step, runs, joined)


def _beside(d: SpatialDim) -> SpatialDim:
    """The dimension of the copy: one tap meets every element."""
    return replace(d, step=1, dilation=1) if d.taps == 1 else d


def _length(d: SpatialDim) -> int:
    """Elements of the copy along a dimension."""
    return (d.outputs - 1) * d.step + (d.taps - 1) * d.dilation + 1


def _strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    found = [1]
    for n in reversed(sizes[1:]):
        found.insert(0, found[0] * n)
    return tuple(found)


def _fill(
    b: Builder,
    s: Setup,
    x: View,
    target: View,
    strides: tuple[int, ...],
    to_bytes: Callable[[Builder, View, View], None],
) -> None:
    """The elements that the input has."""
    high, wide = _two(s)
    low, near = _beside(high), _beside(wide)
    # A dimension of one tap is made of the elements that it meets, which lie apart.
    gap_h, gap_w = (d.step if d.taps == 1 else 1 for d in (high, wide))
    first_w, count_w = _inside(near, gap_w, 0, 1)
    for phase in range(low.step):
        first_h, count_h = _inside(low, gap_h, phase, low.step)
        if count_h <= 0 or count_w <= 0:
            continue
        begin = ((first_h * low.step + phase) * gap_h - low.low) * low.x + (first_w * gap_w - near.low) * near.x
        shape = (s.batch, s.groups, count_h, count_w, s.inputs)
        steps = (s.x_n, s.x_group, gap_h * low.step * low.x, gap_w * near.x, s.x_c)
        put = phase * strides[2] + first_h * strides[3] + first_w * strides[4]
        source = shifted(x, s.x_offset + begin, shape, steps)
        to_bytes(b, source, shifted(target, put, shape, (*strides[:2], *strides[3:])))


def _inside(d: SpatialDim, gap: int, phase: int, step: int) -> tuple[int, int]:
    """Of every ``step`` elements of the copy from ``phase`` on: the first that the input has, and how many."""
    first = max(0, -(-(d.low - phase * gap) // (step * gap)))
    last = min((d.size - 1 + d.low - phase * gap) // (step * gap), (_length(d) - 1 - phase) // step)
    return first, last - first + 1


def _panels(
    b: Builder, s: Setup, w: StoredWeights, dims: tuple[SpatialDim, SpatialDim], joined: bool, zero: int, deep: int
) -> tuple[View, View]:
    """Weights in panels, and what sums start with."""
    view, (high, wide), size = w.view, dims, w.view.dtype.itemsize
    shape = (s.groups, high.taps, wide.taps, s.inputs, s.outputs)
    source = shifted(view, s.w_offset, shape, (s.w_group, high.w, wide.w, s.w_c, s.w_o))
    neighbours = not joined or wide.taps == 1 or wide.w == s.inputs * s.w_c
    if (s.w_o != size and s.outputs > 1) or not neighbours:
        dense = ordered(shape, view.dtype, range(len(shape)))
        copy(b, source, dense)
        source = dense
    group, line, tap, feature, _ = source.strides
    if s.inputs == 1:
        feature = tap
    runs = tuple(i * line + j * tap for i in range(high.taps) for j in range(1 if joined else wide.taps))
    depth = s.inputs * (wide.taps if joined else 1)
    last = w.last if w.scales is not None else 0
    kernel = TileWeights(source.dtype, s.groups, s.outputs, runs, depth, (feature, group), last, zero, deep)
    outs = [
        ordered((n // d.itemsize,), d, (0,)) for n, d in zip(kernel.sizes, (dtypes.int8, dtypes.int32), strict=True)
    ]
    b.call(kernel, [source, *(() if w.scales is None else (w.scales,))], outs)
    return outs[0], outs[1]
