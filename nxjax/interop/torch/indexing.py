"""Rules of operators that read or write elements by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import NeedsValue, Refused, as_numpy, concrete
from nxjax.interop.torch.promotion import in_dtype, together
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes


def _at_least_1d(x: Any) -> Any:
    return x if x.ndim else x.reshape(1)


def needed(kind: str, x: Any) -> Any:
    """Elements that decide how large the result is."""
    if not concrete(x):
        raise NeedsValue(
            f"from_torch: the size of {kind}'s result depends on elements that are traced",
            got=repr(x),
            fix="call the function outside jit",
        )
    return as_numpy(x)


def _places(indices: Sequence[Any]) -> tuple[Any, ...]:
    """Indices as NumPy takes them; a mask becomes the places of its elements."""
    found: list[Any] = []
    for i in indices:
        if i is None:
            found.append(slice(None))
        elif i.dtype in (dtypes.bool_, dtypes.uint8):
            found += [jnp.asarray(p) for p in np.nonzero(needed("index by a mask", i))]
        else:
            found.append(i)
    return tuple(found)


@rule("index.Tensor", "_unsafe_index.Tensor")
def _index(self: Any, indices: Any) -> Any:
    return self[_places(indices)]


def _single_mask(x: Any, indices: Sequence[Any]) -> Any:
    """The mask of an index that is one mask over leading axes; None: another index."""
    given = [i for i in indices if i is not None]
    if len(given) == 1 and indices[0] is given[0] and given[0].dtype == dtypes.bool_ and not concrete(given[0]):
        return given[0].reshape(given[0].shape + (1,) * (x.ndim - given[0].ndim))
    return None


@rule("index_put", "_unsafe_index_put")
def _index_put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    values = values.astype(self.dtype)
    mask = _single_mask(self, indices)
    if mask is not None and values.size == 1:
        # One value for all elements of a traced mask needs no places.
        new = values.reshape(())
        return jnp.where(mask, self + new if accumulate else new, self)
    spot = self.at[_places(indices)]
    return spot.add(values) if accumulate else spot.set(values)


@rule("index_select")
def _index_select(self: Any, dim: int, index: Any) -> Any:
    y = jnp.take(_at_least_1d(self), index.reshape(-1), axis=dim)
    return y if self.ndim else y.reshape(())


@rule("take")
def _take(self: Any, index: Any) -> Any:
    return self.reshape(-1)[index]


@rule("embedding")
def _embedding(
    weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False
) -> Any:
    y = jnp.take(weight, indices, axis=0)
    if padding_idx >= 0:
        # The row of the padding is not trained.
        y = jnp.where((indices == padding_idx)[..., None], lax.stop_gradient(y), y)
    return y


@rule("_embedding_bag", "_embedding_bag_forward_only", "embedding_bag.padding_idx")
def _embedding_bag(
    weight: Any, indices: Any, offsets: Any, scale_grad_by_freq: bool = False, mode: int = 0, sparse: bool = False,
    per_sample_weights: Any = None, include_last_offset: bool = False, padding_idx: int | None = -1,
) -> Any:  # fmt: skip
    bags = offsets.shape[0] - int(include_last_offset)
    n = indices.shape[0]
    # The bag of each index: how many bags begin at or before it, less one.
    bag = jnp.sum(jnp.arange(n)[:, None] >= offsets[None, :bags], 1, dtype=dtypes.int64) - 1
    rows = jnp.take(weight, indices, axis=0)
    padding = -1 if padding_idx is None else padding_idx
    used = (indices != padding) if padding >= 0 else jnp.ones(n, dtypes.bool_)
    counts = jnp.zeros(bags, dtypes.int64).at[bag].add(used.astype(dtypes.int64))
    if mode == 2:
        least = dtypes.lowest(weight.dtype)
        best = jnp.full((bags, weight.shape[1]), least, weight.dtype).at[bag].max(jnp.where(used[:, None], rows, least))
        total = jnp.where(counts[:, None] > 0, best, 0)
    else:
        if per_sample_weights is not None:
            rows = rows * per_sample_weights[:, None]
        rows = jnp.where(used[:, None], rows, 0)
        total = jnp.zeros((bags, weight.shape[1]), rows.dtype).at[bag].add(rows)
        if mode == 1:
            total = total / jnp.maximum(counts, 1)[:, None].astype(total.dtype)
    return total, bag, counts, jnp.zeros((bags,), dtypes.int64)


def _grid(index: Any, axis: int, values: Any) -> tuple[Any, ...]:
    """Index arrays of all axes, with ``values`` on one of them."""
    places = [jnp.broadcast_to(p, index.shape) for p in jnp.indices(index.shape, sparse=True)]
    places[axis] = values
    return tuple(places)


@rule("gather")
def _gather(self: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    if not index.size:
        return jnp.zeros(index.shape, self.dtype)
    if not self.ndim:
        return jnp.broadcast_to(self, index.shape)
    if not index.ndim:
        return self[index]
    return self[_grid(index, dim % self.ndim, index)]


def _scattered(x: Any, dim: int, index: Any, src: Any, reduce: str | None) -> Any:
    if not index.size:
        return x
    base, index = _at_least_1d(x), _at_least_1d(index)
    if hasattr(src, "ndim") and src.ndim:
        src = src[tuple(slice(0, n) for n in index.shape)]
    elif hasattr(src, "ndim"):
        src = src.reshape((1,) * index.ndim)
    spot = base.at[_grid(index, dim % base.ndim, index)]
    src = in_dtype(src, x.dtype)
    ways = {
        None: spot.set, "add": spot.add, "sum": spot.add, "multiply": spot.multiply, "prod": spot.multiply,
        "amax": spot.max, "amin": spot.min,
    }  # fmt: skip
    return ways[reduce](src).reshape(x.shape)


@rule("scatter.src", "scatter.reduce")
def _scatter_src(self: Any, dim: int, index: Any, src: Any, *, reduce: str | None = None) -> Any:
    return _scattered(self, dim, index, src, reduce)


@rule("scatter.value", "scatter.value_reduce")
def _scatter_value(self: Any, dim: int, index: Any, value: Any, *, reduce: str | None = None) -> Any:
    return _scattered(self, dim, index, value, reduce)


@rule("scatter_add")
def _scatter_add(self: Any, dim: int, index: Any, src: Any) -> Any:
    return _scattered(self, dim, index, src, "add")


@rule("scatter_reduce.two")
def _scatter_reduce(self: Any, dim: int, index: Any, src: Any, reduce: str, *, include_self: bool = True) -> Any:
    ones = jnp.ones(index.shape, dtypes.int64)
    counts = _scattered(jnp.zeros(self.shape, dtypes.int64), dim, index, ones, "add")
    base = self
    if not include_self:
        if reduce in ("amax", "amin"):
            neutral: Any = dtypes.lowest(self.dtype) if reduce == "amax" else dtypes.highest(self.dtype)
        else:
            neutral = 1 if reduce == "prod" else 0
        base = jnp.where(counts > 0, jnp.asarray(neutral, self.dtype), self)
    if reduce != "mean":
        return _scattered(base, dim, index, src, reduce)
    total = _scattered(base, dim, index, src, "sum")
    number = jnp.maximum(counts + int(include_self), 1).astype(self.dtype)
    return jnp.floor_divide(total, number) if self.dtype in dtypes.INTEGER else total / number


@rule("index_add")
def _index_add(self: Any, dim: int, index: Any, source: Any, *, alpha: Any = 1) -> Any:
    base, source = _at_least_1d(self), _at_least_1d(source)
    source = source if alpha == 1 else source * in_dtype(alpha, source.dtype)
    place = (slice(None),) * (dim % base.ndim) + (index.reshape(-1),)
    return base.at[place].add(source.astype(self.dtype)).reshape(self.shape)


@rule("index_copy")
def _index_copy(self: Any, dim: int, index: Any, source: Any) -> Any:
    base, source = _at_least_1d(self), _at_least_1d(source)
    return base.at[(slice(None),) * (dim % base.ndim) + (index.reshape(-1),)].set(source).reshape(self.shape)


@rule("index_fill.int_Scalar", "index_fill.int_Tensor")
def _index_fill(self: Any, dim: int, index: Any, value: Any) -> Any:
    base = _at_least_1d(self)
    place = (slice(None),) * (dim % base.ndim) + (index.reshape(-1),)
    return base.at[place].set(in_dtype(value, self.dtype)).reshape(self.shape)


@rule("masked_fill.Scalar", "masked_fill.Tensor")
def _masked_fill(self: Any, mask: Any, value: Any) -> Any:
    return jnp.where(mask, in_dtype(value, self.dtype), self)


@rule("masked_scatter")
def _masked_scatter(self: Any, mask: Any, source: Any) -> Any:
    self, mask = jnp.broadcast_arrays(self, mask)
    # The n-th element of the mask that is set takes the n-th of the source.
    order = jnp.cumsum(mask.reshape(-1).astype(dtypes.int64)) - 1
    taken = source.reshape(-1)[jnp.clip(order, 0, max(source.size - 1, 0))].reshape(self.shape)
    return jnp.where(mask, taken.astype(self.dtype), self)


@rule("masked_select")
def _masked_select(self: Any, mask: Any) -> Any:
    self, mask = jnp.broadcast_arrays(self, mask)
    return self.reshape(-1)[jnp.asarray(np.flatnonzero(needed("masked_select", mask)))]


@rule("nonzero")
def _nonzero(self: Any) -> Any:
    x = needed("nonzero", self)
    return jnp.asarray(np.stack(np.nonzero(x), 1) if x.ndim else np.zeros((int(x != 0), 0), np.int64))


@rule("unique_consecutive")
def _unique_consecutive(self: Any, return_inverse: bool = False, return_counts: bool = False, dim: Any = None) -> Any:
    if dim is not None:
        raise Refused("from_torch: unique_consecutive along an axis", got=f"dim={dim}")
    x = needed("unique_consecutive", self).reshape(-1)
    first = np.ones(x.size, bool)
    first[1:] = x[1:] != x[:-1]
    inverse = (np.cumsum(first) - 1).reshape(self.shape)
    counts = np.bincount(inverse.reshape(-1)).astype(np.int64)
    return jnp.asarray(x[first]), _asked(return_inverse, inverse), _asked(return_counts, counts)


def _asked(wanted: bool, x: Any) -> Any:
    return jnp.asarray(x) if wanted else jnp.zeros((0,), dtypes.int64)


@rule("_unique2")
def _unique2(self: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    y, inverse, counts = np.unique(needed("unique", self), return_inverse=True, return_counts=True)
    return (
        jnp.asarray(y),
        _asked(return_inverse or return_counts, inverse.reshape(self.shape)),
        _asked(return_counts, counts),
    )


@rule("unique_dim")
def _unique_dim(
    self: Any, dim: int, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> Any:
    x = needed("unique", self)
    y, inverse, counts = np.unique(x, return_inverse=True, return_counts=True, axis=dim)
    return jnp.asarray(y), jnp.asarray(inverse.reshape(-1)), jnp.asarray(counts)


@rule("embedding_renorm")
def _renormalized(self: Any, indices: Any, max_norm: float, norm_type: float) -> Any:
    norms = jnp.linalg.norm(self, norm_type, axis=-1, keepdims=True)
    named = jnp.zeros((self.shape[0], 1), dtypes.bool_).at[indices.reshape(-1)].set(True)
    return jnp.where(named & (norms > max_norm), self * (max_norm / (norms + 1e-7)), self).astype(self.dtype)


@rule("searchsorted.Tensor")
def _searchsorted(
    sorted_sequence: Any, self: Any, *, out_int32: bool = False, right: bool = False, side: str | None = None,
    sorter: Any = None,
) -> Any:  # fmt: skip
    if sorter is not None:
        sorted_sequence = _gather(sorted_sequence, -1, sorter)
    rows, x = together(sorted_sequence, self)
    before = jnp.less_equal if right or side == "right" else jnp.less
    rows = rows if rows.ndim > 1 else rows.reshape((1,) * max(x.ndim - 1, 0) + rows.shape)
    found = jnp.sum(before(rows[..., None, :], x[..., None]), -1)
    return found.reshape(self.shape).astype(dtypes.int32 if out_int32 else dtypes.int64)


@rule("bucketize.Tensor")
def _bucketize(self: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    y = _searchsorted(boundaries, self.reshape(-1), out_int32=out_int32, right=right)
    return y.reshape(self.shape)


@rule("bincount")
def _bincount(self: Any, weights: Any = None, minlength: int = 0) -> Any:
    x = needed("bincount", self).astype(np.int64)
    size = max(int(x.max(initial=-1)) + 1, minlength)
    if weights is None:
        return jnp.zeros(size, dtypes.int64).at[self].add(1)
    wide = weights if weights.dtype == dtypes.float32 else weights.astype(dtypes.float64)
    return jnp.zeros(size, wide.dtype).at[self].add(wide)


@rule("one_hot")
def _one_hot(self: Any, num_classes: int = -1) -> Any:
    n = num_classes if num_classes >= 0 else int(needed("one_hot", self).max()) + 1
    return (self[..., None] == jnp.arange(n, dtype=self.dtype)).astype(dtypes.int64)


@rule("repeat_interleave.Tensor")
def _repeat_interleave(repeats: Any, *, output_size: int | None = None) -> Any:
    counts = needed("repeat_interleave", repeats)
    return jnp.asarray(np.repeat(np.arange(counts.size, dtype=np.int64), counts))


@rule("repeat_interleave.self_Tensor")
def _repeat_interleave_self(self: Any, repeats: Any, dim: int | None = None, *, output_size: int | None = None) -> Any:
    x = self.reshape(-1) if dim is None else self
    counts = np.broadcast_to(needed("repeat_interleave", repeats), x.shape[dim or 0])
    return jnp.repeat(x, jnp.asarray(counts), axis=dim or 0, total_repeat_length=int(counts.sum()))


@rule("index_reduce")
def _index_reduce(self: Any, dim: int, index: Any, source: Any, reduce: str, *, include_self: bool = True) -> Any:
    base, source = _at_least_1d(self), _at_least_1d(source)
    axis = dim % base.ndim
    whole = jnp.broadcast_to(index.reshape((-1,) + (1,) * (base.ndim - axis - 1)), source.shape)
    return _scatter_reduce(base, axis, whole, source, reduce, include_self=include_self).reshape(self.shape)


@rule("put")
def _put(self: Any, index: Any, source: Any, accumulate: bool = False) -> Any:
    spot = self.reshape(-1).at[index.reshape(-1)]
    values = source.reshape(-1)
    return (spot.add(values) if accumulate else spot.set(values)).reshape(self.shape)


@rule("nonzero_static")
def _nonzero_static(self: Any, *, size: int, fill_value: int = -1) -> Any:
    if not self.ndim:
        return jnp.zeros((size, 0), dtypes.int64)
    return jnp.stack(jnp.nonzero(self, size=size, fill_value=fill_value), 1).astype(dtypes.int64)
