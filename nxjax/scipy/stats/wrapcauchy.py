"""Cauchy distribution wrapped around the circle."""

from __future__ import annotations

import math

from nxjax import numpy as jnp
from nxjax.scipy.stats.family import density, log, operands, within_support
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 0.4", "-1.411")
def logpdf(x: ArrayLike, c: ArrayLike) -> Array:
    """Logarithm of the density (1 - c^2) / (2 pi (1 + c^2 - 2 c cos x)) on [0, 2 pi), 0 < c < 1."""
    x, c = operands("wrapcauchy.logpdf", x, c)
    value = log(1 - c * c) - math.log(2 * math.pi) - log(1 + c * c - 2 * c * jnp.cos(x))
    value = within_support(~((x < 0) | (x > 2 * math.pi)), value)
    return jnp.where((c > 0) & (c < 1), value, float("nan"))


pdf = density(logpdf, "0.7, 0.4", "0.2439")
