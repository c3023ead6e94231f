"""Pareto distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import density, exp, exponential, log, log1p, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


def _position(
    name: str, x: ArrayLike, b: ArrayLike, loc: ArrayLike, scale: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    """Whether ``x`` is in the support, z (some number of the support where it is not), ``b`` and ``scale``."""
    x, b, loc, scale = operands(f"pareto.{name}", x, b, loc, scale)
    within = ~(x < loc + scale)
    return within, jnp.where(within, (x - loc) / scale, 2), b, scale


@_described("2.5, 1.5", "-1.8853")
def logpdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density b / (scale z^(b + 1)), z = (x - loc) / scale >= 1."""
    within, z, b, scale = _position("logpdf", x, b, loc, scale)
    return within_support(within, log(b / scale) - (b + 1) * log(z))


pdf = density(logpdf, "2.5, 1.5", "0.1518")


@_described("2.5, 1.5", "-1.3744")
def logsf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number above ``x``."""
    within, z, b, _ = _position("logsf", x, b, loc, scale)
    return within_support(within, -b * log(z), 0.0)


sf = exponential(logsf, "sf", "2.5, 1.5", "0.253")


@_described("2.5, 1.5", "-0.2917")
def logcdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of `cdf`."""
    within, z, b, _ = _position("logcdf", x, b, loc, scale)
    return within_support(within, log1p(-(z**-b)))


@_described("2.5, 1.5", "0.747")
def cdf(x: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    within, z, b, _ = _position("cdf", x, b, loc, scale)
    return within_support(within, 1 - z**-b, 0.0)


@_described("0.4, 1.5", "1.4057")
def ppf(q: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``q``; NaN outside [0, 1]."""
    q, b, loc, scale = operands("pareto.ppf", q, b, loc, scale)
    return within_support((q >= 0) & (q <= 1), loc + scale * exp(-log1p(-q) / b), float("nan"))
