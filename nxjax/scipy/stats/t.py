"""Student's t distribution."""

from __future__ import annotations

import math

from nxjax.ops.special import lgamma
from nxjax.scipy.special.operands import at_least_float32
from nxjax.scipy.stats.family import density, log, log1p, operands
from nxjax.scipy.stats.family import described as _described
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


@_described("0.7, 3.0", "-1.3035")
def logpdf(x: ArrayLike, df: ArrayLike, loc: ArrayLike = 0, scale: ArrayLike = 1) -> Array:
    """Logarithm of the density with ``df`` degrees of freedom."""
    return at_least_float32(_logpdf, *operands("t.logpdf", x, df, loc, scale))


def _logpdf(x: Array, df: Array, loc: Array, scale: Array) -> Array:
    z = (x - loc) / scale
    front = lgamma((df + 1) / 2) - lgamma(df / 2) - log(math.pi * df) / 2 - log(scale)
    return front - (df + 1) / 2 * log1p(z * z / df)


pdf = density(logpdf, "0.7, 3.0", "0.2716")
