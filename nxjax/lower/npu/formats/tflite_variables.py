"""``.tflite`` files that keep a state: its leaves are variables, and each function is a signature of its own.

A graph takes and gives its state; here the same graph, number by number, reads variables first and assigns them last,
as the LiteRT of a device does: ``VAR_HANDLE``, ``READ_VARIABLE``, ``ASSIGN_VARIABLE``. What the variables hold before
the first call is in a graph that each signature runs once (``CALL_ONCE``). Two more signatures read and write all
variables: "save" and "restore". Constants that several graphs have are stored once. Knows no target and no function.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from nxjax.errors import ExecutionError, LoweringError
from nxjax.lower.npu.formats import tflite, tflite_ops
from nxjax.lower.npu.formats.flatbuffer import ObjectPlace, root_of
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_file import parse_all
from nxjax.lower.npu.formats.tflite_schema import RESOURCE, SCHEMA
from nxjax.lower.npu.graph import NpuGraph, Tensor
from nxjax.ops.base import NDArray

SAVE, RESTORE = "save", "restore"
_ONCE: Final = "CALL_ONCE"
# A tensor as the format's tables have it.
Row = dict[str, Any]


@final
@dataclass(frozen=True)
class StateVariable:
    """A leaf of the state.

    Attributes:
        name: of the variable in the file, and of what "save" gives and "restore" takes.
        tensor: its shape, dtype and grid.
        first: what it holds before the first call, as it is stored.
    """

    name: str
    tensor: Tensor
    first: NDArray


@final
@dataclass(frozen=True)
class StatefulGraph:
    """A graph that works on variables.

    Attributes:
        name: of its signature.
        graph: with the state among its inputs and results.
        reads: the number of the variable that each of these inputs is, by place.
        writes: the number of the variable that each of these results is assigned to, by place.
    """

    name: str
    graph: NpuGraph
    reads: Mapping[int, int]
    writes: Mapping[int, int] = field(default_factory=dict[int, int])


def write(
    graphs: Sequence[StatefulGraph],
    variables: Sequence[StateVariable],
    operations: Callable[[NpuGraph], list[TFLiteOperator]] = tflite_ops.operations,
) -> bytes:
    """The bytes of a file with a signature for each graph, of which the first is the file's main one.

    Args:
        graphs: one or several, with different names.
        variables: the leaves of the state.
        operations: what a graph is said in.

    Raises:
        LoweringError: two signatures of one name; a graph that takes or gives a variable in another type.

    >>> from nxjax.lower.npu.graph import Node
    >>> n, step, total = (Tensor(name, (1,), "float32") for name in ("n", "step", "total"))
    >>> count = NpuGraph("count", [n, step], [total], [Node("add", (n, step), (total,))])
    >>> variable = StateVariable("n", n, jnp.zeros(1).numpy())
    >>> data = write([StatefulGraph("count", count, {0: 0}, {0: 0})], [variable])
    >>> f = nx.interop.from_tflite(data, signature="count")
    >>> state, results = f(f.params, {"n": jnp.array([2.0])}, jnp.array([3.0]))
    >>> f.state["n"].tolist(), state["n"].tolist()
    ([0.0], [5.0])
    """
    names = [*(g.name for g in graphs), SAVE, RESTORE]
    if len(set(names)) < len(names):
        raise LoweringError("tflite: two signatures have one name", got=", ".join(names))
    file = _File(variables, operations)
    for g in graphs:
        file.function(g)
    file.ends()
    return file.tables.bytes()


def file_name(graphs: Sequence[StatefulGraph], suffix: str = "") -> str:
    """The file's name: that of its main graph."""
    return f"{graphs[0].name}_variables{suffix}.tflite"


@final
class _File:
    """The tables of a file in the making."""

    def __init__(
        self, variables: Sequence[StateVariable], operations: Callable[[NpuGraph], list[TFLiteOperator]]
    ) -> None:
        self.variables, self.operations = variables, operations
        self.tables = tflite.ModelTables()
        # Operators that run the first graph, whose number is known in the end.
        self.starts: list[Row] = []

    def function(self, given: StatefulGraph) -> None:
        """A graph, with its variables read and assigned."""
        graph = given.graph
        for places, ends in ((given.reads, graph.inputs), (given.writes, graph.outputs)):
            for place, number in places.items():
                self.same_kind(given.name, ends[place], self.variables[number])
        at, names = self.tables.subgraph(graph, self.operations(graph))
        row = self.tables.subgraphs[at]
        tensors, inputs, outputs = row["tensors"], row["inputs"], row["outputs"]
        handles, before = self.handles(tensors, sorted({*given.reads.values(), *given.writes.values()}))
        read = {number: inputs[place] for place, number in given.reads.items()}
        before += [self.operator("READ_VARIABLE", [handles[number]], [i]) for number, i in read.items()]
        after = [
            self.operator("ASSIGN_VARIABLE", [handles[number], outputs[place]], [])
            for place, number in given.writes.items()
            # What comes out as it went in is not written.
            if outputs[place] != read.get(number)
        ]
        row["inputs"] = [i for place, i in enumerate(inputs) if place not in given.reads]
        row["outputs"] = [i for place, i in enumerate(outputs) if place not in given.writes]
        row |= {"operators": [*before, *row["operators"], *after], "name": given.name}
        self.tables.sign(given.name, at, *([names[i] for i in row[key]] for key in ("inputs", "outputs")))

    def same_kind(self, name: str, t: Tensor, variable: StateVariable) -> None:
        v = variable.tensor
        if (t.shape, t.dtype, t.grid) != (v.shape, v.dtype, v.grid):
            kind = lambda t: f"{t.dtype}{list(t.shape)}" + (f" on {t.grid}" if t.grid is not None else "")
            raise LoweringError(
                f"tflite: {name} has another type of the variable {variable.name}", got=kind(t), expected=kind(v)
            )

    def ends(self) -> None:
        """What saves and restores the variables, and what sets them at first."""
        names = [v.name for v in self.variables]
        everything = range(len(self.variables))
        for key in (SAVE, RESTORE, ""):
            tensors = [
                tflite.tensor_row(v.tensor, v.name, 0 if key else self.tables.buffer(v.first)) for v in self.variables
            ]
            handles, operators = self.handles(tensors, everything, once=bool(key))
            if key == SAVE:
                operators += [self.operator("READ_VARIABLE", [handles[i]], [i]) for i in everything]
            else:
                operators += [self.operator("ASSIGN_VARIABLE", [handles[i], i], []) for i in everything]
            row = {"tensors": tensors, "operators": operators, "name": key or "first"}
            row |= {"inputs": [*everything] if key == RESTORE else [], "outputs": [*everything] if key == SAVE else []}
            at = self.tables.add(row)
            if key:
                self.tables.sign(key, at, names if key == RESTORE else [], names if key == SAVE else [])
            else:
                for start in self.starts:
                    start["builtin_options"] = "CallOnceOptions", {"init_subgraph_index": at}

    def handles(
        self, tensors: list[Row], numbers: Sequence[int], once: bool = True
    ) -> tuple[dict[int, int], list[Row]]:
        """The tensors that name variables, by their numbers, and the operators to begin a graph with."""
        found: dict[int, int] = {}
        operators = [self.operator(_ONCE, [], [])] if once else []
        self.starts += operators
        for number in numbers:
            name = self.variables[number].name
            found[number] = len(tensors)
            tensors.append({"shape": (), "type": RESOURCE, "buffer": 0, "name": f"{name}/handle", "has_rank": True})
            options = "VarHandleOptions", {"container": "", "shared_name": name}
            operators.append(self.operator("VAR_HANDLE", [], [found[number]], options))
        return found, operators

    def operator(self, name: str, inputs: list[int], outputs: list[int], options: Any = None) -> Row:
        row: Row = {"opcode_index": self.tables.code(name, 1), "inputs": inputs, "outputs": outputs}
        return row | ({"builtin_options": options} if options is not None else {})


def begun(data: bytes) -> bytes:
    """A compiled file that sets its variables before anything else.

    Compilers order operators by what they read, and an operator without results is read by none: where the first
    values would be set last, they go in front. Such an operator has no tensors, so that no plan of memory changes.

    Raises:
        ExecutionError: a variable is assigned before it is read.
    """
    made = bytearray(data)
    root = root_of(SCHEMA, "Model", data)
    for model, place in zip(parse_all(data), _items(root, "subgraphs"), strict=True):
        operators, vector = model.operators, place.field("operators")
        if vector is None:
            continue
        assigned: set[int] = set()
        for o in operators:
            if o.name == "ASSIGN_VARIABLE":
                assigned.add(o.inputs[0])
            elif o.name == "READ_VARIABLE" and o.inputs[0] in assigned:
                raise ExecutionError(
                    "tflite: the compiled file assigns a variable before it reads it",
                    got=str(model.tensors[o.inputs[0]]["name"]),
                )
        tables = [t.position for t in vector.items()]
        # Stable: all but these stay in their order.
        order = sorted(range(len(tables)), key=lambda i: operators[i].name != _ONCE)
        for i, old in enumerate(order):
            # A link is relative to where it lies.
            at = vector.position + 4 + 4 * i
            struct.pack_into("<I", made, at, tables[old] - at)
    return bytes(made)


def _items(place: ObjectPlace, name: str) -> list[ObjectPlace]:
    found = place.field(name)
    return [] if found is None else found.items()
