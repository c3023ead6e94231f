"""Integer softmax and log_softmax, as LiteRT's reference kernels compute them.

8 bits: exp and the division in int32 fixed point. 16 bits: interpolated tables of exp and of 1 / (1 + x). The grid of
the result is fixed by the kernels: `softmax_grid`, `log_softmax_grid`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.base import NDArray
from nxjax.ops.fixed.functions import coarser_than, interpolated, lookup
from nxjax.ops.fixed.point import INT32_MIN, divide_by_power, high_product, quantize_multiplier, rescale, wrap32
from nxjax.ops.fixed.series import exp_negative, leading_zeros, log_from_one, reciprocal
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

_DIFF_BITS = 5
SUM_BITS: Final = 12
# Sums of so many exponentials, each at most 1, may leave 32 bits: 16-bit ones have 15 bits behind the point.
TOO_LONG: Final = {dtypes.int8: 2**SUM_BITS, dtypes.int16: 2**16}


def softmax_grid(dtype: DType) -> Grid:
    """The grid of a softmax's result: [0, 1) in 256 steps of int8, [0, 1) in 32768 of int16.

    >>> softmax_grid(np.dtype("int8")).bounds
    (0.0, 0.99609375)
    """
    return Grid(dtype, 1 / 32768) if dtype == dtypes.int16 else Grid(dtype, 1 / 256, dtypes.integer_info(dtype).min)


def softmax_operand(x_grid: Grid) -> Grid:
    """``x_grid``, or the finest grid with its zero point whose softmax of 8 bits the kernels compute.

    Differences are scaled to 26 bits below the point, by a factor that has to be above 1. On a finer grid all 256
    values have the same exponential to within 2**-18.

    >>> softmax_operand(Grid(np.dtype("int8"), 1e-9, 3)).scale == 2.0**-25
    True
    """
    return x_grid if x_grid.dtype == dtypes.int16 else coarser_than(x_grid, 2.0 ** (_DIFF_BITS - 31))


def log_softmax_grid(dtype: DType) -> Grid:
    """The grid of a log_softmax's result: [-255/16, 0] in steps of 1/16."""
    return Grid(dtype, 1 / 16, int(dtypes.integer_info(dtype).max))


def softmax(
    x: NDArray, x_grid: Grid, out: Grid, axis: int = -1, beta: float = 1.0, rounding: Rounding = "double"
) -> NDArray:
    """Stored softmax of ``beta * x`` along ``axis``.

    >>> g = Grid(np.dtype("int8"), 0.1, 0)
    >>> softmax(np.int8([10, 0, 0]), g, softmax_grid(g.dtype)).tolist()
    [19, -74, -74]
    """
    check_softmax("softmax", out, softmax_grid(out.dtype))
    if not x.size:
        return x.astype(out.dtype)
    moved = np.moveaxis(x, axis, -1).astype(np.int64)
    kernel = _softmax16 if x.dtype == np.int16 else _softmax8
    return np.moveaxis(kernel(moved, x_grid, out, beta, rounding), -1, axis).astype(out.dtype)


def check_softmax(name: str, out: Grid, expected: Grid) -> None:
    assert not isinstance(out.scale, tuple) and not isinstance(expected.scale, tuple)
    if out.zero_point != expected.zero_point or abs(out.scale - expected.scale) > 1e-3 * expected.scale:
        raise ParameterError(f"{name}: the kernels have one grid for the result", got=out, expected=expected)


def _scaled(x_grid: Grid, beta: float, rounding: Rounding) -> tuple[NDArray, NDArray, int]:
    """Multiplier and shift from differences of stored inputs to Q5, and the least difference that counts."""
    ceiling = (2.0**30 if rounding == "single" else 2.0**31) - 1
    real = min(float(np.float32(beta)) * float(np.float32(_scale(x_grid))) * 2 ** (31 - _DIFF_BITS), ceiling)
    multiplier, shift = quantize_multiplier(real, rounding)
    radius = (2**_DIFF_BITS - 1) * 2.0 ** (31 - _DIFF_BITS) / 2.0 ** int(shift)
    return multiplier, shift, -math.floor(radius)


def exps_of(x: NDArray, x_grid: Grid, beta: float, rounding: Rounding) -> tuple[NDArray, NDArray, NDArray]:
    """Differences to the maximum in Q5, their exps in Q0, and which of them count."""
    multiplier, shift, least = _scaled(x_grid, beta, rounding)
    diff = x - x.max(-1, keepdims=True)
    counts = diff >= least
    small = rescale(np.where(counts, diff, 0), multiplier, shift, rounding)
    return small, exp_negative(small, _DIFF_BITS), counts


def _softmax8(x: NDArray, x_grid: Grid, out: Grid, beta: float, rounding: Rounding) -> NDArray:
    low, high = out.limits
    _, exps, counts = exps_of(x, x_grid, beta, rounding)
    total = np.sum(np.where(counts, divide_by_power(exps, SUM_BITS), 0), -1, keepdims=True)
    inverse, over = reciprocal(wrap32(total), SUM_BITS)
    kept = divide_by_power(high_product(inverse, exps), over + 31 - 8)
    return np.where(counts, np.clip(kept + low, low, high), low)


@cache
def tables16() -> tuple[NDArray, NDArray]:
    exp: Callable[[Any], Any] = np.exp
    return (
        interpolated(exp, 10 / 65535, 32767, 2 / 65535, 0, np.float64),
        interpolated(lambda v: 1 / (1 + v), 1 / 65535, -32768, 2 / 65535, 0, np.float64),
    )


def _softmax16(x: NDArray, x_grid: Grid, out: Grid, beta: float, rounding: Rounding) -> NDArray:
    exp_table, inverse_table = tables16()
    real = np.float64(np.float32(_scale(x_grid)) * np.float32(beta)) / (10.0 / 65535.0)
    diff = rescale(x - x.max(-1, keepdims=True), *quantize_multiplier(real, rounding), rounding)
    exps = lookup(np.clip(wrap32(diff + 32767), -32768, 32767), exp_table)
    total = wrap32(np.sum(exps, -1, keepdims=True))
    zeros = leading_zeros(total)
    above_one = ((total << (zeros - 1)) + (1 << 13) >> 14) - (1 << 15) - (1 << 16)
    inverse = lookup(np.clip(above_one, -32768, 32767), inverse_table)
    shift = 31 - zeros
    return np.clip((exps * inverse + (np.int64(1) << (shift - 1))) >> shift, 0, 32767)


def log_softmax(x: NDArray, x_grid: Grid, out: Grid, axis: int = -1, rounding: Rounding = "double") -> NDArray:
    """Stored log_softmax along ``axis``, 8 bits.

    >>> g = Grid(np.dtype("int8"), 0.1, 0)
    >>> log_softmax(np.int8([10, 0, 0]), g, log_softmax_grid(g.dtype)).tolist()
    [118, 102, 102]
    """
    check_softmax("log_softmax", out, log_softmax_grid(out.dtype))
    moved = np.moveaxis(x, axis, -1).astype(np.int64)
    low, high = out.limits
    multiplier, shift, least = _scaled(x_grid, 1.0, rounding)
    small, exps, counts = exps_of(moved, x_grid, 1.0, rounding)
    total = np.sum(np.where(counts, divide_by_power(exps, SUM_BITS), 0), -1, keepdims=True)
    log = log_from_one(wrap32(total), SUM_BITS, _DIFF_BITS)
    # Differences whose fixed-point value would leave 32 bits once the log is taken off do not count either.
    back = quantize_multiplier(2.0 ** (31 - int(shift)) / float(multiplier), rounding)
    bound = np.maximum(least - 1, rescale(wrap32(log + INT32_MIN), *back, rounding))
    counts = moved - moved.max(-1, keepdims=True) > bound
    kept = divide_by_power(wrap32(small - log), 31 - _DIFF_BITS - 4) + out.zero_point
    return np.moveaxis(np.where(counts, np.clip(kept, low, high), low), -1, axis).astype(out.dtype)


def _scale(grid: Grid) -> float:
    assert not isinstance(grid.scale, tuple)
    return grid.scale
