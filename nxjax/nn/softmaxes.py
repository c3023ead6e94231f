"""softmax, log_softmax, logsumexp, logmeanexp: one op each on one axis; masks and several axes are brought to that."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import as_axes, promote_inexact
from nxjax.numpy.softmaxes import logsumexp as logsumexp
from nxjax.numpy.softmaxes import normalized
from nxjax.ops import composite_softmax as ops
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array


@example("jnp.zeros(4)", "[0.25, 0.25, 0.25, 0.25]", then=".tolist()")
def softmax(x: ArrayLike, axis: int | Sequence[int] | None = -1, where: ArrayLike | None = None) -> Array:
    """exp(x) / sum(exp(x)) along ``axis``.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all.
        where: boolean mask; elements where it is False count as -inf, and become 0.
    """
    return normalized("softmax", ops.softmax, x, axis, where, 0)


@example("jnp.array([0.0, 1000.0])", "Array([-1000.,     0.], dtype=float32)")
def log_softmax(x: ArrayLike, axis: int | Sequence[int] | None = -1, where: ArrayLike | None = None) -> Array:
    """log(softmax(x)) without underflow; arguments as `softmax`. Masked elements are -inf."""
    return normalized("log_softmax", ops.log_softmax, x, axis, where, -np.inf)


@example("jnp.array([1000.0, 1000.0])", "Array(1000., dtype=float32)")
def logmeanexp(
    x: ArrayLike, axis: int | Sequence[int] | None = None, where: ArrayLike | None = None, keepdims: bool = False
) -> Array:
    """log(mean(exp(x))) over ``axis``; ``where`` selects the elements of sum and count.

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
