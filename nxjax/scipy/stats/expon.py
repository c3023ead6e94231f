"""Exponential distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import complement, density, exp, exponential, log, log1p, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-0.7659")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density exp(-(x - loc) / scale) / scale for x >= loc."""
    x, loc, scale = operands("expon.logpdf", x, loc, scale)
    return within_support(~(x < loc), -(x - loc) / scale - log(scale))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.4649")


@_described("0.7, 0.3, 1.7", "-0.2353")
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number above ``x``."""
    x, loc, scale = operands("expon.logsf", x, loc, scale)
    return within_support(~(x < loc), -(x - loc) / scale, 0.0)


sf = exponential(logsf, "sf", "0.7, 0.3, 1.7", "0.7903")


@_described("0.7, 0.3, 1.7", "0.2097")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, loc, scale = operands("expon.cdf", x, loc, scale)
    return within_support(~(x < loc), complement(-(x - loc) / scale), 0.0)


@_described("0.7, 0.3, 1.7", "-1.5623")
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`."""
    x, loc, scale = operands("expon.logcdf", x, loc, scale)
    z = jnp.where(x < loc, 0, (x - loc) / scale)
    return log1p(-exp(-z))


@_described("0.4, 0.3, 1.7", "1.1684")
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``q``; NaN outside [0, 1]."""
    q, loc, scale = operands("expon.ppf", q, loc, scale)
    return within_support((q >= 0) & (q <= 1), loc - scale * log1p(-q), float("nan"))
