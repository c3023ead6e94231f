"""Rules of whole numbers on grids: QuantizeLinear, DequantizeLinear and the operators that compute on stored values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.onnx.elementwise import cast
from nxjax.interop.onnx.graph import dtype_of
from nxjax.interop.onnx.products import convolved, shifted
from nxjax.interop.onnx.walk import rule
from nxjax.trace import dtypes


def spread(v: Any, x: Any, axis: int, block: int) -> Any:
    """A scale or zero point along ``axis`` of ``x``, or in blocks of it, with the rank of ``x``."""
    if v is None or v.ndim == 0 or (v.size == 1 and not block):
        return v if v is None else v.reshape(())
    if block:
        return jnp.repeat(v, block, axis=axis)[tuple(slice(0, n) for n in x.shape)]
    shape = [1] * x.ndim
    shape[axis] = -1
    return v.reshape(tuple(shape))


def stored(x: Any, scale: Any, zero: Any, dtype: Any, saturate: bool = True) -> Any:
    """``round(x / scale) + zero`` within the limits of ``dtype``."""
    y = x / scale
    if dtype in dtypes.FLOAT:
        return cast(y if zero is None else y + zero.astype(y.dtype), dtype, saturate)
    info = ml_dtypes.iinfo(dtype)
    y = jnp.round(y)
    y = y if zero is None else y + zero.astype(jnp.int32).astype(y.dtype)
    return jnp.clip(y, int(info.min), int(info.max)).astype(jnp.int32).astype(dtype)


@rule("QuantizeLinear", "com.microsoft::QuantizeLinear")
def _quantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
    precision: int = 0, saturate: int = 1,
) -> Any:  # fmt: skip
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else jnp.uint8
    work = dtype_of(precision) if precision else jnp.float32 if x.dtype in dtypes.INTEGER else None
    x = x if work is None else x.astype(work)
    s, z = spread(scale, x, axis, block_size), spread(zero, x, axis, block_size)
    return stored(x, s.astype(x.dtype), z, np.dtype(dtype), bool(saturate))


@rule("DequantizeLinear", "com.microsoft::DequantizeLinear")
def _dequantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    s, z = spread(scale, x, axis, block_size), spread(zero, x, axis, block_size)
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    if x.dtype in dtypes.FLOAT:
        wide = x.astype(dtype) if z is None else x.astype(dtype) - z.astype(dtype)
    else:
        wide = shifted(x, z).astype(dtype)
    return (wide * s.astype(dtype)).astype(dtype)


@rule("DynamicQuantizeLinear")
def _dynamic_quantize(x: Any) -> Any:
    high, low = jnp.maximum(x.max(), 0), jnp.minimum(x.min(), 0)
    scale = (high - low) / 255
    zero = jnp.clip(jnp.round(-low / scale), 0, 255)
    y = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
    return y.astype(jnp.uint8), scale.astype(jnp.float32), zero.astype(jnp.uint8)


def rows(v: Any) -> Any:
    """A scale for each row of a product's first operand."""
    return v if v is None or v.ndim != 1 or v.size == 1 else v[:, None]


def rescaled(total: Any, scale: Any, zero: Any) -> Any:
    """Sums of products of stored values on another grid, as QuantizeLinear gives them."""
    return stored(total.astype(scale.dtype), 1 / scale, zero, zero.dtype)


@rule("QLinearMatMul", "com.microsoft::QLinearMatMul")
def _qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    total = jnp.matmul(shifted(a, rows(a_zero)), shifted(b, b_zero))
    factor = rows(a_scale).astype(jnp.float32) * b_scale.astype(jnp.float32) / rows(y_scale).astype(jnp.float32)
    return rescaled(total, factor, rows(y_zero))


@rule("QLinearConv", "com.microsoft::QLinearConv")
def _qlinear_conv(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, b: Any = None,
    *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    zero = w_zero.reshape((-1,) + (1,) * (w.ndim - 1)) if w_zero.ndim else w_zero
    total = convolved(
        shifted(x, x_zero),
        shifted(w, zero),
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        pads=pads,
        strides=strides,
    )
    channel = (1, -1) + (1,) * (x.ndim - 2)
    total = total if b is None else total + b.reshape(channel)
    return rescaled(total, x_scale * w_scale.reshape(channel) / y_scale, y_zero)
