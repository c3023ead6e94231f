"""Dirichlet distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.numpy.documented import shown as _shown
from nxjax.numpy.promotion import promote_inexact
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlogy
from nxjax.scipy.stats.family import density, within_support
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_shown("print(round(float(logpdf(jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0]))), 4))", "0.4292")
def logpdf(x: ArrayLike, alpha: ArrayLike) -> Array:
    """Logarithm of the density at ``x``, whose first axis has the size of ``alpha`` or one less, and sums to 1.

    Args:
        x: [n, ...] or [n - 1, ...].
        alpha: [n], positive.

    Returns:
        Array of the shape of ``x`` without its first axis.

    Raises:
        ShapeError: ``x`` does not fit ``alpha``.
    """
    x, alpha = promote_inexact("scipy.stats.dirichlet.logpdf", x, alpha)
    if alpha.ndim != 1 or x.shape[0] not in (alpha.shape[0], alpha.shape[0] - 1):
        raise ShapeError(
            "dirichlet.logpdf: x does not fit alpha", got=f"{x.type}, {alpha.type}", expected="[n, ...], [n]"
        )
    if x.shape[0] != alpha.shape[0]:
        x = jnp.concatenate([x, 1 - jnp.sum(x, axis=0, keepdims=True)])
    column = alpha.reshape((-1,) + (1,) * (x.ndim - 1))
    value = lgamma(jnp.sum(alpha)) - jnp.sum(lgamma(alpha)) + jnp.sum(xlogy(column - 1, x), axis=0)
    near = 10 * float(dtypes.float_info(x.dtype).eps)
    outside = jnp.any(x <= 0, axis=0) | (abs(jnp.sum(x, axis=0) - 1) >= near)
    return within_support(~outside, value)


pdf = density(logpdf, "jnp.array([0.2, 0.8]), jnp.array([2.0, 3.0])", "1.536")
