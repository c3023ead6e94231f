"""logsumexp, and softmaxes along any axes: for `nn` and `scipy.special`, whose functions these are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.promotion import as_axes, convert, promote_inexact
from nxjax.ops import composite_softmax as ops
from nxjax.ops.identity import stop_gradient
from nxjax.ops.shape import reshape, transpose
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array, Op
from nxjax.trace.dtypes import lowest


def logsumexp(
    a: ArrayLike,
    axis: int | Sequence[int] | None = None,
    b: ArrayLike | None = None,
    keepdims: bool = False,
    return_sign: bool = False,
    where: ArrayLike | None = None,
) -> Array | tuple[Array, ...]:
    """log(sum(b * exp(a))) over ``axis``, without overflow.

    Args:
        a: array; integers become float.
        axis: an axis, a tuple of axes, or None for all.
        b: factors, which broadcast with ``a``; 1 by default.
        keepdims: leave the reduced axes with size 1.
        return_sign: return ``(log of the absolute value, sign)``; else negative sums are NaN.
        where: boolean mask of the elements to sum.

    >>> round(float(logsumexp(nx.array([1000.0, 1000.0]))), 3)
    1000.693
    """
    if b is None and not return_sign:
        (v,) = promote_inexact("logsumexp", a)
        v = convert(v, v.dtype)  # a weak number's sum is an array like any other's
        if v.dtype in dtypes.FLOAT:
            if where is not None and not dtypes.has_infinity(v.dtype):
                # What is left out needs a number far below all others, which these dtypes have not.
                wide = logsumexp(v.astype(dtypes.float32), axis, keepdims=keepdims, where=where)
                return wide.astype(v.dtype)
            if where is not None:
                v = jnp.where(where, v, -np.inf)
            axes = as_axes("logsumexp", axis, v.ndim)
            y = ops.logsumexp(v, axes=axes)
            return jnp.expand_dims(y, axes) if keepdims else y
    return _weighted(a, axis, b, keepdims, return_sign, where)


def _weighted(a: Any, axis: Any, b: Any, keepdims: bool, return_sign: bool, where: Any) -> Any:
    v, factor = promote_inexact("logsumexp", a, 1.0 if b is None else b)
    # Elements with factor 0 must not raise the maximum.
    least = lowest(v.dtype)
    v = jnp.where(factor != 0, v, least)
    if where is not None:
        v = jnp.where(where, v, least)
    real = v.dtype not in dtypes.COMPLEX
    top = jnp.max(jnp.real(v), axis=axis, keepdims=True, initial=least)
    top = stop_gradient(jnp.where(jnp.isfinite(top), top, 0))
    terms = factor * jnp.exp(v - top.astype(v.dtype))
    if where is not None:
        terms = jnp.where(where, terms, 0)
    total = jnp.sum(terms, axis=axis, keepdims=keepdims)
    level = top if keepdims else jnp.squeeze(top, as_axes("logsumexp", axis, top.ndim))
    sign = jnp.sign(total)
    size = jnp.abs(total) if return_sign or real else total
    y = jnp.log(size) + level.astype(size.dtype)
    if return_sign:
        return y, sign
    return jnp.where(sign < 0, np.nan, y) if real else y


def normalized(name: str, op: Op, x: Any, axis: Any, where: Any = None, masked: float = 0) -> Array:
    """``op``, which normalizes along one axis, along any; the mask ``where`` leaves elements out."""
    (v,) = promote_inexact(name, x)
    v = convert(v, v.dtype)  # never weak
    on_axes = _of_complex if v.dtype in dtypes.COMPLEX else _on_axes
    if where is not None:
        mask = jnp.asarray(where)
        if not dtypes.has_infinity(v.dtype):
            wide = normalized(name, op, v.astype(dtypes.float32), axis, mask)
            return jnp.where(mask, wide.astype(v.dtype), masked)
        y = on_axes(name, op, jnp.where(mask, v, -np.inf), axis)
        return jnp.where(mask, y, masked)
    return on_axes(name, op, v, axis)


def _of_complex(name: str, op: Op, v: Array, axis: Any) -> Array:
    """The same of complex numbers, which no device has an op for."""
    shifted = v - stop_gradient(jnp.max(v, axis, keepdims=True, initial=lowest(v.dtype)))
    y = jnp.exp(shifted)
    total = jnp.sum(y, axis, keepdims=True)
    return y / total if op is ops.softmax else shifted - jnp.log(total)


def _on_axes(name: str, op: Op, v: Array, axis: Any) -> Array:
    axes = as_axes(name, axis, v.ndim)
    if len(axes) == 1:
        return op(v, axis=axes[0])
    # Several axes become one, at the end, and come back.
    kept = tuple(i for i in range(v.ndim) if i not in axes)
    order = (*kept, *axes)
    moved = transpose(v, permutation=order)
    flat = reshape(moved, shape=(*moved.shape[: len(kept)], math.prod(v.shape[a] for a in axes)))
    y = reshape(op(flat, axis=len(kept)), shape=moved.shape)
    return transpose(y, permutation=tuple(sorted(range(v.ndim), key=order.__getitem__)))
