"""Elements by arrays of indices: `take`, `put` and `place` and their relatives, and flat indices from coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.documented import example
from nxjax.numpy.floats import clip
from nxjax.numpy.powers import remainder
from nxjax.numpy.promotion import (
    along,
    as_axis,
    as_operand,
    as_shape,
    broadcast,
    broadcast_shape,
    broadcast_to_shape,
    concrete_or_error,
    convert,
    reject_out,
    widen_index,
)
from nxjax.numpy.rearranging import resize
from nxjax.numpy.reductions import cumsum
from nxjax.numpy.scalar_types import result_type
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import ravel
from nxjax.numpy.subscripts import read, wrapped
from nxjax.ops import vocabulary as ops
from nxjax.ops.dimension_numbers import ModeLike
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array


def take(
    a: ArrayLike,
    indices: ArrayLike,
    axis: int | None = None,
    out: None = None,
    mode: str | None = None,
    unique_indices: bool = False,
    indices_are_sorted: bool = False,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The slices of ``a`` at ``indices`` along ``axis``; None flattens first. Negative indices count from the end.

    ``mode`` is for indices out of range: ``fill`` (default) gives ``fill_value``, by default nan, the smallest integer
    or the largest unsigned one; ``clip`` the nearest, with negative indices as the first; ``wrap`` goes around;
    ``promise_in_bounds`` does not look.

    Raises:
        ParameterError: indices that are not integers, or another mode.
        IndexError: elements of an empty axis.
        NotImplementedError: ``mode="raise"``, for values do not raise.

    >>> jnp.take(jnp.array([1.0, 2.0]), jnp.array([-1, 0, 5]))
    Array([ 2.,  1., nan], dtype=float32)
    >>> jnp.take(jnp.array([1.0, 2.0]), jnp.array([-1, 0, 5]), mode="clip")
    Array([1., 1., 2.], dtype=float32)
    """
    reject_out("take", out)
    x = as_operand(a, "take")
    index = as_operand(indices, "take")
    if mode == "raise":
        raise NotImplementedError("The 'raise' mode to jnp.take is not supported.")
    if index.dtype not in dtypes.INTEGER:
        raise ParameterError("take: indices must have an integer type", got=index.type)
    x, i = along("take", x, axis)
    n = x.shape[i]
    if n == 0 and index.size:
        raise IndexError("take: cannot do a non-empty take from an empty axis.")
    if mode == "wrap":
        index, mode = remainder(widen_index(index), n), "clip"
    elif mode == "clip":
        # Clipping looks at the index as written: -1 is below the range.
        index = clip(widen_index(index), 0, n - 1)
    return read(
        x,
        (*(slice(None),) * i, index),
        mode="fill" if mode is None else mode,
        fill_value=fill_value,
        unique_indices=unique_indices,
        indices_are_sorted=indices_are_sorted,
    )


def take_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    axis: int | None = -1,
    mode: ModeLike = None,
    fill_value: ArrayLike | None = None,
    *,
    wrap_negative_indices: bool | None = None,
) -> Array:
    """``arr`` with, along ``axis``, the entries that ``indices`` names; the other axes broadcast together.

    Raises:
        ShapeError: ranks differ, or the other axes do not broadcast.
        ParameterError: indices that are not integers.

    >>> x = jnp.array([[3, 1, 2], [4, 6, 5]])
    >>> jnp.take_along_axis(x, jnp.argsort(x, axis=1), axis=1)
    Array([[1, 2, 3],
           [4, 5, 6]], dtype=int32)
    """
    x, index = as_operand(arr, "take_along_axis"), as_operand(indices, "take_along_axis")
    if index.dtype not in dtypes.INTEGER:
        raise ParameterError("take_along_axis: indices must have an integer type", got=index.type)
    if axis is None:
        if index.ndim != 1:
            raise ShapeError("take_along_axis indices must be 1D if axis=None", got=index.type)
        x, axis = ops.reshape(x, shape=(x.size,)), 0
    if x.ndim != index.ndim:
        raise ShapeError(
            "take_along_axis: indices and arr must have the same number of dimensions", got=f"{index.ndim} vs. {x.ndim}"
        )
    i = as_axis("take_along_axis", axis, x.ndim)
    others = ((*s[:i], 1, *s[i + 1 :]) for s in (x.shape, index.shape))
    shape = list(broadcast_shape("take_along_axis", *others))
    shape[i] = index.shape[i]
    index = broadcast_to_shape(index, tuple(shape))
    entries: list[Any] = []
    for d, n in enumerate(shape):
        if d == i:
            entries.append(index)
        elif x.shape[d] == 1 and n != 1:
            entries.append(0)
        else:
            entries.append(_own_axis(d, n, len(shape)))
    return read(
        x,
        tuple(entries),
        mode="fill" if mode is None else mode,
        fill_value=fill_value,
        wrap_negative_indices=mode != "promise_in_bounds" if wrap_negative_indices is None else wrap_negative_indices,
    )


def _own_axis(axis: int, n: int, ndim: int) -> Array:
    """0, ..., n - 1 along one axis of an index of rank ``ndim``."""
    return wrap(np.arange(n, dtype=np.int32).reshape([n if i == axis else 1 for i in range(ndim)]))


def put_along_axis(
    arr: ArrayLike,
    indices: ArrayLike,
    values: ArrayLike,
    axis: int | None,
    inplace: bool = True,
    *,
    mode: ModeLike = None,
) -> Array:
    """``arr`` with ``values`` at the entries that ``indices`` names along ``axis``; needs ``inplace=False``.

    Raises:
        ValueError: without ``inplace=False``.
        ShapeError: ranks differ.

    >>> x = jnp.array([[3, 1, 2], [4, 6, 5]])
    >>> jnp.put_along_axis(x, jnp.argmax(x, axis=1, keepdims=True), 0, axis=1, inplace=False)
    Array([[0, 1, 2],
           [4, 0, 5]], dtype=int32)
    """
    if inplace:
        raise ValueError("put_along_axis: arrays are immutable, so inplace=False is needed")
    x, index = as_operand(arr, "put_along_axis"), as_operand(indices, "put_along_axis")
    if axis is None:
        flat = ops.reshape(x, shape=(x.size,))
        return ops.reshape(
            put_along_axis(flat, index, values, 0, False, mode=mode) if index.ndim == 1 else flat, shape=x.shape
        )
    if x.ndim != index.ndim:
        raise ShapeError("put_along_axis: arr and indices differ in rank", got=f"{x.ndim} and {index.ndim}")
    i = as_axis("put_along_axis", axis, x.ndim)
    shape = tuple(index.shape[d] if d == i else n for d, n in enumerate(x.shape))
    index = broadcast_to_shape(index, shape)
    entries = tuple(index if d == i else _own_axis(d, n, x.ndim) for d, n in enumerate(shape))
    return x.at[entries].set(values, mode=mode)


@example(
    "jnp.zeros((2, 2)), jnp.array([0, -1]), 5, inplace=False", "Array([[5., 0.],\n       [0., 5.]], dtype=float32)"
)
def put(a: ArrayLike, ind: ArrayLike, v: ArrayLike, mode: str | None = None, *, inplace: bool = True) -> Array:
    """``a`` with ``v``, repeated as needed, at the flat indices ``ind``; needs ``inplace=False``.

    An index out of range is dropped, or with ``mode`` clipped (``clip``) or taken around (``wrap``).

    Raises:
        ValueError: without ``inplace=False``, or another mode.
    """
    if inplace:
        raise ValueError("put: arrays are immutable, so inplace=False is needed")

    x, index = as_operand(a, "put"), widen_index(ravel(ind))
    values = ravel(v)
    if not index.size or not values.size or not x.size:
        return x
    if mode == "clip" or mode is None:
        index = clip(index, 0, x.size - 1) if mode == "clip" else index
    elif mode == "wrap":
        index = remainder(index, x.size)
    else:
        raise ValueError("mode should be one of 'wrap' or 'clip'")
    flat = ops.reshape(x, shape=(x.size,)).at[index].set(resize(values, index.shape))
    return ops.reshape(flat, shape=x.shape)


def place(arr: ArrayLike, mask: ArrayLike, vals: ArrayLike, *, inplace: bool = True) -> Array:
    """``arr`` with ``vals``, repeated in order, where ``mask`` holds; needs ``inplace=False``.

    Raises:
        ValueError: without ``inplace=False``, or no values.
        ShapeError: ``mask`` has another number of elements.

    >>> x = jnp.arange(5)
    >>> jnp.place(x, x % 2 == 0, jnp.array([-1, -2]), inplace=False)
    Array([-1,  1, -2,  3, -1], dtype=int32)
    """
    if inplace:
        raise ValueError("place: arrays are immutable, so inplace=False is needed")

    x, m, v = as_operand(arr, "place"), as_operand(mask, "place"), ravel(vals)
    if m.size != x.size:
        raise ShapeError("place: arr and mask must be the same size", got=f"{x.type} and {m.type}")
    if not v.size:
        if m.size == 0:
            return x
        raise ValueError("Cannot place values from an empty array")
    flat = ravel(m) != 0
    nth = cumsum(flat.astype(np.int32)) - 1
    picked = take(convert(v, x.dtype), nth % v.size, mode="clip")
    return ops.reshape(where(flat, picked, ravel(x)), shape=x.shape)


@example("jnp.array([1, 5, 99]), (2, 3)", "(Array([0, 1, 1], dtype=int32), Array([1, 2, 2], dtype=int32))")
def unravel_index(indices: ArrayLike, shape: int | Sequence[int]) -> tuple[Array, ...]:
    """Coordinates in an array of ``shape`` of flat ``indices``, clamped to the array.

    Raises:
        TypeError: indices that are not integers.
    """
    sizes = as_shape("unravel_index", shape)
    index = as_operand(indices, "unravel_index")
    if index.dtype not in dtypes.INTEGER:
        raise TypeError(f"unravel_index: indices must be integers, got {index.dtype.name}")
    total = math.prod(sizes)
    rest: Any = clip(wrapped(index, total) if not isinstance(index, int) else index, 0, total - 1)
    out: list[Array] = []
    for n in reversed(sizes):
        out.append(rest % n)
        rest = rest // n
    return tuple(convert(x, index.dtype, index.type.weak) for x in reversed(out))


@example("(jnp.array([0, 1]), jnp.array([2, 1])), (2, 3)", "Array([2, 4], dtype=int32)")
def ravel_multi_index(
    multi_index: Sequence[ArrayLike],
    dims: Sequence[int],
    mode: str = "raise",
    order: str = "C",
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Flat indices of coordinates in an array of shape ``dims``, as ``dtype`` or the default integer.

    Modes: ``raise`` for coordinates outside, which needs concrete ones, ``clip``, ``wrap`` and ``ignore``.
    """
    sizes = as_shape("ravel_multi_index", dims)
    if len(multi_index) != len(sizes):
        raise AssertionError(f"len(multi_index)={len(multi_index)} != len(dims)={len(sizes)}")
    columns = [as_operand(i, "ravel_multi_index") for i in multi_index]
    wanted = dtypes.as_dtype(result_type(int, *columns) if dtype is None else dtype)
    if wanted not in dtypes.INTEGER:
        raise ValueError(f"dtype={wanted} is not an integer type.")
    if math.prod(sizes) - 1 > dtypes.integer_info(wanted).max:
        raise ValueError(f"ravel_multi_index: dtype={wanted} not large enough to hold flattened index for dims={sizes}")
    for c in columns:
        if c.dtype not in dtypes.INTEGER:
            raise TypeError("only int indices permitted")
    if mode == "raise":
        for c, n in zip(columns, sizes, strict=True):
            data = concrete_or_error("ravel_multi_index", c, 'mode="raise" looks at it; or give mode="clip" or "wrap"')
            if data.size and (data.min() < 0 or data.max() >= n):
                raise ValueError("invalid entry in coords array")
    elif mode == "clip":
        columns = [clip(widen_index(c), 0, n - 1) for c, n in zip(columns, sizes, strict=True)]
    elif mode == "wrap":
        columns = [remainder(widen_index(c), n) for c, n in zip(columns, sizes, strict=True)]
    elif mode != "ignore":
        raise ValueError(f"invalid mode={mode!r}. Expected 'raise', 'wrap', 'clip', or 'ignore'.")
    if order not in ("C", "F"):
        raise ValueError(f"invalid order={order!r}. Expected 'C' or 'F'")
    pairs = list(zip(broadcast("ravel_multi_index", *columns), sizes, strict=True))
    stride, total = 1, wrap(np.zeros((), wanted))
    for c, n in reversed(pairs) if order == "C" else pairs:
        total = total + convert(c, wanted) * stride
        stride *= n
    return total
