"""AMD XDNA (Ryzen AI): ONNX QDQ for the Vitis AI provider of ONNX Runtime, with the provider's options beside it.

The provider comes with AMD's own installer. Where it is not in this ONNX Runtime the file is checked, run by the host's
kernels and labelled as emitted; where it is, the session's own word and its report decide what ran on the NPU.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import weakref
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, final

from nxjax.backends.evidence import Label, digest
from nxjax.backends.extras import installed, need
from nxjax.backends.target import Build, Kind, NpuTarget, Run, Runner, Site, file_name, only
from nxjax.errors import ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions, package
from nxjax.lower.npu.formats.onnx_pow2 import regrid, regular
from nxjax.lower.npu.formats.onnx_writer import OnnxModel, emit
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.placement import place, unknown
from nxjax.lower.placement import Verdict
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.vendors.amd.table import verdict
from nxjax.vendors.onnx.placement import placements
from nxjax.vendors.onnx.target import fetched, modelled, run_on_host

EXTRA: Final = "onnx"
PROVIDER: Final = "VitisAIExecutionProvider"
# Options of the provider that are passed on as they are (Ryzen AI Software, "Model Compilation and Deployment").
PASSED: Final = ("config_file", "xclbin", "cache_dir", "cache_key", "encryption_key", "log_level")
KNOWN: Final = ("power_of_two", "overlay", *PASSED)
# X2 is for Strix and Krackan on, X1 for those and for Phoenix and Hawk Point, which need an overlay file.
OVERLAYS: Final = ("X2", "X1")
# Whose figures our cost model reckons with.
CHIPS: Final = {"X2": "xdna2", "X1": "xdna1"}
REPORT: Final = "vitisai_ep_report.json"
_VARIABLE: Final = "XLNX_ONNX_EP_REPORT_FILE"


@final
class AmdXdna(NpuTarget):
    """The NPU of AMD Ryzen AI processors.

    Options of `build`: ``power_of_two`` (True: AMD's XINT8, symmetric grids whose scales are powers of two, the default
    for int8 activations; False keeps the graph's own grids, AMD's A8W8 or A16W8), ``overlay`` ("X2" or "X1", which the
    provider calls target), and the provider's own ``config_file``, ``xclbin``, ``cache_dir``, ``cache_key``,
    ``encryption_key``, ``log_level``.
    """

    name: ClassVar[str] = "amd-xdna"
    title: ClassVar[str] = "AMD XDNA NPU (Ryzen AI)"
    site: ClassVar[Site] = "edge"
    format: ClassVar[str] = "onnx"
    extra: ClassVar[str] = EXTRA
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8", "float32")
    rules: ClassVar[str] = "AMD's published table of operators by their arithmetic, which says nothing of sizes"
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("AMD", "XDNA", drivers=("amdxdna",), module="onnxruntime", extra="onnx", target="amd-xdna"),
    )
    providers: ClassVar[Mapping[str, Mapping[str, str]]] = {"RyzenAI": {}}

    def available(self) -> tuple[Label, str]:
        if not installed("onnx"):
            return "emitted", f"pip install 'nxjax[{EXTRA}]' brings the ONNX packages"
        # The provider is part of AMD's build of ONNX Runtime, which brings this package.
        if installed("voe") and installed("onnxruntime"):
            return "hardware", "decided by the Vitis AI provider when a session is made"
        return "emitted", "the Vitis AI provider comes with AMD's Ryzen AI Software, which is not installed"

    def supports(self, node: Node) -> Verdict:
        return verdict(node)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        only(self.name, options, KNOWN)
        overlay, power = options.get("overlay", "X2"), bool(options.get("power_of_two", shifts(graph)))
        check_overlay(f"{self.name}: overlay", overlay, options)
        table = place(graph, lambda n: verdict(n, power))
        notes: list[str] = []
        written_graph = graph
        if power and not all(regular(t.grid) for t in graph.tensors()):
            written_graph, notes = regrid(graph)
            notes.append("quantize with power-of-two grids, or build with power_of_two=False, to keep the integers")
        written = emit(written_graph, OnnxOptions(17, "qdq-pow2" if power else "qdq", integer_products=False))
        provider = {"target": str(overlay), **{k: str(options[k]) for k in PASSED if options.get(k) is not None}}
        provider.setdefault("cache_key", "nxjax_" + hashlib.sha256(written.data).hexdigest()[:16])
        name = file_name(graph.name, "onnx")
        config = {"providers": [PROVIDER], "provider_options": [provider]}
        files = {name: written.data, name.replace(".onnx", ".vitisai.json"): json.dumps(config, indent=2).encode()}
        build = Build(files, table, notes=notes + written.notes)
        modelled(build, graph, CHIPS[str(overlay)])
        build.cost.add("file", len(written.data), "bytes", "measured")
        if not installed("onnxruntime"):
            build.notes.append("ONNX Runtime is not installed: the file was checked, not run")
            return build
        if not on_npu(build, graph, written_graph, written, provider):
            run_on_host(build, written, lambda run: across(graph, written_graph, run))
            if not any(PROVIDER in n for n in build.notes):
                build.notes.append(f"{PROVIDER} is not in this ONNX Runtime")
            build.notes.append("the host's kernels execute")
        return build


def check_overlay(what: str, overlay: object, options: Mapping[str, object]) -> None:
    """Raise `ParameterError` for an overlay that there is not, or without the file that it needs."""
    if overlay not in OVERLAYS:
        raise ParameterError(what, got=overlay, expected=" or ".join(OVERLAYS))
    if overlay == "X1" and not options.get("xclbin"):
        fix = "give the overlay of your processor that comes with Ryzen AI Software"
        raise ParameterError(f"{what} X1 needs xclbin", got=None, fix=fix)


def shifts(graph: NpuGraph) -> bool:
    """Whether AMD's XINT8, whose scales are powers of two, is for the graph: int8 activations and no wider ones."""
    stored = {t.dtype for t in graph.tensors() if t.grid is not None and not t.constant}
    return dtypes.int8 in stored and dtypes.int16 not in stored


def across(graph: NpuGraph, other: NpuGraph, run: Run) -> Run:
    """``run`` of a regridded graph as that of the graph it was made from: stored values change grid at the edges."""
    pairs_in, pairs_out = list(zip(graph.inputs, other.inputs)), list(zip(other.outputs, graph.outputs))

    def carried(x: NDArray, pair: tuple[Tensor, Tensor]) -> NDArray:
        have, want = pair
        if have.grid is None or want.grid is None or have.grid == want.grid:
            return x
        return want.grid.quantize(have.grid.dequantize(x))

    def both(args: Sequence[NDArray]) -> list[NDArray]:
        results = run([carried(x, p) for x, p in zip(args, pairs_in, strict=True)])
        return [carried(y, p) for y, p in zip(results, pairs_out, strict=True)]

    return both


def on_npu(
    build: Build, graph: NpuGraph, written_graph: NpuGraph, written: OnnxModel, provider: dict[str, str]
) -> bool:
    """Make a session with AMD's provider, if this ONNX Runtime has it; say what it placed.

    The label is "hardware" only if the provider says that it took nodes: it runs everything on the host otherwise, and
    does not complain.
    """
    ort = need("onnxruntime", EXTRA, "running ONNX files")
    if PROVIDER not in ort.get_available_providers():
        return False
    with contextlib.ExitStack() as cache:
        settings = {**provider, "enable_cache_file_io_in_mem": "0"}
        if not settings.get("cache_dir"):
            settings["cache_dir"] = tempfile.mkdtemp(prefix="nxjax_vitisai_")
            cache.callback(shutil.rmtree, settings["cache_dir"], ignore_errors=True)
        return _in_session(build, ort, (graph, written_graph, written), settings, cache)


def _in_session(
    build: Build,
    ort: Any,
    forms: tuple[NpuGraph, NpuGraph, OnnxModel],
    settings: dict[str, str],
    cache: contextlib.ExitStack,
) -> bool:
    """`on_npu`; ``cache`` removes the cache's folder, which it takes over where there is a session."""
    graph, written_graph, written = forms
    so = ort.SessionOptions()
    so.log_severity_level = 3
    took, tool = (digest(written.data),), f"{PROVIDER} of ONNX Runtime {ort.__version__}"
    before = reports(settings)
    with reporting():
        try:
            session = ort.InferenceSession(written.data, so, providers=[PROVIDER], provider_options=[settings])
        except Exception as error:  # ONNX Runtime's errors have no class in common
            build.record("failed", "vendor-compiler", tool, took=took, answer=str(error))
            build.notes.append(f"{PROVIDER} makes no session of the file: {str(error).strip()[:300]}")
            return False
    if PROVIDER not in session.get_providers():
        said = f"it gave way to {', '.join(session.get_providers())}"
        build.record("failed", "vendor-compiler", tool, took=took, answer=said)
        build.notes.append(f"{PROVIDER} did not start: {said}")
        return False
    names = [p.name for p in written.outputs]

    def run(args: Sequence[NDArray]) -> list[NDArray]:
        return fetched(written, session.run(names, written.feeds(args)), PROVIDER)

    weakref.finalize(run, cache.pop_all().close)
    where, lost = reported(settings, written.data, before)
    taken = sum(device == PROVIDER for device, _ in where.values())
    said = f"{taken} of {len(where)} operations on the NPU" if where else f"of {REPORT} it {lost}"
    build.record("compiled", "vendor-compiler", tool, took=took, answer=said)
    title = f"ONNX Runtime {ort.__version__} with {', '.join(session.get_providers())}"
    build.runner = Runner(across(graph, written_graph, run), title, "chip", took)
    if not where:
        build.placements = [unknown(n, f"{PROVIDER} did not say where it runs") for n in graph.nodes]
        build.notes.append(f"of {REPORT} the provider {lost}, so nothing is known to have run on the NPU")
        return True
    build.placements = placements(written_graph, written, where, {}, PROVIDER, build.placements)
    build.notes.append(f"the provider's report: {said}")
    return True


@contextlib.contextmanager
def reporting() -> Generator[None]:
    """The provider writes its report only where this variable names a file for it."""
    before = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = REPORT
    try:
        yield
    finally:
        if before is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = before


def reports(settings: Mapping[str, str]) -> dict[Path, tuple[int, int]]:
    """The reports in the provider's cache, each with the number of its file and when it was written."""
    found = sorted(Path(settings["cache_dir"], settings["cache_key"]).glob(f"**/{REPORT}"))
    return {path: (s.st_ino, s.st_mtime_ns) for path in found for s in [path.stat()]}


def reported(
    settings: Mapping[str, str], data: bytes, before: Mapping[Path, tuple[int, int]]
) -> tuple[dict[str, tuple[str, str]], str]:
    """What the provider's report says of a model, and why it says nothing. One of ``before`` is about another."""
    now = reports(settings)
    report = next((path for path, written in now.items() if before.get(path) != written), None)
    if report is None:
        return {}, "wrote none, and what lay in its cache may be of another model" if now else "left none"
    try:
        return read_report(json.loads(report.read_text()), data), "left one that names no operation of this file"
    except (OSError, ValueError, TypeError, AttributeError) as error:
        return {}, f"left one that cannot be read ({type(error).__name__})"


def read_report(report: Mapping[str, Any], data: bytes) -> dict[str, tuple[str, str]]:
    """Operation name to (provider or host, operator), from the provider's report on a model, given as its bytes.

    The report names operations by their results.
    """
    model = package().load_from_string(data)
    made = {out: n for n in model.graph.node for out in n.output}
    where: dict[str, tuple[str, str]] = {}
    for row in report.get("nodeStat", []):
        results = row.get("output", [])
        for out in [results] if isinstance(results, str) else results:
            node = made.get(out)
            if node is not None:
                device = PROVIDER if row.get("device") in ("NPU", "DPU", "IPU") else "CPU"
                where[node.name or out] = (device, node.op_type)
    return where


TARGETS: Final[tuple[type[NpuTarget], ...]] = (AmdXdna,)
