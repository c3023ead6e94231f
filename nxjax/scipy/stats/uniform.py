"""Uniform distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.special.operands import strip_weak_type
from nxjax.scipy.stats.family import density, log, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.3, 1.7", "-0.5306")
def logpdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density 1 / scale on [loc, loc + scale]."""
    x, loc, scale = operands("uniform.logpdf", x, loc, scale)
    z = (x - loc) / scale
    # Nan is not outside, and stays.
    return within_support(~((x < loc) | (x > loc + scale)), jnp.where(z == z, -log(scale), z))


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.5882")


@_described("0.7, 0.3, 1.7", "0.2353")
def cdf(x: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Probability of a number at most ``x``."""
    x, loc, scale = operands("uniform.cdf", x, loc, scale)
    end = loc + scale
    value = within_support(~(x > end), (x - loc) / scale, 1.0)
    return strip_weak_type(within_support(~(x < loc), value, 0.0))


@_described("0.4, 0.3, 1.7", "0.98")
def ppf(q: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """The inverse of `cdf`: the value at which `cdf` is ``q``; NaN outside [0, 1]."""
    q, loc, scale = operands("uniform.ppf", q, loc, scale)
    return within_support((q >= 0) & (q <= 1), q * scale + loc, float("nan"))
