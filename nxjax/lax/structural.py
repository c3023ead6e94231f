"""`jax.lax`'s functions that make, move and index data: shapes, slices, gather and scatter, reductions, sorting."""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.lax._operands import axes_of, index, ints
from nxjax.lax.reductions import (
    argmax,
    argmin,
    cumlogsumexp,
    cummax,
    cummin,
    cumprod,
    cumsum,
    reduce,
    reduce_and,
    reduce_max,
    reduce_min,
    reduce_or,
    reduce_prod,
    reduce_sum,
    reduce_xor,
)
from nxjax.ops import create, identity, indexing, slicing
from nxjax.ops import scatter as scatters
from nxjax.ops import shape as shapes
from nxjax.ops import sort as sorts
from nxjax.ops.base import check_axis, constant
from nxjax.ops.convert import convert_element_type
from nxjax.ops.indexing import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.scatter import ScatterDimensionNumbers
from nxjax.trace import dtypes
from nxjax.trace import tree as trees
from nxjax.trace.array import as_value
from nxjax.trace.core import Array

slice_ = builtins.slice  # `slice` is lax's own below

# --- shapes ---


def broadcast(operand: Any, sizes: Sequence[int], **_: Any) -> Array:
    """The operand repeated over new leading dimensions."""
    x, sizes = as_value(operand, "broadcast"), ints(sizes, "broadcast")
    dims = tuple(range(len(sizes), len(sizes) + x.ndim))
    return shapes.broadcast_in_dim(x, shape=(*sizes, *x.shape), broadcast_dimensions=dims)


def broadcast_in_dim(operand: Any, shape: Sequence[int], broadcast_dimensions: Sequence[int], **_: Any) -> Array:
    """The operand repeated into ``shape``; its dimension i is ``broadcast_dimensions[i]`` of the result."""
    x = as_value(operand, "broadcast_in_dim")
    dims = ints(broadcast_dimensions, "broadcast_in_dim")
    return shapes.broadcast_in_dim(x, shape=ints(shape, "broadcast_in_dim"), broadcast_dimensions=dims)


def broadcast_to_rank(x: Any, rank: int) -> Array:
    """The operand with leading dimensions of size 1 up to ``rank``."""
    v = as_value(x, "broadcast_to_rank")
    return shapes.reshape(v, shape=(1,) * (rank - v.ndim) + v.shape)


def broadcast_shapes(*given: Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to."""
    try:
        return np.broadcast_shapes(*(tuple(s) for s in given))
    except ValueError:
        raise ShapeError("broadcast_shapes: the shapes do not fit together", got=given) from None


def broadcasted_iota(dtype: Any, shape: Sequence[int], dimension: int, **_: Any) -> Array:
    """The index along ``dimension``, repeated over ``shape``."""
    sizes = ints(shape, "broadcasted_iota")
    return create.iota(
        dtype=dtypes.as_dtype(dtype), shape=sizes, dimension=check_axis("iota", int(dimension), len(sizes))
    )


def iota(dtype: Any, size: int) -> Array:
    """0, 1, ..., size - 1"""
    return create.iota(dtype=dtypes.as_dtype(dtype), shape=(index(size, "iota"),), dimension=0)


def full(shape: Sequence[int], fill_value: Any, dtype: Any = None, **_: Any) -> Array:
    """``fill_value`` (a scalar) repeated into ``shape``."""
    x = as_value(fill_value, "full")
    if x.shape:
        raise ShapeError("full: the fill value is a scalar", got=x.type)
    wanted = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    if x.dtype != wanted or (x.type.weak and dtype is not None):
        x = convert_element_type(x, dtype=wanted, weak=x.type.weak and dtype is None)
    return shapes.broadcast_in_dim(x, shape=ints(shape, "full"), broadcast_dimensions=())


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Sequence[int] | None = None, **_: Any) -> Array:
    """``fill_value`` in the shape and dtype of ``x``."""
    v = as_value(x, "full_like")
    return full(v.shape if shape is None else shape, fill_value, v.dtype if dtype is None else dtype)


def empty(shape: Sequence[int], dtype: Any, **_: Any) -> Array:
    """Zeros: there is no uninitialized memory to see."""
    return full(shape, 0, dtype)


def reshape(operand: Any, new_sizes: Sequence[int], dimensions: Sequence[int] | None = None, **_: Any) -> Array:
    """The elements in row-major order, after a transposition by ``dimensions``, in another shape."""
    x, sizes = as_value(operand, "reshape"), ints(new_sizes, "reshape")
    if dimensions is not None and tuple(dimensions) != tuple(range(x.ndim)):
        x = shapes.transpose(x, permutation=ints(dimensions, "reshape"))
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        sizes = tuple(x.size // known if n == -1 and known else n for n in sizes)
    return shapes.reshape(x, shape=sizes)


def transpose(operand: Any, permutation: Sequence[int]) -> Array:
    """Result dimension i is operand dimension ``permutation[i]``."""
    return shapes.transpose(as_value(operand, "transpose"), permutation=ints(permutation, "transpose"))


def rev(operand: Any, dimensions: Sequence[int]) -> Array:
    """The elements in reverse order along ``dimensions``."""
    x = as_value(operand, "rev")
    return shapes.rev(x, dimensions=axes_of(dimensions, x.ndim, "rev"))


def squeeze(array: Any, dimensions: Sequence[int]) -> Array:
    """The array without dimensions of size 1."""
    x = as_value(array, "squeeze")
    dims = axes_of(dimensions, x.ndim, "squeeze")
    if any(x.shape[d] != 1 for d in dims):
        raise ShapeError("squeeze: only dimensions of size 1 can go", got=f"{dims} of {x.type}")
    return shapes.reshape(x, shape=tuple(n for d, n in enumerate(x.shape) if d not in dims))


def expand_dims(array: Any, dimensions: Sequence[int]) -> Array:
    """The array with new dimensions of size 1 at these places of the result."""
    x = as_value(array, "expand_dims")
    rank = x.ndim + len(ints(dimensions, "expand_dims"))
    dims = axes_of(dimensions, rank, "expand_dims")
    kept = tuple(d for d in range(rank) if d not in dims)
    sizes = [1] * rank
    for d, n in zip(kept, x.shape, strict=True):
        sizes[d] = n
    return shapes.broadcast_in_dim(x, shape=tuple(sizes), broadcast_dimensions=kept)


def collapse(operand: Any, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Dimensions ``start`` to ``stop`` (exclusive) as one."""
    x = as_value(operand, "collapse")
    start, stop, _ = slice_(start_dimension, stop_dimension).indices(x.ndim)
    if stop < start:
        raise ParameterError("collapse: the dimensions are in the wrong order", got=(start_dimension, stop_dimension))
    return shapes.reshape(x, shape=(*x.shape[:start], math.prod(x.shape[start:stop]), *x.shape[stop:]))


def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """The operands one after the other along ``dimension``."""
    if not len(operands):
        raise ParameterError("concatenate: needs at least one operand", got="none")
    values = aligned_dtypes("concatenate", *operands)
    return slicing.concatenate(*values, dimension=check_axis("concatenate", dimension, values[0].ndim))


def pad(operand: Any, padding_value: Any, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """The operand with a value around and between its elements: (low, high, interior) per dimension."""
    x = as_value(operand, "pad")
    value = as_value(padding_value, "pad")
    if value.dtype != x.dtype and value.type.weak:
        value = convert_element_type(value, dtype=x.dtype)
    config = tuple((index(l, "pad"), index(h, "pad"), index(i, "pad")) for l, h, i in padding_config)
    return slicing.pad(x, value, padding_config=config)


# --- slices ---


def slice(
    operand: Any, start_indices: Sequence[int], limit_indices: Sequence[int], strides: Sequence[int] | None = None
) -> Array:
    """``operand[start:limit:stride]`` in every dimension."""
    starts, limits = ints(start_indices, "slice"), ints(limit_indices, "slice")
    steps = None if strides is None else ints(strides, "slice")
    return slicing.slice(as_value(operand, "slice"), start_indices=starts, limit_indices=limits, strides=steps)


def slice_in_dim(
    operand: Any, start_index: int | None, limit_index: int | None, stride: int = 1, axis: int = 0
) -> Array:
    """``operand[start:limit:stride]`` along one axis."""
    x = as_value(operand, "slice_in_dim")
    axis = check_axis("slice_in_dim", axis, x.ndim)
    start, limit, _ = slice_(start_index, limit_index).indices(x.shape[axis])
    starts = tuple(start if d == axis else 0 for d in range(x.ndim))
    limits = tuple(max(start, limit) if d == axis else n for d, n in enumerate(x.shape))
    return slice(x, starts, limits, tuple(stride if d == axis else 1 for d in range(x.ndim)))


def index_in_dim(operand: Any, index: int, axis: int = 0, keepdims: bool = True) -> Array:
    """One element along an axis, which stays with size 1 or goes."""
    x = as_value(operand, "index_in_dim")
    axis = check_axis("index_in_dim", axis, x.ndim)
    at = check_axis("index_in_dim", operator.index(index), x.shape[axis])
    y = slice_in_dim(x, at, at + 1, 1, axis)
    return y if keepdims else squeeze(y, (axis,))


def split(operand: Any, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Pieces of these sizes along an axis."""
    x, lengths = as_value(operand, "split"), ints(sizes, "split")
    axis = check_axis("split", axis, x.ndim)
    if sum(lengths) != x.shape[axis]:
        raise ShapeError("split: the sizes do not add up", got=f"{lengths} of {x.type} along {axis}")
    ends = np.cumsum(lengths)
    return [slice_in_dim(x, int(e) - n, int(e), 1, axis) for e, n in zip(ends, lengths, strict=True)]


def _starts(operand: Array, starts: Any, name: str) -> list[Array]:
    if isinstance(starts, Array) or hasattr(starts, "shape"):
        row = as_value(starts, name)
        starts = [squeeze(slice_in_dim(row, i, i + 1), (0,)) for i in range(row.shape[0])] if row.ndim else [row]
    given = [s if isinstance(s, (int, np.integer)) else as_value(s, name) for s in starts]
    arrays = [s for s in given if isinstance(s, Array)]
    strong = {s.dtype for s in arrays if not s.type.weak}
    word = next(iter(strong)) if len(strong) == 1 else dtypes.int32
    wide = dtypes.int64 if max(operand.shape, default=0) > 2**31 - 1 else word
    values: list[Array] = []
    for s, n in zip(given, operand.shape, strict=False):
        if isinstance(s, Array):
            values.append(s if s.dtype == wide or not s.type.weak else convert_element_type(s, dtype=wide))
        else:
            values.append(constant(s + n if s < 0 else s, wide))
    return _wrapped(values, operand, name)


def _wrapped(values: list[Array], operand: Array, name: str) -> list[Array]:
    """Negative traced starts count from the end, as in JAX."""
    from nxjax.ops.arithmetic import add
    from nxjax.ops.compare import lt
    from nxjax.ops.select import select_n
    from nxjax.trace.core import Tracer

    out: list[Array] = []
    for s, n in zip(values, operand.shape, strict=False):
        if s.dtype in dtypes.UNSIGNED or (not isinstance(s, Tracer) and s.numpy() >= 0):
            out.append(s)
        else:
            out.append(select_n(lt(s, constant(0, s.dtype)), s, add(s, constant(n, s.dtype))))
    return out


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Sequence[int], **_: Any) -> Array:
    """A block of static size at dynamic start indices, moved inside where it would stick out."""
    x = as_value(operand, "dynamic_slice")
    return slicing.dynamic_slice(
        x, *_starts(x, start_indices, "dynamic_slice"), slice_sizes=ints(slice_sizes, "dynamic_slice")
    )


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, **_: Any) -> Array:
    """The operand with a block at dynamic start indices replaced."""
    x, u = as_value(operand, "dynamic_update_slice"), as_value(update, "dynamic_update_slice")
    if u.dtype != x.dtype and u.type.weak:
        u = convert_element_type(u, dtype=x.dtype)
    return slicing.dynamic_update_slice(x, u, *_starts(x, start_indices, "dynamic_update_slice"))


def dynamic_slice_in_dim(operand: Any, start_index: Any, slice_size: int, axis: int = 0, **_: Any) -> Array:
    """As `dynamic_slice` along one axis."""
    x = as_value(operand, "dynamic_slice_in_dim")
    axis = check_axis("dynamic_slice_in_dim", axis, x.ndim)
    starts = [start_index if d == axis else 0 for d in range(x.ndim)]
    sizes = [index(slice_size, "dynamic_slice_in_dim") if d == axis else n for d, n in enumerate(x.shape)]
    return dynamic_slice(x, starts, sizes)


def dynamic_index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True, **_: Any) -> Array:
    """One element along an axis at a dynamic index."""
    y = dynamic_slice_in_dim(operand, index, 1, axis)
    return y if keepdims else squeeze(y, (axis,))


def dynamic_update_slice_in_dim(operand: Any, update: Any, start_index: Any, axis: int, **_: Any) -> Array:
    """As `dynamic_update_slice` along one axis."""
    x = as_value(operand, "dynamic_update_slice_in_dim")
    axis = check_axis("dynamic_update_slice_in_dim", axis, x.ndim)
    return dynamic_update_slice(x, update, [start_index if d == axis else 0 for d in range(x.ndim)])


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int, **_: Any) -> Array:
    """One element along an axis replaced."""
    x, u = as_value(operand, "dynamic_update_index_in_dim"), as_value(update, "dynamic_update_index_in_dim")
    axis = check_axis("dynamic_update_index_in_dim", axis, x.ndim)
    if u.ndim != x.ndim:
        u = expand_dims(u, (axis,))
    return dynamic_update_slice_in_dim(x, u, index, axis)


def index_take(src: Any, idxs: Sequence[Any], axes: Sequence[int]) -> Array:
    """Elements at the indices along ``axes``; the index arrays' shape comes first in the result."""
    x = as_value(src, "index_take")
    arrays = [as_value(i, "index_take") for i in idxs]
    dims = axes_of(axes, x.ndim, "index_take")
    stacked = concatenate([expand_dims(i, (i.ndim,)) for i in arrays], arrays[0].ndim)
    rank = arrays[0].ndim
    numbers = GatherDimensionNumbers(tuple(range(rank, rank + x.ndim - len(dims))), dims, dims)
    sizes = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return gather(x, stacked, numbers, sizes, mode="clip")


# --- gather and scatter ---


def gather(
    operand: Any,
    start_indices: Any,
    dimension_numbers: GatherDimensionNumbers,
    slice_sizes: Sequence[int],
    *,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    mode: Any = None,
    fill_value: Any = None,
) -> Array:
    """Slices of the operand at the index vectors in the last dimension of ``start_indices``."""
    return indexing.gather(
        as_value(operand, "gather"),
        as_value(start_indices, "gather"),
        dimension_numbers=_same_class(dimension_numbers, GatherDimensionNumbers),
        slice_sizes=ints(slice_sizes, "gather"),
        mode=GatherScatterMode.from_any(mode),
        fill_value=None if fill_value is None else np.asarray(fill_value).item(),
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
    )


def _same_class(numbers: Any, cls: Any) -> Any:
    if isinstance(numbers, cls):
        return numbers
    fields = cls.__dataclass_fields__
    return cls(**{name: getattr(numbers, name) for name in fields})


def _scatter_face(op: scatters.Scatter) -> Callable[..., Array]:
    def function(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: Any = None,
    ) -> Array:
        x, u = aligned_dtypes(op.name, operand, updates)
        return op(
            x,
            as_value(scatter_indices, op.name),
            u,
            dimension_numbers=_same_class(dimension_numbers, ScatterDimensionNumbers),
            indices_are_sorted=indices_are_sorted,
            unique_indices=unique_indices,
            mode=GatherScatterMode.from_any(mode),
        )

    function.__name__ = function.__qualname__ = op.name
    function.__doc__ = f"{type(op).__doc__} Windows of the operand at ``scatter_indices`` take ``updates``."
    return function


def aligned_dtypes(name: str, *xs: Any) -> list[Array]:
    """Operands of one dtype, of any shapes: weak ones yield."""
    values = [as_value(x, name) for x in xs]
    dtype, _ = dtypes.promote(*[(v.dtype, v.type.weak) for v in values])
    return [convert_element_type(v, dtype=dtype) if v.type.weak and v.dtype != dtype else v for v in values]


scatter = _scatter_face(scatters.scatter)
scatter_add = _scatter_face(scatters.scatter_add)
scatter_sub = _scatter_face(scatters.scatter_sub)
scatter_mul = _scatter_face(scatters.scatter_mul)
scatter_min = _scatter_face(scatters.scatter_min)
scatter_max = _scatter_face(scatters.scatter_max)


# --- sorting ---


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """One array, or a sequence of arrays sorted together by the first ``num_keys`` of them."""
    many = isinstance(operand, (tuple, list))
    values = [as_value(x, "sort") for x in (operand if many else (operand,))]
    if not values:
        raise ParameterError("sort: needs at least one operand", got="none")
    axis = check_axis("sort", dimension, values[0].ndim)
    ys = sorts.sort(*values, dimension=axis, is_stable=is_stable, num_keys=num_keys)
    return tuple(ys) if many else ys[0]


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> tuple[Array, Array]:
    """Keys in order, and values moved along with them."""
    return sort((keys, values), dimension, is_stable, 1)


def top_k(operand: Any, k: int, *, axis: int = -1) -> list[Array]:
    """The k largest along an axis and their indices."""
    x = as_value(operand, "top_k")
    return list(sorts.top_k(x, k=index(k, "top_k"), axis=check_axis("top_k", axis, x.ndim)))


def approx_max_k(operand: Any, k: int, reduction_dimension: int = -1, *_: Any, **__: Any) -> list[Array]:
    """The k largest and their indices; exact here."""
    return top_k(operand, k, axis=reduction_dimension)


def approx_min_k(operand: Any, k: int, reduction_dimension: int = -1, *_: Any, **__: Any) -> list[Array]:
    """The k smallest and their indices; exact here."""
    from nxjax.ops.arithmetic import neg

    values, where = top_k(neg(as_value(operand, "approx_min_k")), k, axis=reduction_dimension)
    return [neg(values), where]


# --- identities ---


def stop_gradient(x: Any) -> Any:
    """A tree of values that derivatives take as constants."""
    return trees.map(lambda v: identity.stop_gradient(as_value(v, "stop_gradient")), x)


def optimization_barrier(operand: Any) -> Any:
    """A tree of values behind which a compiler neither moves nor merges computation."""
    leaves, structure = trees.flatten(operand)
    return trees.unflatten(structure, identity.optimization_barrier(*(as_value(x) for x in leaves)))


def zeros_like_array(x: Any) -> Array:
    """Zeros in the shape and dtype of ``x``."""
    return full_like(x, 0)


__all__ = [
    "GatherDimensionNumbers", "GatherScatterMode", "ScatterDimensionNumbers", "approx_max_k", "approx_min_k", "argmax",
    "argmin", "broadcast", "broadcast_in_dim", "broadcast_shapes", "broadcast_to_rank", "broadcasted_iota", "collapse",
    "concatenate", "cumlogsumexp", "cummax", "cummin", "cumprod", "cumsum", "dynamic_index_in_dim", "dynamic_slice",
    "dynamic_slice_in_dim", "dynamic_update_index_in_dim", "dynamic_update_slice", "dynamic_update_slice_in_dim",
    "empty", "expand_dims", "full", "full_like", "gather", "index_in_dim", "index_take", "iota",
    "optimization_barrier", "pad", "reduce", "reduce_and", "reduce_max", "reduce_min", "reduce_or", "reduce_prod",
    "reduce_sum", "reduce_xor", "reshape", "rev", "scatter", "scatter_add", "scatter_max", "scatter_min",
    "scatter_mul", "scatter_sub", "slice", "slice_in_dim", "sort", "sort_key_val", "split", "squeeze", "stop_gradient",
    "top_k", "transpose", "zeros_like_array",
]  # fmt: skip
