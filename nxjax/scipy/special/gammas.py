"""The gamma function and its relatives."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import as_operand, inexact_operands, promote_inexact, static_int
from nxjax.ops import special as ops
from nxjax.ops.elementary import exp, log, log1p
from nxjax.scipy.special.operands import described, differentiable, promote_alike, reals, slope_of, widening
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp

_refuses = functools.partial(reals, error=DtypeError)
_LOG_ROOT_2PI = 0.5 * math.log(2 * math.pi)
# B_2k / (2k (2k - 1)), the coefficients of Stirling's series (DLMF 5.11.1).
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156, -3617 / 122400, 43867 / 244188)


def _stirling(x: Array) -> Array:
    """log gamma(x) - (x - 1/2) log x + x - log(2 pi) / 2, for x of at least 8."""
    r = 1 / x
    square = r * r
    total = r * 0 + _STIRLING[-1]
    for c in reversed(_STIRLING[:-1]):
        total = total * square + c
    return total * r


def _complex_loggamma(z: Array) -> Array:
    x, y = jnp.real(z), abs(jnp.imag(z))  # log gamma(conj z) = conj log gamma(z)
    reflect = x < 0.5
    one, zero, i = (z.dtype.type(c) for c in (1, 0, 1j))
    upper = x + i * y
    w = jnp.where(reflect, one - upper, upper)
    # The recurrence (DLMF 5.5.1) upwards; with Re w > 0 a product of two has its principal logarithm.
    logs = zero
    for k in range(0, 8, 2):
        logs = logs + log((w + k) * (w + (k + 1)))
    far = w + 8
    value = (far - 0.5) * log(far) - far + _LOG_ROOT_2PI + _stirling(far) - logs
    # The reflection formula (5.5.3). sin(pi z) = i/2 exp(-i pi z) (1 - exp(2 i pi z)), whose last factor stays in the
    # right half plane for Im z > 0, so that the sum of principal logarithms is the analytic continuation.
    theta = 2 * math.pi * (x - jnp.round(x))
    decay = exp(-2 * math.pi * y)
    half = jnp.sin(theta / 2)
    factor = (-jnp.expm1(-2 * math.pi * y) + 2 * decay * half * half) - i * (decay * jnp.sin(theta))
    factor = jnp.where(reflect, factor, one)
    turned = math.log(2 * math.pi) - log(factor) + math.pi * (i * upper - 0.5 * i) - value
    value = jnp.where(reflect, turned, value)
    return jnp.where(jnp.signbit(jnp.imag(z)), jnp.conj(value), value)


def _guarded(function: Callable[[Array], Array], z: Array) -> Array:
    """NaN at the poles and where either part is NaN, which the derivative does not see."""
    x, y = jnp.real(z), jnp.imag(z)
    bad = jnp.isnan(x) | jnp.isnan(y) | ((y == 0) & (x <= 0) & (x == jnp.floor(x)))
    return jnp.where(bad, z.dtype.type(complex(math.nan, math.nan)), function(jnp.where(bad, z.dtype.type(1), z)))


@shown("print(loggamma(1.0 + 1.0j).round(4))", "(-0.6509-0.3016j)")
def loggamma(x: ArrayLike) -> Array:
    """The principal branch of log gamma(x) (DLMF 5.2.1): cut along the negative real axis.

    Args:
        x: real or complex array of any shape; integers become float.

    Returns:
        Array of the shape and dtype of ``x``; NaN for real x < 0 and at complex poles. For complex x within 1e-14
        (complex128) or 2e-6 (complex64) of max(1, |x|).
    """
    (v,) = inexact_operands("loggamma", x)
    if v.dtype in dtypes.COMPLEX:
        return _guarded(_complex_loggamma, v)
    return jnp.where(v > 0, ops.lgamma(v), np.nan)


@described("-0.5", "-1.0", gives=": +-1 at +-0, NaN at negative integers")
def gammasgn(x: ArrayLike) -> Array:
    """The sign of gamma(x)."""
    (v,) = _refuses("gammasgn", x)
    down = jnp.floor(v)
    below = jnp.where(jnp.mod(down, 2) == 0, 1.0, -1.0)
    at_zero = jnp.where(jnp.signbit(v), -1.0, 1.0)
    sign = jnp.where(v > 0, 1.0, jnp.where(v == 0, at_zero, below))
    return jnp.where(((v == down) & (v < 0)) | jnp.isnan(v), np.nan, sign).astype(v.dtype)


def gamma(x: ArrayLike) -> Array:
    """The gamma function, (x - 1)! at positive integers (DLMF 5.2.1).

    Args:
        x: real or complex array of any shape; integers become float.

    Returns:
        Array of the shape and dtype of ``x``; +-inf at +-0, NaN at negative integers and -inf.

    >>> print(gamma(nx.array([0.5, 1.0, 5.0])).round(3))
    [ 1.772  1.    24.   ]
    """
    (v,) = inexact_operands("gamma", x)
    if v.dtype in dtypes.COMPLEX:
        return _guarded(lambda z: exp(_complex_loggamma(z)), v)
    return gammasgn(v) * exp(ops.lgamma(v))


@shown("print(round(float(polygamma(1, 2.0)), 4))", "0.6449", raises="DtypeError: for ``n`` of another dtype.")
def polygamma(n: ArrayLike, x: ArrayLike) -> Array:
    """The ``n``-th derivative of `digamma` (DLMF 5.15.1).

    Args:
        n: array of integers >= 0, which has no derivative.
        x: real array; broadcasts with ``n``.

    Returns:
        Array of the common shape and float dtype.
    """
    if as_operand(n, "polygamma").dtype not in dtypes.INTEGER:
        raise DtypeError("polygamma: n is an integer", got=as_operand(n, "polygamma").type)
    return ops.polygamma(*_refuses("polygamma", n, x))


def _zeta_series(s: Array, q: Array) -> Array:
    """Euler and Maclaurin's sum (DLMF 25.11.5), which can be differentiated in ``s``."""
    terms = 8 if s.dtype.itemsize < 8 else 16
    a = q + terms
    power = a ** (-s)
    total = power * (a / (s - 1) + 0.5)
    for k in range(terms):
        total = total + (q + k) ** (-s)
    factor = s / a
    for j in range(1, terms // 2 + 1):
        total = total + float(_bernoulli(2 * j)[-1] / math.factorial(2 * j)) * factor * power
        factor = factor * ((s + (2 * j - 1)) / a) * ((s + 2 * j) / a)
    return total


def _zeta_by_q(s: Array, q: Array) -> Array:
    slope = -s * _zeta(s + 1, q)  # DLMF 25.11.17
    pole = (q <= 0) & (q == jnp.floor(q)) & (s == 2 * jnp.floor(s / 2))
    return jnp.where(s == 1, np.nan, jnp.where(pole, -np.inf, slope))


_zeta = differentiable(lambda s, q: ops.zeta(s, q), {0: slope_of(_zeta_series, 0), 1: _zeta_by_q})


@shown("print(round(float(zeta(2.0, 1.0)), 6))", "1.644934", raises="NotImplementedError: without ``q``, as in JAX.")
def zeta(x: ArrayLike, q: ArrayLike | None = None) -> Array:
    """Hurwitz zeta function, the sum of 1 / (k + q)^x over k >= 0 (DLMF 25.11.1).

    Args:
        x: real array; NaN below 1, inf at 1.
        q: real array; broadcasts with ``x``.

    Returns:
        Array of the common shape and float dtype, with derivatives of all orders in both.
    """
    if q is None:
        raise NotImplementedError(
            "Riemann zeta function not implemented; pass q != None to compute the Hurwitz Zeta function."
        )
    return _zeta(*_refuses("zeta", x, q))


@functools.cache
def _bernoulli(n: int) -> tuple[Fraction, ...]:
    """B_0, ..., B_n (DLMF 24.2.1), from the tangent numbers of Brent & Harvey, "Fast computation of Bernoulli, Tangent
    and Secant numbers" (2013)."""
    half = n // 2
    tangent = [0, 1] + [0] * max(half - 1, 0)
    for k in range(2, half + 1):
        tangent[k] = (k - 1) * tangent[k - 1]
    for k in range(2, half + 1):
        for j in range(k, half + 1):
            tangent[j] = (j - k) * tangent[j - 1] + (j - k + 2) * tangent[j]
    found = [Fraction(1), Fraction(-1, 2)] + [Fraction(0)] * max(n - 1, 0)
    for k in range(1, half + 1):
        found[2 * k] = Fraction((-1) ** (k - 1) * 2 * k * tangent[k], 4**k * (4**k - 1))
    return tuple(found[: n + 1])


@shown("print(bernoulli(4))", "[ 1.         -0.5         0.16666667  0.         -0.03333334]")
def bernoulli(n: int) -> Array:
    """The Bernoulli numbers B_0, ..., B_n, with B_1 = -1/2 (DLMF 24.2.1).

    Args:
        n: static integer >= 0.

    Returns:
        Array ``[n + 1]`` of the default float dtype, rounded from the exact numbers; infinite where they overflow.

    Raises:
        ParameterError: for negative ``n``.
    """
    count = static_int("bernoulli", n)
    if count < 0:
        raise ParameterError("bernoulli: n must be a non-negative integer.", got=count)
    most = 258  # the last that float64 holds
    values = [float(b) for b in _bernoulli(min(count, most))]
    # Beyond, every second is infinite, with alternating sign.
    values += [
        0.0 if k % 2 else math.copysign(math.inf, -1.0 if k % 4 == 0 else 1.0) for k in range(most + 1, count + 1)
    ]
    return jnp.asarray(np.asarray(values), jnp.result_type(float))


def _betaln_value(a: Array, b: Array) -> Array:
    low, high = jnp.minimum(a, b), jnp.maximum(a, b)
    plain = ops.lgamma(low) + (ops.lgamma(high) - ops.lgamma(low + high))
    # With Stirling's series in what is large (DLMF 5.11.1) the great terms cancel on paper.
    large = (high >= 8) & (high < np.inf) & (low + high >= 8)
    u, v = jnp.where(large, low, 1), jnp.where(large, high, 8)
    gap = _stirling(v) - _stirling(u + v)
    one = ops.lgamma(u) + (gap - (u + v - 0.5) * log1p(u / v) - u * (log(v) - 1))
    w = jnp.maximum(u, 8)
    two = _stirling(w) + gap + _LOG_ROOT_2PI - (w - 0.5) * log1p(v / w) - v * log1p(w / v) - 0.5 * log(v)
    return jnp.where(large, jnp.where(u >= 8, two, one), plain)


def _betaln_slope(t: Array, y: Array, a: Array, b: Array) -> Array:
    """digamma(a) - digamma(a + b), of large ``a`` by their asymptotic series (DLMF 5.11.2), whose logarithms cancel."""
    least = 8.0 if a.dtype.itemsize < 8 else 200.0
    large = (a >= least) & (a < np.inf) & (a + b >= least) & (a + b < np.inf)
    u, v = jnp.where(large, a, least), jnp.where(large, b, 0)
    w = u + v
    r = v / (u * w)  # 1 / u - 1 / w
    far = -log1p(v / u) - r * (0.5 + (1 / u + 1 / w) * (1 / 12 - (1 / (u * u) + 1 / (w * w)) / 120))
    slope = jnp.where(large, far, ops.digamma(a) - ops.digamma(a + b))
    return t * jnp.where(abs(y) == np.inf, np.nan, slope)


_betaln = widening(_betaln_value, _betaln_slope, lambda t, y, a, b: _betaln_slope(t, y, b, a))


@described("2.0, 3.0", "-2.48491", digits=5)
def betaln(a: ArrayLike, b: ArrayLike) -> Array:
    """log |gamma(a) gamma(b) / gamma(a + b)| (DLMF 5.12.1), without cancellation for large operands."""
    a, b = _refuses("betaln", a, b)
    return _betaln(a, b)


@described("2.0, 3.0", "0.08333", digits=5)
def beta(a: ArrayLike, b: ArrayLike) -> Array:
    """gamma(a) gamma(b) / gamma(a + b) (DLMF 5.12.1).

    Raises:
        ParameterError: complex input.
    """
    a, b = reals("beta", a, b)
    return gammasgn(a) * gammasgn(b) * gammasgn(a + b) * exp(betaln(a, b))


@shown("print(round(float(factorial(5)), 3))", "120.0", raises="NotImplementedError: for ``exact``.")
def factorial(n: ArrayLike, exact: bool = False) -> Array:
    """n! = gamma(n + 1), as a float (DLMF 5.4.1).

    Args:
        n: real array of any shape; integers become float.
        exact: only False is supported, since exact integers soon overflow.

    Returns:
        Array of the shape of ``n`` and float dtype; 0 for negative ``n``.
    """
    if exact:
        raise NotImplementedError("factorial with exact=True")
    (v,) = _refuses("factorial", n)
    # The poles of what is not taken have no finite slope.
    return jnp.where(v < 0, 0, exp(ops.lgamma(jnp.where(v < 0, 0, v) + 1)))


@custom_jvp
def _poch(z: Array, m: Array) -> Array:
    # By logarithms: both gammas may overflow while their quotient does not.
    size = exp(ops.lgamma(z + m) - ops.lgamma(z))
    return jnp.where(m == 0, 1, gammasgn(z + m) * gammasgn(z) * size)


_poch.defjvps(
    lambda t, y, z, m: t * ((ops.digamma(z + m) - ops.digamma(z)) * _poch(z, m)),
    lambda t, y, z, m: t * (ops.digamma(z + m) * _poch(z, m)),
)


@described("2.0, 3.0", "24.0", gives="; 1 for m = 0")
def poch(z: ArrayLike, m: ArrayLike) -> Array:
    """Pochhammer's symbol (z)_m = gamma(z + m) / gamma(z) (DLMF 5.2.5).

    Raises:
        ParameterError: complex input.
    """
    z, m = reals("poch", z, m)
    return _poch(z, m)


@shown("print(round(float(comb(5, 2)), 3), round(float(comb(5, 2, repetition=True)), 3))", "10.0 15.0")
def comb(N: ArrayLike, k: ArrayLike, *, repetition: bool = False) -> Array:
    """The number of ways to choose ``k`` of ``N`` things (DLMF 1.2.1), as a float.

    Args:
        N, k: real arrays, which broadcast; integers become float.
        repetition: the same thing may be chosen again: the number for N + k - 1.

    Returns:
        Array of the common shape and float dtype; 0 for negative operands and k > N.
    """
    n, k = _refuses("comb", N, k)
    if repetition:
        return jnp.where((k == 0) & (n >= 0), 1.0, comb(n + k - 1, k))
    valid = (k <= n) & (n >= 0) & (k >= 0)
    n, k = jnp.where(valid, n, 0), jnp.where(valid, k, 0)
    ways = exp(ops.lgamma(n + 1) - ops.lgamma(k + 1) - ops.lgamma(n + 1 - k))
    return jnp.where(valid, ways, 0.0)


@shown("print(round(float(multigammaln(3.5, 3)), 4))", "3.8959", raises="ParameterError: for ``d`` below 1.")
def multigammaln(a: ArrayLike, d: ArrayLike) -> Array:
    """The logarithm of the gamma function of ``d`` dimensions (DLMF 35.3.1).

    Args:
        a: real array above (d - 1) / 2; integers become float.
        d: static integer of at least 1.

    Returns:
        Array of the shape and float dtype of ``a``.
    """
    (v,) = promote_inexact("multigammaln", a)
    n = static_int("multigammaln", d)
    if n < 1:
        raise ParameterError("multigammaln: d is positive", got=n)
    total = ops.lgamma(v)
    for j in range(1, n):
        total = total + ops.lgamma(v - j / 2)
    return total + n * (n - 1) / 4 * math.log(math.pi)


def _power_by_log(power: Array, logarithm: Array) -> Array:
    """(exp(power * logarithm) - 1) / power, or the logarithm where the power is 0."""
    zero = power == 0
    safe = jnp.where(zero, 1, power)
    return jnp.where(zero, logarithm, jnp.expm1(safe * logarithm) / safe)


def _slope_by_power(y: Array, power: Array, logarithm: Array) -> Array:
    """The slope of `_power_by_log` in its power, by its series where terms would cancel; none where the power is 0."""
    u = power * logarithm
    near = abs(u) < 0.1
    few = jnp.where(near, u, 0)
    series = logarithm * logarithm * (1 / 2 + few * (1 / 3 + few * (1 / 8 + few * (1 / 30 + few / 144))))
    zero = power == 0
    far = (exp(u) * logarithm - y) / jnp.where(zero, 1, power)
    return jnp.where(zero, 0, jnp.where(near, series, far))


def _box_cox(name: str, logarithm: Callable[[Array], Array]) -> Any:
    """The transformation of what has this logarithm."""

    def value(x: Array, power: Array) -> Array:
        return _power_by_log(power, logarithm(x))

    value.__name__ = name
    function = custom_jvp(value)
    function.defjvps(
        lambda t, y, x, power: t * exp((power - 1) * logarithm(x)),
        lambda t, y, x, power: t * _slope_by_power(y, power, logarithm(x)),
    )
    return function


_boxcox, _boxcox1p = _box_cox("_boxcox", log), _box_cox("_boxcox1p", log1p)


@shown("print(round(float(boxcox(2.0, 0.5)), 4))", "0.8284")
def boxcox(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """The Box-Cox transformation (x^lmbda - 1) / lmbda, log x for lmbda = 0.

    Args:
        x, lmbda: real or complex arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and inexact dtype.
    """
    return _boxcox(*promote_alike("boxcox", x, lmbda))


@shown("print(round(float(boxcox1p(1.0, 0.5)), 4))", "0.8284")
def boxcox1p(x: ArrayLike, lmbda: ArrayLike) -> Array:
    """`boxcox` of 1 + x.

    Args:
        x, lmbda: real or complex arrays, which broadcast; integers become float.

    Returns:
        Array of the common shape and inexact dtype.
    """
    return _boxcox1p(*promote_alike("boxcox1p", x, lmbda))
