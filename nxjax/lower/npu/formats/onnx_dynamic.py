"""ONNX operators of dynamic products: floats brought to 8 bits row by row, multiplied as integers, and scaled back.

One row is ``DynamicQuantizeLinear``; that is per tensor, so several rows are spelled out, and are the same numbers.
Integer convolutions take one zero point: a batch of several images is convolved in floats on the grids of its images.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats.onnx_build import Layout, OnnxBuilder
from nxjax.lower.npu.formats.onnx_parts import pads
from nxjax.lower.npu.graph import Node
from nxjax.ops.base import NDArray
from nxjax.ops.fake_quantize import LEAST_ROW_SCALE
from nxjax.trace import dtypes

# The reductions' axes became an operand then.
_AXES_OPERAND: Final = 18


def integers(b: OnnxBuilder, n: Node) -> bool:
    """Whether the node is written with integer products."""
    images = n.op != "fully_connected" and n.operand().shape[0] > 1
    return bool(n.attrs.get("dynamic")) and b.options.style == "qdq" and b.options.integer_products and not images


def operand(b: OnnxBuilder, n: Node, layout: Layout) -> str:
    """What a product in floats computes with: of a dynamic one, the operand on the grids of its rows."""
    value = b.real(n.operand(), layout)
    if not n.attrs.get("dynamic") or b.options.style == "float":
        return value
    return on_rows(b, value, [len(layout) - 1] if n.op == "fully_connected" else range(1, len(layout)))


def dense(b: OnnxBuilder, n: Node, bias: Sequence[str]) -> str:
    """The value of a dynamic fully connected layer."""
    w, scales = _weights(n, (1, 0))
    x = n.operand()
    value = b.real(x)
    name = f"{b.names[n.operand(1)]}_t"
    if math.prod(x.shape[:-1]) == 1:
        q, scale, zero = b.ops("DynamicQuantizeLinear", [value], 3, suffix="rows")
        # Without VNNI, ONNX Runtime saturates sums of uint8 times int8 in 16 bits, those of two uint8 not.
        stored, half = b.constant(w.astype(np.int16) + 128, np.uint8, name), b.constant(128, np.uint8, "half")
        sums = b.op("MatMulInteger", [q, stored, zero, half], "sums")
        sums = b.op("Cast", [sums], "real", to=b.onnx.TensorProto.FLOAT)
    else:
        stored = b.constant(w, np.int8, name)
        q, scale, zero = _rows(b, value, [len(x.shape) - 1])
        q = b.op("Cast", [q], "stored", to=b.onnx.TensorProto.INT8)
        sums = b.op("Cast", [b.op("MatMulInteger", [q, stored], "sums")], "real", to=b.onnx.TensorProto.FLOAT)
        # The zero points' share: MatMulInteger has one for all rows.
        columns = b.constant(w.astype(np.int64).sum(0), np.float32, "columns")
        sums = b.op("Sub", [sums, b.op("Mul", [zero, columns], "offset")], "centred")
    value = b.op("Mul", [sums, b.op("Mul", [scale, b.constant(scales, np.float32, "scales")], "steps")], "scaled")
    return b.op("Add", [value, *bias], "biased") if bias else value


def convolution(b: OnnxBuilder, n: Node, layout: Layout, kernel: Layout, groups: int, bias: Sequence[str]) -> str:
    """The value of a dynamic convolution in ``layout``, channels first, of weights in ``kernel``."""
    w, scales = _weights(n, kernel)
    value, weights = b.real(n.operand(), layout), n.operand(1)
    channels = (-1, *[1] * (len(layout) - 2))
    window: dict[str, Any] = {
        "kernel_shape": list(weights.shape[1:-1]), "strides": list(n.attrs["strides"]), "group": groups,
        "pads": pads(n.attrs["padding"]), "dilations": list(n.attrs["dilations"]),
    }  # fmt: skip
    stored = b.constant(w, np.int8, f"{b.names[weights]}_t")
    q, scale, zero = b.ops("DynamicQuantizeLinear", [value], 3, suffix="rows")
    sums = b.op("ConvInteger", [q, stored, zero], "sums", **window)
    along = lambda v, name: b.constant(np.reshape(v, channels), np.float32, name)
    steps = b.op("Mul", [scale, along(scales, "scales")], "steps")
    value = b.op("Mul", [b.op("Cast", [sums], "real", to=b.onnx.TensorProto.FLOAT), steps], "scaled")
    if not bias:
        return value
    rows = b.op("Reshape", [bias[0], b.constant(list(channels))], "bias")
    return b.op("Add", [value, rows], "biased")


def on_rows(b: OnnxBuilder, value: str, axes: Sequence[int]) -> str:
    """Real values on the grids of their rows."""
    q, scale, zero = _rows(b, value, axes)
    return b.op("Mul", [b.op("Sub", [q, zero], "centred"), scale], "on_rows")


def _rows(b: OnnxBuilder, value: str, axes: Sequence[int]) -> tuple[str, str, str]:
    """The integers of rows as floats, their scales and zero points; as `quantize_rows` says."""
    number = lambda v: b.constant(np.float32(v), np.float32, "number")

    def end(kind: str, keep: str) -> str:
        given = [value, b.constant(list(axes))] if b.opset >= _AXES_OPERAND else [value]
        attrs: dict[str, Any] = {} if b.opset >= _AXES_OPERAND else {"axes": list(axes)}
        return b.op(keep, [b.op(kind, given, "end", keepdims=1, **attrs), number(0)], "end")

    low, high = end("ReduceMin", "Min"), end("ReduceMax", "Max")
    scale = b.op("Div", [b.op("Sub", [high, low], "span"), number(255)], "scale")
    scale = b.op("Max", [scale, number(LEAST_ROW_SCALE)], "scale")
    ends = [number(-128), number(127)]
    zero = b.op("Sub", [number(-128), b.op("Div", [low, scale], "low")], "zero")
    zero = b.op("Clip", [b.op("Round", [zero], "zero"), *ends], "zero")
    q = b.op("Round", [b.op("Div", [value, scale], "steps")], "steps")
    return b.op("Clip", [b.op("Add", [q, zero], "placed"), *ends], "kept"), scale, zero


def _weights(n: Node, layout: Layout) -> tuple[NDArray, NDArray]:
    """The stored weights in a layout, and their scales: one per channel, or one."""
    w = n.operand(1)
    assert w.data is not None and w.grid is not None
    scales = np.atleast_1d(np.asarray(w.grid.scale, np.float32))
    return w.data.astype(dtypes.int8).transpose(layout), scales
