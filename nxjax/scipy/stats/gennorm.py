"""Generalized normal distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.ops.special import lgamma
from nxjax.scipy.special.incomplete import gammainc
from nxjax.scipy.stats.family import density, log, operands
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 1.5", "-1.1765")
def logpdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Logarithm of the density proportional to exp(-|x|^beta)."""
    x, beta = operands("gennorm.logpdf", x, beta)
    return log(0.5 * beta) - lgamma(1 / beta) - abs(x) ** beta


pdf = density(logpdf, "0.7, 1.5", "0.3084")


@_described("0.7, 1.5", "0.8114")
def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Probability of a number at most ``x``."""
    x, beta = operands("gennorm.cdf", x, beta)
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, abs(x) ** beta))
