"""What each op of a graph becomes in Core ML's intermediate language (MIL), iOS 17: one small function per op.

A rule takes values and gives one per result, in the layouts that its decorator says (see `channels_first`). Names,
grids and fused activations are the writer's business. Meanings are those of coremltools' MIL operation reference
(apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html).
"""

from __future__ import annotations

from collections.abc import Sequence
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
from nxjax.lower.npu.formats.coreml_control import write_if, write_while
from nxjax.lower.npu.formats.coreml_net import MAX_RANK, CoremlNet
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.lower.npu.ops import op_of
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

_rules: Final = LayoutRules()
RULES: Final = _rules.rows
elementwise, images, ordered, plain = _rules.elementwise, _rules.images, _rules.ordered, _rules.plain


def real(t: Tensor) -> bool:
    """Whether a tensor holds reals in the program."""
    return t.grid is not None or t.dtype not in (*dtypes.INTEGER, dtypes.bool_)


def activate(net: CoremlNet, value: Value, activation: str | None) -> Value:
    """A fused activation."""
    if activation is None:
        return value
    if activation == "relu":
        return net.op.relu(x=value)
    if activation == "relu6":
        return net.op.relu6(x=value)
    low, high = ACTIVATIONS[activation]
    return net.op.clip(x=value, alpha=net.number(low), beta=net.number(high))


# Products of images and weights.


_UNCOUNTED: Final = {"exclude_padding_from_average": True}


def frame(padding: Any) -> list[int]:
    """Padding as top, bottom, left, right."""
    return [int(p) for pair in padding for p in pair]


def biased(net: CoremlNet, node: Node) -> dict[str, Any]:
    bias = bias_of(node)
    return {} if bias is None else {"bias": net.reals(bias)}


@images("conv_2d", "conv_3d", "depthwise_conv_2d")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    a, w = node.attrs, net.weights_of(node)
    if node.op != "depthwise_conv_2d":
        o, *kernel, i = w.shape
        weights, groups = net.kernel(w, to_first(len(w.shape)), (o, i, *kernel), 0), a["groups"]
    else:
        _, kh, kw, o = w.shape
        weights, groups = net.kernel(w, (3, 0, 1, 2), (o, 1, kh, kw), 0), node.operand().shape[3]
    return net.op.conv(
        x=x, weight=weights, strides=list(a["strides"]), dilations=list(a["dilations"]), groups=groups,
        pad_type="custom", pad=frame(a["padding"]), **biased(net, node),
    )  # fmt: skip


@images("transpose_conv", "transpose_conv_3d")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    w, cut = net.weights_of(node), frame(node.attrs["padding"])
    (o, *kernel, i), rank, strides = w.shape, len(w.shape), list(node.attrs["strides"])
    if any(p < 0 for p in cut):
        raise LoweringError("transpose_conv: padding", got=node.attrs["padding"], expected=">= 0", source=node.source)
    return net.op.conv_transpose(
        x=x, weight=net.kernel(w, (rank - 1, *range(rank - 1)), (i, o, *kernel), 1), strides=strides,
        pad_type="custom", pad=cut, output_shape=in_order(node.output.shape, to_first(rank)), **biased(net, node),
    )  # fmt: skip


@_rules.products("fully_connected")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    w = net.weights_of(node)
    if (w.data is not None or w in net.blocks) and len(node.operand().shape) <= 3:
        return net.op.linear(x=x, weight=net.kernel(w, (0, 1), w.shape, 0), **biased(net, node))
    y = net.op.matmul(x=x, y=net.get(w), transpose_y=True)
    return net.op.add(x=y, y=bias) if (bias := biased(net, node).get("bias")) is not None else y


plain("batch_matmul")(
    lambda net, node, x, y: net.op.matmul(x=x, y=y, transpose_x=node.attrs["adj_x"], transpose_y=node.attrs["adj_y"])
)


@images("max_pool_2d", "average_pool_2d")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    a = node.attrs
    make, more = (net.op.max_pool, {}) if node.op == "max_pool_2d" else (net.op.avg_pool, _UNCOUNTED)
    return make(
        x=x, kernel_sizes=list(a["window"]), strides=list(a["strides"]), pad_type="custom", pad=frame(a["padding"]),
        **more,
    )  # fmt: skip


# Elementwise.

BINARY: Final[dict[str, str]] = {
    **SAME_BINARY,
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "real_div",
    "pow": "pow",
}


@elementwise(*BINARY)
def _(net: CoremlNet, node: Node, x: Value, y: Value) -> Value:
    if node.op == "div" and not real(node.output):
        # MIL's integer division rounds down, TFLite's towards zero.
        signs = net.op.mul(x=net.op.sign(x=x), y=net.op.sign(x=y))
        return net.op.mul(x=net.op.floor_div(x=net.op.abs(x=x), y=net.op.abs(x=y)), y=signs)
    return getattr(net.op, BINARY[node.op])(x=x, y=y)


@elementwise("squared_difference")
def _(net: CoremlNet, node: Node, x: Value, y: Value) -> Value:
    difference = net.op.sub(x=x, y=y)
    return net.op.mul(x=difference, y=difference)


@elementwise("select")
def _(net: CoremlNet, node: Node, condition: Value, x: Value, y: Value) -> Value:
    # MIL's select has the shape of its two values whatever the condition's is.
    shape = list(node.output.shape)
    shape = in_order(shape, to_first(len(shape))) if net.follow(node) else shape
    x, y = (v if list(v.shape) == shape else net.op.tile(x=lead(net, v, shape), reps=repeats(v, shape)) for v in (x, y))
    return net.op.select(cond=condition, a=x, b=y)


def lead(net: CoremlNet, value: Value, shape: Sequence[int]) -> Value:
    """The value with leading ones up to the rank of ``shape``."""
    missing = len(shape) - len(value.shape)
    return net.op.reshape(x=value, shape=[1] * missing + list(value.shape)) if missing else value


def repeats(value: Value, shape: Sequence[int]) -> list[int]:
    """How often each axis of a value is repeated when it is broadcast to ``shape``."""
    own = [1] * (len(shape) - len(value.shape)) + list(value.shape)
    return [n if m == 1 else 1 for m, n in zip(own, shape, strict=True)]


UNARY: Final[dict[str, str]] = {**SAME_UNARY, "logistic": "sigmoid", "ceil": "ceil", "round": "round"}
elementwise(*UNARY)(lambda net, node, x: getattr(net.op, UNARY[node.op])(x=x))
elementwise("log", "rsqrt")(lambda net, node, x: getattr(net.op, node.op)(x=x, epsilon=net.number(0.0)))
elementwise("elu")(lambda net, node, x: net.op.elu(x=x, alpha=net.number(1.0)))
elementwise("square")(lambda net, node, x: net.op.mul(x=x, y=x))
elementwise(*ACTIVATIONS)(lambda net, node, x: activate(net, x, node.op))
elementwise("neg")(lambda net, node, x: net.op.mul(x=x, y=net.number(-1.0) if real(node.operand()) else np.int32(-1)))


# x * clip(x / 6 + 1 / 2, 0, 1)
elementwise("hard_swish")(
    lambda net, node, x: net.op.mul(x=x, y=net.op.sigmoid_hard(x=x, alpha=net.number(1 / 6), beta=net.number(0.5)))
)


elementwise("gelu")(
    lambda net, node, x: net.op.gelu(x=x, mode="TANH_APPROXIMATION" if node.attrs["approximate"] else "EXACT")
)


elementwise("leaky_relu")(lambda net, node, x: net.op.leaky_relu(x=x, alpha=net.number(node.attrs["alpha"])))


@elementwise("prelu")
def _(net: CoremlNet, node: Node, x: Value, slope: Value) -> Value:
    # Written out: MIL's prelu has one slope per index of axis 1 only.
    below = net.op.minimum(x=x, y=net.number(0.0))
    return net.op.add(x=net.op.relu(x=x), y=net.op.mul(x=below, y=slope))


@elementwise("table")
def _(net: CoremlNet, node: Node, value: Value) -> Value:
    # The stored integer picks the result, shifted so that the first one is 0.
    x, y = node.operand(), node.output
    assert x.grid is not None and y.grid is not None
    values = y.grid.dequantize(np.asarray(node.attrs["values"], y.dtype))
    steps = net.op.round(x=net.op.mul(x=value, y=net.number(1.0 / np.float64(np.max(x.grid.scale)))))
    index = net.op.cast(x=net.op.add(x=steps, y=net.number(x.grid.zero_point + 128)), dtype="int32")
    return net.op.gather(x=net.op.const(val=net.reals(values)), indices=index, axis=0)


@elementwise("quantize", "dequantize")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    # Values are real already: the writer puts the result's grid behind them.
    return x


@elementwise("cast")
def _(net: CoremlNet, node: Node, value: Value) -> Value:
    x, y = node.operand(), node.output
    whole = not real(x)
    if x.grid is not None:
        # Stored integers are cast, as TFLite's CAST does: it knows no scales.
        value, whole = net.numbers(value, x.grid), True
    if y.grid is not None:
        return net.meant(value if whole else net.op.cast(x=value, dtype="int32"), y.grid)
    kind = net.kind(y.dtype)
    if kind == "bool" and not whole:
        return net.op.not_equal(x=value, y=net.number(0.0))
    return net.op.cast(x=value, dtype=kind)


# Along axes.


@_rules.reductions(*REDUCE)
def _(net: CoremlNet, node: Node, axes: list[int], x: Value) -> Value:
    truth = node.operand().dtype == dtypes.bool_
    if truth:
        x = net.op.cast(x=x, dtype="int32")
    y = getattr(net.op, REDUCE[node.op])(x=x, axes=axes, keep_dims=node.attrs["keepdims"])
    return net.op.cast(x=y, dtype="bool") if truth else y


_rules.reductions("argmax", "argmin")(
    lambda net, node, axes, x: getattr(net.op, f"reduce_{node.op}")(x=x, axis=axes[0], keep_dims=False)
)


@ordered("top_k")
def _(net: CoremlNet, node: Node, order: Sequence[int], x: Value) -> list[Value]:
    axis, k = order.index(len(order) - 1), np.int32(node.attrs["k"])
    return list(net.op.topk(x=x, k=k, axis=axis, ascending=not node.attrs["largest"]))


@ordered("softmax")
def _(net: CoremlNet, node: Node, order: Sequence[int], x: Value) -> Value:
    if node.attrs["beta"] != 1.0:
        x = net.op.mul(x=x, y=net.number(node.attrs["beta"]))
    return net.op.softmax(x=x, axis=order.index(len(order) - 1))


ordered("log_softmax")(
    lambda net, node, order, x: net.op.sub(
        x=x, y=net.op.reduce_log_sum_exp(x=x, axes=[order.index(len(order) - 1)], keep_dims=True)
    )
)


ordered("cumsum")(
    lambda net, node, order, x: net.op.cumsum(x=x, **{**node.attrs, "axis": order.index(node.attrs["axis"])})
)


# Movement.


plain("reshape")(lambda net, node, x: net.shaped(x, node.output.shape))
plain("transpose")(lambda net, node, x: net.transposed(x, node.attrs["permutation"]))


ordered("concatenation")(
    lambda net, node, order, *xs: net.op.concat(values=list(xs), axis=order.index(node.attrs["axis"]))
)


@ordered("split")
def _(net: CoremlNet, node: Node, order: Sequence[int], x: Value) -> list[Value]:
    axis = order.index(node.attrs["axis"])
    return list(net.op.split(x=x, split_sizes=list(node.attrs["sizes"]), axis=axis))


def in_order(values: Sequence[int], order: Sequence[int]) -> list[int]:
    """One number per axis, in the layout that is used."""
    return [int(values[i]) for i in order]


@ordered("slice")
def _(net: CoremlNet, node: Node, order: Sequence[int], x: Value) -> Value:
    begin, size = (in_order(v, order) for v in node.attrs.values())
    return net.op.slice_by_size(x=x, begin=begin, size=size)


@ordered("strided_slice")
def _(net: CoremlNet, node: Node, order: Sequence[int], x: Value) -> Value:
    begin, end, stride = (in_order(v, order) for v in node.attrs.values())
    return net.op.slice_by_index(x=x, begin=begin, end=end, stride=stride)


ordered("reverse")(lambda net, node, order, x: net.op.reverse(x=x, axes=sorted(map(order.index, node.attrs["axes"]))))


@ordered("pad")
def _(net: CoremlNet, node: Node, order: Sequence[int], x: Value) -> Value:
    padding, value, t = node.attrs["padding"], node.attrs["value"] or 0, node.operand()
    if real(t):
        widths = frame([padding[i] for i in order])
        return net.op.pad(x=x, pad=widths, mode="constant", constant_val=net.number(value))
    # MIL pads reals only: whole numbers get constants at their sides.
    kind = np.bool_ if t.dtype == dtypes.bool_ else np.int32
    for axis, i in enumerate(order):
        shape = list(x.shape)
        sides = [np.full([*shape[:axis], n, *shape[axis + 1 :]], value, kind) if n else None for n in padding[i]]
        parts = [v for v in (sides[0], x, sides[1]) if v is not None]
        if len(parts) > 1:
            x = net.op.concat(values=parts, axis=axis)
    return x


@plain("broadcast_to")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    shape = node.output.shape
    return net.op.tile(x=lead(net, x, shape), reps=repeats(x, shape))


plain("tile")(lambda net, node, x: net.op.tile(x=x, reps=list(node.attrs["multiples"])))
plain("gather")(lambda net, node, x, indices: net.op.gather(x=x, indices=indices, axis=node.attrs["axis"]))


@plain("one_hot")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    y, a = node.output, node.attrs
    on, off = (net.number(1.0), net.number(0.0)) if real(y) else (np.int32(1), np.int32(0))
    value = net.op.one_hot(
        indices=x, one_hot_vector_size=a["depth"], axis=a["axis"], on_value=on, off_value=off
    )  # fmt: skip
    return net.op.cast(x=value, dtype="bool") if y.dtype == dtypes.bool_ else value


@images("resize_bilinear")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    height, width = node.attrs["size"]
    mode = "UNALIGN_CORNERS" if node.attrs["half_pixel_centers"] else "DEFAULT"
    mode = "STRICT_ALIGN_CORNERS" if node.attrs["align_corners"] else mode
    return net.op.resize_bilinear(x=x, target_size_height=height, target_size_width=width, sampling_mode=mode)


def nearest(size: int, source: int, corners: bool, half: bool) -> NDArray:
    """Which row a nearest-neighbour resize takes for each of its own, as TFLite's kernel counts them."""
    scale = np.float32(source - 1) / np.float32(size - 1) if corners and size > 1 else np.float32(source / size)
    at = (np.arange(size, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    picked = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return np.minimum(picked, source - 1).astype(np.int32)


@images("resize_nearest")
def _(net: CoremlNet, node: Node, x: Value) -> Value:
    (height, width), corners, half = node.attrs.values()
    _, h, w, _ = node.operand().shape
    if not corners and height % h == 0 and width % w == 0:
        # Whole factors repeat pixels, whichever corner is counted from.
        factors = {"scale_factor_height": height // h, "scale_factor_width": width // w}
        return net.op.upsample_nearest_neighbor(x=x, **factors)
    for axis, size, source in ((2, height, h), (3, width, w)):
        x = net.op.gather(x=x, indices=nearest(size, source, corners, half), axis=axis)
    return x


@plain("lstm", "gru", "rnn")
def _(net: CoremlNet, node: Node, *_: Value) -> Value:
    raise LoweringError(
        f"coreml: {node.op} is not written as one operation",
        got="a recurrent layer",
        fix="lower the loop for Core ML, which writes its steps",
        source=node.source,
    )


def write_node(net: CoremlNet, node: Node, name: str) -> None:
    """One node: its op, its fused activation, and the grids of its results."""
    net.op.start(name)
    for t in (*node.operands, *node.outputs):
        if len(t.shape) > MAX_RANK:
            raise LoweringError(
                f"{node.op}: Core ML's arrays have at most {MAX_RANK} dimensions", got=f"{t.name}: {t.shape}",
                fix="merge dimensions with reshape", source=node.source,
            )  # fmt: skip
    if net.takes(node):
        return
    try:
        values, first = RULES[node.op](net, node)
        made = list(values)
        for t, value in zip(node.outputs, values, strict=True):
            value = activate(net, value, node.attrs.get("activation"))
            if t.grid is not None and not op_of(node).lands(node, t):
                value = net.on_grid(value, t.grid, t.name)
            net.put(t, value, first)
    except (ValueError, TypeError, NotImplementedError) as error:
        if isinstance(error, LoweringError):
            raise
        raise LoweringError(f"coreml: {node.op} is refused by MIL", got=error, source=node.source) from error
    net.name_main(made[0], name)


RULES["if"] = lambda net, node: (write_if(net, node, write_node), False)
RULES["while"] = lambda net, node: (write_while(net, node, write_node), False)
