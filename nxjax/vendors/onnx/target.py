"""ONNX artifacts for vendors whose compilers are not on this machine: written, checked, and run on the host.

Intel Gaudi and Groq read ONNX files. What is claimed here is the file and what ONNX Runtime's host
kernels compute from it; nothing is said of the chip but what its published rules say of float files.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.backends.evidence import Label, digest
from nxjax.backends.extras import installed, need
from nxjax.backends.target import Build, Kind, NpuTarget, Run, Runner, Site, file_name, only, variant
from nxjax.errors import ExecutionError, LoweringError, ParameterError
from nxjax.lower.npu.blocks import compact
from nxjax.lower.npu.cost import estimate
from nxjax.lower.npu.formats.onnx_build import WIDE_QDQ, OnnxOptions
from nxjax.lower.npu.formats.onnx_writer import OnnxModel, emit
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.placement import YES, Placement, Verdict
from nxjax.ops.base import NDArray

EXTRA: Final = "onnx"
NO_COMPILER: Final = (
    "the chip's compiler is not here, and what it makes of the file is for it to say; "
    "the file is checked and run on the host"
)


def host(written: OnnxModel, extra: str = EXTRA) -> tuple[Run, str]:
    """ONNX Runtime's host kernels for a model, and their name.

    Optimizations are off: they would fuse QDQ units into int8 kernels that saturate on CPUs without VNNI.

    Raises:
        LoweringError: ONNX Runtime has no kernel for some operator and type, though ONNX has.
    """
    ort: Any = need("onnxruntime", extra, "running ONNX files on the host")
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    so.log_severity_level = 4
    try:
        session = ort.InferenceSession(written.data, so, providers=["CPUExecutionProvider"])
    except Exception as error:
        # ONNX Runtime's errors have no class in common that it promises.
        raise LoweringError("onnx: ONNX Runtime cannot run this model", got=_first_line(error)) from error
    names = [p.name for p in written.outputs]

    def run(args: Sequence[NDArray]) -> list[NDArray]:
        feeds = written.feeds(args)
        try:
            results = session.run(names, feeds)
        except Exception as error:
            raise ExecutionError("onnx: ONNX Runtime failed while it ran", got=_first_line(error)) from error
        return fetched(written, results, "ONNX Runtime")

    return run, f"ONNX Runtime {ort.__version__} on the host, optimizations off"


def fetched(written: OnnxModel, results: Sequence[Any], who: str) -> list[NDArray]:
    """The graph's outputs for the file's.

    Raises:
        ExecutionError: they are not of the shapes and dtypes that the file has.
    """
    given = [np.asarray(y) for y in results]
    got, expected = [(y.dtype, y.shape) for y in given], [(p.dtype, p.tensor.shape) for p in written.outputs]
    if got != expected:
        words = [", ".join(f"{dtype}{list(shape)}" for dtype, shape in rows) for rows in (got, expected)]
        raise ExecutionError(f"{who} gave results of other shapes or dtypes", got=words[0], expected=words[1])
    return written.fetched(given)


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0][:300]


def started(graph: NpuGraph, options: OnnxOptions, rows: list[Placement]) -> tuple[Build, OnnxModel]:
    """A build of the file that says ``graph``, and what was written."""
    written = emit(graph, options)
    build = Build({file_name(graph.name, "onnx"): written.data}, rows, notes=list(written.notes))
    build.cost.add("file", len(written.data), "bytes", "measured")
    return build, written


def run_on_host(build: Build, written: OnnxModel, through: Callable[[Run], Run] = lambda run: run) -> None:
    """Give ``build`` what runs its file here, or say why nothing does."""
    try:
        run, title = host(written)
    except LoweringError as error:
        build.notes.append(f"the host cannot run the file: {error.got}")
        return
    build.runner = Runner(through(run), title, "host", (digest(written.data),))


def modelled(build: Build, graph: NpuGraph, chip: str) -> None:
    """Add our cost model's figures of a chip, or the reason why it has none for the graph."""
    try:
        build.cost.figures |= estimate(graph, chip, build.placements).figures
    except LoweringError as e:
        build.cost.why = e.what
        build.notes.append(e.what)


class OnnxTarget(NpuTarget):
    """A vendor that reads ONNX.

    Options of `build`: ``opset`` (13 to 23; by default 17, or 21 for weights of 4 bits or in blocks), ``style`` ("qdq",
    "qdq-pow2" or "float"), ``unsigned`` (uint8 activations).
    """

    format: ClassVar[str] = "onnx"
    extra: ClassVar[str] = EXTRA
    precision: ClassVar[tuple[str, ...]] = ("int8", "int16x8", "float32", "float16")
    options: ClassVar[OnnxOptions] = OnnxOptions(17)
    # Neither vendor publishes what its chip takes of ONNX.
    rules: ClassVar[str] = ""

    def available(self) -> tuple[Label, str]:
        missing = [m for m in ("onnx", "onnxruntime") if not installed(m)]
        if missing:
            return "emitted", f"pip install 'nxjax[{EXTRA}]' brings {' and '.join(missing)}"
        return "emitted", NO_COMPILER

    def supports(self, node: Node) -> Verdict:
        return YES

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        only(self.name, options, ("opset", "style", "unsigned"))
        o = self.options
        if any(map(compact, graph.all_graphs())):
            # The first in which four bits and blocks are stored as such.
            o = replace(o, opset=WIDE_QDQ)
        opset, style, unsigned = (options.get(k, getattr(o, k)) for k in ("opset", "style", "unsigned"))
        if not isinstance(opset, int) or style not in ("qdq", "qdq-pow2", "float") or not isinstance(unsigned, bool):
            raise ParameterError(f"{self.name}: options", got=options, expected="opset int, style name, unsigned bool")
        build, written = started(graph, OnnxOptions(opset, style, unsigned), self.placed(graph))
        build.notes.append(self.available()[1])
        if installed("onnxruntime"):
            run_on_host(build, written)
        return build


@final
class HabanaGaudi(OnnxTarget):
    """Intel Gaudi computes float32 and float16 from ONNX; 8-bit integers are not among its products."""

    name: ClassVar[str] = "habana-gaudi"
    title: ClassVar[str] = "Intel Habana Gaudi"
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Habana", "Gaudi", drivers=("habanalabs",), nodes=("dev/hl[0-9]*",), target="habana-gaudi"),
    )
    site: ClassVar[Site] = "data center"
    precision: ClassVar[tuple[str, ...]] = ("float32", "float16")


Onnx: Final = variant(OnnxTarget, "onnx", "ONNX file", recurrent=frozenset(("lstm", "gru", "rnn")))
Groq: Final = variant(OnnxTarget, "groq", "Groq LPU", site="data center")
TARGETS: Final[tuple[type[NpuTarget], ...]] = (Onnx, HabanaGaudi, Groq)
