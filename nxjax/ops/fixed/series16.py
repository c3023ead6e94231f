"""The logistic function and tanh in pure 16-bit fixed point, as tables of every argument.

The methods of `series` with 16-bit numbers ("Qm" has m integer bits and 15 - m behind the point), which integer LSTMs
compute their gates with. Knows no grid and no op.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.fixed.point import divide_by_power

_MAX, _MIN = 2**15 - 1, -(2**15)


def _raw(real: float, bits: int = 0) -> int:
    """The constant ``real`` with ``bits`` integer bits: that of 32 bits, rounded to 16."""
    whole = min(math.floor(real * 2.0 ** (31 - bits) + 0.5), 2**31 - 1)
    return int(divide_by_power(np.int64(whole), 16))


def _product(a: NDArray, b: NDArray | int) -> NDArray:
    """``a * b / 2**15`` to the nearest integer; the square of the least number saturates."""
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, 1 << 14, 1 - (1 << 14))
    return np.minimum((nudged + np.where(nudged < 0, (1 << 15) - 1, 0)) >> 15, _MAX)


def _sum(a: NDArray | int, b: NDArray) -> NDArray:
    return np.clip(a + b, _MIN, _MAX)


def _left(x: NDArray, bits: int) -> NDArray:
    return np.clip(x << bits, _MIN, _MAX)


def _exp_quarter(a: NDArray) -> NDArray:
    """exp on [-1/4, 0), Q0 to Q0: a Taylor polynomial of degree 4 around -1/8."""
    c = _raw(math.exp(-1 / 8))
    x = a + (1 << 12)
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    cubic = _product(_sum(divide_by_power(x4, 2), x3), _raw(1 / 3))
    return _sum(c, _product(_sum(x, divide_by_power(_sum(cubic, x2), 1)), c))


def _exp_negative(x: NDArray, bits: int) -> NDArray:
    """exp of ``x`` <= 0 with ``bits`` integer bits, in Q0."""
    fraction = 15 - bits
    quarter = 1 << (fraction - 2)
    part = (x & (quarter - 1)) - quarter
    y = _exp_quarter(_left(part, bits))
    left = part - x
    for exponent in range(-2, min(bits, 5)):
        y = np.where(left & (1 << (fraction + exponent)), _product(y, _raw(math.exp(-(2.0**exponent)))), y)
    if bits > 5:
        # Beyond -32 there is nothing left.
        y = np.where(x < -(1 << (fraction + 5)), 0, y)
    return np.where(x == 0, _MAX, y)


def _newton(a: NDArray) -> NDArray:
    """2 / (1 + a) for a in [0, 1), Q0 to Q2."""
    total = a + _MAX
    half = (total + 1) >> 1
    x = _sum(_raw(48 / 17, 2), _product(half, _raw(-32 / 17, 2)))
    for _ in range(3):
        x = _sum(x, _left(_product(x, (1 << 13) - _product(half, x)), 2))
    return x


@cache
def logistic16() -> NDArray:
    """The logistic function of every int16 in Q3, from the least on, in Q0.

    >>> int(logistic16()[32768])
    16384
    """
    x = np.arange(_MIN, _MAX + 1, dtype=np.int64)
    size = np.minimum(np.abs(x), _MAX)
    above = _left(_newton(_exp_negative(-size, 3)), 1)
    y = np.where(x > 0, above, _MAX - above)
    return np.where(x == 0, _raw(0.5), y)


@cache
def tanh16(bits: int) -> NDArray:
    """tanh of every int16 with ``bits`` integer bits, from the least on, in Q0.

    >>> tanh16(3)[[32767, 32768, 65535]].tolist()
    [-8, 0, 32767]
    """
    x = np.arange(_MIN, _MAX + 1, dtype=np.int64)
    below = np.where(x < 0, x, -x)
    above = _left(_newton(_exp_negative(below, bits + 1)) - (1 << 13), 2)
    y = np.where(x < 0, -above, above)
    return np.where(x == 0, 0, y)
