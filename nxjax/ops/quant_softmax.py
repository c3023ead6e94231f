"""Quantized softmax. The arithmetic is that of `fixed.softmax`; in ops, what has few arguments comes from tables."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import add, max, min, mul, sub
from nxjax.ops.base import KeepsAxis, NDArray, check_counted_axis, like, require
from nxjax.ops.bitwise import and_, clz, shift_left, shift_right_arithmetic
from nxjax.ops.compare import ge, gt, lt
from nxjax.ops.composite_softmax import softmax as float_softmax
from nxjax.ops.convert import cast
from nxjax.ops.fixed.functions import lookup
from nxjax.ops.fixed.point import divide_by_power, quantize_multiplier, rescale
from nxjax.ops.fixed.series import raw
from nxjax.ops.fixed.softmax import SUM_BITS, check_softmax, exps_of, softmax, softmax_grid, tables16
from nxjax.ops.quant_base import QuantizedOp
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_traced import clipped, take_row
from nxjax.ops.reduce import reduce_max, reduce_sum
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents
from nxjax.trace.types import ArrayType

INT32_MAX: Final = 2**31 - 1


@lru_cache(256)
def tables8(x_grid: Grid, rounding: Rounding) -> tuple[NDArray, NDArray, NDArray]:
    """Per difference to the maximum, 0 to 255: exp in Q0, its share of the sum, and whether it counts."""
    row = np.array([0]), -np.arange(256)
    pairs = np.stack(np.broadcast_arrays(*row), -1).astype(np.int64)
    _, exps, counts = exps_of(pairs, x_grid, 1.0, rounding)
    exps, counts = exps[:, 1], counts[:, 1]
    return exps, np.where(counts, divide_by_power(exps, SUM_BITS), 0), counts


@lru_cache(64)
def _exps16(x_grid: Grid, rounding: Rounding) -> NDArray:
    """Per difference to the maximum, 0 to 65535: exp in 16 bits."""
    real = np.float64(np.float32(x_grid.scale) * np.float32(1)) / (10.0 / 65535.0)  # pyright: ignore[reportArgumentType]
    diff = rescale(-np.arange(65536, dtype=np.int64), *quantize_multiplier(real, rounding), rounding)
    return lookup(np.clip(diff + 32767, -32768, 32767), tables16()[0])


@lru_cache(1)
def _inverses16() -> NDArray:
    """1 / (1 + x) in 16 bits for every int16 argument."""
    return lookup(np.arange(-32768, 32768), tables16()[1])


def _high_product(a: Array, b: Array) -> Array:
    product = mul(a, b)
    nudge = select_n(ge(product, like(a, 0)), like(a, 1 - (1 << 30)), like(a, 1 << 30))
    nudged = add(product, nudge)
    # Divided by 2**31 towards zero: chips without 64 bits shift in a few steps and divide in hundreds.
    up = and_(shift_right_arithmetic(nudged, like(a, 63)), like(a, INT32_MAX))
    return min(shift_right_arithmetic(add(nudged, up), like(a, 31)), like(a, INT32_MAX))


def _divide_by_power(x: Array, exponent: Array) -> Array:
    one, zero = like(x, 1), like(x, 0)
    mask = sub(shift_left(one, exponent), one)
    threshold = add(shift_right_arithmetic(mask, one), select_n(lt(x, zero), zero, one))
    up = gt(and_(x, mask), threshold)
    return add(shift_right_arithmetic(x, exponent), select_n(up, zero, one))


def _shift_left(x: Array, exponent: int) -> Array:
    """Saturating to 32 bits."""
    shifted = shift_left(x, like(x, exponent))
    return max(min(shifted, like(x, INT32_MAX)), like(x, -INT32_MAX - 1))


def _leading_zeros(x: Array) -> Array:
    """Of the low 32 bits, as int64."""
    return cast(clz(cast(x, dtypes.int32)), dtypes.int64)


def _one_over_one_plus(a: Array) -> Array:
    """`fixed.series.one_over_one_plus`: three Newton-Raphson steps."""
    total = add(a, like(a, INT32_MAX))
    half = shift_right_arithmetic(add(total, like(a, 1)), like(a, 1))
    x = add(like(a, raw(48 / 17, 2)), _high_product(half, like(a, -raw(32 / 17, 2))))
    for _ in range(3):
        error = sub(like(a, 1 << 29), _high_product(half, x))
        x = add(x, _shift_left(_high_product(x, error), 2))
    return _shift_left(x, 1)


@final
class QSoftmax(KeepsAxis, QuantizedOp):
    """Quantized softmax along ``axis``; the result's grid is `fixed.softmax.softmax_grid`."""

    name = "qsoftmax"

    def infer(self, x: ArrayType, /, *, axis: int, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> ArrayType:
        self.check(x, x_grid=x_grid, y_grid=y_grid, rounding=rounding)
        check_counted_axis(self, axis, x.ndim)
        require(self, x_grid.dtype == y_grid.dtype, "grids differ in dtype", (x_grid, y_grid), "equal dtypes")
        check_softmax(self.name, y_grid, softmax_grid(y_grid.dtype))
        return x.strong()

    def exact(self, q: NDArray, /, *, axis: int, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> NDArray:
        return softmax(q, x_grid, y_grid, axis, rounding=rounding)

    def traced(self, q: Array, /, *, axis: int, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> Array:
        kept = tuple(i for i in range(q.ndim) if i != axis)
        over = lambda row: broadcast_in_dim(row, shape=q.shape, broadcast_dimensions=kept)
        diff = sub(over(reduce_max(q, axes=(axis,))), q)
        if x_grid.dtype == dtypes.int16:
            exps = take_row(_exps16(x_grid, rounding), diff)
            total = reduce_sum(exps, axes=(axis,))
            zeros = _leading_zeros(total)
            one = like(total, 1)
            lifted = shift_right_arithmetic(
                add(shift_left(total, sub(zeros, one)), like(total, 1 << 13)), like(total, 14)
            )
            above = clipped(sub(lifted, like(total, (1 << 15) + (1 << 16))), -32768, 32767)
            inverse = over(take_row(_inverses16(), cast(add(above, like(above, 32768)), dtypes.int32)))
            shift = over(sub(like(total, 31), zeros))
            nudge = shift_left(like(shift, 1), sub(shift, like(shift, 1)))
            found = shift_right_arithmetic(add(mul(exps, inverse), nudge), shift)
            return cast(clipped(found, 0, 32767), dtypes.int32)
        table, shares, counts = tables8(x_grid, rounding)
        exps, share, counted = (take_row(t, diff) for t in (table, shares, counts))
        total = reduce_sum(share, axes=(axis,))
        zeros = _leading_zeros(total)
        inverse = _one_over_one_plus(sub(shift_left(total, zeros), like(total, 1 << 31)))
        exponent = add(sub(like(total, SUM_BITS), zeros), like(total, 31 - 8))
        low, high = y_grid.limits
        found = _divide_by_power(_high_product(over(inverse), exps), over(exponent))
        found = clipped(add(found, like(found, low)), low, high)
        return cast(select_n(counted, like(found, low), found), dtypes.int32)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, *, axis: int, **params: Any) -> Any:
        return float_softmax.jvp(primals, tangents, axis=axis)[1]

    def jvp(self, primals: Arrays, tangents: Tangents, **params: Any) -> tuple[Any, Any]:
        # The grid ends at 255/256: a mask would stop the gradient of every confident prediction.
        y = self(*primals, **params)
        return y, None if tangents[0] is None else self.tangent(y, primals, tangents, **params)


qsoftmax = QSoftmax()
