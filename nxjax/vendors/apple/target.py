"""Apple's Neural Engine through Core ML: the target "apple-ane".

The package is written, read back and checked anywhere; Core ML itself is part of macOS. There, and only there, the
model is loaded for CPU and Neural Engine, run, and asked where each operation is placed. Elsewhere nothing runs.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.backends.evidence import By, Label, digests
from nxjax.backends.extras import installed, need
from nxjax.backends.target import Build, Kind, NpuTarget, Runner, Site, only
from nxjax.errors import ExecutionError, ParameterError, ShapeError
from nxjax.lower.npu.formats.coreml_net import clean, node_names, port_names
from nxjax.lower.npu.formats.coreml_writer import Contents, author, quiet, read
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import place, placed, unknown
from nxjax.lower.placement import Cost, Device, Placement, Verdict
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.vendors.apple import table

EXTRA: Final = "coreml"
PRECISIONS: Final = {"float16": dtypes.float16, "float32": dtypes.float32}
# Ops that never vanish into others.
PRODUCTS: Final = frozenset(
    (
        "conv_2d",
        "depthwise_conv_2d",
        "transpose_conv",
        "conv_3d",
        "transpose_conv_3d",
        "fully_connected",
        "batch_matmul",
    )
)
_OPTIONS: Final = ("precision",)


def has_core_ml() -> bool:
    """Whether this is a system that Core ML is part of."""
    return sys.platform == "darwin"


@final
class CoreMLSession:
    """A package loaded by Core ML for CPU and Neural Engine. macOS only.

    Attributes:
        placed: for each operation of the program by name, whether Core ML prefers the Neural Engine for it.
    """

    def __init__(self, graph: NpuGraph, files: Mapping[str, bytes]) -> None:
        ct = need("coremltools", EXTRA, "Core ML")
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.fed, self.made = port_names(graph)
        self.lock = threading.Lock()
        # Core ML reads weights from the folder for as long as the model lives.
        folder = tempfile.mkdtemp()
        self.cleanup = weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        path = os.path.join(folder, "model.mlpackage")
        for name, data in files.items():
            full = os.path.join(path, *name.split("/"))
            os.makedirs(os.path.dirname(full), exist_ok=True)
            with open(full, "wb") as file:
                file.write(data)
        try:
            self.model: Any = ct.models.MLModel(path, compute_units=ct.ComputeUnit.CPU_AND_NE)
        except Exception as error:  # the framework's errors arrive as bare exceptions
            raise ExecutionError("apple-ane: Core ML does not load the package", got=error) from error
        self.placed: dict[str, bool] = {}
        self.silent = ""
        try:
            self.placed = self.plan(ct)
        except Exception as error:
            self.silent = f"Core ML's plan cannot be read ({error}), so that it is not known what runs where"

    def plan(self, ct: Any) -> dict[str, bool]:
        """Core ML's own account of where it means to run each operation."""
        module = ct.models.compute_plan
        plan = module.MLComputePlan.load_from_path(
            path=self.model.get_compiled_model_path(), compute_units=ct.ComputeUnit.CPU_AND_NE
        )
        engine = ct.models.compute_device.MLNeuralEngineComputeDevice
        found: dict[str, bool] = {}
        for operation in plan.model_structure.program.functions["main"].block.operations:
            usage = plan.get_compute_device_usage_for_mlprogram_operation(operation)
            if usage is not None:
                on_engine = isinstance(usage.preferred_compute_device, engine)
                found |= {output.name: on_engine for output in operation.outputs}
        return found

    def __call__(self, args: Sequence[NDArray]) -> list[NDArray]:
        if [a.shape for a in args] != [t.shape for t in self.inputs]:
            raise ShapeError(
                "apple-ane: arguments", got=[a.shape for a in args], expected=[t.shape for t in self.inputs]
            )
        # Core ML has no inputs without dimensions.
        fed = {
            name: np.atleast_1d(a).astype(np.float32 if t.grid is None and a.dtype.kind == "f" else np.int32)
            for name, t, a in zip(self.fed, self.inputs, args, strict=True)
        }
        with self.lock:
            made = self.model.predict(fed)
        rows = zip(self.made, self.outputs, strict=True)
        return [np.asarray(made[name]).astype(t.dtype).reshape(t.shape) for name, t in rows]


def checked(graph: NpuGraph, contents: Contents) -> None:
    """Hold what was read back from the files against the graph.

    Raises:
        ExecutionError: an input, a result or a node's operation is not there, or of another shape.
    """
    fed, made = port_names(graph)
    taken = [t.shape or (1,) for t in graph.inputs]
    given = [t.shape for t in graph.outputs]
    for part, names, shapes in ((contents.inputs, fed, taken), (contents.outputs, made, given)):
        expected = list(zip(names, shapes, strict=True))
        if [(name, shape) for name, shape, _ in part] != expected:
            raise ExecutionError("apple-ane: the package has other inputs or results", got=part, expected=expected)
    known = {o.name for o in contents.operations}
    lost = [name for n, name in named(graph).items() if n.op in PRODUCTS and name not in known]
    if lost:
        raise ExecutionError("apple-ane: operations are missing in the package", got=lost)


def named(graph: NpuGraph) -> dict[Node, str]:
    """The operation that stands for each node."""
    return dict(zip(graph.nodes, node_names(graph), strict=True))


@final
class AppleNeuralEngine(NpuTarget):
    """The Neural Engine of Apple's chips.

    Options of `build`: ``precision`` ("float16", which the Neural Engine computes in, or "float32", for the CPU).
    """

    name: ClassVar[str] = "apple-ane"
    title: ClassVar[str] = "Apple Neural Engine"
    site: ClassVar[Site] = "edge"
    format: ClassVar[str] = "coreml"
    extra: ClassVar[str] = EXTRA
    precision: ClassVar[tuple[str, ...]] = ("int8", "float16")
    chips: ClassVar[tuple[Kind, ...]] = (
        Kind("Apple", "Neural Engine", systems=(("darwin", "arm64"),), module="coremltools", extra="coreml",
             target="apple-ane"),
    )  # fmt: skip
    rules: ClassVar[str] = "what others measured and published of operators, types and sizes, as Apple has no table"

    def available(self) -> tuple[Label, str]:
        if not installed("coremltools"):
            return "emitted", f"coremltools is not installed: pip install 'nxjax[{EXTRA}]'"
        if has_core_ml():
            return "hardware", ""
        return "emitted", "Core ML runs on macOS only: the package is written and checked, nothing runs it here"

    def supports(self, node: Node) -> Verdict:
        return table.supports(node)

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        """Write the package, read it back, check it; on macOS load it too.

        Raises:
            MissingExtraError: coremltools is not installed.
        """
        only(self.name, options, _OPTIONS)
        precision = str(options.get("precision", "float16"))
        if precision not in PRECISIONS:
            raise ParameterError("apple-ane: option precision", got=precision, expected=" or ".join(PRECISIONS))
        with quiet():
            need("coremltools", EXTRA, "writing Core ML packages")
        package = author(graph, PRECISIONS[precision])
        contents = read(package.files)
        checked(graph, contents)
        stem = f"{clean(graph.name or 'model')}.mlpackage"
        cost = Cost()
        cost.add("file", sum(map(len, package.files.values())), "bytes", "measured")
        cost.add("weights", sum(contents.weights.values()), "bytes", "measured")
        # The program first: it is what ``Artifact.bytes`` gives of the package.
        names = sorted(package.files, key=lambda name: (not name.endswith(".mlmodel"), name))
        files = {f"{stem}/{name}": package.files[name] for name in names}
        made = Build(files, place(graph, self.supports), cost, notes=list(package.notes))
        made.notes += sorted({r for n in graph.nodes if (r := table.remarks(n))})
        if not has_core_ml():
            made.notes.append(
                "Core ML decides where each operation runs when it loads the package, on macOS or iOS; "
                "placement here is an expectation"
            )
            return made
        session = CoreMLSession(graph, package.files)
        title, took = "Core ML on this Mac, CPU and Neural Engine", digests(files)
        if session.silent:
            made.placements = [unknown(n, session.silent) for n in graph.nodes]
            made.notes.append(session.silent)
        else:
            made.placements = self.as_planned(graph, session.placed)
        # What is expected has not run there: only Core ML's own plan counts.
        planned = sum(p.on_chip and p.decided_by == "vendor" for p in made.placements)
        by: By = "chip" if planned else "host"
        said = session.silent or f"Core ML plans {planned} of {len(made.placements)} ops for the Neural Engine"
        made.record("compiled", "vendor-compiler", "Core ML", took=took, answer=said)
        made.runner = Runner(session, title, by, took)
        return made

    def as_planned(self, graph: NpuGraph, planned: Mapping[str, bool]) -> list[Placement]:
        """Core ML's own plan where it says something of a node's operation; our expectation elsewhere."""
        names = named(graph)
        rows: list[Placement] = []
        for n, expected in zip(graph.nodes, place(graph, self.supports), strict=True):
            on_engine = planned.get(names[n])
            if on_engine is None:
                rows.append(expected)
                continue
            reason = "" if on_engine else expected.reason or "Core ML prefers the CPU for it"
            suggestion = "" if on_engine else expected.suggestion
            device: Device = "npu" if on_engine else "host"
            rows.append(placed(n, device, reason, suggestion))
        return rows


TARGETS: Final[Sequence[type[NpuTarget]]] = (AppleNeuralEngine,)
