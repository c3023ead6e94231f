"""The bytes of a ``.tflite`` file back to an `NpuGraph`; whatever the bytes, a graph that holds together or one error.

The inverse of `tflite`: `flatbuffer` follows the offsets, here each tensor and operator is checked and said in the NPU
vocabulary, and `nxjax.lower.npu.infer` holds the result shapes that the file states against those that follow.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError, NxError
from nxjax.lower.npu import infer
from nxjax.lower.npu.formats import flatbuffer
from nxjax.lower.npu.formats.tflite_ops import same_padding
from nxjax.lower.npu.formats.tflite_schema import (
    ACTIVATIONS,
    BUILTIN_NAMES,
    BUILTINS,
    IDENTIFIER,
    SAME,
    SCHEMA,
    TENSOR_TYPES,
    VALID,
)
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.rewrite import live
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

_MAX_RANK: Final = 32
_MAX_SIZE: Final = 2**40
_CUSTOM: Final = 32


@final
@dataclass
class Operator:
    """One operator as the file has it: its name, or for custom ones the name they give themselves.

    Attributes:
        name: TFLite's name, e.g. "CONV_2D"; "BUILTIN 999" if unknown.
        custom: the custom operator's own name, else "".
        inputs: numbers of tensors, -1 for an absent operand.
        outputs: numbers of tensors.
        options: fields of its options, by the schema's names.
    """

    name: str
    custom: str
    inputs: list[int]
    outputs: list[int]
    options: dict[str, Any]


@final
@dataclass
class TFLiteModel:
    """A file's first subgraph: tensors and operators by number, checked, but not yet in any vocabulary."""

    name: str
    tensors: list[dict[str, Any]]
    buffers: list[dict[str, Any]]
    operators: list[Operator]
    inputs: list[int]
    outputs: list[int]
    data: memoryview


def _bad(why: str, got: object = None) -> InvalidFileError:
    return InvalidFileError(
        f"tflite: {why}", got=got, fix="the file is damaged, or uses what nxjax does not read: convert it again"
    )


def parse(data: bytes) -> TFLiteModel:
    """The tables of a ``.tflite`` file, every number in them checked to be in range.

    Raises:
        InvalidFileError: bytes that are no such file.
    """
    root = flatbuffer.read(SCHEMA, "Model", data, IDENTIFIER, "tflite")
    if root["version"] != 3:
        raise _bad("a version of the format that nxjax does not read", root["version"])
    graphs = root["subgraphs"] or []
    if not graphs:
        raise _bad("the file has no graph")
    graph, codes = graphs[0], root["operator_codes"] or []
    tensors = graph["tensors"] or []

    def numbers(values: Any, absent: bool = False) -> list[int]:
        found = [] if values is None else [int(v) for v in values]
        if any(not (-1 if absent else 0) <= n < len(tensors) for n in found):
            raise _bad("a tensor's number that is out of range", found)
        return found

    operators: list[Operator] = []
    for row in graph["operators"] or []:
        if not row["opcode_index"] < len(codes):
            raise _bad("an operator's code that is out of range", row["opcode_index"])
        code = codes[row["opcode_index"]]
        number = max(code["deprecated_builtin_code"], code["builtin_code"])
        name = BUILTIN_NAMES.get(number, "CUSTOM" if number == _CUSTOM else f"BUILTIN {number}")
        custom = (code["custom_code"] or "?") if number == _CUSTOM else ""
        table, options = row["builtin_options"] or ("", {})
        known = BUILTINS.get(name)
        if known is not None and known.options and table not in ("", known.options):
            raise _bad(f"options {table} at a {name}")
        if known is not None and known.options and not table:
            options = {f.name: f.default for f in SCHEMA.tables[known.options]}
        inputs, outputs = numbers(row["inputs"], absent=True), numbers(row["outputs"])
        operators.append(Operator(name, custom, inputs, outputs, options))
    ends = numbers(graph["inputs"]), numbers(graph["outputs"])
    view = memoryview(data).cast("B")
    return TFLiteModel(graph["name"] or "main", tensors, root["buffers"] or [], operators, *ends, view)


@final
class _Reader:
    """Makes tensors and nodes from a parsed file."""

    def __init__(self, model: TFLiteModel) -> None:
        self.model = model
        self.flat: dict[tuple[int, DType, int], NDArray] = {}
        self.tensors = [self.tensor(row, i) for i, row in enumerate(model.tensors)]
        self.nodes: list[Node] = []
        self.made: dict[Tensor, Node] = {}

    def tensor(self, row: dict[str, Any], number: int) -> Tensor:
        name = row["name"] or f"tensor_{number}"
        dtype = TENSOR_TYPES.get(row["type"])
        if dtype is None:
            raise _bad(f"a tensor {name!r} of a type that nxjax does not read", f"type {row['type']}")
        shape = () if row["shape"] is None else tuple(int(n) for n in row["shape"])
        if len(shape) > _MAX_RANK or any(n < 0 for n in shape) or math.prod(n or 1 for n in shape) > _MAX_SIZE:
            raise _bad(f"a tensor {name!r} of impossible shape", shape[:_MAX_RANK])
        if row["sparsity"] is not None or row["is_variable"]:
            raise _bad(f"a tensor {name!r} that is sparse or a variable")
        grid = self.grid(row["quantization"], name, dtype, shape)
        return Tensor(name, shape, dtype, grid, self.content(row["buffer"], name, dtype, shape))

    def grid(self, row: dict[str, Any] | None, name: str, dtype: DType, shape: Shape) -> Grid | None:
        if row is None or row["scale"] is None or not len(row["scale"]):
            return None
        if row["details"] is not None:
            raise _bad(f"a tensor {name!r} that is quantized in a way that nxjax does not read", row["details"][0])
        if dtype not in dtypes.INTEGER:
            return None
        scales = tuple(row["scale"].tolist())
        zeros = [0] if row["zero_point"] is None or not len(row["zero_point"]) else row["zero_point"].tolist()
        axis = int(row["quantized_dimension"])
        try:
            if len(scales) == 1:
                return Grid(dtype, scales[0], zeros[0])
            if not 0 <= axis < len(shape) or len(scales) != shape[axis] or len(set(zeros)) != 1:
                raise _bad(f"a tensor {name!r} whose scales do not fit its shape", f"{len(scales)} for {shape}")
            return Grid(dtype, scales, zeros[0], axis)
        except NxError as error:
            raise (
                error if isinstance(error, InvalidFileError) else _bad(f"tensor {name!r}: {error.what}", error.got)
            ) from None

    def content(self, buffer: int, name: str, dtype: DType, shape: Shape) -> NDArray | None:
        if buffer >= len(self.model.buffers):
            raise _bad(f"a tensor {name!r} whose buffer is out of range", buffer)
        row, size = self.model.buffers[buffer], math.prod(shape)
        stored = row["data"]
        if row["offset"] > 1:
            # Files above 2 GB keep their constants behind the tables.
            if row["offset"] + row["size"] > len(self.model.data):
                raise _bad(f"a tensor {name!r} whose bytes end outside the file", row["offset"])
            stored = self.model.data[row["offset"] : row["offset"] + row["size"]]
        if stored is None or not len(stored):
            return np.empty(shape, dtype) if size == 0 else None
        width = dtypes.bit_width(dtype)
        if len(stored) != (size * width + 7) // 8:
            raise _bad(f"a tensor {name!r} of {size} elements of {width} bits", f"{len(stored)} bytes")
        key = (buffer, dtype, size)
        if key not in self.flat:
            self.flat[key] = _unpacked(stored, dtype, size)
        return self.flat[key].reshape(shape)

    def node(self, op: str, inputs: list[Tensor | None], outputs: list[Tensor], **attrs: Any) -> None:
        try:
            made = Node(op, tuple(inputs), tuple(outputs), attrs, name=outputs[0].name if outputs else "")
            infer.check(made)
        except NxError as error:
            raise _bad(f"operands that do not fit: {error.what.removeprefix('graph: ')}", error.got) from None
        self.nodes.append(made)
        self.made.update((t, made) for t in outputs)

    def graph(self) -> NpuGraph:
        for o in self.model.operators:
            rule = _RULES.get(o.name)
            if rule is None:
                what = f"custom operator {o.custom!r}" if o.custom else f"operator {o.name}"
                raise _bad(f"an operator that nxjax's NPU graphs do not have: {what}")
            rule(self, _Use(self, o))
        inputs, outputs = ([self.tensors[i] for i in numbers] for numbers in (self.model.inputs, self.model.outputs))
        try:
            graph = NpuGraph(self.model.name, inputs, outputs, self.nodes).check()
            # The steps of a look-up that is a table again.
            return live(graph) if any(n.op == "table" for n in self.nodes) else graph
        except NxError as error:
            raise _bad(f"a graph that does not hold together: {error.what}", error.got) from None


def _unpacked(stored: memoryview, dtype: DType, size: int) -> NDArray:
    """Bytes to elements; the inverse of how the writer packs them."""
    if dtypes.bit_width(dtype) == 4:
        pairs = np.frombuffer(stored, np.uint8)
        halves = np.stack([pairs & 0xF, pairs >> 4], 1).reshape(-1)[:size].astype(np.int8)
        signed = np.where(halves > 7, halves - 16, halves) if dtype in dtypes.SIGNED else halves
        return signed.astype(dtype)
    if dtype == dtypes.bool_:
        return np.frombuffer(stored, np.uint8) != 0
    return np.frombuffer(stored, dtype)


@final
class _Use:
    """One operator while it is read: its operands by place, and the errors that name it."""

    def __init__(self, reader: _Reader, operator: Operator) -> None:
        self.name = operator.name
        self.options = operator.options
        self.inputs = [None if i < 0 else reader.tensors[i] for i in operator.inputs]
        self.outputs = [reader.tensors[i] for i in operator.outputs]
        if not self.outputs:
            raise _bad(f"a {self.name} without a result")

    @property
    def output(self) -> Tensor:
        return self.outputs[0]

    def operand(self, i: int) -> Tensor:
        t = self.inputs[i] if i < len(self.inputs) else None
        if t is None:
            raise _bad(f"a {self.name} without operand {i}")
        return t

    def maybe(self, i: int) -> Tensor | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def ints(self, i: int) -> tuple[int, ...]:
        """The values of a constant operand of integers, such as axes; from the front of any shape."""
        t = self.operand(i)
        if t.data is None or t.dtype not in dtypes.INTEGER or t.size > 2 * _MAX_RANK:
            raise _bad(f"a {self.name} whose operand {i} is not a short constant of integers")
        return tuple(int(v) for v in t.data.reshape(-1).tolist())

    def number(self, i: int) -> int:
        values = self.ints(i)
        if len(values) != 1:
            raise _bad(f"a {self.name} whose operand {i} is not one number", values)
        return values[0]

    def axes(self, i: int, rank: int) -> tuple[int, ...]:
        return tuple(a + rank if a < 0 else a for a in self.ints(i))

    def axis(self, rank: int) -> int:
        axis = int(self.options["axis"])
        return axis + rank if axis < 0 else axis

    def activation(self) -> str | None:
        number = self.options.get("fused_activation_function", 0)
        if not 0 <= number < len(ACTIVATIONS):
            raise _bad(f"a {self.name} with an activation that NPU graphs do not have", number)
        return ACTIVATIONS[number]

    def plain(self) -> None:
        if self.activation() is not None:
            raise _bad(f"a {self.name} with a fused activation")

    def spatial(self, x: Tensor, window: tuple[int, int]) -> dict[str, Any]:
        """Strides, dilations and explicit padding."""
        o = self.options
        strides = (o["stride_h"], o["stride_w"])
        dilations = (o.get("dilation_h_factor", 1), o.get("dilation_w_factor", 1))
        if len(x.shape) != 4 or min(*strides, *dilations, *window) < 1 or o["padding"] not in (SAME, VALID):
            raise _bad(f"a {self.name} of {x.shape} with window {window}, strides {strides}, dilations {dilations}")
        rows = zip(x.shape[1:3], window, strides, dilations, strict=True)
        padding = tuple(same_padding(*row) if o["padding"] == SAME else (0, 0) for row in rows)
        return {"strides": strides, "dilations": dilations, "padding": padding}


def _window(w: Tensor) -> tuple[int, int]:
    if len(w.shape) != 4:
        raise _bad("weights that have not four dimensions", w.shape)
    return w.shape[1], w.shape[2]


def _conv(r: _Reader, u: _Use) -> None:
    x, w = u.operand(0), u.operand(1)
    attrs = u.spatial(x, _window(w))
    op = u.name.lower()
    if op == "conv_2d":
        attrs["groups"] = x.shape[3] // max(w.shape[3], 1)
    r.node(op, [x, w, u.maybe(2)], u.outputs, activation=u.activation(), **attrs)


def _transpose_conv(r: _Reader, u: _Use) -> None:
    w, x, out = u.operand(1), u.operand(2), u.output
    if len(out.shape) != 4 or u.ints(0) != out.shape:
        raise _bad("a TRANSPOSE_CONV whose result is not of the shape it asks for", out.shape)
    attrs = u.spatial(x, _window(w))
    padding: list[tuple[int, int]] = []
    for n, k, s, full in zip(out.shape[1:3], _window(w), attrs["strides"], x.shape[1:3], strict=True):
        low = same_padding(n, k, s)[0] if u.options["padding"] == SAME else 0
        padding.append((low, (full - 1) * s + k - n - low))
    given: dict[str, Any] = {"strides": attrs["strides"], "padding": tuple(padding), "activation": u.activation()}
    r.node("transpose_conv", [x, w, u.maybe(3)], u.outputs, **given)


def _fully_connected(r: _Reader, u: _Use) -> None:
    x, w = u.operand(0), u.operand(1)
    if u.options["weights_format"] != 0 or len(w.shape) != 2 or not w.shape[1] or x.size % w.shape[1]:
        raise _bad(f"a FULLY_CONNECTED of {x.shape} with weights {w.shape}")
    if not u.options["keep_num_dims"] and len(x.shape) != 2:
        flat = Tensor(f"{x.name}/flat", (x.size // w.shape[1], w.shape[1]), x.dtype, x.grid)
        r.node("reshape", [x], [flat], shape=flat.shape)
        x = flat
    r.node("fully_connected", [x, w, u.maybe(2)], u.outputs, activation=u.activation())


def _batch_matmul(r: _Reader, u: _Use) -> None:
    adjoint = {key: bool(u.options[key]) for key in ("adj_x", "adj_y")}
    r.node("batch_matmul", [u.operand(0), u.operand(1)], u.outputs, **adjoint)


def _arithmetic(r: _Reader, u: _Use) -> None:
    r.node(u.name.lower(), [u.operand(0), u.operand(1)], u.outputs, activation=u.activation())


def _binary(r: _Reader, u: _Use) -> None:
    r.node(u.name.lower(), [u.operand(0), u.operand(1)], u.outputs)


def _unary(r: _Reader, u: _Use) -> None:
    r.node(u.name.lower(), [u.operand(0)], u.outputs)


def _pool(r: _Reader, u: _Use) -> None:
    window = (u.options["filter_height"], u.options["filter_width"])
    attrs = u.spatial(u.operand(0), window)
    del attrs["dilations"]
    r.node(u.name.lower(), [u.operand(0)], u.outputs, window=window, activation=u.activation(), **attrs)


def _reduce(r: _Reader, u: _Use) -> None:
    x = u.operand(0)
    keepdims = bool(u.options["keep_dims"])
    r.node(u.name.lower(), [x], u.outputs, axes=u.axes(1, len(x.shape)), keepdims=keepdims)


def _arg(r: _Reader, u: _Use) -> None:
    x = u.operand(0)
    axis = u.number(1)
    r.node(u.name.lower().replace("_", ""), [x], u.outputs, axis=axis + len(x.shape) if axis < 0 else axis)


def _with(*keys: str) -> Callable[[_Reader, _Use], None]:
    """A rule for a unary operator whose options are attributes of the same names."""

    def rule(r: _Reader, u: _Use) -> None:
        r.node(u.name.lower(), [u.operand(0)], u.outputs, **{key: u.options[key] for key in keys})

    return rule


def _reshape(r: _Reader, u: _Use) -> None:
    r.node("reshape", [u.operand(0)], u.outputs, shape=u.output.shape)


def _transpose(r: _Reader, u: _Use) -> None:
    r.node("transpose", [u.operand(0)], u.outputs, permutation=u.ints(1))


def _concatenation(r: _Reader, u: _Use) -> None:
    u.plain()
    operands = [u.operand(i) for i in range(len(u.inputs))]
    r.node("concatenation", [*operands], u.outputs, axis=u.axis(len(u.operand(0).shape)))


def _split(r: _Reader, u: _Use) -> None:
    x = u.operand(1 if u.name == "SPLIT" else 0)
    axis = u.number(0 if u.name == "SPLIT" else 2)
    axis += len(x.shape) if axis < 0 else 0
    if not 0 <= axis < len(x.shape) or not all(axis < len(t.shape) for t in u.outputs):
        raise _bad(f"a {u.name} of {x.shape} at axis {axis}")
    r.node("split", [x], u.outputs, axis=axis, sizes=tuple(t.shape[axis] for t in u.outputs))


def _slice(r: _Reader, u: _Use) -> None:
    x, begin, size = u.operand(0), u.ints(1), u.ints(2)
    if not len(begin) == len(size) == len(x.shape):
        raise _bad(f"a SLICE of {x.shape} at {begin}")
    whole = tuple(full - b if n == -1 else n for b, n, full in zip(begin, size, x.shape, strict=True))
    r.node("slice", [x], u.outputs, begin=begin, size=whole)


def _strided_slice(r: _Reader, u: _Use) -> None:
    x, begin, end, strides = u.operand(0), u.ints(1), u.ints(2), u.ints(3)
    o = u.options
    if o["ellipsis_mask"] or o["new_axis_mask"] or o["offset"]:
        raise _bad("a STRIDED_SLICE with an ellipsis, a new axis or offsets")
    if not len(begin) == len(end) == len(strides) == len(x.shape) or min(strides, default=1) < 1:
        raise _bad(f"a STRIDED_SLICE of {x.shape}", f"from {begin} to {end} by {strides}")
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


def _pad(r: _Reader, u: _Use) -> None:
    x, widths, value = u.operand(0), u.ints(1), None
    if u.name == "PADV2":
        border = u.operand(2)
        if border.data is None or border.size != 1:
            raise _bad("a PADV2 whose value is not one constant")
        real = border.data if border.grid is None else border.grid.dequantize(border.data)
        value = real.reshape(()).astype(np.float64).item() if x.dtype in dtypes.FLOAT or x.grid else real.item()
    if len(widths) != 2 * len(x.shape):
        raise _bad(f"a {u.name} of {x.shape} by {widths}")
    r.node("pad", [x], u.outputs, padding=tuple(zip(widths[0::2], widths[1::2], strict=True)), value=value)


def _reverse(r: _Reader, u: _Use) -> None:
    r.node("reverse", [u.operand(0)], u.outputs, axes=u.axes(1, len(u.operand(0).shape)))


def _constants(key: str) -> Callable[[_Reader, _Use], None]:
    """A rule for an operator whose second operand is an attribute."""

    def rule(r: _Reader, u: _Use) -> None:
        r.node(u.name.lower(), [u.operand(0)], u.outputs, **{key: u.ints(1)})

    return rule


def _gather(r: _Reader, u: _Use) -> None:
    x, indices = u.operand(0), u.operand(1)
    if u.options["batch_dims"] or indices.dtype not in dtypes.INTEGER:
        raise _bad("a GATHER over batches, or by what are no integers")
    source = _looked_up(r, x, indices)
    if source is not None and u.output.dtype == source.dtype:
        r.node("table", [source], u.outputs, function="table", values=x.data)
        return
    r.node("gather", [x, indices], u.outputs, axis=u.axis(len(x.shape)))


def _looked_up(r: _Reader, x: Tensor, indices: Tensor) -> Tensor | None:
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


def _one_hot(r: _Reader, u: _Use) -> None:
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
            raise _bad("a ONE_HOT of other values than 1 and 0")
    x = u.operand(0)
    r.node("one_hot", [x], u.outputs, depth=u.number(1), axis=u.axis(len(x.shape) + 1))


def _select(r: _Reader, u: _Use) -> None:
    operands = [u.operand(i) for i in range(3)]
    if operands[0].dtype != dtypes.bool_:
        raise _bad(f"a {u.name} whose condition is not boolean")
    if u.name == "SELECT" and operands[0].shape != operands[1].shape:
        raise _bad("a SELECT of whole rows")
    r.node("select", [*operands], u.outputs)


def _cumsum(r: _Reader, u: _Use) -> None:
    x, axis = u.operand(0), u.number(1)
    flags = {key: bool(u.options[key]) for key in ("exclusive", "reverse")}
    r.node("cumsum", [x], u.outputs, axis=axis + len(x.shape) if axis < 0 else axis, **flags)


def _resize(r: _Reader, u: _Use) -> None:
    op = "resize_bilinear" if u.name == "RESIZE_BILINEAR" else "resize_nearest"
    flags = {key: bool(u.options[key]) for key in ("align_corners", "half_pixel_centers")}
    r.node(op, [u.operand(0)], u.outputs, size=u.ints(1), **flags)


def _quantize(r: _Reader, u: _Use) -> None:
    if u.output.grid is None:
        raise _bad("a QUANTIZE whose result has no scale")
    r.node("quantize", [u.operand(0)], u.outputs)


def _dequantize(r: _Reader, u: _Use) -> None:
    x = u.operand(0)
    if x.grid is None and x.dtype not in dtypes.FLOAT:
        raise _bad("a DEQUANTIZE of what has no scale")
    r.node("dequantize" if x.grid is not None else "cast", [x], u.outputs)


_RULES: Final[dict[str, Callable[[_Reader, _Use], None]]] = {
    **dict.fromkeys(("CONV_2D", "DEPTHWISE_CONV_2D"), _conv),
    "TRANSPOSE_CONV": _transpose_conv,
    "FULLY_CONNECTED": _fully_connected,
    "BATCH_MATMUL": _batch_matmul,
    **dict.fromkeys(("ADD", "SUB", "MUL", "DIV"), _arithmetic),
    **dict.fromkeys(("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE", "POW", "PRELU", "LOGICAL_AND", "LOGICAL_OR"), _binary),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL"), _binary),
    **dict.fromkeys(("LOG_SOFTMAX", "LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "HARD_SWISH", "ELU"), _unary),
    **dict.fromkeys(("EXP", "LOG", "SQRT", "RSQRT", "ABS", "NEG", "SQUARE", "SIN", "COS", "FLOOR", "CEIL"), _unary),
    **dict.fromkeys(("ROUND", "SIGN", "LOGICAL_NOT", "CAST"), _unary),
    **dict.fromkeys(("MAX_POOL_2D", "AVERAGE_POOL_2D"), _pool),
    **dict.fromkeys(("MEAN", "SUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), _reduce),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), _arg),
    "SOFTMAX": _with("beta"),
    "LEAKY_RELU": _with("alpha"),
    "GELU": _with("approximate"),
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS"), _reshape),
    "TRANSPOSE": _transpose,
    "CONCATENATION": _concatenation,
    **dict.fromkeys(("SPLIT", "SPLIT_V"), _split),
    "SLICE": _slice,
    "STRIDED_SLICE": _strided_slice,
    **dict.fromkeys(("PAD", "PADV2"), _pad),
    "BROADCAST_TO": _constants("shape"),
    "TILE": _constants("multiples"),
    "REVERSE_V2": _reverse,
    "GATHER": _gather,
    "ONE_HOT": _one_hot,
    **dict.fromkeys(("SELECT", "SELECT_V2"), _select),
    "CUMSUM": _cumsum,
    **dict.fromkeys(("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR"), _resize),
    "QUANTIZE": _quantize,
    "DEQUANTIZE": _dequantize,
}


def read(data: bytes) -> NpuGraph:
    """The graph of a ``.tflite`` file; constants are views of ``data``.

    Padding comes out explicit, attributes that the file keeps in constant tensors as attributes, and the look-up that
    is written for a table as a table: what the graph computes is the same.

    Raises:
        InvalidFileError: the bytes are not such a file, it does not hold together, or it has operators, types or
            quantization that NPU graphs have not. Nothing else is ever raised, whatever the bytes.

    >>> read(b"TFL3?")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    nxjax.errors.InvalidFileError: tflite: the file is not of this format
    """
    return _Reader(parse(data)).graph()
