"""Bessel functions of the first kind, and modified ones of orders 0 and 1 (DLMF chapter 10)."""

from __future__ import annotations

import functools
from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import promote_inexact, static_int
from nxjax.ops import special as ops
from nxjax.ops.elementary import exp
from nxjax.scipy.special.operands import at_least_float32, described, reals, widening
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp


def _i0_value(x: Array) -> Array:
    half = exp(abs(x) / 2)  # exp(|x|) is infinite before the function is
    return half * ops.bessel_i0e(x) * half


def _i1_value(x: Array) -> Array:
    half = exp(abs(x) / 2)
    return half * ops.bessel_i1e(x) * half


def _i1_slope(t: Array, y: Array, x: Array) -> Array:
    origin = x == 0
    return t * jnp.where(origin, 0.5, _i0(x) - y / jnp.where(origin, 1, x))


# DLMF 10.29.3 and 10.29.2.
_i0, _i1 = widening(_i0_value, lambda t, y, x: t * _i1(x)), widening(_i1_value, _i1_slope)


@described("2.0", "2.2796")
def i0(x: ArrayLike) -> Array:
    """The modified Bessel function I_0(x) (DLMF 10.25.2)."""
    return _i0(*promote_inexact("i0", x))


@described("2.0", "1.5906")
def i1(x: ArrayLike) -> Array:
    """The modified Bessel function I_1(x) (DLMF 10.25.2)."""
    return _i1(*promote_inexact("i1", x))


def _ratios(z: Array, v: int, n_iter: int) -> Array:
    """J_0(z), ..., J_v(z) in the first axis."""
    # Miller's algorithm (DLMF 3.6) in the ratios r_k = J_k / J_(k-1), which neither overflow nor vanish together.
    r, total, found = z * 0, z * 0, []
    tiny = float(dtypes.float_info(z.dtype).tiny) * 1e4
    for k in range(n_iter + 1, 0, -1):
        below = 2 * k - z * r
        r = z / jnp.where(below == 0, tiny, below)
        # The sum of 2 J_j over even j >= k, relative to J_(k-1), so that J_0 + 2 J_2 + 2 J_4 + ... = 1 (10.12.4).
        total = r * (total + 2 * ((k + 1) % 2) * (k <= n_iter))
        if k <= v:
            found.append(r)
    orders = [1 / (1 + total)]
    for ratio in reversed(found):
        orders.append(orders[-1] * ratio)
    return jnp.stack(orders)


@functools.cache
def _orders(v: int, n_iter: int) -> Any:
    @custom_jvp
    def function(z: Array) -> Array:
        return at_least_float32(lambda w: _ratios(w, v, n_iter), z)

    @function.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (z,), (t,) = primals, tangents
        wide = _orders(v + 1, n_iter)(z)
        # DLMF 10.6.1 and 10.6.3
        below = jnp.concatenate([-wide[1:2], wide[:v]])
        return wide[: v + 1], t * jnp.concatenate([below[:1], (below[1:] - wide[2:]) / 2])

    return function


@shown("print(bessel_jn(1.0, v=2).round(4))", "[0.7652 0.4401 0.1149]")
def bessel_jn(z: ArrayLike, *, v: int, n_iter: int = 50) -> Array:
    """Bessel functions of the first kind J_0(z), ..., J_v(z) (DLMF 10.2.2), by Miller's backward recurrence.

    Args:
        z: real array of any shape; integers become float.
        v: the greatest order, static.
        n_iter: where the recurrence starts, static; some 20 more than both |z| and ``v`` are enough for float32, 50
            for float64.

    Returns:
        Array ``[v + 1, *z.shape]`` of the dtype of ``z``; 1, 0, 0, ... at z = 0.

    Raises:
        ParameterError: complex input, or an order that is negative or traced.
    """
    (x,) = reals("bessel_jn", z)
    order, count = static_int("bessel_jn: v", v), static_int("bessel_jn: n_iter", n_iter)
    if order < 0:
        raise ParameterError("bessel_jn: v is not negative", got=order)
    return _orders(order, max(order, count))(x)
