"""Gumbel distribution, skewed to the right."""

from __future__ import annotations

from nxjax.ops.elementary import exp, log
from nxjax.scipy.stats.family import (
    complement,
    density,
    exponential,
    log_complement,
    operands,
    standard,
    within_support,
)
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-1.5563")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density exp(-z - exp(-z)) / scale, z = (x - loc) / scale."""
    z, scale = standard("gumbel_r.logpdf", x, loc, scale)
    return within_support(scale > 0, -z - exp(-z) - log(scale), float("nan"))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2109")


@_described("0.7, 0.3, 1.7", "-0.7903")
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number at most ``x``."""
    z, scale = standard("gumbel_r.logcdf", x, loc, scale)
    return within_support(scale > 0, -exp(-z), float("nan"))


cdf = exponential(logcdf, "cdf", "0.7, 0.3, 1.7", "0.4537")


@_described("0.7, 0.3, 1.7", "0.5463")
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    return complement(logcdf(x, loc, scale))


@_described("0.7, 0.3, 1.7", "-0.6046")
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `sf`."""
    return log_complement(logcdf(x, loc, scale))


@_described("0.4, 0.3, 1.7", "0.4486")
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``p``; NaN outside [0, 1]."""
    p, loc, scale = operands("gumbel_r.ppf", p, loc, scale)
    return within_support((p >= 0) & (p <= 1), loc - scale * log(-log(p)), float("nan"))
