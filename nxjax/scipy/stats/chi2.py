"""Chi-square distribution: gamma with a = df / 2 and twice the scale."""

from __future__ import annotations

from typing import Any

from nxjax.scipy.stats import gamma as _gamma
from nxjax.scipy.stats.family import density, logarithm, operands
from nxjax.trace.core import Array


def logpdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density with ``df`` degrees of freedom."""
    x, df, loc, scale = operands("chi2.logpdf", x, df, loc, scale)
    return _gamma.logpdf(x, df / 2, loc, 2 * scale)


pdf = density(logpdf)


def cdf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, df, loc, scale = operands("chi2.cdf", x, df, loc, scale)
    return _gamma.cdf(x, df / 2, loc, 2 * scale)


def sf(x: Any, df: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``."""
    x, df, loc, scale = operands("chi2.sf", x, df, loc, scale)
    return _gamma.sf(x, df / 2, loc, 2 * scale)


logcdf, logsf = logarithm(cdf, "logcdf"), logarithm(sf, "logsf")
