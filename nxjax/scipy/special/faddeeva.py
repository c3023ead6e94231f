"""The scaled complementary error function, Dawson's integral and the Faddeeva function (DLMF chapter 7)."""

from __future__ import annotations

import functools
import math

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import promote_inexact
from nxjax.ops.elementary import exp
from nxjax.ops.special import erfc
from nxjax.scipy.special import tables
from nxjax.scipy.special.operands import at_least_float32, chebyshev, reals, strip_weak_type
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.trace.reproducible import check_transcendental
from nxjax.transforms.custom_jvp import custom_jvp

_TWO_BY_ROOT_PI = 2 / math.sqrt(math.pi)


# Slopes come from the forms below, by their own derivatives. Those of the definitions, y' = 2 x y - 2 / sqrt(pi) and
# y' = 1 - 2 x y, are differences of nearly equal numbers for large x. The derivative of a series in t(x), over x or
# over 1 + 2 x, is a sum of two terms of one sign there: -y / x, and what t adds, which is smaller by a factor of x.


def _erfcx_value(x: Array) -> Array:
    size = abs(x)
    # Shepherd & Laframboise, "Chebyshev approximation of (1 + 2x) exp(x^2) erfc x", Math. Comp. 36 (1981).
    above = chebyshev(tables.ERFCX, 1 - 7.5 / (size + 3.75)) / (1 + 2 * size)
    # erfc(-x) = 2 - erfc(x), DLMF 7.4.2; where exp(x^2) is near 1, the definition has the fewest roundings.
    low = jnp.minimum(x, 0)
    value = jnp.where(x < 0, 2 * exp(low * low) - above, above)
    small = size < 1
    v = jnp.where(small, x, 0)
    return jnp.where(small, exp(v * v) * erfc(v), value)


def erfcx(x: ArrayLike) -> Array:
    """exp(x^2) erfc(x), without overflow for large positive x (DLMF 7.2.2).

    Args:
        x: real or complex array of any shape; integers become float.

    Returns:
        Array of the shape and dtype of ``x``: for real x within 2 ulp where x > 0, and within x^2 ulp (that of exp)
        where x < 0; inf below about -26 (float64) or -9 (float32). For complex x as `wofz`.

    >>> print(erfcx(nx.array([0.0, 1.0, 100.0])))
    [1.         0.42758358 0.00564161]
    """
    (v,) = promote_inexact("erfcx", x)
    if v.dtype in dtypes.COMPLEX:
        return _wofz(v * v.dtype.type(1j))  # DLMF 7.2.3
    return at_least_float32(_erfcx_value, strip_weak_type(v))


def _dawsn_value(x: Array) -> Array:
    square = x * x
    near = jnp.minimum(square, 16)
    below = x * chebyshev(tables.DAWSN_NEAR, near / 8 - 1) / (1 + 2 * near)
    far = jnp.where(square < 16, 4, x)
    above = chebyshev(tables.DAWSN_FAR, 32 / (far * far) - 1) / far
    # DLMF 7.6.3
    tiny = jnp.minimum(square, 0.25)
    series = tiny * 0 + 1
    for k in range(12, 0, -1):
        series = 1 - series * tiny * (2 / (2 * k + 1))
    return jnp.where(square < 0.25, x * series, jnp.where(square < 16, below, above))


def dawsn(x: ArrayLike) -> Array:
    """Dawson's integral, exp(-x^2) times the integral of exp(t^2) from 0 to x (DLMF 7.2.5).

    Args:
        x: real array of any shape; integers become float.

    Returns:
        Array of the shape and dtype of ``x``, within 4 ulp.

    Raises:
        ParameterError: complex input.

    >>> print(dawsn(nx.array([0.0, 1.0, 10.0])))
    [0.         0.5380795  0.05025385]
    """
    return at_least_float32(_dawsn_value, strip_weak_type(*reals("dawsn", x)))


@functools.lru_cache(2)
def _weideman(terms: int) -> tuple[float, tuple[float, ...]]:
    """L and the coefficients, highest power first: Weideman, SIAM J. Numer. Anal. 31 (1994), equations 37 and 38."""
    samples = 4 * terms
    scale = math.sqrt(terms / math.sqrt(2))
    theta = np.arange(-samples + 1, samples) * np.pi / samples
    t = scale * np.tan(theta / 2)
    f = np.concatenate([[0.0], np.exp(-t * t) * (scale**2 + t * t)])
    found = np.real(np.fft.fft(np.fft.fftshift(f))) / (2 * samples)
    return scale, tuple(float(c) for c in found[1 : terms + 1][::-1])


def _upper(z: Array) -> Array:
    """The Faddeeva function of z with imaginary part >= 0."""
    check_transcendental("scipy.special.wofz")
    double = z.dtype == dtypes.complex128
    far_at = 6.5 if double else 5.0
    size = jnp.maximum(abs(jnp.real(z)), jnp.imag(z))
    far = size > far_at
    i = z.dtype.type(1j)
    near_z = jnp.where(far, i, z)
    scale, coefficients = _weideman(56 if double else 32)
    below = scale - i * near_z
    ratio = (scale + i * near_z) / below
    total = ratio * 0 + coefficients[0]
    for c in coefficients[1:]:
        total = total * ratio + c
    near = (2 * total / below + 1 / math.sqrt(math.pi)) / below
    # Laplace's continued fraction (DLMF 7.9.3), from its end; it has the small real part right that a sum loses.
    far_z = jnp.where(far, z, 10 * i)
    fraction = far_z
    for k in range(18, 0, -1):
        fraction = far_z - (k / 2) / fraction
    beyond = i / (math.sqrt(math.pi) * fraction)
    value = jnp.where(far, beyond, near)
    # On the real axis w(x) = exp(-x^2) + 2i / sqrt(pi) dawsn(x), DLMF 7.5.1.
    x = jnp.real(z)
    axis = exp(-x * x) + i * (_TWO_BY_ROOT_PI * _dawsn_value(x))
    return jnp.where(jnp.imag(z) == 0, axis, value)


@custom_jvp
def _wofz(z: Array) -> Array:
    lower = jnp.imag(z) < 0
    above = _upper(jnp.where(lower, -z, z))
    inside = jnp.where(lower, z, 0)
    return jnp.where(lower, 2 * exp(-inside * inside) - above, above)  # DLMF 7.4.3


def _wofz_slope(t: Array, y: Array, z: Array) -> Array:
    """2i / sqrt(pi) - 2 z w (DLMF 7.10.2); far out, where these cancel, the slope of the asymptotic series (7.12.1)."""
    double = z.dtype == dtypes.complex128
    far = abs(z) > (10 if double else 6)
    w = jnp.where(far, z, 10)
    square = 1 / (w * w)
    series = square * 0 + 1
    for k in range(16 if double else 8, 0, -1):
        series = 1 + series * square * (k + 0.5)
    beyond = -0.5j * _TWO_BY_ROOT_PI * square * series
    lower = jnp.imag(w) < 0
    inside = jnp.where(lower, w, 0)
    beyond = jnp.where(lower, beyond - 4 * inside * exp(-inside * inside), beyond)
    return t * jnp.where(far, beyond, 1j * _TWO_BY_ROOT_PI - 2 * z * y)


_wofz.defjvps(_wofz_slope)


@shown("print(wofz(1.0 + 1.0j).round(4))", "(0.3047+0.2082j)")
def wofz(z: ArrayLike) -> Array:
    """The Faddeeva function exp(-z^2) erfc(-iz) (DLMF 7.2.3).

    Args:
        z: real or complex array of any shape; real ones become complex, half floats complex64.

    Returns:
        Complex array of the shape of ``z``, with a relative error below 5e-15 in complex128 and 2e-6 in complex64,
        in the upper half plane; in the lower one relative to the greater of |w(z)| and |w(-z)|.
    """
    (v,) = promote_inexact("wofz", z)
    if v.dtype not in dtypes.COMPLEX:
        v = v.astype(dtypes.complex128 if v.dtype == dtypes.float64 else dtypes.complex64)
    return _wofz(v)
