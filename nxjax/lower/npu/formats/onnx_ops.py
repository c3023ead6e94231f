"""One ONNX emitter per operator of the graph. Each reads real values, writes operators, and hands the result over.

Semantics: the ONNX operator specification (onnx.ai/onnx/operators). Where ONNX lacks an operator it is spelled out in
others; layouts and grids are the builder's business.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.formats.onnx_build import NCHW, Layout, OnnxBuilder, identity
from nxjax.lower.npu.formats.onnx_moves import MOVES
from nxjax.lower.npu.formats.onnx_parts import Emit, element, given, operand, pads
from nxjax.lower.npu.graph import Node, Tensor
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

CLIPS: Final = {"relu": (0.0, math.inf), "relu6": (0.0, 6.0), "relu_n1_to_1": (-1.0, 1.0)}


# Activations.


def clip(b: OnnxBuilder, value: str, bounds: tuple[float, float], t: Tensor, suffix: str = "") -> str:
    """Values kept between two bounds; an infinite one is no bound."""
    low, high = bounds
    if bounds == CLIPS["relu"]:
        return b.op("Relu", [value], suffix)
    dtype = dtypes.float32 if t.grid is not None else t.dtype
    if b.opset < 11:
        finite: dict[str, Any] = {k: v for k, v in (("min", low), ("max", high)) if math.isfinite(v)}
        return b.op("Clip", [value], suffix, **finite)
    limits = [b.constant(low, dtype, "low") if math.isfinite(low) else ""]
    limits += [b.constant(high, dtype, "high")] if math.isfinite(high) else []
    return b.op("Clip", [value, *limits], suffix)


def beyond(grid: Grid, kind: str) -> tuple[float, float]:
    """The activation's bounds that saturation to the grid does not already keep."""
    assert not isinstance(grid.scale, tuple)
    low, high = grid.limits
    bottom, top = CLIPS[kind]
    if grid.zero_point + round(bottom / grid.scale) <= low:
        bottom = -math.inf
    if math.isfinite(top) and grid.zero_point + round(top / grid.scale) >= high:
        top = math.inf
    return bottom, top


def finish(b: OnnxBuilder, n: Node, value: str, layout: Layout | None = None) -> None:
    """The fused activation as its own node, then the result.

    With a grid the sum is brought onto the output grid first: it saturates there, and clamping that to the
    activation's range is what clamping the sum would have given.
    """
    t, kind = n.output, n.attrs.get("activation")
    layout = identity(len(t.shape)) if layout is None else layout
    grid = b.grid(t)
    if kind is None:
        return b.result(t, value, layout)
    bounds = CLIPS[kind] if grid is None else beyond(grid, kind)
    if bounds == (-math.inf, math.inf):
        return b.result(t, value, layout)
    if grid is not None:
        value = on_grid(b, value, grid, layout, "wide")
    return b.result(t, clip(b, value, bounds, t, kind), layout)


def on_grid(b: OnnxBuilder, value: str, grid: Grid, layout: Layout, suffix: str) -> str:
    """Real values that went through a grid: the pair that ends one QDQ unit and starts the next."""
    stored, _ = b.stored_grid(grid)
    return b.dequantize(b.quantize(value, stored, layout, suffix + "_q"), stored, layout, suffix + "_dq")


# Products.


def bias(b: OnnxBuilder, n: Node) -> list[str]:
    """The bias as real values: none, a float constant, or int32 on the grid of the products."""
    t = n.inputs[2] if len(n.inputs) > 2 else None
    if t is None:
        return []
    x, w = given(n, 0), given(n, 1)
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


def _convolution(b: OnnxBuilder, n: Node, weights: Layout, groups: int) -> None:
    x, w = given(n, 0), given(n, 1)
    kernel = [w.shape[1], w.shape[2]]
    value = b.op(
        "Conv",
        [b.real(x, NCHW), b.real(w, weights, weight=True), *bias(b, n)],
        kernel_shape=kernel,
        strides=list(n.attrs["strides"]),
        dilations=list(n.attrs.get("dilations", (1, 1))),
        pads=pads(n.attrs["padding"]),
        group=groups,
    )
    finish(b, n, value, NCHW)


def conv_2d(b: OnnxBuilder, n: Node) -> None:
    _convolution(b, n, NCHW, int(n.attrs.get("groups", 1)))


def depthwise_conv_2d(b: OnnxBuilder, n: Node) -> None:
    _convolution(b, n, (3, 0, 1, 2), given(n, 0).shape[3])


def transpose_conv(b: OnnxBuilder, n: Node) -> None:
    x, w = given(n, 0), given(n, 1)
    padding = [(int(low), int(high)) for low, high in n.attrs["padding"]]
    if any(low < 0 for low, _ in padding):
        raise b.refuse("a transposed convolution with padding added before its result", "pad the result instead")
    strides = [int(s) for s in n.attrs["strides"]]
    extra = [max(0, -high) for _, high in padding]
    if any(e >= s for e, s in zip(extra, strides, strict=True) if e):
        raise b.refuse("a transposed convolution with more padding after its result than its stride allows")
    value = b.op(
        "ConvTranspose",
        [b.real(x, NCHW), b.real(w, (3, 0, 1, 2), weight=True), *bias(b, n)],
        kernel_shape=[w.shape[1], w.shape[2]],
        strides=strides,
        pads=pads([(low, max(0, high)) for low, high in padding]),
        output_padding=extra,
    )
    finish(b, n, value, NCHW)


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
    """Gemm, which has a bias; more than two dimensions are folded into rows around it."""
    x, w = given(n, 0), given(n, 1)
    rows = x.size // x.shape[-1] if x.shape[-1] else 0
    left = b.real(x) if len(x.shape) == 2 else moved(b, b.real(x), x, (rows, x.shape[-1]), "rows")
    added = bias(b, n)
    if not added and b.opset < 11:
        # A bias is not optional there.
        added = [_number(b, n, 0.0)]
    value = b.op("Gemm", [left, b.real(w, weight=True), *added], transB=1)
    if len(n.output.shape) == 2:
        finish(b, n, value)
    else:
        unfolded(b, n, value)


def batch_matmul(b: OnnxBuilder, n: Node) -> None:
    """MatMul; batches of more than two dimensions are folded into one where both sides have the same."""
    x, y = given(n, 0), given(n, 1)
    fold = len(x.shape) > 4 and x.shape[:-2] == y.shape[:-2]

    def side(t: Tensor, swap: bool, suffix: str) -> str:
        layout = list(identity(len(t.shape)))
        if swap:
            layout[-2:] = layout[:-3:-1]
        value = b.real(t, tuple(layout))
        batch = math.prod(t.shape[:-2])
        return moved(b, value, t, [batch, *(t.shape[a] for a in layout[-2:])], suffix) if fold else value

    left = side(x, bool(n.attrs.get("adj_x")), "left")
    value = b.op("MatMul", [left, side(y, bool(n.attrs.get("adj_y")), "right")])
    if fold:
        unfolded(b, n, value)
    else:
        finish(b, n, value)


# Elementwise.


def nary(kind: str) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        rank = len(n.output.shape)
        layout = b.agree(n.operands, rank)
        finish(b, n, b.op(kind, [operand(b, t, layout) for t in n.operands]), layout)

    return emit


def unary(*kinds: str, **attrs: str) -> Emit:
    """ONNX operators applied one after another; ``attrs`` names the graph's attributes that the first one takes."""

    def emit(b: OnnxBuilder, n: Node) -> None:
        x = given(n, 0)
        layout = b.agree([x], len(x.shape))
        given_attrs: dict[str, Any] = {k: float(n.attrs[v]) for k, v in attrs.items()}
        value = b.op(kinds[0], [b.real(x, layout)], **given_attrs)
        for kind in kinds[1:]:
            value = b.op(kind, [value])
        b.result(n.output, value, layout)

    return emit


# The grids on which Qualcomm's NPU gives 16-bit sigmoids and tangents, whatever grid the file asks for.
FIXED: Final = {
    "logistic": Grid(dtypes.uint16, 1 / 65536, 0),
    "tanh": Grid(dtypes.uint16, 1 / 32768, 32768),
}


def squashing(kind: str) -> Emit:
    """Sigmoid and Tanh: 16-bit results go over the fixed grid, if that is not theirs."""

    def formula(b: OnnxBuilder, n: Node, x: str) -> str:
        value, grid, fixed = b.op(kind, [x]), b.grid(n.output), FIXED[n.op]
        if grid is None or not b.options.unsigned or grid.dtype != dtypes.int16 or b.stored_grid(grid)[0] == fixed:
            return value
        return on_grid(b, value, fixed, (), "fixed")

    return composed(formula)


def composed(formula: Callable[[OnnxBuilder, Node, str], str]) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x = given(n, 0)
        layout = b.agree([x], len(x.shape))
        b.result(n.output, formula(b, n, b.real(x, layout)), layout)

    return emit


def _number(b: OnnxBuilder, n: Node, value: float) -> str:
    return b.constant(value, dtypes.float32 if n.output.grid is not None else n.output.dtype, "number")


def hard_swish(b: OnnxBuilder, n: Node) -> None:
    def product(b: OnnxBuilder, _: Node, x: str) -> str:
        return b.op("Mul", [x, b.op("HardSigmoid", [x], "gate", alpha=1 / 6, beta=0.5)])

    composed(product if b.opset < 14 else lambda b, _, x: b.op("HardSwish", [x]))(b, n)


def gelu(b: OnnxBuilder, n: Node) -> None:
    approximate = bool(n.attrs.get("approximate"))

    def exact(b: OnnxBuilder, n: Node, x: str) -> str:
        inner = b.op("Erf", [b.op("Mul", [x, _number(b, n, math.sqrt(0.5))], "scaled")], "erf")
        weight = b.op("Mul", [b.op("Add", [inner, _number(b, n, 1.0)], "plus"), _number(b, n, 0.5)], "half")
        return b.op("Mul", [x, weight])

    def by_tanh(b: OnnxBuilder, n: Node, x: str) -> str:
        # 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), Hendrycks and Gimpel 2016.
        cube = b.op("Mul", [b.op("Mul", [x, x], "square"), x], "cube")
        inner = b.op("Add", [x, b.op("Mul", [cube, _number(b, n, 0.044715)], "small")], "sum")
        tanh = b.op("Tanh", [b.op("Mul", [inner, _number(b, n, math.sqrt(2 / math.pi))], "scaled")], "tanh")
        weight = b.op("Mul", [b.op("Add", [tanh, _number(b, n, 1.0)], "plus"), _number(b, n, 0.5)], "half")
        return b.op("Mul", [x, weight])

    def native(b: OnnxBuilder, n: Node, x: str) -> str:
        return b.op("Gelu", [x], approximate="tanh" if approximate else "none")

    composed(native if b.opset >= 20 else by_tanh if approximate else exact)(b, n)


def activation(kind: str) -> Emit:
    return composed(lambda b, n, x: clip(b, x, CLIPS[kind], n.output))


def compare(kind: str, opposite: str, since: int) -> Emit:
    """A comparison, by its opposite where the operator set does not have it yet (which is true of NaN)."""

    def emit(b: OnnxBuilder, n: Node) -> None:
        if b.opset >= since:
            return nary(kind)(b, n)
        layout = b.agree(n.operands, len(n.output.shape))
        value = b.op(opposite, [operand(b, t, layout) for t in n.operands], opposite.lower())
        return b.result(n.output, b.op("Not", [value]), layout)

    return emit


def since(opset: int, emit: Emit) -> Emit:
    """An operator that older operator sets do not have."""

    def checked(b: OnnxBuilder, n: Node) -> None:
        if b.opset < opset:
            raise b.refuse(f"{n.op} before opset {opset}", "compute it on the host, or write a newer opset")
        emit(b, n)

    return checked


def _same(b: OnnxBuilder, n: Node, layout: Layout) -> str:
    """Whether operands are equal. Floats have no Equal before opset 11: neither less nor greater, nor NaN."""
    xs = [operand(b, t, layout) for t in n.operands]
    if b.opset >= 11 or not any(t.dtype in dtypes.FLOAT or t.grid is not None for t in n.operands):
        return b.op("Equal", xs, "equal")
    apart = b.op("Or", [b.op("Less", xs, "less"), b.op("Greater", xs, "greater")], "apart")
    unordered = b.op("Or", [b.op("IsNaN", [x], "nan") for x in xs], "unordered")
    return b.op("Not", [b.op("Or", [apart, unordered], "other")], "equal")


def equal(b: OnnxBuilder, n: Node) -> None:
    layout = b.agree(n.operands, len(n.output.shape))
    same = _same(b, n, layout)
    b.result(n.output, same if n.op == "equal" else b.op("Not", [same]), layout)


def squared_difference(b: OnnxBuilder, n: Node) -> None:
    layout = b.agree(n.operands, len(n.output.shape))
    value = b.op("Sub", [operand(b, t, layout) for t in n.operands], "difference")
    b.result(n.output, b.op("Mul", [value, value]), layout)


def table(b: OnnxBuilder, n: Node) -> None:
    """A lookup: the stored integers, moved to start at 0, index the stored outputs."""
    x, y = given(n, 0), n.output
    if b.options.style == "float":
        raise b.refuse("a table of stored integers in a float file", "write it with style='qdq'")
    layout = b.agree([x], len(x.shape))
    values = b.scratch(f"{b.names[y]}_table", np.asarray(n.attrs["values"], y.dtype).reshape(256), y.grid)
    index = b.op("Cast", [b.stored(x, layout)], "cast", to=element(b, dtypes.int32))
    offset = 128 - b.stored_dtype(x)[1]
    if offset:
        index = b.op("Add", [index, b.constant(offset, np.int32, "first")], "index")
    b.result(y, b.op("Gather", [b.real(values), index], axis=0), layout)


def cast(b: OnnxBuilder, n: Node) -> None:
    """Of a tensor on a grid its stored integers, as TFLite's CAST takes them, which knows no scales."""
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    if x.grid is not None:
        if b.grid(x) is None or n.output.grid is not None:
            raise b.refuse("a cast of stored integers in a float file, or to a grid", "write it with style='qdq'")
        value = b.op("Cast", [b.stored(x, layout)], "stored", to=element(b, dtypes.int32))
        offset = b.stored_dtype(x)[1]
        if offset:
            value = b.op("Sub", [value, b.constant(offset, np.int32, "first")], "signed")
        if n.output.dtype != dtypes.int32:
            value = b.op("Cast", [value], to=element(b, n.output.dtype))
        return b.result(n.output, value, layout)
    b.result(n.output, b.op("Cast", [b.real(x, layout)], to=element(b, n.output.dtype)), layout)


def convert(b: OnnxBuilder, n: Node) -> None:
    """quantize, dequantize: reading gives real values, holding puts them on the result's grid."""
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    grid_in, grid_out = b.grid(x), b.grid(n.output)
    if grid_in is None and grid_out is None:
        return b.result(n.output, b.op("Identity", [b.real(x, layout)]), layout)
    if grid_out is not None:
        stored, _ = b.stored_grid(grid_out)
        return b.hold(n.output, b.quantize(b.real(x, layout), stored, layout, ""), layout)
    assert grid_in is not None
    stored, _ = b.stored_grid(grid_in)
    return b.hold(n.output, b.dequantize(b.stored(x, layout), stored, layout, ""), layout)


def softmax(b: OnnxBuilder, n: Node) -> None:
    x = given(n, 0)
    # Older softmaxes go over the given dimension and all behind it.
    layout = b.agree([x], len(x.shape)) if b.opset >= 13 else identity(len(x.shape))
    value, beta = b.real(x, layout), float(n.attrs.get("beta", 1.0))
    if beta != 1.0:
        value = b.op("Mul", [value, _number(b, n, beta)], "beta")
    axis = layout.index(len(x.shape) - 1)
    b.result(n.output, b.op("LogSoftmax" if n.op == "log_softmax" else "Softmax", [value], axis=axis), layout)


def select(b: OnnxBuilder, n: Node) -> None:
    layout = b.agree(n.operands, len(n.output.shape))
    b.result(n.output, b.op("Where", [operand(b, t, layout) for t in n.operands]), layout)


# Pools and reductions.


def pool(kind: str, **fixed: Any) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        value = b.op(
            kind,
            [b.real(given(n, 0), NCHW)],
            kernel_shape=list(n.attrs["window"]),
            strides=list(n.attrs["strides"]),
            pads=pads(n.attrs["padding"]),
            **fixed,
        )
        finish(b, n, value, NCHW)

    return emit


def without(layout: Layout, axes: set[int]) -> Layout:
    """The layout of what remains when ``axes`` are dropped."""
    kept = [a for a in layout if a not in axes]
    return tuple(sorted(kept).index(a) for a in kept)


def reduction(kind: str, axes_are_input_since: int) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x = given(n, 0)
        rank = len(x.shape)
        axes = {int(a) % rank for a in n.attrs["axes"]} if rank else set[int]()
        keep = bool(n.attrs.get("keepdims"))
        layout = b.agree([x], rank)
        where = sorted(layout.index(a) for a in axes)
        if not where:
            return b.result(n.output, b.op("Identity", [b.real(x, layout)]), layout)
        if b.opset >= axes_are_input_since:
            value = b.op(kind, [b.real(x, layout), b.constant(where)], keepdims=int(keep))
        else:
            value = b.op(kind, [b.real(x, layout)], axes=where, keepdims=int(keep))
        return b.result(n.output, value, layout if keep else without(layout, axes))

    return emit


def arg(kind: str) -> Emit:
    def emit(b: OnnxBuilder, n: Node) -> None:
        x = given(n, 0)
        axis = int(n.attrs["axis"]) % len(x.shape)
        layout = b.agree([x], len(x.shape))
        value = b.op(kind, [b.real(x, layout)], axis=layout.index(axis), keepdims=0)
        b.result(n.output, b.op("Cast", [value], "cast", to=element(b, n.output.dtype)), without(layout, {axis}))

    return emit


def cumsum(b: OnnxBuilder, n: Node) -> None:
    x = given(n, 0)
    layout = b.agree([x], len(x.shape))
    axis = b.constant(layout.index(int(n.attrs["axis"]) % len(x.shape)), np.int64, "axis")
    value = b.op(
        "CumSum",
        [b.real(x, layout), axis],
        exclusive=int(bool(n.attrs.get("exclusive"))),
        reverse=int(bool(n.attrs.get("reverse"))),
    )
    b.result(n.output, value, layout)


EMIT: Final[dict[str, Emit]] = {
    **MOVES,
    "conv_2d": conv_2d,
    "depthwise_conv_2d": depthwise_conv_2d,
    "transpose_conv": transpose_conv,
    "fully_connected": fully_connected,
    "batch_matmul": batch_matmul,
    "add": nary("Add"),
    "sub": nary("Sub"),
    "mul": nary("Mul"),
    "div": nary("Div"),
    "maximum": nary("Max"),
    "minimum": nary("Min"),
    "pow": nary("Pow"),
    "squared_difference": squared_difference,
    "equal": equal,
    "not_equal": equal,
    "less": nary("Less"),
    "less_equal": compare("LessOrEqual", "Greater", 12),
    "greater": nary("Greater"),
    "greater_equal": compare("GreaterOrEqual", "Less", 12),
    "logical_and": nary("And"),
    "logical_or": nary("Or"),
    "logical_not": unary("Not"),
    "max_pool_2d": pool("MaxPool"),
    "average_pool_2d": pool("AveragePool", count_include_pad=0),
    "mean": reduction("ReduceMean", 18),
    "sum": reduction("ReduceSum", 13),
    "reduce_max": reduction("ReduceMax", 18),
    "reduce_min": reduction("ReduceMin", 18),
    "reduce_prod": reduction("ReduceProd", 18),
    "argmax": arg("ArgMax"),
    "argmin": arg("ArgMin"),
    "softmax": softmax,
    "log_softmax": softmax,
    "logistic": squashing("Sigmoid"),
    "tanh": squashing("Tanh"),
    "relu": activation("relu"),
    "relu6": activation("relu6"),
    "relu_n1_to_1": activation("relu_n1_to_1"),
    "hard_swish": hard_swish,
    "elu": unary("Elu"),
    "exp": unary("Exp"),
    "log": unary("Log"),
    "sqrt": unary("Sqrt"),
    "rsqrt": unary("Sqrt", "Reciprocal"),
    "abs": unary("Abs"),
    "neg": unary("Neg"),
    "square": composed(lambda b, n, x: b.op("Mul", [x, x])),
    "sin": unary("Sin"),
    "cos": unary("Cos"),
    "floor": unary("Floor"),
    "ceil": unary("Ceil"),
    "round": since(11, unary("Round")),
    "sign": unary("Sign"),
    "erf": unary("Erf"),
    "leaky_relu": unary("LeakyRelu", alpha="alpha"),
    "prelu": nary("PRelu"),
    "gelu": gelu,
    "table": table,
    "select": select,
    "cumsum": since(11, cumsum),
    "quantize": convert,
    "dequantize": convert,
    "cast": cast,
}
