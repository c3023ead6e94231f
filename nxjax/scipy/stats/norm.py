"""Normal distribution."""

from __future__ import annotations

import math

from nxjax.ops.elementary import log
from nxjax.scipy.special.errs import log_ndtr, ndtr, ndtri
from nxjax.scipy.stats.family import density, operands, standard
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-1.4772")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density with mean ``loc`` and deviation ``scale``."""
    x, loc, scale = operands("norm.logpdf", x, loc, scale)
    variance = scale * scale
    return -((x - loc) * (x - loc) / variance + log(2 * math.pi * variance)) / 2


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2283")


@_described("0.7, 0.3, 1.7", "0.593")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    return ndtr(standard("norm.cdf", x, loc, scale)[0])


@_described("0.7, 0.3, 1.7", "-0.5225")
def logcdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`, accurate in the tail."""
    return log_ndtr(standard("norm.logcdf", x, loc, scale)[0])


@_described("0.7, 0.3, 1.7", "0.407")
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    return ndtr(-standard("norm.sf", x, loc, scale)[0])


@_described("0.7, 0.3, 1.7", "-0.899")
def logsf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `sf`, accurate in the tail."""
    return log_ndtr(-standard("norm.logsf", x, loc, scale)[0])


@_described("0.4, 0.3, 1.7", "-0.1307")
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``q``."""
    q, loc, scale = operands("norm.ppf", q, loc, scale)
    return ndtri(q) * scale + loc


@_described("0.4, 0.3, 1.7", "0.7307")
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `sf`: the value at which `sf` is ``q``."""
    q, loc, scale = operands("norm.isf", q, loc, scale)
    return -ndtri(q) * scale + loc
