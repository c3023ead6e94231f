"""The softmaxes, as SciPy has them; logsumexp is in `nxjax.numpy.softmaxes`."""

from __future__ import annotations

from collections.abc import Sequence

from nxjax.numpy.softmaxes import logsumexp as logsumexp
from nxjax.numpy.softmaxes import normalized
from nxjax.ops import composite_softmax as ops
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array


def softmax(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """exp(x) / sum(exp(x)) over ``axis``, without overflow.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all, static.

    Returns:
        Array of the shape and float dtype of ``x``; NaN where an element is +inf.

    >>> print(softmax(nx.array([0.0, 1.0])).round(4))
    [0.2689 0.7311]
    """
    return normalized("softmax", ops.softmax, x, axis)


def log_softmax(x: ArrayLike, /, *, axis: int | Sequence[int] | None = None) -> Array:
    """log(softmax(x)) over ``axis``, without underflow.

    Args:
        x: array; integers become float.
        axis: an axis, a tuple of axes, or None for all, static.

    Returns:
        Array of the shape and float dtype of ``x``; NaN where an element is +inf.

    >>> print(log_softmax(nx.array([0.0, 1.0])).round(4))
    [-1.3133 -0.3133]
    """
    return normalized("log_softmax", ops.log_softmax, x, axis)
