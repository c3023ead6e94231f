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
    """Logarithm of the density z^(a - 1) exp(-z) / (gamma(a) scale), z = (x - loc) / scale.

    Args:
        x, a, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logpdf(0.7, 2.3)), 4))
    -1.3179
    """
    x, a, loc, scale = operands("gamma.logpdf", x, a, loc, scale)
    within = ~(x < loc)
    z = jnp.where(within, (x - loc) / scale, 1)
    return inside(within, xlogy(a - 1, z) - z - lgamma(a) - log(scale))


pdf = density(logpdf)


def cdf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``.

    Args:
        x, a, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(cdf(0.7, 2.3)), 4))
    0.102
    """
    x, a, loc, scale = operands("gamma.cdf", x, a, loc, scale)
    return gammainc(a, jnp.maximum((x - loc) / scale, 0))


def sf(x: Any, a: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``.

    Args:
        x, a, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(sf(0.7, 2.3)), 4))
    0.898
    """
    x, a, loc, scale = operands("gamma.sf", x, a, loc, scale)
    return gammaincc(a, jnp.maximum((x - loc) / scale, 0))


logcdf, logsf = logarithm(cdf, "logcdf"), logarithm(sf, "logsf")
