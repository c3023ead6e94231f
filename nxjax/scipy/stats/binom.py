"""Binomial distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlog1py, xlogy
from nxjax.scipy.stats.family import described as _described
from nxjax.scipy.stats.family import mass, operands, within_support
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("1, 5, 0.3", "-1.0212")
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability of ``k - loc`` successes in ``n`` tosses of probability ``p``."""
    k, n, p, loc = operands("binom.logpmf", k, n, p, loc)
    y = k - loc
    ways = lgamma(n + 1) - lgamma(y + 1) - lgamma(n - y + 1)
    chance = xlogy(y, p) + xlog1py(n - y, -p)
    certain = (chance == 0) | ((y == 0) & (n == 0))
    return within_support(~((y < 0) | (y >= n + 1)), jnp.where(certain, 0, ways + chance))


pmf = mass(logpmf, "1, 5, 0.3", "0.3601")
