"""Arithmetic, comparison, choice, rounding and conversion of real numbers, as the ops' `eval` has them bit for bit.

Divisions of integers are guarded: x86 traps on a division by 0 and of the smallest number by -1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.ir import Function, Value, bits_of, constant_of, element, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_base import copysign, fabs, is_single, layout, where_rare
from nxjax.kernels.cpu.ops import DType, EmitContext, op
from nxjax.trace import dtypes

FLOAT = dtypes.FLOAT
INTEGER = dtypes.INTEGER
REAL = FLOAT | INTEGER
ALL = REAL | dtypes.BOOL


def is_unsigned(dtype: DType) -> bool:
    return dtype in dtypes.UNSIGNED or dtype == dtypes.bool_


@op("neg", REAL)
def neg(s: EmitContext) -> Value:
    return -s.xs[0]


@op("add", ALL)
def add(s: EmitContext) -> Value:
    x, y = s.xs
    return x | y if s.dtype == dtypes.bool_ else x + y


@op("sub", REAL)
def sub(s: EmitContext) -> Value:
    x, y = s.xs
    return x - y


@op("mul", ALL)
def mul(s: EmitContext) -> Value:
    x, y = s.xs
    return x & y if s.dtype == dtypes.bool_ else x * y


@op("div", REAL)
def div(s: EmitContext) -> Value:
    x, y = s.xs
    if s.dtype in FLOAT:
        return _float_quotient(s, x, y)
    by_zero = y.eq(0)
    if s.dtype in dtypes.UNSIGNED:
        return s.f.select(by_zero, int(dtypes.integer_info(s.dtype).max), _quotient(s, x, s.f.select(by_zero, 1, y)))
    # x / -1 is -x, which wraps where a division would trap.
    negated = y.eq(-1)
    quotient = _quotient(s, x, s.f.select(by_zero | negated, 1, y))
    return s.f.select(by_zero, -1, s.f.select(negated, -x, quotient))


def _float_quotient(s: EmitContext, x: Value, y: Value) -> Value:
    """x / y by products with 1 / y where y is a constant and nothing on the way leaves the normal numbers.

    A division takes as long as eight products. A remainder that is rounded once corrects the quotient; after two of
    them it is the rounded one (P. Markstein, "Computation of elementary functions on the IBM RISC System/6000", 1990),
    for the numbers that integers give. One is enough for float16, which is rounded again.
    """
    f, known = s.f, constant_of(y)
    if not s.isa.fma or known is None or not s.lanes or not 2.0**-60 < abs(known) < 2.0**60:
        return x / y
    inverse = f.constant(x.type, float(1 / np.float32(known)) if is_single(x) else 1 / known)
    first = x * inverse
    if s.dtype == dtypes.float16:
        size = fabs(f, first)
        return f.select(size.gt(0.0) & size.lt(math.inf), f.fma(f.fma(-first, y, x), inverse, first), first)
    if x.name not in f.whole or abs(math.frexp(known)[0]) in (0.5, 1 - 2.0 ** -(layout(x).mantissa + 1)):
        return x / y
    second = f.fma(f.fma(-first, y, x), inverse, first)
    return f.fma(f.fma(-second, y, x), inverse, second)


def _quotient(s: EmitContext, x: Value, y: Value) -> Value:
    """x / y of integers, toward zero.

    Processors divide integers one by one, floats in vectors. A quotient of b-bit integers that is not whole is farther
    than 2^-b of its size from the next whole number, so that a float type with more bits cuts it off where it should.
    """
    signed = s.dtype in dtypes.SIGNED
    bits = bits_of(element(x.type))
    if not s.lanes or bits == 64 or not s.xs[1].name.startswith("%"):
        return x.sdiv(y) if signed else x.udiv(y)
    wide = with_element(x.type, "float" if bits <= 16 else "double")
    middle = with_element(x.type, "i32")  # what processors convert from and to
    a, b = (v.convert(middle, signed=signed).convert(wide, signed=signed) for v in (x, y))
    return (a / b).convert(middle, signed=signed).convert(x.type)


@op("rem", REAL, exact=True)
def rem(s: EmitContext) -> Value:
    """The remainder of division toward zero, with the sign of x."""
    x, y = s.xs
    if s.dtype in FLOAT:
        return _float_remainder(s, x, y)
    by_zero = y.eq(0)
    # x mod -1 is 0, as x mod 1 is.
    safe = s.f.select(by_zero if s.dtype in dtypes.UNSIGNED else by_zero | y.eq(-1), 1, y)
    return s.f.select(by_zero, x, x - _quotient(s, x, safe) * safe)


def _float_remainder(s: EmitContext, x: Value, y: Value) -> Value:
    """x - q y with q = trunc(x / y), which is exact for quotients that are not too large; C's ``fmod`` for others.

    Floats are divided in double: below 2^24 the quotient cannot round up to the next whole number. That of doubles can,
    and is then one too large: the remainder has the wrong sign, and y makes it right.
    """
    f = s.f
    single = element(x.type) == "float"
    if not s.lanes or not (single or s.isa.fma):
        return f.binary("frem", x, y)
    double = with_element(x.type, "double")
    a, b = x.convert(double), fabs(f, y.convert(double))
    size = fabs(f, a)
    q = rounded(f, s.isa, "trunc", size / b)
    rare = ~(q.lt(2.0**24 if single else 2.0**52) & b.lt(float("inf")))
    r = f.fma(-q, b, size)
    if not single:
        r = f.select(r.lt(0.0), r + b, r)
    r = copysign(f, r.convert(x.type), x)
    return where_rare(f, rare, r, lambda: f.binary("frem", x, y))


@op("max", ALL, exact=True)
def max_(s: EmitContext) -> Value:
    return _extremum(s, s.dtype, s.xs[0], s.xs[1], largest=True)


@op("min", ALL, exact=True)
def min_(s: EmitContext) -> Value:
    return _extremum(s, s.dtype, s.xs[0], s.xs[1], largest=False)


def _extremum(s: EmitContext, dtype: DType, x: Value, y: Value, largest: bool) -> Value:
    """The larger or smaller; NaN if either is. Of two zeros the second (of float16 the first), as NumPy has it."""
    f = s.f
    if dtype == dtypes.bool_:
        return x | y if largest else x & y
    if dtype in FLOAT:
        if dtype == dtypes.float16:
            wins = x.ge(y) if largest else x.le(y)
        else:
            wins = x.gt(y) if largest else x.lt(y)
        return f.select(x.is_nan(), x, f.select(wins, x, y))
    name = ("u" if dtype in dtypes.UNSIGNED else "s") + ("max" if largest else "min")
    return f.intrinsic(name, x.type, x, y)


@op("abs", REAL, exact=True)
def abs_(s: EmitContext) -> Value:
    (x,) = s.xs
    if s.dtype in FLOAT:
        return s.f.intrinsic("fabs", x.type, x)
    if s.dtype in dtypes.UNSIGNED:
        return x
    y = s.f.select(x.lt(0), -x, x)
    return convert.settle(s.f, s.isa, s.dtype, y)


@op("sign", REAL, exact=True)
def sign(s: EmitContext) -> Value:
    (x,) = s.xs
    f = s.f
    if s.dtype in FLOAT:
        # Zeros keep their sign.
        return f.select(x.gt(0.0), 1.0, f.select(x.lt(0.0), -1.0, x))
    if s.dtype in dtypes.UNSIGNED:
        return x.ne(0).convert(x.type, signed=False)
    return f.select(x.gt(0), 1, f.select(x.lt(0), -1, x))


@op("sqrt", FLOAT)
def sqrt(s: EmitContext) -> Value:
    (x,) = s.xs
    return s.f.intrinsic("sqrt", x.type, x)


# --- comparison and choice ---


def _compare(name: str, allowed: frozenset[DType] = ALL) -> None:
    @op(name, allowed, exact=True)
    def _(s: EmitContext) -> Value:
        x, y = s.xs
        unsigned = is_unsigned(s.dtype) and name not in ("eq", "ne")
        return getattr(x, "u" + name if unsigned else name)(y)


for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    _compare(_name)


@op("select_n", dtypes.NUMERIC | {dtypes.key}, exact=True)
def select_n(s: EmitContext) -> Value:
    """``cases[which]``; an integer outside of the cases takes the nearest one."""
    which, *cases = s.xs
    if len(cases) == 1:
        return cases[0]
    if len(cases) == 2:
        return s.f.select(which if s.dtype == dtypes.bool_ else which.ne(0), cases[1], cases[0])
    y = cases[0]
    for i, case in enumerate(cases[1:], 1):
        y = s.f.select(which.ge(i), case, y)
    return y


# --- rounding ---


@op("floor", FLOAT, exact=True)
def floor(s: EmitContext) -> Value:
    return rounded(s.f, s.isa, "floor", s.xs[0])


@op("ceil", FLOAT, exact=True)
def ceil(s: EmitContext) -> Value:
    return rounded(s.f, s.isa, "ceil", s.xs[0])


@op("round", FLOAT, exact=True)
def round_(s: EmitContext) -> Value:
    (x,) = s.xs
    f = s.f
    if s.params["rounding_method"] == 1:
        return rounded(s.f, s.isa, "roundeven", x)
    whole = rounded(s.f, s.isa, "trunc", x)
    away = f.select(x.lt(0.0), f.constant(x.type, -1.0), f.constant(x.type, 1.0))
    rest = f.intrinsic("fabs", x.type, x - whole)
    return f.select(rest.ge(0.5), whole + away, whole)


def rounded(f: Function, isa: Isa, how: str, x: Value) -> Value:
    """``floor``, ``ceil``, ``trunc`` or ``roundeven`` of a float; the sign of zero is that of ``x``."""
    if isa.name != "portable":
        return f.intrinsic(how, x.type, x)
    # Without an instruction LLVM would call a function of C for each element. Numbers of this size have no fraction;
    # adding and subtracting it rounds smaller ones to nearest even.
    whole = 2.0**23 if element(x.type) == "float" else 2.0**52
    size = f.intrinsic("fabs", x.type, x)
    near = (size + whole) - whole
    near = f.intrinsic("copysign", x.type, near, x)
    if how == "floor":
        near = near - f.select(near.gt(x), f.constant(x.type, 1.0), 0.0)
    elif how == "ceil":
        near = near + f.select(near.lt(x), f.constant(x.type, 1.0), 0.0)
    elif how == "trunc":
        over = f.intrinsic("fabs", x.type, near).gt(size)
        step = f.intrinsic("copysign", x.type, f.constant(x.type, 1.0), x)
        near = near - f.select(over, step, 0.0)
    near = f.intrinsic("copysign", x.type, near, x)
    return f.select(size.lt(whole), near, x)


def _wide_exponent(params: Mapping[str, Any], ins: Sequence[DType], out: DType) -> str:
    return "float64 with more than 11 bits of exponent" if params["exponent_bits"] > 11 else ""


@op("reduce_precision", FLOAT, refuses=_wide_exponent)
def reduce_precision(s: EmitContext) -> Value:
    """In float64: rounded at the last kept bit of the word, too large to infinity, too small to zero."""
    (x,) = s.xs
    f = s.f
    exponent_bits, mantissa_bits = int(s.params["exponent_bits"]), int(s.params["mantissa_bits"])
    wide = x.convert(with_element(x.type, "double"))
    i64 = with_element(x.type, "i64")
    bits = wide.bitcast(i64) & 0x7FFFFFFFFFFFFFFF
    cut = 52 - mantissa_bits
    if cut > 0:
        # Without stored bits the last kept one is the exponent's.
        odd = bits.lshr(cut) & 1
        bits = (bits + odd + ((1 << (cut - 1)) - 1)) & -(1 << cut)
    size = bits.bitcast(wide.type)
    bias = 2 ** (exponent_bits - 1) - 1
    largest = (2 - 2.0**-mantissa_bits) * 2.0**bias
    y = f.select(size.gt(largest), float("inf"), size)
    y = f.select(size.lt(2.0 ** (1 - bias)), 0.0, y)
    y = f.intrinsic("copysign", wide.type, y, wide)
    # A comparison with NaN is false: infinities and NaN stay as they are.
    finite = f.intrinsic("fabs", wide.type, wide).lt(float("inf"))
    return f.select(finite, y, wide).convert(x.type)


# --- conversion ---


@op("convert_element_type", ALL, exact=True)
def convert_element_type(s: EmitContext) -> Value:
    if s.out in dtypes.COMPLEX:
        from nxjax.kernels.cpu.ops_complex import to_complex

        return to_complex(s)
    y = convert.convert(s.f, s.isa, s.xs[0], s.dtype, s.out)
    if s.dtype in INTEGER and s.out in (dtypes.float32, dtypes.float64):
        s.f.whole.add(y.name)
    return y


def _other_width(params: Mapping[str, Any], ins: Sequence[DType], out: DType) -> str:
    return (
        "" if dtypes.bit_width(ins[0]) == dtypes.bit_width(out) else "another width: elements are added or taken away"
    )


@op("bitcast_convert_type", dtypes.NUMERIC, refuses=_other_width, exact=True)
def bitcast_convert_type(s: EmitContext) -> Value:
    (x,) = s.xs
    if s.dtype == s.out:
        return x
    raw = convert.to_memory(s.f, s.isa, s.dtype, x)
    return convert.from_memory(s.f, s.isa, s.out, raw.bitcast(convert.memory_type(s.out, s.lanes)))


@op("copy", dtypes.NUMERIC | {dtypes.key}, exact=True)
def copy(s: EmitContext) -> Value:
    return s.xs[0]
