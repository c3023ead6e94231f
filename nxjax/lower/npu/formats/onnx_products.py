"""ONNX operators of windows and products: convolutions, matrix products, pools. See `onnx_ops`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats import onnx_dynamic
from nxjax.lower.npu.formats.onnx_build import NCHW, Layout, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_parts import Emit, OnnxRow, finish, fused, number, on_grid, pads
from nxjax.lower.npu.formats.onnx_reader import OnnxReader, Rule, invalid, name_at, own_layout, refuse
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

_CHANNELS_LAST: Final[Layout] = (3, 0, 1, 2)


def bias(b: OnnxBuilder, n: Node) -> list[str]:
    """The bias as real values: none, a float constant, or int32 on the grid of the products."""
    t = n.inputs[2] if len(n.inputs) > 2 else None
    if t is None:
        return []
    x, w = n.operand(), n.operand(1)
    if t.data is None or t.dtype not in (dtypes.int32, dtypes.int64) or x.grid is None or w.grid is None:
        return [b.real(t)]
    scale = np.asarray(x.grid.scale, np.float64) * np.asarray(w.grid.scale, np.float64)
    if b.options.style == "float" or np.abs(t.data.astype(np.int64)).max(initial=0) > np.iinfo(np.int32).max:
        if b.options.style != "float":
            b.notes.append(f"{n.name or n.op}: the bias does not fit int32 and is written as float32")
        return [b.constant(t.data * scale, np.float32, f"{b.names[t]}_real")]
    # One scale where the weights have one: Qualcomm's compiler takes another form, and computes something else.
    kept = scale.astype(np.float32).tolist()
    grid = Grid(dtypes.int32, tuple(kept), 0, 0) if scale.ndim else Grid(dtypes.int32, kept)
    return [b.dequantize(b.constant(t.data, np.int32, b.names[t]), grid, (0,))]


def _windows(n: Node, kernel: Sequence[int]) -> dict[str, Any]:
    strides, padding = list(n.attrs["strides"]), pads(n.attrs["padding"])
    return {"kernel_shape": list(kernel), "strides": strides, "pads": padding}


def _first(rank: int) -> Layout:
    """Channels first."""
    return (0, rank - 1, *range(1, rank - 1))


def _convolution(b: OnnxBuilder, n: Node, weights: Layout, groups: int) -> None:
    w = n.operand(1)
    layout = _first(len(n.operand().shape))
    if onnx_dynamic.integers(b, n):
        return finish(b, n, onnx_dynamic.convolution(b, n, layout, weights, groups, bias(b, n)), layout)
    operands = [onnx_dynamic.operand(b, n, layout), b.real(w, weights, weight=True), *bias(b, n)]
    value = b.op("Conv", operands, **_windows(n, w.shape[1:-1]), dilations=list(n.attrs["dilations"]), group=groups)
    return finish(b, n, value, layout)


def convolution(b: OnnxBuilder, n: Node) -> None:
    _convolution(b, n, _first(len(n.operand().shape)), n.attrs["groups"])


def depthwise_conv_2d(b: OnnxBuilder, n: Node) -> None:
    _convolution(b, n, (3, 0, 1, 2), n.operand().shape[3])


def _pads(r: OnnxReader, n: Any, spatial: int) -> list[tuple[int, int]]:
    a = r.attributes(n)
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise refuse(n, f"with auto_pad {a['auto_pad'].decode(errors='replace')}")
    pads = [int(p) for p in a.get("pads", [0] * 2 * spatial)]
    if len(pads) != 2 * spatial:
        raise invalid("pads of another number than two per dimension", n.name)
    return list(zip(pads[:spatial], pads[spatial:], strict=True))


def _weights(r: OnnxReader, n: Any) -> tuple[int, ...]:
    if not r.is_weights(n.input[1]):
        raise refuse(n, "with computed weights")
    shape = r.shape(n.input[1])
    if len(shape) not in (4, 5):
        raise refuse(n, f"over {len(shape) - 2} dimensions")
    return shape


def _sizes(a: dict[str, Any], key: str, spatial: int = 2) -> tuple[int, ...]:
    return tuple(map(int, a.get(key, (1,) * spatial)))


def _placed(r: OnnxReader, n: Any, spatial: int = 2, **more: Any) -> tuple[dict[str, Any], str]:
    """The attributes of a window that moves and of what is fused behind it, and the value after it."""
    a = r.attributes(n)
    attrs: dict[str, Any] = {"strides": _sizes(a, "strides", spatial), "padding": tuple(_pads(r, n, spatial)), **more}
    attrs["activation"], out = fused(r, n.output[0])
    return attrs, out


def _third(n: Any) -> tuple[str, Layout | None] | None:
    name = name_at(n, 2)
    return None if name is None else (name, None)


def read_convolution(r: OnnxReader, n: Any) -> None:
    a, shape = r.attributes(n), _weights(r, n)
    groups, channels, spatial = int(a.get("group", 1)), r.shape(n.input[0])[1], len(shape) - 2
    (attrs, out), bias = _placed(r, n, spatial, dilations=_sizes(a, "dilations", spatial)), _third(n)
    if groups > 1 and groups == channels and shape[1] == 1 and spatial == 2:
        r.emit("depthwise_conv_2d", [(n.input[0], NCHW), (n.input[1], _CHANNELS_LAST), bias], [out], NCHW, attrs)
        return
    attrs["groups"] = groups
    op, layout = "conv_2d" if spatial == 2 else "conv_3d", _first(spatial + 2)
    r.emit(op, [(n.input[0], layout), (n.input[1], layout), bias], [out], layout, attrs)


def transpose_conv(b: OnnxBuilder, n: Node) -> None:
    x, w = n.operand(), n.operand(1)
    padding = n.attrs["padding"]
    if any(low < 0 for low, _ in padding):
        raise b.refuse("a transposed convolution with padding added before its result", "pad the result instead")
    extra = [max(0, -high) for _, high in padding]
    if any(e >= s for e, s in zip(extra, n.attrs["strides"], strict=True) if e):
        raise b.refuse("a transposed convolution with more padding after its result than its stride allows")
    rank = len(x.shape)
    layout, weights = _first(rank), (rank - 1, *range(rank - 1))
    operands = [b.real(x, layout), b.real(w, weights, weight=True), *bias(b, n)]
    settings: dict[str, Any] = _windows(n, w.shape[1:-1]) | {
        "pads": pads([(low, max(0, high)) for low, high in padding])
    }
    finish(b, n, b.op("ConvTranspose", operands, **settings, output_padding=extra), layout)


def read_transposed_convolution(r: OnnxReader, n: Any) -> None:
    a = r.attributes(n)
    spatial = len(_weights(r, n)) - 2
    if int(a.get("group", 1)) != 1 or set(_sizes(a, "dilations", spatial)) != {1} or "output_shape" in a:
        raise refuse(n, "with groups, dilations or an output_shape")
    extra = [int(e) for e in a.get("output_padding", (0,) * spatial)]
    padding = tuple((low, high - e) for (low, high), e in zip(_pads(r, n, spatial), extra, strict=True))
    attrs, out = _placed(r, n, spatial, padding=padding)
    layout, op = _first(spatial + 2), "transpose_conv" if spatial == 2 else "transpose_conv_3d"
    operands = [(n.input[0], layout), (n.input[1], (spatial + 1, *range(spatial + 1))), _third(n)]
    r.emit(op, operands, [out], layout, attrs)


def moved(b: OnnxBuilder, value: str, t: Tensor, shape: Sequence[int], suffix: str) -> str:
    """``value`` on ``t``'s grid, in another shape: in QDQ files data movement is a unit of its own."""
    value = b.op("Reshape", [value, b.constant(shape)], suffix)
    grid = b.grid(t)
    return value if grid is None else on_grid(b, value, grid, identity(len(shape)), suffix)


def unfolded(b: OnnxBuilder, n: Node, value: str) -> None:
    """The result of a product that was computed in another shape."""
    grid = b.grid(n.output)
    if grid is not None:
        value = on_grid(b, value, grid, (), "folded")
    finish(b, n, b.op("Reshape", [value, b.constant(n.output.shape)], "unfold"))


def fully_connected(b: OnnxBuilder, n: Node) -> None:
    """Gemm, which has a bias; more than two dimensions are folded into rows around it.

    MatMul of weights in blocks: ONNX Runtime multiplies with their integers only there.
    """
    x, w = n.operand(), n.operand(1)
    if w in b.blocks:
        value = b.op("MatMul", [onnx_dynamic.operand(b, n, identity(len(x.shape))), b.real(w, (1, 0))])
        added = bias(b, n)
        return finish(b, n, b.op("Add", [value, *added], "biased") if added else value)
    rows = x.size // x.shape[-1] if x.shape[-1] else 0
    if onnx_dynamic.integers(b, n):
        return finish(b, n, onnx_dynamic.dense(b, n, bias(b, n)))
    left = onnx_dynamic.operand(b, n, identity(len(x.shape)))
    left = left if len(x.shape) == 2 else moved(b, left, x, (rows, x.shape[-1]), "rows")
    added = bias(b, n)
    if not added and b.opset < 11:
        # A bias is not optional there.
        added = [number(b, n, 0.0)]
    value = b.op("Gemm", [left, b.real(w, weight=True), *added], transB=1)
    if len(n.output.shape) == 2:
        return finish(b, n, value)
    return unfolded(b, n, value)


def read_gemm(r: OnnxReader, n: Any) -> None:
    a = r.attributes(n)
    if a.get("alpha", 1.0) != 1.0 or a.get("beta", 1.0) != 1.0 or a.get("transA", 0):
        raise refuse(n, "with alpha, beta or transA")
    third = name_at(n, 2)
    if not r.is_weights(n.input[1]) or (third and r.shape(third) != (r.shape(n.output[0])[1],)):
        raise refuse(n, "with computed weights, or a bias that is not one number per column")
    kind, out = fused(r, n.output[0])
    weights: Layout = (0, 1) if a.get("transB", 0) else (1, 0)
    operands = [(n.input[0], None), (n.input[1], weights), _third(n)]
    r.emit("fully_connected", operands, [out], identity(2), {"activation": kind})


def batch_matmul(b: OnnxBuilder, n: Node) -> None:
    """MatMul; batches of more than two dimensions are folded into one where both sides have the same."""
    x, y = n.operand(), n.operand(1)
    fold = len(x.shape) > 4 and x.shape[:-2] == y.shape[:-2]

    def side(t: Tensor, swap: bool, suffix: str) -> str:
        layout = list(identity(len(t.shape)))
        if swap:
            layout[-2:] = layout[:-3:-1]
        value = b.real(t, tuple(layout))
        batch = math.prod(t.shape[:-2])
        return moved(b, value, t, [batch, *(t.shape[a] for a in layout[-2:])], suffix) if fold else value

    left = side(x, n.attrs["adj_x"], "left")
    value = b.op("MatMul", [left, side(y, n.attrs["adj_y"], "right")])
    if fold:
        unfolded(b, n, value)
    else:
        finish(b, n, value)


def read_matmul(r: OnnxReader, n: Any) -> None:
    x, y = n.input
    out = n.output[0]
    if r.is_weights(y) and len(r.shape(y)) == 2 and not r.is_constant(x) and len(r.shape(x)) >= 2:
        kind, out = fused(r, out)
        operands = [(x, None), (y, (1, 0)), None]
        r.emit("fully_connected", operands, [out], identity(len(r.shape(out))), {"activation": kind})
        return

    def side(name: str) -> tuple[tuple[str, Layout | None], bool]:
        """The operand, and whether it is held with its last two dimensions the other way round."""
        rank = len(r.shape(name))
        swapped = (*range(rank - 2), rank - 1, rank - 2)
        turned = rank >= 2 and own_layout(r, name) == swapped
        return (name, swapped if turned else None), turned

    (left, adj_x), (right, adj_y) = side(x), side(y)
    r.emit("batch_matmul", [left, right], [out], identity(len(r.shape(out))), {"adj_x": adj_x, "adj_y": adj_y})


def pool(kind: str, **fixed: Any) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        value = b.op(kind, [b.real(n.operand(), NCHW)], **_windows(n, n.attrs["window"]), **fixed)
        finish(b, n, value, NCHW)

    return emit


def read_pool(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        a = r.attributes(n)
        if len(r.shape(n.input[0])) != 4:
            raise refuse(n, f"over {len(r.shape(n.input[0])) - 2} dimensions")
        padding = _pads(r, n, 2)
        counted = a.get("count_include_pad", 0) and any(p != (0, 0) for p in padding)
        odd = a.get("ceil_mode", 0) or a.get("storage_order", 0) or len(n.output) > 1
        if counted or odd or any(d != 1 for d in a.get("dilations", ())):
            raise refuse(n, "that counts padding, rounds up, dilates or gives places")
        attrs, out = _placed(r, n, window=_sizes(a, "kernel_shape"))
        r.emit(op, [(n.input[0], NCHW)], [out], NCHW, attrs)

    return rule


PRODUCTS: Final = [
    OnnxRow("conv_2d", convolution, "Conv", read_convolution),
    OnnxRow("conv_3d", convolution),
    OnnxRow("depthwise_conv_2d", depthwise_conv_2d),
    OnnxRow("transpose_conv", transpose_conv, "ConvTranspose", read_transposed_convolution),
    OnnxRow("transpose_conv_3d", transpose_conv),
    OnnxRow("fully_connected", fully_connected, "Gemm", read_gemm),
    OnnxRow("batch_matmul", batch_matmul, "MatMul", read_matmul),
    OnnxRow("max_pool_2d", pool("MaxPool"), "MaxPool", read_pool("max_pool_2d")),
    OnnxRow("average_pool_2d", pool("AveragePool", count_include_pad=0), "AveragePool", read_pool("average_pool_2d")),
]
