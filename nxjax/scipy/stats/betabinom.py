"""Beta-binomial distribution."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.scipy.special.gammas import betaln
from nxjax.scipy.special.operands import at_least_float32
from nxjax.scipy.stats.family import described as _described
from nxjax.scipy.stats.family import log, mass, match_weak_type, operands, within_support
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("1, 5, 1.2, 2.3", "-1.4034")
def logpmf(k: ArrayLike, n: ArrayLike, a: ArrayLike, b: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability of ``k - loc`` successes in ``n`` tosses whose probability is beta(a, b)."""
    v, n, a, b, loc = operands("betabinom.logpmf", k, n, a, b, loc)
    return match_weak_type(k, at_least_float32(_logpmf, v, n, a, b, loc))


def _logpmf(k: Array, n: Array, a: Array, b: Array, loc: Array) -> Array:
    y = jnp.floor(k) - loc
    value = betaln(y + a, n - y + b) - betaln(a, b) - log(n + 1) - betaln(n - y + 1, y + 1)
    value = within_support(~((y < 0) | (y > n)), value)
    return jnp.where((n < 0) | (a <= 0) | (b <= 0), float("nan"), value)


pmf = mass(logpmf, "1, 5, 1.2, 2.3", "0.2458")
