"""Pareto distribution."""

from __future__ import annotations

from typing import Any

from nxjax.scipy.stats.family import density, exp, exponential, inside, log, log1p, operands
from nxjax.trace.core import Array


def logpdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the density b / (scale z^(b + 1)), z = (x - loc) / scale >= 1.

    Args:
        x, b, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logpdf(2.5, 1.5)), 4))
    -1.8853
    """
    x, b, loc, scale = operands("pareto.logpdf", x, b, loc, scale)
    return inside(~(x < loc + scale), log(b / scale) - (b + 1) * log((x - loc) / scale))


pdf = density(logpdf, "2.5, 1.5", "0.1518")


def logsf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of the probability of a number above ``x``.

    Args:
        x, b, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logsf(2.5, 1.5)), 4))
    -1.3744
    """
    x, b, loc, scale = operands("pareto.logsf", x, b, loc, scale)
    return inside(~(x < loc + scale), -b * log((x - loc) / scale), 0.0)


sf = exponential(logsf, "sf", "2.5, 1.5", "0.253")


def logcdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Logarithm of `cdf`.

    Args:
        x, b, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(logcdf(2.5, 1.5)), 4))
    -0.2917
    """
    x, b, loc, scale = operands("pareto.logcdf", x, b, loc, scale)
    return inside(~(x < loc + scale), log1p(-(((x - loc) / scale) ** -b)))


def cdf(x: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """Probability of a number at most ``x``.

    Args:
        x, b, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(cdf(2.5, 1.5)), 4))
    0.747
    """
    x, b, loc, scale = operands("pareto.cdf", x, b, loc, scale)
    return inside(~(x < loc + scale), 1 - ((x - loc) / scale) ** -b, 0.0)


def ppf(q: Any, b: Any, loc: Any = 0, scale: Any = 1) -> Array:
    """The number with `cdf` ``q``; NaN outside [0, 1].

    Args:
        q, b, loc, scale: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype.

    >>> print(round(float(ppf(0.4, 1.5)), 4))
    1.4057
    """
    q, b, loc, scale = operands("pareto.ppf", q, b, loc, scale)
    return inside((q >= 0) & (q <= 1), loc + scale * exp(-log1p(-q) / b), float("nan"))
