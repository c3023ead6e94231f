"""Summaries of data: the most common value, ranks, and the standard error of the mean."""

from __future__ import annotations

import math
from typing import NamedTuple

from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.numpy.promotion import check_choice, promote_inexact
from nxjax.numpy.reductions import wide
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap


class ModeResult(NamedTuple):
    """What `mode` gives: the most common values and how often they are there."""

    mode: Array
    count: Array


def _policy(name: str, nan_policy: str) -> None:
    check_choice(f"{name}: Illegal nan_policy", nan_policy, "propagate", "omit", "raise")
    if nan_policy != "propagate":
        why = "the size of the result would depend on the data" if nan_policy == "omit" else "traced data has no values"
        raise NotImplementedError(f"{name}: nan_policy={nan_policy!r} is not supported, since {why}")


def _most_common(x: Array) -> tuple[Array, Array]:
    """Of a vector with an element at least: the first of equal runs of the sorted elements that is longest."""
    x = jnp.sort(x)
    fresh = jnp.concatenate([jnp.ones(1, bool), (x[1:] != x[:-1]) & ~(jnp.isnan(x[1:]) & jnp.isnan(x[:-1]))])
    run = jnp.cumsum(fresh) - 1
    counts = jnp.zeros(x.shape, int).at[run].add(1)
    longest = jnp.argmax(counts)
    return x[jnp.argmax(run == longest)], counts[longest]


def mode(a: ArrayLike, axis: int | None = 0, nan_policy: str = "propagate", keepdims: bool = False) -> ModeResult:
    """The most common value along an axis, the smallest of several, and its count.

    Args:
        a: array of any shape and dtype.
        axis: axis to reduce, static; None for all elements.
        nan_policy: only "propagate": NaNs count as equal.
        keepdims: leave the reduced axes with size 1.

    Returns:
        ``(mode, count)``: arrays without that axis; NaN and 0 where there are no elements.

    Raises:
        NotImplementedError: for the other policies. ParameterError: for an unknown policy.

    >>> value, count = mode(nx.array([2, 4, 1, 1, 3, 4, 4]))
    >>> print(value, count)
    4 3
    """
    x = jnp.atleast_1d(a)
    _policy("mode", nan_policy)
    shape = x.shape
    if axis is None:
        x, kept, axis = x.ravel(), (1,) * len(shape), 0
        left: tuple[int, ...] = ()
    else:
        axis = x.ndim + axis if -x.ndim <= axis < 0 else axis
        if not 0 <= axis < x.ndim:
            raise ParameterError("mode: axis is out of bounds", got=axis, expected=f"one of {x.ndim} axes")
        kept = (*shape[:axis], 1, *shape[axis + 1 :])
        left = (*shape[:axis], *shape[axis + 1 :])
    out = kept if keepdims else left
    columns = jnp.moveaxis(x, axis, 0).reshape(x.shape[axis], math.prod(left))
    if not columns.shape[0]:
        return ModeResult(jnp.full(out, jnp.nan, jnp.result_type(float)), jnp.zeros(out))
    if not columns.shape[1]:
        return ModeResult(jnp.zeros(out, x.dtype), jnp.zeros(out, int))
    values, counts = vmap(_most_common, 1)(columns)
    return ModeResult(values.reshape(out), counts.reshape(out))


def _ranks(x: Array, method: str) -> Array:
    kind = jnp.result_type(float)
    order = jnp.argsort(x, stable=True)
    place = jnp.zeros(x.shape, int).at[order].set(jnp.arange(x.size))
    if method == "ordinal":
        return (place + 1).astype(kind)
    ordered = x[order]
    fresh = jnp.concatenate([jnp.ones(min(1, x.size), bool), ordered[1:] != ordered[:-1]])
    dense = jnp.cumsum(fresh)[place]
    if method == "dense":
        return dense.astype(kind)
    # How many elements are in the first k runs; element 0 is none.
    ends = jnp.cumsum(jnp.zeros(x.size + 1, int).at[jnp.cumsum(fresh)].add(1)).astype(kind)
    if method == "max":
        return ends[dense]
    if method == "min":
        return ends[dense - 1] + 1
    return 0.5 * (ends[dense] + ends[dense - 1] + 1)


def rankdata(a: ArrayLike, method: str = "average", *, axis: int | None = None, nan_policy: str = "propagate") -> Array:
    """The ranks of data, from 1 on.

    Args:
        a: array of any shape.
        method: the rank of equal elements: their "average", "min" or "max", "dense" (the number of distinct elements up
            to it), or "ordinal" (in their order).
        axis: axis along which to rank, static; None ranks the flat array.
        nan_policy: only "propagate": all ranks with a NaN on the axis are NaN.

    Returns:
        Array of the default float dtype: of the shape of ``a`` if ``axis`` is given, else flat.

    Raises:
        ParameterError: for an unknown method or policy. NotImplementedError: for the other policies.

    >>> print(rankdata(nx.array([1, 3, 2, 3])))
    [1.  3.5 2.  3.5]
    """
    x = jnp.asarray(a)
    _policy("rankdata", nan_policy)
    check_choice(f"rankdata: unknown method '{method}'", method, "average", "min", "max", "dense", "ordinal")

    def ranks(v: Array) -> Array:
        found = _ranks(v, method)
        return jnp.where(jnp.any(jnp.isnan(v)), jnp.nan, found)

    return ranks(x.ravel()) if axis is None else jnp.apply_along_axis(ranks, axis, x)


def sem(
    a: ArrayLike, axis: int | None = 0, ddof: int = 1, nan_policy: str = "propagate", *, keepdims: bool = False
) -> Array:
    """The standard error of the mean: the standard deviation over the root of the number of elements.

    Args:
        a: array; integers become float.
        axis: axis to reduce, static; None for all elements.
        ddof: subtracted from the number of elements in the variance's denominator.
        nan_policy: "propagate", or "omit" to leave NaNs out.
        keepdims: leave the reduced axes with size 1.

    Returns:
        Array of the float dtype of ``a`` without that axis.

    Raises:
        ParameterError: for another policy.

    >>> print(round(float(sem(nx.array([2.0, 4.0, 1.0, 1.0, 3.0]))), 4))
    0.5831
    """
    (x,) = promote_inexact("sem", a)
    if nan_policy == "propagate":
        size = x.size if axis is None else x.shape[axis]
        if size <= ddof and x.dtype not in dtypes.COMPLEX:  # no error of the mean, and no slope either
            return jnp.sum(x, axis, keepdims=keepdims) * jnp.nan
        return (jnp.std(x, axis, ddof=ddof, keepdims=keepdims) / math.sqrt(size)).astype(x.dtype)
    if nan_policy != "omit":
        raise ParameterError("sem: nan_policy", got=repr(nan_policy), expected="'propagate' or 'omit'")
    count = jnp.sum(~jnp.isnan(x), axis, keepdims=keepdims)
    root = jnp.sqrt(count.astype(wide(x.dtype)))  # float16 counts no further than 65504
    return jnp.nanstd(x, axis, ddof=ddof, keepdims=keepdims) / root.astype(x.dtype)
