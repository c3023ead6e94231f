"""The NPU vocabulary in TFLite's operators: which operator, operands and options say each node.

Knows graphs and TFLite's operators, no bytes. Most nodes are one operator; explicit padding that neither SAME nor VALID
says is a PAD in front, a cut of a transposed convolution a SLICE behind, a table that no operator computes a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.formats.tflite_border import border_means
from nxjax.lower.npu.formats.tflite_schema import ACTIVATIONS, SAME, TYPE_NUMBERS, VALID
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.fixed import functions
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

Pads = tuple[tuple[int, int], ...]


@final
@dataclass(eq=False)
class TFLiteOperator:
    """One TFLite operator: its name there, operands and results in the file's order, options, and whose node it is."""

    name: str
    inputs: list[Tensor | None]
    outputs: list[Tensor]
    options: dict[str, Any] = field(default_factory=dict[str, Any])
    node: Node | None = None


def same_padding(size: int, window: int, stride: int, dilation: int = 1) -> tuple[int, int]:
    """What SAME pads one axis with: so much that ``ceil(size / stride)`` windows fit, the odd one at the end."""
    total = max((-(-size // stride) - 1) * stride + (window - 1) * dilation + 1 - size, 0)
    return total // 2, total - total // 2


# Ops whose operator has the same name and no options that say anything.
_PLAIN: Final = (
    *("maximum", "minimum", "squared_difference", "pow", "equal", "not_equal", "less", "less_equal", "greater"),
    *("greater_equal", "logical_and", "logical_or", "logical_not", "log_softmax", "logistic", "tanh", "relu", "relu6"),
    *("relu_n1_to_1", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "abs", "prelu", "quantize", "dequantize"),
)
_EVERY: Final = np.arange(-128, 128, dtype=np.int16).astype(np.int8)
# Ops whose operator computes floats only: on int8 they are tables.
_REAL: Final = ("square", "sin", "cos", "floor", "ceil", "round", "sign", "neg", "erf")

# Functions of tables that an 8-bit operator of TFLite may compute, and its options.
_FUNCTIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "logistic": ("LOGISTIC", {}),
    "tanh": ("TANH", {}),
    "hard_swish": ("HARD_SWISH", {}),
    "elu": ("ELU", {}),
    "exp": ("EXP", {}),
    "log": ("LOG", {}),
    "sqrt": ("SQRT", {}),
    "rsqrt": ("RSQRT", {}),
    "abs": ("ABS", {}),
    "gelu": ("GELU", {"approximate": False}),
    "gelu_tanh": ("GELU", {"approximate": True}),
}


@final
class TFLiteWriter:
    """Collects the operators of a graph, and the constants and intermediate tensors they need."""

    def __init__(self, graph: NpuGraph) -> None:
        self.graph = graph
        self.operations: list[TFLiteOperator] = []
        self.shared: dict[tuple[str, Shape, bytes], Tensor] = {}
        self.node: Node | None = None

    def emit(self, name: str, inputs: Sequence[Tensor | None], outputs: Sequence[Tensor], **options: Any) -> None:
        self.operations.append(TFLiteOperator(name, list(inputs), list(outputs), options, self.node))

    def constant(self, values: Any, dtype: DType = dtypes.int32, grid: Grid | None = None) -> Tensor:
        """A constant of ours, such as a shape; equal ones without a grid are one tensor."""
        try:
            data = np.asarray(values, dtype)
        except OverflowError:
            raise LoweringError(
                "tflite: a size that does not fit the format",
                got=values,
                expected=f"numbers of {dtypes.short_name(dtype)}",
                source=self.node.source if self.node is not None else None,
            ) from None
        key = (dtype.name, data.shape, data.tobytes())
        found = self.shared.get(key) if grid is None else None
        if found is None:
            found = Tensor(f"const_{len(self.shared)}", data.shape, dtype, grid, data)
            self.shared[key if grid is None else (*key[:2], key[2] + str(grid).encode())] = found
        return found

    def between(self, like: Tensor, shape: Shape, what: str) -> Tensor:
        """A tensor that no node of the graph has, of ``like``'s dtype and grid."""
        return Tensor(f"{like.name}/{what}", shape, like.dtype, like.grid)

    def refuse(self, node: Node, why: str, fix: str) -> LoweringError:
        return LoweringError(f"tflite: {node.op} has no TFLite form", got=why, fix=fix, source=node.source)

    def pad(self, x: Tensor, pads: Sequence[tuple[int, int]], value: float | None, out: Tensor | None = None) -> Tensor:
        """``x`` with a border: of zeros, or of the real ``value``."""
        shape = tuple(n + low + high for n, (low, high) in zip(x.shape, pads, strict=True))
        out = self.between(x, shape, "padded") if out is None else out
        widths = self.constant(np.asarray(pads).reshape(len(pads), 2))
        if value is None or value == 0:
            self.emit("PAD", [x, widths], [out])
            return out
        if x.grid is not None:
            limit = x.grid.limits[0] if value == -np.inf else None
            stored = np.asarray(limit) if limit is not None else x.grid.quantize(np.asarray(value, np.float32))
            if stored == x.grid.zero_point:
                # The least value of what a relu gave, which more chips can pad with than with any number.
                self.emit("PAD", [x, widths], [out])
                return out
        elif value == -np.inf and x.dtype in dtypes.INTEGER:
            stored = np.asarray(dtypes.integer_info(x.dtype).min)
        else:
            stored = np.asarray(value)
        self.emit("PADV2", [x, widths, self.constant(stored, x.dtype, x.grid)], [out])
        return out

    def window(self, node: Node, x: Tensor, border: float | None) -> tuple[Tensor, int]:
        """The padding word of a convolution or pooling, and its operand, padded in front if no word says it."""
        attrs = node.attrs
        weights = node.inputs[1] if len(node.inputs) > 1 else None
        size = attrs["window"] if weights is None else weights.shape[1:3]
        dilations = attrs.get("dilations") or (1, 1)
        pads = tuple(tuple(p) for p in attrs["padding"])
        if all(p == (0, 0) for p in pads):
            return x, VALID
        rows = zip(x.shape[1:3], size, attrs["strides"], dilations, strict=True)
        if pads == tuple(same_padding(*row) for row in rows):
            return x, SAME
        if min(n for p in pads for n in p) < 0:
            raise self.refuse(node, f"padding {pads}", "slice the operand first")
        if node.op == "average_pool_2d":
            raise self.refuse(node, f"padding {pads}, which is not counted", "pad as SAME does, or not at all")
        return self.pad(x, ((0, 0), *pads, (0, 0)), border), VALID

    def bias(self, node: Node, x: Tensor, w: Tensor) -> Tensor:
        """The bias of a convolution, zeros if it has none; on its grid of scale x's times w's."""
        b = node.inputs[2] if len(node.inputs) > 2 else None
        channels = w.shape[3] if node.op == "depthwise_conv_2d" else w.shape[0]
        if x.grid is None or w.grid is None:
            return b if b is not None else self.constant(np.zeros(channels), dtypes.float32)
        if b is not None and b.grid is not None:
            return b
        wide = dtypes.int64 if x.dtype == dtypes.int16 else dtypes.int32
        grid = bias_grid(x.grid, w.grid, b.dtype if b is not None else wide)
        if b is None:
            return self.constant(np.zeros(channels), wide, grid)
        return Tensor(b.name, b.shape, b.dtype, grid, b.data)


def bias_grid(x: Grid, w: Grid, dtype: DType) -> Grid:
    """The grid of stored biases: scale of x times scale of w, per channel if w's is."""
    assert not isinstance(x.scale, tuple)
    if isinstance(w.scale, tuple):
        scales = (np.asarray(w.scale) * x.scale).astype(np.float32)
        return Grid(dtype, tuple(scales.tolist()), 0, 0)
    return Grid(dtype, float(np.float32(x.scale * w.scale)))


def _activation(node: Node) -> int:
    return ACTIVATIONS.index(node.attrs.get("activation"))


def _plain(w: TFLiteWriter, node: Node) -> None:
    w.emit(node.op.upper(), node.inputs, node.outputs)


def _conv(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operands[:2]
    b = w.bias(node, x, weights)
    channels = x.shape[-1]
    x, padding = w.window(node, x, None)
    strides, dilations = node.attrs["strides"], node.attrs.get("dilations") or (1, 1)
    options: dict[str, Any] = {
        "padding": padding,
        "stride_h": strides[0],
        "stride_w": strides[1],
        "dilation_h_factor": dilations[0],
        "dilation_w_factor": dilations[1],
        "fused_activation_function": _activation(node),
    }
    if node.op == "depthwise_conv_2d":
        options["depth_multiplier"] = weights.shape[3] // channels
    w.emit(node.op.upper(), [x, weights, b], node.outputs, **options)


def _transpose_conv(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operands[:2]
    b = w.bias(node, x, weights)
    out, strides, cuts = node.output, node.attrs["strides"], tuple(tuple(p) for p in node.attrs["padding"])
    full = tuple((n - 1) * s + k for n, s, k in zip(x.shape[1:3], strides, weights.shape[1:3], strict=True))
    padding = None
    if all(low == 0 and -s < high <= 0 for (low, high), s in zip(cuts, strides, strict=True)):
        padding = VALID
    elif all(
        -(-n // s) == size and (cut[0], max(cut[1], 0)) == same_padding(n, k, s)
        for n, k, s, size, cut in zip(out.shape[1:3], weights.shape[1:3], strides, x.shape[1:3], cuts, strict=True)
    ):
        padding = SAME
    made = out if padding is not None else w.between(out, (x.shape[0], *full, weights.shape[0]), "full")
    w.emit(
        "TRANSPOSE_CONV",
        [w.constant(made.shape), weights, x, b],
        [made],
        padding=VALID if padding is None else padding,
        stride_h=strides[0],
        stride_w=strides[1],
        fused_activation_function=_activation(node),
    )
    if padding is None:
        if min(n for cut in cuts for n in cut) < 0:
            raise w.refuse(node, f"padding {cuts}", "cut the result with a slice of its own")
        begin = (0, cuts[0][0], cuts[1][0], 0)
        w.emit("SLICE", [made, w.constant(begin), w.constant(out.shape)], [out])


def _fully_connected(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operands[:2]
    has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
    b = w.bias(node, x, weights) if has_bias else None
    keep = len(node.output.shape) != 2
    options = {"fused_activation_function": _activation(node), "keep_num_dims": keep}
    w.emit("FULLY_CONNECTED", [x, weights, b], node.outputs, **options)


def _batch_matmul(w: TFLiteWriter, node: Node) -> None:
    adjoint = {"adj_x": bool(node.attrs.get("adj_x")), "adj_y": bool(node.attrs.get("adj_y"))}
    w.emit("BATCH_MATMUL", node.inputs, node.outputs, **adjoint)


def _arithmetic(w: TFLiteWriter, node: Node) -> None:
    options: dict[str, Any] = {"fused_activation_function": _activation(node)}
    if node.op in ("add", "sub") and node.output.dtype == dtypes.int16 and node.output.grid is not None:
        # Scales need not be powers of two.
        options["pot_scale_int16"] = False
    w.emit(node.op.upper(), node.inputs, node.outputs, **options)


def _said(node: Node) -> bool:
    """Whether a padding word says the border of a pooling."""
    attrs, ones = node.attrs, (1, 1)
    pads = tuple(tuple(p) for p in attrs["padding"])
    rows = zip(node.operands[0].shape[1:3], attrs["window"], attrs["strides"], ones, strict=True)
    return not any(map(any, pads)) or pads == tuple(same_padding(*row) for row in rows)


def _pool(w: TFLiteWriter, node: Node) -> None:
    if node.op == "average_pool_2d" and not _said(node) and border_means(w.emit, w.constant, node, _activation(node)):
        return
    x, padding = w.window(node, node.operands[0], -np.inf)
    strides, window = node.attrs["strides"], node.attrs["window"]
    w.emit(
        node.op.upper(),
        [x],
        node.outputs,
        padding=padding,
        stride_h=strides[0],
        stride_w=strides[1],
        filter_height=window[0],
        filter_width=window[1],
        fused_activation_function=_activation(node),
    )


def _reduce(w: TFLiteWriter, node: Node) -> None:
    axes = w.constant(node.attrs["axes"])
    w.emit(node.op.upper(), [node.operands[0], axes], node.outputs, keep_dims=bool(node.attrs.get("keepdims")))


def _arg(w: TFLiteWriter, node: Node) -> None:
    name = "ARG_MAX" if node.op == "argmax" else "ARG_MIN"
    kind, x = TYPE_NUMBERS[node.output.dtype], node.operands[0]
    if x.grid is not None and x.dtype == dtypes.int16:
        # There is none of int16; real numbers are in the same order.
        real = Tensor(f"{node.output.name}/real", x.shape, dtypes.float32)
        w.emit("DEQUANTIZE", [x], [real])
        x = real
    w.emit(name, [x, w.constant(node.attrs["axis"])], node.outputs, output_type=kind)


def _softmax(w: TFLiteWriter, node: Node) -> None:
    w.emit("SOFTMAX", node.inputs, node.outputs, beta=float(node.attrs.get("beta", 1.0)))


def _leaky_relu(w: TFLiteWriter, node: Node) -> None:
    w.emit("LEAKY_RELU", node.inputs, node.outputs, alpha=float(node.attrs["alpha"]))


def _gelu(w: TFLiteWriter, node: Node) -> None:
    w.emit("GELU", node.inputs, node.outputs, approximate=bool(node.attrs.get("approximate")))


def _real(w: TFLiteWriter, node: Node) -> None:
    x, out = node.operands[0], node.output
    if x.grid is None or out.grid is None:
        if node.op == "erf":
            raise w.refuse(node, "no operator of that name", "write it with other operations, such as gelu")
        _plain(w, node)
    elif node.op == "neg" and _negates(x.grid, out.grid):
        _plain(w, node)
    elif x.dtype == dtypes.int8:
        _look_up(w, x, out, functions.unary(node.op, _EVERY, x.grid, out.grid, w.graph.rounding))
    else:
        raise w.refuse(node, f"no operator of {dtypes.short_name(x.dtype)}", "keep this operation in float32")


def _negates(x: Grid, out: Grid) -> bool:
    """Whether the negative of what is stored is what is stored for the negative."""
    return x.scale == out.scale and x.zero_point == out.zero_point == 0


def _table(w: TFLiteWriter, node: Node) -> None:
    x, out, function = node.operands[0], node.output, node.attrs["function"]
    values = np.asarray(node.attrs["values"], out.dtype)
    if function in _FUNCTIONS and x.grid is not None and out.grid is not None:
        name, options = _FUNCTIONS[function]
        computed = functions.unary(name.lower(), _EVERY, x.grid, out.grid, w.graph.rounding, **options)
        # A function of that name may still be somebody's own.
        if np.array_equal(computed, values):
            w.emit(name, [x], [out], **options)
            return
    _look_up(w, x, out, values)


def _look_up(w: TFLiteWriter, x: Tensor, out: Tensor, values: NDArray) -> None:
    """``out`` from its value for each of the 256 integers: index + 128 looks it up, exactly."""
    index, shifted = (Tensor(f"{out.name}/{part}", x.shape, dtypes.int32) for part in ("index", "shifted"))
    entries = w.constant(values, out.dtype, out.grid)
    w.emit("CAST", [x], [index], in_data_type=TYPE_NUMBERS[x.dtype], out_data_type=TYPE_NUMBERS[dtypes.int32])
    w.emit("ADD", [index, w.constant(128)], [shifted], fused_activation_function=0)
    w.emit("GATHER", [entries, shifted], [out], axis=0)


def _reshape(w: TFLiteWriter, node: Node) -> None:
    shape = node.output.shape
    w.emit("RESHAPE", [node.operands[0], w.constant(shape)], node.outputs, new_shape=shape)


def _concatenation(w: TFLiteWriter, node: Node) -> None:
    options = {"axis": node.attrs["axis"], "fused_activation_function": 0}
    w.emit("CONCATENATION", node.inputs, node.outputs, **options)


def _split(w: TFLiteWriter, node: Node) -> None:
    x, axis, sizes = node.operands[0], w.constant(node.attrs["axis"]), node.attrs["sizes"]
    if len(set(sizes)) == 1:
        w.emit("SPLIT", [axis, x], node.outputs, num_splits=len(sizes))
    else:
        w.emit("SPLIT_V", [x, w.constant(sizes), axis], node.outputs, num_splits=len(sizes))


def _pad(w: TFLiteWriter, node: Node) -> None:
    w.pad(node.operands[0], node.attrs["padding"], node.attrs.get("value"), node.output)


def _reverse(w: TFLiteWriter, node: Node) -> None:
    # One axis each: the operator takes only neighbouring axes together.
    x, axes = node.operands[0], list(node.attrs["axes"])
    for i, axis in enumerate(axes):
        out = node.output if i == len(axes) - 1 else w.between(x, x.shape, f"reversed_{i}")
        w.emit("REVERSE_V2", [x, w.constant([axis])], [out])
        x = out


def _gather(w: TFLiteWriter, node: Node) -> None:
    w.emit("GATHER", node.inputs, node.outputs, axis=node.attrs["axis"], batch_dims=0)


def _one_hot(w: TFLiteWriter, node: Node) -> None:
    out = node.output
    on, off = (np.asarray(v) if out.grid is None else out.grid.quantize(np.asarray(v, np.float32)) for v in (1, 0))
    ends = [w.constant(v, out.dtype, out.grid) for v in (on, off)]
    w.emit("ONE_HOT", [node.operands[0], w.constant(node.attrs["depth"]), *ends], [out], axis=node.attrs["axis"])


def _cumsum(w: TFLiteWriter, node: Node) -> None:
    options = {key: bool(node.attrs.get(key)) for key in ("exclusive", "reverse")}
    w.emit("CUMSUM", [node.operands[0], w.constant(node.attrs["axis"])], node.outputs, **options)


def _resize(w: TFLiteWriter, node: Node) -> None:
    name = "RESIZE_BILINEAR" if node.op == "resize_bilinear" else "RESIZE_NEAREST_NEIGHBOR"
    options = {key: bool(node.attrs.get(key)) for key in ("align_corners", "half_pixel_centers")}
    w.emit(name, [node.operands[0], w.constant(node.attrs["size"])], node.outputs, **options)


def _cast(w: TFLiteWriter, node: Node) -> None:
    kinds = {"in_data_type": node.operands[0].dtype, "out_data_type": node.output.dtype}
    w.emit("CAST", node.inputs, node.outputs, **{key: TYPE_NUMBERS[dtype] for key, dtype in kinds.items()})


def _select(w: TFLiteWriter, node: Node) -> None:
    w.emit("SELECT_V2", node.inputs, node.outputs)


def _with_constants(name: str, *keys: str) -> Callable[[TFLiteWriter, Node], None]:
    """A rule for an operator whose attributes are int32 operands behind the first."""

    def rule(w: TFLiteWriter, node: Node) -> None:
        w.emit(name, [node.operands[0], *(w.constant(node.attrs[key]) for key in keys)], node.outputs)

    return rule


RULES: Final[dict[str, Callable[[TFLiteWriter, Node], None]]] = {
    **dict.fromkeys(_PLAIN, _plain),
    **dict.fromkeys(_REAL, _real),
    **dict.fromkeys(("conv_2d", "depthwise_conv_2d"), _conv),
    **dict.fromkeys(("add", "sub", "mul", "div"), _arithmetic),
    **dict.fromkeys(("max_pool_2d", "average_pool_2d"), _pool),
    **dict.fromkeys(("mean", "sum", "reduce_max", "reduce_min", "reduce_prod"), _reduce),
    **dict.fromkeys(("argmax", "argmin"), _arg),
    **dict.fromkeys(("resize_bilinear", "resize_nearest"), _resize),
    "transpose_conv": _transpose_conv,
    "fully_connected": _fully_connected,
    "batch_matmul": _batch_matmul,
    "softmax": _softmax,
    "leaky_relu": _leaky_relu,
    "gelu": _gelu,
    "table": _table,
    "reshape": _reshape,
    "transpose": _with_constants("TRANSPOSE", "permutation"),
    "concatenation": _concatenation,
    "split": _split,
    "slice": _with_constants("SLICE", "begin", "size"),
    "strided_slice": _with_constants("STRIDED_SLICE", "begin", "end", "strides"),
    "pad": _pad,
    "broadcast_to": _with_constants("BROADCAST_TO", "shape"),
    "tile": _with_constants("TILE", "multiples"),
    "reverse": _reverse,
    "gather": _gather,
    "one_hot": _one_hot,
    "select": _select,
    "cumsum": _cumsum,
    "cast": _cast,
}


def operations(graph: NpuGraph) -> list[TFLiteOperator]:
    """The operators that say ``graph``, in its order.

    Raises:
        LoweringError: a node that TFLite has no operators for; it names the user's line.

    >>> x, y = (Tensor(name, (1, 4), "float32") for name in "xy")
    >>> [o.name for o in operations(NpuGraph("g", [x], [y], [Node("tanh", (x,), (y,))]))]
    ['TANH']
    """
    writer = TFLiteWriter(graph)
    for node in graph.nodes:
        writer.node = node
        RULES[node.op](writer, node)
    return writer.operations
