"""Sums of products back on an activation's grid: the last step of every convolution and matrix product.

The factor is ``x_scale * w_scale / out_scale`` per output channel. Knows no window and no dimension numbers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.fixed.point import quantize_multiplier, rescale, rescale_wide, wrap32
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes


def requantize_products(
    acc: NDArray, x_scale: float, w_scale: Any, out: Grid, lo: int, hi: int, rounding: Rounding = "double"
) -> NDArray:
    """Integers of ``out.dtype`` in [lo, hi] from the sums ``acc`` (bias included), of any shape.

    ``w_scale`` broadcasts against ``acc``. Sums for int16 results are 64-bit numbers and take the 16-bit multiplier,
    which has one rounding; all others are 32-bit numbers.

    >>> out = Grid(np.dtype("int8"), 0.5, 3)
    >>> requantize_products(np.array([400, -400]), 0.05, 0.1, out, -128, 127).tolist()
    [7, -1]
    """
    scale = np.float64(np.float32(x_scale)) * np.asarray(w_scale, np.float32).astype(np.float64)
    return _on_grid(acc, scale / np.float64(np.float32(_scale(out))), out, lo, hi, rounding)


def _on_grid(acc: NDArray, real: NDArray, out: Grid, lo: int, hi: int, rounding: Rounding) -> NDArray:
    multiplier, shift = quantize_multiplier(real, rounding)
    if out.dtype == dtypes.int16:
        scaled = rescale_wide(acc, multiplier, shift)
    else:
        scaled = rescale(wrap32(acc), multiplier, shift, rounding)
    return np.clip(wrap32(scaled + out.zero_point), lo, hi).astype(out.dtype)


def _scale(grid: Grid) -> float:
    assert not isinstance(grid.scale, tuple)
    return grid.scale
