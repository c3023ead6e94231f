"""Beta distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.ops.base import like
from nxjax.ops.select import clamp
from nxjax.scipy.special.entropies import xlog1py, xlogy
from nxjax.scipy.special.gammas import betaln
from nxjax.scipy.special.incomplete import betainc
from nxjax.scipy.special.operands import at_least_float32
from nxjax.scipy.stats.family import density, log, logarithm, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 2.3, 1.4", "0.4482")
def logpdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density proportional to z^(a - 1) (1 - z)^(b - 1), z = (x - loc) / scale in [0, 1]."""
    return at_least_float32(_logpdf, *operands("beta.logpdf", x, a, b, loc, scale))


def _logpdf(x: Array, a: Array, b: Array, loc: Array, scale: Array) -> Array:
    within = ~((x < loc) | (x > loc + scale))
    z = jnp.where(within, (x - loc) / scale, 0.5)
    value = within_support(within, xlogy(a - 1, z) + xlog1py(b - 1, -z) - betaln(a, b) - log(scale))
    return jnp.where((a <= 0) | (b <= 0) | (scale <= 0), float("nan"), value)


pdf = density(logpdf, "0.7, 2.3, 1.4", "1.5655")


def _position(x: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    return clamp(like(z, 0), z, like(z, 1))


@_described("0.7, 2.3, 1.4", "0.5839")
def cdf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, a, b, loc, scale = operands("beta.cdf", x, a, b, loc, scale)
    return betainc(a, b, _position(x, loc, scale))


@_described("0.7, 2.3, 1.4", "0.4161")
def sf(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    x, a, b, loc, scale = operands("beta.sf", x, a, b, loc, scale)
    return betainc(b, a, 1 - _position(x, loc, scale))


def _below(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    return jnp.less_equal(x, loc)


def _above(x: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    return jnp.greater_equal(x, jnp.add(loc, scale))


logcdf = logarithm(cdf, "logcdf", "0.7, 2.3, 1.4", "-0.5381", _below)
logsf = logarithm(sf, "logsf", "0.7, 2.3, 1.4", "-0.8768", _above)
