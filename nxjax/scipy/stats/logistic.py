"""Logistic distribution."""

from __future__ import annotations

from typing import Any

from nxjax.ops.elementary import exp
from nxjax.ops.elementary import logistic as expit
from nxjax.scipy.special.entropies import logit
from nxjax.scipy.stats.family import density, log, log1p, operands
from nxjax.trace.core import Array


def logpdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density exp(-z) / (scale (1 + exp(-z))^2), z = (x - loc) / scale.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logpdf(0.7, 0.3, 1.7)), 4))
    -1.9307
    """
    x, loc, scale = operands("logistic.logpdf", x, loc, scale)
    z = abs((x - loc) / scale)
    return -z - 2 * log1p(exp(-z)) - log(scale)


pdf = density(logpdf, "0.7, 0.3, 1.7", "0.145")


def cdf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(cdf(0.7, 0.3, 1.7)), 4))
    0.5586
    """
    x, loc, scale = operands("logistic.cdf", x, loc, scale)
    return expit((x - loc) / scale)


def sf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number above ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(sf(0.7, 0.3, 1.7)), 4))
    0.4414
    """
    x, loc, scale = operands("logistic.sf", x, loc, scale)
    return expit(-(x - loc) / scale)


def ppf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(ppf(0.4, 0.3, 1.7)), 4))
    -0.3893
    """
    x, loc, scale = operands("logistic.ppf", x, loc, scale)
    return logit(x) * scale + loc


def isf(x: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `sf` ``x``.

    Args:
        x, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(isf(0.4, 0.3, 1.7)), 4))
    0.9893
    """
    x, loc, scale = operands("logistic.isf", x, loc, scale)
    return -logit(x) * scale + loc
