"""Logistic distribution."""

from __future__ import annotations

from nxjax.ops.elementary import exp
from nxjax.ops.elementary import logistic as expit
from nxjax.scipy.special.entropies import logit
from nxjax.scipy.stats.family import density, log, log1p, operands, standard
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-1.9307")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density exp(-z) / (scale (1 + exp(-z))^2), z = (x - loc) / scale."""
    z, scale = standard("logistic.logpdf", x, loc, scale)
    z = abs(z)
    return -z - 2 * log1p(exp(-z)) - log(scale)


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.145")


@_described("0.7, 0.3, 1.7", "0.5586")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    return expit(standard("logistic.cdf", x, loc, scale)[0])


@_described("0.7, 0.3, 1.7", "0.4414")
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    x, loc, scale = operands("logistic.sf", x, loc, scale)
    return expit(-(x - loc) / scale)


@_described("0.4, 0.3, 1.7", "-0.3893")
def ppf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``x``."""
    x, loc, scale = operands("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


@_described("0.4, 0.3, 1.7", "0.9893")
def isf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `sf`: the value at which `sf` is ``x``."""
    x, loc, scale = operands("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc
