"""Gumbel distribution, skewed to the left."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import (
    density,
    exp,
    exponential,
    log,
    log1p,
    log_complement,
    operands,
    within_support,
)
from nxjax.scipy.stats.family import (
    described as _described,
)
from nxjax.trace.core import Array


def _standard(name: str, x: Any, loc: Any, scale: Any) -> tuple[Array, Array, Array]:
    """z, the scale, and whether that is positive; where it is not, everything is NaN."""
    x, loc, scale = operands(f"gumbel_l.{name}", x, loc, scale)
    return (x - loc) / scale, scale, scale > 0


@_described("0.7, 0.3, 1.7", "-1.5606")
def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density exp(z - exp(z)) / scale, z = (x - loc) / scale."""
    z, scale, ok = _standard("logpdf", x, loc, scale)
    return within_support(ok, z - exp(z) - log(scale), float("nan"))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.21")


@_described("0.7, 0.3, 1.7", "-1.2653")
def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of a number above ``x``."""
    z, _, ok = _standard("logsf", x, loc, scale)
    return within_support(ok, -exp(z), float("nan"))


sf = exponential(logsf, "sf", "0.7, 0.3, 1.7", "0.2822")


@_described("0.7, 0.3, 1.7", "0.7178")
def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``."""
    return -jnp.expm1(logsf(x, loc, scale))


@_described("0.7, 0.3, 1.7", "-0.3315")
def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `cdf`."""
    return log_complement(logsf(x, loc, scale))


@_described("0.4, 0.3, 1.7", "-0.8419")
def ppf(p: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``p``; NaN outside [0, 1]."""
    p, loc, scale = operands("gumbel_l.ppf", p, loc, scale)
    return within_support((p >= 0) & (p <= 1), loc + scale * log(-log1p(-p)), float("nan"))
