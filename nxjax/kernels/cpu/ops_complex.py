"""Complex numbers: parts, arithmetic, comparison, conversion, exponential.

In registers a complex number is the word that it is in memory: the real part in the low half. Ops take the parts out,
and put them together again. Rounded as NumPy rounds: products with one fused multiplication where the processor has
it, quotients by Smith's method ("Algorithm 116: complex division", 1962).
"""

from __future__ import annotations

import math

from nxjax.kernels.cpu.convert import constant, convert, register_type
from nxjax.kernels.cpu.ir import Function, Value, bits_of, element, lanes_of, vector, with_element
from nxjax.kernels.cpu.math_base import copysign, fabs
from nxjax.kernels.cpu.math_exp import exp
from nxjax.kernels.cpu.math_trig import cos, sin
from nxjax.kernels.cpu.ops import DType, EmitContext, op
from nxjax.trace import dtypes

COMPLEX = dtypes.COMPLEX
PARTS = frozenset((dtypes.float32, dtypes.float64))
REAL = dtypes.NUMERIC - COMPLEX
Parts = tuple[Value, Value]


def parts(f: Function, x: Value) -> Parts:
    """The real and the imaginary part."""
    lanes = max(lanes_of(x.type), 1)
    scalar = "float" if bits_of(element(x.type)) == 64 else "double"
    both = x.bitcast(vector(scalar, 2 * lanes))
    if not lanes_of(x.type):
        return f.extract(both, 0), f.extract(both, 1)
    return f.shuffle(both, None, range(0, 2 * lanes, 2)), f.shuffle(both, None, range(1, 2 * lanes, 2))


def joined(f: Function, x: Value, y: Value) -> Value:
    """x + iy"""
    lanes = lanes_of(x.type)
    word = vector(f"i{2 * bits_of(element(x.type))}", lanes)
    if not lanes:
        both = f.insert(f.insert(f.poison(vector(x.type, 2)), x, 0), y, 1)
        return both.bitcast(word)
    return f.shuffle(x, y, [i // 2 + i % 2 * lanes for i in range(2 * lanes)]).bitcast(word)


def _both(s: EmitContext) -> tuple[Parts, Parts]:
    return parts(s.f, s.xs[0]), parts(s.f, s.xs[1])


def product(f: Function, x: Parts, y: Parts) -> Parts:
    (a, b), (c, d) = x, y
    return f.fma(a, c, -(b * d)), f.fma(a, d, b * c)


def quotient(f: Function, x: Parts, y: Parts) -> Parts:
    """With the larger part of the divisor divided into the smaller one. Only x / 0 has 0 / 0 as its ratio.

    A finite number by an infinite one is 0, an infinite one by a finite one infinite (C99, annex G.5.1).
    """
    (a, b), (c, d) = x, y
    size, other = fabs(f, c), fabs(f, d)
    wide = size.ge(other)
    # With the parts exchanged where the imaginary one is larger, both cases are one up to the sign of a difference.
    large, small = f.select(wide, c, d), f.select(wide, d, c)
    first, second = f.select(wide, a, b), f.select(wide, b, a)
    ratio = small / large
    scale = 1.0 / (large + small * ratio)
    # (a + b r) s and (b - a r) s; or, exchanged, (b + a r) s with a r first, and (b r - a) s.
    real = (first + second * ratio) * scale
    imaginary = (f.select(wide, b, b * ratio) - f.select(wide, a * ratio, a)) * scale
    zero = size.eq(0.0) & other.eq(0.0)
    infinite = float("inf")
    below = size.eq(infinite) | other.eq(infinite)
    # The divisor is neither infinite, nor NaN, nor 0.
    usual = size.lt(infinite) & other.lt(infinite) & ~zero
    first, second = fabs(f, a).eq(infinite), fabs(f, b).eq(infinite)
    finite = fabs(f, a).lt(infinite) & fabs(f, b).lt(infinite)
    p = copysign(f, f.select(first, f.constant(a.type, 1.0), 0.0), a)
    q = copysign(f, f.select(second, f.constant(b.type, 1.0), 0.0), b)
    grown = (first | second) & usual
    limits = (p * c + q * d) * infinite, (q * c - p * d) * infinite
    found = f.select(zero, a / c, real), f.select(zero, b / c, imaginary)
    re, im = (f.select(below & finite, 0.0, f.select(grown, v, w)) for v, w in zip(limits, found, strict=True))
    return re, im


@op("add", COMPLEX)
def add(s: EmitContext) -> Value:
    (a, b), (c, d) = _both(s)
    return joined(s.f, a + c, b + d)


@op("sub", COMPLEX)
def sub(s: EmitContext) -> Value:
    (a, b), (c, d) = _both(s)
    return joined(s.f, a - c, b - d)


@op("mul", COMPLEX)
def mul(s: EmitContext) -> Value:
    return joined(s.f, *product(s.f, *_both(s)))


@op("div", COMPLEX)
def div(s: EmitContext) -> Value:
    return joined(s.f, *quotient(s.f, *_both(s)))


@op("square", COMPLEX)
def square(s: EmitContext) -> Value:
    f = s.f
    a, b = parts(f, s.xs[0])
    re, im = product(f, (a, b), (a, b))
    # Of large parts both squares are infinite, and their difference is not.
    difference = (a - b) * (a * 0.5 + b * 0.5) * 2.0
    return joined(f, f.select(fabs(f, re).lt(float("inf")), re, difference), im)


@op("neg", COMPLEX)
def neg(s: EmitContext) -> Value:
    a, b = parts(s.f, s.xs[0])
    return joined(s.f, -a, -b)


@op("abs", COMPLEX)
def abs_(s: EmitContext) -> Value:
    """Of floats in double, where the squares neither overflow nor are rounded; of doubles by the larger part."""
    f = s.f
    a, b = (fabs(f, v) for v in parts(f, s.xs[0]))
    if element(a.type) == "float":
        wide = with_element(a.type, "double")
        c, d = a.convert(wide), b.convert(wide)
        y = f.intrinsic("sqrt", wide, f.fma(c, c, d * d)).convert(a.type)
    else:
        large, small = f.select(a.gt(b), a, b), f.select(a.gt(b), b, a)
        ratio = small / f.select(large.eq(0.0), 1.0, large)
        y = large * f.intrinsic("sqrt", a.type, f.fma(ratio, ratio, 1.0))
        y = f.select(a.is_nan() | b.is_nan(), float("nan"), y)
    return f.select(a.eq(float("inf")) | b.eq(float("inf")), float("inf"), y)


@op("real", COMPLEX)
def real(s: EmitContext) -> Value:
    return parts(s.f, s.xs[0])[0]


@op("imag", COMPLEX)
def imag(s: EmitContext) -> Value:
    return parts(s.f, s.xs[0])[1]


@op("complex", PARTS)
def complex_(s: EmitContext) -> Value:
    return joined(s.f, *s.xs)


@op("eq", COMPLEX)
def eq(s: EmitContext) -> Value:
    (a, b), (c, d) = _both(s)
    return a.eq(c) & b.eq(d)


@op("ne", COMPLEX)
def ne(s: EmitContext) -> Value:
    (a, b), (c, d) = _both(s)
    return a.ne(c) | b.ne(d)


@op("exp", COMPLEX)
def exp_(s: EmitContext) -> Value:
    """e^a (cos b + i sin b); of real numbers real, and of an infinite real part with the signs of cos b and sin b."""
    f, isa = s.f, s.isa
    a, b = parts(f, s.xs[0])
    # Where e^a has no end, a part of the product may have one: it is multiplied by e^half, e^(a - 2 half) and e^half.
    most, half = (88.0, 52.0) if element(a.type) == "float" else (709.0, 380.0)
    large = a.gt(most)
    size = exp(f, isa, f.select(large, a - 2 * half, a))
    factor = f.select(large, f.constant(a.type, math.exp(half)), 1.0)
    # Where e^a is 0 or infinite no b gives NaN: an infinite or undefined one counts as 0 for 0.
    still = f.select(size.eq(0.0) & ~fabs(f, b).lt(float("inf")), 0.0, b)
    re, im = (v * factor * size * factor for v in (cos(f, isa, still), sin(f, isa, still)))
    return joined(f, re, f.select(b.eq(0.0), b, im))


def to_complex(s: EmitContext) -> Value:
    """Any number in a complex dtype."""
    f, part = s.f, dtypes.real_part(s.out)
    if s.dtype not in COMPLEX:
        x = convert(f, s.isa, s.xs[0], s.dtype, part)
        return joined(f, x, constant(f, part, 0, s.lanes))
    type = register_type(part, s.lanes)
    a, b = parts(f, s.xs[0])
    return joined(f, a.convert(type), b.convert(type))


@op("convert_element_type", COMPLEX)
def convert_element_type(s: EmitContext) -> Value:
    """To a real dtype the real part; to bool, whether any is not 0."""
    if s.out in COMPLEX:
        return s.xs[0] if s.dtype == s.out else to_complex(s)
    a, b = parts(s.f, s.xs[0])
    part: DType = dtypes.real_part(s.dtype)
    return a.ne(0.0) | b.ne(0.0) if s.out == dtypes.bool_ else convert(s.f, s.isa, a, part, s.out)
