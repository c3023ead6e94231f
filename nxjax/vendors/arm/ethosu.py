"""Arm's microNPUs Ethos-U55, U65 and U85 through Vela, and Ethos-N through its TFLite delegate.

Writes a ``.tflite`` file, has Vela compile it, and reports what Vela placed: the file that came out is asked, not the
exit status, since to Vela a file with nothing on the NPU is a success too. Knows graphs and `ethosu_vela`.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar, Final, final

from nxjax.backends.evidence import Label, digest
from nxjax.backends.extras import installed
from nxjax.backends.target import Build, Kind, NpuTarget, Site, only, variant
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.cost import estimate
from nxjax.lower.npu.formats import tflite_ops, tflite_variables
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.formats.tflite_file import parse_all
from nxjax.lower.npu.formats.tflite_variables import StatefulGraph, StateVariable
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.ops import op_of
from nxjax.lower.placement import Placement, Verdict
from nxjax.vendors.arm import ethosn_table as ethos_n
from nxjax.vendors.arm import ethosu_table as ethos_u
from nxjax.vendors.arm import vela as ethosu_vela
from nxjax.vendors.arm.rewrite import same_bits
from nxjax.vendors.arm.vela import VelaOptions, VelaResult
from nxjax.vendors.litert.compiled import CHECKED, LeftOperator, placements, started
from nxjax.vendors.litert.table import Table
from nxjax.vendors.litert.target import run_here

_SETTINGS: Final = tuple(f.name for f in fields(VelaOptions) if f.name not in ("series", "size"))


class EthosU(NpuTarget):
    """One configuration of Ethos-U.

    Options of `build`: ``system_config``, ``memory_mode`` and ``config`` (sections of Vela's configuration file and
    another such file), ``optimise`` ("Performance" or "Size"), ``arena_cache_size`` (bytes of fast memory).
    """

    name: ClassVar[str]
    title: ClassVar[str]
    format: ClassVar[str] = "tflite"
    site: ClassVar[Site] = "edge"
    extra: ClassVar[str] = ethosu_vela.EXTRA
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8")
    rules: ClassVar[str] = "Arm's published constraints on operators, types and sizes"
    exact: ClassVar[bool] = True
    variables: ClassVar[bool] = True
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Arm", "Ethos-U", drivers=("ethosu",), nodes=("dev/ethosu*",), module="ethosu", extra="ethosu",
             target="ethos-u65"),
    )  # fmt: skip
    series: ClassVar[str]
    size: ClassVar[int]

    def available(self) -> tuple[Label, str]:
        if installed("ethosu"):
            return "vendor-compiled", f"Vela {ethosu_vela.version()} compiles; no Ethos-U is here to run it"
        return "emitted", f"Vela is not installed: pip install 'nxjax[{self.extra}]'"

    def supports(self, node: Node) -> Verdict:
        table = ethos_u.table(self.series)
        return table.verdict(node, same_bits(table))

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the file, and let Vela compile and place it where Vela is installed."""
        settings = _settings(self.name, self.series, self.size, options)
        name = graph.name or "model"
        operations = same_bits(ethos_u.table(self.series))(tflite_ops.operations(graph))
        build, data = started(graph, operations, [])
        if not installed("ethosu"):
            return self._modelled(build, graph, self.available()[1])
        took, tool = (digest(data),), f"Vela {ethosu_vela.version()}"
        try:
            compiled = ethosu_vela.compile_model(data, settings)
        except ExecutionError as e:
            build.blame(e, "vendor-compiler", tool, took)
            if not e.refused:
                return self._modelled(build, graph, f"{tool} gave no answer ({e.got})")
            build.placements = self._refused(graph, f"Vela refuses the whole file: {e.got}")
            build.notes.append(f"{tool} refuses the file, nothing of it runs on the NPU: {e.got}")
            return build
        build.files = {f"{name}_vela.tflite": compiled.model, **build.files}
        build.record(
            "compiled", "vendor-compiler", tool, command=compiled.command, status=compiled.status, took=took,
            gave=(digest(compiled.model),),
            answer=f"{compiled.npu} operators on the NPU, {len(compiled.host)} left to the host",
            checked=CHECKED,
        )  # fmt: skip
        build.placements = self._placements(graph, operations, data, compiled)
        if compiled.layers:
            build.files[f"{name}_vela_layers.csv"] = layers_csv(graph, operations, compiled)
        build.cost = compiled.cost
        build.notes += compiled.notes
        if compiled.npu:
            build.notes.append(
                f"costs are estimates of {tool} at {compiled.clock / 1e6:g} MHz, "
                f"{settings.system_config}, {settings.memory_mode}"
            )
        else:
            build.notes.append(f"{tool} placed nothing on the NPU: all runs on the host")
        return build

    def keeping(
        self,
        build: Build,
        graphs: Sequence[StatefulGraph],
        variables: Sequence[StateVariable],
        options: dict[str, object],
    ) -> None:
        """Write the file with variables, and let Vela compile it, too; its count of operators is a note."""
        table = ethos_u.table(self.series)
        said = lambda graph: same_bits(table)(tflite_ops.operations(graph))
        data, name = tflite_variables.write(graphs, variables, said), tflite_variables.file_name(graphs)
        build.files = {name: data, **build.files}
        run_here(build, name, data, graphs[0], variables)
        if not installed("ethosu"):
            return
        took, tool = (digest(data),), f"Vela {ethosu_vela.version()}"
        try:
            compiled = ethosu_vela.compile_model(data, _settings(self.name, self.series, self.size, options))
            model = tflite_variables.begun(compiled.model)
        except ExecutionError as e:
            build.blame(e, "vendor-compiler", tool, took)
            # Vela 5.2 ends on integer variables without dimensions.
            single = [v.name for v in variables if not v.tensor.shape]
            fix = f"; give {', '.join(single)} a dimension" if single else ""
            build.notes.append(f"{tool} does not compile {name}, the file with variables: {e.got}{fix}")
            return
        build.files = {tflite_variables.file_name(graphs, "_vela"): model, **build.files}
        build.record(
            "compiled", "vendor-compiler", tool, command=compiled.command, status=compiled.status, took=took,
            gave=(digest(model),), checked=CHECKED,
            answer=f"{compiled.npu} operators on the NPU, {_left(model)} left to the host, of all signatures together",
        )  # fmt: skip

    def _modelled(self, build: Build, graph: NpuGraph, why: str) -> Build:
        """The build without Vela's answer."""
        build.placements = self.placed(graph)
        build.cost = estimate(graph, f"ethos-{self.series}-{self.size}", build.placements)
        build.notes.append(f"{why}; placed by Arm's published constraints, cost by our own model")
        return build

    def _refused(self, graph: NpuGraph, why: str) -> list[Placement]:
        """All on the host; nodes that break a published rule are told so."""
        return [replace(r, device="host", reason=r.reason or why, decided_by="vendor") for r in self.placed(graph)]

    def _placements(
        self, graph: NpuGraph, operations: list[TFLiteOperator], data: bytes, compiled: VelaResult
    ) -> list[Placement]:
        """One row per node: on the host if the compiled file leaves any operator of it there."""

        def why(n: Node, row: Placement, left: list[LeftOperator]) -> str:
            reasons = ((o.kind, compiled.reasons.get(o.name, "")) for o in left)
            said = "; ".join(dict.fromkeys(f"{kind}: {reason}" for kind, reason in reasons if reason))
            if n.op == "table":
                said = f"{n.attrs.get('function', 'it')} is a look-up in TFLite; {said}"
            return said or row.reason or "Vela gives no reason"

        rows, strange = placements(self.placed(graph), graph, operations, data, compiled.host, False, why)
        compiled.notes += strange
        if compiled.npu:
            return rows
        folded = "Vela folded it away; nothing of this file runs on the NPU"
        return [replace(r, device="host", reason=folded) if r.device == "npu" else r for r in rows]


def _left(model: bytes) -> int:
    """How many operators a file leaves to the host in all its graphs."""
    return sum(not o.custom for graph in parse_all(model) for o in graph.operators)


def layers_csv(graph: NpuGraph, operations: list[TFLiteOperator], compiled: VelaResult) -> bytes:
    """Vela's cycles per node, with the user's lines. A node that was fused into another has none of its own."""
    cycles: dict[Node, int] = {}
    for i, operation in enumerate(operations):
        if operation.node is not None:
            cycles[operation.node] = cycles.get(operation.node, 0) + compiled.layers.get(i, 0)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow(["node", "op", "line", "multiply-accumulates", "cycles"])
    rows.writerows([n.name, n.op, str(n.source or ""), op_of(n).macs(n), cycles.get(n, 0)] for n in graph.nodes)
    return text.getvalue().encode()


def _settings(target: str, series: str, size: int, options: dict[str, object]) -> VelaOptions:
    only(target, options, _SETTINGS)
    given: dict[str, Any] = dict(options)
    for key, value in given.items():
        kind = int if key == "arena_cache_size" else str
        if not isinstance(value, kind) or isinstance(value, bool):
            raise ParameterError(f"{target}: option {key}", got=repr(value), expected=kind.__name__)
    return VelaOptions(series, size, **given)


def _sized(series: str, size: int, name: str = "") -> type[EthosU]:
    title = f"Arm Ethos-{series.upper()}, {size} multiply-accumulates a cycle"
    return variant(EthosU, name or f"ethos-{series}-{size}", title, series=series, size=size)


@final
class EthosN(NpuTarget):
    """Arm Ethos-N: a ``.tflite`` file for Arm NN's delegate, whose compiler is part of the device's driver."""

    name: ClassVar[str] = "ethos-n"
    title: ClassVar[str] = "Arm Ethos-N78 (TFLite file for Arm NN)"
    site: ClassVar[Site] = "edge"
    format: ClassVar[str] = "tflite"
    extra: ClassVar[str] = "litert"
    precision: ClassVar[tuple[str, ...]] = ("int8",)
    rules: ClassVar[str] = "Arm's published constraints on operators, types and sizes"
    table: ClassVar[Table] = ethos_n.TABLE

    def available(self) -> tuple[Label, str]:
        return "emitted", "Arm NN compiles for Ethos-N on the device itself"

    def supports(self, node: Node) -> Verdict:
        return self.table.verdict(node)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the file; placements are by Arm's published constraints."""
        only(self.name, options, ())
        build, data = started(graph, tflite_ops.operations(graph), self.placed(graph))
        build.cost.add("file", len(data), "bytes", "measured")
        build.notes.append("placed by Arm's published constraints; Arm NN on the device decides")
        return build


# A series' own name means the size that its boards have most often.
TARGETS: Final[tuple[type[NpuTarget], ...]] = (
    _sized("u55", 128, "ethos-u55"),
    *(_sized("u55", size) for size in (32, 64, 128, 256)),
    _sized("u65", 256, "ethos-u65"),
    *(_sized("u65", size) for size in (256, 512)),
    _sized("u85", 256, "ethos-u85"),
    *(_sized("u85", size) for size in (128, 256, 512, 1024, 2048)),
    EthosN,
)
