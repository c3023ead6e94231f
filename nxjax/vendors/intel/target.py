"""Intel's NPU through OpenVINO, and OpenVINO's CPU and GPU: the targets "intel-npu...", "openvino-cpu", "openvino-gpu".

One model serves all three. For the NPU it goes as far as this machine allows: to the chip, to its compiler, or to the
host's CPU plugin, which computes the same model; virtual devices that pick one silently are not used. What ran where
and in which precision is read back from OpenVINO and reported.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, ClassVar, Final, final

from nxjax.backends import tools
from nxjax.backends.evidence import Label, digest, digests
from nxjax.backends.extras import installed
from nxjax.backends.target import Build, Kind, NpuTarget, Runner, Site, only, variant
from nxjax.backends.tools import CHECKED
from nxjax.errors import ExecutionError, LoweringError, ParameterError
from nxjax.lower.npu.formats.openvino_net import node_names, owner
from nxjax.lower.npu.formats.openvino_writer import build, serialize
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import place, placed
from nxjax.lower.placement import YES, Cost, Placement, Verdict
from nxjax.trace import dtypes
from nxjax.vendors.intel import compiler as intel_compiler
from nxjax.vendors.intel import power as intel_power
from nxjax.vendors.intel import table
from nxjax.vendors.intel.compiler import CompilerReply
from nxjax.vendors.intel.openvino_run import (
    CPU,
    EXTRA,
    OpenVINOSession,
    core,
    has_vnni,
    open_session,
    openvino,
    version,
)
from nxjax.vendors.intel.table import RECURRENT
from nxjax.vendors.probe import probe

_OPTIONS: Final = ("config", "hint", "measure", "platform", "power")
_MISSING: Final = f"OpenVINO is not installed: pip install 'nxjax[{EXTRA}]'"
_HOST: Final = "OpenVINO's CPU plugin computes on the host"
_EIGHT: Final = frozenset((dtypes.int8, dtypes.uint8, dtypes.int4))
_INTEGER_KERNELS: Final = ("i8", "u8")


def checked(target: str, options: dict[str, object]) -> tuple[dict[str, str], bool, str]:
    """Options ``config`` (the plugin's properties by name, ``hint`` one of them), ``measure`` and ``platform``."""
    only(target, options, _OPTIONS)
    config = options.get("config", {})
    if not isinstance(config, dict):
        raise ParameterError(f"{target}: option config", got=config, expected="a dict of OpenVINO properties")
    if options.get("power") is not None and not target.startswith("intel-npu"):
        raise ParameterError(f"{target}: option power", got=options["power"], fix="it is for intel-npu targets")
    if options.get("hint") is not None:
        config = {"PERFORMANCE_HINT": intel_power.hint(str(options["hint"]))} | config
    platform = str(options.get("platform", "") or "")
    if platform and platform not in table.PLATFORMS:
        raise ParameterError(f"{target}: no such platform", got=platform, expected=", ".join(table.PLATFORMS))
    return {str(k): str(v) for k, v in config.items()}, bool(options.get("measure")), platform


def integer_products(graph: NpuGraph) -> list[int]:
    """The nodes that multiply integers of at most eight bits with each other."""
    found: list[int] = []
    for i, n in enumerate(graph.nodes):
        operands = [t for t in n.inputs[:2] if t is not None]
        if n.op in table.PRODUCTS and all(t.grid is not None and t.dtype in _EIGHT for t in operands):
            found.append(i)
    return found


def host_notes(graph: NpuGraph, precisions: dict[int, str]) -> list[str]:
    """Whether products of integers ran in integer kernels on the host, and whether those can saturate."""
    products = integer_products(graph)
    if not products:
        return []
    apart: dict[str, list[int]] = {}
    for i in products:
        apart.setdefault(precisions.get(i, ""), []).append(i)
    eight = sum(len(apart.pop(kind, ())) for kind in _INTEGER_KERNELS)
    notes = [f"OpenVINO's CPU plugin ran {eight} of {len(products)} int8 products in int8 kernels"]
    for kind, found in apart.items():
        where = [f"{n.op} {n.name}" + (f" at {n.source}" if n.source else "") for n in (graph.nodes[i] for i in found)]
        listed = ", ".join(where[:4]) + (f" and {len(where) - 4} more" if len(where) > 4 else "")
        ran = f"ran in {kind}" if kind else "were merged into kernels that do not say their precision"
        notes.append(f"on the host {len(found)} {ran}: {listed}")
    if has_vnni() is False:
        notes.append(
            "this CPU has no VNNI: OpenVINO's int8 kernels saturate sums of two products in 16 bits, so results on the "
            "host can be far from the NPU's; weights of seven bits avoid it"
        )
    return notes


class OpenVinoTarget(NpuTarget):
    """What the three devices share: the model, its files, and the host's CPU plugin.

    Options of `build`: ``config`` (OpenVINO properties for the device's plugin), ``hint`` ("latency", "throughput"),
    ``measure`` (time runs), ``platform`` (of the NPU), ``power`` (of the NPU: "powersaver", "balanced", "turbo", ...).
    """

    format: ClassVar[str] = "openvino"
    extra: ClassVar[str] = EXTRA
    recurrent: ClassVar[frozenset[str]] = RECURRENT

    def supports(self, node: Node) -> Verdict:
        return YES

    def written(self, graph: NpuGraph) -> tuple[Any, Build]:
        """A `Build` that has the model's files and sizes, and the model as it is read from these files."""
        openvino()
        files = serialize(build(graph), graph.name or "model")
        model = reread(files)
        cost = Cost()
        cost.add("weights", graph.weights, "bytes", "model")
        cost.add("file", sum(map(len, files.values())), "bytes", "measured")
        return model, Build(files, [], cost, host=self.host)

    def on_host(self, graph: NpuGraph, model: Any, made: Build, config: dict[str, str]) -> OpenVINOSession:
        """Give ``made`` the CPU plugin to run on, with notes on what it computes in."""
        session = open_session(model, "CPU", CPU | config)
        title = f"OpenVINO {version()} CPU plugin on the host ({session.title})"
        made.runner = Runner(session, title, "host", model_files(made))
        made.record("loaded", "host", title, took=made.runner.took)
        names = {name: i for i, name in enumerate(node_names(graph))}
        try:
            made.notes += host_notes(graph, session.precisions(lambda name: owner(name, names)))
        except ExecutionError as error:
            made.notes.append(f"unknown in which precision the host ran: {error.got}")
        return session

    def instead(self, graph: NpuGraph, model: Any, made: Build) -> None:
        """The host for a device that is not here; nothing at all where the CPU plugin refuses the model."""
        try:
            self.on_host(graph, model, made, {})
        except ExecutionError as error:
            made.notes.append(f"the host cannot stand in for the device: {error.got}")


@final
class OpenVinoCpu(OpenVinoTarget):
    """OpenVINO on this machine's CPU."""

    name: ClassVar[str] = "openvino-cpu"
    title: ClassVar[str] = "OpenVINO on the CPU"
    host: ClassVar[bool] = True
    precision: ClassVar[tuple[str, ...]] = ("int8", "float32")

    def available(self) -> tuple[Label, str]:
        return ("host", "OpenVINO computes on this machine's CPU") if installed("openvino") else ("emitted", _MISSING)

    def placed(self, graph: NpuGraph) -> list[Placement]:
        """Every node on the host: this target has no other device."""
        return [placed(n, "host", _HOST, decided_by="table") for n in graph.nodes]

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        config, measure, _ = checked(self.name, options)
        model, made = self.written(graph)
        session = self.on_host(graph, model, made, config)
        made.placements = [placed(n, "host", _HOST) for n in graph.nodes]
        made.cost.timed(measure, session.measure)
        return made


@final
class OpenVinoGpu(OpenVinoTarget):
    """OpenVINO on an Intel GPU; on the host where there is none."""

    name: ClassVar[str] = "openvino-gpu"
    title: ClassVar[str] = "Intel GPU through OpenVINO"
    precision: ClassVar[tuple[str, ...]] = ("int8", "float16", "float32")
    # What a GPU takes its plugin says, where there is one.
    rules: ClassVar[str] = ""

    def available(self) -> tuple[Label, str]:
        if not installed("openvino"):
            return "emitted", _MISSING
        if intel_compiler.gpu_present():
            return "hardware", ""
        return "emitted", "no Intel GPU here: OpenVINO's CPU plugin computes the same model"

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        config, measure, _ = checked(self.name, options)
        model, made = self.written(graph)
        if "GPU" not in {d.split(".")[0] for d in core().available_devices}:
            made.notes.append("OpenVINO finds no GPU on this machine")
            made.placements = self.placed(graph)
            self.instead(graph, model, made)
            return made
        session = open_session(model, "GPU", {"PERFORMANCE_HINT": "LATENCY"} | config)
        made.runner = Runner(session, f"{session.title} through OpenVINO {version()}", "chip", model_files(made))
        made.record("compiled", "chip", made.runs_on, took=made.runner.took)
        made.placements = [placed(n, "npu") for n in graph.nodes]
        made.cost.timed(measure, session.measure)
        return made


class IntelNpu(OpenVinoTarget):
    """Intel's NPU, of the generation that is here, or one that is named by its platform number."""

    name: ClassVar[str] = "intel-npu"
    title: ClassVar[str] = "Intel NPU (AI Boost)"
    site: ClassVar[Site] = "edge"
    precision: ClassVar[tuple[str, ...]] = ("int8", "float16")
    # Its compiler was not asked for layers; it takes the ops that they are written out in.
    recurrent: ClassVar[frozenset[str]] = frozenset()
    rules: ClassVar[str] = "a table of types and ranks that the compiler of OpenVINO 2026.4 was seen to refuse"
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Intel", "NPU", drivers=("intel_vpu",), module="openvino", extra="openvino", target="intel-npu"),
    )
    providers: ClassVar[Mapping[str, Mapping[str, str]]] = {"OpenVINO": {"device_type": "NPU"}}
    platform: ClassVar[str] = ""

    def available(self) -> tuple[Label, str]:
        if not installed("openvino"):
            return "emitted", _MISSING
        if intel_compiler.npu_present():
            return "hardware", ""
        if intel_compiler.interpreter():
            return (
                "vendor-compiled",
                "no Intel NPU here: its compiler makes the blob, the CPU plugin computes the model",
            )
        return "emitted", "no Intel NPU and no NPU compiler here: OpenVINO's CPU plugin computes the same model"

    def supports(self, node: Node) -> Verdict:
        return table.rule(self.platform or table.DEFAULT_PLATFORM)(node)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Compile for the NPU and run there, or as far towards that as this machine goes."""
        config, measure, chosen = checked(self.name, options)
        platform = self.platform or chosen
        if self.platform and chosen and chosen != self.platform:
            raise ParameterError(f"{self.name}: option platform", got=chosen, expected=self.platform)
        power = str(options.get("power") or "default")
        intel_power.properties(power)
        model, made = self.written(graph)
        made.notes += sorted({r for n in graph.nodes if (r := table.remarks(n))})
        device = "NPU" in {d.split(".")[0] for d in core().available_devices}
        if power != "default" and not (device and self.runs_here(platform)):
            made.notes.append(f"power {power}: it is for the chip, which is not here")
        if not device and not intel_compiler.interpreter():
            made.notes.append(
                "no Intel NPU and no NPU compiler (libopenvino_intel_npu_compiler) on this machine: "
                "placement is by the published rules"
            )
            made.placements = place(graph, table.rule(platform or table.DEFAULT_PLATFORM))
            self.instead(graph, model, made)
            return made
        if not device or platform:
            config = {"NPU_PLATFORM": platform or table.DEFAULT_PLATFORM} | config
        if not device:
            config = {"NPU_COMPILER_TYPE": "PLUGIN"} | config
        xml, weights = made.files.values()
        answer = intel_compiler.compile_model(xml, weights, config, another)
        made.record(
            "compiled" if answer.blob is not None else "refused" if answer.refused else "failed", "vendor-compiler",
            f"Intel's NPU compiler of OpenVINO {answer.version}".strip(), command=answer.command, status=answer.status,
            took=model_files(made), gave=() if answer.blob is None else (digest(answer.blob),),
            answer=answer.error or str(answer.cost), checked="" if answer.blob is None else CHECKED,
        )  # fmt: skip
        if answer.blob is None:
            if answer.refused:
                self.refused(graph, made, answer, config)
            else:
                made.notes.append(f"Intel's NPU compiler gave no answer; placement is by its table: {answer.error}")
                made.placements = place(graph, table.rule(platform or table.DEFAULT_PLATFORM))
            self.instead(graph, model, made)
            return made
        self.compiled(graph, made, answer, platform or table.DEFAULT_PLATFORM)
        if device and self.runs_here(platform):
            asked, note = intel_power.applied(power, core().get_property("NPU", "SUPPORTED_PROPERTIES"))
            made.notes += [note] if power != "default" else []
            session = OpenVINOSession(core().import_model(answer.blob, "NPU", config | asked), "NPU")
            title = f"{session.title} through OpenVINO {version()}"
            made.runner = Runner(session, title, "chip", (digest(answer.blob),))
            made.cost.timed(measure, session.measure)
        else:
            self.instead(graph, model, made)
        return made

    def runs_here(self, platform: str) -> bool:
        """Whether this machine's NPU is of the platform that was compiled for."""
        return not platform or str(core().get_property("NPU", "DEVICE_ARCHITECTURE")) == platform

    def compiled(self, graph: NpuGraph, made: Build, answer: CompilerReply, platform: str) -> None:
        """Everything runs on the NPU: its compiler has no other device to put an op on."""
        assert answer.blob is not None
        made.files = {f"{graph.name or 'model'}.blob": answer.blob} | made.files
        made.placements = [placed(n, "npu") for n in graph.nodes]
        for name, figure in answer.cost.figures.items():
            made.cost.add(name, figure.value, figure.unit, figure.basis)
        made.cost.add("blob", len(answer.blob), "bytes", "measured")
        rule = table.rule(platform)
        surprises = [n.name or n.op for n in graph.nodes if not rule(n).ok]
        if surprises:
            made.notes.append(f"the compiler takes what its published rules do not: {', '.join(surprises)}")
        if integer_products(graph) and "integer operations" in answer.cost:
            whole, real = (answer.cost[k].value for k in ("integer operations", "float operations"))
            made.notes.append(f"the NPU compiler counts {whole:.0f} integer and {real:.0f} float operations")

    def refused(self, graph: NpuGraph, made: Build, answer: CompilerReply, config: dict[str, str]) -> None:
        """Nothing runs on the NPU. Find the nodes to blame by compiling each alone; equal ones once."""
        made.notes.append(f"Intel's NPU compiler refuses the model: {answer.error}")
        names = {name: i for i, name in enumerate(node_names(graph))}
        taken = None if answer.supported is None else {owner(name, names) for name in answer.supported}
        known: dict[str, CompilerReply] = {}
        to_blame = False
        # All of them together may take as long as one compilation.
        stop = time.monotonic() + tools.TIMEOUT
        for i, n in enumerate(graph.nodes):
            verdict = self.supports(n)
            kind = signature(n)
            if kind not in known:
                known[kind] = alone(n, config, stop - time.monotonic())
            said = known[kind]
            why = f"Intel's compiler: {said.error}" if said.refused else ""
            if not why and taken is not None and i not in taken and n.op not in ("dequantize", "reshape"):
                why = "the NPU plugin does not take it"
            to_blame |= bool(why)
            suggestion = verdict.suggestion if why else ""
            alone_too = f"says nothing of it alone ({said.error})" if said.blob is None else "takes it alone"
            why = why or f"the compiler refuses the model and {alone_too}"
            made.placements.append(placed(n, "host", why, suggestion))
        if not to_blame and all(said.blob is not None for said in known.values()):
            made.notes.append("each node compiles alone: it is their combination that is refused")


@lru_cache(1)
def another() -> bytes:
    """Another model's file, for `nxjax.backends.tools.doubt`."""
    return next(iter(serialize(build(probe(quantized=False)), "probe").values()))


def signature(n: Node) -> str:
    """What decides how one node compiles, as text: its op, types, grids and attributes."""
    tensors = [None if t is None else (t.shape, str(t.dtype), t.grid, t.constant) for t in n.inputs]
    results = [(t.shape, str(t.dtype), t.grid) for t in n.outputs]
    return repr((n.op, tensors, results, sorted((k, repr(v)) for k, v in n.attrs.items())))


def reread(files: dict[str, bytes]) -> Any:
    """The model of its two files, so that what is run and compiled is what is saved."""
    xml, weights = files.values()
    return core().read_model(xml, weights)


def model_files(made: Build) -> tuple[str, ...]:
    """Digests of the model's two files."""
    return digests(made.files, [name for name in made.files if name.endswith((".xml", ".bin"))])


def alone(n: Node, config: dict[str, str], seconds: float) -> CompilerReply:
    """What the compiler says of a node alone within some seconds."""
    if seconds <= 0:
        return CompilerReply(None, "it was not asked: the others took too long")
    inputs = list(dict.fromkeys(t for t in n.operands if not t.constant))
    try:
        files = serialize(build(NpuGraph("alone", inputs, list(n.outputs), [n])), "alone")
    except LoweringError as error:
        return CompilerReply(None, str(error.what))
    xml, weights = files.values()
    return intel_compiler.compile_model(xml, weights, config, seconds=seconds)


_PLATFORMS: Final = tuple(
    variant(IntelNpu, f"intel-npu-{number}", f"Intel NPU {number}{f' ({chips})' if chips else ''}", platform=number)
    for number, chips in table.PLATFORMS.items()
)
TARGETS: Final[Sequence[type[NpuTarget]]] = (IntelNpu, *_PLATFORMS, OpenVinoCpu, OpenVinoGpu)
