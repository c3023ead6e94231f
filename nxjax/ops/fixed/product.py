"""Sums of products back on an activation's grid: the last step of every convolution and matrix product.

LiteRT's reference kernels take this step in three ways, which differ in the last bit:

- "conv" (CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV): fixed point, the factor computed in float64;
- "dense" (FULLY_CONNECTED): no fixed point, one product in float64 rounded once, halves away from zero; where that
  product leaves 32 bits C++ leaves its conversion undefined (processors saturate or give the least number), and it
  saturates here;
- "matmul" (BATCH_MATMUL): fixed point, the product of the two scales rounded to float32 first.

Knows no window and no dimension numbers.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.fixed.functions import scale_of
from nxjax.ops.fixed.point import INT32_MAX, INT32_MIN, quantize_multiplier, rescale, rescale_wide, round_away, wrap32
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes

Kind = Literal["conv", "dense", "matmul"]


def factor(x_scale: float, w_scale: Any, out: Grid, kind: Kind = "conv") -> NDArray:
    """``x_scale * w_scale / out.scale`` in float64, from float32 scales.

    >>> float(factor(0.5, 0.5, Grid(np.dtype("int8"), 0.125)))
    2.0
    """
    x, w = np.float32(x_scale), np.asarray(w_scale, np.float32)
    with np.errstate(under="ignore"):
        product = x * w if kind == "matmul" else np.float64(x) * w.astype(np.float64)
    return np.asarray(product, np.float64) / np.float64(scale_of(out))


def requantize_products(
    acc: NDArray,
    x_scale: float,
    w_scale: Any,
    out: Grid,
    lo: int,
    hi: int,
    rounding: Rounding = "double",
    kind: Kind = "conv",
) -> NDArray:
    """Integers of ``out.dtype`` in [lo, hi] from the sums ``acc`` (bias included), of any shape.

    ``w_scale`` broadcasts against ``acc``. Sums for int16 results are 64-bit numbers and take the 16-bit multiplier,
    which has one rounding; all others are 32-bit numbers. "single" rounding has no "dense" of its own: it is fixed
    point for every kind.

    >>> out = Grid(np.dtype("int8"), 0.5, 3)
    >>> requantize_products(np.array([400, -400]), 0.05, 0.1, out, -128, 127).tolist()
    [7, -1]
    """
    real = factor(x_scale, w_scale, out, kind)
    wide = out.dtype == dtypes.int16
    acc = np.asarray(acc, np.int64) if wide else wrap32(acc)
    if kind == "dense" and rounding == "double":
        scaled = np.clip(round_away(acc * real), INT32_MIN, INT32_MAX).astype(np.int64)
        return np.clip(scaled + out.zero_point, lo, hi).astype(out.dtype)
    multiplier, shift = quantize_multiplier(real, rounding)
    scaled = rescale_wide(acc, multiplier, shift) if wide else rescale(acc, multiplier, shift, rounding)
    return np.clip(wrap32(scaled + out.zero_point), lo, hi).astype(out.dtype)
