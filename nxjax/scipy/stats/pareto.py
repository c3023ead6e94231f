"""Pareto distribution."""

from __future__ import annotations

from nxjax.scipy.stats.family import density, exp, exponential, log, log1p, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("2.5, 1.5", "-1.8853")
def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density b / (scale z^(b + 1)), z = (x - loc) / scale >= 1."""
    x, b, loc, scale = operands("pareto.logpdf", x, b, loc, scale)
    return within_support(~(x < loc + scale), log(b / scale) - (b + 1) * log((x - loc) / scale))


pdf = density(logpdf, "2.5, 1.5", "0.1518")


@_described("2.5, 1.5", "-1.3744")
def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number above ``x``."""
    x, b, loc, scale = operands("pareto.logsf", x, b, loc, scale)
    return within_support(~(x < loc + scale), -b * log((x - loc) / scale), 0.0)


sf = exponential(logsf, "sf", "2.5, 1.5", "0.253")


@_described("2.5, 1.5", "-0.2917")
def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`."""
    x, b, loc, scale = operands("pareto.logcdf", x, b, loc, scale)
    return within_support(~(x < loc + scale), log1p(-(((x - loc) / scale) ** -b)))


@_described("2.5, 1.5", "0.747")
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, b, loc, scale = operands("pareto.cdf", x, b, loc, scale)
    return within_support(~(x < loc + scale), 1 - ((x - loc) / scale) ** -b, 0.0)


@_described("0.4, 1.5", "1.4057")
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The number with `cdf` ``q``; NaN outside [0, 1]."""
    q, b, loc, scale = operands("pareto.ppf", q, b, loc, scale)
    return within_support((q >= 0) & (q <= 1), loc + scale * exp(-log1p(-q) / b), float("nan"))
