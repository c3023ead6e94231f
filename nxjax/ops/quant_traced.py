"""Integer arithmetic of quantized ops in traceable ops: what their `expand` is written in.

Says the same as `nxjax.ops.fixed`, which says it in NumPy, bit for bit. Compilers rewrite float division by a constant
into a product with its reciprocal; every float here is arranged so that this changes no result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import add, div, max, mul, sub
from nxjax.ops.base import NDArray, constant, like
from nxjax.ops.bitwise import and_, shift_left, shift_right_arithmetic, shift_right_logical
from nxjax.ops.compare import ge, gt, lt, ne
from nxjax.ops.convert import bitcast_convert_type, cast
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.fixed.point import quantize_multiplier
from nxjax.ops.indexing import gather
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.rounding import AWAY_FROM_ZERO, TO_NEAREST_EVEN, round
from nxjax.ops.select import clamp, select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType

# A float32 sum of integers is exact while it stays below this.
EXACT_FLOAT32: Final = 1 << 24


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


def grid_integers(x: Array, grid: Grid) -> Array:
    """The integers of a value that lies on the grid, as int32: a product instead of `to_stored`'s division."""
    assert not isinstance(grid.scale, tuple)
    low, high = grid.limits
    ratio = mul(x, like(x, np.float32(1) / np.float32(grid.scale)))
    whole = clipped(round(ratio, rounding_method=TO_NEAREST_EVEN), low - grid.zero_point, high - grid.zero_point)
    return _with_zero(cast(whole, dtypes.int32), grid)


def _with_zero(q: Array, grid: Grid) -> Array:
    return add(q, like(q, grid.zero_point)) if grid.zero_point else q


def _placed(ratio: Array, grid: Grid) -> Array:
    low, high = grid.limits
    # Clipped before the zero point is added, so that the conversion to integers cannot overflow.
    whole = clipped(round(ratio, rounding_method=AWAY_FROM_ZERO), low - grid.zero_point, high - grid.zero_point)
    whole = select_n(_is_nan(ratio), whole, like(whole, 0))
    return _with_zero(cast(whole, dtypes.int32), grid)


def _is_nan(x: Array) -> Array:
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
    """int64 ``x`` times a real number known now, by as few operations as its shift allows."""
    mantissa, exponent = quantize_multiplier(real, rounding)
    return rescale_by(x, int(mantissa), int(exponent), rounding)


def rescale_by(x: Array, mantissa: int, exponent: int, rounding: Rounding) -> Array:
    """`fixed.point.rescale` with a multiplier known now."""
    if rounding == "single":
        return _rounded_shift(mul(x, like(x, mantissa)), 31 - exponent)
    if exponent > 0:
        x = wrap_int32(shift_left(x, like(x, exponent & 31)))
    high = _rounded_shift(mul(x, like(x, mantissa)), 31)
    return _divided(high, -exponent) if exponent < 0 else high


def _rounded_shift(x: Array, bits: int) -> Array:
    """``x / 2**bits`` to the nearest integer, halves up."""
    return shift_right_arithmetic(add(x, like(x, 1 << (bits - 1))), like(x, bits))


def _divided(x: Array, bits: int) -> Array:
    """``x / 2**bits`` to the nearest integer, halves away from zero: halves up after taking 1 from negative numbers."""
    half = add(x, like(x, 1 << (bits - 1)))
    return shift_right_arithmetic(add(half, shift_right_arithmetic(x, like(x, 63))), like(x, bits))


def wrap_int32(x: Array) -> Array:
    """The low 32 bits of int64 ``x`` as a signed number, in int64."""
    return cast(cast(x, dtypes.int32), dtypes.int64)


@final
class Factor:
    """A multiplier per channel, prepared so that little is left to do per element. All int64 of one shape.

    gemmlowp adds ``1 - 2**30`` to negative products and cuts towards zero; that is adding ``2**30`` and flooring. Its
    right shift rounds halves away from zero, which is halves up after taking 1 from negative numbers.
    """

    def __init__(self, mantissa: Array, exponent: Array, rounding: Rounding) -> None:
        one, zero = like(mantissa, 1), like(mantissa, 0)
        self.mantissa = mantissa
        self.rounding = rounding
        if rounding == "single":
            self.right = sub(like(mantissa, 31), exponent)
            self.parts = [shift_left(one, sub(self.right, one))]
            return
        self.right = max(sub(zero, exponent), zero)
        shifts = gt(self.right, zero)
        half = shift_right_arithmetic(shift_left(one, self.right), one)
        self.parts = [and_(max(exponent, zero), like(mantissa, 31)), half, select_n(shifts, zero, like(mantissa, -1))]

    def applied(self, x: Array, over: Callable[[Array], Array]) -> Array:
        """int64 ``x`` times the factor, as int64; ``over`` repeats a row of channels over x."""
        if self.rounding == "single":
            return shift_right_arithmetic(add(mul(x, over(self.mantissa)), over(self.parts[0])), over(self.right))
        left, half, negative = map(over, self.parts)
        high = _rounded_shift(mul(wrap_int32(shift_left(x, left)), over(self.mantissa)), 31)
        less = and_(shift_right_arithmetic(high, like(x, 63)), negative)
        return shift_right_arithmetic(add(add(high, half), less), over(self.right))


def rescale_wide(x: Array, mantissa: Array, exponent: Array) -> Array:
    """int64 ``x`` by a multiplier cut to 16 bits, rounded once: 64-bit accumulators of 16-bit activations.

    Source: TFLite ``MultiplyByQuantizedMultiplier(int64_t, ...)`` (kernels/internal/common.h).
    """
    rounded = shift_right_arithmetic(add(mantissa, like(x, 1 << 15)), like(x, 16))
    short = select_n(lt(mantissa, like(x, 0x7FFF0000)), like(x, 0x7FFF), rounded)
    total = max(sub(like(x, 15), exponent), like(x, 1))
    nudge = shift_left(like(x, 1), sub(total, like(x, 1)))
    return wrap_int32(shift_right_arithmetic(add(mul(x, short), nudge), total))


def to_output_grid(x: Array, out: Grid, low: int, high: int) -> Array:
    """Rescaled int64 values on the output grid: zero point added, clamped, as int32."""
    return cast(clipped(wrap_int32(_with_zero(x, out)), low, high), dtypes.int32)


def stored_weights(w: Array, scale: Array, dtype: DType) -> Array:
    """Weights as ``dtype`` stores them, in float32: ``rint(w / scale)`` in the symmetric range, or float8 values."""
    last = symmetric_limit(dtype)
    ratio = clipped(quotient(w, broadcast_blocks(scale, w.shape)), -last, last)
    if dtype in dtypes.FLOAT:
        return cast(cast(ratio, dtype), dtypes.float32)
    # Where this is folded it leaves one zero, as integers have; compilers drop it, and integer results do not notice.
    return add(round(ratio, rounding_method=TO_NEAREST_EVEN), like(ratio, 0))


def symmetric_limit(dtype: DType) -> float:
    """The largest stored weight: 127 for int8, 7 for int4, the largest number of a float8."""
    info = dtypes.float_info(dtype) if dtype in dtypes.FLOAT else dtypes.integer_info(dtype)
    return float(info.max)


def broadcast_blocks(scale: Array, shape: tuple[int, ...]) -> Array:
    """``scale`` over ``shape``: each of its entries stands for a block of equal size along every axis."""
    if scale.shape == shape:
        return scale

    split: list[int] = []
    kept: list[int] = []
    for n, k in zip(shape, scale.shape, strict=True):
        kept.append(len(split))
        split += [k, n // k if k else 1]
    blocks = broadcast_in_dim(scale, shape=tuple(split), broadcast_dimensions=tuple(kept))
    return reshape(blocks, shape=shape)


def take_row(table: NDArray, index: Array) -> Array:
    """``table[index]`` for a row of values and int32 indices within it."""
    return gather(
        wrap(table),
        reshape(index, shape=(*index.shape, 1)),
        dimension_numbers=GatherDimensionNumbers((), (0,), (0,)),
        slice_sizes=(1,),
        mode=GatherScatterMode.CLIP,
    )


def look_up(q: Array, table: NDArray, grid: Grid) -> Array:
    """``table[q - least]`` for stored int32 ``q``: any function of one quantized tensor."""
    return take_row(table, sub(q, like(q, grid.limits[0])))


def all_grid_integers(grid: Grid) -> NDArray:
    """All stored integers of the grid's dtype, ascending: the arguments that a table is made for."""
    low, high = grid.limits
    return np.arange(low, high + 1).astype(grid.dtype)


def within_clamp(y: Array, grid: Grid, low: int, high: int) -> Array:
    """Where ``y`` is not clamped: the straight-through estimator lets tangents pass only there."""
    least, most = (np.float32(v - grid.zero_point) * np.float32(grid.scale) for v in (low, high))  # pyright: ignore[reportArgumentType]
    return and_(gt(y, like(y, least)), lt(y, like(y, most)))


def straight_through(t: Any, y: Array, grid: Grid, low: int, high: int) -> Any:
    return select_n(within_clamp(y, grid, low, high), like(t, 0), t)
