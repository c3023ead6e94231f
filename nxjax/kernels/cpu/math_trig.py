"""Trigonometric functions and their inverses: sin, cos, tan, asin, acos, atan, atan2.

Arguments are reduced by multiples of pi/2 in double, in three parts (Cody and Waite): enough up to 2^20 for doubles and
2^30 for floats (2^20 without fused multiply-add). Lanes beyond that, which are rare, are left to C's functions, which
reduce with all of pi's bits; where bits must be the same everywhere, to `math_huge`.
"""

from __future__ import annotations

import math
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import (
    INVALID,
    copysign,
    fabs,
    is_single,
    nearest,
    polynomial,
    product_error,
    to_integer_word,
    where_rare,
    words,
)
from nxjax.kernels.cpu.math_huge import one_by_one, quarters
from nxjax.kernels.cpu.ops import formula

# pi/2 in parts of 33 bits, the last in full: an exponent of up to 20 bits times one of the first two is exact.
_HALF_PI: Final = (1.5707963267341256, 6.077100506303966e-11, 2.0222662487959506e-21)
_MOST: Final = 2.0**20
_MAGIC: Final = 1.5 * 2.0**52  # what is added to it is rounded to an integer, found in its low bits
_PI_TAIL: Final = 1.2246467991473532e-16  # pi without its first 53 bits
# sin(x) = x + x^3 S(x^2), cos(x) = 1 - x^2/2 + x^4 C(x^2) for |x| <= pi/4. In float of 2^-32.5 and 2^-37.2,
_SIN_SINGLE: Final = (-0.166666672, 0.00833338033, -0.000198534981, 2.83724717e-06)
_COS_SINGLE: Final = (0.0416666679, -0.00138889824, 2.48229699e-05, -2.89744833e-07)
# in double of 2^-58.0 and 2^-64.2.
_SIN: Final = (
    -0.16666666666666632, 0.008333333333322455, -0.00019841269829813467,
    2.7557313687604293e-06, -2.505075672063284e-08, 1.5896682266177808e-10,
)  # fmt: skip
_COS: Final = (
    0.0416666666666666, -0.0013888888888874441, 2.4801587289636314e-05,
    -2.7557314387467586e-07, 2.087572705808658e-09, -1.1359802385923595e-11,
)  # fmt: skip


def _reduced(f: Function, isa: Isa, x: Value) -> tuple[Value, Value, Value]:
    """The multiple of pi/2 (a word of 64 bits) and the rest of a double in two parts."""
    n = nearest(f, isa, x * (2 / math.pi))
    a, b, c = _HALF_PI
    high = f.fma(n, -a, x)
    t = n * b
    r = high - t
    low = f.fma(n, -c, (high - r) - t)
    y = r + low
    return to_integer_word(f, n), y, (r - y) + low


def _reduced_single(f: Function, isa: Isa, x: Value) -> tuple[Value, Value]:
    """The same of a float that became a double: the multiple (a word of 64 bits) and the rest in one part.

    pi/2 as a double and what it lacks are enough. A float up to 2^30 is never nearer than 2^-28 to a multiple of pi/2,
    and the second product is below 2^-24, so the rest is wrong by 2^-48 of itself.
    """
    magic = f.constant(x.type, _MAGIC)
    shifted = f.fma(x, 2 / math.pi, magic)
    n = shifted - magic
    return words(shifted), f.fma(n, -_PI_TAIL / 2, f.fma(n, -math.pi / 2, x))


def _sine(f: Function, r: Value, low: Value, square: Value) -> Value:
    """sin(r + low) = r + (r^3 S + low cos r)"""
    s = polynomial(f, _SIN_SINGLE if is_single(r) else _SIN, square)
    return r + f.fma(r * square, s, low * f.fma(square, -0.5, 1.0))


def _cosine(f: Function, isa: Isa, r: Value, low: Value, square: Value) -> Value:
    """1 - r^2/2 with what its rounding loses, and the rest."""
    c = polynomial(f, _COS_SINGLE if is_single(r) else _COS, square)
    half = square * 0.5
    first = 1.0 - half
    lost = (1.0 - first) - half
    if isa.reproducible:
        return first + (lost + (square * square * c - r * low))
    # What does not wait for the polynomial is added up before.
    return first + f.fma(square * square, c, lost - r * low)


def _sine_or_cosine(f: Function, isa: Isa, x: Value, quarter: int) -> Value:
    """sin(x + quarter pi/2)"""
    most = 2.0**30 if is_single(x) and isa.fma else _MOST
    rare = ~fabs(f, x).le(most)
    if is_single(x):
        wide = x.convert(with_element(x.type, "double"))
        if isa.fma and not isa.reproducible:
            n, wide = _reduced_single(f, isa, wide)
        else:
            n, wide, wide_low = _reduced(f, isa, wide)
            wide = wide + wide_low
        n = n.convert(with_element(x.type, "i32"))
        r = wide.convert(x.type)
        low = (wide - r.convert(wide.type)).convert(x.type)
    else:
        n, r, low = _reduced(f, isa, x)
    square = r * r
    n = n + quarter
    y = f.select((n & 1).eq(0), _sine(f, r, low, square), _cosine(f, isa, r, low, square))
    sign = (n & 2) << (30 if is_single(x) else 62)
    y = (words(y) ^ sign).bitcast(x.type)
    # x itself for small ones, so that -0 stays.
    y = f.select(x.eq(0.0), x, y) if not quarter else y
    return where_rare(f, rare, y, lambda: _rare(f, isa, "cos" if quarter else "sin", x))


def _rare(f: Function, isa: Isa, name: str, x: Value) -> Value:
    """``sin``, ``cos`` or ``tan`` of what is too large for `_reduced`."""
    if not isa.reproducible:
        return f.intrinsic(name, x.type, x)

    def one(x: Value) -> Value:
        n, r, low = quarters(f, x)
        square = r * r
        s, c = _sine(f, r, low, square), _cosine(f, isa, r, low, square)
        odd = (n & 1).ne(0)
        if name == "tan":
            return f.select(odd, -c, s) / f.select(odd, s, c)
        y = f.select(odd, s, c) if name == "cos" else f.select(odd, c, s)
        sign = ((n + (name == "cos")) & 2) << 62
        return (words(y) ^ sign).bitcast(x.type)

    return one_by_one(f, x, one)


@formula("sin")
def sin(f: Function, isa: Isa, x: Value) -> Value:
    return _sine_or_cosine(f, isa, x, 0)


@formula("cos")
def cos(f: Function, isa: Isa, x: Value) -> Value:
    return _sine_or_cosine(f, isa, x, 1)


@formula("tan", wide=True)
def tan(f: Function, isa: Isa, x: Value) -> Value:
    """sin / cos, or -cos / sin in odd multiples of pi/2."""
    rare = ~fabs(f, x).le(_MOST)
    n, r, low = _reduced(f, isa, f.select(rare, 0.0, x))
    square = r * r
    s, c = _sine(f, r, low, square), _cosine(f, isa, r, low, square)
    odd = (n & 1).ne(0)
    y = f.select(odd, -c, s) / f.select(odd, s, c)
    y = f.select(x.eq(0.0), x, y)

    def instead() -> Value:
        if isa.reproducible:
            return _rare(f, isa, "tan", x)
        return f.intrinsic("sin", x.type, x) / f.intrinsic("cos", x.type, x)

    return where_rare(f, rare, y, instead)


# --- inverses ---

# asin(x) = x + x^3 A(x^2) for |x| <= 1/2, of which 2^-59.8
_ASIN: Final = (
    0.16666666666666763, 0.07499999999970099, 0.044642857175285766, 0.03038194267531606, 0.02237221590438144,
    0.017351595534410093, 0.01398101805883225, 0.011397297363773574, 0.01078929519324207, 0.0036722881760881633,
    0.02179038705223564, -0.02111634123681797, 0.03270192076761298,
)  # fmt: skip
# atan(x) = x + x^3 A(x^2) for |x| <= tan(pi/8), of which 2^-63.8
_ATAN: Final = (
    -0.3333333333333333, 0.1999999999999924, -0.14285714285605397, 0.11111111103256865, -0.09090908757359849,
    0.07692298611868313, -0.06666500150896089, 0.05880237668574441, -0.05244309396631603, 0.046441670151200744,
    -0.03839160447728014, 0.025197603129841362, -0.008993498984781311,
)  # fmt: skip


def _asin_parts(f: Function, isa: Isa, x: Value) -> tuple[Value, Value, Value, Value]:
    """Whether |x| > 1/2, and v with asin |x| = v, or = pi/2 - 2 v: its size, what that lacks, and the cubic rest."""
    size = fabs(f, x)
    far = size.gt(0.5)
    z = f.select(far, (1.0 - size) * 0.5, size * size)
    root = f.intrinsic("sqrt", x.type, z)
    v = f.select(far, root, size)
    # The root's rounding error, by one step of Newton.
    product = root * root
    error = (z - product) - product_error(f, isa, root, root, product)
    lost = f.select(far & root.gt(0.0), error / (root + root), 0.0)
    return far, v, lost, v * z * polynomial(f, _ASIN, z)


@formula("asin", wide=True)
def asin(f: Function, isa: Isa, x: Value) -> Value:
    far, v, lost, rest = _asin_parts(f, isa, x)
    quarter = math.pi / 4
    # pi/2 - 2 (v + lost + rest), from pi/4 on both sides so that little is lost.
    outer = quarter - (((v + v) - quarter) + ((rest + lost) * 2.0 - _PI_TAIL / 2))
    y = f.select(far, outer, v + rest)
    return f.select(fabs(f, x).gt(1.0), INVALID, copysign(f, y, x))


@formula("acos", wide=True)
def acos(f: Function, isa: Isa, x: Value) -> Value:
    far, v, lost, rest = _asin_parts(f, isa, x)
    twice = v + v + (rest + lost) * 2.0
    signed = copysign(f, v, x)
    near = math.pi / 2 - (signed + (copysign(f, rest, x) - _PI_TAIL / 2))
    below = math.pi - (v + v + ((rest + lost) * 2.0 - _PI_TAIL))
    y = f.select(far, f.select(x.lt(0.0), below, twice), near)
    return f.select(fabs(f, x).gt(1.0), INVALID, y)


def _arctangent(f: Function, isa: Isa, numerator: Value, denominator: Value) -> Value:
    """atan(numerator / denominator) of two numbers that are not negative nor both 0 or infinite, in [0, pi/2].

    By the tangent of the difference to 0, pi/4 or pi/2, whichever is nearest, so that one division is enough.
    """
    a, b = numerator, denominator
    eighth = math.tan(math.pi / 8)
    high = b.lt(a * eighth)
    low = a.le(b * eighth)
    top = f.select(low, a, f.select(high, -b, a - b))
    bottom = f.select(low, b, f.select(high, a, a + b))
    base = f.select(low, 0.0, f.select(high, f.constant(a.type, math.pi / 2), f.constant(a.type, math.pi / 4)))
    tail = f.select(low, 0.0, f.select(high, f.constant(a.type, _PI_TAIL / 2), f.constant(a.type, _PI_TAIL / 4)))
    q = top / bottom
    product = q * bottom
    lost = ((top - product) - product_error(f, isa, q, bottom, product)) / bottom
    # Where products of halves are subnormal, what they tell is rounded off itself.
    lost = f.select(fabs(f, lost).lt(1.0) & fabs(f, product).gt(2.0**-900), lost, 0.0)
    square = q * q
    return base + (q + (f.fma(q * square, polynomial(f, _ATAN, square), lost) + tail))


@formula("atan", wide=True)
def atan(f: Function, isa: Isa, x: Value) -> Value:
    size = fabs(f, x)
    huge = size.gt(2.0**60)
    y = _arctangent(f, isa, f.select(huge, f.constant(x.type, 2.0**60), size), f.constant(x.type, 1.0))
    return copysign(f, f.select(x.is_nan(), x, y), x)


@formula("atan2", wide=True)
def atan2(f: Function, isa: Isa, y: Value, x: Value) -> Value:
    """The angle of (x, y), from that of (|x|, |y|)."""
    a, b = fabs(f, y), fabs(f, x)
    inf = float("inf")
    # Both infinite: pi/4 of the same size; both zero: the angle of (1, 0). Scaled so that no sum overflows or is lost.
    both = a.eq(inf) & b.eq(inf)
    a, b = f.select(both, 1.0, a), f.select(both, 1.0, b)
    a, b = f.select(a.eq(inf), 1.0, f.select(b.eq(inf), 0.0, a)), f.select(b.eq(inf), 1.0, f.select(a.eq(inf), 0.0, b))
    b = f.select(a.eq(0.0) & b.eq(0.0), 1.0, b)
    most = f.select(a.gt(b), a, b)
    factor = f.select(most.gt(2.0**990), 2.0**-40, f.select(most.lt(2.0**-500), f.constant(a.type, 2.0**550), 1.0))
    angle = _arctangent(f, isa, a * factor, b * factor)
    left = words(x).lt(0)
    angle = f.select(left, math.pi - (angle - _PI_TAIL), angle)
    angle = copysign(f, angle, y)
    return f.select(x.is_nan() | y.is_nan(), float("nan"), angle)
