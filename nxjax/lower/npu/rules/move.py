"""Rules of ops that move elements: shapes, slices, joining, padding, look-up. Values stay on their grid."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.builder import GraphBuilder, LogicalTensor, Rule, Unsupported
from nxjax.lower.npu.rules.elementwise import common
from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import like
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.types import ArrayType, Shape

# A gather at known places is at most so many slices.
RUNS: Final = 12


def _broadcast(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, shape: Shape, broadcast_dimensions: Shape
) -> LogicalTensor:
    """Sizes 1 where the operand has nothing; the logical shape says the rest."""
    order = sorted(range(x.ndim), key=broadcast_dimensions.__getitem__)
    x = b.transpose(x, order)
    placed = {broadcast_dimensions[i]: n for i, n in zip(order, x.small, strict=True)}
    small = tuple(placed.get(d, 1) for d in range(len(shape)))
    v = b.reshape(LogicalTensor(x.small, x.tensor, x.data, x.grid), small)
    if v.small != small:  # taken off a per-slice grid that the new shape cannot hold
        v = b.full(v)
    return LogicalTensor(shape, v.tensor, v.data, v.grid)


def joined(b: GraphBuilder, xs: Sequence[LogicalTensor], axis: int) -> LogicalTensor:
    """Concatenation, on the grid if all parts share one."""
    xs = [x for x in xs if x.shape[axis]]
    put, _ = common(b, *xs)
    return b.concatenate([put(x) for x in xs], axis)


def _split(b: GraphBuilder, out: Any, x: LogicalTensor, sizes: Shape, axis: int) -> Sequence[LogicalTensor]:
    if any(n == 0 for n in sizes):
        raise Unsupported("tensors without elements do not exist on an NPU", "split into parts that have elements")
    if len(sizes) == 1:
        return [x]
    shapes = [(*x.shape[:axis], n, *x.shape[axis + 1 :]) for n in sizes]
    return b.emit_many("split", [x], shapes, x.kind, axis=axis, sizes=tuple(sizes))


def _pad(b: GraphBuilder, out: ArrayType, x: LogicalTensor, value: LogicalTensor, padding_config: Any) -> LogicalTensor:
    number = value.scalar()
    if number is None:
        raise Unsupported("the padding value is computed", "pad with a Python number")
    if x.grid is not None and not b.fits(value, x.grid):
        x = b.real(x)
    fill = number if number else None
    for axis, (_, _, interior) in enumerate(padding_config):
        if interior and x.shape[axis] > 1:
            x = dilate(b, x, axis, interior + 1, fill)
    return b.pad(x, [(low, high) for low, high, _ in padding_config], fill)


def dilate(b: GraphBuilder, x: LogicalTensor, axis: int, step: int, fill: float | None = None) -> LogicalTensor:
    """``step - 1`` elements of ``fill`` between neighbours along ``axis``: padded in a dimension of its own."""
    n = x.shape[axis]
    apart = b.reshape(x, (*x.shape[: axis + 1], 1, *x.shape[axis + 1 :]))
    widths = [(0, step - 1) if i == axis + 1 else (0, 0) for i in range(apart.ndim)]
    woven = b.reshape(b.pad(apart, widths, fill), (*x.shape[:axis], n * step, *x.shape[axis + 1 :]))
    end = [(n - 1) * step + 1 if i == axis else m for i, m in enumerate(woven.shape)]
    return b.slice(woven, (0,) * woven.ndim, end)


def _rev(b: GraphBuilder, out: ArrayType, x: LogicalTensor, dimensions: Shape) -> LogicalTensor:
    axes = tuple(d for d in dimensions if x.shape[d] > 1)
    return b.emit("reverse", [x], x.shape, x.kind, axes=axes) if axes else x


def _dynamic_slice(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, *starts: LogicalTensor, slice_sizes: Shape
) -> LogicalTensor:
    begin, end, computed = [0] * x.ndim, list(x.shape), list[int]()
    for axis, (start, k, n) in enumerate(zip(starts, slice_sizes, x.shape, strict=True)):
        at = start.scalar()
        if k != n and at is None:
            computed.append(axis)
        elif k != n and at is not None:
            begin[axis] = min(max(int(at), 0), n - k)
            end[axis] = begin[axis] + k
    x = b.slice(x, begin, end)
    for axis in computed:
        x = _rows_from(b, x, axis, starts[axis], slice_sizes[axis])
    return x


def _rows_from(b: GraphBuilder, x: LogicalTensor, axis: int, start: LogicalTensor, k: int) -> LogicalTensor:
    """``k`` slices from a computed start on, which is moved inside."""
    row = _inside(b, b.reshape(start, (1,)), x.shape[axis] - k)
    if k > 1:
        steps = b.constant(np.arange(k, dtype=np.int32))
        row = b.elementwise("add", [LogicalTensor((k,), row.tensor, row.data), steps], dtypes.int32, activation=None)
    shape = (*x.shape[:axis], k, *x.shape[axis + 1 :])
    return b.emit("gather", [x, row], shape, x.kind, axis=axis)


def _dynamic_update_slice(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, update: LogicalTensor, *starts: LogicalTensor
) -> LogicalTensor:
    moved = [i for i, (k, n) in enumerate(zip(update.shape, x.shape, strict=True)) if k != n]
    if not moved:
        return update
    computed = [i for i in moved if starts[i].scalar() is None]
    if computed:
        return _chosen(b, out, x, update, starts, moved, computed)
    return _updated(b, x, update, [int(s.scalar() or 0) if i in moved else 0 for i, s in enumerate(starts)], moved)


def _chosen(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    update: LogicalTensor,
    starts: Sequence[LogicalTensor],
    moved: Sequence[int],
    computed: list[int],
) -> LogicalTensor:
    """``update`` at a computed place, where it is one element long: a choice at every place, as in a cache of keys."""
    axis = computed[0]
    if len(moved) > 1 or update.shape[axis] != 1:
        raise Unsupported(
            "it writes several slices at a computed place, which NPUs do not",
            "write one slice at a time, or at a constant place, or choose with nx.numpy.where and a mask",
        )
    return update_at(b, x, update, axis, _inside(b, b.reshape(starts[axis], (1,)), x.shape[axis] - 1))


def update_at(
    b: GraphBuilder, x: LogicalTensor, update: LogicalTensor, axis: int, place: LogicalTensor
) -> LogicalTensor:
    """``x`` with the one slice ``update`` at ``place`` of ``axis``, which is inside: a choice at every place."""
    # With dimensions of its own, since chips have no scalars.
    at = b.reshape(place, (1,) * x.ndim)
    places = np.arange(x.shape[axis], dtype=np.int32).reshape([-1 if i == axis else 1 for i in range(x.ndim)])
    here = b.elementwise("equal", [b.constant(places), at], dtypes.bool_)
    put, grid = common(b, x, update)
    update, x = put(update), put(x)
    wide = LogicalTensor(x.shape, update.tensor, update.data, update.grid)
    y = b.elementwise("select", [LogicalTensor(x.shape, here.tensor), wide, x], grid or x.dtype)
    return LogicalTensor(x.shape, y.tensor)


def _inside(b: GraphBuilder, start: LogicalTensor, last: int) -> LogicalTensor:
    """A computed start, moved to lie from 0 to ``last``."""
    number = lambda v: b.fill(start.shape, v, dtypes.int32)
    start = b.elementwise("maximum", [b.cast(start, dtypes.int32), number(0)], dtypes.int32)
    return b.elementwise("minimum", [start, number(last)], dtypes.int32)


def _updated(
    b: GraphBuilder, x: LogicalTensor, update: LogicalTensor, starts: Sequence[int], moved: Sequence[int]
) -> LogicalTensor:
    """``x`` around ``update``, joined axis by axis."""
    if not moved:
        return update
    axis, *rest = moved
    n, k = x.shape[axis], update.shape[axis]
    at = min(max(starts[axis], 0), n - k)

    def part(begin: int, end: int) -> LogicalTensor:
        limits = [end if i == axis else m for i, m in enumerate(x.shape)]
        return b.slice(x, [begin if i == axis else 0 for i in range(x.ndim)], limits)

    middle = _updated(b, part(at, at + k), update, starts, rest)
    return joined(b, [part(0, at), middle, part(at + k, n)], axis)


def _gather(
    b: GraphBuilder,
    out: ArrayType,
    x: LogicalTensor,
    indices: LogicalTensor,
    dimension_numbers: Any,
    slice_sizes: Shape,
    **_: Any,
) -> LogicalTensor:
    """Whole slices at index vectors. Indices that are data must be in bounds, as everywhere on NPUs."""
    n = dimension_numbers
    if n.operand_batching_dims:
        raise Unsupported(
            "it picks a different element in every row, which NPUs do not",
            "multiply with nx.nn.one_hot(indices, n) and sum, or gather outside",
        )
    batch = indices.shape[:-1]
    window = [d for d in range(x.ndim) if d not in n.collapsed_slice_dims]
    starts = [_column(b, indices, k) for k in range(len(n.start_index_map))]
    if not batch and any(slice_sizes[d] != 1 for d in n.start_index_map):
        at = dict(zip(n.start_index_map, starts, strict=True))
        zero = b.fill((), 0, dtypes.int32)
        y = _dynamic_slice(b, out, x, *(at.get(d, zero) for d in range(x.ndim)), slice_sizes=slice_sizes)
        return b.reshape(y, out.shape)
    if any(slice_sizes[d] != (1 if d in n.start_index_map else x.shape[d]) for d in range(x.ndim)):
        raise Unsupported("it takes parts of rows at computed places", "slice with constants, and take whole rows")
    mapped = list(n.start_index_map)
    rest = [d for d in range(x.ndim) if d not in mapped]
    straight = len(mapped) == 1
    axis = mapped[0] if straight else 0
    rows = x if straight else b.transpose(x, (*mapped, *rest))
    if not straight:
        rows = b.reshape(rows, (math.prod(x.shape[d] for d in mapped), *(x.shape[d] for d in rest)))
    index = _linear(b, starts, [x.shape[d] for d in mapped])
    known, size = index.data, rows.shape[axis]
    if known is not None and known.size and not 0 <= known.min() <= known.max() < size:
        raise Unsupported(
            "an index that is known is out of bounds", "pad the array with what is filled, then index it", True
        )
    shape = (*rows.shape[:axis], *index.shape, *rows.shape[axis + 1 :])
    parts = _known_runs(index, rows.shape[axis])
    if parts is not None and not rows.constant:
        y = b.reshape(b.concatenate([_cut(b, rows, axis, run) for run in parts], axis), shape)
    elif rows.grid is not None and rows.grid.axis is not None:
        y = _scaled_rows(b, rows, rows.grid, index, shape, axis)
        y = y or b.emit("gather", [b.real(rows), index], shape, dtypes.float32, axis=axis)
    else:
        y = b.emit("gather", [b.real(rows) if rows.blocks is not None else rows, index], shape, x.kind, axis=axis)
    # Dimensions of y: operand dimensions that stay, with those of the batch in place of the axis.
    names: list[tuple[str, int]] = [("x", d) for d in rest]
    names[axis:axis] = [("b", i) for i in range(len(batch))]
    kept = [d for d in window if d not in mapped]
    ones = [d for d in window if d in mapped]
    y = b.reshape(y, (*shape, *(1 for _ in ones)))
    names += [("x", d) for d in ones]
    inner = iter(sorted((*kept, *ones)))
    outer = itertools.count()
    wanted = [("x", next(inner)) if d in n.offset_dims else ("b", next(outer)) for d in range(len(out.shape))]
    return b.transpose(y, [names.index(w) for w in wanted])


def _scaled_rows(
    b: GraphBuilder, table: LogicalTensor, grid: Grid, index: LogicalTensor, shape: Shape, axis: int
) -> LogicalTensor | None:
    """Rows of a table whose rows have scales of their own: stored integers and scales are looked up, then multiplied.

    No tensor has one scale per index, and the table off its grid would be four times as large.
    """
    if table.data is None or grid.axis != axis or np.any(np.asarray(grid.zero_point)):
        return None
    scales = grid.scales(table.ndim)
    stored = b.emit("gather", [b.constant(table.data.astype(np.int8)), index], shape, dtypes.int8, axis=axis)
    narrow = (*scales.shape[:axis], *index.shape, *scales.shape[axis + 1 :])
    scale = b.emit("gather", [b.constant(scales), index], narrow, dtypes.float32, axis=axis)
    operands = [b.cast(stored, dtypes.float32), LogicalTensor(shape, scale.tensor)]
    return b.elementwise("mul", operands, dtypes.float32, activation=None)


def _known_runs(index: LogicalTensor, size: int) -> list[range] | None:
    """Constant indices as at most `RUNS` evenly spaced runs: slices, which NPUs have where few have gathers."""
    if index.data is None or not index.data.size:
        return None
    found: list[range] = []
    values = [int(v) for v in index.full().ravel()]
    if min(values) < 0 or max(values) >= size:
        return None
    while values and len(found) <= RUNS:
        step = values[1] - values[0] if len(values) > 1 else 1
        count = 1
        while step > 0 and count < len(values) and values[count] - values[count - 1] == step:
            count += 1
        # Two that are far apart may each belong to a longer run.
        count = 1 if count == 2 and step > 1 else count
        found.append(range(values[0], values[count - 1] + 1, max(step, 1) if count > 1 else 1))
        values = values[count:]
    return None if len(found) > RUNS else found


def _cut(b: GraphBuilder, x: LogicalTensor, axis: int, run: range) -> LogicalTensor:
    begin, end, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    begin[axis], end[axis], strides[axis] = run.start, run.stop, run.step
    return b.slice(x, begin, end, strides)


def _column(b: GraphBuilder, indices: LogicalTensor, k: int) -> LogicalTensor:
    """Component ``k`` of the index vectors, as int32."""
    batch = indices.shape[:-1]
    begin, end = [*(0 for _ in batch), k], [*batch, k + 1]
    return b.cast(b.reshape(b.slice(indices, begin, end), batch), dtypes.int32)


def _linear(b: GraphBuilder, columns: Sequence[LogicalTensor], sizes: Sequence[int]) -> LogicalTensor:
    """Row numbers in the merged dimension."""
    total = columns[0]
    for column, n in zip(columns[1:], sizes[1:], strict=True):
        total = b.inline(lambda high, low, n=n: add(mul(high, like(high, n)), low), total, column)
    return total


def _one_hot(
    b: GraphBuilder, out: ArrayType, x: LogicalTensor, num_classes: int, dtype: Any, axis: int
) -> LogicalTensor | None:
    if x.grid is not None or x.dtype not in dtypes.INTEGER:
        return None
    index = b.cast(x, dtypes.int32)
    y = b.emit("one_hot", [index], out.shape, dtypes.float32, depth=num_classes, axis=axis)
    return b.cast(y, dtype)


RULES: Final[dict[str, Rule]] = {
    "reshape": lambda b, out, x, shape: b.reshape(x, shape),
    "transpose": lambda b, out, x, permutation: b.transpose(x, permutation),
    "broadcast_in_dim": _broadcast,
    "slice": lambda b, out, x, start_indices, limit_indices, strides=None: b.slice(
        x, start_indices, limit_indices, strides
    ),
    "concatenate": lambda b, out, *xs, dimension: joined(b, xs, dimension),
    "split": _split,
    "pad": _pad,
    "rev": _rev,
    "dynamic_slice": _dynamic_slice,
    "dynamic_update_slice": _dynamic_update_slice,
    "gather": _gather,
    "one_hot": _one_hot,
}
