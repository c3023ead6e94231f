"""`nx.scipy.integrate`: integrals of sampled functions."""

from __future__ import annotations

from nxjax import numpy as jnp
from nxjax.numpy.documented import shown as _shown
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike

__all__ = ["trapezoid"]


@_shown("float(trapezoid(jnp.array([0.0, 1.0, 2.0])))", "2.0")
def trapezoid(y: ArrayLike, x: ArrayLike | None = None, dx: ArrayLike = 1.0, axis: int = -1) -> Array:
    """The integral of ``y`` along ``axis`` by the trapezoidal rule.

    Args:
        y: samples; integers become float.
        x: where they were taken, ``[n]`` or of the shape of ``y``; otherwise they are ``dx`` apart.
    """
    return jnp.trapezoid(y, x, dx, axis)
