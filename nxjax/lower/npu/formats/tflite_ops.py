"""The NPU vocabulary in TFLite's operators, both ways: how each node is written, and what each operator reads as.

Most ops are one operator whose options and constant operands are attributes, which a row says for writer and reader at
once; the others have a function for either way, one under the other. Explicit padding that neither SAME nor VALID says
is a PAD in front, a cut of a transposed convolution a SLICE behind, a table that no operator computes a look-up. Knows
graphs and TFLite's operators, no bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, final

import numpy as np

from nxjax.lower.npu.attributes import AXIS, FLAG, SCHEMAS
from nxjax.lower.npu.formats.tflite_border import border_means
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator, TFLiteWriter, look_up, same_padding, windowed
from nxjax.lower.npu.formats.tflite_control import read_if, read_while, write_if, write_while
from nxjax.lower.npu.formats.tflite_file import OperatorUse, TFLiteReader, bad
from nxjax.lower.npu.formats.tflite_recurrent import read_recurrent, write_recurrent
from nxjax.lower.npu.formats.tflite_schema import ACTIVATIONS, SAME, TYPE_NUMBERS, VALID
from nxjax.lower.npu.formats.tflite_volume import read_volume, write_volume
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.ops.base import NDArray
from nxjax.ops.fixed import functions
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

Write = Callable[[TFLiteWriter, Node], None]
Read = Callable[[TFLiteReader, OperatorUse], None]
_EVERY: Final = np.arange(-128, 128, dtype=np.int16).astype(np.int8)


@final
@dataclass(frozen=True)
class TFLiteRow:
    """An op and the operators that say it.

    Attributes:
        op: its name in the vocabulary.
        operators: their names; a node is written as the first, and all are read.
        operands: how many there are in front of the constants, for its reading.
        constants: attributes that are constant operands.
        options: attributes that are options -> their names there.
        fixed: options that every node has.
        write, read: where that does not say it all.
    """

    op: str
    operators: str
    operands: int = 1
    constants: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict[str, str])
    fixed: Mapping[str, Any] = field(default_factory=dict[str, Any])
    write: Write | None = None
    read: Read | None = None

    def written(self, w: TFLiteWriter, node: Node) -> None:
        if self.write is not None:
            return self.write(w, node)
        a = node.attrs
        options = {name: _activation(node) if key == "activation" else a[key] for key, name in self.options.items()}
        operands = [*node.inputs, *(w.constant(a[key]) for key in self.constants)]
        return w.emit(self.operators.split()[0], operands, node.outputs, **options, **self.fixed)

    def taken(self, r: TFLiteReader, u: OperatorUse) -> None:
        if self.read is not None:
            return self.read(r, u)
        schema = SCHEMAS[self.op]
        attrs: dict[str, Any] = {}
        for key, name in self.options.items():
            attrs[key] = u.activation() if key == "activation" else u.options[name]
            attrs[key] = bool(attrs[key]) if schema[key].read is FLAG.read else attrs[key]
        for i, key in enumerate(self.constants, self.operands):
            attrs[key] = u.number(i) if schema[key] is AXIS else u.ints(i)
        return r.node(self.op, [u.operand(i) for i in range(self.operands)], u.outputs, **attrs)


def _activation(node: Node) -> int:
    return ACTIVATIONS.index(node.attrs["activation"])


# Products.


def _window(w: Tensor) -> tuple[int, int]:
    if len(w.shape) != 4:
        raise bad("weights that have not four dimensions", w.shape)
    return w.shape[1], w.shape[2]


def _write_conv(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operands[:2]
    b = w.bias(node, x, weights)
    channels = x.shape[-1]
    x, padding = w.window(node, x, None)
    a = node.attrs
    options = windowed(padding, a["strides"], _activation(node), dilations=a["dilations"])
    if node.op == "depthwise_conv_2d":
        options["depth_multiplier"] = weights.shape[3] // channels
    w.emit(node.op.upper(), [x, weights, b], node.outputs, **options)


def _read_conv(r: TFLiteReader, u: OperatorUse) -> None:
    x, w = u.operand(0), u.operand(1)
    attrs = u.spatial(x, _window(w))
    op = u.name.lower()
    if op == "conv_2d":
        attrs["groups"] = x.shape[3] // max(w.shape[3], 1)
    r.node(op, [x, w, u.maybe(2)], u.outputs, activation=u.activation(), **attrs)


def _write_transpose_conv(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operands[:2]
    b = w.bias(node, x, weights)
    out, strides, cuts = node.output, node.attrs["strides"], node.attrs["padding"]
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
    options = windowed(VALID if padding is None else padding, strides, _activation(node))
    w.emit("TRANSPOSE_CONV", [w.constant(made.shape), weights, x, b], [made], **options)
    if padding is None:
        if min(n for cut in cuts for n in cut) < 0:
            raise w.refuse(node, f"padding {cuts}", "cut the result with a slice of its own")
        begin = (0, cuts[0][0], cuts[1][0], 0)
        w.emit("SLICE", [made, w.constant(begin), w.constant(out.shape)], [out])


def _read_transpose_conv(r: TFLiteReader, u: OperatorUse) -> None:
    w, x, out = u.operand(1), u.operand(2), u.output
    if len(out.shape) != 4 or u.ints(0) != out.shape:
        raise bad("a TRANSPOSE_CONV whose result is not of the shape it asks for", out.shape)
    attrs = u.spatial(x, _window(w))
    padding: list[tuple[int, int]] = []
    for n, k, s, full in zip(out.shape[1:3], _window(w), attrs["strides"], x.shape[1:3], strict=True):
        low = same_padding(n, k, s)[0] if u.options["padding"] == SAME else 0
        padding.append((low, (full - 1) * s + k - n - low))
    given: dict[str, Any] = {"strides": attrs["strides"], "padding": tuple(padding), "activation": u.activation()}
    r.node("transpose_conv", [x, w, u.maybe(3)], u.outputs, **given)


def _write_volume(w: TFLiteWriter, node: Node) -> None:
    write_volume(w, node, lambda w, part: RULES[part.op].written(w, part))


def _write_fully_connected(w: TFLiteWriter, node: Node) -> None:
    x, weights = node.operands[:2]
    has_bias = len(node.inputs) > 2 and node.inputs[2] is not None
    b = w.bias(node, x, weights) if has_bias else None
    keep = len(node.output.shape) != 2
    options = {"fused_activation_function": _activation(node), "keep_num_dims": keep}
    options |= {"asymmetric_quantize_inputs": True} if node.attrs["dynamic"] else {}
    w.emit("FULLY_CONNECTED", [x, weights, b], node.outputs, **options)


def _read_fully_connected(r: TFLiteReader, u: OperatorUse) -> None:
    x, w = u.operand(0), u.operand(1)
    if u.options["weights_format"] != 0 or len(w.shape) != 2 or not w.shape[1] or x.size % w.shape[1]:
        raise bad(f"a FULLY_CONNECTED of {x.shape} with weights {w.shape}")
    if not u.options["keep_num_dims"] and len(x.shape) != 2:
        flat = Tensor(f"{x.name}/flat", (x.size // w.shape[1], w.shape[1]), x.dtype, x.grid)
        r.node("reshape", [x], [flat], shape=flat.shape)
        x = flat
    r.node("fully_connected", [x, w, u.maybe(2)], u.outputs, activation=u.activation())


# Elementwise.


def _write_sum(w: TFLiteWriter, node: Node) -> None:
    options: dict[str, Any] = {"fused_activation_function": _activation(node)}
    if node.output.dtype == dtypes.int16 and node.output.grid is not None:
        # Scales need not be powers of two.
        options["pot_scale_int16"] = False
    w.emit(node.op.upper(), node.inputs, node.outputs, **options)


def _write_real(w: TFLiteWriter, node: Node) -> None:
    x, out = node.operands[0], node.output
    if x.grid is None or out.grid is None:
        if node.op == "erf":
            raise w.refuse(node, "no operator of that name", "write it with other operations, such as gelu")
        w.emit(node.op.upper(), node.inputs, node.outputs)
    elif node.op == "neg" and _negates(x.grid, out.grid):
        w.emit(node.op.upper(), node.inputs, node.outputs)
    elif x.dtype == dtypes.int8:
        _look_up(w, x, out, functions.unary(node.op, _EVERY, x.grid, out.grid, w.graph.rounding))
    else:
        raise w.refuse(node, f"no operator of {dtypes.short_name(x.dtype)}", "keep this operation in float32")


def _negates(x: Grid, out: Grid) -> bool:
    """Whether the negative of what is stored is what is stored for the negative."""
    return x.scale == out.scale and x.zero_point == out.zero_point == 0


# Functions of tables that an 8-bit operator of TFLite may compute, and its options.
_FUNCTIONS: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    **{f: (f.upper(), {}) for f in ["logistic", "tanh", "hard_swish", "elu", "exp", "log", "sqrt", "rsqrt", "abs"]},
    "gelu": ("GELU", {"approximate": False}),
    "gelu_tanh": ("GELU", {"approximate": True}),
}


def _write_table(w: TFLiteWriter, node: Node) -> None:
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
    look_up(w.emit, x, out, w.constant(values, out.dtype, out.grid), w.constant(128))


def _looked_up(r: TFLiteReader, x: Tensor, indices: Tensor) -> Tensor | None:
    """The int8 tensor whose stored integers plus 128 are the indices of 256 constants; None if they are not such."""
    shifted = r.made.get(indices)
    if x.data is None or x.shape != (256,) or x.grid is None or shifted is None or shifted.op != "add":
        return None
    index, by = shifted.operands
    found = r.made.get(index)
    if by.data is None or by.size != 1 or by.data.item() != 128 or shifted.attrs["activation"] or found is None:
        return None
    source = found.operands[0]
    return source if found.op == "cast" and source.dtype == dtypes.int8 and source.grid is not None else None


def _read_select(r: TFLiteReader, u: OperatorUse) -> None:
    operands = [u.operand(i) for i in range(3)]
    if operands[0].dtype != dtypes.bool_:
        raise bad(f"a {u.name} whose condition is not boolean")
    if u.name == "SELECT" and operands[0].shape != operands[1].shape:
        raise bad("a SELECT of whole rows")
    r.node("select", [*operands], u.outputs)


def _write_cast(w: TFLiteWriter, node: Node) -> None:
    kinds = {"in_data_type": node.operands[0].dtype, "out_data_type": node.output.dtype}
    w.emit("CAST", node.inputs, node.outputs, **{key: TYPE_NUMBERS[dtype] for key, dtype in kinds.items()})


def _read_quantize(r: TFLiteReader, u: OperatorUse) -> None:
    if u.output.grid is None:
        raise bad("a QUANTIZE whose result has no scale")
    r.node("quantize", [u.operand(0)], u.outputs)


def _write_dequantize(w: TFLiteWriter, node: Node) -> None:
    """Weights in blocks are taken off their grid by the reshape behind it, those of layers with states by these."""
    if node.output in w.apart or node.output not in w.read:
        w.emit("DEQUANTIZE", node.inputs, node.outputs)


def _read_dequantize(r: TFLiteReader, u: OperatorUse) -> None:
    x = u.operand(0)
    if x.grid is None and x.dtype not in dtypes.FLOAT:
        raise bad("a DEQUANTIZE of what has no scale")
    r.node("dequantize" if x.grid is not None else "cast", [x], u.outputs)


# Windows and axes.


def _write_pool(w: TFLiteWriter, node: Node) -> None:
    x, mean = node.operands[0], node.op == "average_pool_2d"
    if mean and w.word(node, x) is None and border_means(w.emit, w.constant, node, _activation(node)):
        return
    x, padding = w.window(node, x, -np.inf)
    options = windowed(padding, node.attrs["strides"], _activation(node), filter=node.attrs["window"])
    w.emit(node.op.upper(), [x], node.outputs, **options)


def _read_pool(r: TFLiteReader, u: OperatorUse) -> None:
    window = (u.options["filter_height"], u.options["filter_width"])
    attrs = u.spatial(u.operand(0), window)
    del attrs["dilations"]
    r.node(u.name.lower(), [u.operand(0)], u.outputs, window=window, activation=u.activation(), **attrs)


def _write_arg(w: TFLiteWriter, node: Node) -> None:
    name = "ARG_MAX" if node.op == "argmax" else "ARG_MIN"
    kind, x = TYPE_NUMBERS[node.output.dtype], node.operands[0]
    if x.grid is not None and x.dtype == dtypes.int16:
        # There is none of int16; real numbers are in the same order.
        real = Tensor(f"{node.output.name}/real", x.shape, dtypes.float32)
        w.emit("DEQUANTIZE", [x], [real])
        x = real
    w.emit(name, [x, w.constant(node.attrs["axis"])], node.outputs, output_type=kind)


def _write_topk(w: TFLiteWriter, node: Node) -> None:
    x, (values, places), k = node.operand(), node.outputs, node.attrs["k"]
    n = x.shape[-1]
    if node.attrs["largest"]:
        w.emit("TOPK_V2", [x, w.constant(k)], [values, places])
        return
    # The least are the last of the greatest; turned before and after, equal ones stay in their order.
    along, rank = w.constant([len(x.shape) - 1]), len(x.shape)
    turned, falling, rising = (w.between(values, x.shape, part) for part in ("turned", "falling", "rising"))
    found, back, last = (w.between(places, x.shape, part) for part in ("found", "back", "counted"))
    w.emit("REVERSE_V2", [x, along], [turned])
    w.emit("TOPK_V2", [turned, w.constant(n)], [falling, found])
    w.emit("REVERSE_V2", [falling, along], [rising if k < n else values])
    w.emit("REVERSE_V2", [found, along], [back])
    w.emit("SUB", [w.constant(n - 1), back], [last if k < n else places], fused_activation_function=0)
    if k < n:
        for whole, out in ((rising, values), (last, places)):
            w.emit("SLICE", [whole, w.constant([0] * rank), w.constant(out.shape)], [out])


def _read_topk(r: TFLiteReader, u: OperatorUse) -> None:
    if len(u.outputs) != 2 or u.outputs[1].dtype != dtypes.int32:
        raise bad("a TOPK_V2 that does not give values and places in int32")
    r.node("top_k", [u.operand(0)], u.outputs, k=u.number(1), largest=True)


def _write_gru(w: TFLiteWriter, node: Node) -> None:
    raise w.refuse(node, "no operator is a GRU", "lower the loop for TFLite, which writes it out")


# Moves.


def _write_reshape(w: TFLiteWriter, node: Node) -> None:
    shape = node.output.shape
    if node.output in w.blocks:
        return w.off_grid(w.blocks[node.output], node.output, node.output)
    if not shape:
        # The shape would be a constant without elements, for which Vela refuses the whole file.
        w.emit("SQUEEZE", [node.operands[0]], node.outputs, squeeze_dims=())
        return None
    return w.emit("RESHAPE", [node.operands[0], w.constant(shape)], node.outputs, new_shape=shape)


def _read_reshape(r: TFLiteReader, u: OperatorUse) -> None:
    r.node("reshape", [u.operand(0)], u.outputs, shape=u.output.shape)


def _read_concatenation(r: TFLiteReader, u: OperatorUse) -> None:
    u.plain()
    operands = [u.operand(i) for i in range(len(u.inputs))]
    r.node("concatenation", [*operands], u.outputs, axis=u.options["axis"])


def _write_split(w: TFLiteWriter, node: Node) -> None:
    x, axis, sizes = node.operands[0], w.constant(node.attrs["axis"]), node.attrs["sizes"]
    if len(set(sizes)) == 1:
        w.emit("SPLIT", [axis, x], node.outputs, num_splits=len(sizes))
    else:
        w.emit("SPLIT_V", [x, w.constant(sizes), axis], node.outputs, num_splits=len(sizes))


def _read_split(r: TFLiteReader, u: OperatorUse) -> None:
    x = u.operand(1 if u.name == "SPLIT" else 0)
    axis = u.number(0 if u.name == "SPLIT" else 2)
    axis += len(x.shape) if axis < 0 else 0
    if not 0 <= axis < len(x.shape) or not all(axis < len(t.shape) for t in u.outputs):
        raise bad(f"a {u.name} of {x.shape} at axis {axis}")
    r.node("split", [x], u.outputs, axis=axis, sizes=tuple(t.shape[axis] for t in u.outputs))


def _write_pad(w: TFLiteWriter, node: Node) -> None:
    w.pad(node.operands[0], node.attrs["padding"], node.attrs["value"], node.output)


def _read_pad(r: TFLiteReader, u: OperatorUse) -> None:
    x, widths, value = u.operand(0), u.ints(1), None
    if u.name == "PADV2":
        border = u.operand(2)
        if border.data is None or border.size != 1:
            raise bad("a PADV2 whose value is not one constant")
        real = border.data if border.grid is None else border.grid.dequantize(border.data)
        value = real.reshape(()).astype(np.float64).item() if x.dtype in dtypes.FLOAT or x.grid else real.item()
    if len(widths) != 2 * len(x.shape):
        raise bad(f"a {u.name} of {x.shape} by {widths}")
    r.node("pad", [x], u.outputs, padding=tuple(zip(widths[0::2], widths[1::2], strict=True)), value=value)


def _read_slice(r: TFLiteReader, u: OperatorUse) -> None:
    x, begin, size = u.operand(0), u.ints(1), u.ints(2)
    if not len(begin) == len(size) == len(x.shape):
        raise bad(f"a SLICE of {x.shape} at {begin}")
    whole = tuple(full - b if n == -1 else n for b, n, full in zip(begin, size, x.shape, strict=True))
    r.node("slice", [x], u.outputs, begin=begin, size=whole)


def _read_strided_slice(r: TFLiteReader, u: OperatorUse) -> None:
    x, begin, end, strides = u.operand(0), u.ints(1), u.ints(2), u.ints(3)
    o = u.options
    if o["ellipsis_mask"] or o["new_axis_mask"] or o["offset"]:
        raise bad("a STRIDED_SLICE with an ellipsis, a new axis or offsets")
    if not len(begin) == len(end) == len(strides) == len(x.shape) or min(strides, default=1) < 1:
        raise bad(f"a STRIDED_SLICE of {x.shape}", f"from {begin} to {end} by {strides}")
    starts, stops = list[int](), list[int]()
    for i, n in enumerate(x.shape):
        start = 0 if o["begin_mask"] >> i & 1 else min(max(begin[i] + n * (begin[i] < 0), 0), n)
        stop = n if o["end_mask"] >> i & 1 else min(max(end[i] + n * (end[i] < 0), 0), n)
        starts.append(start)
        stops.append(start + 1 if o["shrink_axis_mask"] >> i & 1 else stop)
    out = u.output
    attrs = {"begin": tuple(starts), "end": tuple(stops), "strides": strides}
    if o["shrink_axis_mask"]:
        shape = tuple(max(-(-(e - b) // s), 0) for b, e, s in zip(starts, stops, strides, strict=True))
        kept = Tensor(f"{out.name}/kept", shape, out.dtype, out.grid)
        r.node("strided_slice", [x], [kept], **attrs)
        r.node("reshape", [kept], [out], shape=out.shape)
    else:
        r.node("strided_slice", [x], [out], **attrs)


def _write_reverse(w: TFLiteWriter, node: Node) -> None:
    # One axis each: the operator takes only neighbouring axes together.
    x, axes = node.operands[0], list(node.attrs["axes"])
    for i, axis in enumerate(axes):
        out = node.output if i == len(axes) - 1 else w.between(x, x.shape, f"reversed_{i}")
        w.emit("REVERSE_V2", [x, w.constant([axis])], [out])
        x = out


def _read_gather(r: TFLiteReader, u: OperatorUse) -> None:
    x, indices = u.operand(0), u.operand(1)
    if u.options["batch_dims"] or indices.dtype not in dtypes.INTEGER:
        raise bad("a GATHER over batches, or by what are no integers")
    source = _looked_up(r, x, indices)
    if source is not None and u.output.dtype == source.dtype:
        r.node("table", [source], u.outputs, function="table", values=x.data)
        return
    r.node("gather", [x, indices], u.outputs, axis=u.options["axis"])


def _write_one_hot(w: TFLiteWriter, node: Node) -> None:
    out = node.output
    on, off = (np.asarray(v) if out.grid is None else out.grid.quantize(np.asarray(v, np.float32)) for v in (1, 0))
    ends = [w.constant(v, out.dtype, out.grid) for v in (on, off)]
    w.emit("ONE_HOT", [node.operands[0], w.constant(node.attrs["depth"]), *ends], [out], axis=node.attrs["axis"])


def _read_one_hot(r: TFLiteReader, u: OperatorUse) -> None:
    for i, expected in ((2, 1), (3, 0)):
        t = u.operand(i)
        real = (
            None
            if t.data is None
            else t.data
            if t.grid is None
            else t.grid.quantize(np.asarray(expected, np.float32)) == t.data
        )
        if real is None or real.size != 1 or real.item() != (expected if t.grid is None else True):
            raise bad("a ONE_HOT of other values than 1 and 0")
    r.node("one_hot", [u.operand(0)], u.outputs, depth=u.number(1), axis=u.options["axis"])


_ACTIVATED: Final = {"activation": "fused_activation_function"}
_NOT_ACTIVATED: Final = {"fused_activation_function": 0}
_AXIS: Final = {"axis": "axis"}
_REDUCED: Final = {"keepdims": "keep_dims"}
_RESIZED: Final = {key: key for key in ("align_corners", "half_pixel_centers")}
_SCANNED: Final = {key: key for key in ("exclusive", "reverse")}
# Ops whose operator has their name and no options that say anything.
_UNARY: Final = "log_softmax logistic tanh relu relu6 relu_n1_to_1 hard_swish elu exp log sqrt rsqrt abs logical_not"
_BINARY: Final = (
    "maximum minimum squared_difference pow equal not_equal less less_equal greater greater_equal logical_and "
    "logical_or prelu"
)
# Those whose operator computes floats only: on int8 they are tables.
_REAL: Final = "square sin cos floor ceil round sign neg"
_ROWS: Final = [
    *(TFLiteRow(op, op.upper()) for op in _UNARY.split()),
    *(TFLiteRow(op, op.upper(), 2) for op in _BINARY.split()),
    *(TFLiteRow(op, op.upper(), write=_write_real) for op in _REAL.split()),
    TFLiteRow("erf", "", write=_write_real),
    *(TFLiteRow(op, op.upper(), 2, options=_ACTIVATED) for op in ("mul", "div")),
    *(TFLiteRow(op, op.upper(), 2, options=_ACTIVATED, write=_write_sum) for op in ("add", "sub")),
    *(TFLiteRow(op, op.upper(), write=_write_conv, read=_read_conv) for op in ("conv_2d", "depthwise_conv_2d")),
    TFLiteRow("transpose_conv", "TRANSPOSE_CONV", write=_write_transpose_conv, read=_read_transpose_conv),
    TFLiteRow("conv_3d", "CONV_3D", write=_write_volume, read=read_volume),
    TFLiteRow("transpose_conv_3d", "CONV_3D_TRANSPOSE", write=_write_volume, read=read_volume),
    TFLiteRow("fully_connected", "FULLY_CONNECTED", write=_write_fully_connected, read=_read_fully_connected),
    TFLiteRow("batch_matmul", "BATCH_MATMUL", 2, options={"adj_x": "adj_x", "adj_y": "adj_y"}),
    *(TFLiteRow(op, op.upper(), write=_write_pool, read=_read_pool) for op in ("max_pool_2d", "average_pool_2d")),
    TFLiteRow("softmax", "SOFTMAX", options={"beta": "beta"}),
    TFLiteRow("leaky_relu", "LEAKY_RELU", options={"alpha": "alpha"}),
    TFLiteRow("gelu", "GELU", options={"approximate": "approximate"}),
    TFLiteRow("table", "", write=_write_table),
    TFLiteRow("select", "SELECT_V2 SELECT", 3, read=_read_select),
    *(
        TFLiteRow(op, op.upper(), constants=("axes",), options=_REDUCED)
        for op in ("mean", "sum", "reduce_max", "reduce_min", "reduce_prod")
    ),
    TFLiteRow("argmax", "ARG_MAX", constants=("axis",), write=_write_arg),
    TFLiteRow("argmin", "ARG_MIN", constants=("axis",), write=_write_arg),
    TFLiteRow("if", "IF", write=write_if, read=read_if),
    TFLiteRow("while", "WHILE", write=write_while, read=read_while),
    TFLiteRow("lstm", "UNIDIRECTIONAL_SEQUENCE_LSTM", write=write_recurrent, read=read_recurrent),
    TFLiteRow("rnn", "UNIDIRECTIONAL_SEQUENCE_RNN", write=write_recurrent, read=read_recurrent),
    TFLiteRow("gru", "", write=_write_gru),
    TFLiteRow("top_k", "TOPK_V2", write=_write_topk, read=_read_topk),
    TFLiteRow("cumsum", "CUMSUM", constants=("axis",), options=_SCANNED),
    TFLiteRow("reshape", "RESHAPE SQUEEZE EXPAND_DIMS", write=_write_reshape, read=_read_reshape),
    TFLiteRow("transpose", "TRANSPOSE", constants=("permutation",)),
    TFLiteRow("concatenation", "CONCATENATION", options=_AXIS, fixed=_NOT_ACTIVATED, read=_read_concatenation),
    TFLiteRow("split", "SPLIT SPLIT_V", write=_write_split, read=_read_split),
    TFLiteRow("slice", "SLICE", constants=("begin", "size"), read=_read_slice),
    TFLiteRow("strided_slice", "STRIDED_SLICE", constants=("begin", "end", "strides"), read=_read_strided_slice),
    TFLiteRow("pad", "PAD PADV2", write=_write_pad, read=_read_pad),
    TFLiteRow("broadcast_to", "BROADCAST_TO", constants=("shape",)),
    TFLiteRow("tile", "TILE", constants=("multiples",)),
    TFLiteRow("reverse", "REVERSE_V2", constants=("axes",), write=_write_reverse),
    TFLiteRow("gather", "GATHER", 2, options=_AXIS, fixed={"batch_dims": 0}, read=_read_gather),
    TFLiteRow("one_hot", "ONE_HOT", write=_write_one_hot, read=_read_one_hot),
    TFLiteRow("resize_bilinear", "RESIZE_BILINEAR", constants=("size",), options=_RESIZED),
    TFLiteRow("resize_nearest", "RESIZE_NEAREST_NEIGHBOR", constants=("size",), options=_RESIZED),
    TFLiteRow("quantize", "QUANTIZE", read=_read_quantize),
    TFLiteRow("dequantize", "DEQUANTIZE", write=_write_dequantize, read=_read_dequantize),
    TFLiteRow("cast", "CAST", write=_write_cast),
]
RULES: Final = {row.op: row for row in _ROWS}
READ: Final = {name: row.taken for row in _ROWS for name in row.operators.split()}


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
        RULES[node.op].written(writer, node)
    return writer.operations


def all_of(found: Iterable[TFLiteOperator]) -> Iterator[TFLiteOperator]:
    """Operators, each with those of the graphs that it holds behind it."""
    for o in found:
        yield o
        for graph in o.options.values():
            if isinstance(graph, NpuGraph):
                yield from all_of(operations(graph))
