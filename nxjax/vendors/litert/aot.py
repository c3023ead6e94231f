"""Phone NPUs through LiteRT's ahead-of-time compiler: Qualcomm, MediaTek, Samsung Exynos, Google Tensor.

LiteRT brings a compiler front end and one plugin per vendor; each plugin calls a library of its vendor's SDK, which no
package index has, except Qualcomm's, which the wheel ``onnxruntime-qnn`` holds. The front end runs in a process of its
own, since those libraries may end it. Its success is not believed: placements are read from the file that it made.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Final, final

from nxjax.backends.evidence import Label, digest
from nxjax.backends.extras import installed
from nxjax.backends.target import Build, NpuTarget, Site, only
from nxjax.backends.tools import NO_MODEL, ask, doubt, read
from nxjax.errors import InvalidFileError, ParameterError
from nxjax.lower.npu.formats import tflite_ops
from nxjax.lower.npu.formats.tflite_build import TFLiteOperator
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.placement import Placement, Verdict
from nxjax.vendors.litert import plugins_table as litert_plugins
from nxjax.vendors.litert.compiled import CHECKED, another, left_for_host, placements, refuse_other, started
from nxjax.vendors.litert.table import Table
from nxjax.vendors.litert.target import version

_COMPILER: Final = Path("tools") / "apply_plugin_main"
# The custom operator that stands for a compiled part.
_DISPATCH: Final = "DISPATCH_OP"
_PARTITION: Final = re.compile(
    r"Partitioned subgraph<\d+>, selected (\d+) ops, from a total of (\d+) ops\. resulted in (\d+)"
)
# What it says where no operator was selected.
_SKIPPED: Final = "Skipped for non partitioned model"
# Bytes that Qualcomm's compiler plans to move between the chip and its memory in one run.
_TRAFFIC: Final = {
    "dram read": re.compile(r"read_total_bytes=(\d+)"),
    "dram written": re.compile(r"write_total_bytes=(\d+)"),
    "spilled": re.compile(r"spill_bytes=(\d+)"),
}
# A failed check of QNN's, or the plugin's line that an operator is therefore not taken.
_REFUSAL: Final = re.compile(
    r"QNN op validation failed: '[^']*' \(type=(?P<type>\w+)(?:, operation=(?P<operation>\w+))?\)"
    r"(?P<operands>(?:\n {2,}[^\n]*)*?)\n {2,}QNN error=(?P<error>\d+)"
    r"|LiteRT Op #(?P<number>\d+) '\w+'.* is not supported"
)
_OPERAND: Final = re.compile(r"dtype=QNN_DATATYPE_(\w+) dims=\[([\d,]*)\]")
_OPTIONS: Final = ("soc_model", "sdk")


@final
@dataclass
class AotResult:
    """What the front end said and made.

    Attributes:
        model: the compiled file, or None.
        why: why there is none.
        selected: operators that it says it took.
        total: operators that it says there are.
        partitions: parts that it says they make.
        traffic: bytes by direction, as the vendor plans them.
        command: how it was called; empty if it was not.
        status: its exit status.
        refusals: why the vendor's library refused an operator, by the operator's number in the file.
        skipped: whether it says that there is nothing to compile.
    """

    model: bytes | None
    why: str = ""
    selected: int = 0
    total: int = 0
    partitions: int = 0
    traffic: dict[str, int] = field(default_factory=dict[str, int])
    command: str = ""
    status: int | None = None
    refusals: dict[int, str] = field(default_factory=dict[int, str])
    skipped: bool = False

    def refused(self, operators: int) -> bool:
        """The compiler took none of the file's operators, by its own words."""
        if self.model is not None or self.total != operators or self.selected:
            return False
        # It ends with 1 where it took nothing, and where something went wrong.
        return self.status == 0 or (self.status == 1 and (self.skipped or len(self.refusals) == operators))


class AotTarget(NpuTarget):
    """One vendor behind LiteRT's compiler. Abstract; implementations are final.

    Options of `build`: ``soc_model`` (one of ``socs``), ``sdk`` (the folder of the vendor's compiler libraries).

    Attributes:
        plugin: the vendor's folder in LiteRT's package.
        manufacturer: as the front end calls it.
        socs: chips, the default first.
        missing: the library that the vendor's SDK has, for people.
        sdk: the package that has it, and what its function that names the folder is told.
        table: the plugin's published operators.
    """

    format: ClassVar[str] = "tflite"
    site: ClassVar[Site] = "edge"
    extra: ClassVar[str] = "litert"
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8", "float32")
    rules: ClassVar[str] = "the plugin's list of operator names, which says nothing of types and sizes"
    plugin: ClassVar[str]
    manufacturer: ClassVar[str]
    socs: ClassVar[tuple[str, ...]]
    missing: ClassVar[str]
    sdk: ClassVar[tuple[str, ...]]
    table: ClassVar[Table]

    def libraries(self) -> list[str]:
        """Folders of the vendor's compiler libraries as found on this machine; none if there are none."""
        return _sdk_package(*self.sdk)

    def links(self) -> dict[str, str]:
        """Libraries that the plugin asks for and does not need here, and which of the SDK's to put in their place."""
        return {}

    def soc_word(self, soc: str) -> str:
        """How the plugin spells a chip."""
        return soc

    def available(self) -> tuple[Label, str]:
        if not installed("ai_edge_litert"):
            return "emitted", "LiteRT is not installed: pip install 'nxjax[litert]'"
        if not self.libraries():
            return "emitted", f"the vendor's compiler is not here: {self.missing}"
        return "vendor-compiled", f"LiteRT {version()} and the vendor's compiler; runs on the phone only"

    def supports(self, node: Node) -> Verdict:
        return self.table.verdict(node)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the file, compile it where the vendor's SDK is, and place it as the compiled file says."""
        soc, folders = self._settings(options)
        name = graph.name or "model"
        operations = tflite_ops.operations(graph)
        build, data = started(graph, operations, self.placed(graph))
        build.cost.add("file", len(data), "bytes", "measured")
        if not installed("ai_edge_litert"):
            build.notes.append(f"{self.available()[1]}; placed by {self.rules}")
            return build
        settings = (self.plugin, self.manufacturer, self.soc_word(soc), folders, self.links())
        compiled = run_compiler(data, *settings)
        tool = f"LiteRT {version()}, {self.manufacturer} plugin"
        noted = {"command": compiled.command, "status": compiled.status, "took": (digest(data),)}
        failed = compiled.model is None and not compiled.refused(len(operations))
        why, hint = (compiled.why, "" if folders else f"; {self.missing}") if failed else ("", "")
        if compiled.model is not None:
            try:
                if not compiled.total:
                    raise InvalidFileError("LiteRT's front end does not say how many operators it took")
                if compiled.total != len(operations):
                    raise InvalidFileError(f"it counts {compiled.total} operators, and the file has {len(operations)}")
                besides = lambda model: run_compiler(model, *settings).model or b""
                why = doubt(
                    compiled.model, [data], lambda: besides(NO_MODEL), str(_package() / _COMPILER),
                    settings=repr(settings), of_another=lambda: besides(another()),
                )  # fmt: skip
                refuse_other(data, compiled.model)
            except InvalidFileError as error:
                why = why or error.what
        if failed or why:
            build.record("failed", "vendor-compiler", tool, **noted, answer=why)
            build.notes.append(f"{self.name}: not compiled: {why}{hint}. Placed by {self.rules}")
            return build
        build.placements = self._placed(graph, operations, data, compiled, build.notes)
        said = f"{compiled.selected} of {compiled.total} operators in {compiled.partitions} parts"
        if compiled.model is None or not any(p.device == "npu" for p in build.placements):
            # A plugin that takes nothing ends with a status of its own, which is this answer and no fault.
            ended = f"{said}; exit status {compiled.status}"
            build.record("compiled", "vendor-compiler", tool, **{**noted, "status": None}, answer=ended)
            build.notes.append(f"{self.name}: the vendor's compiler took no operation")
            return build
        checked = f"{CHECKED}; the number of operators"
        gave = (digest(compiled.model),)
        build.record("compiled", "vendor-compiler", tool, **noted, gave=gave, answer=said, checked=checked)
        build.files = {f"{name}_{soc.lower()}.tflite": compiled.model, **build.files}
        build.cost.add("compiled file", len(compiled.model), "bytes", "measured")
        for what, amount in compiled.traffic.items():
            build.cost.add(what, amount, "bytes", "vendor-estimate")
        build.notes.append(f"compiled for {soc} by LiteRT {version()}'s {self.manufacturer} plugin: {said}")
        return build

    def _settings(self, options: dict[str, object]) -> tuple[str, list[str]]:
        only(self.name, options, _OPTIONS)
        soc, sdk = str(options.get("soc_model", self.socs[0])), options.get("sdk")
        if soc not in self.socs:
            raise ParameterError(f"{self.name}: option soc_model", got=soc, expected=", ".join(self.socs))
        if sdk is not None and not os.path.isdir(str(sdk)):
            raise ParameterError(
                f"{self.name}: option sdk", got=repr(sdk), expected="the folder of the SDK's libraries"
            )
        return soc, self.libraries() if sdk is None else [str(sdk)]

    def _placed(
        self, graph: NpuGraph, operations: list[TFLiteOperator], data: bytes, compiled: AotResult, notes: list[str]
    ) -> list[Placement]:
        """What the compiled file leaves to the host; the front end's own count is held against it."""
        left, parts = ([], 0) if compiled.model is None else left_for_host(compiled.model, _DISPATCH)
        taken = len(operations) - len(left) if parts else 0
        if (taken, parts) != (compiled.selected, compiled.partitions):
            said = f"{compiled.selected} operators in {compiled.partitions} parts"
            notes.append(f"{self.name}: the compiler says {said}, its file holds {taken} in {parts}: the file counts")
        silent = "left to the host, without a reason"
        why = lambda _, row, left: (
            row.reason or "; ".join(f"{o.kind}: {compiled.refusals.get(o.number, silent)}" for o in left)
        )
        rows, strange = placements(self.placed(graph), graph, operations, data, left, not parts, why)
        notes += [f"{self.name}: {note}" for note in strange]
        return rows


def _package() -> Path:
    spec = importlib.util.find_spec("ai_edge_litert")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent


def run_compiler(
    data: bytes, plugin: str, manufacturer: str, soc: str, folders: list[str], links: dict[str, str]
) -> AotResult:
    """Run LiteRT's front end on a file; what it made, or why it made nothing."""
    root = _package()
    compiler = root / _COMPILER
    if not compiler.exists():
        return AotResult(None, "this build of LiteRT has no compiler front end")
    with tempfile.TemporaryDirectory(prefix="nxjax_aot_") as work:
        source, made = Path(work, "model.tflite"), Path(work, "compiled.tflite")
        source.write_bytes(data)
        for wanted, present in links.items():
            targets = [Path(f, present) for f in folders if Path(f, present).exists()]
            if targets and not any(Path(f, wanted).exists() for f in folders):
                os.symlink(targets[0], Path(work, wanted))
        found = [*folders, work, str(root), os.environ.get("LD_LIBRARY_PATH", "")]
        flags = {"cmd": "apply", "model": source, "o": made, "soc_manufacturer": manufacturer, "soc_model": soc}
        flags |= {"err": "--", "libs": root / "vendors" / plugin / "compiler"}
        command = [str(compiler), *(f"--{key}={value}" for key, value in flags.items())]
        env = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, found))}
        done = ask(command, work, env=env)
        model = b""
        with contextlib.suppress(OSError):
            model = read(made)
    if done.status is None:
        return AotResult(None, f"the front end did not run: {done.trouble}", command=done.command)
    try:
        found = _read(done.said, done.status, model)
    except ValueError as error:
        found = AotResult(None, f"its log cannot be read: {error}")
    found.command, found.status = done.command, done.status
    if done.trouble:
        found.why = f"{done.trouble}: {found.why}"
    return found


def _read(log: str, code: int, model: bytes) -> AotResult:
    """The front end's account. It can end well and leave an empty file, or the other way round."""
    counts = [tuple(map(int, row)) for row in _PARTITION.findall(log)]
    selected, total, parts = (sum(row[i] for row in counts) for i in range(3))
    found = AotResult(None, _reason(log, code), selected, total, parts, status=code, refusals=_refusals(log))
    found.skipped = _SKIPPED in log
    with contextlib.suppress(InvalidFileError):
        left_for_host(model, _DISPATCH)
        if not code:
            found.model, found.why = model, ""
    found.traffic = {what: sum(map(int, p.findall(log))) for what, p in _TRAFFIC.items() if p.search(log)}
    return found


def _refusals(log: str) -> dict[int, str]:
    """Operators that QNN does not take: what it was asked for, in types and sizes, and its error number."""
    found: dict[int, str] = {}
    asked = ""
    for match in _REFUSAL.finditer(log):
        if match["number"] is None:
            inputs = match["operands"].split("Outputs:")[0]
            types = (f"{kind.lower()}[{dims}]" for kind, dims in _OPERAND.findall(inputs))
            asked = f"QNN refuses {match['operation'] or match['type']} of {', '.join(types)} (error {match['error']})"
        else:
            found[int(match["number"])] = asked or "the plugin does not take it"
            asked = ""
    return found


def _reason(log: str, code: int) -> str:
    """The first line of a log that says why, without the places in the front end's sources."""
    for pattern in (r"Could not load shared library \S+: (?:\S+: )?([^\n]+)", r"ERROR: (?:\[[^\]]*\] )?([^\n\[]+)"):
        found = re.search(pattern, log)
        if found is not None:
            # Each layer of the front end repeats the message of the one below.
            return ": ".join(dict.fromkeys(found[1].strip().rstrip(".").split(": ")))
    return f"LiteRT's front end ended with {code}"


def _sdk_package(module: str, *args: str) -> list[str]:
    """The library folder that a vendor's SDK package names, if that package and the folder are there."""
    if not installed(module):
        return []
    with contextlib.suppress(Exception):  # a stub without its download may fail in any way
        folder = importlib.import_module(module).path_to_sdk_libs(*args)
        if folder and os.path.isdir(str(folder)) and os.listdir(str(folder)):
            return [str(folder)]
    return []


@final
class Qualcomm(AotTarget):
    """Snapdragon's Hexagon NPU through LiteRT; the compiler is that of the wheel ``onnxruntime-qnn``."""

    name: ClassVar[str] = "qualcomm-litert"
    title: ClassVar[str] = "Qualcomm Hexagon, through LiteRT"
    plugin: ClassVar[str] = "qualcomm"
    manufacturer: ClassVar[str] = "Qualcomm"
    socs: ClassVar[tuple[str, ...]] = (
        *("SM8750", "SM8850", "SM8845", "SM8650", "SM8550", "SM8475", "SM8450", "SM8350", "SA8295", "SA8255"),
    )
    missing: ClassVar[str] = "QNN's libraries: pip install onnxruntime-qnn, or ai-edge-litert-sdk-qualcomm with its SDK"
    sdk: ClassVar[tuple[str, ...]] = ("ai_edge_litert_sdk_qualcomm",)
    table: ClassVar[Table] = litert_plugins.QUALCOMM

    def libraries(self) -> list[str]:
        if found := super().libraries():
            return found
        spec = importlib.util.find_spec("onnxruntime_qnn")
        if spec is None or spec.origin is None:
            return []
        package = Path(spec.origin).parent
        if not (package / "libQnnHtp.so").exists():
            return []
        return [str(package), str(package.with_name("onnxruntime_qnn.libs"))]

    def links(self) -> dict[str, str]:
        # The wheel has no libQnnLpai.so. The plugin links it and, compiling for the HTP, never calls it: another
        # library of the same interface stands in.
        return {"libQnnLpai.so": "libQnnSystem.so"}


@final
class MediaTek(AotTarget):
    """Dimensity and Genio chips' APU through LiteRT and MediaTek's NeuroPilot compiler."""

    name: ClassVar[str] = "mediatek-apu"
    title: ClassVar[str] = "MediaTek APU, through LiteRT"
    plugin: ClassVar[str] = "mediatek"
    manufacturer: ClassVar[str] = "MediaTek"
    socs: ClassVar[tuple[str, ...]] = (
        *("MT6991", "MT6989", "MT6985", "MT6983", "MT6897", "MT6895", "MT6893", "MT6886", "MT6879", "MT6878"),
        *("MT6877", "MT6853", "MT8189", "MT8188", "MT8171"),
    )
    rules: ClassVar[str] = "the plugin's published operators and tensor types, which say nothing of sizes"
    missing: ClassVar[str] = "MediaTek's NeuronAdapter library: ai-edge-litert-sdk-mediatek with its SDK"
    sdk: ClassVar[tuple[str, ...]] = ("ai_edge_litert_sdk_mediatek", "v8")
    table: ClassVar[Table] = litert_plugins.MEDIATEK

    def soc_word(self, soc: str) -> str:
        return soc.lower()


@final
class Exynos(AotTarget):
    """Samsung's Exynos NPU through LiteRT and Samsung's AI LiteCore compiler."""

    name: ClassVar[str] = "samsung-exynos"
    title: ClassVar[str] = "Samsung Exynos NPU, through LiteRT"
    plugin: ClassVar[str] = "samsung"
    manufacturer: ClassVar[str] = "Samsung"
    socs: ClassVar[tuple[str, ...]] = ("E9965",)
    missing: ClassVar[str] = "Samsung's AI LiteCore libraries: ai-edge-litert-sdk-samsung with its SDK"
    sdk: ClassVar[tuple[str, ...]] = ("ai_edge_litert_sdk_samsung",)
    table: ClassVar[Table] = litert_plugins.SAMSUNG


@final
class GoogleTensor(AotTarget):
    """Pixel's Tensor chips through LiteRT and Google's Tensor SDK."""

    name: ClassVar[str] = "google-tensor"
    title: ClassVar[str] = "Google Tensor (Pixel), through LiteRT"
    plugin: ClassVar[str] = "google_tensor"
    manufacturer: ClassVar[str] = "Google"
    socs: ClassVar[tuple[str, ...]] = ("Tensor_G5", "Tensor_G6", "Tensor_G4", "Tensor_G3")
    rules: ClassVar[str] = "the names of operators that the plugin refuses, which say nothing of types and sizes"
    missing: ClassVar[str] = "Google's liblitert_plugin_compiler.so: ai-edge-litert-sdk-google-tensor with its SDK"
    sdk: ClassVar[tuple[str, ...]] = ("ai_edge_litert_sdk_google_tensor",)
    table: ClassVar[Table] = litert_plugins.GOOGLE

    def libraries(self) -> list[str]:
        given = os.environ.get("GOOGLE_TENSOR_COMPILER_LIB")
        return [given] if given else super().libraries()


TARGETS: Final[tuple[type[NpuTarget], ...]] = (Qualcomm, MediaTek, Exynos, GoogleTensor)
