"""Exponential, sine, cosine and Fresnel integrals, and the dilogarithm (DLMF chapters 6, 7, 8 and 25)."""

from __future__ import annotations

import math

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, NxError
from nxjax.numpy.documented import shown
from nxjax.ops.elementary import cos, exp, log, log1p, sin
from nxjax.ops.special import lgamma
from nxjax.scipy.special import tables
from nxjax.scipy.special.operands import chebyshev, chebyshev_rows, reals, strip_weak_type, widening
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import fori_loop

_ROOT = 0.3725074107813666, 1.3140183414386028e-17  # the zero of Ei, in two parts


def _one(x: Array) -> Array:
    """E_1 for x > 0."""
    near = jnp.minimum(x, 1)
    below = near * chebyshev(tables.EIN, 2 * near - 1) - log(near) - np.euler_gamma
    far = jnp.maximum(x, 1)
    above = exp(-far) * chebyshev(tables.E1_FAR, 2 / far - 1) / far
    value = jnp.where(x <= 1, below, above)
    return jnp.where(x == 0, np.inf, jnp.where(x >= 0, value, np.nan))


def _expi_value(x: Array) -> Array:
    positive = x > 0
    near = jnp.where(positive & (x <= 2), x, 1)
    root = float(x.dtype.type(_ROOT[0]))
    off = (near - root) - ((_ROOT[0] - root) + _ROOT[1])
    # As a product with the distance to the zero, which keeps its digits there.
    below = jnp.where(abs(off) < 0.25, log1p(jnp.maximum(off, -0.3) / root), log(near / root))
    below = below + off * chebyshev(tables.EI_NEAR, near - 1)
    far = jnp.where(x > 2, x, 3)
    octave = jnp.clip(jnp.floor(jnp.log2(far)), 1, 6)
    inverse = jnp.exp2(-octave) / 2
    # t is linear in 1 / x, from the octave's upper end (0 for the last) to its lower.
    last = octave == 6
    t = jnp.where(last, 128 / far - 1, (1 / far - inverse) / inverse * 2 - 1)
    rows = chebyshev_rows(tables.EI_FAR, octave.astype(dtypes.int32) - 1, jnp.clip(t, -1, 1))
    half = exp(far / 2)  # exp(x) overflows before its quotient does
    above = half * (rows / far) * half
    value = jnp.where(x <= 2, below, jnp.where(x == np.inf, np.inf, above))
    value = jnp.where(positive, value, -_one(jnp.where(positive, 1, -x)))
    return jnp.where(x == 0, -np.inf, jnp.where(jnp.isnan(x), np.nan, value))


_expi = widening(_expi_value, lambda t, y, x: t * (exp(x) / x))


def expi(x: ArrayLike) -> Array:
    """The exponential integral Ei, the principal value of the integral of exp(t) / t up to x (DLMF 6.2.5).

    Args:
        x: real array of any shape; integers become float.

    Returns:
        Array of the shape and dtype of ``x``; -inf at 0. Within 4 ulp, and as near to the zero at 0.3725.

    Raises:
        ParameterError: complex input.

    >>> print(expi(nx.array([-1.0, 0.5, 1.0])).round(4))
    [-0.2194  0.4542  1.8951]
    """
    return _expi(*reals("expi", x))


def exp1(x: ArrayLike) -> Array:
    """The exponential integral E_1, of exp(-t) / t from x on (DLMF 6.2.1).

    Args:
        x: real array of any shape; integers become float.

    Returns:
        Array of the shape and dtype of ``x``; inf at 0, NaN for negative x.
        The error is at most 4 ulp, plus that of exp(-x).

    Raises:
        ParameterError: complex input.

    >>> print(exp1(nx.array([0.1, 1.0, 3.0])).round(4))
    [1.8229 0.2194 0.013 ]
    """
    return _exp1(strip_weak_type(*reals("exp1", x)))


_exp1 = widening(_one, lambda t, y, x: t * jnp.where(x < 0, np.nan, -exp(-x) / x))


def _expn_value(n: Array, x: Array) -> Array:
    """E_n for n >= 1 and x > 0."""
    # DLMF 8.19.8, whose term k = n - 1 has a logarithm.
    near = jnp.minimum(x, 1)
    total, power = near * 0, near * 0 + 1
    for k in range(20 if x.dtype == dtypes.float64 else 13):
        if k:
            power = power * (-near / k)
        away = n - 1 - k
        total = total + jnp.where(away == 0, 0, power / jnp.where(away == 0, 1, away))
    harmonic = lambda j, s: s + jnp.where(j < n, 1 / jnp.maximum(j, 1).astype(x.dtype), 0)
    # psi(n) beyond 20 multiplies a power of x over a factorial that is below the precision.
    psi = fori_loop(1, 20, harmonic, n * 0) - np.euler_gamma
    whole = jnp.minimum(n, 30) - 1
    # (-x)^(n-1) / (n-1)!
    size = exp(whole * log(near) - lgamma(whole + 1))
    sign = jnp.where(jnp.mod(whole, 2) == 0, 1, -1)
    near_value = total + jnp.where(n < 30, sign * size * (psi - log(near)), 0)
    # The continued fraction 8.19.17 in its even form, from its end.
    far = jnp.maximum(x, 1)
    count = 90 if x.dtype == dtypes.float64 else 30

    def step(j: Array, tail: Array) -> Array:
        k = (count - j).astype(x.dtype)
        return far + n + 2 * (k - 1) - k * (n + k - 1) / tail

    tail = fori_loop(0, count, step, far + n + 2 * count)
    return jnp.where(x <= 1, near_value, exp(-far) / tail)


def _expn_all(n: Array, x: Array) -> Array:
    valid = (x > 0) & (n >= 1) & (x < np.inf)
    one = n == 1
    value = _expn_value(jnp.where(valid, n, 2), jnp.where(valid, x, 1))
    value = jnp.where(one, _one(jnp.where(valid, x, 1)), value)
    some = jnp.where(x > 0, x, 1)
    value = jnp.where(n == 0, exp(-some) / some, value)
    value = jnp.where(x == np.inf, 0, value)
    value = jnp.where(x == 0, jnp.where(n < 2, np.inf, 1 / jnp.where(n < 2, 1, n - 1)), value)
    return jnp.where((x >= 0) & (n >= 0), value, np.nan)


def _expn_slope(t: Array, y: Array, n: Array, x: Array) -> Array:
    below = _expn(jnp.maximum(n - 1, 0), x)
    # DLMF 8.19.13; E_(-1)(x) = exp(-x) (1 + x) / x^2
    return -t * jnp.where(n == 0, exp(-x) * (1 + 1 / x) / x, below)


_expn = widening(_expn_all, None, _expn_slope)


def expn(n: ArrayLike, x: ArrayLike) -> Array:
    """The generalized exponential integral E_n, of exp(-x t) / t^n for t from 1 on (DLMF 8.19.3).

    Args:
        n: whole numbers >= 0, of integer or float dtype; has no derivative.
        x: real array; broadcasts with ``n``.

    Returns:
        Array of the common shape and float dtype; 1 / (n - 1) at x = 0 for n > 1, inf there for n < 2, NaN for
        negative ``n`` or ``x``. Within 1e-14 (float64) or 1e-6 (float32), relative.

    Raises:
        ParameterError: complex input.

    >>> print(expn(nx.array([1, 2, 3]), 1.0).round(4))
    [0.2194 0.1485 0.1097]
    """
    n, x = reals("expn", n, x)
    return _expn(n, x)


def _sici_value(x: Array) -> tuple[Array, Array]:
    size = abs(x)
    small = size < 4
    near = jnp.where(small, size, 1)
    t = near * near / 8 - 1
    si = near * chebyshev(tables.SI_NEAR, t)
    ci = np.euler_gamma + log(near) - near * near * chebyshev(tables.CIN_NEAR, t)
    far = jnp.where(small | (size == np.inf), 8, size)
    # DLMF 6.2.19 and 6.2.20 with the auxiliary functions f and g.
    inverse = 1 / far
    t = 32 * inverse * inverse - 1
    f = chebyshev(tables.SICI_F, t) * inverse
    g = chebyshev(tables.SICI_G, t) * inverse * inverse
    s, c = sin(far), cos(far)
    si = jnp.where(small, si, math.pi / 2 - f * c - g * s)
    ci = jnp.where(small, ci, f * s - g * c)
    si = jnp.where(size == np.inf, math.pi / 2, si)
    ci = jnp.where(size == np.inf, jnp.where(x > 0, 0, np.nan), ci)
    bad = jnp.isnan(x)
    si = jnp.where(bad, np.nan, jnp.where(x < 0, -si, si))
    return si, jnp.where(bad, np.nan, jnp.where(x == 0, -np.inf, ci))


_sici = widening(_sici_value, lambda t, y, x: (t * jnp.sinc(x / math.pi), t * (cos(x) / x)))


@shown("si, ci = sici(1.0)", "", "print(round(float(si), 6), round(float(ci), 6))", "0.946083 0.337404")
def sici(x: ArrayLike) -> tuple[Array, Array]:
    """The sine and cosine integrals, Si of sin(t) / t from 0 to x, and Ci (DLMF 6.2.9 and 6.2.13).

    Args:
        x: real array of any shape; integers become float. Ci is that of |x|.

    Returns:
        ``(Si, Ci)``, of the shape and dtype of ``x``. The absolute error is below 4 ulp of 1.

    Raises:
        ParameterError: complex input.
    """
    return _sici(strip_weak_type(*reals("sici", x)))


def _sincos_half_pi_square(x: Array) -> tuple[Array, Array]:
    """sin and cos of pi x^2 / 2.

    With x = 2 k + r, x^2 is 4 k^2 + 4 k r + r^2, whose first term is a multiple of the period 4. The second's multiples
    of 4 fall out of k r modulo 1, which is taken in two parts of r.
    """
    k = jnp.round(x / 2)
    r = x - 2 * k
    whole = abs(k) < (2.0**40 if x.dtype == dtypes.float64 else 2.0**18)
    k = jnp.where(whole, k, 0)
    cut = 2.0**12 if x.dtype == dtypes.float64 else 2.0**5
    coarse = jnp.round(r * cut) / cut
    turn = k * coarse
    turn = turn - jnp.round(turn)
    rest = k * (r - coarse)
    quarter = 4 * (turn + (rest - jnp.round(rest))) + r * r
    quarter = quarter - 4 * jnp.round(quarter / 4)
    # In [-2, 2]; sin(pi q / 2) by symmetry from [-1, 1].
    folded = jnp.where(abs(quarter) > 1, jnp.where(quarter > 0, 2, -2) - quarter, quarter)
    return sin(math.pi / 2 * folded), jnp.sin(math.pi / 2 * (1 - abs(quarter)))


def _fresnel_value(x: Array) -> tuple[Array, Array]:
    size = abs(x)
    fourth = 6.56  # where the tables change over, as x^4
    square = size * size
    small = square < math.sqrt(fourth)
    near = jnp.where(small, size, 1)
    t = near * near * (near * near) / (fourth / 2) - 1
    s = near * (near * near) * chebyshev(tables.FRESNEL_S, t)
    c = near * chebyshev(tables.FRESNEL_C, t)
    far = jnp.where(small, 2, jnp.minimum(size, 1e10))
    # DLMF 7.5.3 and 7.5.4 with the auxiliary functions f and g.
    inverse = 1 / (far * far)
    t = 2 * fourth * inverse * inverse - 1
    f = chebyshev(tables.FRESNEL_F, t) / (math.pi * far)
    g = chebyshev(tables.FRESNEL_G, t) * inverse / (math.pi**2 * far)
    sine, cosine = _sincos_half_pi_square(far)
    s = jnp.where(small, s, 0.5 - f * cosine - g * sine)
    c = jnp.where(small, c, 0.5 + f * sine - g * cosine)
    sign = jnp.where(jnp.isnan(x), np.nan, jnp.where(x < 0, -1.0, 1.0)).astype(x.dtype)
    return sign * s, sign * c


_fresnel = widening(_fresnel_value, lambda t, y, x: tuple(t * slope for slope in _sincos_half_pi_square(x)))


class _NoComplex(NxError, NotImplementedError):
    """Complex operands where only real ones are taken."""


@shown("s, c = fresnel(1.0)", "", "print(round(float(s), 6), round(float(c), 6))", "0.438259 0.779893")
def fresnel(x: ArrayLike) -> tuple[Array, Array]:
    """The Fresnel integrals of sin(pi t^2 / 2) and cos(pi t^2 / 2) from 0 to x (DLMF 7.2.7 and 7.2.8).

    Args:
        x: real array of any shape; integers become float.

    Returns:
        ``(S, C)``, of the shape and dtype of ``x``, within 4 ulp.

    Raises:
        NotImplementedError: complex input.
    """
    return _fresnel(*reals("fresnel", x, error=_NoComplex))


def _spence_value(x: Array) -> Array:
    valid = (x > 0) & (x < np.inf)
    v = jnp.where(valid, x, 1)
    # DLMF 25.12.4 and 25.12.6 bring the argument to [1/2, 3/2].
    high = v > 1.5
    z = jnp.where(high, 1 / v, v)
    low = z < 0.5
    w = jnp.where(low, 1 - z, z)
    y = (w - 1) * chebyshev(tables.SPENCE, jnp.clip(2 * (w - 1), -1, 1))
    logz = log(z)
    y = jnp.where(low, math.pi**2 / 6 - logz * log1p(-jnp.where(low, z, 0)) - y, y)
    y = jnp.where(high, -0.5 * logz * logz - y, y)
    y = jnp.where(x == 1, 0, jnp.where(x == 0, math.pi**2 / 6, y))
    return jnp.where(valid | (x == 0), y, np.nan)


def _spence_slope(t: Array, y: Array, x: Array) -> Array:
    # log x / (1 - x), by log1p near 1, where it is -1.
    off = x - 1
    near = abs(off) < 0.5
    some = jnp.where(near & (off != 0), off, 0.5)
    quotient = jnp.where(near, log1p(some) / some, log(x) / jnp.where(near, 1, off))
    return -t * jnp.where(off == 0, 1 - off / 2, quotient)


_spence = widening(_spence_value, _spence_slope)


def spence(x: ArrayLike) -> Array:
    """Spence's function, the integral of log(t) / (1 - t) from 1 to x: the dilogarithm of 1 - x (DLMF 25.12.2).

    Args:
        x: float32 or float64 array of any shape.

    Returns:
        Array of the shape and dtype of ``x``, within 4 ulp; NaN for negative x and inf.

    Raises:
        DtypeError: for another dtype.

    >>> print(spence(nx.array([0.0, 1.0, 2.0])).round(4))
    [ 1.6449  0.     -0.8225]
    """
    v = jnp.asarray(x)
    if v.dtype not in (dtypes.float32, dtypes.float64):
        raise DtypeError("spence: does not take this dtype", got=v.type, expected="float32 or float64")
    return _spence(strip_weak_type(v))
