"""Poisson distribution."""

from __future__ import annotations

import math

from nxjax import numpy as jnp
from nxjax.numpy.documented import shown as _shown
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlogy
from nxjax.scipy.special.incomplete import gammaincc
from nxjax.scipy.stats.family import described as _described
from nxjax.scipy.stats.family import exp, log, mass, match_weak_type, operands, within_support
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import fori_loop
from nxjax.typing import ArrayLike


@_described("1, 2.3", "-1.4671")
def logpmf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability of ``k - loc`` with mean ``mu``."""
    k, mu, loc = operands("poisson.logpmf", k, mu, loc)
    x = k - loc
    outside = (x < 0) | (x - jnp.floor(x) > 0)  # nan is not, and stays
    return within_support(~outside, xlogy(x, mu) - lgamma(x + 1) - mu)


pmf = mass(logpmf, "1, 2.3", "0.2306")


@_described("1, 2.3", "0.3309")
def cdf(k: ArrayLike, mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Probability of a number at most ``k``."""
    v, mu, loc = operands("poisson.cdf", k, mu, loc)
    x = v - loc
    return match_weak_type(k, within_support(~(x < 0), gammaincc(jnp.maximum(jnp.floor(x + 1), 1), mu), 0.0))


@_shown("print(round(float(entropy(5.0)), 3))", "2.204")
def entropy(mu: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Shannon's entropy of the distribution with mean ``mu``; ``loc`` does not change it.

    Args:
        mu: real array; integers become float.
        loc: real array, which broadcasts with ``mu``.

    Returns:
        Array of the common shape and float dtype; 0 at 0 and NaN for negative ``mu``. Up to 100 the sum of -p log p
        over all k whose p counts, beyond the first terms of the expansion of Evans, Boersma, Blachman & Jagers, "The
        entropy of a Poisson distribution", SIAM Review 30 (1988). Relative error below 1e-6, or 1e-5 in float32.
    """
    mu, _ = operands("poisson.entropy", mu, loc)
    valid = mu > 0
    near = jnp.where(valid & (mu < 100), mu, 1)
    # Up to mu + 10 sqrt(mu) + 20; the rows of a loop, not of an array of 250 times the size.
    total = fori_loop(0, 220, lambda k, s: s + _information(k.astype(near.dtype), near), near * 0)
    far = jnp.maximum(mu, 100)
    r = 1 / far
    asymptotic = 0.5 * log(2 * math.pi * math.e * far) - r * (1 / 12 + r * (1 / 24 + r * (19 / 360)))
    value = jnp.where(mu == 0, 0.0, jnp.where(mu < 100, total, asymptotic))
    return jnp.where(mu >= 0, value, float("nan"))


def _information(k: Array, mu: Array) -> Array:
    logp = k * log(mu) - lgamma(k + 1) - mu
    return -exp(logp) * logp
