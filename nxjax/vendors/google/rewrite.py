"""Operators said in the form that the Edge TPU takes, where another form means the same.

Works on TFLite operators between a graph and its file; each keeps the node that it says. Knows no compiler.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from nxjax.lower.npu.formats.tflite_build import TFLiteOperator, bias_grid, integers, windowed
from nxjax.lower.npu.formats.tflite_schema import VALID
from nxjax.lower.npu.graph import Tensor
from nxjax.ops.fixed import functions
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.types import Shape

_CONVOLUTIONS: Final = ("CONV_2D", "DEPTHWISE_CONV_2D")


def one_dilation(operations: Sequence[TFLiteOperator]) -> list[TFLiteOperator]:
    """Dilations that differ between directions, in one of which the kernel is 1 long, made equal: the same bits."""
    return [_one_dilation(o) if o.name in _CONVOLUTIONS else o for o in operations]


def same_bits(operations: Sequence[TFLiteOperator]) -> list[TFLiteOperator]:
    """All rewrites that change no bit: dilations, leaky relus as PRELU with one slope, strides as a pooling of one."""
    return [_strides_as_pool(_leaky_as_prelu(o)) for o in one_dilation(operations)]


def rows_as_pixels(operations: Sequence[TFLiteOperator]) -> list[TFLiteOperator]:
    """`same_bits`, and int8 dense layers of several rows as 1x1 convolutions over an image of one line.

    The sums are the same. A convolution rounds them in fixed point and a dense layer of LiteRT in floating point, so
    that results which lie half-way between two integers may differ by one.
    """
    found: list[TFLiteOperator] = []
    for o in same_bits(operations):
        found += _rows_as_pixels(o) if o.name == "FULLY_CONNECTED" else [o]
    return found


def _one_dilation(o: TFLiteOperator) -> TFLiteOperator:
    weights = o.inputs[1]
    assert weights is not None
    keys = ("dilation_h_factor", "dilation_w_factor")
    used = {o.options[key] for key, size in zip(keys, weights.shape[1:3], strict=True) if size > 1}
    if len(used) != 1:
        return o
    return TFLiteOperator(o.name, o.inputs, o.outputs, {**o.options, **dict.fromkeys(keys, used.pop())}, o.node)


def _leaky_as_prelu(o: TFLiteOperator) -> TFLiteOperator:
    if o.name != "LEAKY_RELU" or o.inputs[0] is None:
        return o
    x, out, alpha = o.inputs[0], o.outputs[0], float(o.options["alpha"])
    if x.grid is None or out.grid is None or x.dtype != dtypes.int8 or alpha <= 0:
        return o
    one, grid = np.ones((1,) * (len(x.shape) - 1), np.int8), Grid(dtypes.int8, float(np.float32(alpha)))
    every = np.arange(-128, 128, dtype=np.int16).astype(np.int8)
    wanted = functions.leaky_relu(every, x.grid, out.grid, alpha)
    if not np.array_equal(functions.prelu(every, x.grid, one.reshape(1), grid, out.grid), wanted):
        return o
    slope = Tensor(f"{out.name}/slope", one.shape, dtypes.int8, grid, one)
    return TFLiteOperator("PRELU", [x, slope], [out], {}, o.node)


def _strides_as_pool(o: TFLiteOperator) -> TFLiteOperator:
    """Every other row and column from the first on, as the maximum of one pixel."""
    if o.name != "STRIDED_SLICE" or o.inputs[0] is None:
        return o
    x, shape = o.inputs[0], o.outputs[0].shape
    begin, strides = (np.zeros(0, int) if t is None or t.data is None else t.data for t in (o.inputs[1], o.inputs[3]))
    if len(x.shape) != 4 or begin.any() or strides[0] != 1 or strides[3] != 1 or strides.max() == 1:
        return o
    if shape != tuple(-(-n // int(s)) for n, s in zip(x.shape, strides, strict=True)):
        return o
    options = windowed(VALID, (int(strides[1]), int(strides[2])), filter=(1, 1))
    return TFLiteOperator("MAX_POOL_2D", [x], o.outputs, options, o.node)


def _rows_as_pixels(o: TFLiteOperator) -> list[TFLiteOperator]:
    x, w, b = (*o.inputs, None)[:3]
    assert x is not None and w is not None
    out = o.outputs[0]
    rows = math.prod(out.shape[:-1])
    if rows == 1 or x.grid is None or w.grid is None or w.data is None or x.dtype != dtypes.int8:
        return [o]
    if b is None:
        grid = bias_grid(x.grid, w.grid, dtypes.int32)
        b = Tensor(f"{out.name}/bias", (w.shape[0],), dtypes.int32, grid, np.zeros(w.shape[0], np.int32))
    kernel = (w.shape[0], 1, 1, w.shape[1])
    axis = None if w.grid.axis is None else 0
    weights = Tensor(w.name, kernel, w.dtype, Grid(w.dtype, w.grid.scale, 0, axis), w.data.reshape(kernel))
    image = Tensor(f"{out.name}/rows", (1, 1, rows, w.shape[1]), x.dtype, x.grid)
    made = Tensor(f"{out.name}/pixels", (1, 1, rows, w.shape[0]), out.dtype, out.grid)
    options = windowed(VALID, (1, 1), o.options["fused_activation_function"], dilations=(1, 1))
    return [
        _reshape(o, x, image),
        TFLiteOperator("CONV_2D", [image, weights, b], [made], options, o.node),
        _reshape(o, made, out),
    ]


def _reshape(o: TFLiteOperator, x: Tensor, out: Tensor) -> TFLiteOperator:
    shape: Shape = out.shape
    target = integers(f"{out.name}/shape", shape)
    return TFLiteOperator("RESHAPE", [x, target], [out], {"new_shape": shape}, o.node)
