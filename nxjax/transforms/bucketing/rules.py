"""Rules of reductions, products, shapes and the composite ops: which element is neutral, and where sizes go."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from nxjax.ops import vocabulary as ops
from nxjax.ops.base import LastAxes, constant, like
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, current_trace
from nxjax.trace.dtypes import highest, lowest
from nxjax.transforms.bucketing.interpret import bind_unmasked, expanded, rule, size_of, sizes_of
from nxjax.transforms.bucketing.sizes import Extent, Size, product, simplify
from nxjax.transforms.bucketing.values import Context, MemberStep, PaddedArray, over

Vals = PaddedArray | Sequence[PaddedArray]


def called(step: MemberStep, arrays: Arrays, **changed: Any) -> Any:
    """The op of ``step`` on other operands, some parameters changed."""
    return current_trace().process(step.op, arrays, {**step.params, **changed})


def without(sizes: Sequence[Extent], axes: Sequence[int]) -> tuple[Extent, ...]:
    """The sizes that are left when ``axes`` are gone."""
    return tuple(s for a, s in enumerate(sizes) if a not in axes)


# --- reductions ---


@rule("reduce_sum", "reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    axes: tuple[int, ...] = s.params["axes"]
    fill = s.op.identity(x.array.dtype)  # type: ignore[attr-defined]
    return PaddedArray(called(s, [c.mask(x, axes, fill)]), without(x.sizes, axes))


@rule("argmax", "argmin")
def _argextremum(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    # The first extremum wins, and padding comes last.
    axes: tuple[int, ...] = s.params["axes"]
    fill = (lowest if s.op.largest else highest)(x.array.dtype)  # type: ignore[attr-defined]
    return PaddedArray(called(s, [c.mask(x, axes, fill)]), without(x.sizes, axes))


@rule("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp")
def _cumulative(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    if not s.op.with_defaults(s.params)["reverse"]:
        return bind_unmasked(s, [x], [x.sizes])
    fill = s.op.identity(x.array.dtype)  # type: ignore[attr-defined]
    return PaddedArray(called(s, [c.mask(x, (s.params["axis"],), fill)]), x.sizes)


@rule("sort")
def _sort(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    axis: int = s.params["dimension"]
    sizes = elementwise_sizes(xs)
    if isinstance(sizes[axis], int):
        return bind_unmasked(s, xs, [sizes] * len(xs))
    shape = xs[0].shape
    inside = c.valid(sizes[axis], shape[axis])
    padding = ops.convert_element_type(inside, dtype=dtypes.int32)
    padding = ops.sub(like(padding, 1), padding)
    key = ops.broadcast_in_dim(padding, shape=shape, broadcast_dimensions=(axis,))
    _, *ys = called(s, [key, *(x.array for x in xs)], num_keys=s.op.with_defaults(s.params)["num_keys"] + 1)
    return [PaddedArray(y, sizes) for y in ys]


@rule("top_k", differing=("k",))
def _top_k(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    # Equal elements come in order of index, so padding is never before an element.
    axis: int = s.params["axis"]
    k = size_of(c, s.each("k"), [x.sizes[axis]], s)
    ys = called(s, [c.mask(x, (axis,), lowest(x.array.dtype))])
    return [PaddedArray(y, (*x.sizes[:axis], k, *x.sizes[axis + 1 :])) for y in ys]


def elementwise_sizes(xs: Sequence[PaddedArray]) -> tuple[Extent, ...]:
    """The sizes of operands of one shape."""
    return tuple(
        next((t for t in column if not isinstance(t, int)), column[0]) for column in zip(*(x.sizes for x in xs))
    )


# --- products ---


@rule("dot_general", "qmatmul")
def _product(c: Context, s: MemberStep, x: PaddedArray, y: PaddedArray) -> Vals:
    """Sums of products: what is contracted is masked, the rest stays."""
    (xc, yc), (xb, yb) = s.params["dimension_numbers"]
    # Both sides: padding may be infinite, and infinity times zero is not zero.
    z = called(s, [c.mask(x, xc, 0), c.mask(y, yc, 0)])
    batch = [x.sizes[a] if x.varies(a) else y.sizes[b] for a, b in zip(xb, yb, strict=True)]
    return PaddedArray(z, (*batch, *without(x.sizes, (*xc, *xb)), *without(y.sizes, (*yc, *yb))))


# --- composites ---


@rule("softmax", "log_softmax")
def _softmax(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    return PaddedArray(called(s, [c.mask(x, (s.params["axis"],), lowest(x.array.dtype))]), x.sizes)


@rule("logsumexp")
def _logsumexp(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    axes: tuple[int, ...] = s.params["axes"]
    return PaddedArray(called(s, [c.mask(x, axes, lowest(x.array.dtype))]), without(x.sizes, axes))


@rule("layer_norm", "rms_norm", "batch_norm_inference")
def _norm(c: Context, s: MemberStep, x: PaddedArray, *parameters: PaddedArray) -> Vals:
    axis: Any = s.params["axis"]
    if x.varying((axis,) if isinstance(axis, int) else axis):
        return expanded(c, s, [x, *parameters])
    return bind_unmasked(s, [x, *parameters], [x.sizes])


@rule("one_hot")
def _one_hot(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    axis: int = s.params["axis"]
    return bind_unmasked(s, [x], [(*x.sizes[:axis], s.params["num_classes"], *x.sizes[axis:])])


@rule("dot_product_attention")
def _attention(c: Context, s: MemberStep, q: PaddedArray, k: PaddedArray, v: PaddedArray, *extras: PaddedArray) -> Vals:
    p = s.params
    if q.varying((2, 3)) or k.varying((2, 3)):
        return expanded(c, s, [q, k, v, *extras])
    if not k.varies(1):
        return bind_unmasked(s, [q, k, v, *extras], [(k.sizes[0] if k.varies(0) else q.sizes[0], *q.sizes[1:])])
    if extras or p["local_window_size"] is not None:
        # A query may see no key at all: it then weighs all keys equally, those of the padding too.
        return expanded(c, s, [q, k, v, *extras])
    n = k.shape[1]
    seen = ops.reshape(c.valid(k.sizes[1], n), shape=(1, 1, 1, n))
    arrays = [q.array, c.mask(k, (1,), 0), c.mask(v, (1,), 0), seen]
    y = ops.dot_product_attention(*arrays, **{**p, "has_mask": True})
    return PaddedArray(y, (k.sizes[0] if k.varies(0) else q.sizes[0], *q.sizes[1:]))


# --- shapes ---


@rule("select_n", "clamp", "copy", "stop_gradient", "name", "reduce_precision", "optimization_barrier")
def _in_place(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    shape = s.shapes()[0]
    if len(s.equations[0].outputs) > 1:
        return bind_unmasked(s, xs, [x.sizes for x in xs])
    return bind_unmasked(s, xs, [elementwise_sizes([x for x in xs if x.ndim == len(shape)])])


@rule("bitcast_convert_type")
def _bitcast(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    # A change of width adds or takes a last axis, which is not of a length.
    shape = s.shapes()[0]
    return bind_unmasked(s, [x], [[*x.sizes, *shape[x.ndim :]][: len(shape)]])


@rule("broadcast_in_dim", differing=("shape",))
def _broadcast(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    proposals: list[list[Extent]] = [[] for _ in s.shapes()[0]]
    for a, d in enumerate(s.params["broadcast_dimensions"]):
        proposals[d].append(x.sizes[a])
    return bind_unmasked(s, [x], [sizes_of(c, s, proposals)])


@rule("iota", differing=("shape",))
def _iota(c: Context, s: MemberStep) -> Vals:
    return bind_unmasked(s, [], [sizes_of(c, s, [[] for _ in s.shapes()[0]])])


@rule("transpose")
def _transpose(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    return bind_unmasked(s, [x], [tuple(x.sizes[a] for a in s.params["permutation"])])


@rule("rev")
def _rev(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    y: Array = called(s, [x.array])
    for axis in x.varying(s.params["dimensions"]):
        # What was padding behind is now in front.
        n = x.shape[axis]
        y = c.window(y, axis, simplify(Size.of(n) - x.sizes[axis]), n)
    return PaddedArray(y, x.sizes)


@rule("reshape", differing=("shape",))
def _reshape(c: Context, s: MemberStep, x: PaddedArray) -> Vals:
    before = [e.inputs[0].type.shape for e in s.equations]
    after = s.shapes()
    if any(0 in shape for shape in (*before, *after)):
        return bind_unmasked(s, [x], [sizes_of(c, s, [x.sizes for _ in after[0]])])
    sizes: list[Extent] = [1] * len(after[0])
    moved: list[tuple[Array, int]] = []  # per group to be packed anew: places, and which group
    lengths: list[int] = []
    for ours, theirs in _groups(before, after):
        whole_size = product(x.sizes[a] for a in ours)
        for d in theirs:
            rest = math.prod(after[0][o] for o in theirs if o != d)
            proposals = [*(x.sizes[a] for a in ours), whole_size]
            if rest > 1 and all(len({shape[o] for shape in after}) == 1 for o in theirs if o != d):
                proposals.append(simplify(Size.of(whole_size) // rest))
            sizes[d] = size_of(c, [shape[d] for shape in after], proposals, s)
        new = [sizes[d] for d in theirs]
        old = [x.sizes[a] for a in ours]
        if not (_leading(old) and _leading(new)):
            places = _places(c, old, [x.shape[a] for a in ours], new, [after[0][d] for d in theirs])
            moved.append((places, len(lengths)))
        lengths.append(math.prod(x.shape[a] for a in ours))
    array = x.array
    if moved:
        array = ops.reshape(array, shape=tuple(lengths))
        for places, group in moved:
            array = c.taken(array, group, places)
    return PaddedArray(ops.reshape(array, shape=after[0]), tuple(sizes))


def _leading(sizes: Sequence[Extent]) -> bool:
    """Only the first axis has padding, so that what counts is contiguous."""
    return all(isinstance(s, int) for s in sizes[1:])


def _groups(before: Sequence[tuple[int, ...]], after: Sequence[tuple[int, ...]]) -> list[tuple[list[int], list[int]]]:
    """Consecutive axes of operand and result that hold the same elements, in all members; axes of size 1 left out."""
    ours = [a for a in range(len(before[0])) if any(shape[a] != 1 for shape in before)]
    theirs = [d for d in range(len(after[0])) if any(shape[d] != 1 for shape in after)]
    found: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(ours) or j < len(theirs):
        left, right = ours[i : i + 1], theirs[j : j + 1]
        i, j = i + len(left), j + len(right)
        while True:
            a = [math.prod(shape[k] for k in left) for shape in before]
            b = [math.prod(shape[k] for k in right) for shape in after]
            if a == b:
                break
            smaller = next(p < q for p, q in zip(a, b, strict=True) if p != q)
            if (smaller and i < len(ours)) or j == len(theirs):
                left = [*left, ours[i]]
                i += 1
            else:
                right = [*right, theirs[j]]
                j += 1
        found.append((left, right))
    return found


def _places(
    c: Context, old: Sequence[Extent], old_shape: Sequence[int], new: Sequence[Extent], new_shape: Sequence[int]
) -> Array:
    """Where, in the flattened padded operand, each element of the flattened padded result comes from."""
    n = math.prod(new_shape)
    flat = ops.iota(dtype=dtypes.int32, shape=(n,), dimension=0)
    spread = lambda value: over(value, (n,))
    fixed = lambda value: constant(value, dtypes.int32, (n,))
    # The index among the elements that count, in row-major order.
    index, stride = fixed(0), Size.of(1)
    padded = 1
    for size, extent in zip(reversed(new), reversed(new_shape), strict=True):
        coordinate = ops.rem(ops.div(flat, fixed(padded)), fixed(extent))
        index = ops.add(index, ops.mul(coordinate, spread(c.value(simplify(stride)))))
        stride, padded = stride * size, padded * extent
    place, padded = fixed(0), 1
    for size, extent in zip(reversed(old), reversed(old_shape), strict=True):
        length = spread(c.value(size))
        coordinate = ops.rem(index, length)
        index = ops.div(index, length)
        place = ops.add(place, ops.mul(coordinate, fixed(padded)))
        padded *= extent
    return place


# --- ops on the last axes, the others being a batch ---


@rule(
    "cholesky", "eigh", "eig", "svd", "qr", "lu", "geqrf", "householder_product", "triangular_solve", "fft",
    "lu_pivots_to_permutation",
)  # fmt: skip
def _batched(c: Context, s: MemberStep, *xs: PaddedArray) -> Vals:
    assert isinstance(s.op, LastAxes)
    batch = xs[0].ndim - s.op.core_ndim(**s.params)
    if any(x.varying(range(min(batch, x.ndim), x.ndim)) for x in xs):
        raise s.refuse(
            "works on an axis whose size depends on a bucketed length",
            "give it an axis of fixed size, or compute it outside of nx.bucketed",
        )
    sizes = [(*xs[0].sizes[:batch], *v.type.shape[batch:]) for v in s.equations[0].outputs]
    return bind_unmasked(s, xs, sizes)
