"""Order: sort, argsort, lexsort, partition, searchsorted, and counting into bins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ShapeError
from nxjax.numpy.creation import asarray, full_scalar
from nxjax.numpy.documented import example
from nxjax.numpy.elementwise import less
from nxjax.numpy.indexing import take
from nxjax.numpy.joining import concatenate, stack
from nxjax.numpy.promotion import (
    along,
    as_axis,
    as_operand,
    concrete_or_error,
    convert,
    full_like,
    index_dtype,
    promote,
    promote_inexact,
    static_int,
)
from nxjax.numpy.ranges import iota, linspace
from nxjax.numpy.reductions import max as max_
from nxjax.numpy.reductions import min as min_
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.reductions import wide
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import ravel, slice_axis
from nxjax.ops import vocabulary as ops
from nxjax.ops.composite_search import halved
from nxjax.ops.composite_search import searchsorted as search
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Tracer


def _checked(where: str, kind: Any, order: Any) -> None:
    if order is not None:
        raise ValueError(f"'order' argument to {where} is not supported.")
    if kind is not None and kind not in ("stable", "quicksort", "mergesort", "heapsort"):
        raise ValueError(f"{where}: unknown kind {kind!r}")


@example(
    "jnp.array([3.0, jnp.nan, 1.0])",
    "Array([ 1.,  3., nan], dtype=float32)",
    "jnp.array([3, 1, 2]), descending=True",
    "Array([3, 2, 1], dtype=int32)",
    raises="ValueError: another ``kind``, or an ``order``.",
)
def sort(
    a: ArrayLike,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Array:
    """Sorted along ``axis``; nan last. None flattens first.

    Args:
        a: array of any dtype; complex numbers are ordered by real part, then imaginary part.
        axis: static integer or None.
        kind: a name of NumPy's, without effect.
        order: must be None.
        stable: whether equal elements keep their order.
        descending: the largest (or nan) first.
    """
    _checked("sort", kind, order)
    x, i = along("sort", as_operand(a, "sort"), axis)
    (y,) = ops.sort(x, dimension=i, is_stable=stable, num_keys=1)
    return ops.rev(y, dimensions=(i,)) if descending else y


@example(
    "jnp.array([2, 1, 2, 1])",
    "Array([1, 3, 0, 2], dtype=int32)",
    "jnp.array([2, 1, 2, 1]), descending=True",
    "Array([0, 2, 1, 3], dtype=int32)",
    raises="ValueError: another ``kind`` than NumPy's, or an ``order``.",
)
def argsort(
    a: ArrayLike,
    axis: int | Sequence[int] | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
    dtype: DTypeLike | None = None,
) -> Array:
    """Indices that sort ``a`` along ``axis``; equal elements keep their order. None flattens first."""
    _checked("argsort", kind, order)
    x, i = along("argsort", as_operand(a, "argsort"), axis)
    wanted = index_dtype(x.shape[i] - 1) if dtype is None else dtypes.as_dtype(dtype)
    places = _places(x, i, wanted)
    if not descending:
        return ops.sort(x, places, dimension=i, is_stable=stable, num_keys=1)[1]
    if not stable:
        return ops.rev(ops.sort(x, places, dimension=i, is_stable=True, num_keys=1)[1], dimensions=(i,))
    # Reversed before and after, so that equal elements keep their order.
    flipped = ops.sort(
        ops.rev(x, dimensions=(i,)), ops.rev(places, dimensions=(i,)), dimension=i, is_stable=True, num_keys=1
    )
    return ops.rev(flipped[1], dimensions=(i,))


def _places(x: Array, axis: int, dtype: Any) -> Array:
    return ops.broadcast_in_dim(iota(x.shape[axis], dtype), shape=x.shape, broadcast_dimensions=(axis,))


def lexsort(keys: ArrayLike, axis: int = -1) -> Array:
    """Indices that sort by the last key, ties by the one before it, and so on.

    Args:
        keys: sequence of arrays of one shape, or an array of rows.
        axis: static integer, along which each key is sorted.

    Raises:
        TypeError: no keys.
        ValueError: keys of different shapes.

    >>> first, last = jnp.array([2, 1, 3]), jnp.array([1, 1, 0])
    >>> jnp.lexsort((first, last))
    Array([2, 1, 0], dtype=int32)
    """
    xs = [as_operand(k, "lexsort") for k in keys]
    if not xs:
        raise TypeError("need sequence of keys with len > 0 in lexsort")
    if any(x.shape != xs[0].shape for x in xs):
        raise ValueError("all keys need to be the same shape")
    if xs[0].ndim == 0:
        return wrap(np.asarray(0, dtypes.as_dtype(int)))
    i = as_axis("lexsort", axis, xs[0].ndim)
    places = _places(xs[0], i, index_dtype(xs[0].shape[i] - 1))
    return ops.sort(*reversed(xs), places, dimension=i, is_stable=True, num_keys=len(xs))[-1]


@example("jnp.array([2, 1 + 1j, 1 - 1j])", "Array([1.-1.j, 1.+1.j, 2.+0.j], dtype=complex64)")
def sort_complex(a: ArrayLike) -> Array:
    """Sorted by real part, then imaginary part, as complex numbers."""
    x = sort(as_operand(a, "sort_complex"))
    return x if x.dtype in dtypes.COMPLEX else convert(x, dtypes.complex_of(dtypes.to_inexact(x.dtype)))


@example("jnp.array([5, 1, 4, 2]), 1", "Array([1, 2, 5, 4], dtype=int32)", raises="AxisError: ``kth`` is out of range.")
def partition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """A reordering in which the ``kth`` element is the one of the sorted array, no larger one before it.

    As in JAX, those up to ``kth`` rise and those after it fall.
    """
    x, i = along("partition", as_operand(a, "partition"), axis)
    n = x.shape[i]
    kth = as_axis("partition", kth, n)
    y = sort(x, i)
    return ops.concatenate(
        slice_axis(y, i, 0, kth + 1), ops.rev(slice_axis(y, i, kth + 1, n), dimensions=(i,)), dimension=i
    )


@example("jnp.array([5, 1, 4, 2]), 1", "Array([1, 3, 0, 2], dtype=int32)")
def argpartition(a: ArrayLike, kth: int, axis: int = -1) -> Array:
    """Indices of a `partition`: smaller elements come before place ``kth``, larger ones after it.

    As in JAX, those up to ``kth`` are sorted by their elements, the others keep their order.
    """
    x, i = along("argpartition", as_operand(a, "argpartition"), axis)
    n = x.shape[i]
    kth = as_axis("argpartition", kth, n)
    order = argsort(x, i, dtype=dtypes.int32 if n <= 2**31 else dtypes.int64)  # as JAX's, 32 bits where they do
    return ops.concatenate(slice_axis(order, i, 0, kth + 1), sort(slice_axis(order, i, kth + 1, n), i), dimension=i)


def searchsorted(
    a: ArrayLike, v: ArrayLike, side: str = "left", sorter: Sequence[int] | None = None, *, method: str = "scan"
) -> Array:
    """Where ``v`` would be inserted into the sorted vector ``a``; ``side`` says on which side of equal elements.

    Every ``method`` of JAX (``scan``, ``scan_unrolled``, ``sort``, ``compare_all``) gives the same result; here they
    are all one halving search.

    Returns:
        Indices of the shape of ``v``; nan goes to the end.

    Raises:
        ValueError: another ``side`` or ``method``.
        ShapeError: ``a`` is not one-dimensional.

    >>> jnp.searchsorted(jnp.array([1, 2, 2, 3]), jnp.array([2, 9]))
    Array([1, 4], dtype=int32)
    >>> jnp.searchsorted(jnp.array([1, 2, 2, 3]), 2, side="right")
    Array(3, dtype=int32)
    """
    if side not in ("left", "right"):
        raise ValueError(f"{side!r} is an invalid value for keyword 'side'. Expected one of ['left', 'right'].")
    if method not in ("scan", "scan_unrolled", "sort", "compare_all", "default"):
        raise ValueError(f"{method!r} is an invalid value for keyword 'method'.")
    x, q = promote("searchsorted", a, v)
    if x.ndim != 1:
        raise ShapeError("a should be 1-dimensional", got=x.type)
    if sorter is not None:
        x = take(x, sorter, mode="clip")

    if x.dtype == dtypes.bool_:
        x, q = convert(x, dtypes.int8), convert(q, dtypes.int8)
    # 32 bits wherever they do, even where 64 are the default: a choice that JAX made.
    return halved(x, q, side, less) if x.dtype in dtypes.COMPLEX else search(x, q, side=side)


@example("jnp.array([-1.0, 1.0, 5.0]), jnp.array([0.0, 1.0, 2.0])", "Array([0, 2, 3], dtype=int32)")
def digitize(x: ArrayLike, bins: ArrayLike, right: bool = False, *, method: str | None = None) -> Array:
    """The bin of each element: ``bins[i - 1] <= x < bins[i]``; ``bins`` rises or falls.

    With ``right``, bins include their right edge instead of the left. 0 is below the first edge.

    Raises:
        ShapeError: ``bins`` is not one-dimensional.
    """
    v, edges = as_operand(x, "digitize"), as_operand(bins, "digitize")
    if edges.ndim != 1:
        raise ShapeError("digitize: bins must be a 1-dimensional array", got=edges.type)
    n = edges.shape[0]
    if n == 0:
        return full_scalar(v.shape, 0, dtypes.as_dtype(int))
    side = "right" if not right else "left"
    rising = searchsorted(edges, v, side)
    if n == 1:
        return rising
    falling = n - searchsorted(ops.rev(edges, dimensions=(0,)), v, side)
    return where(edges[-1] >= edges[0], rising, falling)


# --- counting ---


def bincount(
    x: ArrayLike,
    weights: ArrayLike | None = None,
    minlength: int = 0,
    *,
    length: int | None = None,
    out_sharding: ShardingLike = None,
) -> Array:
    """How often each of 0, 1, ... occurs in ``x``, or the sum of its ``weights``; under `jit`, ``length`` is needed.

    Args:
        x: vector of integers; negative ones count as 0.
        weights: vector of the same length, whose dtype the result has.
        minlength: the smallest length of the result.
        length: the exact length of the result; larger elements are left out.

    Raises:
        TypeError: ``x`` is not of integers.
        ShapeError: ``x`` is not a vector, or ``weights`` has another shape.
        ConcretizationTypeError: ``x`` is traced and ``length`` is not given.

    >>> jnp.bincount(jnp.array([1, 1, 3]))
    Array([0, 2, 0, 1], dtype=int32)
    >>> jnp.bincount(jnp.array([1, 1, 3]), weights=jnp.array([0.5, 0.25, 9.0]), length=2)
    Array([0.  , 0.75], dtype=float32)
    """
    v = as_operand(x, "bincount")
    if v.dtype not in dtypes.BITS:
        raise TypeError(f"x argument to bincount must have an integer type; got {v.dtype.name}")
    if v.ndim != 1:
        raise ShapeError("only 1-dimensional input supported.", got=v.type)
    least = static_int("bincount", minlength)
    if length is None:
        data = concrete_or_error("bincount", v, "the largest element is the length of the result; or give length=")
        length = max(least, max(int(data.max()), 0) + 1 if data.size else 0)
    else:
        length = static_int("bincount", length)

    v = convert(v, dtypes.int32) if v.dtype.itemsize < 4 else v
    if weights is None:
        w = full_scalar(v.shape, 1, dtypes.as_dtype(int))
    else:
        w = as_operand(weights, "bincount")
        if w.shape != v.shape:
            raise ShapeError("shape of weights must match shape of x.", got=w.type, expected=v.shape)
    # Negative elements count as 0, those past the end are dropped.
    place = ops.max(v, full_like(v, 0))
    return full_scalar((length,), 0, w.dtype).at[place].add(w, mode="drop")


def histogram_bin_edges(
    a: ArrayLike, bins: ArrayLike | str = 10, range: Sequence[ArrayLike] | None = None, weights: ArrayLike | None = None
) -> Array:
    """The edges of ``bins`` equal bins over ``range`` (by default the data's); given edges are returned.

    Raises:
        NotImplementedError: ``bins`` is the name of a rule.
        ValueError: ``range`` is not a pair.

    >>> jnp.histogram_bin_edges(jnp.array([0, 1, 4]), bins=2)
    Array([0., 2., 4.], dtype=float32)
    >>> jnp.histogram_bin_edges(jnp.array([7, 7]), bins=2)
    Array([6.5, 7. , 7.5], dtype=float32)
    """
    if isinstance(bins, str):
        raise NotImplementedError("string values for `bins` are not implemented.")
    (x,) = promote_inexact("histogram_bin_edges", a)
    if np.ndim(bins) == 1 if not isinstance(bins, Tracer) else bins.ndim == 1:
        return convert(asarray(bins), x.dtype)
    n = static_int("histogram", bins)
    if range is None:
        low, high = (min_(x), max_(x)) if x.size else (0.0, 0.0)
    else:
        if len(range) != 2:
            raise ValueError(f"`range` must be either None or a sequence of scalars, got {range}")
        low, high = range
    if x.size == 0 and range is None:
        low, high = 0.0, 1.0
    low, high = promote_inexact("histogram", low, high)
    flat = ops.eq(low, high)
    low, high = where(flat, low - 0.5, low), where(flat, high + 0.5, high)
    return convert(linspace(low, high, n + 1), x.dtype)


@example("jnp.array([0, 1, 1, 4]), bins=2", "(Array([3., 1.], dtype=float32), Array([0., 2., 4.], dtype=float32))")
def histogram(
    a: ArrayLike,
    bins: ArrayLike | str = 10,
    range: Sequence[ArrayLike] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array]:
    """Counts (or sums of ``weights``) in each bin, and the edges; the last bin includes its right edge.

    With ``density``, the counts are scaled to an integral of one.

    Returns:
        Float vector of counts and the vector of edges, one longer.

    Raises:
        ValueError: ``weights`` has another shape than ``a``, or ``range`` is not a pair.
    """
    if weights is None:
        (x,) = promote_inexact("histogram", ravel(a))
        w = full_like(x, 1)
    else:
        x, w = promote_inexact("histogram", ravel(a), ravel(weights))
        if x.shape != w.shape:
            raise ValueError("weights should have the same shape as a.")
    edges = histogram_bin_edges(x, bins, range)
    index = searchsorted(edges, x, "right")
    # The last bin includes its right edge.
    index = where(x == edges[-1], edges.size - 1, index)
    work = wide(x.dtype)  # half precision counts no further than some hundreds
    counts = bincount(index, convert(w, work), length=edges.size)[1:]
    # What is below the first edge was counted in place 0, which is cut off.
    if density:
        widths = concatenate([edges[1:] - edges[:-1]])
        counts = counts / widths / sum_(counts)
    return counts if work == x.dtype else convert(counts, x.dtype), edges


def _one(bins: Any) -> bool:
    """Whether bins are a number of them, for all axes."""
    return not isinstance(bins, (list, tuple)) and (bins.ndim if isinstance(bins, Array) else np.ndim(bins)) == 0


def histogram2d(
    x: ArrayLike,
    y: ArrayLike,
    bins: ArrayLike | Sequence[ArrayLike | int] = 10,
    range: Sequence[Sequence[ArrayLike]] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, Array, Array]:
    """Counts over a grid of two variables, and the edges along each.

    >>> counts, ex, ey = jnp.histogram2d(jnp.array([0, 1, 1]), jnp.array([0, 0, 1]), bins=2)
    >>> counts
    Array([[1, 0],
           [1, 1]], dtype=int32)
    """
    # One vector of edges serves both axes; a pair is one specification each.
    per_axis = isinstance(bins, (list, tuple)) and len(bins) in (1, 2)
    spec = list(bins) * (2 // len(bins)) if per_axis else bins if _one(bins) else [bins, bins]
    counts, (ex, ey) = histogramdd(stack([x, y], 1), spec, range, weights, density)
    return counts, ex, ey


def histogramdd(
    sample: ArrayLike,
    bins: ArrayLike | Sequence[ArrayLike | int] = 10,
    range: Sequence[Sequence[ArrayLike]] | None = None,
    weights: ArrayLike | None = None,
    density: bool | None = None,
) -> tuple[Array, list[Array]]:
    """Counts over a grid of as many variables as ``sample`` has columns, and the edges along each.

    Raises:
        ShapeError: ``sample`` is not two-dimensional.
        ValueError: ``bins`` or ``range`` does not fit the columns.

    >>> counts, edges = jnp.histogramdd(jnp.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), bins=2)
    >>> counts
    Array([[1, 0],
           [1, 1]], dtype=int32)
    """
    (x,) = promote_inexact("histogramdd", sample)
    if x.ndim != 2:
        raise ShapeError("histogramdd: sample is two-dimensional", got=x.type)
    d = x.shape[1]
    if range is not None and (len(range) != d or any(r is not None and len(r) != 2 for r in range)):
        raise ValueError(f"For sample.shape={x.shape}, range must be a sequence of {d} pairs or Nones; got {range}")
    per_axis: Sequence[Any] = [bins] * d if _one(bins) else list(bins)
    if len(per_axis) != d:
        raise ValueError("should be a bin for each dimension.")
    edges: list[Array] = []
    flat: Any = None
    outside: Any = None
    for i in np.arange(d).tolist():
        column = x[:, i]
        e = histogram_bin_edges(column, per_axis[i], None if range is None else range[i])
        place = searchsorted(e, column, "right")
        place = where(column == e[-1], e.size - 1, place) - 1
        bad = (place < 0) | (place >= e.size - 1)
        flat = place if flat is None else flat * (e.size - 1) + place
        outside = bad if outside is None else outside | bad
        edges.append(e)
    shape = tuple(e.size - 1 for e in edges)
    total = math.prod(shape)
    w = None if weights is None else convert(as_operand(weights, "histogramdd"), x.dtype)
    counts = ops.reshape(bincount(where(outside, total, flat), w, length=total), shape=shape)
    if density:
        counts = counts / sum_(counts)
        for i, e in enumerate(edges):
            widths = e[1:] - e[:-1]
            counts = counts / ops.reshape(
                widths, shape=tuple(widths.size if k == i else 1 for k in np.arange(d).tolist())
            )
    return counts, edges
