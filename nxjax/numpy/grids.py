"""Diagonals, triangles, coordinate grids and index tricks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError, ShapeError, Shown
from nxjax.numpy.creation import asarray, ones, zeros
from nxjax.numpy.documented import TWO_AXES, example, shown
from nxjax.numpy.joining import concatenate, stack
from nxjax.numpy.promotion import (
    as_axes,
    as_operand,
    as_shape,
    broadcast_to_shape,
    concrete_or_error,
    convert,
    full_like,
    static_int,
)
from nxjax.numpy.ranges import arange, eye, linspace, tri
from nxjax.numpy.rearranging import resize
from nxjax.numpy.scalar_types import result_type
from nxjax.numpy.selection import nonzero
from nxjax.numpy.shapes import moveaxis, ravel
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array


@example("jnp.array([[1, 2, 3], [4, 5, 6]]), offset=1", "Array([2, 6], dtype=int32)")
def diagonal(a: ArrayLike, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """The diagonal along two axes, ``offset`` above the main one, appended as the last axis.

    Raises:
        ShapeError: fewer than two axes.
        AxisError: an axis that ``a`` does not have, or one axis twice.
    """
    x = as_operand(a, "diagonal")
    if x.ndim < 2:
        raise ShapeError("diagonal requires an array of at least two dimensions.", got=x.type)
    i, j = as_axes("diagonal", (axis1, axis2), x.ndim)
    k = static_int("diagonal", offset)
    x = moveaxis(x, (i, j), (-2, -1))
    n, m = x.shape[-2:]
    size = max(0, min(n + min(k, 0), m - max(k, 0)))
    places = np.arange(size, dtype=np.int32)
    return x[..., wrap(places - min(k, 0)), wrap(places + max(k, 0))]


@example(
    "jnp.array([1, 2]), k=1",
    "Array([[0, 1, 0],\n       [0, 0, 2],\n       [0, 0, 0]], dtype=int32)",
    "jnp.array([[1, 2], [3, 4]])",
    "Array([1, 4], dtype=int32)",
    raises="ShapeError: neither one axis nor two.",
)
def diag(v: ArrayLike, k: int = 0) -> Array:
    """The ``k``-th diagonal of a matrix; for a vector, the matrix that has it as its ``k``-th diagonal and zeros."""
    x = as_operand(v, "diag")
    k = static_int("diag", k)
    if x.ndim == 2:
        return convert(diagonal(x, k), x.dtype)
    if x.ndim != 1:
        raise ShapeError("diag: input must be 1d or 2d", got=x.type)
    n = x.shape[0] + abs(k)
    zero = wrap(np.zeros((), x.dtype), x.type.weak)
    column = ops.pad(x, zero, padding_config=((max(0, k), max(0, -k), 0),))
    on = eye(n, k=k, dtype=bool)
    spread = ops.broadcast_in_dim(column, shape=(n, n), broadcast_dimensions=(1,))
    return ops.select_n(on, full_like(spread, 0), spread)


@example("jnp.array([[1, 2]])", "Array([[1, 0],\n       [0, 2]], dtype=int32)")
def diagflat(v: ArrayLike, k: int = 0) -> Array:
    """The matrix with the flattened input on its ``k``-th diagonal."""
    x = ravel(v)
    return diag(convert(x, x.dtype), k)


def _triangle(name: str, m: Any, k: Any, lower: bool) -> Array:
    x = as_operand(m, name)
    if x.ndim < 2:
        raise ShapeError(f"Argument to jax.numpy.{name} must be at least 2D", got=x.type)
    n, c = x.shape[-2:]
    below = tri(n, c, static_int(name, k) - (not lower), dtype=bool)
    below = broadcast_to_shape(below, x.shape)
    zero = full_like(x, 0)
    return ops.select_n(below, zero, x) if lower else ops.select_n(below, x, zero)


@example("jnp.array([[1, 2], [3, 4]])", "Array([[1, 0],\n       [3, 4]], dtype=int32)", raises=TWO_AXES)
def tril(m: ArrayLike, k: int = 0) -> Array:
    """Zeros above the ``k``-th diagonal."""
    return _triangle("tril", m, k, True)


@example("jnp.array([[1, 2], [3, 4]]), k=1", "Array([[0, 2],\n       [0, 0]], dtype=int32)", raises=TWO_AXES)
def triu(m: ArrayLike, k: int = 0) -> Array:
    """Zeros below the ``k``-th diagonal."""
    return _triangle("triu", m, k, False)


def _pair(rows: Any, columns: Any) -> tuple[Array, Array]:
    index = dtypes.as_dtype(int)
    return wrap(rows.astype(index)), wrap(columns.astype(index))


@example("2", "(Array([0, 1, 1], dtype=int32), Array([0, 0, 1], dtype=int32))")
def tril_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Rows and columns of the lower triangle of an n by m matrix."""
    return _pair(*np.tril_indices(static_int("tril_indices", n), k, m))


@shown("jnp.array([[1, 2, 3], [4, 5, 6]])[jnp.triu_indices(2, k=1, m=3)]", "Array([2, 3, 6], dtype=int32)")
def triu_indices(n: int, k: int = 0, m: int | None = None) -> tuple[Array, Array]:
    """Rows and columns of the upper triangle of an n by m matrix."""
    return _pair(*np.triu_indices(static_int("triu_indices", n), k, m))


@shown("x = jnp.array([[1, 2], [3, 4]])", "", "x[jnp.tril_indices_from(x)]", "Array([1, 3, 4], dtype=int32)")
def tril_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Rows and columns of the lower triangle of ``arr``.

    Raises:
        ShapeError: not two axes.
    """
    n, m = _matrix_shape(arr)
    return tril_indices(n, k, m)


@shown("x = jnp.array([[1, 2], [3, 4]])", "", "x[jnp.triu_indices_from(x)]", "Array([1, 2, 4], dtype=int32)")
def triu_indices_from(arr: ArrayLike, k: int = 0) -> tuple[Array, Array]:
    """Rows and columns of the upper triangle of ``arr``.

    Raises:
        ShapeError: not two axes.
    """
    n, m = _matrix_shape(arr)
    return triu_indices(n, k, m)


def _matrix_shape(arr: Any) -> tuple[int, int]:
    if len(arr.shape) != 2:
        raise ShapeError("Only 2-D inputs are accepted", got=tuple(arr.shape))
    return tuple(arr.shape)


@shown(
    "jnp.zeros((2, 2)).at[jnp.diag_indices(2)].set(jnp.array([5, 6]))",
    "Array([[5., 0.],\n       [0., 6.]], dtype=float32)",
    raises="ParameterError: a negative number.",
)
def diag_indices(n: int, ndim: int = 2) -> tuple[Array, ...]:
    """Indices of the main diagonal of an array of ``ndim`` axes of size n."""
    n, ndim = static_int("diag_indices", n), static_int("diag_indices", ndim)
    if n < 0 or ndim < 0:
        raise ParameterError("diag_indices: n and ndim must be nonnegative", got=f"{n}, {ndim}")
    return (wrap(np.arange(n, dtype=dtypes.as_dtype(int))),) * ndim


@shown("x = jnp.array([[1, 2], [3, 4]])", "", "x[jnp.diag_indices_from(x)]", "Array([1, 4], dtype=int32)")
def diag_indices_from(arr: ArrayLike) -> tuple[Array, ...]:
    """Indices of the main diagonal of ``arr``.

    Raises:
        ValueError: fewer than two axes, or sizes that differ.
    """
    shape = tuple(arr.shape)
    if len(shape) < 2 or len(set(shape)) != 1:
        raise ValueError("All dimensions of input must be of equal length")
    return diag_indices(shape[0], len(shape))


@example("2, jnp.triu", "(Array([0, 0, 1], dtype=int32), Array([0, 1, 1], dtype=int32))")
def mask_indices(
    n: int, mask_func: Callable[[Array, Any], Array], k: int = 0, *, size: int | None = None
) -> tuple[Array, Array]:
    """Where ``mask_func(ones((n, n)), k)`` is not zero: rows and columns.

    ``size`` fixes how many there are, which `jit` needs.
    """
    rows, columns = nonzero(mask_func(ones((n, n)), k), size=size)
    return rows, columns


@example("jnp.zeros((3, 2)), 7, inplace=False", "Array([[7., 0.],\n       [0., 7.],\n       [0., 0.]], dtype=float32)")
def fill_diagonal(a: ArrayLike, val: ArrayLike, wrap: bool = False, *, inplace: bool = True) -> Array:
    """``a`` with ``val``, repeated, on its main diagonal; needs ``inplace=False``.

    Raises:
        NotImplementedError: without ``inplace=False``, or with ``wrap``.
        ValueError: fewer than two axes.
    """
    if inplace:
        raise NotImplementedError("fill_diagonal: arrays are immutable, so inplace=False is needed")
    if wrap:
        raise NotImplementedError("wrap=True not implemented, must pass wrap=False")

    x = as_operand(a, "fill_diagonal")
    if x.ndim < 2:
        raise ValueError("array must be at least 2-d")
    n = min(x.shape)
    v = as_operand(val, "fill_diagonal")
    v = v if v.ndim == 0 else resize(ravel(v), (n,))
    return x.at[diag_indices(n, x.ndim)].set(v)


# --- grids ---


def meshgrid(*xi: ArrayLike, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> list[Array]:
    """Coordinate arrays from coordinate vectors; ``xy`` swaps the first two axes.

    Sparse ones keep size 1 on the axes of the others, with which they broadcast.

    Raises:
        ValueError: another ``indexing``, or ``copy=False``.
        ShapeError: more than one axis.

    >>> x, y = jnp.meshgrid(jnp.arange(3), jnp.arange(2))
    >>> x
    Array([[0, 1, 2],
           [0, 1, 2]], dtype=int32)
    >>> y
    Array([[0, 0, 0],
           [1, 1, 1]], dtype=int32)
    """
    if indexing not in ("xy", "ij"):
        raise ValueError(f"Valid values for indexing are 'xy' and 'ij', got {indexing}")
    if not copy:
        raise ValueError("jax.numpy.meshgrid only supports copy=True")
    xs = [as_operand(x, "meshgrid") for x in xi]
    if any(x.ndim > 1 for x in xs):
        raise ShapeError("Arguments to jax.numpy.meshgrid must be 1D", got=", ".join(str(x.type) for x in xs))
    sizes = [x.size for x in xs]
    order = list(range(len(xs)))
    if indexing == "xy" and len(xs) > 1:
        order[0], order[1] = 1, 0
    full = tuple(sizes[i] for i in sorted(range(len(xs)), key=order.__getitem__))
    out: list[Array] = []
    for i, x in enumerate(xs):
        narrow = tuple(sizes[i] if d == order[i] else 1 for d in range(len(xs)))
        y = ops.reshape(x, shape=narrow)
        out.append(y if sparse else broadcast_to_shape(y, full))
    return out


def ix_(*args: ArrayLike) -> tuple[Array, ...]:
    """Vectors as an open grid for indexing; masks become the indices of their true elements.

    Raises:
        ValueError: not one axis.
        ConcretizationTypeError: a traced mask.

    >>> jnp.arange(9).reshape(3, 3)[jnp.ix_(jnp.array([0, 2]), jnp.array([True, False, True]))]
    Array([[0, 2],
           [6, 8]], dtype=int32)
    """
    out: list[Array] = []
    n = len(args)
    for i, a in enumerate(args):
        x = as_operand(a if not isinstance(a, (list, tuple)) else np.asarray(a), "ix_")
        if x.ndim != 1:
            raise ValueError(f"Arguments to jax.numpy.ix_ must be 1-dimensional, got shape {x.shape}")
        if x.dtype == dtypes.bool_:
            x = wrap(np.flatnonzero(concrete_or_error("ix_", x)).astype(dtypes.as_dtype(int)))
        out.append(ops.reshape(x, shape=tuple(x.size if d == i else 1 for d in range(n))))
    return tuple(out)


def indices(
    dimensions: Sequence[int], dtype: DTypeLike | None = None, sparse: bool = False
) -> Array | tuple[Array, ...]:
    """The index along each axis of an array of this shape, stacked; or as an open grid.

    >>> rows, columns = jnp.indices((2, 2))
    >>> rows
    Array([[0, 0],
           [1, 1]], dtype=int32)
    >>> [x.shape for x in jnp.indices((2, 3), sparse=True)]
    [(2, 1), (1, 3)]
    """
    sizes = as_shape("indices", dimensions)
    wanted = dtypes.as_dtype(int if dtype is None else dtype)
    n = len(sizes)
    open_ = [
        ops.reshape(arange(s, dtype=wanted), shape=tuple(s if d == i else 1 for d in range(n)))
        for i, s in enumerate(sizes)
    ]
    if sparse:
        return tuple(open_)
    return stack([broadcast_to_shape(x, sizes) for x in open_]) if open_ else zeros((0,), wanted)


class _Grid(Shown):
    """Grids from slices: ``mgrid[0:3, 0:1:5j]``; an imaginary step is a number of points.

    >>> rows, columns = jnp.mgrid[0:2, 0:1:3j]
    >>> columns
    Array([[0. , 0.5, 1. ],
           [0. , 0.5, 1. ]], dtype=float32)
    >>> [x.shape for x in jnp.ogrid[0:2, 0:3]]
    [(2, 1), (1, 3)]
    """

    def __init__(self, dense: bool) -> None:
        self.dense = dense

    def __getitem__(self, key: Any) -> Any:
        if not isinstance(key, tuple):
            return _axis_of(key)
        axes = [_axis_of(k) for k in key]
        if not axes:
            return []
        wanted = result_type(*axes)
        grid = meshgrid(*(convert(a, wanted) for a in axes), indexing="ij", sparse=not self.dense)
        return stack(grid) if self.dense else grid


def _axis_of(key: Any) -> Array:
    if not isinstance(key, slice):
        return asarray(key)
    start = 0 if key.start is None else key.start
    step = 1 if key.step is None else key.step
    if key.stop is None:
        raise ParameterError("grid: a slice needs a stop", got=key)
    if isinstance(step, complex) or np.iscomplexobj(step):
        return linspace(start, key.stop, int(abs(step)))
    return arange(start, key.stop, step)


mgrid = _Grid(True)
ogrid = _Grid(False)


class _Joiner(Shown):
    """Concatenation by indexing: ``r_[0:3, 5, [7, 8]]`` along the first axis, ``c_`` along the last.

    A leading string gives ``axis``, ``axis,ndmin`` or ``axis,ndmin,place`` as in NumPy, or ``r`` or ``c`` for a row or
    a column of a vector.

    >>> jnp.r_[0:3, 5, jnp.array([7, 8])]
    Array([0, 1, 2, 5, 7, 8], dtype=int32)
    >>> jnp.c_[jnp.array([1, 2]), jnp.array([3, 4])]
    Array([[1, 3],
           [2, 4]], dtype=int32)
    """

    def __init__(self, axis: int, ndmin: int, trans1d: int) -> None:
        self.axis, self.ndmin, self.trans1d = axis, ndmin, trans1d

    def __getitem__(self, key: Any) -> Array:
        items = list(key) if isinstance(key, tuple) else [key]
        axis, ndmin, place = self.axis, self.ndmin, self.trans1d
        if items and isinstance(items[0], str):
            directive = items.pop(0)
            if directive in ("r", "c"):
                y = self[tuple(items)]
                row = y if y.ndim > 1 else ops.reshape(y, shape=(1, y.size))
                return ops.reshape(y, shape=(y.size, 1)) if directive == "c" and y.ndim == 1 else row
            try:
                numbers = [int(n) for n in directive.split(",")]
            except ValueError:
                raise ValueError(f"could not understand directive {directive!r}") from None
            axis, ndmin, place = [*numbers, *[axis, ndmin, place][len(numbers) :]]
        parts: list[Array] = []
        for item in items:
            x = _axis_of(item)
            missing = ndmin - x.ndim
            if missing > 0:
                own = x.ndim
                x = ops.reshape(x, shape=(1,) * missing + x.shape)
                at = place + missing + 1 if place < 0 else place
                x = moveaxis(x, tuple(range(missing, missing + own)), tuple(range(at, at + own))) if own else x
            elif x.ndim == 0:
                x = ops.reshape(x, shape=(1,))
            parts.append(x)
        return concatenate(parts, axis)


r_ = _Joiner(0, 1, -1)
c_ = _Joiner(-1, 2, 0)
s_ = np.s_
index_exp = np.index_exp
