"""Exponential functions: exp, exp2, expm1, logistic, tanh, sinh, cosh.

All of them reduce x = n ln 2 + r with |r| <= ln(2) / 2 (Cody and Waite, "Software Manual for the Elementary
Functions", 1980: ln 2 in two parts, of which n times the first is exact) and use e^r = 1 + r + r^2 Q(r). Polynomials
are minimax fits by Remez' exchange; the error stated at each is that of the polynomial alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import (
    copysign,
    fabs,
    fast_two_sum,
    is_single,
    layout,
    nearest,
    polynomial,
    power_of_two,
    product_error,
    scaled,
    scaled_low,
    to_integer_word,
    where_rare,
    words,
)
from nxjax.kernels.cpu.ops import formula

LOG2_E: Final = 1.4426950408889634
LN2: Final = 0.6931471805599453
LN2_TAIL: Final = 2.3190468138462996e-17


@final
@dataclass(frozen=True, slots=True)
class Constants:
    """What depends on the precision.

    Attributes:
        ln2_high, ln2_low: ln 2 in two parts; an exponent times the first is exact.
        q: (e^r - 1 - r) / r^2 on [-ln(2)/2, ln(2)/2].
        least, most: beyond them e^x is 0 or infinite.
        normal: from it on e^x is a normal number; and the same of 2^x.
    """

    ln2_high: float
    ln2_low: float
    q: tuple[float, ...]
    least: float
    most: float
    normal: tuple[float, float]


SINGLE: Final = Constants(
    0.693145751953125,
    1.4286068203094173e-06,
    # of e^r: 2^-28.2
    (0.5, 0.166665137, 0.041666586, 0.00836949982, 0.00139208976),
    -104.0,
    89.0,
    (-87.0, -126.0),
)
DOUBLE: Final = Constants(
    0.6931471803691238,
    1.9082149292705877e-10,
    # of e^r: 2^-62.3
    (
        0.5, 0.1666666666666667, 0.04166666666666673, 0.008333333333325798, 0.001388888888884352,
        0.00019841269875990044, 2.4801587428438922e-05, 2.7557253932101292e-06, 2.755716728394016e-07,
        2.51058218128966e-08, 2.095285481362267e-09,
    ),
    -746.0,
    710.0,
    (-708.0, -1022.0),
)  # fmt: skip


def constants(x: Value) -> Constants:
    return SINGLE if is_single(x) else DOUBLE


def _clipped(f: Function, x: Value, least: float, most: float) -> Value:
    """Between two bounds; NaN stays."""
    x = f.select(x.gt(most), most, x)
    return f.select(x.lt(least), least, x)


def _by_parts(
    f: Function, isa: Isa, x: Value, bounds: tuple[float, float, float], parts: Callable[[Value], tuple[Value, Value]]
) -> Value:
    """``y * 2^n`` of ``parts(x)``: 0 below ``bounds[0]``, a normal number from ``bounds[1]`` on, infinite at the last.

    A result below the normal numbers, 0 among them, takes many processors as long as a hundred others. Masks are full
    of what gives 0, and rows of attention have a few of the others: those are made of integers, where there are any.
    """
    least, normal, most = bounds
    low = x.lt(normal)
    common = scaled(f, isa, *parts(f.select(low, 0.0, f.select(x.gt(most), most, x))))
    some = low & x.ge(least)
    tiny = lambda: scaled_low(f, *parts(f.select(some, x, normal)))
    return where_rare(f, some, f.select(low, 0.0, common), tiny)


def _reduced(f: Function, isa: Isa, x: Value) -> tuple[Value, Value]:
    """n and r of x = n ln 2 + r."""
    c = constants(x)
    n = nearest(f, isa, x * LOG2_E)
    return n, f.fma(n, -c.ln2_low, f.fma(n, -c.ln2_high, x))


@formula("exp")
def exp(f: Function, isa: Isa, x: Value) -> Value:
    c = constants(x)

    def parts(x: Value) -> tuple[Value, Value]:
        n, r = _reduced(f, isa, x)
        return f.fma(r * r, polynomial(f, c.q, r), r) + 1.0, n

    return _by_parts(f, isa, x, (c.least, c.normal[0], c.most), parts)


def exp_times(f: Function, isa: Isa, x: Value, tail: Value, factor: Value) -> Value:
    """factor e^(x + tail) for a small ``tail``; rounded once where the result is subnormal."""
    c = constants(x)
    x = _clipped(f, x, c.least, c.most + 1.0)
    n, r = _reduced(f, isa, x)
    r = r + tail
    y = f.fma(r * r, polynomial(f, c.q, r), r)
    return scaled(f, isa, f.fma(factor, y, factor), n)


def exp_moderate(f: Function, isa: Isa, x: Value) -> tuple[Value, Value]:
    """e^x where that is a normal number, in two parts: the rounded one and what rounding lost."""
    c, known = constants(x), layout(x)
    shifted = f.fma(x, LOG2_E, known.magic)
    n = shifted - known.magic
    r = f.fma(n, -c.ln2_low, f.fma(n, -c.ln2_high, x))
    high, low = fast_two_sum(f.constant(x.type, 1.0), f.fma(r * r, polynomial(f, c.q, r), r))
    power = ((words(shifted) + known.bias) << known.mantissa).bitcast(x.type)
    return high * power, low * power


def corrected_quotient(f: Function, top: tuple[Value, Value], bottom: tuple[Value, Value], inverse: Value) -> Value:
    """The quotient of two numbers in two parts each, from the rounded ``1 / bottom[0]``."""
    q = top[0] * inverse
    rest = f.fma(-q, bottom[0], top[0]) + f.fma(-q, bottom[1], top[1])
    return f.fma(rest, inverse, q)


@formula("exp2")
def exp2(f: Function, isa: Isa, x: Value) -> Value:
    """2^(n + r) = 2^n e^(r ln 2), the product in two parts."""
    c = constants(x)

    def parts(x: Value) -> tuple[Value, Value]:
        n = nearest(f, isa, x)
        r = x - n
        if is_single(x):
            t = r * 0.6931471824645996
            tail = f.fma(
                r, -1.90465429995776804525e-09, product_error(f, isa, r, f.constant(x.type, 0.6931471824645996), t)
            )
        else:
            t = r * LN2
            tail = f.fma(r, LN2_TAIL, product_error(f, isa, r, f.constant(x.type, LN2), t))
        return t + f.fma(t * t, polynomial(f, c.q, t), tail) + 1.0, n

    least, most = (-151.0, 129.0) if is_single(x) else (-1076.0, 1025.0)
    return _by_parts(f, isa, x, (least, c.normal[1], most), parts)


@formula("expm1")
def expm1(f: Function, isa: Isa, x: Value) -> Value:
    """2^n (e^r - 1) + (2^n - 1) at half its size, so that 2^n does not overflow first."""
    c = constants(x)
    clipped = _clipped(f, x, -20.0 if is_single(x) else -40.0, c.most)
    n = nearest(f, isa, clipped * LOG2_E)
    first = f.fma(n, -c.ln2_high, clipped)
    r = f.fma(n, -c.ln2_low, first)
    rest = f.fma(n, -c.ln2_low, first - r)
    high, low = fast_two_sum(r, f.fma(r * r, polynomial(f, c.q, r), rest))
    half = power_of_two(f, to_integer_word(f, n) - 1)
    first = half - 0.5
    lost = (half - first) - 0.5
    y, more = fast_two_sum(first, half * high)
    y = y + (f.fma(half, low, lost) + more)
    # Half of a tiny number would lose its last bit.
    return f.select(fabs(f, x).lt(2.0**-60), x, copysign(f, y + y, x))


# tanh(x) = x + x^3 T(x^2) for |x| <= 0.65, of which 2^-31.4
_TANH: Final = (-0.333333284, 0.133331105, -0.0539348498, 0.0216367561, -0.0080232285, 0.00200582226)


@formula("tanh")
def tanh(f: Function, isa: Isa, x: Value) -> Value:
    size = fabs(f, x)
    if is_single(x):
        # 1 - 2 / (e^2x + 1) further out, where no more than the last bit is lost; 1 from 9.02 on.
        square = x * x
        near = f.fma(size * square, polynomial(f, _TANH, square), size)
        clipped = f.select(size.gt(10.0), 10.0, size)
        high, low = exp_moderate(f, isa, clipped + clipped)
        bottom, lost = fast_two_sum(high, f.constant(x.type, 1.0))
        inverse = 1.0 / bottom
        rest = f.fma(-inverse, bottom, 1.0) - inverse * (lost + low)
        far = 1.0 - f.fma(rest, inverse, inverse) * 2.0
        return copysign(f, f.select(size.ge(0.65), far, near), x)
    clipped = f.select(size.gt(20.0), 20.0, size)
    e = expm1(f, isa, clipped + clipped)
    return copysign(f, e / (e + 2.0), x)


@formula("logistic")
def logistic(f: Function, isa: Isa, x: Value) -> Value:
    """1 / (1 + e^-x), with the power that does not overflow; a shorter way where no power of it does.

    Its promised bits are those of the longer way.
    """
    if isa.reproducible or not is_single(x):
        return _logistic_anywhere(f, isa, x)
    # From 30 on it is 1. Below the normal numbers it is made the longer way, where there are any.
    least, normal = constants(x).least, constants(x).normal[0]
    high, low = exp_moderate(f, isa, -_clipped(f, x, normal, 30.0))
    larger, smaller = f.select(high.gt(1.0), high, 1.0), f.select(high.gt(1.0), 1.0, high)
    bottom, lost = fast_two_sum(larger, smaller)
    inverse = 1.0 / bottom
    rest = f.fma(-inverse, bottom, 1.0) - inverse * (lost + low)
    small = x.lt(normal)
    common = f.select(small, 0.0, f.fma(rest, inverse, inverse))
    return where_rare(f, small & x.ge(least), common, lambda: _logistic_anywhere(f, isa, x))


def _logistic_anywhere(f: Function, isa: Isa, x: Value) -> Value:
    c = constants(x)
    size = fabs(f, x)
    most = -c.least
    n, r = _reduced(f, isa, -f.select(size.gt(most), most, size))
    one = f.constant(x.type, 1.0)
    high, low = fast_two_sum(one, f.fma(r * r, polynomial(f, c.q, r), r))
    # In the denominator e^-|x| counts no more from 2^-60 on; as a numerator it may be subnormal, and is scaled last.
    shift = power_of_two(f, to_integer_word(f, f.select(n.lt(-60.0), -60.0, n)))
    bottom, lost = fast_two_sum(one, high * shift)
    below, zero = x.lt(0.0), x.lt(c.least)
    top = f.select(below, high, one), f.select(below, low, 0.0)
    y = corrected_quotient(f, top, (bottom, f.fma(low, shift, lost)), one / bottom)
    return f.select(zero, 0.0, scaled(f, isa, y, f.select(below & ~zero, n, 0.0)))


@formula("sinh", wide=True)
def sinh(f: Function, isa: Isa, x: Value) -> Value:
    """(E + E / (E + 1)) / 2 with E = e^|x| - 1; from 22 on half of e^|x|."""
    size = fabs(f, x)
    e = expm1(f, isa, size)
    half = _half_exp(f, isa, size)
    return copysign(f, f.select(size.ge(22.0), half, (e + e / (e + 1.0)) * 0.5), x)


@formula("cosh", wide=True)
def cosh(f: Function, isa: Isa, x: Value) -> Value:
    half = _half_exp(f, isa, fabs(f, x))
    return half + 0.25 / half


def _half_exp(f: Function, isa: Isa, x: Value) -> Value:
    """e^x / 2, which overflows later than e^x."""
    return exp_times(f, isa, x, f.constant(x.type, 0.0), f.constant(x.type, 0.5))
