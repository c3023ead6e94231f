"""Several arrays into one and back: concatenate, stack, split, append, insert, delete, block."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError, described
from nxjax.numpy.creation import ones
from nxjax.numpy.documented import example, shown
from nxjax.numpy.indexing import take
from nxjax.numpy.promotion import (
    along,
    as_axis,
    as_operand,
    concrete_or_error,
    convert,
    promote,
    reject_out,
    static_int,
)
from nxjax.numpy.shapes import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    broadcast_to,
    expand_dims,
    moveaxis,
    ravel,
    slice_axis,
)
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array, Tracer


def _items(where: str, arrays: Any) -> list[Any]:
    if isinstance(arrays, (Array, np.ndarray)):
        return list(arrays)
    if not isinstance(arrays, (list, tuple)):
        raise TypeError(f"{where}: needs a sequence of arrays, got {type(arrays).__name__}")
    if not arrays:
        raise ValueError(f"Need at least one array to {where}.")
    return list(arrays)


def _typed(where: str, arrays: Sequence[Any], dtype: Any) -> list[Array]:
    if dtype is not None:
        wanted = dtypes.as_dtype(dtype)
        return [convert(as_operand(a, where), wanted) for a in arrays]
    return promote(where, *arrays)


def concatenate(arrays: ArrayLike | Sequence[ArrayLike], axis: int | None = 0, dtype: DTypeLike | None = None) -> Array:
    """Arrays one after the other along ``axis``, in their common dtype or ``dtype``; None flattens them first.

    Raises:
        ShapeError: ranks differ, or sizes on the other axes; or there are no axes.
        ValueError: `arrays` is empty.

    >>> jnp.concatenate([jnp.array([1, 2]), jnp.array([0.5])])
    Array([1. , 2. , 0.5], dtype=float32)
    >>> jnp.concatenate([jnp.array([[1], [2]]), jnp.array([[3], [4]])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """
    if isinstance(axis, (Array, np.ndarray)) and axis.ndim:
        raise ParameterError(
            "concatenate: axis", got=described(axis), expected="an int or None", fix="concatenate([x, y]), of one list"
        )
    if isinstance(arrays, (Array, np.ndarray)) and np.ndim(arrays) >= 2 and axis == 0 and dtype is None:
        x = as_operand(arrays, "concatenate")
        return ops.reshape(x, shape=(x.shape[0] * x.shape[1], *x.shape[2:]))
    xs = _typed("concatenate", _items("concatenate", arrays), dtype)
    if axis is None:
        return concatenate([ravel(x) for x in xs], 0)
    if xs[0].ndim == 0:
        raise ShapeError("Zero-dimensional arrays cannot be concatenated.")
    i = as_axis("concatenate", axis, xs[0].ndim)
    if any(x.ndim != xs[0].ndim for x in xs):
        raise ShapeError(
            "concatenate: operands differ in rank",
            got=", ".join(str(x.type) for x in xs),
            expected="equal ranks",
            fix="add the missing axis with x[None] or x[:, None], or use stack",
        )
    return xs[0] if len(xs) == 1 else ops.concatenate(*xs, dimension=i)


@example("[jnp.array([[1, 2]]), jnp.array([[3]])], axis=None", "Array([1, 2, 3], dtype=int32)")
def concat(arrays: ArrayLike | Sequence[ArrayLike], /, *, axis: int | None = 0) -> Array:
    """Arrays one after the other along ``axis``: `concatenate` under its name in the Array API."""
    return concatenate(arrays, axis)


def stack(
    arrays: ArrayLike | Sequence[ArrayLike], axis: int = 0, out: None = None, dtype: DTypeLike | None = None
) -> Array:
    """Arrays of one shape along a new ``axis``.

    Args:
        arrays: sequence of arrays, or one array of rows; they promote.
        axis: the position of the new axis in the result.
        dtype: of the result.

    Raises:
        ShapeError: shapes differ.
        ValueError: `arrays` is empty.

    >>> jnp.stack([jnp.array([1, 2]), jnp.array([3, 4])], axis=1)
    Array([[1, 3],
           [2, 4]], dtype=int32)
    >>> jnp.stack([jnp.int32(1), jnp.float32(2.5)])
    Array([1. , 2.5], dtype=float32)
    """
    reject_out("stack", out)
    xs = _typed("stack", _items("stack", arrays), dtype)
    if any(x.shape != xs[0].shape for x in xs):
        raise ShapeError("stack: All input arrays must have the same shape.", got=", ".join(str(x.type) for x in xs))
    i = as_axis("stack", axis, xs[0].ndim + 1)
    return concatenate([expand_dims(x, i) for x in xs], i)


@example(
    "[jnp.array([1, 2]), jnp.array([[3, 4], [5, 6]])]", "Array([[1, 2],\n       [3, 4],\n       [5, 6]], dtype=int32)"
)
def vstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Rows under each other: `concatenate` along axis 0, of vectors as rows."""
    return concatenate([atleast_2d(x) for x in _items("vstack", tup)], 0, dtype)


@example(
    "[jnp.array([1, 2]), jnp.array([3])]",
    "Array([1, 2, 3], dtype=int32)",
    "[jnp.array([[1], [2]]), jnp.array([[3], [4]])]",
    "Array([[1, 3],\n       [2, 4]], dtype=int32)",
)
def hstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Side by side: along axis 1, or 0 for vectors."""
    xs = [atleast_1d(x) for x in _items("hstack", tup)]
    return concatenate(xs, 0 if xs[0].ndim == 1 else 1, dtype)


@example("[jnp.array([1, 2]), jnp.array([3, 4])]", "Array([[[1, 3],\n        [2, 4]]], dtype=int32)")
def dstack(tup: ArrayLike | Sequence[ArrayLike], dtype: DTypeLike | None = None) -> Array:
    """Stack arrays along axis 2 (depth)."""
    return concatenate([atleast_3d(x) for x in _items("dstack", tup)], 2, dtype)


@example("[jnp.array([1, 2]), jnp.array([[3, 4], [5, 6]])]", "Array([[1, 3, 4],\n       [2, 5, 6]], dtype=int32)")
def column_stack(tup: ArrayLike | Sequence[ArrayLike]) -> Array:
    """Vectors as columns, matrices as they are, side by side."""
    xs = [as_operand(x, "column_stack") for x in _items("column_stack", tup)]
    return concatenate([x if x.ndim > 1 else ops.reshape(x, shape=(x.size, 1)) for x in xs], 1)


@example(
    "[[jnp.eye(2), jnp.zeros((2, 1))], [jnp.ones((1, 3))]]",
    "Array([[1., 0., 0.],\n       [0., 1., 0.],\n       [1., 1., 1.]], dtype=float32)",
)
def block(arrays: ArrayLike | Sequence[Any]) -> Array:
    """An array from nested lists of blocks; the innermost lists join along the last axis.

    Raises:
        ValueError: tuples, empty lists, or lists nested to different depths.
        ShapeError: neighbours do not fit.
    """
    return _block(arrays)[0]


def _block(x: Any) -> tuple[Array, int]:
    if isinstance(x, tuple):
        raise ValueError("block: tuples are not allowed, use lists")
    if not isinstance(x, list):
        return as_operand(x, "block"), 1
    if not x:
        raise ValueError("block: lists cannot be empty")
    parts, depths = zip(*map(_block, x), strict=True)
    if len(set(depths)) > 1:
        raise ValueError("block: lists are nested to different depths")
    depth = depths[0]
    rank = max(depth, *(p.ndim for p in parts))
    padded = [ops.reshape(p, shape=(1,) * (rank - p.ndim) + p.shape) for p in parts]
    return concatenate(padded, -depth), depth + 1


def _split(name: str, ary: Any, indices_or_sections: Any, axis: Any, uneven: bool) -> list[Array]:
    x = as_operand(ary, name)
    i = as_axis(name, axis, x.ndim)
    n = x.shape[i]
    spec = indices_or_sections
    if isinstance(spec, (list, tuple)) or np.ndim(concrete_or_error(name, spec)):
        cuts = [min(max(c + n if c < 0 else c, 0), n) for c in (static_int(name, c) for c in spec)]
    else:
        number = concrete_or_error(name, spec)
        sections = int(number) if isinstance(spec, float) or number.dtype.kind == "f" else static_int(name, number)
        if sections <= 0:
            raise ParameterError(f"{name}: number of sections must be larger than 0", got=sections)
        size, rest = divmod(n, sections)
        if rest and not uneven:
            raise ValueError(f"array split does not result in an equal division: axis size {n}, {sections} sections")
        cuts = [k * size + min(k, rest) for k in range(1, sections)]
    edges = [0, *cuts, n]
    return [slice_axis(x, i, a, max(a, b)) for a, b in itertools.pairwise(edges)]


def split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int = 0) -> list[Array]:
    """Parts of equal size along ``axis``, or cut at the given indices.

    Raises:
        ValueError: the axis does not divide into that many equal parts.
        ParameterError: less than one part.
        ConcretizationTypeError: traced indices.

    >>> jnp.split(jnp.arange(4), 2)
    [Array([0, 1], dtype=int32), Array([2, 3], dtype=int32)]
    >>> jnp.split(jnp.arange(4), [1, 3])
    [Array([0], dtype=int32), Array([1, 2], dtype=int32), Array([3], dtype=int32)]
    """
    return _split("split", ary, indices_or_sections, axis, False)


@example("jnp.arange(5), 3", "[Array([0, 1], dtype=int32), Array([2, 3], dtype=int32), Array([4], dtype=int32)]")
def array_split(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike, axis: int = 0) -> list[Array]:
    """As `split`, but the sizes may differ by one: the first parts are the larger ones."""
    return _split("array_split", ary, indices_or_sections, axis, True)


@shown("[x.shape for x in jnp.vsplit(jnp.zeros((4, 3)), 2)]", "[(2, 3), (2, 3)]")
def vsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list[Array]:
    """Parts along axis 0, as `split`."""
    return split(ary, indices_or_sections, 0)


@shown("[x.shape for x in jnp.hsplit(jnp.zeros((4, 3)), [1])]", "[(4, 1), (4, 2)]")
def hsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list[Array]:
    """Parts along axis 1, or 0 for vectors, as `split`."""
    return split(ary, indices_or_sections, 0 if np.ndim(ary) == 1 else 1)


@shown("[x.shape for x in jnp.dsplit(jnp.zeros((4, 3, 2)), 2)]", "[(4, 3, 1), (4, 3, 1)]")
def dsplit(ary: ArrayLike, indices_or_sections: int | Sequence[int] | ArrayLike) -> list[Array]:
    """Parts along axis 2, as `split`."""
    return split(ary, indices_or_sections, 2)


@example(
    "jnp.array([[1, 2]]), 3",
    "Array([1, 2, 3], dtype=int32)",
    "jnp.array([[1, 2]]), jnp.array([[3, 4]]), axis=0",
    "Array([[1, 2],\n       [3, 4]], dtype=int32)",
    raises="ShapeError: with an axis, ranks or the other sizes differ.",
)
def append(arr: ArrayLike, values: ArrayLike, axis: int | None = None) -> Array:
    """``values`` after ``arr`` along ``axis``, as a new array; None flattens both."""
    if axis is None:
        return concatenate([ravel(arr), ravel(values)])
    return concatenate([arr, values], axis)


def delete(
    arr: ArrayLike,
    obj: ArrayLike | Sequence[int] | slice,
    axis: int | None = None,
    *,
    assume_unique_indices: bool = False,
) -> Array:
    """Without the entries ``obj`` (index, slice, indices or mask) along ``axis``; None flattens first.

    Raises:
        IndexError: an index out of range.
        ShapeError: a mask of another length.
        ConcretizationTypeError: ``obj`` is traced, and its indices may be the same.

    >>> jnp.delete(jnp.arange(5), jnp.array([0, -1]))
    Array([1, 2, 3], dtype=int32)
    >>> jnp.delete(jnp.array([[1, 2], [3, 4]]), 1, axis=1)
    Array([[1],
           [3]], dtype=int32)
    """
    x = as_operand(arr, "delete")
    x, i = along("delete", x, axis)
    n = x.shape[i]
    if assume_unique_indices and isinstance(obj, Tracer) and obj.dtype != dtypes.bool_:
        return _without(x, ravel(obj), i)
    if isinstance(obj, slice):
        keep = np.ones(n, bool)
        keep[obj] = False
    else:
        where = concrete_or_error("delete", obj, "it decides the length of the result")
        keep = np.ones(n, bool)
        if where.dtype == bool:
            if where.shape != (n,):
                raise ShapeError("delete: the mask has another length", got=where.shape, expected=(n,))
            keep = ~where
        elif where.size:
            if where.min() < -n or where.max() >= n:
                raise IndexError(f"index is out of bounds for axis {i} with size {n}")
            keep[where] = False

    return take(x, np.flatnonzero(keep).astype(np.int32), axis=i)


def _without(x: Array, indices: Array, i: int) -> Array:
    """``x`` without traced ``indices`` along ``i``, of which no two are the same."""
    n = x.shape[i]
    kept = ones(n, "bool").at[indices].set(False)
    return take(x, jnp.argsort(~kept)[: n - indices.shape[0]], axis=i)


def insert(arr: ArrayLike, obj: ArrayLike | Sequence[int] | slice, values: ArrayLike, axis: int | None = None) -> Array:
    """``values`` put before the entries ``obj`` along ``axis``, in the dtype of ``arr``; None flattens first.

    Raises:
        IndexError: an index out of range.
        ShapeError: the values do not broadcast to the rest of ``arr``.
        ConcretizationTypeError: ``obj`` is traced.

    >>> jnp.insert(jnp.array([1, 2, 3]), 1, 9)
    Array([1, 9, 2, 3], dtype=int32)
    >>> jnp.insert(jnp.array([[1, 2], [3, 4]]), 2, 0, axis=1)
    Array([[1, 2, 0],
           [3, 4, 0]], dtype=int32)
    """
    x = as_operand(arr, "insert")
    v = convert(as_operand(values, "insert"), x.dtype, x.type.weak)
    x, i = along("insert", x, axis)
    n = x.shape[i]
    if isinstance(obj, slice):
        where = np.arange(n)[obj]
    else:
        where = concrete_or_error("insert", obj, "it decides the order of the result")
        where = np.flatnonzero(where) if where.dtype == bool else where
    scalar_place = where.ndim == 0
    where = np.atleast_1d(where).astype(np.int64)
    if where.ndim != 1:
        raise ValueError("insert(): obj must be a slice, a one-dimensional array, or a scalar.")
    if where.size and (where.min() < -n or where.max() > n):
        raise IndexError(f"index is out of bounds for axis {i} with size {n}")
    where = np.where(where < 0, where + n, where)

    if v.ndim < x.ndim:
        v = ops.reshape(v, shape=(1,) * (x.ndim - v.ndim) + v.shape)
    if len(where) == 1:
        v = moveaxis(v, 0, i) if scalar_place else v  # NumPy: a single place takes `values` whole
        where = np.repeat(where, v.shape[i])
    count = len(where)
    v = broadcast_to(v, (*x.shape[:i], count, *x.shape[i + 1 :]))
    order = np.argsort(where, kind="stable")
    at = where[order] + np.arange(count)
    source = np.empty(n + count, np.int64)
    fresh = np.zeros(n + count, bool)
    fresh[at] = True
    source[at] = n + order
    source[~fresh] = np.arange(n)

    return take(concatenate([x, v], i), source.astype(np.int32), axis=i)


@example(
    "jnp.array([0, 0, 1, 0, 2, 0])",
    "Array([1, 0, 2], dtype=int32)",
    'jnp.array([0, 0, 1, 0, 2, 0]), "b"',
    "Array([0, 0, 1, 0, 2], dtype=int32)",
    raises="ConcretizationTypeError: ``filt`` is traced; its values decide the length.",
)
def trim_zeros(filt: ArrayLike | Sequence[Any], trim: str = "fb", axis: int | Sequence[int] | None = None) -> Array:
    """Without leading (``f``) and trailing (``b``) zeros, along ``axis`` or all axes."""
    x = as_operand(filt, "trim_zeros")
    nonzero = np.argwhere(concrete_or_error("trim_zeros", x) != 0)
    axes = range(x.ndim) if axis is None else [as_axis("trim_zeros", a, x.ndim) for a in np.atleast_1d(axis)]
    for i in axes:
        first = int(nonzero[:, i].min()) if len(nonzero) and "f" in trim.lower() else 0
        last = int(nonzero[:, i].max()) + 1 if len(nonzero) and "b" in trim.lower() else x.shape[i]
        x = slice_axis(x, i, first, last) if len(nonzero) else slice_axis(x, i, 0, 0)
    return x


@example("jnp.array([1, 4, 9]), to_end=0", "Array([3, 5, 0], dtype=int32)")
def ediff1d(ary: ArrayLike, to_end: ArrayLike | None = None, to_begin: ArrayLike | None = None) -> Array:
    """Differences of neighbours in the flattened array, with values put before and after."""
    x = ravel(ary)
    parts = [ops.sub(x[1:], x[:-1])] if x.size else [x]
    if to_begin is not None:
        parts.insert(0, convert(ravel(to_begin), x.dtype))
    if to_end is not None:
        parts.append(convert(ravel(to_end), x.dtype))
    return concatenate(parts)
