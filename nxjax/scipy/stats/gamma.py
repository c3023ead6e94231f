"""Gamma distribution."""

from __future__ import annotations

from collections.abc import Callable

from nxjax import numpy as jnp
from nxjax.ops.base import like
from nxjax.ops.select import clamp
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlogy
from nxjax.scipy.special.incomplete import gammainc, gammaincc
from nxjax.scipy.stats.family import density, log, logarithm, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 2.3", "-1.3179")
def logpdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density z^(a - 1) exp(-z) / (gamma(a) scale), z = (x - loc) / scale."""
    x, a, loc, scale = operands("gamma.logpdf", x, a, loc, scale)
    within = ~(x < loc)
    z = jnp.where(within, (x - loc) / scale, 1)
    return within_support(within, xlogy(a - 1, z) - z - lgamma(a) - log(scale))


pdf = density(logpdf, "0.7, 2.3", "0.2677")


def _within(function: Callable[[Array, Array], Array], a: Array, z: Array) -> Array:
    """An incomplete function at ``z``, which changes nothing at its ends and beyond; there is no gamma(0) number."""
    value = function(a, clamp(like(z, 0), z, like(z, float("inf"))))
    return jnp.where(a == 0, float("nan"), value)


@_described("0.7, 2.3", "0.102")
def cdf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, a, loc, scale = operands("gamma.cdf", x, a, loc, scale)
    return _within(gammainc, a, (x - loc) / scale)


@_described("0.7, 2.3", "0.898")
def sf(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    x, a, loc, scale = operands("gamma.sf", x, a, loc, scale)
    return _within(gammaincc, a, (x - loc) / scale)


def _below(x: ArrayLike, a: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    return jnp.less_equal(x, loc)


logcdf = logarithm(cdf, "logcdf", "0.7, 2.3", "-2.2829", _below)
logsf = logarithm(sf, "logsf", "0.7, 2.3", "-0.1076")
