"""Von Mises distribution, the normal distribution of angles."""

from __future__ import annotations

import math

from nxjax import numpy as jnp
from nxjax.ops.special import bessel_i0e
from nxjax.scipy.stats.family import density, log, operands
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 1.5", "-1.1894")
def logpdf(x: ArrayLike, kappa: ArrayLike) -> Array:
    """Logarithm of the density exp(kappa cos x) / (2 pi i0(kappa)); NaN for kappa <= 0."""
    x, kappa = operands("vonmises.logpdf", x, kappa)
    # cos x - 1, without overflow of i0
    value = kappa * (jnp.cos(x) - 1) - log(2 * math.pi * bessel_i0e(kappa))
    return jnp.where(kappa > 0, value, float("nan"))


pdf = density(logpdf, "0.7, 1.5", "0.3044")
