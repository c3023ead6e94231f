"""Sine, cosine and tangent of huge numbers, one by one, with as many digits of pi as that takes.

``x = m 2^e`` with a whole ``m`` of 53 bits is ``m 2^e 2/pi`` quarter turns. Of the product with 2/pi only some digits
matter: those before make whole turns, those behind are too small to see (Payne and Hanek, "Radian reduction for
trigonometric functions", 1983). 256 of them are taken from a table and multiplied as integers. Functions of C do as
much, but each library has other last bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value, element, lanes_of
from nxjax.kernels.cpu.math_base import fabs, fast_two_sum, two_sum

_DIGITS: Final = 1232  # of 2/pi after the point: all that the largest double asks for, and 7 to spare
_BEFORE: Final = 8  # bytes of zeros below them
_WORDS: Final = 4
_POINT: Final = 254  # digits behind the point of the product's 256
_LOWEST: Final = -32  # exponent of the smallest number that comes here; smaller ones are never looked at
_HALF_PI: Final = (math.pi / 2, 6.123233995736766e-17)  # and what the first part lacks


@lru_cache(1)
def _two_over_pi() -> int:
    """floor(2/pi * 2^_DIGITS), by Machin's formula."""

    def inverse_tangent(n: int, bits: int) -> int:
        power = total = (1 << bits) // n
        k, sign = 1, 1
        while power:
            power //= n * n
            k, sign = k + 2, -sign
            total += sign * (power // k)
        return total

    bits = 2 * _DIGITS
    pi = 4 * (4 * inverse_tangent(5, bits) - inverse_tangent(239, bits))
    return int(Fraction(2 << bits, pi) * (1 << _DIGITS))


def _table(f: Function) -> Value:
    data = bytes(_BEFORE) + _two_over_pi().to_bytes(_DIGITS // 8 + 8, "little") + bytes(8 * _WORDS)
    text = "".join(f"\\{b:02X}" for b in data)
    f.globals["two_over_pi"] = f'@two_over_pi = internal constant [{len(data)} x i8] c"{text}", align 64'
    return Value(f, "ptr", "@two_over_pi")


def quarters(f: Function, x: Value) -> tuple[Value, Value, Value]:
    """The nearest number of quarter turns of a double (an i64; only its last two bits are right), and the rest of the
    angle in two parts."""
    bits = x.bitcast("i64") & ((1 << 63) - 1)
    lowest, highest = f.constant("i64", _LOWEST), f.constant("i64", 971)
    e = f.intrinsic("smin", "i64", f.intrinsic("smax", "i64", bits.lshr(52) - 1075, lowest), highest)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    # The table's digits from number `s` on, 256 of them: from the next whole byte on, moved up.
    s = (_DIGITS - _POINT) - e
    byte = (s + 7).lshr(3)
    up = (byte << 3) - s
    place = f.at(_table(f), byte)
    found = [f.load("i64", f.at(place, _BEFORE + 8 * k), 1) for k in range(-1, _WORDS)]
    digits = [f.intrinsic("fshl", "i64", found[k + 1], found[k], up) for k in range(_WORDS)]
    carry, wide = f.constant("i128", 0), m.convert("i128", signed=False)
    words: list[Value] = []
    for d in digits:
        product = d.convert("i128", signed=False) * wide + carry
        words.append(product.convert("i64"))
        carry = product.lshr(64)
    top, next_ = words[3], words[2]
    n = (top + (1 << 61)).lshr(62)
    # What is left, at most half a quarter: 126 digits, 30 of them with the sign, then 32 by 32.
    top = top - (n << 62)
    low = (1 << 32) - 1
    parts = [(top >> 32, -30), (top & low, -62), (next_.lshr(32), -94), (next_ & low, -126)]
    a, b, c, d = (v.convert("double") * 2.0**k for v, k in parts)
    high, more = two_sum(a, b)
    high, most = two_sum(high, c)
    high, rest = fast_two_sum(high, (more + most) + d)
    y = high * _HALF_PI[0]
    error = f.fma(high, _HALF_PI[0], -y)
    rest = error + f.fma(high, _HALF_PI[1], rest * _HALF_PI[0])
    # The sign of x was left out.
    negative = x.lt(0.0)
    turned = lambda v: f.select(negative, -v, v)
    return f.select(negative, -n, n), turned(y), turned(rest)


def one_by_one(f: Function, x: Value, body: Callable[[Value], Value]) -> Value:
    """``body`` of each lane of ``x`` as a double; NaN for what is not finite."""

    def single(v: Value) -> Value:
        wide = v.convert("double")
        y = body(wide)
        return f.select(fabs(f, wide).lt(float("inf")), y, wide - wide).convert(v.type)

    lanes = lanes_of(x.type)
    if not lanes:
        return single(x)
    scalar = element(x.type)
    room, size = f.alloca(x.type), 4 if scalar == "float" else 8
    f.store(x, room)
    with f.loop(0, lanes) as lane:
        place = f.at(room, lane.index, size)
        f.store(single(f.load(scalar, place)), place)
    return f.load(x.type, room)
