"""What IREE's compiler has no code for, or other code than StableHLO means, in operations that it does well.

Found by holding every family of ops against NumPy (IREE 3.13): conversions do not saturate, a gather or a scatter out
of bounds touches other memory, a power of a negative base is NaN, sines are rough and for small arguments only, the
words of a 64-bit key come out wrong, division of unsigned words is refused. Op name -> row; see
`nxjax.lower.stablehlo.builder`.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.stablehlo.builder import Row
from nxjax.ops.arithmetic import abs as abs_
from nxjax.ops.arithmetic import add, div, mul, neg, sub
from nxjax.ops.base import like
from nxjax.ops.bitwise import and_, or_, shift_left, shift_right_logical
from nxjax.ops.compare import eq, ge, gt, lt, ne
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dimension_numbers import GatherScatterMode
from nxjax.ops.indexing import default_fill, in_bounds
from nxjax.ops.rounding import floor
from nxjax.ops.scatter import SCATTERS, clipped
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.ops.slicing import pad, zero
from nxjax.ops.slicing import slice as slice_
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, get_op
from nxjax.trace.types import ArrayType


def _expanded(name: str) -> Row:
    """The op in smaller ones, whatever rule it has."""

    def row(b: Any, out: Any, *xs: Any, **params: Any) -> Any:
        op: Any = get_op(name)
        return b.inline(op.expand, xs, params, op.multi)

    return row


def _convert(b: Any, out: ArrayType, x: Any, /, *, dtype: dtypes.DType, **_: Any) -> Any:
    """Floats saturate on the way to integers, and NaN is zero; a bool is chosen by, not read as a number of one bit."""
    t: ArrayType = x.type
    if t.dtype == dtypes.bool_ and dtype in dtypes.FLOAT:
        ones, zeros = b.constant(1, out), b.constant(0, out)
        return b.op("stablehlo.select", (x, ones, zeros), out)
    if t.dtype not in dtypes.FLOAT or dtype not in dtypes.INTEGER:
        return None
    info, limits = dtypes.integer_info(dtype), dtypes.float_info(t.dtype)
    low = max(float(info.min), float(limits.min))
    # The largest float that the integers have.
    top = float(info.max)
    if top > float(limits.max):
        high = float(limits.max)
    else:
        high = float(np.asarray(top, t.dtype))
        if high > info.max:
            high = float(np.nextafter(np.asarray(top, t.dtype), np.asarray(0, t.dtype)))
    mask = ArrayType(t.shape, dtypes.bool_)
    bounded = b.op("stablehlo.clamp", (b.constant(low, t), x, b.constant(high, t)), t)
    y = b.op("stablehlo.convert", (bounded,), out)
    if high < top and top <= float(limits.max):
        y = b.op("stablehlo.select", (b.compare("GT", x, b.constant(high, t), mask), b.constant(info.max, out), y), out)
    return b.op("stablehlo.select", (b.compare("EQ", x, x, mask), y, b.constant(0, out)), out)


def _pow(b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
    """Vulkan's power is of positive bases: signs, zeros and ones are IEEE 754's."""
    if out.dtype not in dtypes.FLOAT:
        return None
    size = b.inline(abs_, (x,))
    return b.inline(_signed_power, (x, y, b.simple("power", (size, y), out)))


def _signed_power(x: Array, y: Array, p: Array) -> Array:
    half = mul(y, like(y, 0.5))
    whole = eq(floor(y), y)
    # From 2^24 on every float32 is even.
    odd = and_(and_(whole, ne(floor(half), half)), lt(abs_(y), like(y, 2.0**24)))
    none = like(x, np.nan)
    p = select_n(lt(x, like(x, 0)), p, select_n(whole, none, select_n(odd, p, neg(p))))
    signed = select_n(odd, like(x, 0), x)
    at_zero = select_n(gt(y, like(y, 0)), div(like(x, 1), signed), signed)
    p = select_n(eq(x, like(x, 0)), p, at_zero)
    return select_n(or_(eq(y, like(y, 0)), eq(x, like(x, 1))), p, like(p, 1))


def _atan2(b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
    """Vulkan leaves the angle of the origin open."""
    if out.dtype not in dtypes.FLOAT:
        return None
    return b.inline(_angle, (x, y, b.simple("atan2", (x, y), out)))


def _angle(x: Array, y: Array, angle: Array) -> Array:
    zero = like(x, 0)  # signs of zeros are not kept on these devices
    return select_n(and_(eq(x, zero), eq(y, zero)), angle, zero)


def _round(b: Any, out: ArrayType, x: Any, /, *, rounding_method: int) -> Any:
    """The compiler's own rounding of float64 asks for a reinterpretation that it has no SPIR-V for."""
    if out.dtype != dtypes.float64:
        return None
    return b.inline(_to_even if rounding_method else _from_zero, (x,))


def _to_even(x: Array) -> Array:
    down = floor(x)
    # Exact, but between -0.5 and 0, where what is lost makes a half of less, and both are rounded to zero.
    rest, half = sub(x, down), mul(down, like(x, 0.5))
    up = or_(gt(rest, like(x, 0.5)), and_(eq(rest, like(x, 0.5)), ne(floor(half), half)))
    return select_n(up, down, add(down, like(x, 1)))


def _from_zero(x: Array) -> Array:
    size = abs_(x)
    down = floor(size)
    y = select_n(ge(sub(size, down), like(x, 0.5)), down, add(down, like(x, 1)))
    return select_n(lt(x, like(x, 0)), y, neg(y))


def _sign(b: Any, out: ArrayType, x: Any, /) -> Any:
    """As `_round`: float64's sign asks for a copy of a sign bit."""
    return b.inline(_signs, (x,)) if out.dtype == dtypes.float64 else None


def _signs(x: Array) -> Array:
    y = select_n(gt(x, like(x, 0)), x, like(x, 1))  # zeros and NaN are their own
    return select_n(lt(x, like(x, 0)), y, like(x, -1))


# pi/2 in parts of few bits, so that their multiples by whole numbers below 2^15 are exact (Cody and Waite 1980).
_QUARTER: Final = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)
# Sine and cosine on [-pi/4, pi/4] to float32's precision (S. Moshier, Cephes: sinf.c).
_SINE: Final = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
_COSINE: Final = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)


def _trigonometric(shift: int | None) -> Row:
    """Sine (``shift`` 0), cosine (1) or tangent (None): Vulkan promises 2^-11 for the first two, within [-pi, pi]."""

    def function(x: Array) -> Array:
        single = convert_element_type(x, dtype=dtypes.float32)
        turns = floor(add(mul(single, like(single, 0.6366197723675814)), like(single, 0.5)))
        rest = single
        for part in _QUARTER:
            rest = sub(rest, mul(turns, like(turns, part)))
        square = mul(rest, rest)
        sine = add(rest, mul(mul(rest, square), _polynomial(square, _SINE)))
        cosine = add(
            sub(like(square, 1), mul(square, like(square, 0.5))), mul(mul(square, square), _polynomial(square, _COSINE))
        )
        quadrant = convert_element_type(
            sub(turns, mul(floor(mul(turns, like(turns, 0.25))), like(turns, 4))), dtype=dtypes.int32
        )
        if shift is None:
            odd = eq(and_(quadrant, like(quadrant, 1)), like(quadrant, 1))
            y = select_n(odd, div(sine, cosine), neg(div(cosine, sine)))
        else:
            quadrant = add(quadrant, like(quadrant, shift))
            other = eq(and_(quadrant, like(quadrant, 1)), like(quadrant, 1))
            y = select_n(other, sine, cosine)
            y = select_n(eq(and_(quadrant, like(quadrant, 2)), like(quadrant, 2)), y, neg(y))
        return convert_element_type(y, dtype=x.dtype)

    def row(b: Any, out: ArrayType, x: Any, /, **_: Any) -> Any:
        return b.inline(function, (x,)) if out.dtype in (dtypes.float32, dtypes.float16, dtypes.bfloat16) else None

    return row


def _polynomial(x: Array, coefficients: tuple[float, ...]) -> Array:
    y = like(x, coefficients[0])
    for c in coefficients[1:]:
        y = add(mul(y, x), like(x, c))
    return y


def _divided(x: Array, y: Array) -> Array:
    """Quotients of unsigned words by signed division: of half the dividend, then mended by the remainder.

    A divisor from 2^31 on goes at most once.
    """
    signed = lambda v: convert_element_type(v, dtype=dtypes.int32)
    large = ge(y, like(y, 2**31))
    zero = eq(y, like(y, 0))
    divisor = select_n(or_(large, zero), y, like(y, 1))
    halved = signed(shift_right_logical(x, like(x, 1)))
    quotient = shift_left(convert_element_type(div(halved, signed(divisor)), dtype=x.dtype), like(x, 1))
    left = sub(x, mul(quotient, divisor))
    quotient = add(quotient, convert_element_type(ge(left, divisor), dtype=x.dtype))
    quotient = select_n(large, quotient, convert_element_type(ge(x, y), dtype=x.dtype))
    return select_n(zero, quotient, like(x, 2**32 - 1))


def _remainder(x: Array, y: Array) -> Array:
    return select_n(eq(y, like(y, 0)), sub(x, mul(_divided(x, y), y)), x)


def _unsigned(function: Any) -> Row:
    def row(b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        return b.inline(function, (x, y)) if out.dtype == dtypes.uint32 else None

    return row


def _signed(i: Array) -> Array:
    """Indices as int32: others go through 64-bit integers, for which the compiler lacks vectors."""
    words = convert_element_type(i, dtype=dtypes.int32)
    if i.dtype != dtypes.uint32:
        return words
    return select_n(lt(words, like(words, 0)), words, like(words, 2**31 - 1))


def _gather(b: Any, out: ArrayType, x: Any, indices: Any, /, **params: Any) -> Any:
    """Index vectors are moved inside before they are used."""
    n, mode, sizes = params["dimension_numbers"], params["mode"], params["slice_sizes"]
    if not n.start_index_map or 0 in x.type.shape or 0 in out.shape:
        return None
    bounds = [x.type.shape[d] - sizes[d] for d in n.start_index_map]
    inside = b.inline(lambda i: clipped(_signed(i), bounds), (indices,))
    op: Any = get_op("gather")
    y = op.stablehlo(b, out, x, inside, **{**params, "mode": GatherScatterMode.CLIP})
    if mode is not GatherScatterMode.FILL_OR_DROP:
        return y
    batch = tuple(d for d in range(out.ndim) if d not in n.offset_dims)
    fill: Any = params.get("fill_value")

    def filled(y: Array, indices: Array) -> Array:
        mask = broadcast_in_dim(in_bounds(indices, bounds), shape=y.shape, broadcast_dimensions=batch)
        return select_n(mask, like(y, default_fill(y.dtype) if fill is None else fill), y)

    return b.inline(filled, (y, indices))


def _scatter(op: Any) -> Row:
    """Updates out of bounds go to rows that are added at the end and cut off afterwards."""

    def row(b: Any, out: ArrayType, x: Any, indices: Any, updates: Any, /, **params: Any) -> Any:
        n, mode = params["dimension_numbers"], params["mode"]
        dims: tuple[int, ...] = n.scatter_dims_to_operand_dims
        if mode is GatherScatterMode.CLIP or not dims or 0 in updates.type.shape or 0 in out.shape:
            return None
        sizes = n.sizes(x.type, updates.type)
        bounds = [out.shape[d] - sizes[d] for d in dims]
        room = tuple((0, sizes[d] if d == dims[0] else 0, 0) for d in range(out.ndim))
        larger = tuple(size + added for size, (_, added, _) in zip(out.shape, room, strict=True))
        beyond = np.zeros(len(dims), np.int32)
        beyond[0] = out.shape[dims[0]]

        def redirected(i: Array) -> Array:
            inside = broadcast_in_dim(
                in_bounds(i, bounds), shape=i.shape, broadcast_dimensions=tuple(range(i.ndim - 1))
            )
            aside = broadcast_in_dim(wrap(beyond), shape=i.shape, broadcast_dimensions=(i.ndim - 1,))
            return select_n(inside, aside, convert_element_type(i, dtype=dtypes.int32))

        def cut(y: Array) -> Array:
            return slice_(y, start_indices=(0,) * y.ndim, limit_indices=out.shape, strides=(1,) * y.ndim)

        padded = b.inline(lambda x: pad(x, zero(x), padding_config=room), (x,))
        moved = b.inline(redirected, (indices,))
        whole = {**params, "mode": GatherScatterMode.PROMISE_IN_BOUNDS}
        y = op.stablehlo(b, ArrayType(larger, out.dtype), padded, moved, updates, **whole)
        return b.inline(cut, (y,))

    return row


def _words(b: Any, out: ArrayType, keys: Any, /) -> Any:
    """The words of keys by arithmetic: the low half first, as in memory."""
    whole, half = ArrayType(keys.type.shape, dtypes.key), ArrayType((*keys.type.shape, 1), dtypes.uint32)
    high = b.op("stablehlo.shift_right_logical", (keys, _word(b, 32, whole)), whole)
    flat = ArrayType(keys.type.shape, dtypes.uint32)
    parts = [b.op("stablehlo.reshape", (b.op("stablehlo.convert", (p,), flat),), half) for p in (keys, high)]
    return b.op("stablehlo.concatenate", parts, out, f"dimension = {keys.type.ndim} : i64")


def _word(b: Any, value: int, t: ArrayType) -> Any:
    return b.constant(np.full((), value, np.uint64), t)


def _keys(b: Any, out: ArrayType, words: Any, /) -> Any:
    """Keys of their words."""
    dims = words.type.ndim - 1
    half, flat = ArrayType((*out.shape, 1), dtypes.uint32), ArrayType(out.shape, dtypes.uint32)

    def part(i: int) -> Any:
        starts, limits = [0] * dims + [i], [*out.shape, i + 1]
        attrs = (
            f"start_indices = {b.ints(starts)}, limit_indices = {b.ints(limits)}, strides = {b.ints([1] * (dims + 1))}"
        )
        one = b.op("stablehlo.slice", (words,), half, attrs)
        return b.op("stablehlo.convert", (b.op("stablehlo.reshape", (one,), flat),), out)

    high = b.op("stablehlo.shift_left", (part(1), _word(b, 32, out)), out)
    return b.op("stablehlo.or", (part(0), high), out)


ROWS: Final[dict[str, Row]] = {
    **{name: _expanded(name) for name in ("top_k", "select_and_scatter_add")},
    "convert_element_type": _convert,
    "pow": _pow,
    "atan2": _atan2,
    "round": _round,
    "sign": _sign,
    "sin": _trigonometric(0),
    "cos": _trigonometric(1),
    "tan": _trigonometric(None),
    "div": _unsigned(_divided),
    "rem": _unsigned(_remainder),
    "gather": _gather,
    **{op.name: _scatter(op) for op in SCATTERS},
    "random_unwrap": _words,
    "random_wrap": _keys,
}
