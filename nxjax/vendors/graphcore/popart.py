"""Graphcore's PopART: an ONNX file of the operator set that it reads, its session's options, and a script that runs it.

PopART is part of the Poplar SDK and belongs to a Python of its own: the script is for that one, and where it is on this
machine it is run as a subprocess. The label is ``emitted`` until PopART has run or compiled the file. Without PopART
ONNX Runtime's host kernels run it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.backends.evidence import By, Label, digest, digests
from nxjax.backends.extras import installed
from nxjax.backends.target import Build, NpuTarget, Runner, Site, file_name, only
from nxjax.backends.tools import CHECKED, NO_MODEL, ToolAnswer, ask, doubt, read
from nxjax.errors import ExecutionError, ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions, package
from nxjax.lower.npu.formats.onnx_writer import OnnxModel, emit
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.placement import place
from nxjax.lower.placement import Placement, Verdict
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.dtypes import short_name
from nxjax.trace.types import Shape
from nxjax.vendors.onnx.target import OnnxTarget, fetched, run_on_host
from nxjax.vendors.probe import probe

# Operator sets that PopART's builder has; 10 is its own default.
OPSETS: Final = (10, 11)
# What takes part in the planning of products.
_PRODUCTS: Final = ("MatMul", "Gemm", "Conv", "ConvTranspose")
_OPTIONS: Final = (
    "opset", "num_ipus", "partials", "available_memory_proportion", "pipeline", "batches_per_step",
    "gradient_accumulation", "replicas", "recompute", "stochastic_rounding", "device", "python",
)  # fmt: skip
# What runs the model on each device; for IPUs that are not here ("offline") PopART only compiles.
RUNS: Final[dict[str, By]] = {"ipu": "chip", "model": "vendor-simulator", "cpu": "host"}
DEVICES: Final = (*RUNS, "offline")
COMPILED: Final = "model.popef"

_SCRIPT: Final = '''"""Runs the model: python run_popart.py [inputs.npz results.npz], with a Python that has PopART."""
import json
import os
import sys

import numpy as np
import popart

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "popart.json")) as file:
    settings = json.load(file)
options = popart.SessionOptions()
for name, value in settings["session"].items():
    if name == "virtualGraphMode":
        value = getattr(popart.VirtualGraphMode, value)
    if name == "autoRecomputation":
        value = getattr(popart.RecomputationType, value)
    setattr(options, name, value)
manager, ipus = popart.DeviceManager(), settings["ipus"]
device = {
    "ipu": lambda: manager.acquireAvailableDevice(ipus),
    "model": lambda: manager.createIpuModelDevice({"numIPUs": ipus, "tilesPerIPU": 1472, "ipuVersion": "ipu2"}),
    "cpu": manager.createCpuDevice,
    "offline": lambda: manager.createOfflineIPUDevice({"numIPUs": ipus}),
}[settings["device"]]()
if device is None:
    sys.exit("no %d free IPUs" % ipus)
anchors = {name: popart.AnchorReturnType("All") for name in settings["outputs"]}
session = popart.InferenceSession(
    fnModel=os.path.join(here, settings["model"]),
    dataFlow=popart.DataFlow(settings["batches_per_step"], anchors),
    deviceInfo=device,
    userOptions=options,
)
if settings["device"] == "offline":
    session.compileAndExport(os.path.join(here, "model.popef"))
    sys.exit(0)
session.prepareDevice()
session.weightsFromHost()
results = session.initAnchorArrays()
given, made = sys.argv[1:3]
with np.load(given) as inputs:
    session.run(popart.PyStepIO({k: np.asarray(inputs[k], order="C") for k in inputs.files}, results))
np.savez(made, **results)
'''


@final
class GraphcorePopart(OnnxTarget):
    """Graphcore's IPU through PopART.

    Options of `build`: ``opset`` (10 or 11), ``num_ipus``, ``partials`` ("float" or "half"),
    ``available_memory_proportion``, ``pipeline`` (the model over the IPUs in stages that PopART chooses),
    ``batches_per_step``, ``gradient_accumulation``, ``replicas``, ``recompute``, ``stochastic_rounding``, ``device``
    ("ipu", "model", "cpu" or "offline"), ``python``: the SDK's interpreter, if it is not on PATH as ``python3`` with
    PopART in it.
    """

    name: ClassVar[str] = "graphcore-popart"
    title: ClassVar[str] = "Graphcore IPU (PopART)"
    site: ClassVar[Site] = "data center"
    precision: ClassVar[tuple[str, ...]] = ("float32", "float16")
    options: ClassVar[OnnxOptions] = OnnxOptions(10, "float")
    rules: ClassVar[str] = "what PopART is told: it has one device, and runs all of a model there or none"

    def placed(self, subject: NpuGraph) -> list[Placement]:
        """Unknown before PopART was found: it publishes no table."""
        return place(subject, self.supports, False)

    def supports(self, node: Node) -> Verdict:
        for t in [*node.operands, *node.outputs]:
            if t.dtype in (dtypes.float64, dtypes.bfloat16):
                return Verdict(False, f"PopART has no {short_name(t.dtype)}", "use float32 or float16")
        return super().supports(node)

    def available(self) -> tuple[Label, str]:
        found, reason = popart_python("")
        if found:
            return "vendor-simulator", f"PopART through {found}"
        label, more = super().available()
        return label, f"{reason}; {more}"

    def build(self, graph: NpuGraph, options: dict[str, object]) -> Build:
        only(self.name, options, _OPTIONS)
        settings = _settings(options)
        written = emit(graph, OnnxOptions(settings.pop("opset"), "float"))
        python = str(settings.pop("python"))
        name = file_name(graph.name, "onnx")
        settings["model"] = name
        settings["outputs"] = [p.name for p in written.outputs]
        data = _with_attributes(written.data, settings.pop("products"))
        text = json.dumps(settings, indent=1, sort_keys=True) + "\n"
        files = {name: data, "popart.json": text.encode(), "run_popart.py": _SCRIPT.encode()}
        build = Build(files, self.placed(graph), notes=list(written.notes), host=settings["device"] == "cpu")
        build.cost.add("file", len(data), "bytes", "measured")
        found, reason = popart_python(python)
        if found and settings["device"] == "offline":
            took = digests(files)
            try:
                made, done = _compiled(found, files)
            except ExecutionError as error:
                build.unanswered(error, "vendor-compiler", "PopART", took)
                return build
            files[COMPILED] = made
            build.record(
                "compiled", "vendor-compiler", "PopART", command=done.command, status=done.status,
                took=took, gave=(digest(files[COMPILED]),), checked=CHECKED,
            )  # fmt: skip
            # PopART has no other device than what it was told to compile for.
            build.placements = [
                replace(r, device="ipu", reason="", decided_by="vendor") if r.device == "unknown" else r
                for r in build.placements
            ]
            build.notes.append(f"compiled by PopART through {found} for IPUs that are not here; nothing was run")
            return build
        if found:
            device = str(settings["device"])
            if RUNS[device] != "host":
                # What PopART takes runs there or not at all.
                build.placements = [
                    replace(r, device="ipu", reason="", decided_by="table") if r.device == "unknown" else r
                    for r in build.placements
                ]

            def run(args: Sequence[NDArray]) -> list[NDArray]:
                return _run(found, files, written, args)

            build.runner = Runner(run, f"PopART on its device {device!r}", RUNS[device], digests(files))
            return build
        build.notes.append(reason)
        build.notes.append(self.available()[1])
        if installed("onnxruntime"):
            # What PopART adds to nodes is for PopART alone.
            run_on_host(build, written)
        return build


def _settings(options: dict[str, object]) -> dict[str, Any]:
    """Options checked, as the script reads them."""

    def number(key: str, default: int, least: int = 1) -> int:
        value = options.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ParameterError(f"graphcore-popart: {key}", got=repr(value), expected=f"an int, at least {least}")
        return value

    def choice(key: str, known: Sequence[Any]) -> Any:
        value = options.get(key, known[0])
        if value not in known or type(value) is not type(known[0]):
            raise ParameterError(f"graphcore-popart: {key}", got=repr(value), expected=", ".join(map(repr, known)))
        return value

    share = options.get("available_memory_proportion", 0.6)
    if isinstance(share, bool) or not isinstance(share, (int, float)) or not 0 < share <= 1:
        raise ParameterError("graphcore-popart: available_memory_proportion", got=repr(share), expected="in (0, 1]")
    partials = choice("partials", ("float", "half"))
    pipeline, recompute = choice("pipeline", (False, True)), choice("recompute", (False, True))
    accumulation, replicas = number("gradient_accumulation", 1), number("replicas", 1)
    python = options.get("python", "")
    if not isinstance(python, str):
        raise ParameterError("graphcore-popart: python", got=repr(python), expected="the path of an interpreter")
    session: dict[str, Any] = {
        "virtualGraphMode": "Auto" if pipeline else "Off",
        "enablePipelining": pipeline,
        "autoRecomputation": ("Pipeline" if pipeline else "Standard") if recompute else "None",
        "enableGradientAccumulation": accumulation > 1,
        "accumulationFactor": accumulation,
        "enableReplicatedGraphs": replicas > 1,
        "replicatedGraphCount": replicas,
        "enableStochasticRounding": choice("stochastic_rounding", (False, True)),
        "partialsTypeMatMuls": partials,
        "convolutionOptions": {"partialsType": partials},
    }
    products: dict[str, Any] = {"__partials_type": partials.upper()}
    if "available_memory_proportion" in options:
        products["__available_memory"] = float(share)
    return {
        "opset": choice("opset", OPSETS),
        "ipus": number("num_ipus", 1) * replicas,
        "device": choice("device", DEVICES),
        "batches_per_step": number("batches_per_step", 1),
        "session": session,
        "products": products,
        "python": python,
    }


def _with_attributes(data: bytes, attributes: dict[str, Any]) -> bytes:
    """The model with PopART's own attributes on its products."""
    onnx = package()
    model = onnx.load_from_string(data)
    for node in model.graph.node:
        if node.op_type in _PRODUCTS:
            node.attribute.extend(onnx.helper.make_attribute(k, v) for k, v in attributes.items())
    found: bytes = model.SerializeToString()
    return found


def popart_python(given: str) -> tuple[str, str]:
    """An interpreter that has PopART, and why there is none. Nothing of PopART is loaded into this process."""
    named, enabled = os.environ.get("POPART_PYTHON", ""), bool(os.environ.get("POPLAR_SDK_ENABLED"))
    if not given and not enabled and not named:
        return "", "PopART is not here: the Poplar SDK is not enabled (POPLAR_SDK_ENABLED is not set)"
    tried = [given] if given else [p for p in (named, "python3") if p]
    for python in tried:
        path = shutil.which(python)
        path = None if path is None else os.path.abspath(path)
        if path is not None and _imports(path, os.stat(path).st_mtime_ns, os.environ.get("PYTHONPATH", "")):
            return path, ""
    return "", f"PopART is not here: {' and '.join(tried)} cannot import it"


@lru_cache(8)
def _imports(path: str, changed: int, where: str) -> bool:
    """Whether an interpreter imports PopART and shows its class; asked again when its file or its folders change."""
    try:
        code = "import popart; print(popart.DeviceManager.__name__)"
        # In an empty folder: a file popart.py in the user's own would be imported.
        with tempfile.TemporaryDirectory(prefix="nxjax-popart-") as folder:
            done = ask([path, "-c", code], folder, 120)
    except OSError:
        return False
    return not done.trouble and done.out.split()[-1:] == ["DeviceManager"]


def _script(python: str, folder: Path, files: dict[str, bytes], *arguments: str) -> ToolAnswer:
    """Run the script beside the files in a folder.

    Raises:
        ExecutionError: it cannot be run, does not end, or ends with an error.
    """
    for file, data in files.items():
        (folder / file).write_bytes(data)
    done = ask([python, "run_popart.py", *arguments], folder, 3600)
    if done.trouble:
        raise done.error("graphcore-popart: PopART failed")
    return done


def _compiled(python: str, files: dict[str, bytes]) -> tuple[bytes, ToolAnswer]:
    """What PopART compiles of the model.

    How PopEF's headers are written is not published. That what wrote it compiles shows in what it refuses.
    """
    data, done = _made(python, files)
    settings = json.loads(files["popart.json"])

    def besides(model: bytes, outputs: list[str]) -> bytes:
        text = json.dumps({**settings, "outputs": outputs}).encode()
        return _made(python, {**files, settings["model"]: model, "popart.json": text})[0]

    def another() -> bytes:
        other = emit(probe(quantized=False), OnnxOptions(OPSETS[0], "float"))
        return besides(other.data, [p.name for p in other.outputs])

    if why := doubt(data, files.values(), lambda: besides(NO_MODEL, settings["outputs"]), of_another=another):
        raise done.error("graphcore-popart: PopART compiled nothing", f"of {COMPILED}: {why}")
    return data, done


def _made(python: str, files: dict[str, bytes]) -> tuple[bytes, ToolAnswer]:
    with tempfile.TemporaryDirectory(prefix="nxjax-popart-") as name:
        folder = Path(name)
        done = _script(python, folder, files)
        with contextlib.suppress(OSError):
            return read(folder / COMPILED), done
        return b"", done


def _run(python: str, files: dict[str, bytes], written: OnnxModel, args: Sequence[NDArray]) -> list[NDArray]:
    with tempfile.TemporaryDirectory(prefix="nxjax-popart-") as name:
        folder = Path(name)
        np.savez(folder / "inputs.npz", **written.feeds(args))  # pyright: ignore[reportArgumentType]
        _script(python, folder, files, "inputs.npz", "results.npz")
        try:
            with np.load(io.BytesIO(read(folder / "results.npz")), allow_pickle=False) as found:
                results = [_shaped(found[p.name], p.tensor.shape) for p in written.outputs]
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise ExecutionError(
                "graphcore-popart: PopART ended without an error and without the results",
                got=f"{type(error).__name__}: {error}",
                expected=", ".join(f"{p.name} {list(p.tensor.shape)}" for p in written.outputs),
            ) from error
    return fetched(written, results, "graphcore-popart: PopART")


def _shaped(y: NDArray, shape: Shape) -> NDArray:
    """A result without the dimensions of 1 that PopART's anchors have in front, for one batch per step."""
    ahead = y.ndim - len(shape)
    return y.reshape(shape) if ahead > 0 and y.shape == (1,) * ahead + tuple(shape) else y


TARGETS: Final[tuple[type[NpuTarget], ...]] = (GraphcorePopart,)
