"""Normal distribution."""

from __future__ import annotations

import math
from typing import Any

from nxjax.ops.elementary import log
from nxjax.scipy.special.errs import log_ndtr, ndtr, ndtri
from nxjax.scipy.stats.family import density, operands
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array


@_described("0.7, 0.3, 1.7", "-1.4772")
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density with mean ``loc`` and deviation ``scale``."""
    x, loc, scale = operands("norm.logpdf", x, loc, scale)
    variance = scale * scale
    return -((x - loc) * (x - loc) / variance + log(2 * math.pi * variance)) / 2


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2283")


def _standard(name: str, x: Any, loc: Any, scale: Any) -> Array:
    x, loc, scale = operands(f"norm.{name}", x, loc, scale)
    return (x - loc) / scale


@_described("0.7, 0.3, 1.7", "0.593")
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``."""
    return ndtr(_standard("cdf", x, loc, scale))


@_described("0.7, 0.3, 1.7", "-0.5225")
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `cdf`, accurate in the tail."""
    return log_ndtr(_standard("logcdf", x, loc, scale))


@_described("0.7, 0.3, 1.7", "0.407")
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``."""
    return ndtr(-_standard("sf", x, loc, scale))


@_described("0.7, 0.3, 1.7", "-0.899")
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `sf`, accurate in the tail."""
    return log_ndtr(-_standard("logsf", x, loc, scale))


@_described("0.4, 0.3, 1.7", "-0.1307")
def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``q``."""
    q, loc, scale = operands("norm.ppf", q, loc, scale)
    return ndtri(q) * scale + loc


@_described("0.4, 0.3, 1.7", "0.7307")
def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `sf` ``q``."""
    q, loc, scale = operands("norm.isf", q, loc, scale)
    return -ndtri(q) * scale + loc
