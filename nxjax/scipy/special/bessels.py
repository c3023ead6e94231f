"""Modified Bessel functions of the first kind, orders 0 and 1."""

from __future__ import annotations

from typing import Any

from nxjax.numpy.promotion import promote_inexact
from nxjax.ops import special as ops
from nxjax.ops.elementary import exp
from nxjax.trace.core import Array


def _float(name: str, x: Any) -> Array:
    (v,) = promote_inexact(name, x)
    return v


def i0e(x: Any, /) -> Array:
    """exp(-|x|) * i0(x)"""
    return ops.bessel_i0e(_float("i0e", x))


def i0(x: Any, /) -> Array:
    """Order 0."""
    v = _float("i0", x)
    return exp(abs(v)) * ops.bessel_i0e(v)


def i1e(x: Any, /) -> Array:
    """exp(-|x|) * i1(x)"""
    return ops.bessel_i1e(_float("i1e", x))


def i1(x: Any, /) -> Array:
    """Order 1."""
    v = _float("i1", x)
    return exp(abs(v)) * ops.bessel_i1e(v)
