"""What each op of a graph becomes in Core ML's intermediate language (MIL), iOS 17: one small function per op.

A rule reads values from a `Net` and gives one value per result, and whether they are channels first. Names, grids and
fused activations are the writer's business. Meanings are those of coremltools' MIL operation reference
(apple.github.io/coremltools/source/coremltools.converters.mil.mil.ops.defs.html).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.coreml_net import Net, Value, last_axis
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes

Results = tuple[list[Value], bool]
Rule = Callable[[Net, Node], Results]
RULES: Final[dict[str, Rule]] = {}


def rule(*ops: str) -> Callable[[Rule], Rule]:
    """Register the function for ``ops``."""

    def add(f: Rule) -> Rule:
        RULES.update(dict.fromkeys(ops, f))
        return f

    return add


def real(t: Tensor) -> bool:
    """Whether a tensor holds reals in the program."""
    return t.grid is not None or t.dtype not in (*dtypes.INTEGER, dtypes.bool_)


def follow(net: Net, node: Node) -> bool:
    return net.follow(node.output, node.operands)


BOUNDS: Final = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}


def activate(net: Net, value: Value, activation: str | None) -> Value:
    """A fused activation."""
    if activation is None:
        return value
    if activation == "relu":
        return net.op.relu(x=value)
    if activation == "relu6":
        return net.op.relu6(x=value)
    low, high = BOUNDS[activation]
    return net.op.clip(x=value, alpha=net.number(low), beta=net.number(high))


# Products of images and weights.


def weights_of(net: Net, node: Node) -> Tensor:
    """The weights of a product: the stored integers of weights that a node takes off their grid."""
    w = node.operand(1)
    return net.taken.get(w, w)


def bias_of(net: Net, node: Node) -> NDArray | None:
    """A bias as reals: stored integers count in products of the operands' scales."""
    if len(node.inputs) < 3 or node.inputs[2] is None:
        return None
    x, w, b = node.operand(), node.operand(1), node.inputs[2]
    if b.data is None:
        raise LoweringError(f"{node.op}: a bias that is not constant", got=b.name, source=node.source)
    values = b.data
    if b.grid is not None:
        values = b.grid.dequantize(b.data)
    elif b.dtype in dtypes.INTEGER and x.grid is not None and w.grid is not None:
        product = np.asarray(x.grid.scale, np.float64) * np.asarray(w.grid.scale, np.float64)
        values = b.data.astype(np.float64) * product
    return net.reals(values)


def kernel(net: Net, w: Tensor, permutation: Sequence[int], shape: Sequence[int], channel: int) -> Value:
    """Weights rearranged while they are still stored numbers; ``channel`` is where the output channels end up."""
    if w.data is None:
        raise LoweringError("coreml: weights that are not constant", got=w.name, fix="close over the weights")
    data = w.data.transpose(tuple(permutation)).reshape(tuple(shape))
    if w.grid is None:
        return net.op.const(val=net.reals(data))
    return net.stored(data, w.grid, None if w.grid.axis is None else channel)


def frame(padding: Any) -> list[int]:
    """Padding as top, bottom, left, right."""
    return [int(p) for pair in padding for p in pair]


def biased(net: Net, node: Node) -> dict[str, Any]:
    bias = bias_of(net, node)
    return {} if bias is None else {"bias": bias}


@rule("conv_2d", "depthwise_conv_2d")
def _(net: Net, node: Node) -> Results:
    a, x, w = node.attrs, node.operand(), weights_of(net, node)
    if node.op == "conv_2d":
        o, kh, kw, i = w.shape
        weights, groups = kernel(net, w, (0, 3, 1, 2), (o, i, kh, kw), 0), int(a.get("groups", 1))
    else:
        _, kh, kw, o = w.shape
        weights, groups = kernel(net, w, (3, 0, 1, 2), (o, 1, kh, kw), 0), x.shape[3]
    y = net.op.conv(
        x=net.get(x, True), weight=weights, strides=list(a["strides"]), dilations=list(a["dilations"]), groups=groups,
        pad_type="custom", pad=frame(a["padding"]), **biased(net, node),
    )  # fmt: skip
    return [y], True


@rule("transpose_conv")
def _(net: Net, node: Node) -> Results:
    a, x, w = node.attrs, node.operand(), weights_of(net, node)
    o, kh, kw, i = w.shape
    n, height, width, _ = node.output.shape
    cut = frame(a["padding"])
    if any(p < 0 for p in cut):
        raise LoweringError("transpose_conv: padding", got=a["padding"], expected=">= 0", source=node.source)
    y = net.op.conv_transpose(
        x=net.get(x, True), weight=kernel(net, w, (3, 0, 1, 2), (i, o, kh, kw), 1), strides=list(a["strides"]),
        pad_type="custom", pad=cut, output_shape=[n, o, height, width], **biased(net, node),
    )  # fmt: skip
    return [y], True


@rule("fully_connected")
def _(net: Net, node: Node) -> Results:
    x, w = node.operand(), weights_of(net, node)
    if w.data is not None and len(x.shape) <= 3:
        weights = kernel(net, w, (0, 1), w.shape, 0)
        return [net.op.linear(x=net.get(x), weight=weights, **biased(net, node))], False
    y = net.op.matmul(x=net.get(x), y=net.get(w), transpose_y=True)
    bias = bias_of(net, node)
    return [y if bias is None else net.op.add(x=y, y=bias)], False


@rule("batch_matmul")
def _(net: Net, node: Node) -> Results:
    x, y = net.get(node.operand()), net.get(node.operand(1))
    turned = {"transpose_x": bool(node.attrs.get("adj_x")), "transpose_y": bool(node.attrs.get("adj_y"))}
    return [net.op.matmul(x=x, y=y, **turned)], False


@rule("max_pool_2d", "average_pool_2d")
def _(net: Net, node: Node) -> Results:
    a = node.attrs
    arguments: dict[str, Any] = {
        "x": net.get(node.operand(), True), "kernel_sizes": list(a["window"]), "strides": list(a["strides"]),
        "pad_type": "custom", "pad": frame(a["padding"]),
    }  # fmt: skip
    if node.op == "max_pool_2d":
        return [net.op.max_pool(**arguments)], True
    return [net.op.avg_pool(**arguments, exclude_padding_from_average=True)], True


# Elementwise.

BINARY: Final[dict[str, str]] = {
    "add": "add",
    "sub": "sub",
    "mul": "mul",
    "div": "real_div",
    "maximum": "maximum",
    "minimum": "minimum",
    "pow": "pow",
    "equal": "equal",
    "not_equal": "not_equal",
    "less": "less",
    "less_equal": "less_equal",
    "greater": "greater",
    "greater_equal": "greater_equal",
    "logical_and": "logical_and",
    "logical_or": "logical_or",
}


def both(net: Net, node: Node, first: bool, count: int = 2) -> list[Value]:
    return [net.widened(node.operand(i), len(node.output.shape), first) for i in range(count)]


@rule(*BINARY)
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    x, y = both(net, node, first)
    if node.op == "div" and not real(node.output):
        # MIL's integer division rounds down, TFLite's towards zero.
        signs = net.op.mul(x=net.op.sign(x=x), y=net.op.sign(x=y))
        return [net.op.mul(x=net.op.floor_div(x=net.op.abs(x=x), y=net.op.abs(x=y)), y=signs)], first
    return [getattr(net.op, BINARY[node.op])(x=x, y=y)], first


@rule("squared_difference")
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    x, y = both(net, node, first)
    difference = net.op.sub(x=x, y=y)
    return [net.op.mul(x=difference, y=difference)], first


@rule("select")
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    condition, x, y = both(net, node, first, 3)
    # MIL's select has the shape of its two values whatever the condition's is.
    shape = [node.output.shape[i] for i in (0, 3, 1, 2)] if first else list(node.output.shape)
    x, y = (v if list(v.shape) == shape else net.op.tile(x=lead(net, v, shape), reps=repeats(v, shape)) for v in (x, y))
    return [net.op.select(cond=condition, a=x, b=y)], first


def lead(net: Net, value: Value, shape: Sequence[int]) -> Value:
    """The value with leading ones up to the rank of ``shape``."""
    missing = len(shape) - len(value.shape)
    return net.op.reshape(x=value, shape=[1] * missing + list(value.shape)) if missing else value


def repeats(value: Value, shape: Sequence[int]) -> list[int]:
    """How often each axis of a value is repeated when it is broadcast to ``shape``."""
    own = [1] * (len(shape) - len(value.shape)) + list(value.shape)
    return [n if m == 1 else 1 for m, n in zip(own, shape, strict=True)]


UNARY: Final[dict[str, Callable[[Net, Value], Value]]] = {
    "logistic": lambda net, x: net.op.sigmoid(x=x),
    "tanh": lambda net, x: net.op.tanh(x=x),
    "elu": lambda net, x: net.op.elu(x=x, alpha=net.number(1.0)),
    "exp": lambda net, x: net.op.exp(x=x),
    "log": lambda net, x: net.op.log(x=x, epsilon=net.number(0.0)),
    "sqrt": lambda net, x: net.op.sqrt(x=x),
    "rsqrt": lambda net, x: net.op.rsqrt(x=x, epsilon=net.number(0.0)),
    "abs": lambda net, x: net.op.abs(x=x),
    "square": lambda net, x: net.op.mul(x=x, y=x),
    "sin": lambda net, x: net.op.sin(x=x),
    "cos": lambda net, x: net.op.cos(x=x),
    "floor": lambda net, x: net.op.floor(x=x),
    "ceil": lambda net, x: net.op.ceil(x=x),
    "round": lambda net, x: net.op.round(x=x),
    "sign": lambda net, x: net.op.sign(x=x),
    "logical_not": lambda net, x: net.op.logical_not(x=x),
    "erf": lambda net, x: net.op.erf(x=x),
    "relu": lambda net, x: activate(net, x, "relu"),
    "relu6": lambda net, x: activate(net, x, "relu6"),
    "relu_n1_to_1": lambda net, x: activate(net, x, "relu_n1_to_1"),
}


@rule(*UNARY)
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    return [UNARY[node.op](net, net.get(node.operand(), first))], first


@rule("neg")
def _(net: Net, node: Node) -> Results:
    first, x = follow(net, node), node.operand()
    return [net.op.mul(x=net.get(x, first), y=net.number(-1.0) if real(x) else np.int32(-1))], first


@rule("hard_swish")
def _(net: Net, node: Node) -> Results:
    # x * clip(x / 6 + 1 / 2, 0, 1)
    first = follow(net, node)
    x = net.get(node.operand(), first)
    return [net.op.mul(x=x, y=net.op.sigmoid_hard(x=x, alpha=net.number(1 / 6), beta=net.number(0.5)))], first


@rule("gelu")
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    mode = "TANH_APPROXIMATION" if node.attrs.get("approximate") else "EXACT"
    return [net.op.gelu(x=net.get(node.operand(), first), mode=mode)], first


@rule("leaky_relu")
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    return [net.op.leaky_relu(x=net.get(node.operand(), first), alpha=net.number(node.attrs["alpha"]))], first


@rule("prelu")
def _(net: Net, node: Node) -> Results:
    # Written out: MIL's prelu has one slope per index of axis 1 only.
    first = follow(net, node)
    x, slope = both(net, node, first)
    below = net.op.minimum(x=x, y=net.number(0.0))
    return [net.op.add(x=net.op.relu(x=x), y=net.op.mul(x=below, y=slope))], first


@rule("table")
def _(net: Net, node: Node) -> Results:
    # The stored integer picks the result, shifted so that the first one is 0.
    x, y = node.operand(), node.output
    assert x.grid is not None and y.grid is not None
    first = follow(net, node)
    values = y.grid.dequantize(np.asarray(node.attrs["values"], y.dtype).reshape(-1))
    steps = net.op.round(x=net.op.mul(x=net.get(x, first), y=net.number(1.0 / np.float64(np.max(x.grid.scale)))))
    index = net.op.cast(x=net.op.add(x=steps, y=net.number(x.grid.zero_point + 128)), dtype="int32")
    return [net.op.gather(x=net.op.const(val=net.reals(values)), indices=index, axis=0)], first


@rule("quantize", "dequantize")
def _(net: Net, node: Node) -> Results:
    # Values are real already: the writer puts the result's grid behind them.
    first, x = follow(net, node), node.operand()
    if x.constant and node.output.grid is None:
        net.taken[node.output] = x
    return [net.get(x, first)], first


@rule("cast")
def _(net: Net, node: Node) -> Results:
    first, x, y = follow(net, node), node.operand(), node.output
    value, whole = net.get(x, first), not real(x)
    if x.grid is not None:
        # Stored integers are cast, as TFLite's CAST does: it knows no scales.
        value, whole = net.numbers(value, x.grid), True
    if y.grid is not None:
        return [net.meant(value if whole else net.op.cast(x=value, dtype="int32"), y.grid)], first
    kind = net.kind(y.dtype)
    if kind == "bool" and not whole:
        return [net.op.not_equal(x=value, y=net.number(0.0))], first
    return [net.op.cast(x=value, dtype=kind)], first


# Along axes.

REDUCE: Final = {
    "mean": "reduce_mean",
    "sum": "reduce_sum",
    "reduce_max": "reduce_max",
    "reduce_min": "reduce_min",
    "reduce_prod": "reduce_prod",
}


@rule(*REDUCE)
def _(net: Net, node: Node) -> Results:
    x = node.operand()
    axes = {a % len(x.shape) for a in node.attrs["axes"]}
    keep = bool(node.attrs.get("keepdims"))
    # Without its channels or without both its spatial axes an image has the same order in both layouts.
    first = net.channels_first(x) and (keep or 3 in axes or axes >= {1, 2})
    value, truth = net.get(x, first), x.dtype == dtypes.bool_
    if truth:
        value = net.op.cast(x=value, dtype="int32")
    at = sorted(last_axis(len(x.shape), a, first) for a in axes)
    value = getattr(net.op, REDUCE[node.op])(x=value, axes=at, keep_dims=keep)
    return [net.op.cast(x=value, dtype="bool") if truth else value], first and keep


@rule("argmax", "argmin")
def _(net: Net, node: Node) -> Results:
    x = node.operand()
    axis = node.attrs["axis"] % len(x.shape)
    first = net.channels_first(x) and axis == 3
    make = net.op.reduce_argmax if node.op == "argmax" else net.op.reduce_argmin
    return [make(x=net.get(x, first), axis=last_axis(len(x.shape), axis, first), keep_dims=False)], False


@rule("softmax", "log_softmax")
def _(net: Net, node: Node) -> Results:
    first, x = follow(net, node), node.operand()
    value, axis = net.get(x, first), last_axis(len(x.shape), -1, first)
    if node.op == "log_softmax":
        return [net.op.sub(x=value, y=net.op.reduce_log_sum_exp(x=value, axes=[axis], keep_dims=True))], first
    beta = float(node.attrs.get("beta", 1.0))
    if beta != 1.0:
        value = net.op.mul(x=value, y=net.number(beta))
    return [net.op.softmax(x=value, axis=axis)], first


@rule("cumsum")
def _(net: Net, node: Node) -> Results:
    first, x, a = follow(net, node), node.operand(), node.attrs
    axis = last_axis(len(x.shape), a["axis"], first)
    flags = {"exclusive": bool(a.get("exclusive")), "reverse": bool(a.get("reverse"))}
    return [net.op.cumsum(x=net.get(x, first), axis=axis, **flags)], first


# Movement.


@rule("reshape")
def _(net: Net, node: Node) -> Results:
    return [net.shaped(net.get(node.operand()), node.output.shape)], False


@rule("transpose")
def _(net: Net, node: Node) -> Results:
    return [net.op.transpose(x=net.get(node.operand()), perm=list(node.attrs["permutation"]))], False


@rule("concatenation")
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    axis = last_axis(len(node.output.shape), node.attrs["axis"], first)
    return [net.op.concat(values=[net.get(t, first) for t in node.operands], axis=axis)], first


@rule("split")
def _(net: Net, node: Node) -> Results:
    first, x = follow(net, node), node.operand()
    axis = last_axis(len(x.shape), node.attrs["axis"], first)
    parts = net.op.split(x=net.get(x, first), split_sizes=list(node.attrs["sizes"]), axis=axis)
    return list(parts), first


def in_order(node: Node, values: Sequence[int], first: bool) -> list[int]:
    """One number per axis, in the layout that is used."""
    return [int(values[i]) for i in ((0, 3, 1, 2) if first else range(len(values)))]


@rule("slice")
def _(net: Net, node: Node) -> Results:
    first, a = follow(net, node), node.attrs
    begin, size = in_order(node, a["begin"], first), in_order(node, node.output.shape, first)
    return [net.op.slice_by_size(x=net.get(node.operand(), first), begin=begin, size=size)], first


@rule("strided_slice")
def _(net: Net, node: Node) -> Results:
    first = follow(net, node)
    begin, end, stride = (in_order(node, node.attrs[k], first) for k in ("begin", "end", "strides"))
    return [net.op.slice_by_index(x=net.get(node.operand(), first), begin=begin, end=end, stride=stride)], first


@rule("reverse")
def _(net: Net, node: Node) -> Results:
    first, x = follow(net, node), node.operand()
    axes = sorted(last_axis(len(x.shape), a, first) for a in node.attrs["axes"])
    return [net.op.reverse(x=net.get(x, first), axes=axes)], first


@rule("pad")
def _(net: Net, node: Node) -> Results:
    first, x = follow(net, node), node.operand()
    padding, value = node.attrs["padding"], node.attrs.get("value") or 0
    order = (0, 3, 1, 2) if first else range(len(padding))
    current = net.get(x, first)
    if real(x):
        widths = frame([padding[i] for i in order])
        return [net.op.pad(x=current, pad=widths, mode="constant", constant_val=net.number(value))], first
    # MIL pads reals only: whole numbers get constants at their sides.
    kind = np.bool_ if x.dtype == dtypes.bool_ else np.int32
    for axis, i in enumerate(order):
        shape = list(current.shape)
        sides = [np.full([*shape[:axis], n, *shape[axis + 1 :]], value, kind) if n else None for n in padding[i]]
        parts = [v for v in (sides[0], current, sides[1]) if v is not None]
        if len(parts) > 1:
            current = net.op.concat(values=parts, axis=axis)
    return [current], first


@rule("broadcast_to")
def _(net: Net, node: Node) -> Results:
    value, shape = net.get(node.operand()), node.output.shape
    return [net.op.tile(x=lead(net, value, shape), reps=repeats(value, shape))], False


@rule("tile")
def _(net: Net, node: Node) -> Results:
    return [net.op.tile(x=net.get(node.operand()), reps=list(node.attrs["multiples"]))], False


@rule("gather")
def _(net: Net, node: Node) -> Results:
    x, indices = node.operand(), node.operand(1)
    return [net.op.gather(x=net.get(x), indices=net.get(indices), axis=node.attrs["axis"] % len(x.shape))], False


@rule("one_hot")
def _(net: Net, node: Node) -> Results:
    y = node.output
    on, off = (net.number(1.0), net.number(0.0)) if real(y) else (np.int32(1), np.int32(0))
    value = net.op.one_hot(
        indices=net.get(node.operand()), one_hot_vector_size=int(node.attrs["depth"]),
        axis=node.attrs["axis"] % len(y.shape), on_value=on, off_value=off,
    )  # fmt: skip
    return [net.op.cast(x=value, dtype="bool") if y.dtype == dtypes.bool_ else value], False


@rule("resize_bilinear")
def _(net: Net, node: Node) -> Results:
    a = node.attrs
    if a.get("align_corners"):
        mode = "STRICT_ALIGN_CORNERS"
    else:
        mode = "UNALIGN_CORNERS" if a.get("half_pixel_centers") else "DEFAULT"
    height, width = a["size"]
    y = net.op.resize_bilinear(
        x=net.get(node.operand(), True),
        target_size_height=int(height),
        target_size_width=int(width),
        sampling_mode=mode,
    )
    return [y], True


def nearest(size: int, source: int, corners: bool, half: bool) -> NDArray:
    """Which row a nearest-neighbour resize takes for each of its own, as TFLite's kernel counts them."""
    scale = np.float32(source - 1) / np.float32(size - 1) if corners and size > 1 else np.float32(source / size)
    at = (np.arange(size, dtype=np.float32) + np.float32(0.5 if half else 0)) * scale
    picked = np.floor(at + np.float32(0.5)) if corners else np.floor(at)
    return np.minimum(picked, source - 1).astype(np.int32)


@rule("resize_nearest")
def _(net: Net, node: Node) -> Results:
    a, x = node.attrs, node.operand()
    (height, width), (_, h, w, _) = a["size"], x.shape
    value, corners = net.get(x, True), bool(a.get("align_corners"))
    if not corners and height % h == 0 and width % w == 0:
        # Whole factors repeat pixels, whichever corner is counted from.
        factors = {"scale_factor_height": height // h, "scale_factor_width": width // w}
        return [net.op.upsample_nearest_neighbor(x=value, **factors)], True
    for axis, size, source in ((2, height, h), (3, width, w)):
        rows = nearest(size, source, corners, bool(a.get("half_pixel_centers")))
        value = net.op.gather(x=value, indices=rows, axis=axis)
    return [value], True
