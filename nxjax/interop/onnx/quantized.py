"""Rules of whole numbers on grids: QuantizeLinear, DequantizeLinear and the operators that compute on stored values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.graphs.values import as_numpy, concrete
from nxjax.interop.onnx import grids
from nxjax.interop.onnx.elementwise import cast
from nxjax.interop.onnx.graph import dtype_of
from nxjax.interop.onnx.grids import OnGrid
from nxjax.interop.onnx.products import convolved, shifted
from nxjax.interop.onnx.walk import rule
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.quant.qarray import QArray
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


def real(x: Any, scale: Any, zero: Any, axis: int | None = None) -> Any:
    """The real numbers of a stored value, on the grid that the file names if it does."""
    if isinstance(x, OnGrid) and x.same(scale, zero, axis):
        return x.real
    x = grids.stored(x)
    grid = grids.tensor_grid(scale, zero, x.dtype)
    if concrete(x) and concrete(scale) and concrete(zero):
        # Weights: a parameter that no argument gives.
        held = grids.stored_parameter(as_numpy(x), as_numpy(scale), as_numpy(zero), -1 if axis is None else axis)
        if held is not None:
            initial = held.initial
            return held.value(initial.dequantize() if isinstance(initial, QArray) else initial, whole=False).real
    y = shifted(x, spread(zero, x, axis or 0, 0)).astype(jnp.float32) * spread(scale, x, axis or 0, 0)
    return y if grid is None else quantize_dequantize(y, grid=grid)


def on_grid(y: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    """Real numbers as a stored value of this grid."""
    found = grids.snapped(y, scale, zero, np.dtype(dtype))
    return stored(y, scale, zero, np.dtype(dtype)) if found is None else found


@rule("QuantizeLinear", "com.microsoft::QuantizeLinear", grids=("scale", "zero"))
def _quantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0,
    precision: int = 0, saturate: int = 1,
) -> Any:  # fmt: skip
    dtype = zero.dtype if zero is not None else dtype_of(output_dtype) if output_dtype else jnp.uint8
    work = dtype_of(precision) if precision else jnp.float32 if x.dtype in dtypes.INTEGER else None
    x = x if work is None else x.astype(work)
    found = None if block_size else grids.snapped(x, scale, zero, np.dtype(dtype), axis)
    if found is not None:
        return found
    s, z = spread(scale, x, axis, block_size), spread(zero, x, axis, block_size)
    return stored(x, s.astype(x.dtype), z, np.dtype(dtype), bool(saturate))


@rule("DequantizeLinear", "com.microsoft::DequantizeLinear", grids=("scale", "zero"))
def _dequantize(
    x: Any, scale: Any, zero: Any = None, *, axis: int = 1, block_size: int = 0, output_dtype: int = 0
) -> Any:
    dtype = dtype_of(output_dtype) if output_dtype else scale.dtype
    if isinstance(x, OnGrid) and dtype == np.float32 and x.same(scale, zero, axis):
        return x.real
    x = grids.stored(x)
    grid = None if block_size or concrete(x) else grids.tensor_grid(scale, zero, x.dtype)
    s, z = spread(scale, x, axis, block_size), spread(zero, x, axis, block_size)
    if x.dtype in dtypes.FLOAT:
        wide = x.astype(dtype) if z is None else x.astype(dtype) - z.astype(dtype)
    else:
        wide = shifted(x, z).astype(dtype)
    y = (wide * s.astype(dtype)).astype(dtype)
    return y if grid is None or dtype != np.float32 else quantize_dequantize(y, grid=grid)


@rule("DynamicQuantizeLinear")
def dynamically(x: Any) -> Any:
    """``x`` in 8 bits, with the scale and the zero point of its own range."""
    high, low = jnp.maximum(x.max(), 0), jnp.minimum(x.min(), 0)
    scale = (high - low) / 255
    zero = jnp.clip(jnp.round(-low / scale), 0, 255)
    y = jnp.clip(jnp.round(x / scale) + zero, 0, 255)
    return y.astype(jnp.uint8), scale.astype(jnp.float32), zero.astype(jnp.uint8)


def _named(*words: Any) -> bool:
    """Whether the grids of operands and result are known, one for each tensor."""
    return all(w is None or (concrete(w) and w.size == 1) for w in words)


def rows(v: Any) -> Any:
    """A scale for each row of a product's first operand."""
    return v if v is None or v.ndim != 1 or v.size == 1 else v[:, None]


def rescaled(total: Any, scale: Any, zero: Any) -> Any:
    """Sums of products of stored values on another grid, as QuantizeLinear gives them."""
    return stored(total.astype(scale.dtype), 1 / scale, zero, zero.dtype)


TWO = ("a_scale", "a_zero", "b_scale", "b_zero", "y_scale", "y_zero")


@rule("QLinearMatMul", "com.microsoft::QLinearMatMul", grids=TWO)
def _qlinear_matmul(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, y_scale: Any, y_zero: Any
) -> Any:
    if _named(a_scale, a_zero, y_scale, y_zero) and concrete(b_scale) and a_scale.dtype == np.float32:
        y = jnp.matmul(real(a, a_scale, a_zero), real(b, b_scale, b_zero, -1))
        return on_grid(y, y_scale, y_zero, y_zero.dtype)
    total = jnp.matmul(shifted(grids.stored(a), rows(a_zero)), shifted(grids.stored(b), b_zero))
    factor = rows(a_scale).astype(jnp.float32) * b_scale.astype(jnp.float32) / rows(y_scale).astype(jnp.float32)
    return rescaled(total, factor, rows(y_zero))


@rule(
    "QLinearConv", "com.microsoft::QLinearConv",
    grids=("x_scale", "x_zero", "w_scale", "w_zero", "y_scale", "y_zero"),
)  # fmt: skip
def _qlinear_conv(
    x: Any, x_scale: Any, x_zero: Any, w: Any, w_scale: Any, w_zero: Any, y_scale: Any, y_zero: Any, b: Any = None,
    *, auto_pad: str = "NOTSET", dilations: Any = None, group: int = 1, kernel_shape: Any = None, pads: Any = None,
    strides: Any = None,
) -> Any:  # fmt: skip
    windows: dict[str, Any] = {
        "auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads, "strides": strides,
    }  # fmt: skip
    channel = (1, -1) + (1,) * (w.ndim - 2)
    if _named(x_scale, x_zero, y_scale, y_zero) and concrete(w_scale):
        y = convolved(real(x, x_scale, x_zero), real(w, w_scale, w_zero, 0), **windows)
        y = y if b is None else y + (b.astype(jnp.float32) * (x_scale * w_scale)).reshape(channel)
        return on_grid(y, y_scale, y_zero, y_zero.dtype)
    zero = w_zero.reshape((-1,) + (1,) * (w.ndim - 1)) if w_zero.ndim else w_zero
    total = convolved(shifted(grids.stored(x), x_zero), shifted(grids.stored(w), zero), **windows)
    total = total if b is None else total + b.reshape(channel)
    return rescaled(total, x_scale * w_scale.reshape(channel) / y_scale, y_zero)
