"""A grouped convolution on tiles: operands in blocks of channels, boxes of a `ConvPartition`, partial sums reduced.

`dot` and `conv` bring their operands into the one form that is known here:
``x`` [groups, batch, id, ih, iw, in], ``w`` [groups, out, kd, kh, kw, in], result [groups, batch, od, oh, ow, out].
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu import amp_cycles
from nxjax.kernels.ipu.amp import Amp, Depthwise
from nxjax.lower.ipu.builder import Builder, UnsupportedEquation
from nxjax.lower.ipu.mapping import grid, parts
from nxjax.lower.ipu.plan import ConvPartition, ConvPartitionProblem, planned
from nxjax.lower.ipu.program import (
    Boxes,
    FieldConnection,
    Group,
    MappedRegion,
    Shape,
    Variable,
    VariableView,
    row_major,
)
from nxjax.ops.convert import convert_element_type
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.slicing import pad
from nxjax.trace.array import wrap

NDArray = np.ndarray[Any, Any]
Three = tuple[int, int, int]

# Channels of a block of integers, for which there is no unit that fixes them.
INTEGER_BLOCK: Final = 4
_ONES: Final = (1, 1, 1)
# Of all tiles' memory, what windows that are written out may take.
_UNROLLED: Final = 0.25


def convolved(
    b: Builder, x: VariableView, w: VariableView, steps: Three, holes: Three, out_dtype: np.dtype[Any]
) -> VariableView:
    """The convolution of ``x`` with ``w``; padding and holes of the input are in ``x``.

    Args:
        x: [groups, batch, id, ih, iw, in].
        w: [groups, out, kd, kh, kw, in].
        steps, holes: strides, and dilations of the kernel.
        out_dtype: of the result.

    Returns:
        [groups, batch, od, oh, ow, out].
    """
    groups, outs, *kernel = w.shape[:5]
    out = tuple((n - (k - 1) * h - 1) // s + 1 for n, k, h, s in zip(x.shape[2:5], kernel, holes, steps, strict=True))
    shape = (groups, x.shape[1], *(max(n, 0) for n in out), outs)
    if math.prod(shape) == 0 or x.size == 0 or w.size == 0:
        return b.constant(np.zeros(shape, out_dtype))
    dtype, partials = _working(b, x.dtype, out_dtype)
    x, w = converted(b, x, dtype), converted(b, w, dtype)
    if groups > 1 and x.shape[5] == 1:
        y = _depthwise(b, x, w, steps, holes, shape, partials)
    elif _unrolling_pays(b, x, w, steps, holes, shape, partials):
        y = _unrolled(b, x, w, steps, holes, shape, partials)
    else:
        y = _blocks(b, x, w, steps, holes, shape, partials)
    return converted(b, y, out_dtype)


def product(b: Builder, x: VariableView, y: VariableView, out_dtype: np.dtype[Any]) -> VariableView:
    """The matrix product [g, m, n] of ``x`` [g, m, k] and ``y`` [g, n, k]."""
    shape = (x.shape[0], x.shape[1], y.shape[1])
    if 0 in (*x.shape, *y.shape):
        return b.constant(np.zeros(shape, out_dtype))
    dtype, partials = _working(b, x.dtype, out_dtype)
    return converted(b, _product(b, converted(b, x, dtype), converted(b, y, dtype), partials), out_dtype)


def _product(b: Builder, x: VariableView, y: VariableView, partials: np.dtype[Any]) -> VariableView:
    # Rows stream through the unit, columns are its weights: the side with which that is faster.
    cycles = lambda left, right: _planned(b, _rows(b, left.shape, right.shape, left.dtype, partials)).cycles
    if cycles(x, y) > cycles(y, x):
        z = _product_of(b, y, x, partials)
        return VariableView(
            z.variable, z.offset, (z.shape[0], z.shape[2], z.shape[1]), (z.strides[0], z.strides[2], z.strides[1])
        )
    return _product_of(b, x, y, partials)


def _product_of(b: Builder, x: VariableView, y: VariableView, partials: np.dtype[Any]) -> VariableView:
    (g, m, k), n = x.shape, y.shape[1]
    rows = VariableView(x.variable, x.offset, (g, 1, 1, 1, m, k), (x.strides[0], 0, 0, 0, *x.strides[1:]))
    weights = VariableView(y.variable, y.offset, (g, n, 1, 1, 1, k), (*y.strides[:2], 0, 0, 0, y.strides[2]))
    z = _blocks(b, rows, weights, _ONES, _ONES, (g, 1, 1, 1, m, n), partials)
    return VariableView(z.variable, z.offset, (g, m, n), (z.strides[0], *z.strides[4:]))


def _rows(b: Builder, x: Shape, y: Shape, dtype: np.dtype[Any], partials: np.dtype[Any]) -> ConvPartitionProblem:
    """The problem of a matrix product of [g, m, k] and [g, n, k]."""
    units, depth = _block(b, dtype, partials)
    sizes = (x[0], 1, 1, 1, x[1], -(-y[1] // units), -(-x[2] // depth))
    return ConvPartitionProblem(sizes, _ONES, _ONES, _ONES, units, depth, dtype.name, partials.name)


def _direct(
    b: Builder, x: VariableView, w: VariableView, steps: Three, holes: Three, shape: Shape, partials: np.dtype[Any]
) -> ConvPartitionProblem:
    units, depth = _block(b, x.dtype, partials)
    outs, ins = -(-shape[5] // units), -(-x.shape[5] // depth)
    sizes = (shape[0], shape[1], shape[2], shape[3], shape[4], outs, ins)
    kernel = (w.shape[2], w.shape[3], w.shape[4])
    return ConvPartitionProblem(sizes, kernel, steps, holes, units, depth, x.dtype.name, partials.name)


def _unrolling_pays(
    b: Builder, x: VariableView, w: VariableView, steps: Three, holes: Three, shape: Shape, partials: np.dtype[Any]
) -> bool:
    """Whether windows written out, so that the kernel is part of the depth, make a faster product.

    They do where channels fill the unit's depth badly, and where the kernel is large and the result small, as in the
    gradient of a kernel: a partition can cut the depth, not the kernel.
    """
    rows, depth = math.prod(shape[1:5]), math.prod(w.shape[2:])
    if depth == x.shape[5] and steps == _ONES:
        return True
    size = shape[0] * rows * depth * x.dtype.itemsize
    if size > _UNROLLED * b.chip.memory * b.tiles:
        return False
    left, right = (shape[0], rows, depth), (shape[0], shape[5], depth)
    ways = [_planned(b, _rows(b, *order, x.dtype, partials)).cycles for order in ((left, right), (right, left))]
    copied = b.chip.sync_cycles + size / b.tiles / b.chip.exchange_bytes
    return min(ways) + copied < _planned(b, _direct(b, x, w, steps, holes, shape, partials)).cycles


def _unrolled(
    b: Builder, x: VariableView, w: VariableView, steps: Three, holes: Three, shape: Shape, partials: np.dtype[Any]
) -> VariableView:
    """The convolution as a product of its windows: [groups, rows, kernel and input channels]."""
    groups, outs = w.shape[:2]
    kernel = w.shape[2:5]
    moved = [s * k for s, k in zip(x.strides[2:5], steps, strict=True)]
    inside = [s * k for s, k in zip(x.strides[2:5], holes, strict=True)]
    windows = VariableView(
        x.variable,
        x.offset,
        (*shape[:5], *kernel, x.shape[5]),
        (*x.strides[:2], *moved, *inside, x.strides[5]),
    )
    depth = math.prod(w.shape[2:])
    left = b.reshaped(windows, (groups, math.prod(shape[1:5]), depth))
    right = b.reshaped(w, (groups, outs, depth))
    return b.reshaped(_product(b, left, right, partials), shape)


def converted(b: Builder, x: VariableView, dtype: np.dtype[Any]) -> VariableView:
    """``x`` by value in another dtype."""
    if x.dtype == dtype:
        return x
    return b.inline(lambda v: convert_element_type(v, dtype=dtype), [x])


def padded(b: Builder, x: VariableView, config: tuple[tuple[int, int, int], ...]) -> VariableView:
    """``x`` with zeros around (low, high) and between (interior) its elements; negative figures cut."""
    if not any(any(c) for c in config):
        return x
    zero = wrap(np.zeros((), x.dtype))
    return b.inline(lambda v: pad(v, zero, padding_config=config), [x])


def _working(b: Builder, dtype: np.dtype[Any], out: np.dtype[Any]) -> tuple[np.dtype[Any], np.dtype[Any]]:
    """The dtypes of operands and of partial sums."""
    if dtype == np.bool_:
        dtype = np.dtype(np.int32)
    if dtype.kind in "iu":
        if out.kind == "f":
            raise UnsupportedEquation(
                "tiles have no product of integers that sums in floats", "convert the operands to float32 first"
            )
        return dtype, np.dtype(np.int32)
    if dtype == np.float32 and b.options.precision == "mixed":
        dtype = np.dtype(np.float16)
    half = dtype == np.float16 and b.options.partials == "float16" and b.chip.version != "ipu1"
    return dtype, np.dtype(np.float16 if half else np.float32)


def _block(b: Builder, dtype: np.dtype[Any], partials: np.dtype[Any]) -> tuple[int, int]:
    """Output and input channels of one block."""
    if partials == np.int32:
        return INTEGER_BLOCK, INTEGER_BLOCK
    halves = dtype == np.float16
    return amp_cycles.units(b.chip, halves, partials == np.float16), amp_cycles.depth(halves)


def _planned(b: Builder, problem: ConvPartitionProblem) -> ConvPartition:
    return planned(problem, b.chip, b.tiles, b.options.available_memory_proportion)


def _blocks(
    b: Builder,
    x: VariableView,
    w: VariableView,
    steps: Three,
    holes: Three,
    shape: tuple[int, ...],
    partials: np.dtype[Any],
) -> VariableView:
    problem = _direct(b, x, w, steps, holes, shape, partials)
    units, depth, sizes = problem.units, problem.depth, problem.sizes
    out_blocks, in_blocks = sizes[5:]
    more_in, more_out = in_blocks * depth - x.shape[5], out_blocks * units - w.shape[1]
    none = (0, 0, 0)
    x = padded(b, x, (none, none, none, none, none, (0, more_in, 0)))
    w = padded(b, w, (none, (0, more_out, 0), none, none, none, (0, more_in, 0)))
    plan = _planned(b, problem)
    whole = (*shape[:5], w.shape[1])
    cut = sum(many for *_, many in parts(in_blocks, plan.parts[6]))
    turns = [blocks for start, length, many in parts(out_blocks, plan.turns) for blocks in _each(start, length, many)]
    if cut > 1 and len(turns) > 1:
        # Each turn's sums are added up before the next one begins, so that no others take memory.
        total = b.variable(whole, partials).view()
        for first, length in turns:
            turn = replace(problem, sizes=(*sizes[:5], length, in_blocks))
            sums = Variable(b.fresh(), (cut, *shape[:5], length * units), partials, (), source=b.source)
            _executed(b, sums, _vertices(b, turn, plan, x, w, sums, first, 0, cut))
            added = b.inline(lambda v: reduce_sum(v, axes=(0,)), [sums.view()])
            at = total.offset + first * units * total.strides[5]
            b.copy([(added, VariableView(total.variable, at, added.shape, total.strides))])
        return VariableView(total.variable, total.offset, shape, total.strides)
    y = Variable(b.fresh(), (cut, *whole) if cut > 1 else whole, partials, (), source=b.source)
    for first, length in turns:
        turn = replace(problem, sizes=(*sizes[:5], length, in_blocks))
        groups = _vertices(b, turn, plan, x, w, y, first, first, cut)
        if len(turns) == 1:
            _settle(b, x, w, groups)
        _executed(b, y, groups)
    total = y.view()
    if cut > 1:
        total = b.inline(lambda v: reduce_sum(v, axes=(0,)), [total])
    return VariableView(total.variable, total.offset, shape, total.strides)


def _executed(b: Builder, y: Variable, groups: list[Group]) -> None:
    """The vertices that give ``y``, or more of it, which lies where they are."""
    y.pieces = (*y.pieces, *(MappedRegion(g.edges["y"].boxes, g.tiles) for g in groups))
    b.execute(groups)


def _each(start: int, length: int, many: int) -> list[tuple[int, int]]:
    return [(start + i * length, length) for i in range(many)]


def _vertices(
    b: Builder,
    problem: ConvPartitionProblem,
    plan: ConvPartition,
    x: VariableView,
    w: VariableView,
    y: Variable,
    first: int,
    to: int,
    cut: int,
) -> list[Group]:
    """The vertices of one turn, which computes output blocks from ``first``; they are those of y from ``to``."""
    codelet = Amp(problem.dtype, problem.partials, problem.units, problem.depth)
    units, depth, taps = problem.units, problem.depth, problem.kernel
    splits = [parts(n, p) for n, p in zip(problem.sizes, plan.parts, strict=True)]
    into = sum(many for *_, many in splits[6])
    ys = row_major(y.shape)[-6:]
    whole = math.prod(y.shape[-6:])
    found: list[Group] = []
    for starts, sizes, place in grid(problem.sizes, splits):
        g, n, od, oh, ow, o, i = sizes
        start_g, start_n, start_d, start_h, start_w, start_o, start_i = starts.T
        box = [int(size) for size in problem.box((od, oh, ow))]
        from_x = [start_g, start_n, *(s * k for s, k in zip((start_d, start_h, start_w), problem.steps, strict=True))]
        x_edge = FieldConnection(
            x.variable,
            Boxes(
                x.offset + _dot(from_x, x.strides[:5]) + start_i * depth * x.strides[5],
                (g, i, n, box[0], box[1], box[2], depth),
                (x.strides[0], depth * x.strides[5], *x.strides[1:]),
            ),
        )
        w_edge = FieldConnection(
            w.variable,
            Boxes(
                w.offset
                + start_g * w.strides[0]
                + (first + start_o) * units * w.strides[1]
                + start_i * depth * w.strides[5],
                (g, o, i, *taps, units, depth),
                (w.strides[0], units * w.strides[1], depth * w.strides[5], *w.strides[2:5], w.strides[1], w.strides[5]),
            ),
        )
        part = place % into if cut > 1 else np.zeros(len(place), np.int64)
        y_edge = FieldConnection(
            y,
            Boxes(
                part * whole
                + _dot([start_g, start_n, start_d, start_h, start_w], ys[:5])
                + (to + start_o) * units * ys[5],
                (g, o, n, od, oh, ow, units),
                (ys[0], units * ys[5], *ys[1:]),
            ),
        )
        attributes = {
            **_box_attributes(problem, box, (od, oh, ow)),
            "groups": g,
            "inGroups": i,
            "outGroups": o,
            "batch": n,
        }
        tiles = (b.first + place).astype(np.int32)
        found.append(Group(codelet, tiles, {"x": x_edge, "w": w_edge, "y": y_edge}, attributes))
    return found


def _depthwise(
    b: Builder,
    x: VariableView,
    w: VariableView,
    steps: Three,
    holes: Three,
    shape: tuple[int, ...],
    partials: np.dtype[Any],
) -> VariableView:
    groups, outs = w.shape[:2]
    # Channels last in both: [batch, id, ih, iw, groups * outs], every input channel again for each of its outputs.
    wide = VariableView(x.variable, x.offset, (*x.shape[1:5], groups, outs), (*x.strides[1:5], x.strides[0], 0))
    x = b.reshaped(wide, (*x.shape[1:5], groups * outs))
    kernels = VariableView(
        w.variable, w.offset, (*w.shape[2:5], groups, outs), (*w.strides[2:5], w.strides[0], w.strides[1])
    )
    w = b.reshaped(kernels, (*w.shape[2:5], groups * outs))
    channels = groups * outs
    kernel = (w.shape[0], w.shape[1], w.shape[2])
    sizes = (channels, shape[1], shape[2], shape[3], shape[4], 1, 1)
    problem = ConvPartitionProblem(sizes, kernel, steps, holes, 1, 1, x.dtype.name, partials.name, depthwise=True)
    plan = _planned(b, problem)
    y = Variable(b.fresh(), (*shape[1:5], channels), partials, (), source=b.source)
    ys = row_major(y.shape)
    codelet = Depthwise(problem.dtype, problem.partials)
    found: list[Group] = []
    splits = [parts(n, p) for n, p in zip(sizes, plan.parts, strict=True)]
    for starts, (c, n, od, oh, ow, _, _), place in grid(sizes, splits):
        start_c, start_n, *at = starts.T[:5]
        box = [int(size) for size in problem.box((od, oh, ow))]
        from_x = [start_n, *(s * k for s, k in zip(at, steps, strict=True)), start_c]
        edges = {
            "x": FieldConnection(x.variable, Boxes(x.offset + _dot(from_x, x.strides), (n, *box, c), x.strides)),
            "w": FieldConnection(w.variable, Boxes(w.offset + start_c * w.strides[3], (*kernel, c), w.strides)),
            "y": FieldConnection(y, Boxes(_dot([start_n, *at, start_c], ys), (n, od, oh, ow, c), ys)),
        }
        attributes = {**_box_attributes(problem, box, (od, oh, ow)), "channels": c, "batch": n}
        found.append(Group(codelet, (b.first + place).astype(np.int32), edges, attributes))
    y.pieces = tuple(MappedRegion(g.edges["y"].boxes, g.tiles) for g in found)
    b.execute(found)
    strides = (outs * ys[4], *ys[:4], ys[4])
    return VariableView(y, 0, shape, strides)


def _dot(starts: list[Any], strides: tuple[int, ...]) -> NDArray:
    total = np.zeros((), np.int64)
    for s, k in zip(starts, strides, strict=True):
        total = total + np.asarray(s, np.int64) * k
    return np.asarray(total, np.int64)


def _box_attributes(problem: ConvPartitionProblem, box: list[int], out: tuple[int, int, int]) -> dict[str, int]:
    named: dict[str, int] = {}
    for d, letter in enumerate("dhw"):
        named["i" + letter], named["o" + letter] = box[d], out[d]
        named["k" + letter], named["s" + letter] = problem.kernel[d], problem.steps[d]
        named["d" + letter] = problem.holes[d]
    return named


def _settle(b: Builder, x: VariableView, w: VariableView, groups: list[Group]) -> None:
    """Put operands that nothing has touched yet where they are needed, if every element is needed on one tile only."""
    for view, name in ((w, "w"), (x, "x")):
        boxes = [g.edges[name].boxes for g in groups]
        needed = sum(len(g.tiles) * box.count for g, box in zip(groups, boxes, strict=True))
        if view.variable.role != "temporary" and needed == view.variable.size and _once(view):
            b.place(view.variable, [MappedRegion(box, g.tiles) for g, box in zip(groups, boxes, strict=True)])


def _once(view: VariableView) -> bool:
    """Whether a view names every element of its variable, each one once."""
    if view.size != view.variable.size:
        return False
    steps = sorted((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1)
    expected = 1
    for step, size in steps:
        if step != expected:
            return False
        expected *= size
    return True
