"""Steps on stored values that look up tables, and those that rows of them end with: means, softmax.

As in `ops_quant`, values are int16 less the zero point, and each step has its meaning in NumPy beside its code.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.config.digest import digest
from nxjax.kernels.cpu.ir import Value, with_element
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.kernels.cpu.ops_quant import NDArray, StoredStep, constant_place, high_product
from nxjax.ops.fixed.point import INT32_MAX, divide_by_power, rescale, wrap32
from nxjax.ops.fixed.point import high_product as exact_product
from nxjax.ops.fixed.series import DIVISION, leading_zeros, reciprocal
from nxjax.ops.fixed.softmax import SUM_BITS
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes

ENTRIES: Final = 256  # of a table
_RESULT_BITS: Final = 8  # of a softmax


def _looked_up(q: NDArray, *, table: bytes, least: int, narrow: bool) -> NDArray:
    found = np.frombuffer(table, np.int32)[(q.astype(np.int32) - least) & (ENTRIES - 1)]
    return found.astype(np.int16 if narrow else np.int32)


def _mean(total: NDArray, *, multiplier: int, exponent: int, out: Grid, rounding: Rounding) -> NDArray:
    scaled = wrap32(rescale(total.astype(np.int64), multiplier, exponent, rounding) + out.zero_point)
    return (np.clip(scaled, *out.limits) - out.zero_point).astype(np.int16)


def _softmax(exps: NDArray, inverse: NDArray, total: NDArray) -> NDArray:
    found = divide_by_power(exact_product(inverse, exps), SUM_BITS - leading_zeros(total) + 31 - _RESULT_BITS)
    return np.minimum(found, (1 << _RESULT_BITS) - 1).astype(np.int16)


# ``table`` are the bytes of 256 int32; ``least`` has the first of them. ``narrow``: the results are int16.
looked_up: Final = StoredStep("stored_table", _looked_up)
mean: Final = StoredStep("stored_mean", _mean)
# Of an exponential its share of the sum, of the sum its inverse; exponential, inverse and sum give the result.
share: Final = StoredStep("stored_share", lambda x: divide_by_power(x, SUM_BITS).astype(np.int32))
inverse: Final = StoredStep("stored_inverse", lambda x: reciprocal(x.astype(np.int64), SUM_BITS)[0].astype(np.int32))
softmax: Final = StoredStep("stored_softmax", _softmax)


@op("stored_table", (dtypes.int16, dtypes.int32), exact=True)
def _emit_table(s: EmitContext) -> Value:
    f, (q,), lanes = s.f, s.xs, s.lanes
    data, wide = s.params["table"], with_element(s.xs[0].type, "i32")
    name = f"@table_{digest(data).hexdigest()[:24]}"
    numbers = ", ".join(f"i32 {n}" for n in np.frombuffer(data, np.int32))
    f.globals[name] = f"{name} = private constant [{ENTRIES} x i32] [{numbers}], align 64"
    table = Value(f, "ptr", name)
    # What lies behind the last element of a row may be anything.
    index = (q.convert(wide) - s.params["least"]) & (ENTRIES - 1)
    if not lanes:
        found = f.load("i32", f.at(table, index.convert("i64"), 4), 4)
    elif s.isa.name.startswith("avx512") and lanes == s.isa.lanes(4):
        places = f.emit(f"<{lanes} x ptr>", f"getelementptr i32, ptr {name}, {wide} {index.name}")
        found = f.gather(wide, places, f.constant(f"<{lanes} x i1>", True))
    else:
        # Memory takes lanes apart for less than instructions do.
        room, found = f.alloca(wide), f.poison(wide)
        f.store(index, room)
        for i in range(lanes):
            at = f.load("i32", f.at(room, i, 4), 4).convert("i64")
            found = f.insert(found, f.load("i32", f.at(table, at, 4), 4), i)
    return found.convert(with_element(wide, "i16")) if s.params["narrow"] else found


@op("stored_mean", (dtypes.int32,), exact=True)
def _emit_mean(s: EmitContext) -> Value:
    p = s.params
    lo, hi = p["out"].limits
    return constant_place(s.f, s.xs[0], (p["multiplier"], p["exponent"]), {**p, "lo": lo, "hi": hi})


@op("stored_share", (dtypes.int32,), exact=True)
def _emit_share(s: EmitContext) -> Value:
    (x,) = s.xs
    return (x >> SUM_BITS) + ((x >> (SUM_BITS - 1)) & 1)


def _leading_zeros(s: EmitContext, x: Value) -> Value:
    return s.f.intrinsic("ctlz", x.type, x, s.f.constant("i1", False), over=x.type)


@op("stored_inverse", (dtypes.int32,), exact=True)
def _emit_inverse(s: EmitContext) -> Value:
    """`fixed.series.one_over_one_plus` of what the sum is above a power of two."""
    f, (total,) = s.f, s.xs
    number = lambda v: f.constant(total.type, v)
    above = (total << _leading_zeros(s, total)) & ((1 << 31) - 1)
    half = above.lshr(1) + (1 << 30)
    first, slope = DIVISION
    x = high_product(f, half, number(slope)) + first
    for _ in range(3):
        error = number(1 << 29) - high_product(f, half, x)
        x = x + (high_product(f, x, error) << 2)  # an error is a small part of x
    return f.select(x.ge(1 << 30), INT32_MAX, x << 1)


@op("stored_softmax", (dtypes.int32,), exact=True)
def _emit_softmax(s: EmitContext) -> Value:
    """The product is not negative: its right shift is one less, then half of what is one more."""
    f, (exps, inverse, total) = s.f, s.xs
    number = lambda v: f.constant(exps.type, v)
    shift = number(SUM_BITS + 30 - _RESULT_BITS) - _leading_zeros(s, total)
    shift = f.intrinsic("smin", shift.type, shift, number(31))
    found = (high_product(f, exps, inverse).lshr(shift) + 1).lshr(1)
    kept = f.intrinsic("smin", found.type, found, number((1 << _RESULT_BITS) - 1))
    return kept.convert(with_element(exps.type, "i16"))
