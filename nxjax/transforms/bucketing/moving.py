"""Rules of ops that cut, join and place: slice, split, pad, concatenate, dynamic slices, gather, scatter."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nxjax.ops import vocabulary as ops
from nxjax.ops.base import Combining, constant, like
from nxjax.ops.convert import cast
from nxjax.ops.dimension_numbers import GatherScatterMode
from nxjax.ops.scatter import SCATTERS
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.transforms.bucketing.interpret import bind_unmasked, rule, size_of, sizes_of
from nxjax.transforms.bucketing.rules import called
from nxjax.transforms.bucketing.sizes import Extent, Size, simplify, total
from nxjax.transforms.bucketing.values import Context, MemberStep, PaddedArray, zero

Vals = PaddedArray | Sequence[PaddedArray]


def _column(rows: Sequence[Sequence[int]], i: int) -> list[int]:
    return [row[i] for row in rows]


def _cut(c: Context, array: Array, axis: int, start: Extent, stride: int, count: int) -> Array:
    """``count`` elements along ``axis``, ``stride`` apart, from ``start`` on."""
    length = (count - 1) * stride + 1 if count else 0
    array = c.window(array, axis, start, length)
    if stride == 1:
        return array
    steps = tuple(stride if a == axis else 1 for a in range(array.ndim))
    return ops.slice(array, start_indices=(0,) * array.ndim, limit_indices=array.shape, strides=steps)


@rule("slice", differing=("start_indices", "limit_indices"))
def _slice(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    starts, limits = s.each("start_indices"), s.each("limit_indices")
    strides: tuple[int, ...] = s.op.with_defaults(s.params)["strides"] or (1,) * x.ndim
    shape = s.shapes()[0]
    array, sizes = x.array, list[Extent]()
    # What starts where a length says is cut out one axis at a time, then the rest at once.
    begin, end, step = list(starts[0]), list(limits[0]), list(strides)
    for d, k in enumerate(strides):
        start = size_of(c, _column(starts, d), [x.sizes[d]], s)
        proposals: list[Extent] = [x.sizes[d]]
        limit = c.solver.find(_column(limits, d), [x.sizes[d]])
        if limit is not None:
            proposals.append(simplify((Size.of(limit) - start + (k - 1)) // k))
        sizes.append(size_of(c, _column(s.shapes(), d), proposals, s))
        if not isinstance(start, int):
            array = _cut(c, array, d, start, k, shape[d])
            begin[d], end[d], step[d] = 0, shape[d], 1
    rest = {"start_indices": tuple(begin), "limit_indices": tuple(end), "strides": tuple(step)}
    return PaddedArray(ops.slice(array, **rest), tuple(sizes))


@rule("split", differing=("sizes",))
def _split(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    axis: int = s.params["axis"]
    found: list[PaddedArray] = []
    start: Extent = 0
    for i, n in enumerate(s.params["sizes"]):
        size = size_of(c, _column(s.each("sizes"), i), [x.sizes[axis]], s)
        piece = _cut(c, x.array, axis, start, 1, n)
        found.append(PaddedArray(piece, (*x.sizes[:axis], size, *x.sizes[axis + 1 :])))
        start = total([start, size])
    return found


@rule("pad", differing=("padding_config",))
def _pad(c: Context, s: MemberStep, x: PaddedArray, value: PaddedArray) -> Vals:
    configs = s.each("padding_config")
    array, sizes = x.array, list[Extent]()
    rest: list[tuple[int, int, int]] = []
    for d, (low, high, holes) in enumerate(configs[0]):
        lows, highs = ([config[d][i] for config in configs] for i in range(2))
        if any(config[d][2] != holes for config in configs):
            raise s.refuse("interior padding depends on a bucketed length", "make it a constant")
        before = size_of(c, lows, [x.sizes[d]], s)
        after = c.solver.find(highs, [x.sizes[d]])
        proposals: list[Extent] = [x.sizes[d]]
        if after is not None:
            proposals.append(total([before, Size.of(x.sizes[d]) * (1 + holes) - holes, after]))
        sizes.append(size_of(c, _column(s.shapes(), d), proposals, s))
        here = PaddedArray(array, x.sizes)
        if isinstance(before, int):
            # Padding of the bucket that becomes part of the result must hold the value.
            array = c.mask(here, (d,), value.array)
            rest.append((low, high, holes))
        else:
            array = c.placed(here, d, before, s.shapes()[0][d], value.array, holes)
            rest.append((0, 0, 0))
    return PaddedArray(ops.pad(array, value.array, padding_config=tuple(rest)), tuple(sizes))


@rule("concatenate")
def _concatenate(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    axis: int = s.params["dimension"]
    sizes: list[Extent] = [next((x.sizes[d] for x in xs if x.varies(d)), xs[0].sizes[d]) for d in range(xs[0].ndim)]
    sizes[axis] = total(x.sizes[axis] for x in xs)
    if not any(x.varies(axis) for x in xs[:-1]):
        return bind_unmasked(s, xs, [sizes])
    # Each is written over the padding of the one before it.
    shape = s.shapes()[0]
    found = ops.pad(xs[0].array, zero(xs[0].array), padding_config=_padding_after(xs[0].shape, shape))
    start: Extent = xs[0].sizes[axis]
    for x in xs[1:]:
        at = [c.value(start) if d == axis else constant(0, dtypes.int32) for d in range(x.ndim)]
        found = ops.dynamic_update_slice(found, x.array, *at)
        start = total([start, x.sizes[axis]])
    return PaddedArray(found, tuple(sizes))


def _padding_after(shape: Sequence[int], wanted: Sequence[int]) -> tuple[tuple[int, int, int], ...]:
    return tuple((0, m - n, 0) for n, m in zip(shape, wanted, strict=True))


# --- places that are data ---


def _limited(c: Context, start: Array, size: Extent, block: Extent) -> Array:
    """A start index moved so that a block stays inside what counts, as the op itself does at the true length."""
    last = simplify(Size.of(size) - block)
    if last == 0:
        return like(start, 0)
    limit = c.value(last)
    if start.dtype != limit.dtype:
        start = ops.convert_element_type(start, dtype=dtypes.int64 if start.dtype.itemsize > 4 else dtypes.int32)
        limit = ops.convert_element_type(limit, dtype=start.dtype)
    return ops.max(ops.min(start, limit), like(start, 0))


def _starts(c: Context, x: PaddedArray, blocks: Sequence[Extent], starts: Sequence[PaddedArray]) -> list[Array]:
    """Where a block of these sizes begins in the padded operand."""
    return [
        start.array if isinstance(n, int) and isinstance(k, int) else _limited(c, start.array, n, k)
        for start, n, k in zip(starts, x.sizes, blocks, strict=True)
    ]


def _with_room(c: Context, x: PaddedArray, blocks: Sequence[Extent], shape: Sequence[int]) -> Array:
    """``x`` with so much behind it that a padded block fits wherever the block itself does."""
    partial = [not isinstance(k, int) and not c.solver.same(k, n) for k, n in zip(blocks, x.sizes, strict=True)]
    if not any(partial):
        return x.array
    room = tuple((0, n if p else 0, 0) for n, p in zip(shape, partial, strict=True))
    return ops.pad(x.array, zero(x.array), padding_config=room)


@rule("dynamic_slice", differing=("slice_sizes",))
def _dynamic_slice(c: Context, s: MemberStep, x: PaddedArray, *starts: PaddedArray) -> Vals:
    sizes = sizes_of(c, s, [[n] for n in x.sizes])
    wide = _with_room(c, x, sizes, s.shapes()[0])
    return PaddedArray(called(s, [wide, *_starts(c, x, sizes, starts)]), sizes)


@rule("dynamic_update_slice")
def _dynamic_update_slice(c: Context, s: MemberStep, x: PaddedArray, update: PaddedArray, *starts: PaddedArray) -> Vals:
    at = _starts(c, x, update.sizes, starts)
    wide = _with_room(c, x, update.sizes, update.shape)
    if wide is x.array:
        return PaddedArray(called(s, [x.array, update.array, *at]), x.sizes)
    # The padding of the update must not touch what lies behind the block.
    old = ops.dynamic_slice(wide, *at, slice_sizes=update.shape)
    new = update.array
    for d in update.varying():
        new = ops.select_n(c.counts(update.sizes[d], update.shape, d), old, new)
    wide = ops.dynamic_update_slice(wide, new, *at)
    return PaddedArray(ops.slice(wide, start_indices=(0,) * x.ndim, limit_indices=x.shape), x.sizes)


def _indices(
    c: Context,
    x: PaddedArray,
    indices: PaddedArray,
    dims: Sequence[int],
    sizes: Sequence[Extent],
    clip: bool,
    outside: int,
) -> Array:
    """Index vectors for the padded operand: components beyond what counts are moved in, or to ``outside``."""
    array = indices.array
    moving = [not (isinstance(x.sizes[d], int) and isinstance(sizes[d], int)) for d in dims]
    if not any(moving):
        return array
    if array.dtype.itemsize < 4:
        array = ops.convert_element_type(array, dtype=dtypes.int32)
    any_place = int(dtypes.integer_info(array.dtype).max)
    limits = _limits(x, dims, sizes)
    bounds = _components(c, array, [n if m else any_place for n, m in zip(limits, moving, strict=True)])
    return ops.select_n(ops.gt(array, bounds), array, bounds if clip else like(array, outside))


def _limits(x: PaddedArray, dims: Sequence[int], sizes: Sequence[Extent]) -> list[Extent]:
    """The last place of a block along each of ``dims``."""
    return [simplify(Size.of(x.sizes[d]) - sizes[d]) for d in dims]


def _components(c: Context, indices: Array, numbers: Sequence[Extent]) -> Array:
    """One number per component of index vectors, over the shape of all."""
    one = lambda n: constant(n, indices.dtype) if isinstance(n, int) else cast(c.value(n), indices.dtype)
    row = ops.concatenate(*(ops.reshape(one(n), shape=(1,)) for n in numbers), dimension=0)
    return ops.broadcast_in_dim(row, shape=indices.shape, broadcast_dimensions=(indices.ndim - 1,))


@rule("gather", differing=("slice_sizes",))
def _gather(c: Context, s: MemberStep, x: PaddedArray, indices: PaddedArray) -> Vals:
    n, mode = s.params["dimension_numbers"], s.params["mode"]
    rows = s.each("slice_sizes")
    sizes = [size_of(c, _column(rows, d), [x.sizes[d]], s) for d in range(x.ndim)]
    clip = mode is not GatherScatterMode.FILL_OR_DROP
    largest = dtypes.integer_info(dtypes.int32).max
    at = _indices(c, x, indices, n.start_index_map, sizes, clip, largest)
    hidden = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    inner = iter([k for d, k in enumerate(sizes) if d not in hidden])
    batch = iter(indices.sizes[:-1])
    rank = len(s.shapes()[0])
    found = tuple(next(inner) if d in n.offset_dims else next(batch) for d in range(rank))
    return PaddedArray(called(s, [_with_room(c, x, sizes, s.params["slice_sizes"]), at]), found)


@rule(*(op.name for op in SCATTERS))
def _scatter(c: Context, s: MemberStep, x: PaddedArray, indices: PaddedArray, updates: PaddedArray) -> Vals:
    n, mode = s.params["dimension_numbers"], s.params["mode"]
    dims: tuple[int, ...] = n.scatter_dims_to_operand_dims
    window = n.window(x.ndim)
    sizes: list[Extent] = [1] * x.ndim
    blocks = [1] * x.ndim
    for d, u in zip(window, n.update_window_dims, strict=True):
        sizes[d], blocks[d] = updates.sizes[u], updates.shape[u]
    wide = _with_room(c, x, sizes, blocks)
    if not x.varying() and not indices.varying() and wide is x.array:
        return PaddedArray(called(s, [x.array, indices.array, updates.array]), x.sizes)
    if not dims:
        raise s.refuse("without indices along an axis that varies", "write it as nx.where")
    # Everything that must not be written goes where nothing is: far outside, and is dropped.
    far = dtypes.integer_info(dtypes.int32).max
    at = indices.array
    if at.dtype.itemsize < 4:
        at = ops.convert_element_type(at, dtype=dtypes.int32)
    clip = mode is not GatherScatterMode.FILL_OR_DROP
    if clip:
        at = ops.min(ops.max(at, like(at, 0)), _components(c, at, _limits(x, dims, sizes)))
    else:
        at = _indices(c, x, PaddedArray(at, indices.sizes), dims, sizes, False, far)
    for axis in indices.varying():
        at = ops.select_n(c.counts(indices.sizes[axis], at.shape, axis), like(at, far), at)
    array = updates.array
    if wide is not x.array:
        array = _masked_windows(c, s, wide, at, updates, blocks)
    y = called(
        s, [wide, at, array], mode=GatherScatterMode.FILL_OR_DROP, indices_are_sorted=False, unique_indices=False
    )
    if wide is not x.array:
        y = ops.slice(y, start_indices=(0,) * x.ndim, limit_indices=x.shape)
    return PaddedArray(y, x.sizes)


def _masked_windows(
    c: Context, s: MemberStep, x: Array, at: Array, updates: PaddedArray, blocks: Sequence[int]
) -> Array:
    """Updates whose windows have padding, with something in it that changes nothing."""
    n = s.params["dimension_numbers"]
    dims = updates.varying(n.update_window_dims)
    if isinstance(s.op, Combining) and s.op.combiner is not None:
        return c.mask(updates, dims, s.op.identity(updates.array.dtype))
    if math.prod(at.shape[:-1]) != 1:
        raise s.refuse(
            "several windows of bucketed length, which may overlap", "write one at a time, or single elements"
        )
    array = ops.gather(
        x, at, dimension_numbers=n.as_gather(), slice_sizes=tuple(blocks), mode=GatherScatterMode.FILL_OR_DROP
    )
    counts = c.mask(PaddedArray(constant(True, dtypes.bool_, updates.shape), updates.sizes), dims, False)
    return ops.select_n(counts, array, updates.array)
