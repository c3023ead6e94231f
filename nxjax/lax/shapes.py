"""`jax.lax`'s functions that make arrays, and that change shapes or join arrays without looking at values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import NxError, ParameterError, ShapeError
from nxjax.lax._operands import as_ints, axes_of, convert_weak, index, sizes_of
from nxjax.numpy.documented import example
from nxjax.ops import create, slicing
from nxjax.ops import shape as ops
from nxjax.ops.base import check_axis
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array


@example("jnp.array([1, 2]), (2,)", "Array([[1, 2],\n       [1, 2]], dtype=int32)")
def broadcast(operand: ArrayLike, sizes: Sequence[int], *, out_sharding: ShardingLike = None) -> Array:
    """The operand repeated over new leading dimensions.

    The result has shape ``(*sizes, *operand.shape)`` and the dtype of the operand.

    Raises:
        ShapeError: a size is negative.
    """
    x, sizes = as_value(operand, "broadcast"), sizes_of(sizes, "broadcast")
    dims = tuple(range(len(sizes), len(sizes) + x.ndim))
    return ops.broadcast_in_dim(x, shape=(*sizes, *x.shape), broadcast_dimensions=dims)


@example("jnp.array([1, 2]), (2, 3), (0,)", "Array([[1, 1, 1],\n       [2, 2, 2]], dtype=int32)")
def broadcast_in_dim(
    operand: ArrayLike, shape: Sequence[int], broadcast_dimensions: Sequence[int], *, out_sharding: ShardingLike = None
) -> Array:
    """The operand repeated into ``shape``; its dimension i is ``broadcast_dimensions[i]`` of the result.

    A dimension of the operand has the size of the result's dimension, or 1.

    Raises:
        ShapeError: the sizes do not fit.
        ParameterError: there is not one dimension of the result per dimension of the operand.
    """
    x = as_value(operand, "broadcast_in_dim")
    dims, sizes = as_ints(broadcast_dimensions, "broadcast_in_dim"), sizes_of(shape, "broadcast_in_dim")
    if not dims and len(sizes) == x.ndim:
        dims = tuple(range(x.ndim))
    return ops.broadcast_in_dim(x, shape=sizes, broadcast_dimensions=dims)


@example("jnp.array([1, 2]), 3", "Array([[[1, 2]]], dtype=int32)")
def broadcast_to_rank(x: ArrayLike, rank: int) -> Array:
    """The operand with leading dimensions of size 1 up to ``rank``.

    An operand of that rank is returned unchanged; a higher rank is an error.
    """
    v = as_value(x, "broadcast_to_rank")
    return ops.reshape(v, shape=(1,) * (rank - v.ndim) + v.shape)


def broadcast_shapes(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that arrays of these shapes broadcast to.

    Shapes are aligned at their last dimension, as NumPy does.

    Raises:
        ShapeError: two sizes differ, and neither is 1.

    >>> lax.broadcast_shapes((3, 1), (0,))
    (3, 0)
    """
    try:
        return np.broadcast_shapes(*(tuple(s) for s in shapes))
    except ValueError:
        raise ShapeError("broadcast_shapes: Incompatible shapes for broadcasting", got=shapes) from None


@example(
    "jnp.int8, (2, 3), 1", "Array([[0, 1, 2],\n       [0, 1, 2]], dtype=int8)", raises="ShapeError: a size is negative."
)
def broadcasted_iota(
    dtype: DTypeLike | None, shape: Sequence[int], dimension: int, *, out_sharding: ShardingLike = None
) -> Array:
    """The index along ``dimension``, repeated over ``shape``."""
    sizes = sizes_of(shape, "broadcasted_iota")
    return create.iota(
        dtype=dtypes.as_dtype(dtype), shape=sizes, dimension=check_axis("iota", int(dimension), len(sizes))
    )


@example("jnp.float32, 3", "Array([0., 1., 2.], dtype=float32)", raises="ShapeError: the size is negative.")
def iota(dtype: DTypeLike | None, size: int) -> Array:
    """0, 1, ..., size - 1

    A row of ``size`` elements of ``dtype``, which is a number.
    """
    return create.iota(dtype=dtypes.as_dtype(dtype), shape=sizes_of((size,), "iota"), dimension=0)


@example("(2,), 3.7, jnp.int32", "Array([3, 3], dtype=int32)")
def full(
    shape: Sequence[int], fill_value: ArrayLike, dtype: DTypeLike | None = None, *, sharding: ShardingLike = None
) -> Array:
    """``fill_value`` (a scalar) repeated into ``shape``.

    Without ``dtype`` the result has that of the value; a Python number leaves it weak.

    Raises:
        ShapeError: the value is not a scalar, or a size is negative.
    """
    x = as_value(fill_value, "full")
    if x.shape:
        raise ShapeError("full: the fill value is a scalar", got=x.type)
    wanted = x.dtype if dtype is None else dtypes.as_dtype(dtype)
    if x.dtype != wanted or (x.type.weak and dtype is not None):
        x = convert_element_type(x, dtype=wanted, weak=x.type.weak and dtype is None)
    return ops.broadcast_in_dim(x, shape=sizes_of(shape, "full"), broadcast_dimensions=())


@example(
    "jnp.array([1, 2, 3]), 0.5",
    "Array([0, 0, 0], dtype=int32)",
    "jnp.array([1, 2, 3]), 0.5, float",
    "Array([0.5, 0.5, 0.5], dtype=float32)",
    raises="ShapeError: the value is not a scalar.",
)
def full_like(
    x: object,
    fill_value: ArrayLike,
    dtype: DTypeLike | None = None,
    shape: Sequence[int] | None = None,
    sharding: ShardingLike = None,
) -> Array:
    """``fill_value`` in the shape and dtype of ``x``.

    ``dtype`` and ``shape`` replace those of ``x``.
    """
    v = as_value(x, "full_like")
    filled = full(v.shape if shape is None else shape, fill_value, v.dtype if dtype is None else dtype)
    if dtype is None and v.type.weak:
        return convert_element_type(filled, dtype=v.dtype, weak=True)
    return filled


@example("(2,), jnp.int8", "Array([0, 0], dtype=int8)", raises="ShapeError: a size is negative.")
def empty(shape: Sequence[int], dtype: DTypeLike | None, *, out_sharding: ShardingLike = None) -> Array:
    """Zeros: there is no uninitialized memory."""
    return full(shape, 0, dtype)


def reshape(
    operand: ArrayLike,
    new_sizes: Sequence[int],
    dimensions: Sequence[int] | None = None,
    *,
    out_sharding: ShardingLike = None,
) -> Array:
    """The elements in row-major order, after a transposition by ``dimensions``, in another shape.

    One size may be -1: it follows from the others.

    Raises:
        ShapeError: the number of elements changes.

    >>> x = jnp.array([[1, 2, 3], [4, 5, 6]])
    >>> lax.reshape(x, (3, -1))
    Array([[1, 2],
           [3, 4],
           [5, 6]], dtype=int32)
    >>> lax.reshape(x, (6,), (1, 0))
    Array([1, 4, 2, 5, 3, 6], dtype=int32)
    """
    x, sizes = as_value(operand, "reshape"), as_ints(new_sizes, "reshape")
    if dimensions is not None and tuple(dimensions) != tuple(range(x.ndim)):
        x = ops.transpose(x, permutation=as_ints(dimensions, "reshape"))
    if sizes.count(-1) == 1:
        known = -math.prod(sizes)
        sizes = tuple(x.size // known if n == -1 and known else n for n in sizes)
    return ops.reshape(x, shape=sizes)


@example("jnp.array([[1, 2, 3], [4, 5, 6]]), (1, 0)", "Array([[1, 4],\n       [2, 5],\n       [3, 6]], dtype=int32)")
def transpose(operand: ArrayLike, permutation: Sequence[int]) -> Array:
    """Result dimension i is operand dimension ``permutation[i]``.

    Raises:
        ParameterError: ``permutation`` is not one of all dimensions.
    """
    return ops.transpose(as_value(operand, "transpose"), permutation=as_ints(permutation, "transpose"))


@example("jnp.array([[1, 2], [3, 4]]), (-1,)", "Array([[2, 1],\n       [4, 3]], dtype=int32)")
def rev(operand: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The elements in reverse order along ``dimensions``.

    Negative dimensions count from the last.

    Raises:
        AxisError: no such dimension, or one is named twice.
    """
    x = as_value(operand, "rev")
    return ops.rev(x, dimensions=axes_of(dimensions, x.ndim, "rev"))


@example("jnp.array([[[1], [2]]]), (-1,)", "Array([[1, 2]], dtype=int32)")
def squeeze(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The array without dimensions of size 1.

    Only the named dimensions go. Negative ones count from the last.

    Raises:
        ShapeError: a dimension has another size.
        AxisError: no such dimension.
    """
    x = as_value(array, "squeeze")
    dims = axes_of(dimensions, x.ndim, "squeeze")
    if any(x.shape[d] != 1 for d in dims):
        raise ShapeError("squeeze: only dimensions of size 1 can go", got=f"{dims} of {x.type}")
    return ops.reshape(x, shape=tuple(n for d, n in enumerate(x.shape) if d not in dims))


@example("jnp.array([1, 2]), (0, -1)", "Array([[[1],\n        [2]]], dtype=int32)")
def expand_dims(array: ArrayLike, dimensions: Sequence[int]) -> Array:
    """The array with new dimensions of size 1 at these places of the result.

    Raises:
        AxisError: the result has no such dimension, or one is named twice.
    """
    x = as_value(array, "expand_dims")
    rank = x.ndim + len(as_ints(dimensions, "expand_dims"))
    dims = axes_of(dimensions, rank, "expand_dims")
    kept = tuple(d for d in range(rank) if d not in dims)
    sizes = [1] * rank
    for d, n in zip(kept, x.shape, strict=True):
        sizes[d] = n
    return ops.broadcast_in_dim(x, shape=tuple(sizes), broadcast_dimensions=kept)


@example("jnp.array([[[1, 2], [3, 4]]]), 1", "Array([[1, 2, 3, 4]], dtype=int32)")
def collapse(operand: ArrayLike, start_dimension: int, stop_dimension: int | None = None) -> Array:
    """Dimensions ``start`` to ``stop`` (exclusive) as one.

    Without ``stop``, all from ``start`` on; an empty range gives a new dimension of size 1.

    Raises:
        ParameterError: ``stop`` is before ``start``.
    """
    x = as_value(operand, "collapse")
    start, stop, _ = slice(start_dimension, stop_dimension).indices(x.ndim)
    if stop < start:
        raise ParameterError("collapse: the dimensions are in the wrong order", got=(start_dimension, stop_dimension))
    return ops.reshape(x, shape=(*x.shape[:start], math.prod(x.shape[start:stop]), *x.shape[stop:]))


@example("[jnp.array([1, 2]), jnp.zeros(0, int), jnp.array([3])], 0", "Array([1, 2, 3], dtype=int32)")
def concatenate(operands: Sequence[Any], dimension: int) -> Array:
    """The operands one after the other along ``dimension``.

    Operands have one dtype and agree in all other sizes; weak ones yield.

    Raises:
        ParameterError: no operand.
        DtypeError: the dtypes differ.
        ShapeError: the other sizes differ.
    """
    if not len(operands):
        raise ParameterError("concatenate: needs at least one operand", got="none")
    values = aligned_dtypes("concatenate", *operands)
    return slicing.concatenate(*values, dimension=check_axis("concatenate", dimension, values[0].ndim))


@example("jnp.array([1, 2, 3]), 0, [(1, -1, 1)]", "Array([0, 1, 0, 2, 0], dtype=int32)")
def pad(operand: ArrayLike, padding_value: ArrayLike, padding_config: Sequence[tuple[int, int, int]]) -> Array:
    """The operand with a value around and between its elements: (low, high, interior) per dimension.

    Negative ``low`` and ``high`` cut off. The value is a scalar of the operand's dtype.

    Raises:
        DtypeError: the value has another dtype.
        ShapeError: it is not a scalar.
        ParameterError: there is not one triple per dimension.
    """
    x = as_value(operand, "pad")
    value = convert_weak(as_value(padding_value, "pad"), x.dtype)
    return slicing.pad(x, value, padding_config=_triples(padding_config))


def _triples(config: Any) -> tuple[tuple[int, int, int], ...]:
    try:
        return tuple((index(l, "pad"), index(h, "pad"), index(i, "pad")) for l, h, i in config)
    except (TypeError, ValueError) as error:
        if isinstance(error, NxError):
            raise
        raise ParameterError(
            "pad: padding_config", got=repr(config), expected="(low, high, interior) per dimension",
            fix="write 0 where nothing comes between the elements",
        ) from error  # fmt: skip


def aligned_dtypes(name: str, *xs: Any) -> list[Array]:
    """Operands of one dtype, of any shapes: weak ones yield."""
    values = [as_value(x, name) for x in xs]
    dtype, _ = dtypes.promote(*[(v.dtype, v.type.weak) for v in values])
    return [convert_weak(v, dtype) for v in values]


@example(
    "jnp.array([1, 2, 3]), (1, 0, 2)",
    "[Array([1], dtype=int32), Array([], shape=(0,), dtype=int32), Array([2, 3], dtype=int32)]",
    raises="ShapeError: the sizes do not add up to that of the axis.",
)
def split(operand: ArrayLike, sizes: Sequence[int], axis: int = 0) -> list[Array]:
    """Pieces of these sizes along an axis."""
    x, lengths = as_value(operand, "split"), as_ints(sizes, "split")
    axis = check_axis("split", axis, x.ndim)
    return list(slicing.split(x, sizes=lengths, axis=axis))


@example("[jnp.array([1, 2]), jnp.array([3, 4])], -1", "Array([[1, 3],\n       [2, 4]], dtype=int32)")
def stack(operands: Sequence[Any], axis: int = 0) -> Array:
    """Operands of one shape along a new axis.

    Raises:
        ParameterError: there are none.
        DtypeError: the dtypes differ.
        ShapeError: the shapes differ.
    """
    if not operands:
        raise ParameterError("stack: needs at least one operand", got="none")
    values = aligned_dtypes("stack", *operands)
    if any(v.shape != values[0].shape for v in values):
        raise ShapeError("stack: operands differ in shape", got=", ".join(repr(v.type) for v in values))
    at = check_axis("stack", axis, values[0].ndim + 1)
    return slicing.concatenate(*(expand_dims(v, (at,)) for v in values), dimension=at)


@example("jnp.array([[1, 2], [3, 4]]), 1", "(Array([1, 3], dtype=int32), Array([2, 4], dtype=int32))")
def unstack(x: ArrayLike, axis: int = 0) -> tuple[Array, ...]:
    """The elements along an axis, which they lack.

    Raises:
        AxisError: no such axis.
    """
    v = as_value(x, "unstack")
    at = check_axis("unstack", axis, v.ndim)
    return tuple(squeeze(piece, (at,)) for piece in split(v, (1,) * v.shape[at], at))


@example("jnp.array([[1, 2]]), (2, 2)", "Array([[1, 2, 1, 2],\n       [1, 2, 1, 2]], dtype=int32)")
def tile(operand: ArrayLike, reps: Sequence[int]) -> Array:
    """The operand repeated ``reps[i]`` times along dimension i.

    Raises:
        ParameterError: there is not one number per dimension.
    """
    x, times = as_value(operand, "tile"), sizes_of(reps, "tile")
    if len(times) != x.ndim:
        raise ParameterError("tile: one number per dimension", got=times, expected=x.type)
    apart = tuple(n for pair in zip(times, x.shape, strict=True) for n in pair)
    kept = tuple(range(1, 2 * x.ndim, 2))
    y = ops.broadcast_in_dim(x, shape=apart, broadcast_dimensions=kept)
    return ops.reshape(y, shape=tuple(t * n for t, n in zip(times, x.shape, strict=True)))


@example("jnp.array([1, 2]), jnp.zeros((2, 2))", "Array([[1, 2],\n       [1, 2]], dtype=int32)")
def broadcast_like(arr: ArrayLike, like_arr: ArrayLike) -> Array:
    """The array repeated into the shape of another, aligned at the last dimension.

    The result has the dtype of ``arr``.

    Raises:
        ShapeError: ``arr`` has more dimensions, or its sizes do not fit.
    """
    x, shape = as_value(arr, "broadcast_like"), as_value(like_arr, "broadcast_like").shape
    if len(shape) < x.ndim:
        raise ShapeError("broadcast_like: the other array has fewer dimensions", got=x.type, expected=shape)
    return ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(len(shape) - x.ndim, len(shape))))


def shape_as_value(shape: Sequence[int]) -> Array:
    """A shape as a 1-D int32 array.

    >>> lax.shape_as_value((2, 0))
    Array([2, 0], dtype=int32)
    """
    return as_value(np.asarray(as_ints(shape, "shape_as_value"), np.int32), "shape_as_value")
