"""softmax, log_softmax, logsumexp, logmeanexp: one op each on one axis; masks and several axes are brought to that."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.lax import stop_gradient
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import as_axes, convert, promote_inexact
from nxjax.ops import composite_softmax as ops
from nxjax.ops.shape import reshape, transpose
from nxjax.scipy.special.reductions import logsumexp as logsumexp
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Op


def softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """exp(x) / sum(exp(x)) along ``axis``.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all.
        where: boolean mask; elements where it is False count as -inf, and give 0.

    >>> softmax(jnp.zeros(4)).tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    return _normalized("softmax", ops.softmax, x, axis, where, 0)


@example("jnp.array([0.0, 1000.0])", "Array([-1000.,     0.], dtype=float32)")
def log_softmax(x: Any, axis: Any = -1, where: Any = None) -> Array:
    """log(softmax(x)) without underflow; arguments as `softmax`. Masked elements give -inf."""
    return _normalized("log_softmax", ops.log_softmax, x, axis, where, -np.inf)


def _normalized(name: str, op: Op, x: Any, axis: Any, where: Any, masked: float) -> Array:
    (v,) = promote_inexact(name, x)
    v = convert(v, v.dtype)  # never weak
    on_axes = _of_complex if v.dtype in dtypes.COMPLEX else _on_axes
    if where is not None:
        mask = jnp.asarray(where)
        y = on_axes(name, op, jnp.where(mask, v, -np.inf), axis)
        return jnp.where(mask, y, masked)
    return on_axes(name, op, v, axis)


def _of_complex(name: str, op: Op, v: Array, axis: Any) -> Array:
    """The same of complex numbers, which no device has an op for."""
    shifted = v - stop_gradient(jnp.max(v, axis, keepdims=True, initial=-np.inf))
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


@example("jnp.array([1000.0, 1000.0])", "Array(1000., dtype=float32)")
def logmeanexp(x: Any, axis: Any = None, where: Any = None, keepdims: bool = False) -> Array:
    """log(mean(exp(x))) over ``axis``; ``where`` masks elements out of sum and count.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all.
        where: boolean mask that broadcasts to ``x``.
        keepdims: keep the axes, of size 1.
    """
    total = logsumexp(x, axis=axis, where=where, keepdims=keepdims)
    (v,) = promote_inexact("logmeanexp", x)
    if where is None:
        count = math.prod(v.shape[a] for a in as_axes("logmeanexp", axis, v.ndim))
        return total - (math.log(count) if count else -math.inf)
    mask = jnp.broadcast_to(jnp.asarray(where), v.shape)
    return total - jnp.log(jnp.sum(mask.astype(total.dtype), axis=axis, keepdims=keepdims))
