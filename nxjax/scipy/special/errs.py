"""Error functions and the normal distribution function."""

from __future__ import annotations

import decimal
import functools
import math
from decimal import Decimal
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.numpy.documented import shown
from nxjax.ops import special as ops
from nxjax.ops.elementary import exp, log, log1p
from nxjax.scipy.special.operands import at_least_float32, described, real, reals, strip_weak_type
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp

_ROOT_HALF = math.sqrt(0.5)
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)


def _strong(name: str, x: Any) -> Array:
    return strip_weak_type(real(name, x))


@described("1.0", "0.8413")
def ndtr(x: ArrayLike) -> Array:
    """The probability of a standard normal number below ``x``, erfc(-x / sqrt(2)) / 2 (DLMF 7.18)."""
    return 0.5 * ops.erfc(_strong("ndtr", x) * -_ROOT_HALF)


def _log_pdf(x: Array) -> Array:
    return -0.5 * x * x - _LOG_ROOT_2PI


@shown("print(round(float(log_ndtr(-30.0)), 3))", "-454.321", raises="ParameterError: for another ``series_order``.")
def log_ndtr(x: ArrayLike, series_order: int = 3) -> Array:
    """log(ndtr(x)), accurate in both tails.

    Args:
        x: array.
        series_order: from 0 to 30; taken for JAX's sake, the number of terms is chosen by the dtype.

    Returns:
        Array of the shape and float dtype of ``x``.
    """
    if not isinstance(series_order, int) or not 0 <= series_order <= 30:
        raise ParameterError("log_ndtr: series_order", got=repr(series_order), expected="0 to 30")
    return at_least_float32(_log_ndtr, _strong("log_ndtr", x))


def _lower(x: Array) -> float:
    """Below it the series of `_mills_excess` is exact to the dtype."""
    return -20.0 if x.dtype == dtypes.float64 else -8.0


def _mills_excess(far: Array) -> Array:
    """``m - 1`` for ``ndtr(x) = m exp(-x^2 / 2) / (-x sqrt(2 pi))``: the asymptotic series (NIST DLMF 7.12.1)."""
    square = 1 / (far * far)
    return -square * (1 - 3 * square * (1 - 5 * square * (1 - 7 * square * (1 - 9 * square))))


@custom_jvp
def _log_ndtr(x: Array) -> Array:
    lower = _lower(x)
    far = jnp.minimum(x, lower)
    by_series = _log_pdf(far) - log(-far) + log1p(_mills_excess(far))
    middle = log(0.5 * ops.erfc(-jnp.clip(x, lower, 0.0) * _ROOT_HALF))
    upper = log1p(-0.5 * ops.erfc(jnp.maximum(x, 0.0) * _ROOT_HALF))
    return jnp.where(x > 0, upper, jnp.where(x > lower, middle, by_series))


@custom_jvp
def _log_ndtr_slope(x: Array) -> Array:
    """h = pdf(x) / ndtr(x), close to -x far below zero: no difference of logarithms, which are about x^2 / 2."""
    lower = _lower(x)
    far, near = jnp.minimum(x, lower), jnp.maximum(x, lower)
    direct = exp(_log_pdf(near)) / (0.5 * ops.erfc(-near * _ROOT_HALF))
    return jnp.where(x > lower, direct, -far / (1 + _mills_excess(far)))


@custom_jvp
def _slope_excess(x: Array) -> Array:
    """x + h, which tends to zero far below zero: h' = -h (x + h)."""
    lower = _lower(x)
    far, near = jnp.minimum(x, lower), jnp.maximum(x, lower)
    excess = _mills_excess(far)
    return jnp.where(x > lower, near + _log_ndtr_slope(near), far * (excess / (1 + excess)))


_log_ndtr.defjvps(lambda t, y, x: t * _log_ndtr_slope(x))
_log_ndtr_slope.defjvps(lambda t, h, x: -t * h * _slope_excess(x))
_slope_excess.defjvps(lambda t, g, x: t * (1 - _log_ndtr_slope(x) * g))


# Acklam's rational approximations of the normal quantile function, relative error below 1.2e-9.
_A = (
    -39.69683028665376,
    220.9460984245205,
    -275.9285104469687,
    138.3577518672690,
    -30.66479806614716,
    2.506628277459239,
)
_B = (-54.47609879822406, 161.5858368580409, -155.6989798598866, 66.80131188771972, -13.28068155288572, 1.0)
_C = (
    -0.007784894002430293,
    -0.3223964580411365,
    -2.400758277161838,
    -2.549732539343734,
    4.374664141464968,
    2.938163982698783,
)
_D = (0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416, 1.0)


def _polynomial(coefficients: tuple[float, ...], x: Array) -> Array:
    y = x * 0 + coefficients[0]
    for c in coefficients[1:]:
        y = y * x + c
    return y


@custom_jvp
def _ndtri(p: Array) -> Array:
    tail_at = 0.02425
    inside = (p > 0) & (p < 1)
    q = jnp.where(inside, p, 0.5)
    small = jnp.minimum(q, 1 - q)
    r = jnp.sqrt(-2 * log(jnp.minimum(small, tail_at)))
    tail = _polynomial(_C, r) / _polynomial(_D, r)
    half = jnp.maximum(small, tail_at) - 0.5
    s = half * half
    centre = half * _polynomial(_A, s) / _polynomial(_B, s)
    x = jnp.where(small < tail_at, tail, centre)  # the quantile of `small`, at most 0
    # One step of Halley's method makes it exact to rounding.
    error = 0.5 * ops.erfc(-x * _ROOT_HALF) - small
    u = error * math.sqrt(2 * math.pi) * exp(0.5 * x * x)
    x = x - u / (1 + 0.5 * x * u)
    x = jnp.where(q < 0.5, x, -x)
    x = jnp.where(p == 0, -np.inf, jnp.where(p == 1, np.inf, x))
    return jnp.where((p >= 0) & (p <= 1), x, np.nan)


_ndtri.defjvps(lambda t, y, p: t * exp(-_log_pdf(y)))


@shown("print(round(float(ndtri(0.975)), 4))", "1.96")
def ndtri(p: ArrayLike) -> Array:
    """The inverse of `ndtr`.

    Args:
        p: real array of any shape.

    Returns:
        Array of the shape of ``p`` and float dtype, NaN outside [0, 1]; the slope is infinite at 0 and 1.
    """
    v = _strong("ndtri", p)
    wide = v.astype(dtypes.float32) if v.dtype.itemsize < 4 else v
    return _ndtri(wide).astype(v.dtype)


@functools.cache
def _legendre(points: int) -> tuple[tuple[float, float], ...]:
    """Gauss-Legendre points and weights on [0, 1], the nearest numbers on every machine."""
    found: list[tuple[float, float]] = []
    with decimal.localcontext(prec=40):
        for i in reversed(range(points)):
            x = slope = Decimal(math.cos(math.pi * (i + 0.75) / (points + 0.5)))
            for _ in range(7):  # Newton's method doubles the digits
                before, p = Decimal(1), x
                for k in range(2, points + 1):
                    before, p = p, ((2 * k - 1) * x * p - (k - 1) * before) / k
                slope = points * (before - x * p) / (1 - x * x)
                x -= p / slope
            found.append((float((x + 1) / 2), float(1 / ((1 - x * x) * slope * slope))))
    return tuple(found)


@custom_jvp
def _owens_t(h: Array, a: Array) -> Array:
    size = abs(h)
    slope = abs(a)
    # Patefield & Tandy, "Fast and accurate calculation of Owen's T function", J. Stat. Softw. 5 (2000), equation 2.3
    # for |a| > 1.
    steep = slope > 1
    u = jnp.where(steep, 1 / jnp.where(steep, slope, 1), slope)
    g = jnp.where(steep, size * jnp.where(size > 0, slope, 0), size)
    # exp(-g^2 / 2) times the integral of exp(-(g s)^2 / 2) / (1 + s^2) up to u, which ends where the first factor does.
    end = jnp.minimum(u, 9 / jnp.maximum(g, 1))
    total = end * 0
    for point, weight in _legendre(32 if h.dtype == dtypes.float64 else 20):
        s = end * point
        bounded = jnp.minimum(g, 1e18) * s
        total = total + weight * exp(-0.5 * (bounded * bounded)) / (1 + s * s)
    inner = exp(-0.5 * (g * g)) * end * total / (2 * math.pi)
    near, far = ops.erfc(size * _ROOT_HALF), ops.erfc(g * _ROOT_HALF)
    outer = jnp.where(
        g <= 0.67,
        0.25 - 0.25 * ops.erf(size * _ROOT_HALF) * ops.erf(g * _ROOT_HALF) - inner,
        0.25 * (near + far - near * far) - inner,
    )
    value = jnp.where(steep, outer, inner)
    value = jnp.where(jnp.isnan(h) | jnp.isnan(a), np.nan, value)
    return jnp.where(a < 0, -value, value)


_owens_t.defjvps(
    lambda t, y, h, a: t * (-exp(-0.5 * h * h) * ops.erf(a * h * _ROOT_HALF) / (2 * math.sqrt(2 * math.pi))),
    lambda t, y, h, a: t * (exp(-0.5 * (1 + a * a) * h * h) / (2 * math.pi * (1 + a * a))),
)


@shown("print(round(float(owens_t(1.0, 0.5)), 6))", "0.043065", raises="ParameterError: complex input.")
def owens_t(h: ArrayLike, a: ArrayLike) -> Array:
    """Owen's T function, the chance that X > h and 0 < Y < a X for independent standard normal X and Y.

    Args:
        h, a: real arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and float dtype, float32 for half floats; even in ``h`` and odd in ``a``.
        Gauss-Legendre quadrature of Owen, "Tables for computing bivariate normal probabilities", Ann. Math. Stat. 27
        (1956), with a relative error below 1e-14 (float64) or 2e-6 (float32), and that of exp(-h^2 / 2).
    """
    h, a = (strip_weak_type(x) for x in reals("owens_t", h, a))
    if h.dtype.itemsize < 4:
        h, a = h.astype(dtypes.float32), a.astype(dtypes.float32)
    return _owens_t(h, a)
