"""Chi-square distribution: gamma with a = df / 2 and twice the scale."""

from __future__ import annotations

import numpy as np

from nxjax import numpy as jnp
from nxjax.scipy.stats import gamma as _gamma
from nxjax.scipy.stats.family import density, logarithm, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 3.0", "-1.4473")
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density with ``df`` degrees of freedom."""
    x, df, loc, scale = operands("chi2.logpdf", x, df, loc, scale)
    return within_support((abs(df) != np.inf) | (x < loc), _gamma.logpdf(x, df / 2, loc, 2 * scale), float("nan"))


pdf = density(logpdf, "0.7, 3.0", "0.2352")


@_described("0.7, 3.0", "0.1268")
def cdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, df, loc, scale = operands("chi2.cdf", x, df, loc, scale)
    return _gamma.cdf(x, df / 2, loc, 2 * scale)


@_described("0.7, 3.0", "0.8732")
def sf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    x, df, loc, scale = operands("chi2.sf", x, df, loc, scale)
    return _gamma.sf(x, df / 2, loc, 2 * scale)


def _below(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    return jnp.less_equal(x, loc)


logcdf = logarithm(cdf, "logcdf", "0.7, 3.0", "-2.0652", _below)
logsf = logarithm(sf, "logsf", "0.7, 3.0", "-0.1356")
