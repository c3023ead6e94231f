"""Convolutions of bytes by the matrix unit: when, and how their input lies in memory.

The input is copied to bytes, with its padding. Of a dimension with steps the lines that one tap meets lie together, in
as many *phases* as there are steps, so that lines of outputs follow each other at the distance of lines. A dimension
with one tap has only what is met. See `kernels.cpu.conv_tiles`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu import isa, knobs
from nxjax.kernels.cpu.conv_tiles import TileConv, TileProblem, TileWeights, height_for, shares_for
from nxjax.kernels.cpu.matrix_unit import SIDE
from nxjax.lower.cpu.builder import Builder, View
from nxjax.lower.cpu.layout import copy, ordered, shifted
from nxjax.lower.cpu.rules.conv_shape import Setup, SpatialDim
from nxjax.lower.cpu.rules.conv_tail import Tail
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

_LEAST: Final = 1 << 17  # products: fewer are over before the unit has begun
_RUN: Final = 8  # bytes of a run: with fewer, nearly all of a step is zeros
NOTHING: Final = SpatialDim(1, 1, 1, 1, 1, 0, 0, 0, 0)


@final
@dataclass(frozen=True, slots=True)
class Weights:
    """What a convolution's weights are: floats that are divided by the ``scales`` of output channels, up to ``last``;
    or bytes."""

    view: View
    scales: View | None = None
    last: int = 0


def possible(s: Setup) -> bool:
    """Whether there is a matrix unit, and the kernel can compute ``s`` by it."""
    return isa.current().tiles and len(s.dims) <= 2 and math.prod(d.taps for d in s.dims) > 0


def pays(s: Setup) -> bool:
    """Whether that takes less time than vectors do."""
    if not possible(s):
        return False
    run = s.inputs * (s.dims[-1].taps if s.dims and s.dims[-1].dilation == 1 else 1)
    work = s.pixels * s.groups * s.inputs * s.outputs * math.prod(d.taps for d in s.dims)
    return work >= _LEAST and s.pixels >= SIDE and s.outputs >= SIDE // 2 and run >= _RUN


def tiles(
    b: Builder,
    s: Setup,
    w: Weights,
    t: Tail,
    dtype: DType,
    mode: str,
    zero: int,
    to_bytes: Callable[[Builder, View, View], None],
    x: View,
) -> None:
    """Bytes of the input, weights in panels, and their products; ``zero`` is the byte that stands for nothing.

    ``to_bytes`` makes bytes of elements of ``x``.
    """
    high, wide = (*[NOTHING] * (2 - len(s.dims)), *s.dims)
    near, low = _beside(wide), _beside(high)
    line = -(-_length(near) // near.step)
    rows = -(-_length(low) // low.step)
    size = s.inputs
    strides = _strides((s.batch, s.groups, low.step, rows, line * near.step, size))
    # All taps of a line are one run where they are neighbours.
    joined = near.dilation == 1
    taps = [1 if joined else near.taps, near.taps if joined else 1]
    begins = [
        i * low.dilation % low.step * strides[2] + i * low.dilation // low.step * strides[3] + j * near.dilation * size
        for i in range(low.taps)
        for j in range(taps[0])
    ]
    images = (s.y_n, *s.more_n)
    groups = (s.y_group, *s.more_group)
    operands = len(t.operands)
    # The tail's operands come first, and the first result before those after it.
    order = [*range(1, 1 + operands), 0, *range(1 + operands, len(images))]
    dims = [(d.y, *(d.more or (0,) * (len(images) - 1))) for d in (high, wide)]
    places = tuple((images[i], dims[0][i], dims[1][i], groups[i]) for i in order)
    problem = TileProblem(
        s.batch, s.groups, s.outputs, high.outputs, line, wide.outputs, near.step * size, tuple(begins),
        taps[1] * size, strides[0], strides[1], places,
    )  # fmt: skip
    height = height_for(problem.positions)
    whole = s.batch * strides[0]
    room = (s.batch * s.groups - 1) * strides[1] + problem.reach(height)
    bytes_ = ordered((max(whole, room),), dtypes.int8, (0,))
    _fill(b, s, (low, near), x, shifted(bytes_, 0, (whole,), (1,)), strides, zero, to_bytes)
    panels, starts = _panels(b, s, w, (high, wide), taps, zero)
    run, share = shares_for(problem, height, knobs.CONV_ITEMS())
    extras, _, ins, outs = t.extras(s)
    kernel = TileConv(problem, mode, height, run, share, dtype, t.expression, tuple(extras))
    b.call(kernel, [bytes_, panels, starts, *ins], outs)


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
    dims: tuple[SpatialDim, SpatialDim],
    x: View,
    target: View,
    strides: tuple[int, ...],
    zero: int,
    to_bytes: Callable[[Builder, View, View], None],
) -> None:
    """The input in bytes: [batch, groups, phases, lines, line, inputs]."""
    if s.padded:
        (n,) = target.shape
        copy(b, shifted(b.const(np.full(1, zero, np.int8)), 0, (n,), (0,)), target)
    low, near = dims
    # A dimension of one tap is made of the elements that it meets, which lie ``gap`` apart.
    gaps = [d.step if d.taps == 1 else 1 for d in ((*[NOTHING] * (2 - len(s.dims)), *s.dims))]
    first_w, count_w = _inside(near, gaps[1], 0, 1)
    for phase in range(low.step):
        first_h, count_h = _inside(low, gaps[0], phase, low.step)
        if count_h <= 0 or count_w <= 0:
            continue
        jump = gaps[0] * low.step * low.x
        begin = ((first_h * low.step + phase) * gaps[0] - low.low) * low.x
        begin += (first_w * gaps[1] - near.low) * near.x
        shape = (s.batch, s.groups, count_h, count_w, s.inputs)
        source = shifted(x, s.x_offset + begin, shape, (s.x_n, s.x_group, jump, gaps[1] * near.x, s.x_c))
        put = phase * strides[2] + first_h * strides[3] + first_w * strides[4]
        to_bytes(b, source, shifted(target, put, shape, (strides[0], strides[1], *strides[3:])))


def _inside(d: SpatialDim, gap: int, phase: int, step: int) -> tuple[int, int]:
    """Of every ``step`` elements of the copy from ``phase`` on: the first that the input has, and how many."""
    first = max(0, -(-(d.low - phase * gap) // (step * gap)))
    last = min((d.size - 1 + d.low - phase * gap) // (step * gap), (_length(d) - 1 - phase) // step)
    return first, last - first + 1


def _panels(
    b: Builder, s: Setup, w: Weights, dims: tuple[SpatialDim, SpatialDim], taps: list[int], zero: int
) -> tuple[View, View]:
    """Weights in panels, and what sums start with."""
    view, (high, wide), size = w.view, dims, w.view.dtype.itemsize
    shape = (s.groups, high.taps, wide.taps, s.inputs, s.outputs)
    source = shifted(view, s.w_offset, shape, (s.w_group, high.w, wide.w, s.w_c, s.w_o))
    neighbours = taps[0] > 1 or wide.taps == 1 or wide.w == s.inputs * s.w_c
    if (s.w_o != size and s.outputs > 1) or not neighbours:
        dense = ordered(shape, view.dtype, range(len(shape)))
        copy(b, source, dense)
        source = dense
    group, line, tap, feature, _ = source.strides
    if s.inputs == 1:
        feature = tap
    runs = tuple(i * line + j * tap for i in range(high.taps) for j in range(taps[0]))
    last = w.last if w.scales is not None else 0
    kernel = TileWeights(source.dtype, s.groups, s.outputs, runs, taps[1] * s.inputs, (feature, group), last, zero)
    outs = [
        ordered((n // d.itemsize,), d, (0,)) for n, d in zip(kernel.sizes, (dtypes.int8, dtypes.int32), strict=True)
    ]
    b.call(kernel, [source, *(() if w.scales is None else (w.scales,))], outs)
    return outs[0], outs[1]
