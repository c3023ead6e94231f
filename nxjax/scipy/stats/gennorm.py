"""Generalized normal distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.ops.special import lgamma
from nxjax.scipy.special.incomplete import gammainc
from nxjax.scipy.special.operands import differentiable, slope_of
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


def _cdf_value(x: Array, beta: Array) -> Array:
    return 0.5 * (1 + jnp.sign(x) * gammainc(1 / beta, abs(x) ** beta))


# The slope in x is the density, also at 0, where the parts of the formula have none.
_cdf = differentiable(
    _cdf_value,
    {0: pdf, 1: lambda x, beta: jnp.where(x == 0, 0, _slope_in_beta(jnp.where(x == 0, 1, x), beta))},
)
_slope_in_beta = slope_of(_cdf_value, 1)


@_described("0.7, 1.5", "0.8114")
def cdf(x: ArrayLike, beta: ArrayLike) -> Array:
    """Probability of a number at most ``x``."""
    return _cdf(*operands("gennorm.cdf", x, beta))
