"""Multinomial distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.numpy.documented import shown as _shown
from nxjax.numpy.promotion import promote_inexact
from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlogy
from nxjax.scipy.stats.family import mass, within_support
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_shown("print(round(float(logpmf(jnp.array([1, 2]), 3, jnp.array([0.3, 0.7]))), 4))", "-0.8187")
def logpmf(x: ArrayLike, n: ArrayLike, p: ArrayLike) -> Array:
    """Logarithm of the probability of counts ``x`` (last axis) in ``n`` draws with probabilities ``p``.

    Args:
        x: [..., k] counts.
        n: their sum; elsewhere the probability is 0.
        p: [..., k].
    """
    x, n, p = promote_inexact("scipy.stats.multinomial.logpmf", x, n, p)
    value = lgamma(n + 1) + jnp.sum(xlogy(x, p) - lgamma(x + 1), axis=-1)
    return within_support(~(abs(jnp.sum(x, axis=-1) - n) > 0), value)


pmf = mass(logpmf, "jnp.array([1, 2]), 3, jnp.array([0.3, 0.7])", "0.441")
