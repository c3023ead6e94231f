"""Gumbel distribution, skewed to the right."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import density, exp, exponential, log, log_complement, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array


def _standard(name: str, x: Any, loc: Any, scale: Any) -> tuple[Array, Array, Array]:
    """z, the scale, and whether that is positive; where it is not, everything is NaN."""
    x, loc, scale = operands(f"gumbel_r.{name}", x, loc, scale)
    return (x - loc) / scale, scale, scale > 0


@_described("0.7, 0.3, 1.7", "-1.5563")
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density exp(-z - exp(-z)) / scale, z = (x - loc) / scale."""
    z, scale, ok = _standard("logpdf", x, loc, scale)
    return within_support(ok, -z - exp(-z) - log(scale), float("nan"))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2109")


@_described("0.7, 0.3, 1.7", "-0.7903")
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of a number at most ``x``."""
    z, _, ok = _standard("logcdf", x, loc, scale)
    return within_support(ok, -exp(-z), float("nan"))


cdf = exponential(logcdf, "cdf", "0.7, 0.3, 1.7", "0.4537")


@_described("0.7, 0.3, 1.7", "0.5463")
def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``."""
    return -jnp.expm1(logcdf(x, loc, scale))


@_described("0.7, 0.3, 1.7", "-0.6046")
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `sf`."""
    return log_complement(logcdf(x, loc, scale))


@_described("0.4, 0.3, 1.7", "0.4486")
def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``p``; NaN outside [0, 1]."""
    p, loc, scale = operands("gumbel_r.ppf", p, loc, scale)
    return within_support((p >= 0) & (p <= 1), loc - scale * log(-log(p)), float("nan"))
