"""What each op of a graph becomes in OpenVINO's operation set 13: one small function per op.

A rule takes real values and gives one per result, in the layouts that its decorator says (see `channels_first`).
Names, grids and fused activations are the writer's business. Formulas and attribute meanings are those of OpenVINO's
operation specifications (docs.openvino.ai, "Available Operation Sets").
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.attributes import ACTIVATIONS
from nxjax.lower.npu.formats.channels_first import (
    REDUCE,
    SAME_BINARY,
    SAME_UNARY,
    LayoutRules,
    Value,
    bias_of,
    to_first,
)
from nxjax.lower.npu.formats.openvino_control import write_if, write_while
from nxjax.lower.npu.formats.openvino_net import OpenvinoNet
from nxjax.lower.npu.formats.openvino_recurrent import write_recurrent
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.permutation import inverse
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import short_name

_rules: Final = LayoutRules()
RULES: Final = _rules.rows
elementwise, images, ordered, plain = _rules.elementwise, _rules.images, _rules.ordered, _rules.plain


def number_type(t: Tensor) -> Any:
    """The element type in which a tensor's real values are held in the model."""
    return dtypes.float32 if t.grid is not None else t.dtype


def activate(net: OpenvinoNet, value: Value, activation: str | None, grid: Grid | None) -> Value:
    """A fused activation; none where the result's grid ends at its bounds.

    Not only for speed: the CPU plugin clamps integers between two quantizations at a step of the *operand's* grid.
    """
    if activation is None:
        return value
    low, high = ACTIVATIONS[activation]
    if grid is not None:
        # Nudging the zero point moves a calibrated grid by up to half a step.
        slack = 0.51 * float(np.max(grid.scale))
        if low - slack <= grid.bounds[0] and grid.bounds[1] <= high + slack:
            return value
    return net.op.relu(value) if activation == "relu" else net.op.clamp(value, low, high)


# Products of images and weights.


def add_bias(net: OpenvinoNet, node: Node, value: Value, shape: Sequence[int]) -> Value:
    """The product plus the bias; the product keeps the node's name."""
    bias = bias_of(node)
    if bias is None:
        return value
    net.main(value)
    return net.op.add(value, net.constant(bias.astype(number_type(node.output)).reshape(tuple(shape))))


def pads(padding: Any) -> tuple[list[int], list[int]]:
    return [int(lo) for lo, _ in padding], [int(hi) for _, hi in padding]


@images("conv_2d", "conv_3d")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    a, w = node.attrs, net.weights_of(node)
    o, *kernel, i = w.shape
    begin, end = pads(a["padding"])
    strides, order = list(a["strides"]), to_first(len(w.shape))
    if kernel == [1, 1] and strides != [1, 1] and node.operand().dtype == dtypes.int16:
        # OpenVINO moves such strides to where the input comes from, and forgets them where that is a scaling.
        size = [low + n + high for low, n, high in zip(begin, node.operand().shape[1:3], end, strict=True)]
        if any(begin + end):
            x = net.op.pad(x, net.ints([0, 0, *begin]), net.ints([0, 0, *end]), "constant")
            begin, end = [0, 0], [0, 0]
        x = net.op.slice(x, *map(net.ints, ((0, 0), size, strides, (2, 3))))
        strides = [1, 1]
    if a["groups"] == 1:
        make, weights = net.op.convolution, net.kernel(w, order, (o, i, *kernel), 0)
    else:
        make, weights = net.op.group_convolution, grouped(net, w, order, a["groups"])
    y = make(x, weights, strides, begin, end, list(a["dilations"]))
    return add_bias(net, node, y, (1, o, *(1 for _ in kernel)))


def grouped(net: OpenvinoNet, w: Tensor, permutation: Sequence[int], groups: int) -> Value:
    """Weights as OpenVINO's [group, o / group, i, kh, kw]: output channels take two axes, and so do their scales."""
    per_channel = w.grid is not None and w.grid.axis is not None
    if w.data is None or not per_channel:
        o, *rest = (w.shape[k] for k in permutation)
        return net.kernel(w, permutation, (groups, o // groups, *rest), 0)
    assert w.grid is not None
    data = w.data.transpose(tuple(permutation))
    value = net.op.convert(net.constant(data.reshape(groups, -1, *data.shape[1:])), np.float32)
    scale = np.asarray(w.grid.scale, np.float32).reshape(groups, -1, *(1 for _ in data.shape[1:]))
    return net.op.multiply(value, net.constant(scale))


@images("depthwise_conv_2d")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    a, c, w = node.attrs, node.operand().shape[3], net.weights_of(node)
    _, kh, kw, o = w.shape
    if c == 1:
        # One group: the NPU compiler has no grouped form of it.
        make, weights = net.op.convolution, net.kernel(w, (3, 0, 1, 2), (o, 1, kh, kw), 0)
    else:
        make, weights = net.op.group_convolution, grouped(net, w, (3, 0, 1, 2), c)
    y = make(x, weights, list(a["strides"]), *pads(a["padding"]), list(a["dilations"]))
    return add_bias(net, node, y, (1, o, 1, 1))


@images("transpose_conv", "transpose_conv_3d")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    w, padding, strides = net.weights_of(node), node.attrs["padding"], list(node.attrs["strides"])
    o, *kernel, i = w.shape
    rank, ones = len(w.shape), [1] * len(kernel)
    weights = net.kernel(w, (rank - 1, *range(rank - 1)), (i, o, *kernel), 1)
    begin, end = pads(padding)
    # A negative cut is a border that no input reaches; OpenVINO has it at the end only, smaller than the stride.
    extra = [max(-p, 0) for p in end]
    end = [max(p, 0) for p in end]
    if any(p < 0 for p in begin) or any(e >= s for e, s in zip(extra, strides, strict=True)):
        raise LoweringError("transpose_conv: padding", got=padding, expected=">= 0", source=node.source)
    y = net.op.convolution_backprop_data(x, weights, strides, None, begin, end, ones, "explicit", extra)
    return add_bias(net, node, y, (1, o, *ones))


@_rules.products("fully_connected")
def _(net: OpenvinoNet, node: Node, rows: Value) -> Value:
    w, shape = net.weights_of(node), node.operand().shape
    weights = net.kernel(w, (0, 1), w.shape, 0) if w.data is not None else net.get(w)
    if len(shape) == 1:
        rows = net.reshaped(rows, (1, *shape))
    y = net.op.matmul(rows, weights, False, True)
    y = add_bias(net, node, y, (1,) * (max(len(shape), 2) - 1) + (w.shape[0],))
    if len(shape) == 1:
        net.main(y)
        y = net.reshaped(y, node.output.shape)
    return y


@plain("batch_matmul")
def _(net: OpenvinoNet, node: Node, x: Value, y: Value) -> Value:
    """A matrix that is known is stored as it is read: a product with it and one with its transpose share no constant.

    OpenVINO 2026.4's CPU plugin packs a constant of three dimensions once, and takes the pack for both.
    """
    values, turned = [x, y], [node.attrs["adj_x"], node.attrs["adj_y"]]
    for i, t in enumerate(node.operands):
        if turned[i] and t.data is not None and t.grid is None:
            values[i], turned[i] = net.constant(t.data.swapaxes(-1, -2)), False
    return net.op.matmul(*values, *turned)


@images("max_pool_2d")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    from openvino import opset1

    # Version 1 has no second result; later ones add indices that nothing here reads.
    pool: Any = opset1.max_pool
    return pool(x, list(node.attrs["strides"]), *pads(node.attrs["padding"]), list(node.attrs["window"]))


@images("average_pool_2d")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    a = node.attrs
    return net.op.avg_pool(x, list(a["strides"]), *pads(a["padding"]), list(a["window"]), True)


# Elementwise.

BINARY: Final[dict[str, str]] = {
    **SAME_BINARY,
    "add": "add",
    "sub": "subtract",
    "mul": "multiply",
    "div": "divide",
    "squared_difference": "squared_difference",
    "pow": "power",
}


@elementwise(*BINARY)
def _(net: OpenvinoNet, node: Node, x: Value, y: Value) -> Value:
    if node.output.dtype == dtypes.bool_:
        grids = node.operand().grid, node.operand(1).grid
        x, y = (v if g is None else net.exact(v, g) for v, g in zip((x, y), grids, strict=True))
    if node.op == "div" and node.output.grid is None and node.output.dtype in dtypes.INTEGER:
        # OpenVINO's integer division rounds down, TFLite's towards zero.
        sign = net.op.multiply(net.op.sign(x), net.op.sign(y))
        return net.op.multiply(net.op.divide(net.op.abs(x), net.op.abs(y)), sign)
    z = getattr(net.op, BINARY[node.op])
    return _apart(net, x, y, z) if _per_sample(node) else z(x, y)


def _per_sample(node: Node) -> bool:
    """Whether a constant that differs along the first axis is added to a value that has a grid, or gets one.

    The CPU plugin takes such a constant into FakeQuantize, and then has no kernel for the ranges that this gives it.
    """
    rank = len(node.output.shape)
    added = node.op in ("add", "sub") and any(t.grid is not None for t in (node.output, *node.operands))
    return added and any(t.constant and len(t.shape) == rank > 1 and t.shape[0] > 1 for t in node.operands)


def _apart(net: OpenvinoNet, x: Value, y: Value, make: Callable[[Value, Value], Value]) -> Value:
    """The op between reshapes with one more leading axis, through which nothing is taken in."""
    z = make(*(net.reshaped(v, (1, *v.shape)) for v in (x, y)))
    net.main(z)
    return net.reshaped(z, tuple(z.shape)[1:])


UNARY: Final[dict[str, str]] = {
    **SAME_UNARY,
    "log": "log",
    "logistic": "sigmoid",
    "hard_swish": "hswish",
    "neg": "negative",
    "ceil": "ceiling",
}
# Functions that jump: a value must be exact where they do.
STEPS: Final = frozenset(("floor", "ceil", "round", "sign"))


@elementwise(*UNARY, "round")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    grid = node.operand().grid
    x = net.exact(x, grid) if grid is not None and node.op in STEPS else x
    return net.op.round(x, "half_to_even") if node.op == "round" else getattr(net.op, UNARY[node.op])(x)


elementwise("elu")(lambda net, node, x: net.op.elu(x, 1.0))
elementwise("square")(lambda net, node, x: net.op.multiply(x, x))
elementwise(*ACTIVATIONS)(lambda net, node, x: activate(net, x, node.op, node.output.grid))


@elementwise("rsqrt")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    root = net.op.sqrt(x)
    return net.op.divide(net.real(1.0, number_type(node.operand())), root)


elementwise("gelu")(lambda net, node, x: net.op.gelu(x, "tanh" if node.attrs["approximate"] else "erf"))


@elementwise("leaky_relu")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    slope = net.real(np.full(1, node.attrs["alpha"], np.float32), number_type(node.operand()))
    return net.op.prelu(x, slope)


@elementwise("prelu")
def _(net: OpenvinoNet, node: Node, x: Value, slope: Value) -> Value:
    # Written out: OpenVINO's PRelu lays a vector of slopes along axis 1 whatever the rank.
    op, zero = net.op, net.real(0.0, number_type(node.operand()))
    return op.add(op.relu(x), op.multiply(slope, op.minimum(x, zero)))


@elementwise("table")
def _(net: OpenvinoNet, node: Node, value: Value) -> Value:
    # The value's number on its grid picks the result; both are exact.
    x, y = node.operand(), node.output
    assert x.grid is not None and y.grid is not None and x.grid.axis is None
    values = y.grid.dequantize(np.asarray(node.attrs["values"], y.dtype))
    steps = net.op.divide(value, net.real(np.float32(x.grid.scale)))  # pyright: ignore[reportArgumentType]
    index = net.op.add(net.op.round(steps, "half_to_even"), net.real(x.grid.zero_point + 128))
    return net.op.gather(net.constant(values), net.op.convert(index, np.int32), net.ints(0))


elementwise("select")(lambda net, node, condition, x, y: net.op.select(condition, x, y))


@elementwise("quantize", "dequantize")
def _(net: OpenvinoNet, node: Node, value: Value) -> Value:
    # Values are real already: the writer puts the result's grid behind them. Off a grid they are made exact.
    x, y = node.operand(), node.output
    if x.grid is not None and y.grid is None and not x.constant:
        value = net.exact(value, x.grid)
    if number_type(x) != number_type(y):
        value = net.op.convert(value, number_type(y))
    return value


@elementwise("cast")
def _(net: OpenvinoNet, node: Node, value: Value) -> Value:
    x, y = node.operand(), node.output
    if y.dtype not in (*dtypes.INTEGER, *dtypes.BOOL, dtypes.float16, dtypes.float32, dtypes.float64):
        raise LoweringError("cast: a type", got=short_name(y.dtype), source=node.source)
    if x.grid is not None:
        # Stored integers are cast, as TFLite's CAST does: it knows no scales.
        value = net.op.add(net.numbers(value, x.grid), net.real(x.grid.zero_point))
    value = net.op.convert(value, y.dtype)
    return value if y.grid is None else net.dequantize(value, y.grid, len(y.shape))


# Along axes.

TRUTH: Final = {"reduce_max": "reduce_logical_or", "reduce_min": "reduce_logical_and"}


@_rules.reductions(*REDUCE)
def _(net: OpenvinoNet, node: Node, axes: list[int], x: Value) -> Value:
    name = TRUTH[node.op] if node.operand().dtype == dtypes.bool_ else REDUCE[node.op]
    return getattr(net.op, name)(x, net.ints(axes), node.attrs["keepdims"])


@_rules.reductions("argmax", "argmin")
def _(net: OpenvinoNet, node: Node, axes: list[int], x: Value) -> Value:
    top = net.op.topk(x, net.ints(1), axes[0], node.op.removeprefix("arg"), "value", "i32", True)
    index = net.op.squeeze(top.output(1), net.ints(axes))
    net.main(top)
    return index


@ordered("top_k")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> list[Value]:
    axis, mode = order.index(len(order) - 1), "max" if node.attrs["largest"] else "min"
    top = net.op.topk(x, net.ints(node.attrs["k"]), axis, mode, "value", "i32", True)
    return [top.output(0), top.output(1)]


@ordered("softmax")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> Value:
    beta = node.attrs["beta"]
    if beta != 1.0:
        x = net.op.multiply(x, net.real(beta, number_type(node.operand())))
    return net.op.softmax(x, order.index(len(order) - 1))


ordered("log_softmax")(lambda net, node, order, x: net.op.log_softmax(x, order.index(len(order) - 1)))


@ordered("cumsum")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> Value:
    axis = net.constant(np.asarray(order.index(node.attrs["axis"]), np.int32))
    return net.op.cumsum(x, axis, node.attrs["exclusive"], node.attrs["reverse"])


# Movement.


plain("reshape")(lambda net, node, x: net.reshaped(x, node.output.shape))
plain("transpose")(lambda net, node, x: net.transposed(x, node.attrs["permutation"]))


ordered("concatenation")(lambda net, node, order, *xs: net.op.concat(list(xs), order.index(node.attrs["axis"])))


@ordered("split")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> list[Value]:
    axis = order.index(node.attrs["axis"])
    parts = net.op.variadic_split(x, net.ints(axis), net.ints(node.attrs["sizes"]))
    return [parts.output(i) for i in range(len(node.outputs))]


@ordered("slice")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> Value:
    begin, size = node.attrs["begin"], node.attrs["size"]
    end = [b + n for b, n in zip(begin, size, strict=True)]
    return net.op.slice(x, *map(net.ints, (begin, end, [1] * len(end), inverse(order))))


ordered("strided_slice")(
    lambda net, node, order, x: net.op.slice(x, *map(net.ints, (*node.attrs.values(), inverse(order))))
)


@ordered("reverse")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> Value:
    # Not Slice with a negative step: the NPU compiler makes a ReverseSequence of it and aborts the process.
    for a in node.attrs["axes"]:
        x = net.op.gather(x, net.ints(range(node.output.shape[a])[::-1]), net.ints(order.index(a)))
    return x


@ordered("pad")
def _(net: OpenvinoNet, node: Node, order: Sequence[int], x: Value) -> Value:
    begin, end = pads([node.attrs["padding"][i] for i in order])
    fill = net.constant(np.asarray(node.attrs["value"] or 0).astype(number_type(node.operand())))
    return net.op.pad(x, net.ints(begin), net.ints(end), "constant", fill)


plain("broadcast_to")(lambda net, node, x: net.op.broadcast(x, net.ints(node.output.shape)))
plain("tile")(lambda net, node, x: net.op.tile(x, net.ints(node.attrs["multiples"])))


plain("gather")(lambda net, node, x, indices: net.op.gather(x, indices, net.ints(node.attrs["axis"])))


@plain("one_hot")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    kind = number_type(node.output)
    # Truth values come as bytes: OneHot has no Boolean kernel on every device.
    written = dtypes.uint8 if kind == dtypes.bool_ else kind
    on, off = (net.constant(np.asarray(v, written)) for v in (1, 0))
    y = net.op.one_hot(x, net.ints(node.attrs["depth"]), on, off, node.attrs["axis"])
    return net.op.convert(y, np.bool_) if kind == dtypes.bool_ else y


@images("resize_bilinear", "resize_nearest")
def _(net: OpenvinoNet, node: Node, x: Value) -> Value:
    size, bilinear = node.attrs["size"], node.op == "resize_bilinear"
    if node.attrs["align_corners"]:
        where, nearest = "align_corners", "round_prefer_ceil"
    elif node.attrs["half_pixel_centers"]:
        where, nearest = ("half_pixel" if bilinear else "tf_half_pixel_for_nn"), "floor"
    else:
        where, nearest = "asymmetric", "floor"
    whole = all(m % n == 0 for m, n in zip(size, node.operand().shape[1:3], strict=True))
    if not bilinear and where == "asymmetric" and whole:
        # Whole factors: floor(i / k) is floor((i + 1/2) / k), which the NPU compiler has a kernel for.
        where = "tf_half_pixel_for_nn"
    return net.op.interpolate(
        x, net.constant(np.asarray(size, np.int32)), "linear_onnx" if bilinear else "nearest", "sizes",
        coordinate_transformation_mode=where, nearest_mode=nearest, axes=net.constant(np.asarray([2, 3], np.int32)),
    )  # fmt: skip


# Choices and loops.


def write(net: OpenvinoNet, node: Node) -> None:
    """One node: its op, its fused activation, and the grids of its results."""
    if net.takes(node):
        return
    values, first = RULES[node.op](net, node)
    for t, value in zip(node.outputs, values, strict=True):
        net.main(value)
        value = activate(net, value, node.attrs.get("activation"), t.grid)
        if t.grid is not None and not op_of(node).lands(node, t):
            value = net.on_grid(value, t.grid)
            net.main(value)
        net.put(t, value, first)


RULES.update({op: lambda net, node: (write_recurrent(net, node), False) for op in ("lstm", "gru", "rnn")})
RULES["if"] = lambda net, node: (write_if(net, node, write), False)
RULES["while"] = lambda net, node: (write_while(net, node, write), False)
