"""`NpuGraph` to the bytes of a ``.tflite`` file, straight from the schema: no package, same graph, same bytes.

Numbers tensors, packs constants and lays the model out; which operators say a node is `tflite_ops`' to know.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.lower.npu.formats import flatbuffer, tflite_control, tflite_ops, tflite_versions
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_schema import BUILTINS, IDENTIFIER, SCHEMA, TYPE_NUMBERS
from nxjax.lower.npu.graph import NpuGraph, Tensor, unique
from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes

_VERSION: Final = 3
# The runtime's own field for its version is 16 bytes, padded with zeros.
_RUNTIME_FIELD: Final = 16
_MAX_DIMENSION: Final = 2**31 - 1


def write(graph: NpuGraph) -> bytes:
    """The graph as a TFLite model of one subgraph with the signature "serving_default".

    Constants are copied once. Inputs and outputs keep their names (made unique), so that runtimes can ask by name.

    Raises:
        LoweringError: a node that TFLite has no operators for.
        DtypeError: a tensor of a dtype that TFLite has not.
        ShapeError: a size that does not fit 32 bits.

    >>> from nxjax.lower.npu.graph import Node
    >>> x, y = (Tensor(name, (1, 4), "float32") for name in "xy")
    >>> write(NpuGraph("g", [x], [y], [Node("tanh", (x,), (y,))]))[4:8]
    b'TFL3'
    """
    return encode(graph, tflite_ops.operations(graph))


def encode(graph: NpuGraph, operations: list[TFLiteOperator]) -> bytes:
    """The bytes of a model of ``operations``, which say ``graph``."""
    file = ModelTables()
    place, names = file.subgraph(graph, operations)
    row = file.subgraphs[place]
    file.sign("serving_default", place, *([names[i] for i in row[key]] for key in ("inputs", "outputs")))
    return file.bytes()


@final
class ModelTables:
    """A file in the making: its subgraphs, and what they share.

    Attributes:
        subgraphs: the tables of each.
        signatures: what names subgraphs, their inputs and their results, so that runtimes can ask for them.
    """

    def __init__(self) -> None:
        self.subgraphs: list[dict[str, Any]] = []
        self.signatures: list[dict[str, Any]] = []
        # Buffer 0 is the empty one, of everything that is not constant.
        self._buffers: list[dict[str, Any]] = [{}]
        self._held: dict[bytes, int] = {}
        self._codes: dict[tuple[str, int], int] = {}

    def buffer(self, data: NDArray) -> int:
        """The number of the one buffer of equal bytes, whatever shapes and grids they are read under."""
        content = packed(data)
        number = self._held.setdefault(hashlib.blake2b(content).digest(), len(self._buffers))
        if number == len(self._buffers):
            self._buffers.append({"data": content})
        return number

    def code(self, name: str, version: int) -> int:
        """The number of an operator of a version."""
        return self._codes.setdefault((name, version), len(self._codes))

    def subgraph(self, graph: NpuGraph, operations: list[TFLiteOperator]) -> tuple[int, list[str]]:
        """Add a subgraph, and those that its operators hold; its number, and the names of its tensors."""
        operands = (t for o in operations for t in o.inputs if t is not None)
        results = (t for o in operations for t in o.outputs)
        constants = [t for t in dict.fromkeys([*operands, *graph.outputs]) if t.constant]
        tensors = list(dict.fromkeys([*graph.inputs, *constants, *results, *graph.outputs]))
        number = {t: i for i, t in enumerate(tensors)}
        taken: dict[str, int] = {}
        names = [unique(t.name, taken) for t in tensors]
        stored = [0 if t.data is None else self.buffer(t.data) for t in tensors]
        rows = [tensor_row(t, name, place) for t, name, place in zip(tensors, names, stored, strict=True)]
        inputs, outputs = ([number[t] for t in ts] for ts in (graph.inputs, graph.outputs))
        for t in dict.fromkeys(t for o in operations for t in o.variables):
            rows[number[t]]["is_variable"] = True
        row: dict[str, Any] = {"tensors": rows, "inputs": inputs, "outputs": outputs, "name": graph.name or "main"}
        place = self.add(row)
        row["operators"] = [self._operator(o, number) for o in operations]
        return place, names

    def add(self, row: dict[str, Any]) -> int:
        """Add the tables of a subgraph; its number."""
        self.subgraphs.append(row)
        return len(self.subgraphs) - 1

    def _operator(self, o: TFLiteOperator, number: dict[Tensor, int]) -> dict[str, Any]:
        version = tflite_versions.version(o.name, o.inputs, o.outputs, o.options)
        fields: dict[str, Any] = {
            "opcode_index": self.code(o.name, version),
            "inputs": [-1 if t is None else number[t] for t in o.inputs],
            "outputs": [number[t] for t in o.outputs],
        }
        table = BUILTINS[o.name].options
        if table is not None:
            fields["builtin_options"] = (table, {name: self._option(value) for name, value in o.options.items()})
        return fields

    def _option(self, value: Any) -> Any:
        """An option as the file has it: of a graph its number."""
        if not isinstance(value, NpuGraph):
            return value
        return self.subgraph(*tflite_control.part(value, tflite_ops.operations(value)))[0]

    def sign(self, key: str, place: int, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """Name a subgraph, its inputs and its results."""
        made: dict[str, Any] = {"signature_key": key, "subgraph_index": place}
        for kind, names in (("inputs", inputs), ("outputs", outputs)):
            taken: dict[str, int] = {}
            pairs = zip(self.subgraphs[place][kind], names, strict=True)
            made[kind] = [{"name": unique(name, taken), "tensor_index": i} for i, name in pairs]
        self.signatures.append(made)

    def bytes(self) -> bytes:
        """The file."""
        runtime = max((tflite_versions.runtime(*key) for key in self._codes), key=_release, default="1.5.0")
        buffers = [*self._buffers, {"data": runtime.encode().ljust(_RUNTIME_FIELD, b"\0")}]
        tables: dict[str, Any] = {
            "version": _VERSION,
            "operator_codes": [_code(name, version) for name, version in self._codes],
            "subgraphs": self.subgraphs,
            "description": "nxjax",
            "buffers": buffers,
            "metadata": [{"name": "min_runtime_version", "buffer": len(buffers) - 1}],
            "signature_defs": self.signatures,
        }
        return flatbuffer.write(SCHEMA, "Model", tables, IDENTIFIER)


def _release(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _code(name: str, version: int) -> dict[str, Any]:
    code = BUILTINS[name].code
    # Readers from before codes above 127 look at the first field.
    return {"deprecated_builtin_code": min(code, 127), "builtin_code": code, "version": version}


def tensor_row(t: Tensor, name: str, buffer: int) -> dict[str, Any]:
    kind = TYPE_NUMBERS.get(t.dtype)
    if kind is None:
        raise DtypeError(
            f"tflite: the format has no tensors of {dtypes.short_name(t.dtype)}",
            got=f"{t.name}: {dtypes.short_name(t.dtype)}{list(t.shape)}",
            expected=", ".join(map(dtypes.short_name, TYPE_NUMBERS)),
            fix="convert to one of these dtypes",
        )
    if max(t.shape, default=0) > _MAX_DIMENSION:
        raise ShapeError("tflite: a size that does not fit the format", got=f"{t.name}: {t.shape}", expected="32 bits")
    fields: dict[str, Any] = {"shape": t.shape, "type": kind, "buffer": buffer, "name": name, "has_rank": True}
    if t.grid is not None:
        fields["quantization"] = _grid(t.grid)
    return fields


def _grid(grid: Grid) -> dict[str, Any]:
    scales = grid.scale if isinstance(grid.scale, tuple) else (grid.scale,)
    zeros = [grid.zero_point] * len(scales)
    return {"scale": scales, "zero_point": zeros, "quantized_dimension": grid.axis or 0}


def packed(data: NDArray) -> memoryview:
    """The stored bytes of a constant: little-endian, 4-bit integers two to a byte, the first in the low half."""
    data = np.ascontiguousarray(data)
    if dtypes.bit_width(data.dtype) == 4:
        halves = data.reshape(-1).astype(np.int8).view(np.uint8) & 0xF
        halves = np.append(halves, np.uint8(0)) if halves.size % 2 else halves
        data = halves[0::2] | halves[1::2] << 4
    elif data.dtype.byteorder == ">":
        data = data.astype(data.dtype.newbyteorder("<"))
    return data.reshape(-1).view(np.uint8).data
