"""Cauchy distribution."""

from __future__ import annotations

import math

import numpy as np

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import density, derived, log, log1p, operands, standard
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-1.7292")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density 1 / (pi scale (1 + z^2)), z = (x - loc) / scale."""
    z, scale = standard("cauchy.logpdf", x, loc, scale)
    return -log(math.pi * scale) - log1p(z * z)


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.1774")


@_described("0.7, 0.3, 1.7", "0.5736")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    return _below(standard("cauchy.cdf", x, loc, scale)[0])


@_described("0.7, 0.3, 1.7", "0.4264")
def sf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number above ``x``."""
    x, loc, scale = operands("cauchy.sf", x, loc, scale)
    return _below((loc - x) / scale)


def _below(z: Array) -> Array:
    # 1/2 + atan(z) / pi, but of an angle that gets small in the tail, where the sum has no digits left.
    return jnp.arctan2(1, -z) / math.pi


def _log(p: Array) -> Array:
    # Where no probability is left, it does not change.
    none = p == 0
    return jnp.where(none, -np.inf, log(jnp.where(none, 1, p)))


logcdf, logsf = (
    derived(_log, f, f"log{f.__name__}", f"Logarithm of `{f.__name__}`; arguments as there.", "0.7, 0.3, 1.7", shown)
    for f, shown in ((cdf, "-0.5559"), (sf, "-0.8523"))
)


@_described("0.4, 0.3, 1.7", "-0.2524")
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``q``; NaN outside [0, 1]."""
    q, loc, scale = operands("cauchy.ppf", q, loc, scale)
    return loc + _quantile(q) * scale


def _quantile(q: Array) -> Array:
    # tan(pi (q - 1/2)); in the tails of the angle to the nearer end: next to a pole, the sign of a tangent is chance.
    tail = jnp.abs(q - 0.5) > 0.25
    angle = math.pi * jnp.where(tail, jnp.minimum(q, 1 - q), q - 0.5)
    t = jnp.tan(angle)
    z = jnp.where(tail, jnp.where(q < 0.5, -1.0, 1.0) / jnp.where(tail, t, 1), t)
    return jnp.where((q >= 0) & (q <= 1), z, np.nan)


@_described("0.4, 0.3, 1.7", "0.8524")
def isf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `sf`: the value at which `sf` is ``q``; NaN outside [0, 1]."""
    q, loc, scale = operands("cauchy.isf", q, loc, scale)
    return loc - _quantile(q) * scale
