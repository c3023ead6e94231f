"""Poisson distribution."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlogy
from nxjax.scipy.special.incomplete import gammaincc
from nxjax.scipy.stats.family import inside, mass, operands
from nxjax.trace.core import Array


def logpmf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability of ``k - loc`` with mean ``mu``."""
    k, mu, loc = operands("poisson.logpmf", k, mu, loc)
    x = k - loc
    whole = (x >= 0) & (x == jnp.floor(x))
    return inside(whole, xlogy(x, mu) - lgamma(x + 1) - mu)


pmf = mass(logpmf)


def cdf(k: Any, mu: Any, loc: Any = 0) -> Array:
    """Probability of a number at most ``k``."""
    k, mu, loc = operands("poisson.cdf", k, mu, loc)
    x = k - loc
    return inside(x >= 0, gammaincc(jnp.maximum(jnp.floor(x + 1), 1), mu), 0.0)
