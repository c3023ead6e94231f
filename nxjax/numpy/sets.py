"""Sets kept as sorted arrays: unique, union, intersection, difference, membership.

Their sizes depend on values, so under `jit` they need ``size=``; what is missing is filled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from nxjax.numpy.creation import full, full_scalar, zeros
from nxjax.numpy.documented import example
from nxjax.numpy.indexing import take
from nxjax.numpy.joining import concatenate
from nxjax.numpy.promotion import along, as_operand, concrete_or_error, convert, promote, static_int
from nxjax.numpy.ranges import iota
from nxjax.numpy.reductions import cumsum
from nxjax.numpy.reductions import max as max_
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.selection import nonzero, where
from nxjax.numpy.shapes import moveaxis, ravel
from nxjax.numpy.sorting import searchsorted, sort
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Tracer


class UniqueAll(NamedTuple):
    """Result of `unique_all`."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """Result of `unique_counts`."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """Result of `unique_inverse`."""

    values: Array
    inverse_indices: Array


@example(
    "jnp.array([3, 1, 3]), return_counts=True",
    "(Array([1, 3], dtype=int32), Array([1, 2], dtype=int32))",
    "jnp.array([3, 1, 3]), size=4, fill_value=0",
    "Array([1, 3, 0, 0], dtype=int32)",
    raises="ConcretizationTypeError: ``ar`` is traced and ``size`` is not given.",
)
def unique(
    ar: ArrayLike,
    return_index: bool = False,
    return_inverse: bool = False,
    return_counts: bool = False,
    axis: int | None = None,
    *,
    equal_nan: bool = True,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
    sorted: bool = True,
) -> Array | tuple[Array, ...]:
    """The distinct elements (or slices along ``axis``), sorted; optionally with first indices, inverse and counts.

    ``size`` fixes their number: surplus is cut off, missing ones are ``fill_value`` (the smallest element).

    Args:
        ar: array; without ``axis`` it is flattened.
        return_index: also return where each was first.
        return_inverse: also return which of them each element is.
        return_counts: also return how often each occurs.
        axis: static integer; its slices are the elements.
        equal_nan: whether all nan are one element.
        size: static number of elements of the result, needed under `jit`.
        fill_value: for missing elements.
        sorted: has no effect: they are always sorted.
    """
    x = as_operand(ar, "unique")
    if size is None and isinstance(x, Tracer):
        x = wrap(concrete_or_error("unique", x, "it decides the length of the result; or give size="), x.type.weak)
    shape = x.shape
    flat, i = along("unique", x, axis)
    rows = _rows(flat, i)
    n = rows.shape[0]
    if n == 0:
        return _empty(flat, i, shape, axis, size, fill_value, return_index, return_inverse, return_counts)
    order, first = _distinct(rows, equal_nan)

    index = dtypes.as_dtype(int)
    wanted = None if size is None else static_int("unique", size)
    # The start of each run of equal elements, and of the run after the last: n.
    if wanted is None:
        edges = concatenate([nonzero(first)[0], wrap(np.asarray([n], index))])
    else:
        edges = nonzero(first, size=wanted + 1, fill_value=n)[0]
    starts, ends = edges[:-1], edges[1:]
    count = starts.shape[0]
    valid = starts < n
    found = take(flat, take(order, starts, mode="clip"), axis=i, mode="clip")
    if wanted is not None and count:
        fill = found[(*(slice(None),) * i, slice(0, 1))] if fill_value is None else fill_value
        mask = ops.reshape(valid, shape=tuple(count if d == i else 1 for d in range(found.ndim)))
        found = convert(where(mask, found, fill), flat.dtype, flat.type.weak and fill_value is None)
    out: list[Any] = [found]
    if return_index:
        places = take(order, starts, mode="clip")
        out.append(where(valid, places, places[0] if count else 0) if wanted is not None else places)
    if return_inverse:
        rank = cumsum(convert(first, index)) - 1
        inverse = wrap(np.zeros(n, index)).at[order].set(rank)
        out.append(ops.reshape(inverse, shape=shape) if axis is None else inverse)
    if return_counts:
        out.append(where(valid, ends - starts, 0))
    return out[0] if len(out) == 1 else tuple(out)


def _rows(x: Array, axis: int) -> Array:
    """One row per slice along ``axis``."""
    n = x.shape[axis]
    return ops.reshape(moveaxis(x, axis, 0), shape=(n, x.size // n if n else 1))


def _distinct(rows: Array, equal_nan: bool) -> tuple[Array, Array]:
    """The order that sorts the rows, and which sorted rows differ from the one before."""
    n, width = rows.shape
    index = dtypes.as_dtype(int)
    columns = [ops.reshape(rows[:, k], shape=(n,)) for k in range(width)]
    *keys, order = ops.sort(*columns, iota(n, index), dimension=0, is_stable=True, num_keys=max(1, width))
    differs: Any = None
    for key in keys:
        a, b = key[1:], key[:-1]
        d = ops.ne(a, b)
        if equal_nan and key.dtype in dtypes.INEXACT:
            d = ops.and_(d, ops.not_(ops.and_(ops.ne(a, a), ops.ne(b, b))))
        differs = d if differs is None else ops.or_(differs, d)
    head = wrap(np.ones(1, np.bool_))
    if differs is None:
        differs = wrap(np.zeros(n - 1, np.bool_))
    return order, ops.concatenate(head, differs, dimension=0)


def _empty(
    x: Array, axis: int, shape: Any, named_axis: Any, size: Any, fill: Any, index: bool, inverse: bool, counts: bool
) -> Any:
    n = 0 if size is None else static_int("unique", size)
    out: list[Any] = [full((*x.shape[:axis], n, *x.shape[axis + 1 :]), 0 if fill is None else fill, x.dtype)]
    if index:
        out.append(zeros((n,), int))
    if inverse:
        out.append(zeros(shape if named_axis is None else (0,), int))
    if counts:
        out.append(zeros((n,), int))
    return out[0] if len(out) == 1 else tuple(out)


@example("jnp.array([3, 1, 3])", "Array([1, 0, 1], dtype=int32)", then=".inverse_indices")
def unique_all(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueAll:
    """Distinct elements with first places, inverse and counts; every nan is distinct."""
    return UniqueAll(*unique(x, True, True, True, equal_nan=False, size=size, fill_value=fill_value))


@example("jnp.array([1.0, jnp.nan, jnp.nan])", "Array([1, 1, 1], dtype=int32)", then=".counts")
def unique_counts(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueCounts:
    """Distinct elements with counts; every nan is distinct."""
    return UniqueCounts(*unique(x, return_counts=True, equal_nan=False, size=size, fill_value=fill_value))


def unique_inverse(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> UniqueInverse:
    """Distinct elements with the inverse: ``values[inverse_indices]`` is x. Every nan is distinct.

    >>> values, inverse = jnp.unique_inverse(jnp.array([[3, 1], [1, 3]]))
    >>> values[inverse]
    Array([[3, 1],
           [1, 3]], dtype=int32)
    """
    return UniqueInverse(*unique(x, return_inverse=True, equal_nan=False, size=size, fill_value=fill_value))


@example("jnp.array([3, 1, 3])", "Array([1, 3], dtype=int32)")
def unique_values(x: ArrayLike, /, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """Distinct elements, sorted; each NaN counts as distinct."""
    return unique(x, equal_nan=False, size=size, fill_value=fill_value)


@example(
    "jnp.array([[1, 2], [3, 4]]), jnp.array([2, 3])", "Array([[False,  True],\n       [ True, False]], dtype=bool)"
)
def isin(
    element: ArrayLike,
    test_elements: ArrayLike,
    assume_unique: bool = False,
    invert: bool = False,
    *,
    method: str = "auto",
) -> Array:
    """Whether each element is among ``test_elements`` (or is not, with ``invert``); nan is in nothing.

    Returns:
        Booleans of the shape of ``element``.
    """
    x, y = promote("isin", element, test_elements)
    if y.size == 0 or x.size == 0:
        return full_scalar(x.shape, bool(invert), dtypes.bool_)
    table = sort(ravel(y))
    found = ops.eq(take(table, searchsorted(table, x), mode="clip"), x)
    return ops.not_(found) if invert else found


@example("jnp.array([3, 1]), jnp.array([2, 3])", "Array([1, 2, 3], dtype=int32)")
def union1d(ar1: ArrayLike, ar2: ArrayLike, *, size: int | None = None, fill_value: ArrayLike | None = None) -> Array:
    """The sorted distinct elements of both; ``size`` and ``fill_value`` as in `unique`.

    Raises:
        ConcretizationTypeError: an operand is traced and ``size`` is not given.
    """
    return unique(concatenate([ravel(ar1), ravel(ar2)]), size=size, fill_value=fill_value)


def _filtered(x: Array, keep: Array, size: int | None, fill_value: Any) -> Array:
    """The kept elements in front, the rest filled."""
    if size is None:
        return take(x, nonzero(keep)[0], mode="clip")
    if not x.shape[0]:  # of nothing there is nothing to take: an element that is not kept
        x, keep = wrap(np.zeros(1, x.dtype)), wrap(np.zeros(1, bool))
    n = x.shape[0]
    index = nonzero(keep, size=static_int("size", size), fill_value=n)[0]
    got = take(x, index, mode="clip")
    fill = 0 if fill_value is None else fill_value
    return convert(where(index < n, got, fill), x.dtype, x.type.weak)


def _found(x: Array, keep: Array, size: int, fill_value: Any) -> Array:
    """As `_filtered`; the rest is the smallest kept element, or ``fill_value`` in the common dtype."""
    out = convert(_filtered(x, keep, size, 0), x.dtype)  # never weak
    if not out.size:
        return out
    found = iota(out.size, dtypes.int32) < sum_(convert(keep, dtypes.int32))
    return where(found, out, out[0] if fill_value is None else fill_value)


@example(
    "jnp.array([3, 1, 2]), jnp.array([2])",
    "Array([1, 3], dtype=int32)",
    "jnp.array([3, 1, 2]), jnp.array([2]), size=3, fill_value=-1",
    "Array([ 1,  3, -1], dtype=int32)",
    raises="ConcretizationTypeError: an operand is traced and ``size`` is not given.",
)
def setdiff1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The sorted distinct elements of ``ar1`` that are not in ``ar2``; under `jit`, ``size`` is needed."""
    x, y = as_operand(ar1, "setdiff1d"), as_operand(ar2, "setdiff1d")
    if size is None:
        found = ravel(x) if assume_unique else unique(x)
        return _filtered(found, isin(found, y, invert=True), None, fill_value)
    found, counts = unique(x, return_counts=True, size=x.size)
    keep = ops.and_(isin(found, y, invert=True), counts > 0)
    return _filtered(found, keep, size, fill_value)


@example(
    "jnp.array([3, 1, 2]), jnp.array([2, 3]), return_indices=True",
    "(Array([2, 3], dtype=int32), Array([2, 0], dtype=int32), Array([0, 1], dtype=int32))",
    raises="ConcretizationTypeError: an operand is traced and ``size`` is not given.",
)
def intersect1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    return_indices: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array | tuple[Array, ...]:
    """The sorted distinct elements that are in both; with ``return_indices``, also their first places in each.

    With ``size``, the rest is ``fill_value``, or the smallest of them.
    """
    x, y = promote("intersect1d", ar1, ar2)
    x, y = ravel(x), ravel(y)
    if size is not None and not (x.size and y.size):
        out = full_scalar((size,), 0, x.dtype)
        out = out if fill_value is None else where(False, out, fill_value)
        at, here = (full_scalar((size,), v.size, dtypes.as_dtype(int)) for v in (x, y))
        return (out, at, here) if return_indices else out
    if size is None:
        u, ui = unique(x, return_index=True)
        v, vi = unique(y, return_index=True)
        counts_u = None
    else:
        u, ui, counts_u = unique(x, return_index=True, return_counts=True, size=x.size)
        v, vi = unique(y, return_index=True, size=y.size)
    keep = isin(u, y)
    if counts_u is not None:
        keep = ops.and_(keep, counts_u > 0)
    out = _filtered(u, keep, None, None) if size is None else _found(u, keep, size, fill_value)
    if not return_indices:
        return out

    table = v if size is None else unique(y, size=y.size, fill_value=max_(v))
    in_y = take(vi, searchsorted(table, u), mode="clip")
    return out, _filtered(ui, keep, size, x.size), _filtered(in_y, keep, size, y.size)


@example("jnp.array([3, 1, 2]), jnp.array([2, 3, 4])", "Array([1, 4], dtype=int32)")
def setxor1d(
    ar1: ArrayLike,
    ar2: ArrayLike,
    assume_unique: bool = False,
    *,
    size: int | None = None,
    fill_value: ArrayLike | None = None,
) -> Array:
    """The sorted elements that are in exactly one of both; under `jit`, ``size`` is needed.

    With ``size``, the rest is ``fill_value``, or the smallest of them.

    Raises:
        ConcretizationTypeError: an operand is traced and ``size`` is not given.
    """
    x, y = promote("setxor1d", ar1, ar2)
    x, y = ravel(x), ravel(y)
    if size is None:
        found = sort(concatenate([unique(x), unique(y)]))  # what is in both stands there twice; nan is no nan's equal
        new, edge = found[1:] != found[:-1], np.ones(min(1, found.size), bool)
        return _filtered(found, ops.and_(concatenate([edge, new]), concatenate([new, edge])), None, None)
    both = concatenate([x, y])
    found, counts = unique(both, return_counts=True, size=both.size)
    keep = ops.and_(ops.xor(isin(found, x), isin(found, y)), counts > 0)
    return _found(found, keep, size, fill_value)
