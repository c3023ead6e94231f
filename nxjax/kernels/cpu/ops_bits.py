"""Bits of integers, truth of booleans: and, or, xor, not, shifts, counts, as the ops' `eval` has them."""

from __future__ import annotations

from nxjax.kernels.cpu.ir import Value
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.trace import dtypes


@op("and", dtypes.BITS, exact=True)
def and_(s: EmitContext) -> Value:
    return s.xs[0] & s.xs[1]


@op("or", dtypes.BITS, exact=True)
def or_(s: EmitContext) -> Value:
    return s.xs[0] | s.xs[1]


@op("xor", dtypes.BITS, exact=True)
def xor(s: EmitContext) -> Value:
    return s.xs[0] ^ s.xs[1]


@op("not", dtypes.BITS)
def not_(s: EmitContext) -> Value:
    return ~s.xs[0]


# A shift by the width or more (a negative amount is a large unsigned one) moves every bit out. LLVM leaves that
# undefined, so that the amount is compared beside it.


@op("shift_left", dtypes.INTEGER)
def shift_left(s: EmitContext) -> Value:
    x, y = s.xs
    return s.f.select(y.ult(dtypes.bit_width(s.dtype)), x << y, 0)


@op("shift_right_logical", dtypes.INTEGER)
def shift_right_logical(s: EmitContext) -> Value:
    x, y = s.xs
    bits = x & 15 if s.dtype == dtypes.int4 else x
    return s.f.select(y.ult(dtypes.bit_width(s.dtype)), bits.lshr(y), 0)


@op("shift_right_arithmetic", dtypes.INTEGER)
def shift_right_arithmetic(s: EmitContext) -> Value:
    x, y = s.xs
    width = dtypes.bit_width(s.dtype)
    bits = (x << 4) >> 4 if width == 4 else x
    return bits >> s.f.intrinsic("umin", y.type, y, s.f.constant(y.type, width - 1))


@op("population_count", dtypes.INTEGER)
def population_count(s: EmitContext) -> Value:
    (x,) = s.xs
    return s.f.intrinsic("ctpop", x.type, x & 15 if s.dtype == dtypes.int4 else x)


@op("clz", dtypes.INTEGER)
def clz(s: EmitContext) -> Value:
    (x,) = s.xs
    f = s.f
    count = f.intrinsic("ctlz", x.type, x & 15 if s.dtype == dtypes.int4 else x, f.constant("i1", False))
    return count - 4 if dtypes.bit_width(s.dtype) == 4 else count
