"""Functions of complex numbers: roots, logarithms, powers, circular and hyperbolic functions and their inverses.

All is computed in double precision, where the squares of single-precision parts neither overflow nor are rounded.
What becomes of zeros, infinities and NaN is what C99, annex G, says. The inverses and powers are for single precision
alone: in double their formulas would lose digits. W. Kahan, "Branch cuts for complex elementary functions" (1987).
"""

from __future__ import annotations

import math

from nxjax.kernels.cpu.ir import Function, Value, element, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import copysign, fabs, product_error, two_sum
from nxjax.kernels.cpu.math_exp import cosh, exp, exp2, expm1, sinh
from nxjax.kernels.cpu.math_log import asinh, log, log1p
from nxjax.kernels.cpu.math_trig import atan2, cos, sin
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.kernels.cpu.ops_complex import COMPLEX, Parts, joined, parts, product
from nxjax.trace import dtypes

SINGLE = frozenset((dtypes.complex64,))
INFINITE = float("inf")


def _wide(s: EmitContext, i: int = 0) -> Parts:
    """The parts of an operand in double precision."""
    x, y = parts(s.f, s.xs[i])
    wide = with_element(x.type, "double")
    return (x, y) if element(x.type) == "double" else (x.convert(wide), y.convert(wide))


def _narrow(s: EmitContext, z: Parts) -> Value:
    """The result of parts in double precision."""
    x, y = z
    if s.dtype in SINGLE:
        narrow = with_element(x.type, "float")
        x, y = x.convert(narrow), y.convert(narrow)
    return joined(s.f, x, y)


def _ordered(f: Function, a: Value, b: Value) -> Parts:
    """The larger and the smaller of two sizes; NaN may be either."""
    above = a.gt(b)
    return f.select(above, a, b), f.select(above, b, a)


def _is_infinite(f: Function, x: Value) -> Value:
    return fabs(f, x).eq(INFINITE)


def _is_finite(f: Function, x: Value) -> Value:
    return fabs(f, x).lt(INFINITE)


# --- roots and logarithms ---


def root(f: Function, z: Parts) -> Parts:
    """s = sqrt((|z| + |a|) / 2) and b / 2s, or the other way round where a < 0; for squares that have an end."""
    a, b = z
    x, y = fabs(f, a), fabs(f, b)
    s = f.intrinsic("sqrt", a.type, (f.intrinsic("sqrt", a.type, f.fma(a, a, b * b)) + x) * 0.5)
    return _both_parts(f, z, s, y)


def _double_root(f: Function, z: Parts) -> Parts:
    """Of any double-precision numbers: by powers of four the sum and the quotient stay in the range."""
    a, b = z
    large, _ = _ordered(f, fabs(f, a), fabs(f, b))
    above, below = large.gt(2.0**1020), large.lt(2.0**-960)
    one = f.constant(a.type, 1.0)
    scale = f.select(above, 0.25, f.select(below, 2.0**108, one))
    back = f.select(above, 2.0, f.select(below, 2.0**-54, one))
    x, y = fabs(f, a * scale), fabs(f, b * scale)
    large, small = _ordered(f, x, y)
    ratio = small / f.select(large.eq(0.0), 1.0, large)
    ratio = f.select(_is_infinite(f, large), 0.0, ratio)
    size = large * f.intrinsic("sqrt", a.type, f.fma(ratio, ratio, 1.0))
    re, im = _both_parts(f, z, f.intrinsic("sqrt", a.type, (size + x) * 0.5), y)
    return re * back, im * back


def _both_parts(f: Function, z: Parts, s: Value, y: Value) -> Parts:
    """The root of z by the larger of its parts and the size of z's imaginary part."""
    a, b = z
    t = y / (s * 2.0)
    endless = _is_infinite(f, a)
    t = f.select(s.eq(0.0) | (endless & ~b.is_nan()), 0.0, t)
    # |a| is infinite and b is NaN: only one part is unknown.
    s = f.select(endless, INFINITE, s)
    left = a.lt(0.0)
    re, im = f.select(left, t, s), copysign(f, f.select(left, s, t), b)
    endless = _is_infinite(f, b)
    return f.select(endless, INFINITE, re), f.select(endless, b, im)


def logarithm(f: Function, isa: Isa, z: Parts, less: Value | None = None) -> Parts:
    """log|z| and the angle. Near |z| = 1, half of log1p(|z|^2 - 1).

    Args:
        less: |z|^2 - 1, where that is known better than by z.
    """
    a, b = z
    x, y = fabs(f, a), fabs(f, b)
    large, small = _ordered(f, x, y)
    ratio = small / f.select(large.eq(0.0), 1.0, large)
    ratio = f.select(_is_infinite(f, large), 0.0, ratio)
    near = large.ge(0.5) & large.le(2.0)
    if less is None:
        square, other = large * large, small * small
        lost = product_error(f, isa, large, large, square) + product_error(f, isa, small, small, other)
        total, first = two_sum(square, f.constant(a.type, -1.0))
        total, second = two_sum(total, other)
        less = total + (first + second + lost)
    re = f.select(near, 0.0, log(f, isa, large)) + log1p(f, isa, f.select(near, less, ratio * ratio)) * 0.5
    return f.select(x.eq(INFINITE) | y.eq(INFINITE), INFINITE, re), atan2(f, isa, b, a)


@op("sqrt", COMPLEX)
def sqrt_(s: EmitContext) -> Value:
    return _narrow(s, (root if s.dtype in SINGLE else _double_root)(s.f, _wide(s)))


@op("log", COMPLEX)
def log_(s: EmitContext) -> Value:
    return _narrow(s, logarithm(s.f, s.isa, _wide(s)))


@op("log1p", COMPLEX)
def log1p_(s: EmitContext) -> Value:
    """|1 + z|^2 - 1 = 2a + a^2 + b^2, with what its roundings lose."""
    f, isa = s.f, s.isa
    a, b = _wide(s)
    square, other = a * a, b * b
    lost = product_error(f, isa, a, a, square) + product_error(f, isa, b, b, other)
    total, first = two_sum(a * 2.0, square)
    total, second = two_sum(total, other)
    return _narrow(s, logarithm(f, isa, (a + 1.0, b), total + (first + second + lost)))


@op("sign", COMPLEX)
def sign(s: EmitContext) -> Value:
    """z / |z|; 0 of 0, and of one infinite part the direction."""
    f = s.f
    a, b = _wide(s)
    first, second = _is_infinite(f, a), _is_infinite(f, b)
    one, zero = f.constant(a.type, 1.0), f.constant(a.type, 0.0)
    x = f.select(first, copysign(f, one, a), f.select(second, zero, a))
    y = f.select(second, copysign(f, one, b), f.select(first, zero, b))
    large, _ = _ordered(f, fabs(f, x), fabs(f, y))
    nothing = x.eq(0.0) & y.eq(0.0)
    large = f.select(nothing, 1.0, large)
    x, y = x / large, y / large
    size = f.select(first & second, float("nan"), f.intrinsic("sqrt", a.type, f.fma(x, x, y * y)))
    return _narrow(s, (f.select(nothing, zero, x / size), f.select(nothing, zero, y / size)))


# --- exponentials ---


@op("expm1", COMPLEX)
def expm1_(s: EmitContext) -> Value:
    """expm1(a) cos b - 2 sin^2(b / 2), and e^a sin b; at infinity as the Array API standard says."""
    f, isa = s.f, s.isa
    a, b = _wide(s)
    size, nowhere = exp(f, isa, a), ~_is_finite(f, b)
    half = sin(f, isa, b * 0.5)
    # The sum with 0 leaves no negative zero.
    re = expm1(f, isa, a) * cos(f, isa, b) - half * half * 2.0 + 0.0
    # Where e^a is 0 no angle matters; where it is infinite only the size of the result is known.
    re = f.select(nowhere & _is_infinite(f, a), f.select(a.lt(0.0), -1.0, a), re)
    im = f.select(nowhere & size.eq(0.0), 0.0, size * sin(f, isa, b))
    return _narrow(s, (re, f.select(b.eq(0.0), b, im)))


def _crossed(f: Function, isa: Isa, c: Value, d: Value) -> tuple[Value, Value, Value, Value]:
    """sin c cosh d, cos c sinh d; cos c cosh d, sin c sinh d."""
    # Where cosh has no end, its product with a small sine may have one: d is less by a part, and the product more.
    far = fabs(f, d).gt(700.0)
    part = 380.0
    near = f.select(far, d - copysign(f, f.constant(d.type, part), d), d)
    factor = f.select(far, f.constant(d.type, math.exp(part)), 1.0)
    sine, cosine = sin(f, isa, c) * factor, cos(f, isa, c) * factor
    rise, size = sinh(f, isa, near), cosh(f, isa, near)
    # An angle of 0 gives a sine of 0, d = 0 gives a sinh of 0, whatever the other one is.
    still, flat, turning = c.eq(0.0), d.eq(0.0) & ~_is_finite(f, c), _is_infinite(f, d) & ~_is_finite(f, c)
    a = f.select(still, c, sine * size)
    b = f.select(flat | turning, d, cosine * rise)
    p = f.select(turning, INFINITE, cosine * size)
    q = f.select(flat, d, f.select(still, copysign(f, f.constant(c.type, 1.0), d) * c, sine * rise))
    return a, b, p, q


@op("sin", COMPLEX)
def sin_(s: EmitContext) -> Value:
    return _narrow(s, _crossed(s.f, s.isa, *_wide(s))[:2])


@op("cos", COMPLEX)
def cos_(s: EmitContext) -> Value:
    *_, re, im = _crossed(s.f, s.isa, *_wide(s))
    return _narrow(s, (re, -im))


@op("sinh", COMPLEX)
def sinh_(s: EmitContext) -> Value:
    a, b = _wide(s)
    im, re, *_ = _crossed(s.f, s.isa, b, a)
    return _narrow(s, (re, im))


@op("cosh", COMPLEX)
def cosh_(s: EmitContext) -> Value:
    a, b = _wide(s)
    return _narrow(s, _crossed(s.f, s.isa, b, a)[2:])


def _tangent(f: Function, isa: Isa, a: Value, b: Value) -> Parts:
    """tanh(a + ib) = (sinh a cosh a + i sin b cos b) / (sinh^2 a + cos^2 b), whose sums have positive terms.

    From |a| = 20 on the real part is 1 to rounding, and the imaginary one falls with e^-2|a|.
    """
    most, one = f.constant(a.type, 20.0), f.constant(a.type, 1.0)
    size = fabs(f, a)
    near = copysign(f, f.select(size.gt(20.0), most, size), a)
    rest = f.select(size.gt(20.0), size - 20.0, 0.0)
    rise, sine, cosine = sinh(f, isa, near), sin(f, isa, b), cos(f, isa, b)
    both = sine * cosine
    divisor = f.fma(cosine, cosine, rise * rise)
    re = rise * cosh(f, isa, near) / divisor
    im = both / divisor * exp(f, isa, rest * -2.0)
    endless = size.eq(INFINITE)
    re = f.select(endless, copysign(f, one, a), f.select(a.eq(0.0), a, re))
    im = f.select(endless, f.select(_is_finite(f, b), both, b), im)
    im = f.select(endless, copysign(f, f.constant(a.type, 0.0), im), f.select(b.eq(0.0), b, im))
    return re, im


@op("tanh", COMPLEX)
def tanh_(s: EmitContext) -> Value:
    return _narrow(s, _tangent(s.f, s.isa, *_wide(s)))


@op("tan", COMPLEX)
def tan_(s: EmitContext) -> Value:
    a, b = _wide(s)
    re, im = _tangent(s.f, s.isa, b, a)
    return _narrow(s, (im, re))


# --- of single precision alone ---


@op("pow", SINGLE)
def pow_(s: EmitContext) -> Value:
    """e^(w log z); whole powers of numbers on an axis stay on one."""
    f, isa = s.f, s.isa
    z, w = _wide(s), _wide(s, 1)
    (a, b), (c, d) = z, w
    x, y = product(f, w, logarithm(f, isa, z))
    size = exp(f, isa, x)
    re, im = size * cos(f, isa, y), size * sin(f, isa, y)
    zero = f.constant(a.type, 0.0)
    floor = lambda v: f.intrinsic("floor", a.type, v)
    whole = d.eq(0.0) & floor(c).eq(c)
    odd = floor(c * 0.5).ne(c * 0.5)
    upright = whole & a.eq(0.0)
    im = f.select((whole & b.eq(0.0)) | (upright & ~odd), zero, im)
    re = f.select(upright & odd, zero, re)
    # Nothing to a positive power is nothing, and to another one unknown.
    nothing = a.eq(0.0) & b.eq(0.0)
    known = d.eq(0.0) & c.gt(0.0)
    missing = f.select(known, zero, float("nan"))
    re, im = f.select(nothing, missing, re), f.select(nothing, missing, im)
    none = c.eq(0.0) & d.eq(0.0)
    return _narrow(s, (f.select(none, 1.0, re), f.select(none, 0.0, im)))


def _inverse_tangent(f: Function, isa: Isa, a: Value, b: Value) -> Parts:
    """atanh(a + ib), log1p(4 a / ((1 - a)^2 + b^2)) / 4 and half the angle of 1 - |z|^2 + 2ib."""
    x, square = fabs(f, a), b * b
    below = 1.0 - x
    re = log1p(f, isa, x * 4.0 / f.fma(below, below, square)) * 0.25
    im = atan2(f, isa, b * 2.0, below * (1.0 + x) - square) * 0.5
    endless = _is_infinite(f, a) | _is_infinite(f, b)
    right = copysign(f, f.constant(a.type, math.pi / 2), b)
    return copysign(f, f.select(endless | a.eq(0.0), 0.0, re), a), f.select(endless & ~b.is_nan(), right, im)


@op("atanh", SINGLE)
def atanh_(s: EmitContext) -> Value:
    return _narrow(s, _inverse_tangent(s.f, s.isa, *_wide(s)))


@op("atan", SINGLE)
def atan_(s: EmitContext) -> Value:
    a, b = _wide(s)
    re, im = _inverse_tangent(s.f, s.isa, b, a)
    return _narrow(s, (im, re))


def _instead(f: Function, z: Parts) -> Parts:
    """Large numbers for infinite parts: of the same angle."""
    a, b = (f.select(_is_infinite(f, v), copysign(f, f.constant(v.type, 1e100), v), v) for v in z)
    return a, b


def _roots(f: Function, a: Value, b: Value) -> tuple[Parts, Parts]:
    """The roots of 1 - z and of 1 + z."""
    return root(f, (1.0 - a, -b)), root(f, (1.0 + a, b))


def _inverse_sine(f: Function, isa: Isa, z: Parts) -> Parts:
    """asin(z), with p and q the roots of 1 - z and 1 + z: the angle of Re(p q) + ia, and asinh(Im(conj(p) q))."""
    a, b = _instead(f, z)
    (p, r), (q, t) = _roots(f, a, b)
    re = atan2(f, isa, a, p * q - r * t)
    im = asinh(f, isa, p * t - r * q)
    endless = _is_infinite(f, z[0]) | _is_infinite(f, z[1])
    return f.select(a.eq(0.0), a, re), copysign(f, f.select(endless, INFINITE, im), z[1])


@op("asin", SINGLE)
def asin_(s: EmitContext) -> Value:
    return _narrow(s, _inverse_sine(s.f, s.isa, _wide(s)))


@op("asinh", SINGLE)
def asinh_(s: EmitContext) -> Value:
    a, b = _wide(s)
    re, im = _inverse_sine(s.f, s.isa, (b, a))
    return _narrow(s, (im, re))


def _inverse_cosine(f: Function, isa: Isa, z: Parts) -> Parts:
    """acos(z), with the same roots: twice the angle of Re(q) + i Re(p), and asinh(Im(conj(q) p))."""
    a, b = _instead(f, z)
    (p, r), (q, t) = _roots(f, a, b)
    re = atan2(f, isa, p, q) * 2.0
    im = asinh(f, isa, q * r - t * p)
    endless = _is_infinite(f, z[0]) | _is_infinite(f, z[1])
    right = f.constant(a.type, math.pi / 2)
    return f.select(a.eq(0.0), right, re), copysign(f, f.select(endless, INFINITE, im), -z[1])


@op("acos", SINGLE)
def acos_(s: EmitContext) -> Value:
    return _narrow(s, _inverse_cosine(s.f, s.isa, _wide(s)))


@op("acosh", SINGLE)
def acosh_(s: EmitContext) -> Value:
    """With p and q the roots of z - 1 and z + 1: asinh(Re(conj(p) q)), and twice the angle of Re(q) + i Im(p)."""
    f, isa = s.f, s.isa
    z = _wide(s)
    a, b = _instead(f, z)
    (p, r), (q, t) = root(f, (a - 1.0, b)), root(f, (a + 1.0, b))
    endless = _is_infinite(f, z[0]) | _is_infinite(f, z[1])
    re = f.select(endless, INFINITE, asinh(f, isa, f.fma(p, q, r * t)))
    return _narrow(s, (re, atan2(f, isa, r, q) * 2.0))


@op("exp2", SINGLE)
def exp2_(s: EmitContext) -> Value:
    f, isa = s.f, s.isa
    a, b = _wide(s)
    size, angle = exp2(f, isa, a), b * math.log(2)
    # Where it is 0 no angle gives NaN.
    angle = f.select(size.eq(0.0) & ~_is_finite(f, b), 0.0, angle)
    return _narrow(s, (size * cos(f, isa, angle), f.select(b.eq(0.0), b, size * sin(f, isa, angle))))
