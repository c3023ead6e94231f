"""Gumbel distribution, skewed to the right."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import density, exp, exponential, inside, log, log_of_rest, operands
from nxjax.trace.core import Array


def _standard(name: str, x: Any, loc: Any, scale: Any) -> tuple[Array, Array, Array]:
    """z, the scale, and whether that is positive; where it is not, everything is NaN."""
    x, loc, scale = operands(f"gumbel_r.{name}", x, loc, scale)
    return (x - loc) / scale, scale, scale > 0


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density exp(-z - exp(-z)) / scale, z = (x - loc) / scale.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logpdf(0.7, 0.3, 1.7)), 4))
    -1.5563
    """
    z, scale, ok = _standard("logpdf", x, loc, scale)
    return inside(ok, -z - exp(-z) - log(scale), float("nan"))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2109")


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of a number at most ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logcdf(0.7, 0.3, 1.7)), 4))
    -0.7903
    """
    z, _, ok = _standard("logcdf", x, loc, scale)
    return inside(ok, -exp(-z), float("nan"))


cdf = exponential(logcdf, "cdf", "0.7, 0.3, 1.7", "0.4537")


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(sf(0.7, 0.3, 1.7)), 4))
    0.5463
    """
    return -jnp.expm1(logcdf(x, loc, scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `sf`.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logsf(0.7, 0.3, 1.7)), 4))
    -0.6046
    """
    return log_of_rest(logcdf(x, loc, scale))


def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``p``; NaN outside [0, 1].

    Args:
        p, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(ppf(0.4, 0.3, 1.7)), 4))
    0.4486
    """
    p, loc, scale = operands("gumbel_r.ppf", p, loc, scale)
    return inside((p >= 0) & (p <= 1), loc - scale * log(-log(p)), float("nan"))
