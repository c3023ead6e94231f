"""Integer arithmetic of quantized values on registers: what epilogues and loop nests of quantized ops are made of.

A quantized value is stored as int16, *centred*: its integer less the zero point of its grid, so that 0 means 0 for
products, sums and padding alike. These are no ops of programs: a lowering puts them into expressions. Each has its
meaning in NumPy beside its code, said by `nxjax.ops.fixed`. All names begin with ``stored_``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu.float_factors import same_factors
from nxjax.kernels.cpu.ir import Function, Value, lanes_of, vector, with_element
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.ops.fixed.point import quantize_multiplier, rescale, wrap32
from nxjax.ops.fixed.reduce import average
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]
INT: Final = frozenset((dtypes.int16, dtypes.int32))


@final
class StoredStep:
    """A step on stored values, in the place of an op: a name for its code and a meaning."""

    def __init__(self, name: str, eval: Callable[..., Any]) -> None:
        self.name = name
        self.eval = eval


# --- to and from the grid ---


def _quantized(x: NDArray, *, grid: Grid) -> NDArray:
    return (grid.quantize(x).astype(np.int32) - grid.zero_point).astype(np.int16)


def _real(q: NDArray, *, grid: Grid) -> NDArray:
    return np.asarray(q.astype(np.float32) * np.float32(grid.scale))  # pyright: ignore[reportArgumentType]


quantized = StoredStep("stored_quantize", _quantized)
real = StoredStep("stored_real", _real)
# Centred integers as bytes; ``zero`` is the byte that stands for 0, modulo 256.
in_bytes = StoredStep("stored_byte", lambda q, *, zero: (q.astype(np.int32) + zero).astype(np.int8))


@op("stored_quantize", (dtypes.float32,), exact=True)
def _emit_quantize(s: EmitContext) -> Value:
    """`Grid.quantize` less the zero point."""
    f, (x,), grid = s.f, s.xs, s.params["grid"]
    low, high = (f.constant(x.type, float(v - grid.zero_point)) for v in grid.limits)
    ratio = x / f.constant(x.type, float(np.float32(grid.scale)))
    return away(f, f.select(ratio.is_nan(), 0.0, ratio), low, high)


@op("stored_real", (dtypes.int16,), exact=True)
def _emit_real(s: EmitContext) -> Value:
    (q,), grid = s.xs, s.params["grid"]
    type = with_element(q.type, "float")
    return q.convert(with_element(q.type, "i32")).convert(type) * float(np.float32(grid.scale))


@op("stored_byte", (dtypes.int16,), exact=True)
def _emit_byte(s: EmitContext) -> Value:
    return (s.xs[0] + s.params["zero"]).convert(with_element(s.xs[0].type, "i8"))


def away(f: Function, x: Value, low: Value, high: Value) -> Value:
    """Floats to the nearest integers, halves away from zero, between ``low`` and ``high``, as i16.

    Conversion cuts towards zero: what is added takes halves to the next integer, and nothing below a half.
    """
    kind = np.float64 if x.type == with_element(x.type, "double") else np.float32
    below_half = np.nextafter(kind(0.5), kind(0.0))
    y = x + f.intrinsic("copysign", x.type, f.constant(x.type, float(below_half)), x)
    y = f.select(y.gt(low), y, low)
    y = f.select(y.lt(high), y, high)
    return y.convert(with_element(x.type, "i32")).convert(with_element(x.type, "i16"))


# --- weights, biases, factors ---


def weight_of(w: NDArray, scale: NDArray, last: int) -> NDArray:
    with np.errstate(all="ignore"):
        ratio = w.astype(np.float32) / scale.astype(np.float32)
        return np.clip(np.nan_to_num(np.rint(ratio)), -last, last).astype(np.int32)


def _pair(low: NDArray, high: NDArray, scale: NDArray, *, last: int) -> NDArray:
    return (weight_of(low, scale, last) & 0xFFFF) | (weight_of(high, scale, last) << 16)


pair = StoredStep("stored_pair", _pair)
single = StoredStep("stored_single", lambda w, scale, *, last: weight_of(w, scale, last) & 0xFFFF)


def emitted_weight(f: Function, w: Value, scale: Value, last: int) -> Value:
    """``rint(w / scale)`` in the symmetric range, as i32."""
    ratio = f.intrinsic("rint", w.type, w / scale)
    kept = f.select(ratio.gt(-float(last)), ratio, -float(last))
    kept = f.select(kept.lt(float(last)), kept, float(last))
    return f.select(ratio.is_nan(), 0.0, kept).convert(with_element(w.type, "i32"))


@op("stored_pair", (dtypes.float32,), exact=True)
def _emit_pair(s: EmitContext) -> Value:
    low, high, scale = s.xs
    last = s.params["last"]
    return (emitted_weight(s.f, low, scale, last) & 0xFFFF) | (emitted_weight(s.f, high, scale, last) << 16)


@op("stored_single", (dtypes.float32,), exact=True)
def _emit_single(s: EmitContext) -> Value:
    w, scale = s.xs
    return emitted_weight(s.f, w, scale, s.params["last"]) & 0xFFFF


def _bias(b: NDArray, w_scale: NDArray, x_scale: NDArray) -> NDArray:
    scale = x_scale.astype(np.float64) * w_scale.astype(np.float64)
    return np.clip(np.rint(b.astype(np.float64) / scale), -(2.0**31) + 1, 2.0**31 - 1).astype(np.int32)


def _factor(w_scale: NDArray, x_scale: NDArray, y_scale: NDArray) -> NDArray:
    return x_scale.astype(np.float64) * w_scale.astype(np.float64) / y_scale.astype(np.float64)


def _mantissa(w_scale: NDArray, x_scale: NDArray, y_scale: NDArray, *, rounding: Rounding) -> NDArray:
    return quantize_multiplier(_factor(w_scale, x_scale, y_scale), rounding)[0].astype(np.int32)


def _exponent(w_scale: NDArray, x_scale: NDArray, y_scale: NDArray, *, rounding: Rounding) -> NDArray:
    return quantize_multiplier(_factor(w_scale, x_scale, y_scale), rounding)[1].astype(np.int32)


bias = StoredStep("stored_bias", _bias)
mantissa = StoredStep("stored_mantissa", _mantissa)
exponent = StoredStep("stored_exponent", _exponent)
# What `rescaled` makes of an exponent for each channel, made once: shifts to both sides, and what the right one cuts.
left = StoredStep("stored_left", lambda e: np.maximum(e, 0) & 31)
right = StoredStep("stored_right", lambda e: np.maximum(-e, 0))
cut = StoredStep("stored_cut", lambda r: ((np.int64(1) << r) - 1).astype(np.int32))


@op("stored_bias", (dtypes.float32,), exact=True)
def _emit_bias(s: EmitContext) -> Value:
    f, (b, w_scale, x_scale) = s.f, s.xs
    double = with_element(b.type, "double")
    ratio = b.convert(double) / (x_scale.convert(double) * w_scale.convert(double))
    whole = f.intrinsic("rint", double, ratio)
    last = float(2**31 - 1)
    kept = f.select(whole.gt(-last), whole, -last)
    kept = f.select(kept.lt(last), kept, last)
    return f.select(whole.is_nan(), 0.0, kept).convert(with_element(b.type, "i32"))


def _parts(s: EmitContext) -> tuple[Value, Value]:
    """`quantize_multiplier` of a positive factor by its bits: of 53 significant ones 31 are kept, halves up."""
    f, type = s.f, s.xs[0].type
    double, long = with_element(type, "double"), with_element(type, "i64")
    w_scale, x_scale, y_scale = (v.convert(double) for v in s.xs)
    bits = (x_scale * w_scale / y_scale).bitcast(long)
    power = bits.lshr(52) - 1022
    kept = ((bits & ((1 << 52) - 1)) + ((1 << 52) + (1 << 21))).lshr(22)
    full = kept.ge(1 << 31)
    kept = f.select(full, 1 << 30, kept)
    power = f.select(full, power + 1, power)
    gone = power.lt(-31)
    if s.params["rounding"] == "single":
        great = power.gt(30)
        kept, power = f.select(great, (1 << 31) - 1, kept), f.select(great, 30, power)
    return f.select(gone, 0, kept), f.select(gone, 0, power)


@op("stored_mantissa", (dtypes.float32,), exact=True)
def _emit_mantissa(s: EmitContext) -> Value:
    return _parts(s)[0].convert(with_element(s.xs[0].type, "i32"))


@op("stored_exponent", (dtypes.float32,), exact=True)
def _emit_exponent(s: EmitContext) -> Value:
    return _parts(s)[1].convert(with_element(s.xs[0].type, "i32"))


@op("stored_left", (dtypes.int32,), exact=True)
def _emit_left(s: EmitContext) -> Value:
    (e,) = s.xs
    return s.f.intrinsic("smax", e.type, e, s.f.constant(e.type, 0)) & 31


@op("stored_right", (dtypes.int32,), exact=True)
def _emit_right(s: EmitContext) -> Value:
    zero = s.f.constant(s.xs[0].type, 0)
    return s.f.intrinsic("smax", zero.type, zero - s.xs[0], zero)


@op("stored_cut", (dtypes.int32,), exact=True)
def _emit_cut(s: EmitContext) -> Value:
    return (s.f.constant(s.xs[0].type, 1) << s.xs[0]) - 1


# --- rescaling ---


def _clipped(x: NDArray, grid: Grid, lo: int, hi: int) -> NDArray:
    return (np.clip(wrap32(x + grid.zero_point), lo, hi) - grid.zero_point).astype(np.int16)


def _rescaled(acc: NDArray, b: NDArray, m: NDArray, *rest: NDArray, rounding: Rounding) -> NDArray:
    *shifts, zero, lo, hi = rest
    exponent_ = shifts[0] if rounding == "single" else shifts[0].astype(np.int64) - shifts[1]
    scaled = rescale(wrap32(acc.astype(np.int64) + b), m, exponent_, rounding)
    return (np.clip(wrap32(scaled + zero), lo, hi) - zero).astype(np.int16)


# (sum, bias, mantissa, exponent, zero point, lo, hi), or for "double" rounding left, right and cut for the exponent.
rescaled = StoredStep("stored_rescale", _rescaled)


def high_product(f: Function, x: Value, m: Value | int) -> Value:
    """``floor(x * m / 2**31 + 1/2)`` of i32, low 32 bits: even and odd lanes apart, as processors multiply them.

    A number ``m`` is not negative.
    """
    lanes = lanes_of(x.type)
    if isinstance(m, int):
        if lanes >= 2:
            return _by_number(f, x, m)
        m = f.constant(x.type, m)
    if lanes < 2:
        long = with_element(x.type, "i64")
        return ((x.convert(long) * m.convert(long) + (1 << 30)) >> 31).convert(x.type)
    half = vector("i64", lanes // 2)
    a, b = x.bitcast(half), m.bitcast(half)
    even = ((a << 32 >> 32) * (b << 32 >> 32) + (1 << 30)).lshr(31)
    odd = ((a >> 32) * (b >> 32) + (1 << 30)) << 1
    return ((even & 0xFFFFFFFF) | (odd & -(1 << 32))).bitcast(x.type)


def _by_number(f: Function, x: Value, m: int) -> Value:
    """`high_product` with a number: products without signs of x + 2**31, since there is no shift that keeps them."""
    half = vector("i64", lanes_of(x.type) // 2)
    above, back = (x ^ -(1 << 31)).bitcast(half), (1 << 30) - (m << 31)
    even = ((above & 0xFFFFFFFF) * m + back).lshr(31)
    odd = (above.lshr(32) * m + back) << 1
    return ((even & 0xFFFFFFFF) | (odd & -(1 << 32))).bitcast(x.type)


def once(f: Function, x: Value, m: Value, e: Value) -> Value:
    """`fixed.point.rescale` of i32 with "single" rounding, by a multiplier and a shift per lane."""
    long = with_element(x.type, "i64")
    right = 31 - e.convert(long)
    total = x.convert(long) * m.convert(long) + (f.constant(long, 1) << (right - 1))
    return (total >> right).convert(x.type)


def twice(f: Function, x: Value, m: Value | int, left: Value, right: Value, cut: Value) -> Value:
    """The same with "double" rounding; ``cut`` has the bits that the right shift cuts off."""
    high = high_product(f, x << left, m)
    # Halves away from zero: up, unless what is cut off is just half of a negative number.
    up = (high & cut).gt(cut.lshr(1) + high.lshr(31))
    y = high >> right
    return f.select(up, y + 1, y)


def placed(f: Function, x: Value, zero: Value | int, lo: Value | int, hi: Value | int) -> Value:
    """A rescaled value on a grid with zero point ``zero``: clipped, centred, as i16."""
    y = f.intrinsic("smax", x.type, x + zero, f.value(lo, x.type))
    y = f.intrinsic("smin", x.type, y, f.value(hi, x.type))
    return (y - zero).convert(with_element(x.type, "i16"))


def placed_in_halves(f: Function, x: Value, zero: Value, lo: Value, hi: Value) -> Value:
    """The same for several registers: numbers of the grid have 16 bits, and are clipped in half as many registers.

    Where one register is all there is, this takes more instructions, and more again where 32 bits are wanted next.
    """
    short = with_element(x.type, "i16")
    edge = lambda v: f.constant(x.type, v)
    y = f.intrinsic("smin", x.type, f.intrinsic("smax", x.type, x + zero, edge(-(1 << 15))), edge((1 << 15) - 1))
    zero, lo, hi = (v.convert(short) for v in (zero, lo, hi))
    y = f.intrinsic("smin", short, f.intrinsic("smax", short, y.convert(short), lo), hi)
    return y - zero


@op("stored_rescale", (dtypes.int32,), exact=True)
def _emit_rescale(s: EmitContext) -> Value:
    f, (acc, b, m, *shifts, zero, lo, hi) = s.f, s.xs
    scaled = once if s.params["rounding"] == "single" else twice
    place = placed_in_halves if s.lanes > s.isa.lanes(4) else placed
    return place(f, scaled(f, acc + b, m, *shifts), zero, lo, hi)


Factor = tuple[int, int]  # a multiplier and a shift


def factor_of(real: float, rounding: Rounding) -> Factor:
    m, e = quantize_multiplier(real, rounding)
    return int(m), int(e)


def constant_scale(f: Function, x: Value, factor: Factor, rounding: Rounding, small: bool = False) -> Value:
    """`fixed.point.rescale` of i32 by a factor that is known; ``small``: ``x`` is below 2^29."""
    number = lambda v: f.constant(x.type, v)
    m, e = factor
    if rounding == "single":
        return once(f, x, number(m), number(e))
    r = max(-e, 0)
    if not small or e > 0:
        return twice(f, x, m, number(max(e, 0) & 31), number(r), number((1 << r) - 1))
    high = (x + 1) >> 1 if m == 1 << 30 else high_product(f, x, m)
    return (high + (high >> 31) + (1 << (r - 1))) >> r if r else high


def constant_place(f: Function, x: Value, factor: Factor, p: Mapping[str, Any], small: bool = False) -> Value:
    """``x`` by a factor that is known, on the grid ``p["out"]`` as `placed` has it."""
    y, zero = constant_scale(f, x, factor, p["rounding"], small), p["out"].zero_point
    if factor[1] >= (1 if small else 0):
        return placed(f, y, zero, p["lo"], p["hi"])
    # The zero point takes no such number out of 32 bits: the limits are moved instead.
    return placed(f, y, 0, p["lo"] - zero, p["hi"] - zero)


# --- sums, products, other grids ---


def sum_factors(x_grid: Grid, y_grid: Grid, out: Grid) -> tuple[float, float, float]:
    """Both operands' factors to half of the coarser scale with 20 more bits, and the factor from there."""
    x, y, z = (np.float32(g.scale) for g in (x_grid, y_grid, out))  # pyright: ignore[reportArgumentType]
    twice = np.float64(np.float32(2) * max(x, y))
    return float(np.float64(x) / twice), float(np.float64(y) / twice), float(twice / np.float64(np.float32(2**20) * z))


def _sum(
    p: NDArray, q: NDArray, *, sign: int, x_grid: Grid, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding
) -> NDArray:
    a, b, c = sum_factors(x_grid, y_grid, out)
    left, right = (
        rescale(wrap32(v.astype(np.int64) << 20), *quantize_multiplier(r, rounding), rounding)
        for v, r in ((p, a), (q, b))
    )
    return _clipped(rescale(wrap32(left + sign * right), *quantize_multiplier(c, rounding), rounding), out, lo, hi)


def product_factor(x_grid: Grid, y_grid: Grid, out: Grid) -> float:
    x, y, z = (np.float32(g.scale) for g in (x_grid, y_grid, out))  # pyright: ignore[reportArgumentType]
    with np.errstate(under="ignore"):
        return float(x * y / z)


def _product(
    p: NDArray, q: NDArray, *, x_grid: Grid, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding
) -> NDArray:
    total = wrap32(p.astype(np.int64) * q)
    real = product_factor(x_grid, y_grid, out)
    return _clipped(rescale(total, *quantize_multiplier(real, rounding), rounding), out, lo, hi)


def _moved(p: NDArray, *, factor: float, out: Grid, lo: int, hi: int, rounding: Rounding) -> NDArray:
    return _clipped(rescale(p.astype(np.int64), *quantize_multiplier(factor, rounding), rounding), out, lo, hi)


summed = StoredStep("stored_sum", _sum)
multiplied = StoredStep("stored_product", _product)
moved = StoredStep("stored_move", _moved)


def _wide(x: Value) -> Value:
    return x.convert(with_element(x.type, "i32"))


@lru_cache(maxsize=1024)
def _in_floats(
    x_grid: Grid, y_grid: Grid, out: Grid, sign: int, lo: int, hi: int, rounding: Rounding
) -> tuple[float, ...] | None:
    """Both operands' float32 factors that give the bits of `summed`, if there are such."""
    a, b, c = sum_factors(x_grid, y_grid, out)
    exact = lambda p, q: _sum(p, q, sign=sign, x_grid=x_grid, y_grid=y_grid, out=out, lo=lo, hi=hi, rounding=rounding)
    scale = c * 2**20
    bytes_ = np.arange(-255, 256)  # less any zero point
    return same_factors(
        (bytes_, bytes_), (a * scale, sign * b * scale), exact, lo - out.zero_point, hi - out.zero_point
    )


@op("stored_sum", (dtypes.int16,), exact=True)
def _emit_sum(s: EmitContext) -> Value:
    f, p = s.f, s.params
    floats = _in_floats(**p)
    if floats is not None:
        type = with_element(s.xs[0].type, "float")
        x, y = (_wide(v).convert(type) * factor for v, factor in zip(s.xs, floats, strict=True))
        low, high = (f.constant(type, float(p[v] - p["out"].zero_point)) for v in ("lo", "hi"))
        return away(f, x + y, low, high)
    a, b, c = sum_factors(p["x_grid"], p["y_grid"], p["out"])
    scaled = lambda v, r: constant_scale(f, _wide(v) << 20, factor_of(r, p["rounding"]), p["rounding"], True)
    left, right = scaled(s.xs[0], a), scaled(s.xs[1], b)
    total = left + right if p["sign"] > 0 else left - right
    return constant_place(f, total, factor_of(c, p["rounding"]), p, True)


@op("stored_product", (dtypes.int16,), exact=True)
def _emit_product(s: EmitContext) -> Value:
    f, p = s.f, s.params
    x, y = map(_wide, s.xs)
    real = product_factor(p["x_grid"], p["y_grid"], p["out"])
    return constant_place(f, x * y, factor_of(real, p["rounding"]), p, True)


@op("stored_move", (dtypes.int16,), exact=True)
def _emit_move(s: EmitContext) -> Value:
    f, p = s.f, s.params
    return constant_place(f, _wide(s.xs[0]), factor_of(p["factor"], p["rounding"]), p, True)


# --- means of windows ---


def _average(total: NDArray, count: NDArray, *, grid: Grid) -> NDArray:
    # The sum is of centred integers, the mean is of stored ones.
    stored = total.astype(np.int64) + count.astype(np.int64) * grid.zero_point
    return (average(stored, count, *grid.limits) - grid.zero_point).astype(np.int16)


averaged = StoredStep("stored_average", _average)


@op("stored_average", (dtypes.int32,), exact=True)
def _emit_average(s: EmitContext) -> Value:
    """Halves away from zero: of sizes, with the sign put back. Quotients of such whole numbers are exact in float64."""
    f, (total, count) = s.f, s.xs
    grid = s.params["grid"]
    stored = total + count * grid.zero_point
    double = with_element(total.type, "double")
    zero = f.constant(total.type, 0)
    size = f.intrinsic("smax", total.type, stored, zero - stored) + count.lshr(1)
    # The quotient of whole numbers below 2^31, taken half a step up, is never rounded over the next one.
    whole = ((size.convert(double) + 0.5) / count.convert(double)).convert(total.type)
    signed = f.select(stored.gt(0), whole, zero - whole)
    low, high = grid.limits
    kept = f.intrinsic("smin", total.type, f.intrinsic("smax", total.type, signed, f.constant(total.type, low)),
                       f.constant(total.type, high))  # fmt: skip
    return (kept - grid.zero_point).convert(with_element(total.type, "i16"))
