"""What each op of a graph becomes in OpenVINO's operation set 13: one small function per op.

A rule reads real values from a `Net` and gives one value per result, and whether they are channels first. Names,
grids and fused activations are the writer's business. Formulas and attribute meanings are those of OpenVINO's
operation specifications (docs.openvino.ai, "Available Operation Sets").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.openvino_net import Net, Value, last_axis
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import short_name

Results = tuple[list[Value], bool]
Rule = Callable[[Net, Node], Results]
RULES: Final[dict[str, Rule]] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the function for ``ops``."""

    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, f))
        return f

    return add


def weights_of(net: Net, node: Node) -> Tensor:
    """The weights of a product: the stored integers of weights that a node takes off their grid."""
    w = node.operand(1)
    return net.stored.get(w, w)


def number_type(t: Tensor) -> Any:
    """The element type in which a tensor's real values are held in the model."""
    return dtypes.float32 if t.grid is not None else t.dtype


BOUNDS: Final = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}


def activate(net: Net, value: Value, activation: str | None, grid: Grid | None) -> Value:
    """A fused activation; none where the result's grid ends at its bounds.

    Not only for speed: the CPU plugin clamps integers between two quantizations at a step of the *operand's* grid.
    """
    if activation is None:
        return value
    low, high = BOUNDS[activation]
    if grid is not None:
        # Nudging the zero point moves a calibrated grid by up to half a step.
        slack = 0.51 * float(np.max(grid.scale))
        if low - slack <= grid.bounds[0] and grid.bounds[1] <= high + slack:
            return value
    return net.op.relu(value) if activation == "relu" else net.op.clamp(value, low, high)


# Products of images and weights.


def bias_value(node: Node) -> NDArray | None:
    """A bias as real numbers: stored integers count in products of the operands' scales."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return None
    x, w, b = node.operand(), node.operand(1), node.inputs[2]
    if b.data is None:
        raise LoweringError(f"{node.op}: a bias that is not constant", got=b.name, source=node.source)
    if b.grid is not None:
        return b.grid.dequantize(b.data)
    if b.dtype in dtypes.INTEGER and x.grid is not None and w.grid is not None:
        product = np.float64(x.grid.scale) * np.asarray(w.grid.scale, np.float64)  # pyright: ignore[reportArgumentType]
        return (b.data.astype(np.float64) * product).astype(np.float32)
    return b.data


def add_bias(net: Net, node: Node, value: Value, shape: Sequence[int]) -> Value:
    """The product plus the bias; the product keeps the node's name."""
    bias = bias_value(node)
    if bias is None:
        return value
    net.main(value)
    return net.op.add(value, net.constant(bias.reshape(tuple(shape))))


def kernel(net: Net, w: Tensor, permutation: Sequence[int], shape: Sequence[int], channel: int) -> Value:
    """Weights rearranged while they are still stored numbers; ``channel`` is where the output channels end up."""
    if w.data is None:
        raise LoweringError("openvino: weights that are not constant", got=w.name, fix="close over the weights")
    value = net.constant(w.data.transpose(tuple(permutation)).reshape(tuple(shape)))
    if w.grid is None:
        return value
    return net.dequantize(value, w.grid, len(shape), None if w.grid.axis is None else channel)


def pads(padding: Any) -> tuple[list[int], list[int]]:
    return [int(lo) for lo, _ in padding], [int(hi) for _, hi in padding]


@rule("conv_2d")
def _(net: Net, node: Node) -> Results:
    a, w = node.attrs, weights_of(net, node)
    o, kh, kw, i = w.shape
    groups = int(a.get("groups", 1))
    begin, end = pads(a["padding"])
    x, strides = net.get(node.operand(), True), list(a["strides"])
    if kh == kw == 1 and strides != [1, 1] and node.operand().dtype == dtypes.int16:
        # OpenVINO moves such strides to where the input comes from, and forgets them where that is a scaling.
        size = [low + n + high for low, n, high in zip(begin, node.operand().shape[1:3], end, strict=True)]
        if any(begin + end):
            x = net.op.pad(x, net.ints([0, 0, *begin]), net.ints([0, 0, *end]), "constant")
            begin, end = [0, 0], [0, 0]
        x = net.op.slice(x, *map(net.ints, ((0, 0), size, strides, (2, 3))))
        strides = [1, 1]
    if groups == 1:
        weights = kernel(net, w, (0, 3, 1, 2), (o, i, kh, kw), 0)
        y = net.op.convolution(x, weights, strides, begin, end, list(a["dilations"]))
    else:
        weights = grouped(net, w, groups)
        y = net.op.group_convolution(x, weights, strides, begin, end, list(a["dilations"]))
    return [add_bias(net, node, y, (1, o, 1, 1))], True


def grouped(net: Net, w: Tensor, groups: int) -> Value:
    """Weights [o, kh, kw, i] as OpenVINO's [group, o / group, i, kh, kw]: output channels take two axes."""
    assert w.data is not None
    o, kh, kw, i = w.shape
    value = net.constant(w.data.transpose(0, 3, 1, 2).reshape(groups, o // groups, i, kh, kw))
    return value if w.grid is None else scaled_pair(net, value, w.grid, (groups, o // groups))


def scaled_pair(net: Net, value: Value, grid: Grid, pair: tuple[int, int]) -> Value:
    """Stored weights whose output channels lie in their two leading axes, as real numbers."""
    if grid.axis is None:
        return net.dequantize(value, grid, 5)
    scale = np.asarray(grid.scale, np.float32).reshape(*pair, 1, 1, 1)
    return net.op.multiply(net.op.convert(value, np.float32), net.constant(scale))


@rule("depthwise_conv_2d")
def _(net: Net, node: Node) -> Results:
    a, x, w = node.attrs, node.operand(), weights_of(net, node)
    if w.data is None:
        raise LoweringError("openvino: weights that are not constant", got=w.name, fix="close over the weights")
    _, kh, kw, o = w.shape
    c = x.shape[3]
    begin, end = pads(a["padding"])
    if c == 1:
        # One group: the NPU compiler has no grouped form of it.
        make, weights = net.op.convolution, kernel(net, w, (3, 0, 1, 2), (o, 1, kh, kw), 0)
    else:
        value = net.constant(w.data.transpose(3, 0, 1, 2).reshape(c, o // c, 1, kh, kw))
        weights = value if w.grid is None else scaled_pair(net, value, w.grid, (c, o // c))
        make = net.op.group_convolution
    y = make(net.get(x, True), weights, list(a["strides"]), begin, end, list(a["dilations"]))
    return [add_bias(net, node, y, (1, o, 1, 1))], True


@rule("transpose_conv")
def _(net: Net, node: Node) -> Results:
    a, x, w = node.attrs, node.operand(), weights_of(net, node)
    o, kh, kw, i = w.shape
    weights = kernel(net, w, (3, 0, 1, 2), (i, o, kh, kw), 1)
    begin, end = pads(a["padding"])
    # A negative cut is a border that no input reaches; OpenVINO has it at the end only, smaller than the stride.
    extra = [max(-p, 0) for p in end]
    end = [max(p, 0) for p in end]
    strides = list(a["strides"])
    if any(p < 0 for p in begin) or any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise LoweringError("transpose_conv: padding", got=a["padding"], expected=">= 0", source=node.source)
    y = net.op.convolution_backprop_data(
        net.get(x, True), weights, strides, None, begin, end, [1, 1], "explicit", extra
    )
    return [add_bias(net, node, y, (1, o, 1, 1))], True


@rule("fully_connected")
def _(net: Net, node: Node) -> Results:
    w = weights_of(net, node)
    weights = kernel(net, w, (0, 1), w.shape, 0) if w.data is not None else net.get(w)
    x = node.operand()
    rows = net.op.reshape(net.get(x), net.ints((1, *x.shape)), False) if len(x.shape) == 1 else net.get(x)
    y = net.op.matmul(rows, weights, False, True)
    y = add_bias(net, node, y, (1,) * (max(len(x.shape), 2) - 1) + (w.shape[0],))
    if len(x.shape) == 1:
        net.main(y)
        y = net.op.reshape(y, net.ints(node.output.shape), False)
    return [y], False


@rule("batch_matmul")
def _(net: Net, node: Node) -> Results:
    x, y = net.get(node.operand()), net.get(node.operand(1))
    return [net.op.matmul(x, y, bool(node.attrs.get("adj_x")), bool(node.attrs.get("adj_y")))], False


@rule("max_pool_2d", "average_pool_2d")
def _(net: Net, node: Node) -> Results:
    from openvino import opset1

    a, x = node.attrs, net.get(node.operand(), True)
    begin, end = pads(a["padding"])
    strides, window = list(a["strides"]), list(a["window"])
    if node.op == "average_pool_2d":
        return [net.op.avg_pool(x, strides, begin, end, window, True)], True
    # Version 1 has no second result; later ones add indices that nothing here reads.
    pool: Any = opset1.max_pool
    return [pool(x, strides, begin, end, window)], True


# Elementwise.

BINARY: Final[dict[str, str]] = {
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "maximum": "maximum",
    "minimum": "minimum",
    "squared_difference": "squared_difference",
    "pow": "power",
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "less",
    "less_equal": "less_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
}


@rule(*BINARY)
def _(net: Net, node: Node) -> Results:
    first = net.follow(node)
    x, y = (net.widened(node.operand(i), len(node.output.shape), first) for i in range(2))
    if node.output.dtype == dtypes.bool_:
        grids = node.operand().grid, node.operand(1).grid
        x, y = (v if g is None else net.exact(v, g) for v, g in zip((x, y), grids, strict=True))
    if node.op == "div" and node.output.grid is None and node.output.dtype in dtypes.INTEGER:
        # OpenVINO's integer division rounds down, TFLite's towards zero.
        sign = net.op.multiply(net.op.sign(x), net.op.sign(y))
        return [net.op.multiply(net.op.divide(net.op.abs(x), net.op.abs(y)), sign)], first
    z = getattr(net.op, BINARY[node.op])
    return [_apart(net, node, x, y, z) if _per_sample(node) else z(x, y)], first


def _per_sample(node: Node) -> bool:
    """Whether a constant that differs along the first axis is added to a value that has a grid, or gets one.

    The CPU plugin takes such a constant into FakeQuantize, and then has no kernel for the ranges that this gives it.
    """
    rank = len(node.output.shape)
    added = node.op in ("add", "sub") and any(t.grid is not None for t in (node.output, *node.operands))
    return added and any(t.constant and len(t.shape) == rank > 1 and t.shape[0] > 1 for t in node.operands)


def _apart(net: Net, node: Node, x: Value, y: Value, make: Callable[[Value, Value], Value]) -> Value:
    """The op between reshapes with one more leading axis, through which nothing is taken in."""
    z = make(*(net.op.reshape(v, net.ints((1, *v.shape)), False) for v in (x, y)))
    net.main(z)
    return net.op.reshape(z, net.ints(tuple(z.shape)[1:]), False)


UNARY: Final[dict[str, Callable[[Any, Value], Value]]] = {
    "logistic": lambda op, x: op.sigmoid(x),
    "tanh": lambda op, x: op.tanh(x),
    "hard_swish": lambda op, x: op.hswish(x),
    "elu": lambda op, x: op.elu(x, 1.0),
    "exp": lambda op, x: op.exp(x),
    "log": lambda op, x: op.log(x),
    "sqrt": lambda op, x: op.sqrt(x),
    "abs": lambda op, x: op.abs(x),
    "neg": lambda op, x: op.negative(x),
    "square": lambda op, x: op.multiply(x, x),
    "sin": lambda op, x: op.sin(x),
    "cos": lambda op, x: op.cos(x),
    "floor": lambda op, x: op.floor(x),
    "ceil": lambda op, x: op.ceiling(x),
    "round": lambda op, x: op.round(x, "half_to_even"),
    "sign": lambda op, x: op.sign(x),
    "logical_not": lambda op, x: op.logical_not(x),
    "erf": lambda op, x: op.erf(x),
}
# Functions that jump: a value must be exact where they do.
STEPS: Final = frozenset(("floor", "ceil", "round", "sign"))


@rule(*UNARY)
def _(net: Net, node: Node) -> Results:
    first, x = net.follow(node), node.operand()
    value = net.snapped(x, first) if node.op in STEPS else net.get(x, first)
    return [UNARY[node.op](net.op, value)], first


@rule("relu", "relu6", "relu_n1_to_1")
def _(net: Net, node: Node) -> Results:
    first = net.follow(node)
    return [activate(net, net.get(node.operand(), first), node.op, node.output.grid)], first


@rule("rsqrt")
def _(net: Net, node: Node) -> Results:
    first, x = net.follow(node), node.operand()
    root = net.op.sqrt(net.get(x, first))
    return [net.op.divide(net.real(1.0, number_type(x)), root)], first


@rule("gelu")
def _(net: Net, node: Node) -> Results:
    first = net.follow(node)
    mode = "tanh" if node.attrs.get("approximate") else "erf"
    return [net.op.gelu(net.get(node.operand(), first), mode)], first


@rule("leaky_relu")
def _(net: Net, node: Node) -> Results:
    first, x = net.follow(node), node.operand()
    slope = net.real(np.full(1, node.attrs["alpha"], np.float32), number_type(x))
    return [net.op.prelu(net.get(x, first), slope)], first


@rule("prelu")
def _(net: Net, node: Node) -> Results:
    # Written out: OpenVINO's PRelu lays a vector of slopes along axis 1 whatever the rank.
    first, rank, op = net.follow(node), len(node.output.shape), net.op
    x, slope = (net.widened(node.operand(i), rank, first) for i in range(2))
    zero = net.real(0.0, number_type(node.operand()))
    return [op.add(op.relu(x), op.multiply(slope, op.minimum(x, zero)))], first


@rule("table")
def _(net: Net, node: Node) -> Results:
    # The value's number on its grid picks the result; both are exact.
    x, y = node.operand(), node.output
    assert x.grid is not None and y.grid is not None and x.grid.axis is None
    first, op = net.follow(node), net.op
    values = y.grid.dequantize(np.asarray(node.attrs["values"], y.dtype).reshape(-1))
    steps = op.divide(net.get(x, first), net.real(np.float32(x.grid.scale)))  # pyright: ignore[reportArgumentType]
    index = op.add(op.round(steps, "half_to_even"), net.real(x.grid.zero_point + 128))
    return [op.gather(net.constant(values), op.convert(index, np.int32), net.ints(0))], first


@rule("select")
def _(net: Net, node: Node) -> Results:
    first, rank = net.follow(node), len(node.output.shape)
    condition, x, y = (net.widened(node.operand(i), rank, first) for i in range(3))
    return [net.op.select(condition, x, y)], first


@rule("quantize", "dequantize")
def _(net: Net, node: Node) -> Results:
    # Values are real already: the writer puts the result's grid behind them. Off a grid they are made exact.
    x, y = node.operand(), node.output
    first = net.follow(node)
    if x.constant and y.grid is None:
        net.stored[y] = x
    value = net.get(x, first) if y.grid is not None or x.constant else net.snapped(x, first)
    if number_type(x) != number_type(y):
        value = net.op.convert(value, number_type(y))
    return [value], first


@rule("cast")
def _(net: Net, node: Node) -> Results:
    first = net.follow(node)
    if node.output.dtype not in (*dtypes.INTEGER, *dtypes.BOOL, dtypes.float16, dtypes.float32, dtypes.float64):
        raise LoweringError("cast: a type", got=short_name(node.output.dtype), source=node.source)
    x, y = node.operand(), node.output
    value = net.get(x, first)
    if x.grid is not None:
        # Stored integers are cast, as TFLite's CAST does: it knows no scales.
        value = net.op.add(net.numbers(value, x.grid), net.real(x.grid.zero_point))
    value = net.op.convert(value, y.dtype)
    return [value if y.grid is None else net.dequantize(value, y.grid, len(y.shape))], first


# Along axes.

REDUCE: Final = {
    "mean": "reduce_mean",
    "sum": "reduce_sum",
    "reduce_max": "reduce_max",
    "reduce_min": "reduce_min",
    "reduce_prod": "reduce_prod",
}
TRUTH: Final = {"reduce_max": "reduce_logical_or", "reduce_min": "reduce_logical_and"}


@rule(*REDUCE)
def _(net: Net, node: Node) -> Results:
    x = node.operand()
    axes = {a % len(x.shape) for a in node.attrs["axes"]}
    keep = bool(node.attrs.get("keepdims"))
    # Without its channels or without both its spatial axes an image has the same order in both layouts.
    ordered = keep or 3 in axes or axes >= {1, 2}
    first = net.channels_first(x) and ordered
    at = sorted(last_axis(len(x.shape), a, first) for a in axes)
    name = TRUTH[node.op] if x.dtype == dtypes.bool_ else REDUCE[node.op]
    return [getattr(net.op, name)(net.get(x, first), net.ints(at), keep)], first and keep


@rule("argmax", "argmin")
def _(net: Net, node: Node) -> Results:
    x = node.operand()
    axis = node.attrs["axis"] % len(x.shape)
    first = net.channels_first(x) and axis == 3
    at = last_axis(len(x.shape), axis, first)
    mode = "max" if node.op == "argmax" else "min"
    top = net.op.topk(net.get(x, first), net.ints(1), at, mode, "value", "i32", True)
    index = net.op.squeeze(top.output(1), net.ints([at]))
    net.main(top)
    return [index], False


@rule("softmax", "log_softmax")
def _(net: Net, node: Node) -> Results:
    first, x = net.follow(node), node.operand()
    value, axis = net.get(x, first), last_axis(len(x.shape), -1, first)
    if node.op == "log_softmax":
        return [net.op.log_softmax(value, axis)], first
    beta = float(node.attrs.get("beta", 1.0))
    if beta != 1.0:
        value = net.op.multiply(value, net.real(beta, number_type(x)))
    return [net.op.softmax(value, axis)], first


@rule("cumsum")
def _(net: Net, node: Node) -> Results:
    first, x, a = net.follow(node), node.operand(), node.attrs
    axis = net.constant(np.asarray(last_axis(len(x.shape), a["axis"], first), np.int32))
    y = net.op.cumsum(net.get(x, first), axis, bool(a.get("exclusive")), bool(a.get("reverse")))
    return [y], first


# Movement.


@rule("reshape")
def _(net: Net, node: Node) -> Results:
    return [net.op.reshape(net.get(node.operand()), net.ints(node.output.shape), False)], False


@rule("transpose")
def _(net: Net, node: Node) -> Results:
    return [net.op.transpose(net.get(node.operand()), net.ints(node.attrs["permutation"]))], False


@rule("concatenation")
def _(net: Net, node: Node) -> Results:
    first = net.follow(node)
    axis = last_axis(len(node.output.shape), node.attrs["axis"], first)
    return [net.op.concat([net.get(t, first) for t in node.operands], axis)], first


@rule("split")
def _(net: Net, node: Node) -> Results:
    first, x = net.follow(node), node.operand()
    axis = last_axis(len(x.shape), node.attrs["axis"], first)
    parts = net.op.variadic_split(net.get(x, first), net.ints(axis), net.ints(node.attrs["sizes"]))
    return [parts.output(i) for i in range(len(node.outputs))], first


def sliced(net: Net, node: Node, begin: Sequence[int], end: Sequence[int], steps: Sequence[int]) -> Results:
    first, x = net.follow(node), node.operand()
    axes = [last_axis(len(x.shape), i, first) for i in range(len(x.shape))]
    return [net.op.slice(net.get(x, first), *(net.ints(v) for v in (begin, end, steps, axes)))], first


@rule("slice")
def _(net: Net, node: Node) -> Results:
    begin = list(node.attrs["begin"])
    end = [b + n for b, n in zip(begin, node.output.shape, strict=True)]
    return sliced(net, node, begin, end, [1] * len(begin))


@rule("strided_slice")
def _(net: Net, node: Node) -> Results:
    return sliced(net, node, *(list(node.attrs[k]) for k in ("begin", "end", "strides")))


@rule("reverse")
def _(net: Net, node: Node) -> Results:
    # Not Slice with a negative step: the NPU compiler makes a ReverseSequence of it and aborts the process.
    first, x = net.follow(node), node.operand()
    value = net.get(x, first)
    for a in node.attrs["axes"]:
        a %= len(x.shape)
        value = net.op.gather(value, net.ints(range(x.shape[a])[::-1]), net.ints(last_axis(len(x.shape), a, first)))
    return [value], first


@rule("pad")
def _(net: Net, node: Node) -> Results:
    first, x = net.follow(node), node.operand()
    order = (0, 3, 1, 2) if first else range(len(x.shape))
    begin, end = pads([node.attrs["padding"][i] for i in order])
    fill = net.constant(np.asarray(node.attrs.get("value") or 0).astype(number_type(x)))
    return [net.op.pad(net.get(x, first), net.ints(begin), net.ints(end), "constant", fill)], first


@rule("broadcast_to")
def _(net: Net, node: Node) -> Results:
    return [net.op.broadcast(net.get(node.operand()), net.ints(node.output.shape))], False


@rule("tile")
def _(net: Net, node: Node) -> Results:
    return [net.op.tile(net.get(node.operand()), net.ints(node.attrs["multiples"]))], False


@rule("gather")
def _(net: Net, node: Node) -> Results:
    x, indices = net.get(node.operand()), net.get(node.operand(1))
    return [net.op.gather(x, indices, net.ints(node.attrs["axis"] % len(node.operand().shape)))], False


@rule("one_hot")
def _(net: Net, node: Node) -> Results:
    kind = number_type(node.output)
    axis = node.attrs["axis"] % len(node.output.shape)
    # Truth values come as bytes: OneHot has no Boolean kernel on every device.
    written = dtypes.uint8 if kind == dtypes.bool_ else kind
    on, off = (net.constant(np.asarray(v, written)) for v in (1, 0))
    y = net.op.one_hot(net.get(node.operand()), net.ints(node.attrs["depth"]), on, off, axis)
    return [net.op.convert(y, np.bool_) if kind == dtypes.bool_ else y], False


@rule("resize_bilinear", "resize_nearest")
def _(net: Net, node: Node) -> Results:
    a = node.attrs
    bilinear = node.op == "resize_bilinear"
    if a.get("align_corners"):
        where, nearest = "align_corners", "round_prefer_ceil"
    elif a.get("half_pixel_centers"):
        where, nearest = ("half_pixel" if bilinear else "tf_half_pixel_for_nn"), "floor"
    else:
        where, nearest = "asymmetric", "floor"
    x = node.operand()
    if not bilinear and where == "asymmetric" and all(m % n == 0 for m, n in zip(a["size"], x.shape[1:3], strict=True)):
        # Whole factors: floor(i / k) is floor((i + 1/2) / k), which the NPU compiler has a kernel for.
        where = "tf_half_pixel_for_nn"
    y = net.op.interpolate(
        net.get(x, True), net.constant(np.asarray(a["size"], np.int32)),
        "linear_onnx" if bilinear else "nearest", "sizes",
        coordinate_transformation_mode=where, nearest_mode=nearest, axes=net.constant(np.asarray([2, 3], np.int32)),
    )  # fmt: skip
    return [y], True
