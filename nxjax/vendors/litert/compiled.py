"""Compiled ``.tflite`` files: what a vendor's compiler left to the host, and the written file run on the host.

A compiler replaces the part that its chip runs by operators of its own; the others it leaves as they were, under the
names of their results. Knows files, no vendor.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, final

from nxjax.backends import tools
from nxjax.backends.evidence import digest
from nxjax.backends.extras import installed
from nxjax.backends.target import Build, Runner
from nxjax.errors import InvalidFileError, LoweringError
from nxjax.lower.npu.formats import tflite
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_file import TFLiteModel, parse
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import unknown
from nxjax.lower.placement import Placement
from nxjax.vendors.litert.target import LiteRTSession
from nxjax.vendors.probe import probe


def left_for_host(model: bytes, custom: str) -> tuple[list[str], int]:
    """Names of the first results of a file's operators that are not ``custom``, and how many are ``custom``.

    Of a compiled ``.tflite``, whose part for the chip is one operator or several of that name. Operators without
    results, which set variables, have no such name.
    """
    found = parse(model)
    host = [str(found.tensors[o.outputs[0]]["name"]) for o in found.operators if o.custom != custom and o.outputs]
    return host, sum(o.custom == custom for o in found.operators)


def refuse_other(written: bytes, compiled: bytes) -> None:
    """Raise `InvalidFileError` where a compiled file does not take and give what the written one does.

    A tool that was asked for one model and answers with another has said nothing of the first. What comes in and goes
    out keeps its shape, type and grid. Names may be others, and inputs that nothing reads may be gone.
    """
    asked, given = (_ends(parse(data)) for data in (written, compiled))
    more = Counter(given["inputs"]) - Counter(asked["inputs"])
    if more or given["outputs"] != asked["outputs"]:
        raise InvalidFileError("the compiled file is of another model", got=given, expected=asked)


# What `refuse_other` and `doubt` check of a compiled file.
CHECKED: Final = f"inputs and results by shape, type and grid; {tools.CHECKED}"


@lru_cache(1)
def another() -> bytes:
    """Another model's file, for `nxjax.backends.tools.doubt`."""
    return tflite.write(probe(quantized=True))


def _ends(model: TFLiteModel) -> dict[str, list[tuple[object, ...]]]:
    """Shapes, types and grids of what comes in and goes out."""

    def kind(i: int) -> tuple[object, ...]:
        t = model.tensors[i]
        grid: Any = t["quantization"] or {}
        # A single zero point of 0 may be left out.
        scale, zero = _numbers(grid.get("scale"), float), _numbers(grid.get("zero_point"), int)
        return _numbers(t["shape"], int), int(t["type"]), scale, tuple(n for n in zero if n) if scale else ()

    return {"inputs": [kind(i) for i in model.inputs], "outputs": [kind(i) for i in model.outputs]}


def _numbers(vector: Any, kind: type) -> tuple[Any, ...]:
    return () if vector is None else tuple(map(kind, vector))


def operator_names(model: bytes) -> list[tuple[str, list[str]]]:
    """Each operator of a file's first subgraph: its builtin name, and the names of its results."""
    found = parse(model)
    return [(o.name, [str(found.tensors[i]["name"]) for i in o.outputs]) for o in found.operators]


def recognized(host: Sequence[str], written: Sequence[tuple[str, list[str]]]) -> tuple[set[str], list[str]]:
    """The written results that operators left for the host stand for, and the operators that stand for none.

    A compiler that moves an operator names its result anew, behind the name it had: ``select/Transpose/Transpose``.
    """
    known = {name for _, results in written for name in results}
    found: set[str] = set()
    strange: list[str] = []
    for name in host:
        parts = name.split("/")
        whole = ("/".join(parts[:n]) for n in range(len(parts), 0, -1))
        owner = next((start for start in whole if start in known), None)
        strange += [name] if owner is None else []
        found |= set() if owner is None else {owner}
    return found, strange


@final
@dataclass(frozen=True)
class LeftOperator:
    """An operator that a compiler left to the host: its number, its kind, and the name of its first result."""

    number: int
    kind: str
    name: str


def placements(
    table: Sequence[Placement],
    graph: NpuGraph,
    operations: Sequence[TFLiteOperator],
    written: bytes,
    host: Sequence[str],
    nothing: bool,
    why: Callable[[Node, Placement, list[LeftOperator]], str],
) -> tuple[list[Placement], list[str]]:
    """One row per node, which is on the host if the compiled file leaves any operator of it there.

    Args:
        table: the rows by published rules, for suggestions.
        host: what is left there, by the names of first results (`left_for_host`).
        nothing: whether the chip has no part of the file, so that all operators are on the host.
        why: the reason for a node, told its row in the table and its operators that are left.

    Returns:
        the rows, and a note where operators are left that nothing here can name.
    """
    names = operator_names(written)
    left, strange = recognized(host, names)
    hosted: dict[Node, list[LeftOperator]] = {}
    for i, (operation, (kind, results)) in enumerate(zip(operations, names, strict=True)):
        if operation.node is not None and (nothing or left.intersection(results)):
            hosted.setdefault(operation.node, []).append(LeftOperator(i, kind, results[0]))
    rows: list[Placement] = []
    for node, row in zip(graph.nodes, table, strict=True):
        if node in hosted:
            rows.append(replace(row, device="host", reason=why(node, row, hosted[node]), decided_by="vendor"))
        elif strange:
            rows.append(unknown(node, "the compiled file leaves operators to the host that nothing here can name"))
        else:
            rows.append(replace(row, device="npu", reason="", suggestion="", decided_by="vendor"))
    return rows, [f"the compiled file has host operators that were not written: {strange}"] if strange else []


def started(graph: NpuGraph, operations: list[TFLiteOperator], rows: list[Placement]) -> tuple[Build, bytes]:
    """A build of the file that says ``operations``, and the file.

    Where LiteRT is here, its reference kernels run the file on the host: these chips' integers are specified by them.
    """
    data, name = tflite.encode(graph, operations), f"{graph.name or 'model'}.tflite"
    build = Build({name: data}, rows)
    if not installed("ai_edge_litert"):
        build.notes.append("LiteRT is not installed, so that the file cannot be run here: pip install 'nxjax[litert]'")
        return build, data
    try:
        session = LiteRTSession(data, operations)
    except LoweringError as e:
        build.notes.append(f"LiteRT on the host cannot run the file: {e.got}")
        return build, data
    build.runner = Runner(session, f"host reference of {name} ({session.runs_on})", "host", (digest(data),))
    build.notes += session.notes
    if graph.rounding == "single":
        build.notes.append(
            "the host reference rounds twice: it may differ by one unit from this graph's single rounding"
        )
    return build, data
