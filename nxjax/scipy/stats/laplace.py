"""Laplace distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import density, exp, log, operands, standard
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-1.4591")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density exp(-|x - loc| / scale) / (2 scale)."""
    x, loc, scale = operands("laplace.logpdf", x, loc, scale)
    return -abs(x - loc) / scale - log(2 * scale)


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2325")


@_described("0.7, 0.3, 1.7", "0.6048")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    z, _ = standard("laplace.cdf", x, loc, scale)
    return jnp.where(z <= 0, 0.5 * exp(z), 1 - 0.5 * exp(-z))
