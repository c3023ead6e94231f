"""Negative binomial distribution."""

from __future__ import annotations

from nxjax.ops.special import lgamma
from nxjax.scipy.special.entropies import xlog1py, xlogy
from nxjax.scipy.stats.family import described as _described
from nxjax.scipy.stats.family import mass, match_weak_type, operands, within_support
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("1, 5, 0.3", "-4.7671")
def logpmf(k: ArrayLike, n: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability of ``k - loc`` failures before the ``n``-th success."""
    v, n, p, loc = operands("nbinom.logpmf", k, n, p, loc)
    y = v - loc
    ways = lgamma(n + y) - lgamma(n) - lgamma(y + 1)
    return match_weak_type(k, within_support(~(y < 0), ways + xlogy(n, p) + xlog1py(y, -p)))


pmf = mass(logpmf, "1, 5, 0.3", "0.0085")
