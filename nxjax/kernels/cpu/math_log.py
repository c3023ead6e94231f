"""Logarithms and what follows from them: log, log1p, asinh, acosh, atanh; cbrt.

A number is cut into 2^k m with m in [sqrt(1/2), sqrt(2)), so that f = m - 1 is exact, and k ln 2 is added in two parts.
In double, log(1 + f) = f - f^2/2 + s (f^2/2 + R(s^2)) with s = f / (2 + f) (Tang, "Table-driven implementation of the
logarithm function", 1990, without the table); in float, f - f^2/2 + f^3 P(f) without the division.
"""

from __future__ import annotations

import math
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import (
    INVALID,
    as_float,
    copysign,
    fabs,
    is_single,
    layout,
    nearest,
    polynomial,
    power_of_two,
    product_error,
    to_integer_word,
    two_sum,
    where_rare,
    words,
)
from nxjax.kernels.cpu.math_exp import constants
from nxjax.kernels.cpu.ops import formula

# (log(1 + f) - f + f^2/2) / f^3; of log(1 + f) 2^-28.7
_P: Final = (
    0.333333135, -0.250001609, 0.200022206, -0.166596726, 0.142098382,
    -0.125446394, 0.121027283, -0.109487481, 0.0539547615,
)  # fmt: skip
# (log((1 + s) / (1 - s)) / s - 2) / s^2 as a function of s^2; of the logarithm 2^-58.4
_R: Final = (
    0.6666666666666735, 0.39999999999409336, 0.2857142874369398, 0.22222198427906067,
    0.18183572423360378, 0.1531383007588676, 0.14798284685116037,
)  # fmt: skip
_ROOT_HALF_BITS: Final = {"i32": 0x3F3504F3, "i64": 0x3FE6A09E667F3BCD}


def _parts(f: Function, x: Value) -> tuple[Value, Value]:
    """k and m - 1 of a positive normal x = 2^k m."""
    known = layout(x)
    bits = words(x)
    k = (bits - _ROOT_HALF_BITS[known.word]) >> known.mantissa
    m = (bits - (k << known.mantissa)).bitcast(x.type)
    return as_float(f, k), m - 1.0


def _combined(f: Function, k: Value, part: Value, correction: Value | None = None) -> Value:
    """k ln 2 + log(1 + part), and a small number."""
    c = constants(part)
    low = k * c.ln2_low if correction is None else f.fma(k, c.ln2_low, correction)
    square = part * part
    if is_single(part):
        tail = f.fma(square * part, polynomial(f, _P, part), low)
        return f.fma(k, c.ln2_high, part + f.fma(square, -0.5, tail))
    s = part / (part + 2.0)
    z = s * s
    half = square * 0.5
    r = z * polynomial(f, _R, z)
    return f.fma(k, c.ln2_high, part - (half - f.fma(s, half + r, low)))


def _at_the_ends(f: Function, x: Value, y: Value) -> Value:
    """``y`` with the logarithm's values at infinity, 0, below it, and for NaN."""
    y = f.select(x.lt(float("inf")), y, x)
    y = f.select(x.eq(0.0), float("-inf"), y)
    return f.select(x.lt(0.0), INVALID, y)


def cut(f: Function, x: Value) -> tuple[Value, Value]:
    """k and m - 1 of a positive x = 2^k m, which may be subnormal."""
    least, factor = (2.0**-126, 2.0**24) if is_single(x) else (2.0**-1022, 2.0**54)
    small = x.lt(least)
    k, part = _parts(f, f.select(small, x * factor, x))
    return k - f.select(small, f.constant(x.type, math.log2(factor)), 0.0), part


@formula("log")
def log(f: Function, isa: Isa, x: Value) -> Value:
    k, part = cut(f, x)
    return _at_the_ends(f, x, _combined(f, k, part))


@formula("log1p")
def log1p(f: Function, isa: Isa, x: Value) -> Value:
    """log of the rounded u = 1 + x, and what rounding lost by u, which is its logarithm's first term."""
    u, lost = two_sum(f.constant(x.type, 1.0), x)
    k, part = _parts(f, u)
    y = copysign(f, _combined(f, k, part, lost / u), x)
    y = f.select(x.lt(float("inf")), y, x)
    y = f.select(x.eq(-1.0), float("-inf"), y)
    return f.select(x.lt(-1.0), INVALID, y)


@formula("asinh", wide=True)
def asinh(f: Function, isa: Isa, x: Value) -> Value:
    """log1p(x + x^2 / (1 + sqrt(1 + x^2))); far out log(2 x)."""
    size = fabs(f, x)
    far = size.gt(2.0**28)
    near = f.select(far, 1.0, size)
    square = near * near
    near = near + square / (f.intrinsic("sqrt", x.type, square + 1.0) + 1.0)
    y = where_rare(f, far, log1p(f, isa, near), lambda: log(f, isa, size) + math.log(2))
    return copysign(f, y, x)


@formula("acosh", wide=True)
def acosh(f: Function, isa: Isa, x: Value) -> Value:
    """log1p(t + sqrt(2 t + t^2)) with t = x - 1; far out log(2 x)."""
    far = x.gt(2.0**28)
    t = f.select(far, 1.0, x) - 1.0
    near = log1p(f, isa, t + f.intrinsic("sqrt", x.type, f.fma(t, t, t + t)))
    y = where_rare(f, far, near, lambda: log(f, isa, x) + math.log(2))
    return f.select(x.lt(1.0), INVALID, y)


@formula("atanh", wide=True)
def atanh(f: Function, isa: Isa, x: Value) -> Value:
    """log1p(2 x / (1 - x)) / 2"""
    size = fabs(f, x)
    y = log1p(f, isa, (size + size) / (1.0 - size)) * 0.5
    return f.select(size.gt(1.0), INVALID, copysign(f, y, x))


# A cube root of m in [1/2, 1] to 2^-16.7
_CBRT: Final = (
    0.4023898971842323, 1.1399977554261198, -0.9543810367411868, 0.5466449159227467, -0.13466073930931632,
)  # fmt: skip


@formula("cbrt", wide=True)
def cbrt(f: Function, isa: Isa, x: Value) -> Value:
    """x = 8^k m with m in [1/2, 4): a polynomial for the part in [1/2, 1), Newton's step twice, the second in full."""
    size = fabs(f, x)
    small = size.lt(2.0**-1022)
    scaled_size = f.select(small, size * 2.0**54, size)
    known = layout(x)
    bits = words(scaled_size)
    exponent = as_float(f, (bits >> known.mantissa) - (known.bias - 1))
    m = ((bits & ((1 << known.mantissa) - 1)) | ((known.bias - 1) << known.mantissa)).bitcast(x.type)
    third = nearest(f, isa, exponent * (1 / 3))
    rest = exponent - third * 3.0
    y = polynomial(f, _CBRT, m)
    y = f.select(rest.eq(1.0), y * 2 ** (1 / 3), f.select(rest.eq(-1.0), y * 2 ** (-1 / 3), y))
    m = m * power_of_two(f, to_integer_word(f, rest))
    square = y * y
    y = y - (square * y - m) / (square * 3.0)
    # The residual y^3 - m without rounding errors of its own size.
    square = y * y
    cube = square * y
    low = f.fma(product_error(f, isa, y, y, square), y, product_error(f, isa, square, y, cube))
    y = y - ((cube - m) + low) / (square * 3.0)
    y = y * power_of_two(f, to_integer_word(f, third - f.select(small, f.constant(x.type, 18.0), 0.0)))
    y = copysign(f, y, x)
    return f.select((size.gt(0.0)) & size.lt(float("inf")), y, x)
