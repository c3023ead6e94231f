"""Bernoulli distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.special.entropies import xlog1py, xlogy
from nxjax.scipy.stats.family import described as _described
from nxjax.scipy.stats.family import mass, match_weak_type, operands, within_support
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("1, 0.3", "-1.204")
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability of ``k - loc``, which is 1 with probability ``p`` and else 0."""
    v, p, loc = operands("bernoulli.logpmf", k, p, loc)
    x = v - loc
    return match_weak_type(k, within_support((x == 0) | (x == 1) | jnp.isnan(x), xlogy(x, p) + xlog1py(1 - x, -p)))


pmf = mass(logpmf, "1, 0.3", "0.3")


@_described("1, 0.3", "1.0")
def cdf(k: ArrayLike, p: ArrayLike) -> Array:
    """Probability of a number at most ``k``."""
    k, p = operands("bernoulli.cdf", k, p)
    return jnp.where(
        (p < 0) | (p > 1) | jnp.isnan(k + p), float("nan"), jnp.where(k < 0, 0.0, jnp.where(k < 1, 1 - p, 1.0))
    )


@_described("0.4, 0.3", "0.0")
def ppf(q: ArrayLike, p: ArrayLike) -> Array:
    """The smallest number with `cdf` at least ``q``; NaN outside [0, 1]."""
    q, p = operands("bernoulli.ppf", q, p)
    valid = (q >= 0) & (q <= 1) & (p >= 0) & (p <= 1)
    return jnp.where(valid, jnp.where(q <= 1 - p, 0.0, 1.0), float("nan")).astype(q.dtype)
