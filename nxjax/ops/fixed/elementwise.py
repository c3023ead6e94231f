"""Integer addition, subtraction, multiplication and change of grid, as LiteRT's reference kernels compute them.

Operands and results are arrays in their grids' storage dtype, per tensor; operands broadcast. ``lo, hi`` clamp the
stored result. int16 grids have zero point 0. Functions of one operand are in `functions`; `unary` is found here too.
"""

from __future__ import annotations

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.fixed.functions import coarser_than, scale_of, unary
from nxjax.ops.fixed.point import quantize_multiplier, rescale, wrap32
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes

__all__ = [
    "add",
    "centred",
    "comparable",
    "mul",
    "placed",
    "relu",
    "requantize",
    "requantize_factor",
    "scale_of",
    "squared_difference",
    "sub",
    "unary",
    "wide_enough",
]


def centred(x: NDArray, grid: Grid) -> NDArray:
    """``x`` less its zero point, in int64."""
    return x.astype(np.int64) - grid.zero_point


def placed(x: NDArray, out: Grid, lo: int, hi: int) -> NDArray:
    """Rescaled values with the zero point of ``out`` added, clamped and stored."""
    return np.clip(wrap32(x + out.zero_point), lo, hi).astype(out.dtype)


def _aligned(
    x: NDArray, x_grid: Grid, y: NDArray, y_grid: Grid, left: int, rounding: Rounding
) -> tuple[NDArray, NDArray, np.float64]:
    """Both operands at twice the coarser scale with ``left`` more bits, so that 32 bits suffice; and that scale."""
    twice = np.float64(np.float32(2) * max(scale_of(x_grid), scale_of(y_grid)))
    parts = [
        rescale(
            wrap32(centred(v, grid) << left),
            *quantize_multiplier(np.float64(scale_of(grid)) / twice, rounding),
            rounding,
        )
        for v, grid in ((x, x_grid), (y, y_grid))
    ]
    return parts[0], parts[1], twice


def wide_enough(out: Grid, x_grid: Grid, y_grid: Grid) -> Grid:
    """``out``, or the finest grid with its zero point that sums of these operands can have.

    Sums are aligned at twice the coarser scale with 20 more bits (15 beside 16-bit results), and come from there by a
    factor that kernels take to be below 1. What a finer grid would show is below the operands' own steps.

    >>> wide_enough(Grid(np.dtype("int8"), 1e-9, 5), *[Grid(np.dtype("int8"), 1.0)] * 2).scale == 2.0**-18
    True
    """
    return coarser_than(out, float(2 * max(scale_of(x_grid), scale_of(y_grid))) / 2 ** _left(out))


def _left(out: Grid) -> int:
    return 15 if out.dtype == dtypes.int16 else 20


def _sum(
    x: NDArray, x_grid: Grid, y: NDArray, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding, sign: int
) -> NDArray:
    left = _left(out)
    p, q, twice = _aligned(x, x_grid, y, y_grid, left, rounding)
    real = twice / np.float64(np.float32(2**left) * scale_of(out))
    return placed(rescale(wrap32(p + sign * q), *quantize_multiplier(real, rounding), rounding), out, lo, hi)


def add(
    x: NDArray, x_grid: Grid, y: NDArray, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding = "double"
) -> NDArray:
    """Stored ``x + y`` on grid ``out``.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> add(np.int8([10, 100]), g, np.int8([5, 100]), g, g, -128, 127).tolist()
    [15, 127]
    """
    return _sum(x, x_grid, y, y_grid, out, lo, hi, rounding, 1)


def sub(
    x: NDArray, x_grid: Grid, y: NDArray, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding = "double"
) -> NDArray:
    """Stored ``x - y`` on grid ``out``.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> sub(np.int8([10, -100]), g, np.int8([5, 100]), g, g, -128, 127).tolist()
    [5, -128]
    """
    return _sum(x, x_grid, y, y_grid, out, lo, hi, rounding, -1)


def mul(
    x: NDArray, x_grid: Grid, y: NDArray, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding = "double"
) -> NDArray:
    """Stored ``x * y`` on grid ``out``. The factor is computed in float32, as LiteRT does.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> mul(np.int8([10, -100]), g, np.int8([4, 100]), g, g, -128, 127).tolist()
    [20, -128]
    """
    with np.errstate(under="ignore"):
        real = scale_of(x_grid) * scale_of(y_grid) / scale_of(out)
    product = wrap32(centred(x, x_grid) * centred(y, y_grid))
    return placed(rescale(product, *quantize_multiplier(real, rounding), rounding), out, lo, hi)


def squared_difference(
    x: NDArray, x_grid: Grid, y: NDArray, y_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding = "double"
) -> NDArray:
    """Stored ``(x - y)**2`` on grid ``out``, 8 bits.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> squared_difference(np.int8([10, -100]), g, np.int8([4, 100]), g, g, -128, 127).tolist()
    [18, 127]
    """
    p, q, twice = _aligned(x, x_grid, y, y_grid, 7, rounding)
    real = twice * twice / np.float64(np.float32(2**14) * scale_of(out))
    square = wrap32((p - q) ** 2)
    return placed(rescale(square, *quantize_multiplier(real, rounding), rounding), out, lo, hi)


def requantize_factor(x_grid: Grid, out: Grid, lo: int, hi: int) -> np.float64:
    """``x_grid.scale / out.scale``: in float64 for TFLite's QUANTIZE of integers, in float32 for its RELUs.

    It is a RELU if [lo, hi] clamps within the limits of ``out``.
    """
    work = np.float64 if (lo, hi) == out.limits else np.float32
    return np.float64(work(scale_of(x_grid)) / work(scale_of(out)))


def requantize(x: NDArray, x_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding = "double") -> NDArray:
    """Stored ``x`` on another grid: TFLite's QUANTIZE of integers, or one of its RELUs.

    >>> a, b = Grid(np.dtype("int8"), 0.5, 0), Grid(np.dtype("int8"), 1.0, 10)
    >>> requantize(np.int8([4, 5, -128]), a, b, -128, 127).tolist()
    [12, 13, -54]
    """
    multiplier, shift = quantize_multiplier(requantize_factor(x_grid, out, lo, hi), rounding)
    return placed(rescale(centred(x, x_grid), multiplier, shift, rounding), out, lo, hi)


def relu(x: NDArray, x_grid: Grid, out: Grid, lo: int, hi: int, rounding: Rounding = "double") -> NDArray:
    """Stored ``x`` on another grid by the RELU kernels, whether or not [lo, hi] clamps.

    >>> a, b = Grid(np.dtype("int8"), 0.5, 0), Grid(np.dtype("int8"), 0.5, -128)
    >>> relu(np.int8([4, -5]), a, b, -128, 127).tolist()
    [-124, -128]
    """
    real = scale_of(x_grid) / scale_of(out)
    return placed(rescale(centred(x, x_grid), *quantize_multiplier(real, rounding), rounding), out, lo, hi)


def comparable(x: NDArray, x_grid: Grid, rounding: Rounding = "double") -> NDArray:
    """Whole numbers that compare as the real values do, with 8 bits below the point, as LiteRT's comparisons see them.

    Values closer than 1/256 to each other may compare equal.

    >>> comparable(np.int8([1, 2]), Grid(np.dtype("int8"), 0.5, 0)).tolist()
    [128, 256]
    """
    return rescale(wrap32(centred(x, x_grid) << 8), *quantize_multiplier(scale_of(x_grid), rounding), rounding)
