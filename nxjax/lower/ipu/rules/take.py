"""Reading and writing at computed places: gather, scatter, dynamic_slice, dynamic_update_slice.

All of them come down to rows of a table. A tile holds some columns of it, so that every index is looked up where the
columns lie; where there are few columns it holds some rows, and leaves out the indices of others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.take import Put, PutKind, Take
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.mapping import grid, parts
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
from nxjax.lower.ipu.rules.shape import cut
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.arithmetic import add, div, max, min, mul
from nxjax.ops.base import constant, like
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import eq, ge, le
from nxjax.ops.convert import convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.indexing import default_fill
from nxjax.ops.scatter import SCATTERS
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import slice as slice_op
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.program import Equation

# The share of a tile's memory that a part of a table, or the updates of one turn, may take.
SHARE: Final = 4
# Rows of indices are spread over further tiles only for a part of a table that is cheap to send to all of them.
REPEATED: Final = 16384
# A vertex looks up at least so many rows.
LOOKUPS: Final = 8
# One op chooses among so many parts of a table.
CHOICES: Final = 16

Splits = list[list[tuple[int, int, int]]]


def _count(split: Sequence[tuple[int, int, int]]) -> int:
    return sum(many for *_, many in split)


def _table_splits(b: Builder, groups: int, rows: int, width: int, itemsize: int, spread_rows: bool) -> Splits:
    """How a table [groups, rows, width] is cut: groups, columns, and rows where they do not fit or shall be spread."""
    left = b.tiles
    by_group = parts(groups, left)
    left = left // _count(by_group) or 1
    by_column = parts(width, left, 4 // itemsize or 1)
    left = left // _count(by_column) or 1
    box = by_group[0][1] * by_column[0][1] * itemsize
    need = -(-rows * box * SHARE // b.chip.memory)
    by_row = parts(rows, left if spread_rows else _least(need, rows))
    return [by_group, by_row, by_column]


def _least(x: int, y: int) -> int:
    return x if x < y else y


def table_pieces(b: Builder, shape: Shape, itemsize: int) -> tuple[MappedRegion, ...]:
    """Where a table [rows, width] lies best for being read at one row at a time."""
    splits = _table_splits(b, 1, shape[0], shape[1], itemsize, False)
    found: list[MappedRegion] = []
    for starts, sizes, place in grid((1, *shape), splits):
        found.append(
            MappedRegion(Boxes(starts @ np.asarray((0, shape[1], 1)), sizes[1:], (shape[1], 1)), _tiles(b, place))
        )
    return tuple(found)


def _tiles(b: Builder, place: Any) -> Any:
    return (b.first + place % b.tiles).astype(np.int32)


def take(b: Builder, table: VariableView, index: VariableView) -> VariableView:
    """Rows of a table.

    Args:
        table: [groups, rows, width].
        index: int32 [groups, count]; what is outside gives zeros.

    Returns:
        [groups, count, width].
    """
    groups, rows, width = table.shape
    count = index.shape[1]
    itemsize = table.dtype.itemsize
    shape = (groups, count, width)
    if not math.prod(shape):
        return b.variable(shape, table.dtype).view()
    if not rows:
        return b.constant(np.zeros(shape, table.dtype))
    by_group, by_row, by_column = _table_splits(b, groups, rows, width, itemsize, False)
    # All of one length but for the last: a row's part is its number over that length.
    by_row = parts(rows, _count(by_row), by_row[0][1])
    used = _count(by_group) * _count(by_column) * _count(by_row)
    bytes_each = by_group[0][1] * by_row[0][1] * by_column[0][1] * itemsize
    more = b.tiles // used
    if bytes_each > REPEATED and more > 1:
        # Sent to further tiles only if that takes less time than it saves there.
        box = (by_group[0][1], by_row[0][1], by_column[0][1])
        sizes = {"table": box, "index": (box[0], count), "y": (box[0], count, box[2])}
        alone = Take(table.dtype.name).cycles(sizes, {"groups": box[0], "rows": box[1], "first": 0}, b.chip)
        if b.chip.sync_cycles + bytes_each / b.chip.exchange_bytes > alone * (1 - 1 / more):
            more = 1
    by_count = parts(count, _most(1, _least(more, count // LOOKUPS)))
    cuts = _count(by_row)
    y = b.variable((cuts, *shape) if cuts > 1 else shape, table.dtype, ())
    ys = row_major(shape)
    found: list[Group] = []
    pieces: list[MappedRegion] = []
    homes: list[MappedRegion] = []
    for starts, sizes, place in grid((groups, rows, width, count), [by_group, by_row, by_column, by_count]):
        g, r, w, k = starts.T
        sg, sr, sw, sk = sizes
        tiles = _tiles(b, place)
        read = Boxes(
            table.offset + starts[:, :3] @ np.asarray(table.strides, np.int64), (sg, sr, sw), tuple(table.strides)
        )
        asked = Boxes(index.offset + g * index.strides[0] + k * index.strides[1], (sg, sk), index.strides)
        number = r // by_row[0][1]
        to = Boxes(number * math.prod(shape) + g * ys[0] + k * ys[1] + w, (sg, sk, sw), ys)
        edges = {
            "table": FieldConnection(table.variable, read),
            "index": FieldConnection(index.variable, asked),
            "y": FieldConnection(y, to),
        }
        found.append(Group(Take(table.dtype.name), tiles, edges, {"groups": sg, "rows": sr, "first": r}))
        pieces.append(MappedRegion(to, tiles))
        homes.append(MappedRegion(read, tiles))
    if _count(by_count) == 1 and table.variable.role in ("input", "constant") and _covers(table):
        b.place(table.variable, homes)
    y.pieces = tuple(pieces)
    b.execute(found)
    if cuts == 1:
        return y.view()
    each = by_row[0][1]
    partial = [VariableView(y, i * math.prod(shape), shape, ys) for i in range(cuts)]

    def choose(where: Array, *cases: Array) -> Array:
        which = broadcast_in_dim(div(where, like(where, each)), shape=shape, broadcast_dimensions=(0, 1))
        if len(cases) <= CHOICES:
            return select_n(which, *cases)
        chosen = cases[0]
        for i, case in enumerate(cases[1:], 1):
            chosen = select_n(eq(which, like(which, i)), chosen, case)
        return chosen

    return b.inline(choose, [index, *partial])


def _most(x: int, y: int) -> int:
    return x if x > y else y


def _covers(view: VariableView) -> bool:
    """Whether a view names every element of its variable once."""
    steps = sorted((s, n) for n, s in zip(view.shape, view.strides, strict=True) if n > 1)
    expected = 1
    for step, size in steps:
        if step != expected:
            return False
        expected *= size
    return expected == view.variable.size


def put(
    b: Builder, x: VariableView, index: VariableView, updates: VariableView, kind: PutKind, into: Variable | None = None
) -> VariableView:
    """A table with rows combined into it.

    Args:
        x: [groups, rows, width].
        index: int32 [groups, count]; what is outside is left out.
        updates: [groups, count, width].
        kind: "set", "add", "sub", "mul", "min" or "max", in the order of the indices.
        into: the variable that holds x's elements in this order and may be overwritten; else x is copied.

    Returns:
        [groups, rows, width].
    """
    groups, rows, width = x.shape
    count = index.shape[1]
    if not x.size or not count:
        return x
    splits = _table_splits(b, groups, rows, width, x.dtype.itemsize, count > 1)
    xs = row_major(x.shape)
    boxes = list(grid(x.shape, splits))
    if into is None:
        pieces = tuple(MappedRegion(Boxes(s @ np.asarray(xs), z, xs), _tiles(b, place)) for s, z, place in boxes)
        into = b.variable(x.shape, x.dtype, pieces)
        b.copy([(x, into.view())])
    each = splits[0][0][1] * splits[2][0][1] * x.dtype.itemsize
    turns = parts(count, -(-count * each * SHARE // b.chip.memory))
    for start, length, many in turns:
        for turn in range(many):
            b.execute(_writes(b, boxes, into, xs, index, updates, kind, start + turn * length, length))
    return VariableView(into, 0, x.shape, xs)


def _writes(
    b: Builder,
    boxes: Any,
    into: Variable,
    xs: Shape,
    index: VariableView,
    updates: VariableView,
    kind: PutKind,
    first: int,
    count: int,
) -> list[Group]:
    found: list[Group] = []
    for starts, (sg, sr, sw), place in boxes:
        g, r, w = starts.T
        edges = {
            "table": FieldConnection(into, Boxes(starts @ np.asarray(xs), (sg, sr, sw), xs)),
            "index": FieldConnection(
                index.variable,
                Boxes(index.offset + g * index.strides[0] + first * index.strides[1], (sg, count), index.strides),
            ),
            "updates": FieldConnection(
                updates.variable,
                Boxes(
                    updates.offset + g * updates.strides[0] + first * updates.strides[1] + w * updates.strides[2],
                    (sg, count, sw),
                    updates.strides,
                ),
            ),
        }
        attributes = {"groups": sg, "rows": sr, "first": r}
        found.append(Group(Put(kind, into.dtype.name), _tiles(b, place), edges, attributes))
    return found


# --- indices ---


def _words(x: Array) -> Array:
    """Indices as int32; unsigned ones beyond it saturate."""
    if x.dtype == dtypes.int32:
        return x
    if x.dtype == dtypes.uint32:
        x = min(x, like(x, 2**31 - 1))
    return convert_element_type(x, dtype=dtypes.int32)


class _Windows:
    """Windows of an operand, as rows of a table: how operand, indices and windows are seen for `take` and `put`."""

    def __init__(self, shape: Shape, indices: Shape, sizes: Sequence[int], n: GatherDimensionNumbers) -> None:
        self.shape, self.sizes, self.numbers = shape, tuple(sizes), n
        self.batch = n.operand_batching_dims
        # An indexed dimension that is taken whole has one place to begin at.
        self.indexed = [d for d in n.start_index_map if sizes[d] != shape[d]]
        self.free = [d for d in range(len(shape)) if d not in self.batch and d not in self.indexed]
        self.groups = math.prod(shape[d] for d in self.batch)
        self.rows = math.prod(shape[d] for d in self.indexed)
        self.run = tuple(sizes[d] for d in self.indexed)
        self.order = [*self.batch, *self.indexed, *self.free]
        along = n.start_indices_batching_dims
        self.rest = [d for d in range(len(indices) - 1) if d not in along]
        self.index_order = [*along, *self.rest]
        self.batch_shape = tuple(indices[d] for d in self.index_order)
        self.lookups = math.prod(indices[d] for d in self.rest)

    def table(self, b: Builder, x: VariableView) -> VariableView:
        """The operand as [groups, rows, width], free dimensions cut to the windows."""
        limits = [self.sizes[d] if d in self.free else n for d, n in enumerate(x.shape)]
        x = cut(x, [0] * len(limits), limits)
        moved = VariableView(
            x.variable, x.offset, tuple(x.shape[d] for d in self.order), tuple(x.strides[d] for d in self.order)
        )
        return b.reshaped(moved, (self.groups, self.rows, math.prod(self.sizes[d] for d in self.free)))

    def index(self, b: Builder, indices: VariableView, clip: bool) -> VariableView:
        """Row numbers int32 [groups, lookups * run]; -1 for what is outside."""
        order = (*self.index_order, len(indices.shape) - 1)
        moved = VariableView(
            indices.variable,
            indices.offset,
            tuple(indices.shape[d] for d in order),
            tuple(indices.strides[d] for d in order),
        )
        return b.inline(lambda x: self._index(x, clip), [moved])

    def _index(self, x: Array, clip: bool) -> Array:
        rows = like_shape(0, self.batch_shape)
        inside: Array | None = None
        for i, d in enumerate(self.numbers.start_index_map):
            limits = [*self.batch_shape, i + 1]
            starts = [*(0 for _ in self.batch_shape), i]
            column = reshape(
                slice_op(x, start_indices=tuple(starts), limit_indices=tuple(limits)), shape=self.batch_shape
            )
            last = self.shape[d] - self.sizes[d]
            if not clip:
                here = ge(column, like(column, 0)) if column.dtype in dtypes.SIGNED else None
                top = dtypes.integer_info(column.dtype).max
                below = le(column, like(column, last)) if last < top else None
                for test in (here, below):
                    if test is not None:
                        inside = test if inside is None else and_(inside, test)
            if d in self.indexed:
                column = _words(column)
                column = min(max(column, like(column, 0)), like(column, last))
                rows = add(rows, mul(column, like(rows, self._step(d))))
        if inside is not None:
            rows = select_n(inside, like(rows, -1), rows)
        if self.run and math.prod(self.run) > 1:
            full = (*self.batch_shape, *self.run)
            spread = broadcast_in_dim(rows, shape=full, broadcast_dimensions=tuple(range(len(self.batch_shape))))
            offset = like_shape(0, full)
            for i, d in enumerate(self.indexed):
                place = iota(dtype=dtypes.int32, shape=full, dimension=len(self.batch_shape) + i)
                offset = add(offset, mul(place, like(place, self._step(d))))
            rows = select_n(ge(spread, like(spread, 0)), spread, add(spread, offset))
        return reshape(rows, shape=(self.groups, self.lookups * math.prod(self.run)))

    def _step(self, d: int) -> int:
        at = self.indexed.index(d)
        return math.prod(self.shape[i] for i in self.indexed[at + 1 :])

    def window_order(self, offset_dims: Sequence[int], rank: int) -> tuple[Shape, list[int]]:
        """The shape [batch..., run..., free...] of the windows, and where each dimension of the result is in it."""
        hidden = (*self.numbers.collapsed_slice_dims, *self.batch)
        window = [d for d in range(len(self.shape)) if d not in hidden]
        shape = (*self.batch_shape, *self.run, *(self.sizes[d] for d in self.free))
        lead = len(self.batch_shape)
        place = {d: lead + i for i, d in enumerate([*self.indexed, *self.free])}
        inner = iter(place[d] for d in window)
        batch = iter(range(lead))
        back = {d: i for i, d in enumerate(self.index_order)}
        order = [next(inner) if d in offset_dims else back[next(batch)] for d in range(rank)]
        return shape, order


def like_shape(value: int, shape: Shape) -> Array:
    return constant(value, dtypes.int32, shape)


def gather(b: Builder, e: Equation, x: VariableView, indices: VariableView) -> VariableView:
    p = e.params
    n: GatherDimensionNumbers = p["dimension_numbers"]
    mode = p["mode"]
    fill = mode is GatherScatterMode.FILL_OR_DROP
    out = e.outputs[0].type
    if not out.size:
        return b.variable(out.shape, x.dtype).view()
    w = _Windows(x.shape, indices.shape, p["slice_sizes"], n)
    index = w.index(b, indices, clip=not fill)
    y = take(b, w.table(b, x), index)
    if fill:
        value = p.get("fill_value")
        value = np.asarray(default_fill(x.dtype) if value is None else value).astype(x.dtype)
        if value.tobytes().strip(b"\0"):
            shape = y.shape

            def filled(rows: Array, where: Array) -> Array:
                inside = broadcast_in_dim(ge(where, like(where, 0)), shape=shape, broadcast_dimensions=(0, 1))
                return select_n(inside, constant(value, rows.dtype, shape), rows)

            y = b.inline(filled, [y, index])
    shape, order = w.window_order(n.offset_dims, len(out.shape))
    y = b.reshaped(y, shape)
    # What has size 1 and is collapsed is among the windows' dimensions, and not in the result.
    return VariableView(y.variable, y.offset, tuple(y.shape[d] for d in order), tuple(y.strides[d] for d in order))


def scatter(b: Builder, e: Equation, x: VariableView, indices: VariableView, updates: VariableView) -> VariableView:
    p = e.params
    n = p["dimension_numbers"]
    if not updates.size or not x.size:
        return x
    as_gather: GatherDimensionNumbers = n.as_gather()
    sizes = n.sizes(e.inputs[0].type, e.inputs[2].type)
    w = _Windows(x.shape, indices.shape, sizes, as_gather)
    if any(sizes[d] != x.shape[d] for d in w.free):
        return _narrow(b, e, x, indices, updates, w)
    index = w.index(b, indices, clip=p["mode"] is GatherScatterMode.CLIP)
    moved = _updates(b, w, as_gather, updates)
    combiner: Any = e.op.combiner  # pyright: ignore[reportAttributeAccessIssue]
    kind: PutKind = combiner.name if combiner else "set"
    y = put(b, w.table(b, x), index, moved, kind)
    whole = b.reshaped(y, tuple(x.shape[d] for d in w.order))
    back = [w.order.index(d) for d in range(len(x.shape))]
    return VariableView(whole.variable, whole.offset, x.shape, tuple(whole.strides[d] for d in back))


def _updates(b: Builder, w: _Windows, n: GatherDimensionNumbers, updates: VariableView) -> VariableView:
    """Updates as [groups, lookups * run, width]."""
    shape, order = w.window_order(n.offset_dims, len(updates.shape))
    strides = [0] * len(shape)
    for d, at in enumerate(order):
        strides[at] = updates.strides[d]
    spread = VariableView(updates.variable, updates.offset, shape, tuple(strides))
    return b.reshaped(spread, (w.groups, w.lookups * math.prod(w.run), math.prod(w.sizes[d] for d in w.free)))


def _narrow(
    b: Builder, e: Equation, x: VariableView, indices: VariableView, updates: VariableView, w: _Windows
) -> VariableView:
    """A scatter whose windows do not reach over a dimension that no index moves them along: it changes a part only."""
    limits = [w.sizes[d] if d in w.free else size for d, size in enumerate(x.shape)]
    part = cut(x, [0] * len(limits), limits)
    inner = e.op.infer(e.inputs[0].type.with_shape(part.shape), e.inputs[1].type, e.inputs[2].type, **e.params)
    changed = b.inline(lambda a, i, u: e.op(a, i, u, **e.params), [part, indices, updates])
    assert inner.shape == changed.shape
    y = b.materialize(x, b.variable(x.shape, x.dtype).pieces)
    b.copy([(changed, cut(y, [0] * len(limits), limits))])
    return y


# --- one block ---


def dynamic_slice(b: Builder, e: Equation, x: VariableView, *starts: VariableView) -> VariableView:
    sizes: Shape = e.params["slice_sizes"]
    for axis in range(len(sizes)):
        if sizes[axis] != x.shape[axis]:
            x = _block(b, x, axis, starts[axis], sizes[axis])
    return x


def _known_start(b: Builder, start: VariableView, last: int) -> int | None:
    value = b.known(start)
    return None if value is None else _least(_most(int(value), 0), last)


def _begin(b: Builder, start: VariableView, last: int, count: int) -> VariableView:
    """int32 [1, count]: the numbers of ``count`` rows from a start that is moved inside."""

    def rows(x: Array) -> Array:
        x = _words(x)
        x = min(max(x, like(x, 0)), like(x, last))
        here = broadcast_in_dim(x, shape=(1, count), broadcast_dimensions=())
        return add(here, iota(dtype=dtypes.int32, shape=(1, count), dimension=1)) if count > 1 else here

    return b.inline(rows, [start])


def _axis_first(x: VariableView, axis: int) -> VariableView:
    order = [axis, *(d for d in range(len(x.shape)) if d != axis)]
    return VariableView(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))


def _axis_back(x: VariableView, axis: int) -> VariableView:
    order = [*range(1, axis + 1), 0, *range(axis + 1, len(x.shape))]
    return VariableView(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))


def _block(b: Builder, x: VariableView, axis: int, start: VariableView, size: int) -> VariableView:
    last = x.shape[axis] - size
    known = _known_start(b, start, last)
    if known is not None:
        starts, limits = [0] * len(x.shape), list(x.shape)
        starts[axis], limits[axis] = known, known + size
        return cut(x, starts, limits)
    front = _axis_first(x, axis)
    rest = front.shape[1:]
    table = b.reshaped(front, (1, front.shape[0], math.prod(rest)))
    y = take(b, table, _begin(b, start, last, size))
    return _axis_back(b.reshaped(y, (size, *rest)), axis)


def dynamic_update_slice(
    b: Builder, e: Equation, x: VariableView, update: VariableView, *starts: VariableView
) -> VariableView:
    return _updated(b, x, update, list(starts))


def _updated(b: Builder, x: VariableView, update: VariableView, starts: list[VariableView]) -> VariableView:
    partial = [d for d in range(len(x.shape)) if update.shape[d] != x.shape[d]]
    if not partial or not update.size:
        return x if not update.size else update
    known = [_known_start(b, starts[d], x.shape[d] - update.shape[d]) for d in partial]
    if all(k is not None for k in known):
        begin = [0] * len(x.shape)
        for d, k in zip(partial, known, strict=True):
            begin[d] = k or 0
        y = b.materialize(x, x.variable.pieces if x.whole else b.variable(x.shape, x.dtype).pieces)
        b.copy([(update, cut(y, begin, [s + n for s, n in zip(begin, update.shape, strict=True)]))])
        return y
    axis = partial[0]
    size = update.shape[axis]
    if len(partial) > 1:
        # The rows that change, changed; then they are put back.
        rows = _block(b, x, axis, starts[axis], size)
        update = _updated(b, rows, update, [*starts[:axis], b.constant(np.int32(0)), *starts[axis + 1 :]])
    front, news = _axis_first(x, axis), _axis_first(update, axis)
    width = math.prod(front.shape[1:])
    table = b.reshaped(front, (1, front.shape[0], width))
    index = _begin(b, starts[axis], x.shape[axis] - size, size)
    y = put(b, table, index, b.reshaped(news, (1, size, width)), "set")
    return _axis_back(b.reshaped(y, front.shape), axis)


RULES: Final = {
    "gather": Rule(gather),
    "dynamic_slice": Rule(dynamic_slice),
    "dynamic_update_slice": Rule(dynamic_update_slice),
    **dict.fromkeys((op.name for op in SCATTERS), Rule(scatter)),
}
