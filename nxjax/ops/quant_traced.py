"""Integer arithmetic of quantized ops in traceable ops: what their `expand` is written in.

Says the same as `nxjax.ops.fixed`, which says it in NumPy, bit for bit. Compilers rewrite float division by a constant
into a product with its reciprocal; every float here is arranged so that this changes no result.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.ops.arithmetic import add, div, max, min, mul, sub
from nxjax.ops.base import NDArray, constant, like
from nxjax.ops.bitwise import and_, shift_left, shift_right_arithmetic, shift_right_logical
from nxjax.ops.compare import ge, gt, lt
from nxjax.ops.convert import bitcast_convert_type, convert_element_type
from nxjax.ops.fixed.point import quantize_multiplier
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.rounding import AWAY_FROM_ZERO, TO_NEAREST_EVEN, round
from nxjax.ops.select import clamp, select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType

# A float32 sum of integers is exact while it stays below this.
EXACT_FLOAT32: Final = 1 << 24


def cast(x: Array, dtype: DType) -> Array:
    return x if x.dtype == dtype else convert_element_type(x, dtype=dtype)


def clipped(x: Array, low: float, high: float) -> Array:
    return clamp(constant(low, x.dtype), x, constant(high, x.dtype))


def quotient(x: Array, y: Array) -> Array:
    """``x / y`` as float32 division rounds it, whatever a compiler makes of the division.

    The float64 quotient of two float32 values is never within its own error of a float32 rounding boundary, so that
    rounding it to float32 gives the correctly rounded quotient, by division or by reciprocal alike.
    """
    return cast(div(cast(x, dtypes.float64), cast(y, dtypes.float64)), dtypes.float32)


def to_stored(x: Array, grid: Grid) -> Array:
    """Any float on the grid's integers, as int32; `Grid.quantize` in traceable ops. A NaN becomes the zero point."""
    ratio = quotient(x, like(x, grid.scale))
    return _placed(ratio, grid)


def recovered(x: Array, grid: Grid) -> Array:
    """The integers of a value known to lie on the grid, as int32: a product instead of `to_stored`'s division."""
    assert not isinstance(grid.scale, tuple)
    return _placed(mul(x, like(x, np.float32(1) / np.float32(grid.scale))), grid)


def _placed(ratio: Array, grid: Grid) -> Array:
    low, high = grid.limits
    # Clipped before the zero point is added, so that the conversion to integers cannot overflow.
    whole = clipped(round(ratio, rounding_method=AWAY_FROM_ZERO), low - grid.zero_point, high - grid.zero_point)
    whole = select_n(_is_nan(ratio), whole, like(whole, 0))
    return add(cast(whole, dtypes.int32), like_int(whole, grid.zero_point))


def _is_nan(x: Array) -> Array:
    from nxjax.ops.compare import ne

    return ne(x, x)


def like_int(x: Array, value: int, dtype: DType = dtypes.int32) -> Array:
    return constant(value, dtype, x.shape)


def from_stored(q: Array, grid: Grid) -> Array:
    """Real float32 values of integers on a per-tensor grid."""
    assert not isinstance(grid.scale, tuple)
    centred = sub(q, like(q, grid.zero_point)) if grid.zero_point else q
    return mul(cast(centred, dtypes.float32), constant(grid.scale, dtypes.float32, q.shape))


def along(x: Array, ndim: int, axis: int, shape: tuple[int, ...]) -> Array:
    """A row repeated over ``shape``, lying in dimension ``axis``."""
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=(axis,))


def multiplier_of(real: Array, rounding: Rounding) -> tuple[Array, Array]:
    """`quantize_multiplier` of positive float64 values: mantissa in [2^30, 2^31) and exponent, both int64.

    Reads the bits: with 53 significant bits m, the mantissa is m / 2^22 rounded to nearest, halves up.
    """
    bits = bitcast_convert_type(real, dtype=dtypes.int64)
    exponent = sub(shift_right_logical(bits, like(bits, 52)), like(bits, 1022))
    fraction = add(and_(bits, like(bits, (1 << 52) - 1)), like(bits, 1 << 52))
    mantissa = shift_right_logical(add(fraction, like(bits, 1 << 21)), like(bits, 22))
    full = ge(mantissa, like(bits, 1 << 31))
    mantissa = select_n(full, mantissa, like(bits, 1 << 30))
    exponent = select_n(full, exponent, add(exponent, like(bits, 1)))
    small = lt(exponent, like(bits, -31))
    zero = like(bits, 0)
    if rounding == "single":
        great = gt(exponent, like(bits, 30))
        mantissa = select_n(great, mantissa, like(bits, (1 << 31) - 1))
        exponent = select_n(great, exponent, like(bits, 30))
    return select_n(small, mantissa, zero), select_n(small, exponent, zero)


def rescale_static(x: Array, real: Any, rounding: Rounding) -> Array:
    """int64 ``x`` times a real number known now."""
    mantissa, exponent = quantize_multiplier(real, rounding)
    return rescale(x, like(x, int(mantissa)), like(x, int(exponent)), rounding)


def wrapped(x: Array) -> Array:
    """The low 32 bits of int64 ``x`` as a signed number, in int64."""
    return cast(cast(x, dtypes.int32), dtypes.int64)


def rescale(x: Array, mantissa: Array, exponent: Array, rounding: Rounding) -> Array:
    """`fixed.point.rescale`: int64 ``x * mantissa * 2^(exponent - 31)``; all operands int64 of one shape."""
    one, zero = like(x, 1), like(x, 0)
    if rounding == "single":
        total = sub(like(x, 31), exponent)
        nudge = shift_left(one, sub(total, one))
        return wrapped(shift_right_arithmetic(add(mul(x, mantissa), nudge), total))
    left = and_(max(exponent, zero), like(x, 31))
    right = max(sub(zero, exponent), zero)
    product = mul(wrapped(shift_left(x, left)), mantissa)
    nudge = select_n(ge(product, zero), like(x, 1 - (1 << 30)), like(x, 1 << 30))
    # Integer division cuts towards zero, as C++ does.
    high = min(div(add(product, nudge), like(x, 1 << 31)), like(x, (1 << 31) - 1))
    mask = sub(shift_left(one, right), one)
    threshold = add(shift_right_arithmetic(mask, one), select_n(lt(high, zero), zero, one))
    up = gt(and_(high, mask), threshold)
    return add(shift_right_arithmetic(high, right), select_n(up, zero, one))


def rescale_wide(x: Array, mantissa: Array, exponent: Array) -> Array:
    """int64 ``x`` by a multiplier cut to 16 bits, rounded once: 64-bit accumulators of 16-bit activations.

    Source: TFLite ``MultiplyByQuantizedMultiplier(int64_t, ...)`` (kernels/internal/common.h).
    """
    rounded = shift_right_arithmetic(add(mantissa, like(x, 1 << 15)), like(x, 16))
    short = select_n(lt(mantissa, like(x, 0x7FFF0000)), like(x, 0x7FFF), rounded)
    total = max(sub(like(x, 15), exponent), like(x, 1))
    nudge = shift_left(like(x, 1), sub(total, like(x, 1)))
    return wrapped(shift_right_arithmetic(add(mul(x, short), nudge), total))


def settled(x: Array, out: Grid, low: int, high: int) -> Array:
    """Rescaled int64 values on the output grid: zero point added, clamped, as int32."""
    return cast(clipped(wrapped(add(x, like(x, out.zero_point))), low, high), dtypes.int32)


def stored_weights(w: Array, scale: Array, dtype: DType) -> Array:
    """Weights as ``dtype`` stores them, in float32: ``rint(w / scale)`` within the symmetric range, or float8 values."""
    last = symmetric_limit(dtype)
    ratio = clipped(quotient(w, spread_blocks(scale, w.shape)), -last, last)
    if dtype in dtypes.FLOAT:
        return cast(cast(ratio, dtype), dtypes.float32)
    return round(ratio, rounding_method=TO_NEAREST_EVEN)


def symmetric_limit(dtype: DType) -> float:
    """The largest stored weight: 127 for int8, 7 for int4, the largest number of a float8."""
    info = dtypes.float_info(dtype) if dtype in dtypes.FLOAT else dtypes.integer_info(dtype)
    return float(info.max)


def spread_blocks(scale: Array, shape: tuple[int, ...]) -> Array:
    """``scale`` over ``shape``: each of its entries stands for a block of equal size along every axis."""
    if scale.shape == shape:
        return scale
    from nxjax.ops.shape import reshape

    split: list[int] = []
    kept: list[int] = []
    for n, k in zip(shape, scale.shape, strict=True):
        kept.append(len(split))
        split += [k, n // k]
    blocks = broadcast_in_dim(scale, shape=tuple(split), broadcast_dimensions=tuple(kept))
    return reshape(blocks, shape=shape)


def taken(table: NDArray, index: Array) -> Array:
    """``table[index]`` for a row of values and int32 indices within it."""
    from nxjax.ops.indexing import GatherDimensionNumbers, GatherScatterMode, gather
    from nxjax.ops.shape import reshape

    return gather(
        wrap(table),
        reshape(index, shape=(*index.shape, 1)),
        dimension_numbers=GatherDimensionNumbers((), (0,), (0,)),
        slice_sizes=(1,),
        mode=GatherScatterMode.CLIP,
    )


def look_up(q: Array, table: NDArray, grid: Grid) -> Array:
    """``table[q - least]`` for stored int32 ``q``: any function of one quantized tensor."""
    return taken(table, sub(q, like(q, grid.limits[0])))


def every_integer(grid: Grid) -> NDArray:
    """All stored integers of the grid's dtype, ascending: the arguments that a table is made for."""
    low, high = grid.limits
    return np.arange(low, high + 1).astype(grid.dtype)


def inside(y: Array, grid: Grid, low: int, high: int) -> Array:
    """Where ``y`` is not clamped: the straight-through estimator lets tangents pass only there."""
    least, most = (np.float32(v - grid.zero_point) * np.float32(grid.scale) for v in (low, high))  # pyright: ignore[reportArgumentType]
    return and_(gt(y, like(y, least)), lt(y, like(y, most)))


def masked(t: Any, y: Array, grid: Grid, low: int, high: int) -> Any:
    return select_n(inside(y, grid, low, high), like(t, 0), t)
