"""Window reductions: a box of windows is reduced one dimension after the other, tap by tap, as elementwise work on
strided views."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.window import SelectAndScatterAdd
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.mapping import grid, parts
from nxjax.lower.ipu.program import Boxes, FieldConnection, Group, MappedRegion, VariableView, row_major
from nxjax.lower.ipu.rules.rows import fits
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.arithmetic import add, max, min
from nxjax.ops.base import constant, like, zeros
from nxjax.ops.bitwise import and_, not_
from nxjax.ops.compare import ge, le
from nxjax.ops.convert import convert_element_type
from nxjax.ops.select import select_n
from nxjax.ops.slicing import pad
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import highest, lowest
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType

# Beyond so many taps along a dimension, runs of a power of two are combined first and each window is two of them.
LONG: Final = 8

Combine = Callable[[Array, Array], Array]


def _padded(x: Array, value: Any, padding: Any, base: Sequence[int]) -> Array:
    config = tuple((low, high, d - 1) for (low, high), d in zip(padding, base, strict=True))
    return pad(x, wrap(np.asarray(value).astype(x.dtype)), padding_config=config) if any(map(any, config)) else x


def _cut(x: Array, axis: int, start: int, count: int, step: int = 1) -> Array:
    starts, limits, steps = [0] * x.ndim, list(x.shape), [1] * x.ndim
    starts[axis], limits[axis], steps[axis] = start, start + (count - 1) * step + 1, step
    return slice_op(x, start_indices=tuple(starts), limit_indices=tuple(limits), strides=tuple(steps))


def _along(x: Array, axis: int, size: int, stride: int, hole: int, count: int, combine: Combine, again: bool) -> Array:
    """Windows along one dimension: ``count`` of them, ``size`` taps each, ``hole`` apart."""
    if size <= LONG:
        total = _cut(x, axis, 0, count, stride)
        for tap in range(1, size):
            total = combine(total, _cut(x, axis, tap * hole, count, stride))
        return total
    # Runs of 1, 2, 4, ... taps from each place. A window is joined from runs: overlapping ones where that is the same
    # (the extremum of an element and itself is the element), else those of its binary digits.
    runs, run = [x], 1
    while run * 2 <= size:
        last = runs[-1]
        places = last.shape[axis] - run * hole
        runs.append(combine(_cut(last, axis, 0, places), _cut(last, axis, run * hole, places)))
        run *= 2
    if again:
        return combine(_cut(runs[-1], axis, 0, count, stride), _cut(runs[-1], axis, (size - run) * hole, count, stride))
    total: Array | None = None
    start = 0
    for power in reversed(range(len(runs))):
        if size & (1 << power):
            part = _cut(runs[power], axis, start * hole, count, stride)
            total = part if total is None else combine(total, part)
            start += 1 << power
    assert total is not None
    return total


def reduce_window(b: Builder, e: Equation, x: VariableView) -> VariableView:
    p, out = e.params, e.outputs[0].type
    if not out.size:
        return b.variable(out.shape, out.dtype).view()
    op: Any = e.op
    combine: Combine = {"reduce_window_max": max, "reduce_window_min": min}.get(op.name, add)

    def windows(v: Array) -> Array:
        if v.dtype == dtypes.float16 and combine is add:
            v = convert_element_type(v, dtype=dtypes.float32)
        y = _padded(v, op.identity(out.dtype), p["padding"], p["base_dilation"])
        for axis, (k, s, d) in enumerate(
            zip(p["window_dimensions"], p["window_strides"], p["window_dilation"], strict=True)
        ):
            if (k, s) != (1, 1):
                y = _along(y, axis, k, s, d, out.shape[axis], combine, combine is not add)
        return convert_element_type(y, dtype=out.dtype) if y.dtype != out.dtype else y

    return b.inline(windows, [x])


def select_and_gather_add(b: Builder, e: Equation, t: VariableView, x: VariableView) -> VariableView:
    p, out = e.params, e.outputs[0].type
    if not out.size:
        return b.variable(out.shape, out.dtype).view()

    def gathered(t: Array, x: Array) -> Array:
        greatest = p["select_prim"] == "ge"
        worst = (lowest if greatest else highest)(x.dtype)
        better = ge if greatest else le
        values = _padded(x, worst, p["padding"], p["base_dilation"])
        inside = _padded(constant(True, dtypes.bool_, x.shape), False, p["padding"], p["base_dilation"])
        tangents = _padded(t, 0, p["padding"], p["base_dilation"])
        best = constant(worst, x.dtype, out.shape)
        found = constant(False, dtypes.bool_, out.shape)
        chosen = zeros(ArrayType(out.shape, t.dtype))
        for tap in itertools.product(*map(range, p["window_dimensions"])):
            start = tuple(j * d for j, d in zip(tap, p["window_dilation"], strict=True))
            limit = tuple(a + (n - 1) * s + 1 for a, n, s in zip(start, out.shape, p["window_strides"], strict=True))
            at: dict[str, Any] = {"start_indices": start, "limit_indices": limit, "strides": p["window_strides"]}
            value, here = slice_op(values, **at), slice_op(inside, **at)
            taken = and_(here, not_(and_(found, better(best, value))))
            best = select_n(taken, best, value)
            chosen = select_n(taken, chosen, slice_op(tangents, **at))
            found = select_n(taken, found, like(found, True))
        return chosen

    return b.inline(gathered, [t, x])


# --- pooling as one vertex per image and some channels ---

# Window dimensions of the codelets.
SPATIAL: Final = 3
# Cycles that a window's place takes written as elementwise work, and of each element of a tile: as the model counts it.
TAP: Final = 3500
TAP_EACH: Final = 12


def _pooled(e: Equation) -> list[int] | None:
    """The dimensions that windows run along, if the codelets of windows serve ``e``."""
    p = e.params
    if any(d != 1 for d in p["base_dilation"]) or any(v < 0 for pair in p["padding"] for v in pair):
        return None
    moving = [
        d
        for d, (k, s, pair) in enumerate(zip(p["window_dimensions"], p["window_strides"], p["padding"], strict=True))
        if (k, s) != (1, 1) or any(pair)
    ]
    # Beside them there are a batch and channels.
    return moving if len(moving) <= SPATIAL and len(p["padding"]) - len(moving) <= 2 else None


def _boxes(b: Builder, shape: tuple[int, ...], moving: Sequence[int]) -> tuple[list[int], Any]:
    """The order in which a vertex reads a box [batch..., window dimensions, channels], and the boxes."""
    still = [d for d in range(len(shape)) if d not in moving]
    order = [*still[:-1], *moving, *still[-1:]]
    splits: list[Any] = [parts(n, 1) for n in shape]
    left = b.tiles
    for d in still:
        splits[d] = parts(shape[d], left or 1)
        left //= sum(many for *_, many in splits[d])
    return order, grid(shape, splits)


def _five(order: Sequence[int], moving: Sequence[int], values: Sequence[int], neutral: int) -> tuple[int, ...]:
    """Per dimension of a box [batch, d, h, w, channels], what ``values`` says."""
    still = [d for d in order if d not in moving]
    batch, channels = still[:-1], still[-1:]
    row = [*(neutral for _ in range(1 - len(batch))), *(values[d] for d in batch)]
    row += [*(neutral for _ in range(SPATIAL - len(moving))), *(values[d] for d in moving)]
    return (*row, values[channels[0]] if channels else neutral)


def _attributes(e: Equation, moving: Sequence[int], box: Any, out: Any, order: Sequence[int]) -> dict[str, int]:
    p = e.params
    still = [d for d in order if d not in moving]
    found = {"channels": box[still[-1]] if still else 1, "batch": math.prod(box[d] for d in still[:-1])}
    sizes = {
        "i": box,
        "o": out,
        "k": p["window_dimensions"],
        "s": p["window_strides"],
        "d": p["window_dilation"],
        "p": [low for low, _ in p["padding"]],
    }
    neutral = {"i": 1, "o": 1, "k": 1, "s": 1, "d": 1, "p": 0}
    for letter, values in sizes.items():
        row = [*(neutral[letter] for _ in range(SPATIAL - len(moving))), *(values[d] for d in moving)]
        found |= {letter + name: int(v) for name, v in zip("dhw", row, strict=True)}
    return found


def _alone(
    b: Builder, codelet: SelectAndScatterAdd, e: Equation, source: VariableView, order: Any, moving: Any, boxes: Any
) -> int:
    """Cycles of the busiest vertex, if vertices take whole windows."""
    _, sizes, _ = boxes[0]
    outs = tuple(source.shape[d] if d in moving else sizes[d] for d in range(len(sizes)))
    attributes = _attributes(e, moving, sizes, outs, order)
    return codelet.cycles({"source": _five(order, moving, outs, 1)}, attributes, b.chip)


def select_and_scatter_add(b: Builder, e: Equation, source: VariableView, x: VariableView) -> VariableView:
    moving = _pooled(e)
    n = math.prod(x.shape[d] for d in moving or ())
    good = moving and x.size and source.size and fits(b, 3 * 4 * n) and x.dtype.name in ("float32", "float16")
    if not good or not moving:
        return b.inline(e.op.expand, [source, x], **e.params)
    order, made = _boxes(b, x.shape, moving)
    boxes = list(made)
    codelet = SelectAndScatterAdd(e.params["select_prim"] == "ge", x.dtype.name)
    taps = math.prod(e.params["window_dimensions"])
    if _alone(b, codelet, e, source, order, moving, boxes) > taps * (TAP + TAP_EACH * x.size / b.tiles):
        # A few tiles would work, and hold all of it: elementwise work on every tile is faster.
        return b.inline(e.op.expand, [source, x], **e.params)
    y = b.variable(x.shape, codelet.out, ())
    ys = row_major(x.shape)
    groups: list[Group] = []
    pieces: list[MappedRegion] = []
    for starts, sizes, place in boxes:
        tiles = (b.first + place).astype(np.int32)
        outs = tuple(source.shape[d] if d in moving else sizes[d] for d in range(len(sizes)))

        def turned(offset: int, size: tuple[int, ...], steps: tuple[int, ...], starts: Any = starts) -> Boxes:
            places = offset + starts @ np.asarray(steps, np.int64)
            return Boxes(places, _five(order, moving, size, 1), _five(order, moving, steps, 0))

        to = turned(0, sizes, ys)
        edges = {
            "source": FieldConnection(source.variable, turned(source.offset, outs, source.strides)),
            "x": FieldConnection(x.variable, turned(x.offset, sizes, x.strides)),
            "y": FieldConnection(y, to),
        }
        pieces.append(MappedRegion(to, tiles))
        groups.append(Group(codelet, tiles, edges, _attributes(e, moving, sizes, outs, order)))
    y.pieces = tuple(pieces)
    b.execute(groups)
    dtype = e.outputs[0].type.dtype
    return y.view() if y.dtype == dtype else b.inline(lambda v: convert_element_type(v, dtype=dtype), [y.view()])


RULES: Final = {
    **dict.fromkeys(("reduce_window_sum", "reduce_window_max", "reduce_window_min"), Rule(reduce_window)),
    "select_and_gather_add": Rule(select_and_gather_add),
    "select_and_scatter_add": Rule(select_and_scatter_add),
}
