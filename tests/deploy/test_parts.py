"""What no NPU file has a form for is computed by the host; the rest of the program is the chip's."""

import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.deploy.parts import _alternating
from nxjax.errors import PlacementError, UnsupportedOpsError

RNG = np.random.default_rng(0)
W, V = (RNG.normal(size=(16, 16)).astype(np.float32) / 4 for _ in range(2))
X = RNG.normal(size=(4, 16)).astype(np.float32)
PACKAGES = {"tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino", "apple-ane": "coremltools"}


def transformed(x):
    """Products on both sides of a Fourier transform."""
    middle = jnp.abs(jnp.fft.fft(nx.nn.relu(x @ W)))
    return jnp.tanh(middle @ V)


def placed(i, x):
    return jnp.zeros((6, 16)).at[i].add(jnp.tanh(x @ W)), x.sum()


def called(x):
    double = lambda y: np.asarray(y) * np.float32(2)
    return nx.pure_callback(double, nx.ShapeDtypeStruct((4, 16), np.float32), x @ W) + 1


PROGRAMS = {
    "fft": (transformed, (X,), "fft"),
    "scatter": (placed, (np.int32([3, 0, 3, 5]), X), "scatter_add"),
    "callback": (called, (X,), "pure_callback"),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T + jnp.eye(4)) @ x, (X,), "cholesky"),
}


@pytest.mark.parametrize("target", ["tflite", "onnx", "openvino-cpu"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_parts_together_are_the_program(name, target):
    pytest.importorskip(PACKAGES[target])
    f, args, op = PROGRAMS[name]
    artifact = nx.compile(f, target=target)(*args)
    assert artifact.deviation.max_error < 1e-5
    for got, want in zip(nx.tree.leaves(artifact.run(*args)), nx.tree.leaves(f(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)
    (row,) = (r for r in artifact.report.rows if r.op == op)
    assert row.device == "host" and row.reason and row.suggestion and row.source.file == __file__


def test_the_plan_says_which_file_computes_what():
    artifact = nx.compile(transformed, target="tflite")(X)
    plan = json.loads(artifact.bytes)
    assert [part["on"] for part in plan["parts"]] == ["tflite", "host", "tflite"]
    assert [part["inputs"] for part in plan["parts"]] == [[["input", 0]], [["part", 0, 0]], [["part", 1, 0]]]
    assert plan["outputs"] == [["part", 2, 0]]
    assert {part["file"] for part in plan["parts"]} == set(artifact.files) - {next(iter(artifact.files))}


def test_each_file_is_one_that_its_runtime_takes():
    """LiteRT and XLA, apart from nxjax's own way through the parts."""
    interpreter = pytest.importorskip("ai_edge_litert.interpreter")
    artifact = nx.compile(transformed, target="tflite")(X)
    first = next(data for name, data in artifact.files.items() if name.endswith(".tflite"))
    runtime = interpreter.Interpreter(model_content=first)
    runtime.allocate_tensors()
    runtime.set_tensor(runtime.get_input_details()[0]["index"], X)
    runtime.invoke()
    np.testing.assert_allclose(
        runtime.get_tensor(runtime.get_output_details()[0]["index"]), np.maximum(X @ W, 0), rtol=1e-5, atol=1e-5
    )
    (host,) = (data for name, data in artifact.files.items() if name.endswith(".mlir"))
    assert b"stablehlo.fft" in host


def test_a_chip_computes_its_parts():
    pytest.importorskip("ethosu")
    f = nx.quantize(transformed, "int8", calibrate=[(X,)])
    artifact = nx.compile(f, target="ethos-u55")(X)
    assert artifact.label == "vendor-compiled" and 0 < artifact.report.share < 1
    assert {r.op for r in artifact.report.rows if r.device == "npu"} >= {"fully_connected"}
    assert artifact.deviation.max_error < 1e-5
    with pytest.raises(PlacementError, match="fft"):
        nx.compile(f, target="ethos-u55", strict=True)(X)
    report = nx.explain(f, target="ethos-u55")(X)
    assert [r.op for r in report.rows] == [r.op for r in artifact.report.rows]


def test_the_simulator_of_the_htp_runs_its_parts():
    pytest.importorskip("onnxruntime_qnn")
    artifact = nx.compile(transformed, target="qualcomm-htp")(X)
    assert artifact.label == "vendor-simulator" and artifact.deviation.sqnr > 40


def test_core_ml_has_no_loops_so_they_are_the_hosts():
    pytest.importorskip("coremltools")
    f = lambda n, x: lax.fori_loop(0, n, lambda i, v: jnp.tanh(v @ W), x) @ V
    artifact = nx.compile(f, target="apple-ane")(np.int32(3), X)
    assert {r.op: r.device for r in artifact.report.rows}["while"] == "host"
    assert any(name.endswith("model.mlmodel") for name in artifact.files)


def test_nothing_for_the_chip_is_an_error():
    with pytest.raises(UnsupportedOpsError, match="fft"):
        nx.compile(lambda x: jnp.fft.fft(x).real, target="tflite")(X)
    # A part in floats is none of a chip of integers.
    with pytest.raises(UnsupportedOpsError, match="fft"):
        nx.compile(transformed, target="ethos-u55")(X)


def test_sides_change_as_seldom_as_can_be():
    p = nx.make_jaxpr(lambda x: (jnp.sin(lax.lgamma(x)) + jnp.cos(x), lax.lgamma(jnp.exp(x))))(X)
    names = [e.op.name for e in p.equations]
    host = {i for i, name in enumerate(names) if name == "lgamma"}
    level = dict(zip([f"{n}{i}" for i, n in enumerate(names)], _alternating(p, host), strict=True))
    assert sorted(level.values()) == [0, 0, 1, 1, 2, 2]
