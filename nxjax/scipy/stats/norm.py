"""Normal distribution."""

from __future__ import annotations

import math
from typing import Any

from nxjax.ops.elementary import log
from nxjax.scipy.special.errs import log_ndtr, ndtr, ndtri
from nxjax.scipy.stats.family import density, operands
from nxjax.trace.core import Array


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density with mean ``loc`` and deviation ``scale``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logpdf(0.7, 0.3, 1.7)), 4))
    -1.4772
    """
    x, loc, scale = operands("norm.logpdf", x, loc, scale)
    variance = scale * scale
    return -((x - loc) * (x - loc) / variance + log(2 * math.pi * variance)) / 2


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.2283")


def _standard(name: str, x: Any, loc: Any, scale: Any) -> Array:
    x, loc, scale = operands(f"norm.{name}", x, loc, scale)
    return (x - loc) / scale


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(cdf(0.7, 0.3, 1.7)), 4))
    0.593
    """
    return ndtr(_standard("cdf", x, loc, scale))


def logcdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `cdf`, accurate in the tail.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logcdf(0.7, 0.3, 1.7)), 4))
    -0.5225
    """
    return log_ndtr(_standard("logcdf", x, loc, scale))


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(sf(0.7, 0.3, 1.7)), 4))
    0.407
    """
    return ndtr(-_standard("sf", x, loc, scale))


def logsf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `sf`, accurate in the tail.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logsf(0.7, 0.3, 1.7)), 4))
    -0.899
    """
    return log_ndtr(-_standard("logsf", x, loc, scale))


def ppf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``q``.

    Args:
        q, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(ppf(0.4, 0.3, 1.7)), 4))
    -0.1307
    """
    q, loc, scale = operands("norm.ppf", q, loc, scale)
    return ndtri(q) * scale + loc


def isf(q: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `sf` ``q``.

    Args:
        q, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(isf(0.4, 0.3, 1.7)), 4))
    0.7307
    """
    q, loc, scale = operands("norm.isf", q, loc, scale)
    return -ndtri(q) * scale + loc
