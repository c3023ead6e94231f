"""Gumbel distribution, skewed to the left."""

from __future__ import annotations

from nxjax.ops.elementary import exp, log, log1p
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


@_described("0.7, 0.3, 1.7", "-1.5606")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density exp(z - exp(z)) / scale, z = (x - loc) / scale."""
    z, scale = standard("gumbel_l.logpdf", x, loc, scale)
    return within_support(scale > 0, z - exp(z) - log(scale), float("nan"))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.21")


@_described("0.7, 0.3, 1.7", "-1.2653")
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number above ``x``."""
    z, scale = standard("gumbel_l.logsf", x, loc, scale)
    return within_support(scale > 0, -exp(z), float("nan"))


sf = exponential(logsf, "sf", "0.7, 0.3, 1.7", "0.2822")


@_described("0.7, 0.3, 1.7", "0.7178")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    return complement(logsf(x, loc, scale))


@_described("0.7, 0.3, 1.7", "-0.3315")
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`."""
    return log_complement(logsf(x, loc, scale))


@_described("0.4, 0.3, 1.7", "-0.8419")
def ppf(p: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``p``; NaN outside [0, 1]."""
    p, loc, scale = operands("gumbel_l.ppf", p, loc, scale)
    return within_support((p >= 0) & (p <= 1), loc + scale * log(-log1p(-p)), float("nan"))
