"""PopART's files: the operator set it reads, its options, the script that runs it."""

import ast
import json
import os
import stat
import sys

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ExecutionError, LoweringError, ParameterError

onnx = pytest.importorskip("onnx")
RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 8, 8, 3)).astype(np.float32)
W = RNG.standard_normal((3, 3, 3, 5)).astype(np.float32)
V = RNG.standard_normal((5, 4)).astype(np.float32)


def net(x):
    y = nx.nn.relu6(nx.lax.conv_general_dilated(x, W, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")))
    y = nx.pad(y, ((0, 0), (1, 1), (0, 2), (0, 0)))
    a, b = nx.split(y, [2], axis=-1)
    y = nx.concatenate([nx.clip(a, -0.5, 0.5), nx.where(b <= 0.1, b, 2 * b)], axis=-1)
    return nx.nn.softmax(y.mean((1, 2)) @ V, axis=-1)


def make(f=net, *args, **options):
    return nx.compile(f, target="graphcore-popart", **options)(*(args or (X,)))


def test_opset_10_and_the_values_of_the_function():
    artifact = make()
    model = onnx.load_from_string(artifact.bytes)
    assert [s.version for s in model.opset_import] == [10] and model.ir_version == 4
    np.testing.assert_allclose(np.asarray(artifact.run(X)), net(X), rtol=1e-5, atol=1e-6)
    assert artifact.label == "emitted" and any("PopART is not here" in n for n in artifact.notes)


def test_products_carry_popart_s_attributes():
    artifact = make(partials="half", available_memory_proportion=0.2)
    model = onnx.load_from_string(artifact.bytes)
    products = [n for n in model.graph.node if n.op_type in ("Conv", "Gemm", "MatMul")]
    assert len(products) == 2
    for n in products:
        found = {a.name: onnx.helper.get_attribute_value(a) for a in n.attribute}
        assert found["__partials_type"] == b"HALF" and abs(found["__available_memory"] - 0.2) < 1e-6


def test_session_options():
    files = make(num_ipus=4, pipeline=True, recompute=True, gradient_accumulation=8, replicas=2, device="model").files
    settings = json.loads(files["popart.json"])
    assert settings["ipus"] == 8 and settings["device"] == "model"
    assert settings["session"]["enablePipelining"] and settings["session"]["autoRecomputation"] == "Pipeline"
    assert settings["session"]["accumulationFactor"] == 8 and settings["session"]["replicatedGraphCount"] == 2
    assert settings["model"] in files and settings["outputs"]
    ast.parse(files["run_popart.py"].decode())


@pytest.mark.parametrize(
    "wrong",
    [{"opset": 13}, {"num_ipus": 0}, {"partials": "int"}, {"available_memory_proportion": 2}, {"device": "gpu"},
     {"python": 3}, {"pipeline": 1}],
)  # fmt: skip
def test_wrong_options(wrong):
    with pytest.raises(ParameterError, match="graphcore-popart"):
        make(**wrong)


def test_what_the_old_operator_set_has_not():
    with pytest.raises(LoweringError, match="cumsum before opset 11"):
        make(lambda x: nx.cumsum(x, axis=1))
    assert make(lambda x: nx.cumsum(x, axis=1), opset=11).deviation is not None


FAKE = """
import numpy as np
class _Enum:
    def __getattr__(self, name): return name
VirtualGraphMode = RecomputationType = _Enum()
class SessionOptions: pass
class DeviceManager:
    def acquireAvailableDevice(self, n): return None if n > 4 else ("ipu", n)
    def createIpuModelDevice(self, options): return ("model", options["numIPUs"])
    def createCpuDevice(self): return ("cpu", 1)
    def createOfflineIPUDevice(self, options): return ("offline", options["numIPUs"])
def AnchorReturnType(kind): return kind
def DataFlow(batches, anchors): return anchors
def PyStepIO(inputs, results): return inputs, results
class InferenceSession:
    def __init__(self, fnModel, dataFlow, deviceInfo, userOptions):
        import onnxruntime, onnx
        model = onnx.load(fnModel)
        for n in model.graph.node:
            for a in [a for a in n.attribute if a.name.startswith("__")]: n.attribute.remove(a)
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        self.names, self.options = list(dataFlow), userOptions
    def prepareDevice(self): pass
    def weightsFromHost(self): pass
    def initAnchorArrays(self): return {}
    def run(self, io):
        inputs, results = io
        results.update(zip(self.names, self.session.run(self.names, inputs)))
"""


def test_the_script_runs_in_an_interpreter_that_has_popart(tmp_path):
    """A stand-in for PopART's module, which computes with ONNX Runtime: the script, its settings, files and results."""
    pytest.importorskip("onnxruntime")
    (tmp_path / "popart.py").write_text(FAKE)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(python.stat().st_mode | stat.S_IEXEC)
    artifact = make(python=str(python), device="model", available_memory_proportion=0.3)
    assert artifact.label == "vendor-simulator" and "model" in artifact.runs_on
    np.testing.assert_allclose(np.asarray(artifact.run(X)), net(X), rtol=1e-5, atol=1e-6)
    absent = make(python=str(python), num_ipus=8)
    assert absent.label == "emitted" and absent.deviation is None
    assert "no 8 free IPUs" in " ".join(absent.notes) and [r.act for r in absent.evidence] == ["failed"]


def test_floats_are_compared_for_equality_in_the_old_operator_set():
    x = np.array([[1, np.nan, -0.0, 3], [2, np.nan, 0.0, np.inf]], np.float32)
    f = lambda x: (x[0] == x[1], x != nx.flip(x, 0), nx.where(x == 0, 7.0, x), nx.grad(lambda v: nx.max(v))(x[:, 2:]))
    artifact = make(f, x)
    assert {s.version for s in onnx.load_from_string(artifact.bytes).opset_import} == {10}
    for found, wanted in zip(artifact.run(x), f(x), strict=True):
        np.testing.assert_array_equal(np.asarray(found), np.asarray(wanted))


def interpreter(tmp_path, module: str, shell: str = "") -> str:
    """A stand-in for the SDK's Python, with a module or with a few words of shell."""
    (tmp_path / "popart.py").write_text(module)
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\n" + (shell or f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"\n'))
    python.chmod(python.stat().st_mode | stat.S_IEXEC)
    return str(python)


def test_the_label_is_what_popart_has_done(tmp_path):
    """`hardware` once the results of a run on IPUs were compared, and not for IPUs that are not here."""
    pytest.importorskip("onnxruntime")
    python = interpreter(tmp_path, FAKE)
    made = make(python=python, verify=False)
    assert made.label == made.report.label == "emitted" and "'ipu'" in made.runs_on
    np.testing.assert_allclose(np.asarray(made.run(X)), net(X), rtol=1e-5, atol=1e-6)
    assert made.label == "emitted"
    made.verify([X])
    assert made.label == made.report.label == "hardware"
    absent = make(python=python, num_ipus=64, verify=False)
    with pytest.raises(ExecutionError, match="no 64 free IPUs"):
        absent.run(X)
    assert absent.label == "emitted"
    assert make(python=python, device="cpu").label == "host"


LYING = {
    "nothing": "exit 0",
    "says it is there": "case $1 in -c) echo DeviceManager;; esac; exit 0",
    "empty results": "case $1 in -c) echo DeviceManager;; *) : > results.npz; : > model.popef;; esac",
    "other results": "case $1 in -c) echo DeviceManager;; *) cp inputs.npz results.npz; mkdir model.popef;; esac",
    "fails": "case $1 in -c) echo DeviceManager;; *) echo no licence >&2; exit 7;; esac",
    "fails at once": "exit 1",
    "garbage": "case $1 in -c) echo DeviceManager;; *) echo garbage > model.popef;; esac",
    "copies": "case $1 in -c) echo DeviceManager;; *) cp *.onnx model.popef;; esac",
}


@pytest.mark.parametrize("how", LYING)
@pytest.mark.parametrize("device", ["ipu", "model", "cpu", "offline"])
def test_tools_that_fail_or_lie_make_no_label(tmp_path, how, device):
    python = interpreter(tmp_path, "", LYING[how])
    made = make(python=python, device=device, verify=False)
    assert made.label == "emitted"
    if device == "offline" and "DeviceManager" in LYING[how]:
        assert "PopART gave no answer" in " ".join(made.notes) and "model.popef" not in made.files
        assert {r.act for r in made.evidence} == {"failed"}
    if "PopART" in made.runs_on:
        with pytest.raises(ExecutionError, match="PopART"):
            made.run(X)
    assert made.label == "emitted"


def test_offline_compiles_and_runs_nothing(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    compiles = (
        FAKE
        + """
    def compileAndExport(self, path):
        assert self.device == ("offline", 2)
        with open(path, "wb") as file: file.write(b"compiled" + str(self.names).encode())
"""
    )
    compiles = compiles.replace(
        "        self.names, self.options =", "        self.device = deviceInfo\n        self.names, self.options ="
    )
    # A module of the same name where the user is says nothing, and is not run.
    here = tmp_path / "here"
    here.mkdir()
    (here / "popart.py").write_text("open('ran', 'w')\nclass DeviceManager: pass\n")
    monkeypatch.chdir(here)
    monkeypatch.setenv("POPART_PYTHON", sys.executable)
    assert make().label == "emitted" and os.listdir(here) == ["popart.py"]
    made = make(python=interpreter(tmp_path, compiles), device="offline", num_ipus=2)
    assert made.label == "vendor-compiled" and made.files["model.popef"].startswith(b"compiled")
    with pytest.raises(ExecutionError, match="nothing on this machine can run"):
        made.run(X)
    canned = compiles.replace(" + str(self.names).encode()", "")
    made = make(python=interpreter(tmp_path, canned), device="offline", num_ipus=2)
    assert made.label == "emitted" and "same file of another model" in " ".join(made.notes)
    made = make(python=interpreter(tmp_path, FAKE), device="offline")
    assert made.label == "emitted" and "compileAndExport" in " ".join(made.notes)
