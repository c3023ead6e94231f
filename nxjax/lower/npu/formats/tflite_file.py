"""The tables of a ``.tflite`` file, checked, and the graph made of them: whatever the bytes, a graph or one error.

`flatbuffer` follows the offsets, here each tensor and operator is checked, and `nxjax.lower.npu.infer` holds the result
shapes that the file states against those that follow. Knows no operator: rules are given to it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError, NxError
from nxjax.lower.npu import infer
from nxjax.lower.npu.formats import flatbuffer
from nxjax.lower.npu.formats.tflite_build import same_padding
from nxjax.lower.npu.formats.tflite_schema import (
    ACTIVATIONS,
    BUILTIN_NAMES,
    IDENTIFIER,
    OPTIONS,
    RESOURCE,
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

# A file has so many graphs at most; they may all lie in one another.
_PARTS: Final = 64
_MAX_RANK: Final = 32
_MAX_SIZE: Final = 2**40
# Ops that are read from more than one operator.
_READING: Final = frozenset(("table", "lstm", "rnn"))
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
        intermediates: numbers of tensors that hold the grids of values inside it.
    """

    name: str
    custom: str
    inputs: list[int]
    outputs: list[int]
    options: dict[str, Any]
    intermediates: list[int]


@final
@dataclass
class TFLiteModel:
    """A subgraph of a file: tensors and operators by number, checked, but not yet in any vocabulary."""

    name: str
    tensors: list[dict[str, Any]]
    buffers: list[dict[str, Any]]
    operators: list[Operator]
    inputs: list[int]
    outputs: list[int]
    data: memoryview

    def content(self, buffer: int, name: str, dtype: DType, shape: Shape) -> NDArray | None:
        """The elements of a tensor, flat, if they are stored: a view where bytes are elements."""
        if buffer >= len(self.buffers):
            raise bad(f"a tensor {name!r} whose buffer is out of range", buffer)
        stored, size = self.stored(buffer, name), math.prod(shape)
        if stored is None:
            return np.empty(0, dtype) if size == 0 else None
        width = 8 * dtype.itemsize if dtype == np.complex64 else dtypes.bit_width(dtype)
        if len(stored) != (size * width + 7) // 8:
            raise bad(f"a tensor {name!r} of {size} elements of {width} bits", f"{len(stored)} bytes")
        return _unpacked(stored, dtype, size)

    def stored(self, buffer: int, name: str) -> memoryview | None:
        """The bytes of a buffer, if it has some."""
        row = self.buffers[buffer]
        stored = row["data"]
        if row["offset"] > 1:
            # Files above 2 GB keep their constants behind the tables.
            if row["offset"] + row["size"] > len(self.data):
                raise bad(f"a tensor {name!r} whose bytes end outside the file", row["offset"])
            stored = self.data[row["offset"] : row["offset"] + row["size"]]
        return stored if stored is not None and len(stored) else None


def bad(why: str, got: object = None) -> InvalidFileError:
    return InvalidFileError(
        f"tflite: {why}", got=got, fix="the file is damaged, or uses what nxjax does not read: convert it again"
    )


def parse(data: bytes) -> TFLiteModel:
    """The first subgraph of a ``.tflite`` file, every number in it checked to be in range.

    Raises:
        InvalidFileError: bytes that are no such file.
    """
    root = tables(data)
    return subgraph(root, root["subgraphs"][0], memoryview(data).cast("B"))


def parse_all(data: bytes) -> list[TFLiteModel]:
    """All subgraphs of a ``.tflite`` file, checked; errors as of `parse`."""
    root, view = tables(data), memoryview(data).cast("B")
    return [subgraph(root, graph, view) for graph in root["subgraphs"]]


def others(data: bytes) -> Callable[[int], TFLiteModel]:
    """Gives the other subgraphs of a file by number, each checked when it is asked for."""
    root, view = tables(data), memoryview(data).cast("B")

    def of(index: int) -> TFLiteModel:
        if not 0 < index < len(root["subgraphs"]):
            raise bad("a graph's number that is out of range", index)
        return subgraph(root, root["subgraphs"][index], view)

    return of


def tables(data: bytes | memoryview) -> dict[str, Any]:
    """The tables of a ``.tflite`` file, which has a graph.

    Raises:
        InvalidFileError: bytes that are no such file.
    """
    root = flatbuffer.read(SCHEMA, "Model", data, IDENTIFIER, "tflite")
    if root["version"] != 3:
        raise bad("a version of the format that nxjax does not read", root["version"])
    if not root["subgraphs"]:
        raise bad("the file has no graph")
    return root


def subgraph(root: dict[str, Any], graph: dict[str, Any], view: memoryview) -> TFLiteModel:
    """One of the subgraphs of `tables`, checked.

    Raises:
        InvalidFileError: a number that is out of range.
    """
    codes, tensors = root["operator_codes"] or [], graph["tensors"] or []

    def numbers(values: Any, absent: bool = False) -> list[int]:
        found = [] if values is None else [int(v) for v in values]
        if any(not (-1 if absent else 0) <= n < len(tensors) for n in found):
            raise bad("a tensor's number that is out of range", found)
        return found

    operators: list[Operator] = []
    for row in graph["operators"] or []:
        if not row["opcode_index"] < len(codes):
            raise bad("an operator's code that is out of range", row["opcode_index"])
        code = codes[row["opcode_index"]]
        number = max(code["deprecated_builtin_code"], code["builtin_code"])
        name = BUILTIN_NAMES.get(number, "CUSTOM" if number == _CUSTOM else f"BUILTIN {number}")
        custom = (code["custom_code"] or "?") if number == _CUSTOM else ""
        table, options = row["builtin_options"] or row["builtin_options_2"] or ("", {})
        expected = OPTIONS.get(name)
        if expected and table not in ("", expected):
            raise bad(f"options {table} at a {name}")
        if expected and not table:
            options = {f.name: f.default for f in SCHEMA.tables[expected]}
        inputs, outputs = numbers(row["inputs"], absent=True), numbers(row["outputs"], absent=True)
        operators.append(Operator(name, custom, inputs, outputs, options, numbers(row["intermediates"], absent=True)))
    ends = numbers(graph["inputs"]), numbers(graph["outputs"])
    return TFLiteModel(graph["name"] or "main", tensors, root["buffers"] or [], operators, *ends, view)


@final
class TFLiteReader:
    """Makes tensors and nodes from a parsed file, each operator by its rule."""

    def __init__(
        self,
        model: TFLiteModel,
        rules: Mapping[str, Callable[[TFLiteReader, OperatorUse], None]],
        others: Callable[[int], TFLiteModel] | None = None,
        parts: dict[int, NpuGraph | None] | None = None,
    ) -> None:
        self.model, self.rules, self.others = model, rules, others
        # Other graphs of the file; None of one that is being read.
        self.parts: dict[int, NpuGraph | None] = {} if parts is None else parts
        self.flat: dict[tuple[int, DType, int], NDArray] = {}
        # Numbers of variables that no operator has written yet.
        self.variables: set[int] = set()
        self.tensors = [self.tensor(row, i) for i, row in enumerate(model.tensors)]
        self.nodes: list[Node] = []
        self.made: dict[Tensor, Node] = {}

    def tensor(self, row: dict[str, Any], number: int) -> Tensor:
        name = row["name"] or f"tensor_{number}"
        dtype = TENSOR_TYPES.get(row["type"])
        if row["type"] == RESOURCE:
            raise InvalidFileError(
                "tflite: the file keeps a state in variables, which NPU graphs do not have",
                got=name,
                fix='nx.interop.from_tflite(path, signature="...") reads it, as a function of the state',
            )
        if dtype is None:
            raise bad(f"a tensor {name!r} of a type that nxjax does not read", f"type {row['type']}")
        shape = () if row["shape"] is None else tuple(int(n) for n in row["shape"])
        if len(shape) > _MAX_RANK or any(n < 0 for n in shape) or math.prod(n or 1 for n in shape) > _MAX_SIZE:
            raise bad(f"a tensor {name!r} of impossible shape", shape[:_MAX_RANK])
        if row["sparsity"] is not None:
            raise bad(f"a tensor {name!r} that is sparse")
        if row["is_variable"]:
            self.variables.add(number)
        grid = self.grid(row["quantization"], name, dtype, shape)
        return Tensor(name, shape, dtype, grid, self.content(row["buffer"], name, dtype, shape))

    def grid(self, row: dict[str, Any] | None, name: str, dtype: DType, shape: Shape) -> Grid | None:
        if row is None or row["scale"] is None or not len(row["scale"]):
            return None
        if row["details"] is not None:
            raise bad(f"a tensor {name!r} that is quantized in a way that nxjax does not read", row["details"][0])
        if dtype not in dtypes.INTEGER:
            return None
        scales = tuple(row["scale"].tolist())
        zeros = [0] if row["zero_point"] is None or not len(row["zero_point"]) else row["zero_point"].tolist()
        axis = int(row["quantized_dimension"])
        try:
            if len(scales) == 1:
                return Grid(dtype, scales[0], zeros[0])
            if not 0 <= axis < len(shape) or len(scales) != shape[axis] or len(set(zeros)) != 1:
                raise bad(f"a tensor {name!r} whose scales do not fit its shape", f"{len(scales)} for {shape}")
            return Grid(dtype, scales, zeros[0], axis)
        except NxError as error:
            raise (
                error if isinstance(error, InvalidFileError) else bad(f"tensor {name!r}: {error.what}", error.got)
            ) from None

    def content(self, buffer: int, name: str, dtype: DType, shape: Shape) -> NDArray | None:
        key = (buffer, dtype, math.prod(shape))
        if key not in self.flat:
            found = self.model.content(buffer, name, dtype, shape)
            if found is None:
                return None
            self.flat[key] = found
        return self.flat[key].reshape(shape)

    def node(self, op: str, inputs: list[Tensor | None], outputs: list[Tensor], **attrs: Any) -> None:
        try:
            made = Node(op, tuple(inputs), tuple(outputs), attrs, name=outputs[0].name if outputs else "")
            infer.check(made)
        except NxError as error:
            raise bad(f"operands that do not fit: {error.what.removeprefix('graph: ')}", error.got) from None
        self.nodes.append(made)
        self.made.update((t, made) for t in outputs)

    def part(self, index: int) -> NpuGraph:
        """Another graph of the file, which an operator of this one holds."""
        if self.others is None or len(self.parts) > _PARTS:
            raise bad(f"a file of more than {_PARTS} graphs", self.model.name)
        if index not in self.parts:
            self.parts[index] = None
            self.parts[index] = TFLiteReader(self.others(index), self.rules, self.others, self.parts).graph()
        found = self.parts[index]
        if found is None:
            raise bad("a graph that holds itself", index)
        return found

    def graph(self) -> NpuGraph:
        for o in self.model.operators:
            rule = self.rules.get(o.name)
            if rule is None:
                what = f"custom operator {o.custom!r}" if o.custom else f"operator {o.name}"
                raise InvalidFileError(
                    f"tflite: an operator that nxjax's NPU graphs do not have: {what}",
                    fix="such an operator holds what a tool compiled for a chip: load the file that the tool was given"
                    if o.custom
                    else "nx.interop.from_tflite reads the file as a function, and more operators",
                )
            if unwritten := self.variables.intersection(o.inputs):
                names = ", ".join(self.tensors[i].name for i in sorted(unwritten))
                raise bad("a variable that is read before an operator writes it: a state", names)
            self.variables.difference_update(o.outputs)
            rule(self, OperatorUse(self, o))
        inputs, outputs = ([self.tensors[i] for i in numbers] for numbers in (self.model.inputs, self.model.outputs))
        try:
            graph = NpuGraph(self.model.name, inputs, outputs, self.nodes).check()
            # The steps of a look-up that is a table again, weights that layers took in.
            return live(graph) if any(n.op in _READING for n in self.nodes) else graph
        except NxError as error:
            raise bad(f"a graph that does not hold together: {error.what}", error.got) from None


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
class OperatorUse:
    """One operator while it is read: its operands by place, and the errors that name it."""

    def __init__(self, reader: TFLiteReader, operator: Operator) -> None:
        self.name = operator.name
        self.options = operator.options
        self.numbers = operator.inputs
        self.inputs = [None if i < 0 else reader.tensors[i] for i in operator.inputs]
        self.outputs = [reader.tensors[i] for i in operator.outputs if i >= 0]
        if not self.outputs:
            raise bad(f"a {self.name} without a result")

    @property
    def output(self) -> Tensor:
        return self.outputs[0]

    def operand(self, i: int) -> Tensor:
        t = self.inputs[i] if i < len(self.inputs) else None
        if t is None:
            raise bad(f"a {self.name} without operand {i}")
        return t

    def maybe(self, i: int) -> Tensor | None:
        return self.inputs[i] if i < len(self.inputs) else None

    def ints(self, i: int) -> tuple[int, ...]:
        """The values of a constant operand of integers, such as axes; from the front of any shape."""
        t = self.operand(i)
        if t.data is None or t.dtype not in dtypes.INTEGER or t.size > 2 * _MAX_RANK:
            raise bad(f"a {self.name} whose operand {i} is not a short constant of integers")
        return tuple(int(v) for v in t.data.reshape(-1).tolist())

    def number(self, i: int) -> int:
        values = self.ints(i)
        if len(values) != 1:
            raise bad(f"a {self.name} whose operand {i} is not one number", values)
        return values[0]

    def activation(self) -> str | None:
        number = self.options.get("fused_activation_function", 0)
        if not 0 <= number < len(ACTIVATIONS):
            raise bad(f"a {self.name} with an activation that NPU graphs do not have", number)
        return ACTIVATIONS[number]

    def plain(self) -> None:
        if self.activation() is not None:
            raise bad(f"a {self.name} with a fused activation")

    def spatial(self, x: Tensor, window: tuple[int, int]) -> dict[str, Any]:
        """Strides, dilations and explicit padding."""
        o = self.options
        strides = (o["stride_h"], o["stride_w"])
        dilations = (o.get("dilation_h_factor", 1), o.get("dilation_w_factor", 1))
        if len(x.shape) != 4 or min(*strides, *dilations, *window) < 1 or o["padding"] not in (SAME, VALID):
            raise bad(f"a {self.name} of {x.shape} with window {window}, strides {strides}, dilations {dilations}")
        rows = zip(x.shape[1:3], window, strides, dilations, strict=True)
        padding = tuple(same_padding(*row) if o["padding"] == SAME else (0, 0) for row in rows)
        return {"strides": strides, "dilations": dilations, "padding": padding}
