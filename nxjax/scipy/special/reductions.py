"""logsumexp and the softmaxes."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.lax import stop_gradient
from nxjax.numpy.promotion import as_axes, convert, promote_inexact
from nxjax.ops import composite_softmax as ops
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def logsumexp(
    a: Any, axis: Any = None, b: Any = None, keepdims: bool = False, return_sign: bool = False, where: Any = None
) -> Any:
    """log(sum(b * exp(a))) over ``axis``, without overflow.

    Args:
        a: array; integers become float.
        axis: an axis, a tuple of axes, or None for all.
        b: factors, which broadcast with ``a``; 1 by default.
        keepdims: leave the reduced axes with size 1.
        return_sign: give ``(log of the absolute value, sign)``; else negative sums give NaN.
        where: boolean mask of the elements to sum.

    >>> import nxjax as nx
    >>> round(float(logsumexp(nx.array([1000.0, 1000.0]))), 3)
    1000.693
    """
    if b is None and not return_sign:
        (v,) = promote_inexact("logsumexp", a)
        v = convert(v, v.dtype)  # a weak number's sum is an array like any other's
        if v.dtype in dtypes.FLOAT:
            if where is not None:
                v = jnp.where(where, v, -np.inf)
            axes = as_axes("logsumexp", axis, v.ndim)
            y = ops.logsumexp(v, axes=axes)
            return jnp.expand_dims(y, axes) if keepdims else y
    return _weighted(a, axis, b, keepdims, return_sign, where)


def _weighted(a: Any, axis: Any, b: Any, keepdims: bool, return_sign: bool, where: Any) -> Any:
    v, factor = promote_inexact("logsumexp", a, 1.0 if b is None else b)
    # Elements with factor 0 must not raise the maximum.
    v = jnp.where(factor != 0, v, -np.inf)
    if where is not None:
        v = jnp.where(where, v, -np.inf)
    real = v.dtype not in dtypes.COMPLEX
    top = jnp.max(jnp.real(v), axis=axis, keepdims=True, initial=-np.inf)
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


def softmax(x: Any, /, *, axis: Any = None) -> Array:
    """exp(x) / sum(exp(x)) over ``axis``, without overflow.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all, static.

    Returns:
        Array of the shape and float dtype of ``x``; NaN where an element is +inf.

    >>> import nxjax as nx
    >>> print(softmax(nx.array([0.0, 1.0])).round(4))
    [0.2689 0.7311]
    """
    from nxjax.nn.softmaxes import softmax as function

    return function(x, axis)


def log_softmax(x: Any, /, *, axis: Any = None) -> Array:
    """log(softmax(x)) over ``axis``, without underflow.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all, static.

    Returns:
        Array of the shape and float dtype of ``x``; NaN where an element is +inf.

    >>> import nxjax as nx
    >>> print(log_softmax(nx.array([0.0, 1.0])).round(4))
    [-1.3133 -0.3133]
    """
    from nxjax.nn.softmaxes import log_softmax as function

    return function(x, axis)
