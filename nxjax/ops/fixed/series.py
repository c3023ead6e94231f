"""Transcendental functions in pure int32 fixed point: exp of negative numbers, 1 / (1 + x), log and 1 / sqrt.

Numbers are raw integers in int64 arrays; "Qm" has m integer bits, so a raw r means r * 2**(m - 31). The methods are
those of gemmlowp's fixed-point library: a Taylor polynomial with a barrel shifter for exp, Newton-Raphson division,
and for log the rational approximation that TFLite uses. Knows no grid and no op.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.fixed.point import INT32_MAX, INT32_MIN, divide_by_power, high_product, wrap32


def raw(real: float, bits: int = 0) -> int:
    """The constant ``real`` with ``bits`` integer bits.

    >>> raw(1 / 3), raw(48 / 17, 2)
    (715827883, 1515870810)
    """
    return math.floor(real * 2.0 ** (31 - bits) + 0.5)


def shift_left(x: NDArray, exponent: int) -> NDArray:
    """``x * 2**exponent``, saturating to 32 bits.

    >>> shift_left(np.array([3, 2**30, -(2**31)]), 1).tolist()
    [6, 2147483647, -2147483648]
    """
    threshold = (1 << (31 - exponent)) - 1
    return np.where(x > threshold, INT32_MAX, np.where(x < -threshold, INT32_MIN, x << exponent))


def leading_zeros(x: NDArray) -> NDArray:
    """Zero bits above the highest set bit of the low 32 bits of ``x``; 32 for zero.

    >>> leading_zeros(np.array([1, 2**31, 0])).tolist()
    [31, 0, 32]
    """
    # frexp of a whole number below 2**53 is exact, and its exponent is the number of bits.
    return 32 - np.frexp((np.asarray(x, np.int64) & 0xFFFFFFFF).astype(np.float64))[1].astype(np.int64)


def half_sum(a: NDArray, b: NDArray | int) -> NDArray:
    """``(a + b) / 2``, halves away from zero."""
    total = np.asarray(a + b, np.int64)
    total = total + np.where(total >= 0, 1, -1)
    return np.where(total >= 0, total >> 1, -(-total >> 1))


def _exp_quarter(a: NDArray) -> NDArray:
    """exp on [-1/4, 0), Q0 to Q0: a Taylor polynomial of degree 4 around -1/8."""
    c = raw(math.exp(-1 / 8))
    x = a + (1 << 28)
    x2 = high_product(x, x)
    x3 = high_product(x2, x)
    x4 = high_product(x2, x2)
    cubic = high_product(divide_by_power(x4, 2) + x3, raw(1 / 3))
    return c + high_product(c, x + divide_by_power(cubic + x2, 1))


def exp_negative(x: NDArray, bits: int) -> NDArray:
    """exp of ``x`` <= 0 with ``bits`` <= 5 integer bits, in Q0.

    >>> (exp_negative(np.array([0, -(1 << 26)]), 5) / 2**31).round(6).tolist()
    [1.0, 0.36788]
    """
    fraction = 31 - bits
    quarter = 1 << (fraction - 2)
    part = (x & (quarter - 1)) - quarter
    result = _exp_quarter(shift_left(part, bits))
    left = wrap32(part - x)
    for exponent in range(-2, bits):
        factor = raw(math.exp(-(2.0**exponent)))
        result = np.where(left & (1 << (fraction + exponent)), high_product(result, factor), result)
    return np.where(x == 0, INT32_MAX, result)


DIVISION: Final = (raw(48 / 17, 2), -raw(32 / 17, 2))


def one_over_one_plus(a: NDArray) -> NDArray:
    """1 / (1 + a) for a in [0, 1), Q0 to Q0, by three Newton-Raphson steps.

    >>> abs(int(one_over_one_plus(np.array([1 << 30]))[0]) - raw(2 / 3)) < 4
    True
    """
    half = half_sum(a, INT32_MAX)
    x = DIVISION[0] + high_product(half, DIVISION[1])
    for _ in range(3):
        error = (1 << 29) - high_product(half, x)
        x = x + shift_left(high_product(x, error), 2)
    return shift_left(x, 1)


def reciprocal(x: NDArray, bits: int) -> tuple[NDArray, NDArray]:
    """``(r, n)`` with r in Q0 in (1/2, 1] and 1 / x = r * 2**-n, for positive ``x`` with ``bits`` integer bits."""
    zeros = leading_zeros(x)
    return one_over_one_plus((x << zeros) - (1 << 31)), bits - zeros


def _by_power(x: NDArray, exponent: NDArray | int) -> NDArray:
    """``x * 2**exponent`` with a saturating shift to the left, a rounding one to the right; exponents per element."""
    e = np.asarray(exponent, np.int64)
    left, right = np.maximum(e, 0), np.maximum(-e, 0)
    threshold = (np.int64(1) << (31 - left)) - 1
    grown = np.where(x > threshold, INT32_MAX, np.where(x < -threshold, INT32_MIN, x << left))
    return np.where(e > 0, grown, divide_by_power(x, right))


def log_from_one(x: NDArray, bits: int, out_bits: int) -> NDArray:
    """log of ``x`` >= 1 with ``bits`` integer bits, in Q ``out_bits``.

    x is brought near 1 by a power of 2 or of 2 with half an exponent, then log is a rational function (TFLite,
    ``log_x_for_x_greater_than_or_equal_to_1``).
    """
    sum_bits = out_bits + 1
    root = 2.0**0.25
    half = raw(math.sqrt(0.5))
    centre = raw(1 / root)
    quarter = divide_by_power(raw(0.25), sum_bits)

    zeros = leading_zeros(x)
    near_a = _by_power(high_product(_by_power(x, zeros - 1), half), 1)
    power_a = np.minimum(_by_power(bits - zeros, 31 - sum_bits) + quarter, INT32_MAX)
    room = leading_zeros(high_product(x, half)) - 1
    near_b = _by_power(x, room)
    power_b = np.maximum(_by_power(bits - room, 31 - sum_bits) - quarter, INT32_MIN)

    r, power = np.minimum(near_a, near_b), np.maximum(power_a, power_b)
    p = half_sum(r, centre)
    q = (r - centre) * 2
    square = high_product(q, q)
    numerator = high_product(q, r) + high_product(high_product(q, square), raw(11 / 240 * root))
    inner = raw(2 / root - root) + q + high_product(raw(root / 20), square)
    denominator = high_product(p, inner) + high_product(raw(root / 4), q)
    tail = high_product(divide_by_power(numerator, sum_bits), one_over_one_plus(denominator))
    return shift_left(high_product(power, raw(math.log(2))) + tail, 1)


def inverse_root(x: NDArray) -> tuple[NDArray, NDArray]:
    """``(multiplier, shift)`` of 1 / sqrt of whole numbers ``x`` >= 1, by five Newton-Raphson steps in Q3."""
    x = np.asarray(x, np.int64)
    one = x <= 1
    value, shift = np.where(one, 4, x), np.full(x.shape, 11, np.int64)
    # Of at most 17 bits here, so it never has to be divided first.
    pairs = (leading_zeros(value) - 1) // 2 - 1
    shift, value = shift - pairs, value << (2 * pairs)
    number = value >> 1
    halved = divide_by_power(number, 1)
    y = np.full(x.shape, 1 << 28, np.int64)
    for _ in range(5):
        cube = shift_left(high_product(high_product(y, y), y), 6)
        y = shift_left(high_product((1 << 28) + (1 << 27), y) - high_product(halved, cube), 3)
    root = high_product(y, raw(math.sqrt(2) / 2))
    root, shift = np.where(shift < 0, root << np.maximum(-shift, 0), root), np.maximum(shift, 0)
    return np.where(one, INT32_MAX, root), np.where(one, 0, -shift)
