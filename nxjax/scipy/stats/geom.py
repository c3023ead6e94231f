"""Geometric distribution."""

from __future__ import annotations

from typing import Any

from nxjax.scipy.special.entropies import xlog1py
from nxjax.scipy.stats.family import as_strong_as, inside, log, mass, operands
from nxjax.trace.core import Array


def logpmf(k: Any, p: Any, loc: Any = 0) -> Array:
    """Logarithm of the probability that the first success is at toss ``k - loc``.

    Args:
        k, p, loc: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logpmf(1, 0.3)), 4))
    -1.204
    """
    v, p, loc = operands("geom.logpmf", k, p, loc)
    x = v - loc
    return as_strong_as(k, inside(~(x <= 0), xlog1py(x - 1, -p) + log(p)))


pmf = mass(logpmf, "1, 0.3", "0.3")
