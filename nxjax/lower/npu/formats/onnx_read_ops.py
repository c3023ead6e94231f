"""One rule per ONNX operator that a graph can be read from. A rule names operands, their order, and attributes.

Semantics: the ONNX operator specification (onnx.ai/onnx/operators). What the specification allows and a graph cannot
say (computed shapes, ceil_mode, groups of transposed convolutions, ...) is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats import onnx_read_move as move
from nxjax.lower.npu.formats.onnx_build import NCHW, Layout, identity
from nxjax.lower.npu.formats.onnx_ops import CLIPS, without
from nxjax.lower.npu.formats.onnx_reader import (
    LayoutView,
    OnnxReader,
    Rule,
    invalid,
    name_at,
    numbers,
    own_layout,
    refuse,
)
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

_OIHW: Final[Layout] = (0, 3, 1, 2)
_CHANNELS_LAST: Final[Layout] = (3, 0, 1, 2)


# Quantization.


def dequantize(r: OnnxReader, n: Any) -> None:
    name, grid = n.input[0], r.grid(n)
    if name in r.constants:
        data = r.signed(r.constants[name])
        if data.dtype != grid.dtype:
            raise refuse(n, "of a constant of another dtype than its zero point's")
        t = Tensor(name, data.shape, data.dtype, grid, data)
        r.views[n.output[0]] = LayoutView(t, identity(data.ndim))
        return
    view = r.view(name)
    if view is None or not view.stored or view.offset or view.tensor.grid != grid:
        raise refuse(n, "on another grid than its operand's")
    r.views[n.output[0]] = LayoutView(view.tensor, view.layout)


def quantize(r: OnnxReader, n: Any) -> None:
    """A quantizer that ends no operator: of an input, from one grid to another, or of something only moved."""
    grid, name = r.grid(n), n.input[0]
    if r.is_constant(name):
        raise refuse(n, "of a constant")
    view = r.view(name)
    if view is None or view.stored:
        raise refuse(n, "of stored integers")
    if view.tensor.grid == grid:
        r.views[n.output[0]] = LayoutView(view.tensor, view.layout, stored=True)
        return
    t = Tensor(n.output[0], view.tensor.shape, grid.dtype, grid)
    r.nodes.append(Node("quantize", (view.tensor,), (t,), name=n.name))
    r.views[n.output[0]] = LayoutView(t, view.layout, stored=True)


# Activations fused into what they follow.


def bounds(r: OnnxReader, n: Any) -> tuple[float, float] | None:
    """The limits of a Relu or Clip; None if they are computed."""
    if n.op_type == "Relu":
        return CLIPS["relu"]
    limits: list[float] = []
    for i, (attr, missing) in enumerate((("min", -math.inf), ("max", math.inf)), 1):
        name = name_at(n, i)
        if name is not None and name not in r.constants:
            return None
        limits.append(float(r.constants[name].reshape(-1)[0]) if name else float(r.attributes(n).get(attr, missing)))
    return limits[0], limits[1]


def kept_by(grid: Grid | None, wanted: tuple[float, float], have: tuple[float, float]) -> bool:
    """Whether clamping to ``have`` and saturating to ``grid`` is clamping to ``wanted``."""
    if grid is None or isinstance(grid.scale, tuple):
        return have == wanted
    low, high = grid.limits
    ends = [grid.zero_point + round(b / grid.scale) if math.isfinite(b) else b for b in wanted]
    bottom = have[0] == wanted[0] or (have[0] == -math.inf and ends[0] <= low)
    return bottom and (have[1] == wanted[1] or (have[1] == math.inf and ends[1] >= high))


def fused(r: OnnxReader, name: str) -> tuple[str | None, str]:
    """The activation that follows a value and nothing else does, and the value after it."""
    after, grid, q = name, *r.next_grid(name)
    taken: list[Any] = []
    if q is not None:
        d = r.sole_reader(q.output[0], "DequantizeLinear")
        if d is None or r.grid(d) != grid:
            return None, name
        taken, after = [q, d], d.output[0]
    act = r.sole_reader(after, "Relu", "Clip")
    have = None if act is None else bounds(r, act)
    if act is None or have is None or (q is not None and r.next_grid(act.output[0])[0] != grid):
        return None, name
    for kind, wanted in CLIPS.items():
        if kept_by(grid, wanted, have):
            r.done.update(map(id, [*taken, act]))
            return kind, act.output[0]
    return None, name


# Products.


def _pads(r: OnnxReader, n: Any, spatial: int) -> list[tuple[int, int]]:
    a = r.attributes(n)
    if a.get("auto_pad", b"NOTSET") not in (b"NOTSET", b"VALID"):
        raise refuse(n, f"with auto_pad {a['auto_pad'].decode(errors='replace')}")
    pads = [int(p) for p in a.get("pads", [0] * 2 * spatial)]
    if len(pads) != 2 * spatial:
        raise invalid("pads of another number than two per dimension", n.name)
    return list(zip(pads[:spatial], pads[spatial:], strict=True))


def _weights(r: OnnxReader, n: Any) -> tuple[int, ...]:
    if not r.is_constant(n.input[1]):
        raise refuse(n, "with computed weights")
    shape = r.shape(n.input[1])
    if len(shape) != 4:
        raise refuse(n, f"over {len(shape) - 2} dimensions")
    return shape


def _pair(a: dict[str, Any], key: str) -> tuple[int, int]:
    first, second = a.get(key, (1, 1))
    return int(first), int(second)


def convolution(r: OnnxReader, n: Any) -> None:
    a, shape = r.attributes(n), _weights(r, n)
    groups, channels = int(a.get("group", 1)), r.shape(n.input[0])[1]
    attrs: dict[str, Any] = {
        "strides": _pair(a, "strides"),
        "dilations": _pair(a, "dilations"),
        "padding": tuple(_pads(r, n, 2)),
    }
    attrs["activation"], out = fused(r, n.output[0])
    third = name_at(n, 2)
    bias = None if third is None else (third, None)
    if groups > 1 and groups == channels and shape[1] == 1:
        r.emit("depthwise_conv_2d", [(n.input[0], NCHW), (n.input[1], _CHANNELS_LAST), bias], [out], NCHW, attrs)
        return
    attrs["groups"] = groups
    r.emit("conv_2d", [(n.input[0], NCHW), (n.input[1], _OIHW), bias], [out], NCHW, attrs)


def transposed_convolution(r: OnnxReader, n: Any) -> None:
    a = r.attributes(n)
    _weights(r, n)
    if int(a.get("group", 1)) != 1 or _pair(a, "dilations") != (1, 1) or "output_shape" in a:
        raise refuse(n, "with groups, dilations or an output_shape")
    extra = [int(e) for e in a.get("output_padding", (0, 0))]
    padding = tuple((low, high - e) for (low, high), e in zip(_pads(r, n, 2), extra, strict=True))
    attrs: dict[str, Any] = {"strides": _pair(a, "strides"), "padding": padding}
    attrs["activation"], out = fused(r, n.output[0])
    third = name_at(n, 2)
    operands = [(n.input[0], NCHW), (n.input[1], _CHANNELS_LAST), None if third is None else (third, None)]
    r.emit("transpose_conv", operands, [out], NCHW, attrs)


def gemm(r: OnnxReader, n: Any) -> None:
    a = r.attributes(n)
    if a.get("alpha", 1.0) != 1.0 or a.get("beta", 1.0) != 1.0 or a.get("transA", 0):
        raise refuse(n, "with alpha, beta or transA")
    third = name_at(n, 2)
    if not r.is_constant(n.input[1]) or (third and r.shape(third) != (r.shape(n.output[0])[1],)):
        raise refuse(n, "with computed weights, or a bias that is not one number per column")
    kind, out = fused(r, n.output[0])
    weights: Layout = (0, 1) if a.get("transB", 0) else (1, 0)
    operands = [(n.input[0], None), (n.input[1], weights), None if third is None else (third, None)]
    r.emit("fully_connected", operands, [out], identity(2), {"activation": kind})


def matmul(r: OnnxReader, n: Any) -> None:
    x, y = n.input
    out = n.output[0]
    if r.is_constant(y) and len(r.shape(y)) == 2 and not r.is_constant(x) and len(r.shape(x)) >= 2:
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


# Elementwise.


def elementwise(op: str, activated: bool = False) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        kind, out = fused(r, n.output[0]) if activated else (None, n.output[0])
        rank = len(r.shape(out))
        layout = r.layout(n.input, rank)
        operands: list[tuple[str, Layout | None] | None] = []
        for name in n.input:
            full = r.is_constant(name) or len(r.shape(name)) == rank
            operands.append((name, layout if full else None))
        r.emit(op, operands, [out], layout, {"activation": kind} if activated else {})

    return rule


def extreme(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        if len(n.input) != 2:
            raise refuse(n, f"of {len(n.input)} operands")
        elementwise(op)(r, n)

    return rule


def unary(op: str, attributes: Callable[[dict[str, Any]], dict[str, Any]] | None = None) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        layout = own_layout(r, n.input[0])
        attrs = {} if attributes is None else attributes(r.attributes(n))
        r.emit(op, [(n.input[0], layout)], [n.output[0]], layout, attrs)

    return rule


def elu(r: OnnxReader, n: Any) -> None:
    if r.attributes(n).get("alpha", 1.0) != 1.0:
        raise refuse(n, "with another alpha than 1")
    unary("elu")(r, n)


def clip(r: OnnxReader, n: Any) -> None:
    found = bounds(r, n)
    if found is None:
        raise refuse(n, "with computed limits")
    kind = next((k for k, wanted in CLIPS.items() if wanted == found), None)
    layout = own_layout(r, n.input[0])
    if kind is not None:
        r.emit(kind, [(n.input[0], layout)], [n.output[0]], layout)
        return
    view, grid = r.view(n.input[0]), r.next_grid(n.output[0])[0]
    if view is None or math.isfinite(found[0]) == math.isfinite(found[1]):
        raise refuse(n, f"to {found}")
    op, limit = ("maximum", found[0]) if math.isfinite(found[0]) else ("minimum", found[1])
    value = np.asarray(limit, np.float32 if view.tensor.grid is not None else view.tensor.dtype)
    name = f"{n.name}/limit"
    r.constants[name] = value
    if grid is not None and view.tensor.grid == grid:
        t = Tensor(name, (), grid.dtype, grid, grid.quantize(value))
        r.views[name] = LayoutView(t, ())
    r.emit(op, [(n.input[0], layout), (name, layout)], [n.output[0]], layout)


def square_root(r: OnnxReader, n: Any) -> None:
    inverse = r.sole_reader(n.output[0], "Reciprocal")
    layout = own_layout(r, n.input[0])
    if inverse is None:
        r.emit("sqrt", [(n.input[0], layout)], [n.output[0]], layout)
        return
    r.done.add(id(inverse))
    r.emit("rsqrt", [(n.input[0], layout)], [inverse.output[0]], layout)


def reciprocal(r: OnnxReader, n: Any) -> None:
    one, layout = f"{n.name}/one", own_layout(r, n.input[0])
    r.constants[one] = np.ones((), r.dtype(n.output[0]))
    r.emit("div", [(one, None), (n.input[0], layout)], [n.output[0]], layout, {"activation": None})


def softmax(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        if r.opset < 13:
            raise refuse(n, "before opset 13, which flattens")
        rank = len(r.shape(n.input[0]))
        axis = int(r.attributes(n).get("axis", -1)) % rank
        layout = own_layout(r, n.input[0])
        if layout[axis] != rank - 1:
            order = list(identity(rank))
            order[axis], order[-1] = order[-1], order[axis]
            layout = tuple(order)
        r.emit(op, [(n.input[0], layout)], [n.output[0]], layout, {"beta": 1.0} if op == "softmax" else {})

    return rule


# Pools, reductions, scans.


def pool(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        a = r.attributes(n)
        if len(r.shape(n.input[0])) != 4:
            raise refuse(n, f"over {len(r.shape(n.input[0])) - 2} dimensions")
        padding = _pads(r, n, 2)
        counted = a.get("count_include_pad", 0) and any(p != (0, 0) for p in padding)
        odd = a.get("ceil_mode", 0) or a.get("storage_order", 0) or len(n.output) > 1
        if counted or odd or any(d != 1 for d in a.get("dilations", ())):
            raise refuse(n, "that counts padding, rounds up, dilates or gives places")
        attrs: dict[str, Any] = {
            "window": _pair(a, "kernel_shape"),
            "strides": _pair(a, "strides"),
            "padding": tuple(padding),
        }
        attrs["activation"], out = fused(r, n.output[0])
        r.emit(op, [(n.input[0], NCHW)], [out], NCHW, attrs)

    return rule


def reduction(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        rank = len(r.shape(n.input[0]))
        axes = numbers(r, n, 1, "axes")
        a = r.attributes(n)
        if not axes:
            if a.get("noop_with_empty_axes", 0):
                raise refuse(n, "over no axes")
            axes = list(range(rank))
        layout, keep = own_layout(r, n.input[0]), bool(a.get("keepdims", 1))
        over = sorted({layout[x % rank] for x in axes})
        after = layout if keep else without(layout, set(over))
        r.emit(op, [(n.input[0], layout)], [n.output[0]], after, {"axes": tuple(over), "keepdims": keep})

    return rule


def arg(op: str) -> Rule:
    def rule(r: OnnxReader, n: Any) -> None:
        a = r.attributes(n)
        to = r.sole_reader(n.output[0], "Cast")
        if a.get("keepdims", 1) or a.get("select_last_index", 0) or to is None or r.dtype(to.output[0]) != dtypes.int32:
            raise refuse(n, "other than one that drops the axis and is cast to int32")
        layout = own_layout(r, n.input[0])
        axis = layout[int(a.get("axis", 0)) % len(layout)]
        r.done.add(id(to))
        after = without(layout, {axis})
        r.emit(op, [(n.input[0], layout)], [to.output[0]], after, {"axis": axis}, dtypes.int32)

    return rule


def cumsum(r: OnnxReader, n: Any) -> None:
    a, layout = r.attributes(n), own_layout(r, n.input[0])
    axis = layout[int(r.constant(n.input[1]).reshape(-1)[0]) % len(layout)]
    attrs = {"axis": axis, "exclusive": bool(a.get("exclusive", 0)), "reverse": bool(a.get("reverse", 0))}
    r.emit("cumsum", [(n.input[0], layout)], [n.output[0]], layout, attrs)


# Of real values or of stored integers.


def cast(r: OnnxReader, n: Any) -> None:
    view, out = r.view(n.input[0]), n.output[0]
    if view is None or not view.stored:
        unary("cast")(r, n)
        return
    if r.dtype(out) != dtypes.int32:
        raise refuse(n, "of stored integers to another dtype than int32")
    offset = 128 if r.dtype(n.input[0]) == dtypes.uint8 else 0
    r.views[out] = LayoutView(view.tensor, view.layout, stored=True, offset=offset)


def add(r: OnnxReader, n: Any) -> None:
    view = r.view(n.input[0])
    if view is None or not view.stored:
        elementwise("add", activated=True)(r, n)
        return
    by: NDArray = r.constant(n.input[1])
    if by.size != 1:
        raise refuse(n, "of stored integers and several numbers")
    moved = view.offset + int(by.reshape(-1)[0])
    r.views[n.output[0]] = LayoutView(view.tensor, view.layout, stored=True, offset=moved)


READ: Final[dict[str, Rule]] = {
    "QuantizeLinear": quantize,
    "DequantizeLinear": dequantize,
    "Identity": move.alias,
    "Constant": move.constant,
    "Conv": convolution,
    "ConvTranspose": transposed_convolution,
    "Gemm": gemm,
    "MatMul": matmul,
    "Add": add,
    "Sub": elementwise("sub", activated=True),
    "Mul": elementwise("mul", activated=True),
    "Div": elementwise("div", activated=True),
    "Max": extreme("maximum"),
    "Min": extreme("minimum"),
    "Pow": elementwise("pow"),
    "PRelu": elementwise("prelu"),
    "Where": elementwise("select"),
    "Equal": elementwise("equal"),
    "Less": elementwise("less"),
    "LessOrEqual": elementwise("less_equal"),
    "Greater": elementwise("greater"),
    "GreaterOrEqual": elementwise("greater_equal"),
    "And": elementwise("logical_and"),
    "Or": elementwise("logical_or"),
    "Not": unary("logical_not"),
    "Relu": unary("relu"),
    "Clip": clip,
    "Sigmoid": unary("logistic"),
    "Tanh": unary("tanh"),
    "HardSwish": unary("hard_swish"),
    "Elu": elu,
    "LeakyRelu": unary("leaky_relu", lambda a: {"alpha": float(a.get("alpha", 0.01))}),
    "Gelu": unary("gelu", lambda a: {"approximate": a.get("approximate", b"none") == b"tanh"}),
    "Exp": unary("exp"),
    "Log": unary("log"),
    "Sqrt": square_root,
    "Reciprocal": reciprocal,
    "Abs": unary("abs"),
    "Neg": unary("neg"),
    "Sin": unary("sin"),
    "Cos": unary("cos"),
    "Floor": unary("floor"),
    "Ceil": unary("ceil"),
    "Round": unary("round"),
    "Sign": unary("sign"),
    "Erf": unary("erf"),
    "Cast": cast,
    "Softmax": softmax("softmax"),
    "LogSoftmax": softmax("log_softmax"),
    "MaxPool": pool("max_pool_2d"),
    "AveragePool": pool("average_pool_2d"),
    "ReduceMean": reduction("mean"),
    "ReduceSum": reduction("sum"),
    "ReduceMax": reduction("reduce_max"),
    "ReduceMin": reduction("reduce_min"),
    "ReduceProd": reduction("reduce_prod"),
    "ArgMax": arg("argmax"),
    "ArgMin": arg("argmin"),
    "CumSum": cumsum,
    "Reshape": move.reshape,
    "Flatten": move.reshape,
    "Squeeze": move.reshape,
    "Unsqueeze": move.reshape,
    "Transpose": move.transpose,
    "Concat": move.concatenation,
    "Split": move.split,
    "Slice": move.slices,
    "Pad": move.pad,
    "Expand": move.expand,
    "Tile": move.tile,
    "Gather": move.gather,
    "Resize": move.resize,
}
