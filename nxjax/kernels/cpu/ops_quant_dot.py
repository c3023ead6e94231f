"""The steps that matrix products of quantized values end with, beside those of `ops_quant`: their own two roundings."""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.kernels.cpu.ir import Value, with_element
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.kernels.cpu.ops_quant import NDArray, StoredStep, away, constant_place, factor_of
from nxjax.ops.fixed.point import INT32_MAX, INT32_MIN, quantize_multiplier, rescale, round_away, wrap32
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.trace import dtypes


def _factor(w_scale: NDArray, x_scale: NDArray, y_scale: NDArray) -> NDArray:
    return np.asarray(x_scale.astype(np.float64) * w_scale.astype(np.float64) / y_scale.astype(np.float64))


def _dense(acc: NDArray, bias: NDArray, factor: NDArray, zero: NDArray, lo: NDArray, hi: NDArray) -> NDArray:
    total = wrap32(acc.astype(np.int64) + bias)
    scaled = np.clip(round_away(total * factor), INT32_MIN, INT32_MAX).astype(np.int64)
    return (np.clip(scaled + zero, lo, hi) - zero).astype(np.int16)


def _matmul(acc: NDArray, *, factor: float, out: Grid, lo: int, hi: int, rounding: Rounding) -> NDArray:
    scaled = rescale(acc.astype(np.int64), *quantize_multiplier(factor, rounding), rounding)
    return (np.clip(wrap32(scaled + out.zero_point), lo, hi) - out.zero_point).astype(np.int16)


factor: Final = StoredStep("stored_factor", _factor)
# (sum, bias, factor, zero point, lo, hi): one product in float64, rounded once, halves away from zero.
dense: Final = StoredStep("stored_dense", _dense)
matmul: Final = StoredStep("stored_matmul", _matmul)


@op("stored_factor", (dtypes.float32,), exact=True)
def _emit_factor(s: EmitContext) -> Value:
    double = with_element(s.xs[0].type, "double")
    w_scale, x_scale, y_scale = (v.convert(double) for v in s.xs)
    return x_scale * w_scale / y_scale


@op("stored_dense", (dtypes.int32, dtypes.float64), exact=True)
def _emit_dense(s: EmitContext) -> Value:
    """The saturated result plus the zero point does not fit into 32 bits: the limits are moved instead."""
    f, (acc, bias, by, zero, lo, hi) = s.f, s.xs
    low, high = ((limit - zero).convert(by.type) for limit in (lo, hi))
    return away(f, (acc + bias).convert(by.type) * by, low, high)


@op("stored_matmul", (dtypes.int32,), exact=True)
def _emit_matmul(s: EmitContext) -> Value:
    f, p = s.f, s.params
    return constant_place(f, s.xs[0], factor_of(p["factor"], p["rounding"]), p)
