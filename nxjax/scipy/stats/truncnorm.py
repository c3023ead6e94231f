"""Normal distribution cut off at both sides."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.special.errs import log_ndtr
from nxjax.scipy.stats import norm as _norm
from nxjax.scipy.stats.family import density, exp, exponential, log, log1p, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


def _log_mass(a: Array, b: Array) -> Array:
    """Logarithm of the probability of a normal number between ``a`` and ``b``; both tails keep their digits."""
    right = a > 0
    low, high = jnp.where(right, -b, a), jnp.where(right, -a, b)
    low, high = log_ndtr(low), log_ndtr(high)
    left = high + log1p(-exp(low - high))
    across = (a <= 0) & (b > 0)
    middle = log1p(-exp(log_ndtr(jnp.minimum(a, 0))) - exp(log_ndtr(-jnp.maximum(b, 0))))
    return jnp.where(across, middle, left)


def _standard(
    name: str, x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike, scale: ArrayLike
) -> tuple[Array, Array, Array, Array]:
    x, a, b, loc, scale = operands(f"truncnorm.{name}", x, a, b, loc, scale)
    return (x - loc) / scale, a, b, scale


@_described("0.7, -1.0, 1.5", "-0.9084")
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density; ``a`` and ``b`` are the bounds in units of ``scale`` from ``loc``."""
    z, a, b, scale = _standard("logpdf", x, a, b, loc, scale)
    value = within_support(~((z < a) | (z > b)), _norm.logpdf(z) - log(scale) - _log_mass(a, b))
    return jnp.where(a < b, value, float("nan"))


pdf = density(logpdf, "0.7, -1.0, 1.5", "0.4031")


@_described("0.7, -1.0, 1.5", "-0.2564")
def logcdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number at most ``x``."""
    z, a, b, _ = _standard("logcdf", x, a, b, loc, scale)
    safe = jnp.where((z <= a) | (z > b), b, z)
    value = jnp.where(z <= a, -jnp.inf, jnp.where(z >= b, 0.0, _log_mass(a, safe) - _log_mass(a, b)))
    return jnp.where(a < b, value, float("nan"))


@_described("0.7, -1.0, 1.5", "-1.4866")
def logsf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the probability of a number above ``x``."""
    z, a, b, _ = _standard("logsf", x, a, b, loc, scale)
    return logcdf(-z, -b, -a)


cdf, sf = exponential(logcdf, "cdf", "0.7, -1.0, 1.5", "0.7739"), exponential(logsf, "sf", "0.7, -1.0, 1.5", "0.2261")
