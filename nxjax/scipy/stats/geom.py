"""Geometric distribution."""

from __future__ import annotations

from nxjax.scipy.special.entropies import xlog1py
from nxjax.scipy.stats.family import described as _described
from nxjax.scipy.stats.family import log, mass, match_weak_type, operands, within_support
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("1, 0.3", "-1.204")
def logpmf(k: ArrayLike, p: ArrayLike, loc: ArrayLike = 0) -> Array:
    """Logarithm of the probability that the first success is at toss ``k - loc``."""
    v, p, loc = operands("geom.logpmf", k, p, loc)
    x = v - loc
    return match_weak_type(k, within_support(~(x <= 0), xlog1py(x - 1, -p) + log(p)))


pmf = mass(logpmf, "1, 0.3", "0.3")
