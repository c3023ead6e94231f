"""Google's Edge TPU (Coral): a full-int8 ``.tflite`` file, its compiler and its delegate where they are found.

The compiler is a program of Google's own package archive. Where it is not on PATH the file is written, placed by the
published table and the rule of one cut, and labelled as emitted; where it is, the file it makes and its log decide.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, final

from nxjax.backends.evidence import Label, digest
from nxjax.backends.extras import installed, need
from nxjax.backends.target import Build, Kind, NpuTarget, Run, Runner, Site, only
from nxjax.backends.tools import NO_MODEL, ToolAnswer, ask, doubt, read
from nxjax.errors import ExecutionError, InvalidFileError, ParameterError
from nxjax.lower.npu.cost import estimate
from nxjax.lower.npu.formats import tflite_ops
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import Placement, Verdict
from nxjax.ops.base import NDArray
from nxjax.vendors.google.rewrite import rows_as_pixels, same_bits
from nxjax.vendors.google.table import TABLE
from nxjax.vendors.litert.compiled import (
    CHECKED,
    another,
    left_for_host,
    operator_names,
    placements,
    refuse_other,
    started,
)
from nxjax.vendors.litert.table import Adapt

COMPILER: Final = "edgetpu_compiler"
_OPERATOR: Final = "edgetpu-custom-op"
_SILENT: Final = "no reason given"
_LIBRARY: Final = "libedgetpu.so.1"
_MAPPED: Final = "Mapped to Edge TPU"
_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_ROW: Final = re.compile(r"^(?P<op>[A-Z][A-Z0-9_a-z-]*)\s+(?P<count>\d+)\s+(?P<status>\S.*?)\s*$")
_SIZE: Final = re.compile(r"^(?P<what>O\S+-chip memory .*?parameters): (?P<value>[\d.]+)(?P<unit>B|KiB|MiB|GiB)$")


@final
@dataclass
class CompilerLog:
    """What ``edgetpu_compiler -s`` prints.

    Attributes:
        version: of the compiler.
        npu: operations that run on the Edge TPU, as it counts them; None if it does not say.
        host: operations that run on the host.
        statuses: (operator, count, status) rows.
        sizes: bytes of on-chip and off-chip memory for parameters, by the log's words.
    """

    version: str = ""
    npu: int | None = None
    host: int | None = None
    statuses: list[tuple[str, int, str]] = field(default_factory=list[tuple[str, int, str]])
    sizes: dict[str, float] = field(default_factory=dict[str, float])

    def reasons(self, operator: str) -> str:
        """Why some operators of a kind were not mapped."""
        return "; ".join(dict.fromkeys(s for name, _, s in self.statuses if name == operator and s != _MAPPED))


def parse(text: str) -> CompilerLog:
    """The log in parts.

    >>> parse("Edge TPU Compiler version 16.0\\nNumber of operations that will run on Edge TPU: 3").npu
    3
    """
    log = CompilerLog()
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("Edge TPU Compiler version "):
            log.version = line.removeprefix("Edge TPU Compiler version ")
        elif found := re.match(r"Number of operations that will run on (Edge TPU|CPU): (\d+)$", line):
            if found[1] == "CPU":
                log.host = int(found[2])
            else:
                log.npu = int(found[2])
        elif found := _SIZE.match(line):
            log.sizes[found["what"]] = float(found["value"]) * _UNITS[found["unit"]]
        elif found := _ROW.match(line):
            log.statuses.append((found["op"], int(found["count"]), found["status"]))
    return log


@final
class EdgeTpu(NpuTarget):
    """Google Edge TPU.

    Options of `build`: ``min_runtime_version`` (10 to 16: what the oldest runtime that must load the file is),
    ``search_delegate`` (True: let the compiler look for a later cut where the first fails), ``rows_as_pixels`` (True:
    write dense layers of several rows as 1x1 convolutions, which the Edge TPU takes; results may differ by one unit).
    """

    name: ClassVar[str] = "edgetpu"
    title: ClassVar[str] = "Google Edge TPU (Coral)"
    site: ClassVar[Site] = "edge"
    format: ClassVar[str] = "tflite"
    extra: ClassVar[str] = "litert"
    precision: ClassVar[tuple[str, ...]] = ("int8",)
    rules: ClassVar[str] = "Google's published table of operators, types, sizes and the single cut"
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Google", "Edge TPU", nodes=("dev/apex_*",), usb=("1a6e:089a", "18d1:9302"), module="ai_edge_litert",
             extra="litert", target="edgetpu"),
    )  # fmt: skip

    def available(self) -> tuple[Label, str]:
        if shutil.which(COMPILER) is None:
            return "emitted", f"{COMPILER} is not on PATH (Google's package archive has it)"
        return "vendor-compiled", f"{COMPILER} compiles; {_device()}"

    def supports(self, node: Node) -> Verdict:
        return TABLE.verdict(node, same_bits)

    def placed(self, graph: NpuGraph) -> list[Placement]:
        """Placement by the published table and one cut: what needs a result of the host's runs on the host too.

        Conversions of float inputs stay on the host in front of the Edge TPU's part and cut nothing.
        """
        return self._placed(graph, same_bits)

    def _placed(self, graph: NpuGraph, adapt: Adapt) -> list[Placement]:
        rows: list[Placement] = []
        behind: dict[Tensor, tuple[Node, str]] = {}
        inputs = set(graph.inputs)
        for node, row in zip(graph.nodes, place(graph, lambda n: TABLE.verdict(n, adapt)), strict=True):
            entry = node.op == "quantize" and node.operands[0] in inputs and node.operands[0].grid is None
            cause = next((behind[t] for t in node.operands if t in behind), None)
            if row.device == "host" and not entry:
                cause = cause or (node, row.suggestion)
            elif cause is not None:
                first = cause[0]
                where = f" at {first.source}" if first.source else f" {first.name}" if first.name else ""
                why = f"needs the result of {first.op}{where}, which runs on the host: the Edge TPU has one part only"
                row = replace(row, device="host", reason=why, suggestion=cause[1])
            if cause is not None:
                behind.update((t, cause) for t in node.outputs)
            rows.append(row)
        return rows

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the file, and compile and place it by Google's compiler where that is found."""
        flags = _flags(options)
        name = graph.name or "model"
        adapt = rows_as_pixels if options.get("rows_as_pixels") else same_bits
        operations = adapt(tflite_ops.operations(graph))
        build, data = started(graph, operations, self._placed(graph, adapt))
        if any(o.name == "FULLY_CONNECTED" and o.weights.grid and o.weights.grid.axis is not None for o in operations):
            build.notes.append(
                "dense layers have a scale per channel, which is newer than Google's compiler and not in its table; "
                "if it does not take them: nx.quant.Scheme(dense_per_channel=False), or rows_as_pixels=True"
            )
        compiler = shutil.which(COMPILER)
        if compiler is None:
            build.cost = estimate(graph, "edgetpu", build.placements)
            build.notes.append(
                f"{COMPILER} is not on PATH: placed by Google's published table, cost by our own model, not verified "
                "by the vendor's compiler"
            )
            return build
        try:
            model, log, done = _compile(compiler, flags, data)
        except ExecutionError as e:
            build.blame(e, "vendor-compiler", COMPILER, (digest(data),))
            build.cost = estimate(graph, "edgetpu", build.placements)
            build.notes.append(f"{COMPILER} made no file of it; placed by Google's published table: {e.got}")
            return build
        build.files = {f"{name}_edgetpu.tflite": model, **build.files}
        host, calls = left_for_host(model, _OPERATOR)
        if log.host is not None and log.host != len(host):
            build.notes.append(f"{COMPILER} counts {log.host} host operations, its file holds {len(host)}")
        why = lambda _n, _row, left: "; ".join(
            dict.fromkeys(f"{o.kind}: {log.reasons(o.kind) or _SILENT}" for o in left)
        )
        build.placements, strange = placements(build.placements, graph, operations, data, host, not calls, why)
        build.notes += strange
        build.record(
            "compiled", "vendor-compiler", f"{COMPILER} {log.version}".strip(), command=done.command,
            status=done.status, took=(digest(data),), gave=(digest(model),),
            answer=f"{log.npu} operations on the Edge TPU, {log.host} on the host, as it counts them",
            checked=f"{CHECKED}; no more operations than the file has",
        )  # fmt: skip
        build.cost = estimate(graph, "edgetpu", build.placements)
        for what, value in log.sizes.items():
            build.cost.add(what.lower(), value, "bytes", "vendor-estimate")
        build.notes.append(f"compiled by {COMPILER} {log.version}; latency is our own model's")
        if any(p.device == "npu" for p in build.placements):
            _use_chip(build, model)
        return build


def _flags(options: dict[str, object]) -> list[str]:
    only("edgetpu", options, ("min_runtime_version", "search_delegate", "rows_as_pixels"))
    flags: list[str] = []
    version = options.get("min_runtime_version")
    if version is not None:
        if not isinstance(version, int) or not 10 <= version <= 16:
            raise ParameterError("edgetpu: option min_runtime_version", got=repr(version), expected="10 to 16")
        flags += ["-m", str(version)]
    return [*flags, "-d"] if options.get("search_delegate") else flags


def _asked(folder: str, compiler: str, flags: Sequence[str], data: bytes) -> tuple[ToolAnswer, Path]:
    """Google's compiler on a file, and where it is to leave what it makes."""
    source = Path(folder) / "model.tflite"
    source.write_bytes(data)
    command = [os.path.abspath(compiler), "-s", "-o", folder, *flags, str(source)]
    return ask(command, folder), Path(folder) / "model_edgetpu.tflite"


def _made(compiler: str, data: bytes) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return read(_asked(folder, compiler, (), data)[1])


def _compile(compiler: str, flags: list[str], data: bytes) -> tuple[bytes, CompilerLog, ToolAnswer]:
    with tempfile.TemporaryDirectory() as folder:
        done, made = _asked(folder, compiler, flags, data)
        what = f"edgetpu: {COMPILER} does not compile the file"
        if done.trouble:
            raise done.error(what)
        try:
            model = read(made)
            besides = partial(_made, compiler)
            if why := doubt(model, [data], partial(besides, NO_MODEL), compiler, of_another=lambda: besides(another())):
                raise ValueError(why)
            refuse_other(data, model)
            left_for_host(model, _OPERATOR)
            log = parse(done.out)
            if log.npu is None:
                raise ValueError("it does not say how many operations run on the Edge TPU")
            if log.npu > (held := len(operator_names(data))):
                raise ValueError(f"it counts {log.npu} operations on the Edge TPU, and the file has {held}")
        except (OSError, ValueError, InvalidFileError) as error:
            raise done.error(what, f"it ended well, and its file cannot be used: {error}") from None
        return model, log, done


def _device() -> str:
    return "its runtime is here" if ctypes.util.find_library("edgetpu") else "its runtime is not here"


def _use_chip(build: Build, model: bytes) -> None:
    """Run on the Edge TPU itself, if its runtime is installed and a device answers."""
    if not ctypes.util.find_library("edgetpu") or not installed("ai_edge_litert"):
        build.notes.append(f"{_LIBRARY} is not installed: the file is run on the host")
        return
    try:
        run = _delegated(model)
    except (ValueError, OSError, RuntimeError) as e:
        build.notes.append(f"no Edge TPU answers ({e}): the file is run on the host")
        return
    build.runner = Runner(run, f"Edge TPU by {_LIBRARY}", "chip", (digest(model),))


def _delegated(model: bytes) -> Run:
    runtime: Any = need("ai_edge_litert.interpreter", "litert", "the TFLite runtime")
    # A library that does not load is an error here; LiteRT's loader would leave a half-made delegate behind.
    ctypes.CDLL(_LIBRARY)
    delegate = runtime.load_delegate(_LIBRARY)
    interpreter = runtime.Interpreter(model_content=model, experimental_delegates=[delegate])
    interpreter.allocate_tensors()
    inputs = [d["index"] for d in interpreter.get_input_details()]
    outputs = [d["index"] for d in interpreter.get_output_details()]

    def run(args: Sequence[NDArray]) -> list[NDArray]:
        for index, x in zip(inputs, args, strict=True):
            interpreter.set_tensor(index, x)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in outputs]

    return run


TARGETS: Final[tuple[type[NpuTarget], ...]] = (EdgeTpu,)
