"""Rules of products, windows, gathers and scatters: ops with dimension numbers. Must not know any op's own rules."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from nxjax.lower.type_rules.base import (
    ORDERED,
    Flaw,
    Params,
    Results,
    Rule,
    Types,
    distinct,
    need,
    of,
    one_dtype,
    one_shape,
    operands,
    sizes,
    windows,
)
from nxjax.trace import dtypes
from nxjax.trace.dtypes import COMPLEX, FLOAT, INEXACT, INTEGER, NUMBER, NUMERIC, DType
from nxjax.trace.types import ArrayType, Shape


def _summed(types: Types, wanted: DType | None) -> DType:
    """The dtype of sums of products."""
    of(NUMERIC, *types)
    dtype = one_dtype(types)
    if wanted is None or wanted == dtype:
        return dtype
    for kind, results in ((INTEGER, NUMBER), (COMPLEX, COMPLEX), (FLOAT, INEXACT)):
        if dtype in kind and wanted in results:
            return wanted
    raise Flaw(f"preferred_element_type {wanted} of products of {dtype}")


def dotted(x: Shape, y: Shape, numbers: Any) -> Shape:
    """The shape of a `dot_general`: pairs of dimensions in common, then what is left of each operand."""
    (xc, yc), (xb, yb) = numbers
    for a, b in ((xc, yc), (xb, yb)):
        need(len(a) == len(b), "dimensions come in pairs", numbers)
    distinct((*xc, *xb), len(x), "dimensions of the first operand")
    distinct((*yc, *yb), len(y), "dimensions of the second operand")
    pairs = zip((*xc, *xb), (*yc, *yb), strict=True)
    need(all(x[a] == y[b] for a, b in pairs), "paired dimensions differ in size", (x, y, numbers))
    left = [n for d, n in enumerate(x) if d not in xc and d not in xb]
    right = [n for d, n in enumerate(y) if d not in yc and d not in yb]
    return (*[x[d] for d in xb], *left, *right)


def _dot(types: Types, params: Params) -> Results:
    x, y = operands(types, 2)
    dtype = _summed(types, params.get("preferred_element_type"))
    return [(dotted(x.shape, y.shape, params["dimension_numbers"]), dtype)]


def convolved(x: Shape, w: Shape, params: Params) -> Shape:
    """The shape of a convolution."""
    rank = len(x)
    need(rank == len(w) >= 2, "operands differ in rank, or have no batch and features", (x, w))
    numbers = params["dimension_numbers"]
    xs, ws, ys = numbers.lhs_spec, numbers.rhs_spec, numbers.out_spec
    for spec in (xs, ws, ys):
        need(len(distinct(spec, rank, "dimension numbers")) == rank, "dimension numbers", spec)
    steps, spreads, dilations = (
        sizes(params[name], rank - 2, 1, name) for name in ("window_strides", "rhs_dilation", "lhs_dilation")
    )
    pads = params["padding"]
    need(len(pads) == rank - 2, "padding", pads)
    groups, batches = params["feature_group_count"], params.get("batch_group_count", 1)
    need(groups >= 1 and batches >= 1 and 1 in (groups, batches), "group counts", (groups, batches))
    need(x[xs[1]] == w[ws[1]] * groups, "input features do not fit the kernel", (x, w, groups))
    need(w[ws[0]] % (groups * batches) == 0 == x[xs[0]] % batches, "groups do not divide", (x, w, groups, batches))
    shape = [0] * rank
    shape[ys[0]], shape[ys[1]] = x[xs[0]] // batches, w[ws[0]]
    for i, (low, high) in enumerate(pads):
        n, k = x[xs[2 + i]], w[ws[2 + i]]
        shape[ys[2 + i]] = windows(n, low, high, dilations[i], k, spreads[i], steps[i])
    return tuple(shape)


def _conv(types: Types, params: Params) -> Results:
    x, w = operands(types, 2)
    return [(convolved(x.shape, w.shape, params), _summed(types, params.get("preferred_element_type")))]


def pooled(shape: Shape, params: Params) -> Shape:
    """How many windows there are along each dimension."""
    rank = len(shape)
    ones = (1,) * rank
    rows = [
        sizes(params.get(name, ones), rank, 1, name)
        for name in ("base_dilation", "window_dimensions", "window_dilation", "window_strides")
    ]
    need(len(params["padding"]) == rank, "padding", params["padding"])
    rows = zip(shape, params["padding"], *rows, strict=True)
    return tuple([windows(n, low, high, *others) for n, (low, high), *others in rows])


def _reduce_window(allowed: Collection[DType]) -> Rule:
    def rule(types: Types, params: Params) -> Results:
        (x,) = operands(types, 1)
        of(allowed, x)
        return [(pooled(x.shape, params), x.dtype)]

    return rule


def _selection(types: Types, params: Params) -> tuple[ArrayType, ArrayType]:
    first, x = operands(types, 2)
    of(ORDERED, x)
    one_dtype(types)
    need(params["select_prim"] in ("ge", "le"), "select_prim", params["select_prim"])
    return first, x


def _select_and_gather_add(types: Types, params: Params) -> Results:
    tangent, x = _selection(types, params)
    return [(pooled(one_shape(types), params), tangent.dtype if x.shape == tangent.shape else x.dtype)]


def _select_and_scatter_add(types: Types, params: Params) -> Results:
    source, x = _selection(types, params)
    need(source.shape == pooled(x.shape, params), "not one element of the source per window", types)
    return [(x.shape, x.dtype)]


def _index_vectors(indices: ArrayType, count: int) -> Shape:
    """How many index vectors there are along each dimension."""
    of(INTEGER, indices)
    need(indices.shape[-1:] == (count,), "the last dimension of the indices is no index vector", indices)
    return indices.shape[:-1]


def _in_common(x: Shape, batch: Shape, ours: Sequence[int], theirs: Sequence[int]) -> None:
    distinct(ours, len(x), "operand_batching_dims", ascending=True)
    distinct(theirs, len(batch), "batching dimensions of the indices")
    need([x[d] for d in ours] == [batch[d] for d in theirs], "batching dimensions differ", (x, batch, ours, theirs))


def _gather(types: Types, params: Params) -> Results:
    x, indices = operands(types, 2)
    n, rank = params["dimension_numbers"], len(x.shape)
    block = sizes(params["slice_sizes"], rank, what="slice_sizes")
    batch = _index_vectors(indices, len(n.start_index_map))
    _in_common(x.shape, batch, n.operand_batching_dims, n.start_indices_batching_dims)
    gone = (*n.collapsed_slice_dims, *n.operand_batching_dims)
    distinct(n.collapsed_slice_dims, rank, "collapsed_slice_dims", ascending=True)
    distinct(gone, rank, "collapsed_slice_dims and operand_batching_dims")
    distinct((*n.start_index_map, *n.operand_batching_dims), rank, "start_index_map and operand_batching_dims")
    for d, (size, k) in enumerate(zip(x.shape, block, strict=True)):
        # Where there are no index vectors, no slice is taken.
        need(k <= size or (0 in batch and k == 1), "a slice is larger than the operand", (x, block))
        need(d not in gone or k == 1, "a dimension that goes has another slice size than 1", (block, gone))
    window = [k for d, k in enumerate(block) if d not in gone]
    offsets = distinct(n.offset_dims, len(window) + len(batch), "offset_dims", ascending=True)
    need(len(offsets) == len(window), "not one offset dimension per dimension of a slice", n)
    shape = list(batch)
    for d, k in zip(offsets, window, strict=True):
        shape.insert(d, k)
    return [(tuple(shape), x.dtype)]


def _scatter(allowed: Collection[DType]) -> Rule:
    def rule(types: Types, params: Params) -> Results:
        x, indices, updates = operands(types, 3)
        n, rank = params["dimension_numbers"], len(x.shape)
        of(allowed, x)
        one_dtype([x, updates])
        batch = _index_vectors(indices, len(n.scatter_dims_to_operand_dims))
        _in_common(x.shape, batch, n.operand_batching_dims, n.scatter_indices_batching_dims)
        gone = (*n.inserted_window_dims, *n.operand_batching_dims)
        distinct(n.inserted_window_dims, rank, "inserted_window_dims", ascending=True)
        distinct(gone, rank, "inserted_window_dims and operand_batching_dims")
        distinct((*n.scatter_dims_to_operand_dims, *n.operand_batching_dims), rank, "scatter_dims_to_operand_dims")
        block = list(updates.shape)
        inside = distinct(n.update_window_dims, len(block), "update_window_dims", ascending=True)
        window = [block[d] for d in inside]
        for d in reversed(inside):
            del block[d]
        need(tuple(block) == batch, "updates and indices differ in shape", (updates, indices, n))
        room = [size for d, size in enumerate(x.shape) if d not in gone]
        need(len(room) == len(window), "not one window dimension per dimension of the operand", (x, n))
        need(all(k <= size for k, size in zip(window, room, strict=True)), "an update is larger than the operand")
        return [(x.shape, x.dtype)]

    return rule


def _attention(types: Types, params: Params) -> Results:
    query, key, value, *extras = types
    of(FLOAT, query)
    one_dtype([query, key, value])
    need(len(query.shape) == 4 == len(key.shape) and key.shape == value.shape, "operands do not fit", types)
    (b, t, n, h), (kb, s, k, kh) = query.shape, key.shape
    need((kb, kh) == (b, h) and k > 0 and n % k == 0, "operands do not fit", types)
    need(len(extras) == params["has_bias"] + params["has_mask"], "bias and mask", extras)
    for e in extras:
        fits = len(e.shape) == 4 and all(m in (1, full) for m, full in zip(e.shape, (b, n, t, s), strict=True))
        need(fits, "bias or mask does not fit", e)
    need(not params["has_mask"] or extras[-1].dtype == dtypes.bool_, "the mask is not boolean", extras)
    return [(query.shape, query.dtype)]


def _cached_attention(types: Types, params: Params) -> Results:
    query, keys, values, lengths, *scales = types
    of(FLOAT, query)
    of({dtypes.int8} if scales else FLOAT, keys, values)
    of({dtypes.int32}, lengths)
    of({dtypes.float32}, *scales)
    need(len(query.shape) == 4 == len(keys.shape) and keys == values, "operands do not fit", types)
    (b, t, n, h), (kb, s, k, kh) = query.shape, keys.shape
    need((kb, kh) == (b, h) and t <= s and k > 0 and n % k == 0, "operands do not fit", types)
    need(lengths.shape == (b,) and len(scales) in (0, 2), "operands do not fit", types)
    need(all(x.shape == (b, s, k) for x in scales) and params["window"] >= 0, "operands do not fit", types)
    return [(query.shape, query.dtype)]


def _norm(count: int) -> Rule:
    """Of an operand, and ``count`` parameters that have the shape of its axes."""

    def rule(types: Types, params: Params) -> Results:
        x, *others = operands(types, 1 + count)
        axis = params["axis"]
        axes = distinct(axis if isinstance(axis, tuple) else (axis,), len(x.shape), "axis")
        of(FLOAT, x)
        one_dtype(types)
        wanted = tuple([x.shape[d] for d in axes])
        need(all(t.shape == wanted for t in others), "parameters have another shape than the axes", types)
        return [(x.shape, x.dtype)]

    return rule


def _block_dot(types: Types, params: Params) -> Results:
    x, data, scale, *least = types
    of({dtypes.float32}, x)
    of({dtypes.int8, dtypes.uint8}, data)
    of({dtypes.float16, dtypes.float32}, scale, *least)
    need(len(x.shape) == 2 and len(data.shape) == 5 and len(least) <= 1, "operands do not fit", types)
    groups, blocks, units, lanes, four = data.shape
    block = units * four * (2 if data.dtype == dtypes.uint8 else 1)
    need(block in (16, 32) and (lanes, four) == (8, 4), "no packed matrix", data)
    need((-(-x.shape[1] // block), -(-params["columns"] // lanes)) == (blocks, groups), "operands do not fit", types)
    fits = scale.shape in ((groups, blocks, lanes), (groups, 1, lanes))
    need(fits and all(t == scale for t in least), "scales do not fit", types)
    return [((x.shape[0], params["columns"]), dtypes.float32)]


RULES: Final[Mapping[str, Rule]] = {
    "dot_general": _dot,
    "conv_general_dilated": _conv,
    "reduce_window_sum": _reduce_window(NUMBER),
    **dict.fromkeys(("reduce_window_max", "reduce_window_min"), _reduce_window(ORDERED)),
    "select_and_gather_add": _select_and_gather_add,
    "select_and_scatter_add": _select_and_scatter_add,
    "gather": _gather,
    "scatter": _scatter(NUMERIC | {dtypes.key}),
    **dict.fromkeys(("scatter_add", "scatter_sub", "scatter_mul"), _scatter(NUMBER)),
    **dict.fromkeys(("scatter_max", "scatter_min"), _scatter(NUMERIC)),
    "block_dot": _block_dot,
    "dot_product_attention": _attention,
    "cached_attention": _cached_attention,
    "layer_norm": _norm(2),
    "rms_norm": _norm(1),
    "batch_norm_inference": _norm(4),
}
