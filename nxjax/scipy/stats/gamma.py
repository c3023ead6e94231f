"""Gamma distribution."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlogy
from nxjax.scipy.special.incomplete import gammainc, gammaincc
from nxjax.scipy.stats.family import density, inside, log, logarithm, operands
from nxjax.trace.core import Array


def logpdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density z^(a - 1) exp(-z) / (gamma(a) scale), z = (x - loc) / scale."""
    x, a, loc, scale = operands("gamma.logpdf", x, a, loc, scale)
    within = ~(x < loc)
    z = jnp.where(within, (x - loc) / scale, 1)
    return inside(within, xlogy(a - 1, z) - z - lgamma(a) - log(scale))


pdf = density(logpdf)


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, a, loc, scale = operands("gamma.cdf", x, a, loc, scale)
    return gammainc(a, jnp.maximum((x - loc) / scale, 0))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``."""
    x, a, loc, scale = operands("gamma.sf", x, a, loc, scale)
    return gammaincc(a, jnp.maximum((x - loc) / scale, 0))


logcdf, logsf = logarithm(cdf, "logcdf"), logarithm(sf, "logsf")
