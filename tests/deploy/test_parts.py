"""What no NPU file has a form for is computed by the host; the rest of the program is the chip's."""

import base64
import json

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.deploy import parts
from nxjax.deploy.parts import _alternating
from nxjax.errors import LoweringError, PlacementError, UnsupportedOpsError
from nxjax.lower.npu.lower import RefusedEquation

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


def test_constants_are_in_the_parts_that_read_them():
    """A bias that repeats was a result of the first part, so that a second one had no form and went to the host."""
    f = lambda i, x: jnp.tanh(jnp.zeros((6, 16)).at[i].add(jnp.tanh(x @ W)) @ V)
    args = np.int32([3, 0, 3, 5]), X
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[args]), target="tflite")(*args)
    assert [name.rpartition(".")[2] for name in artifact.files] == ["json", "tflite", "mlir", "tflite"]
    assert {r.op for r in artifact.report.rows} >= {"fully_connected"} and artifact.report.mac_share == 0
    assert not [r for r in artifact.report.rows if r.op == "qdot"]


@pytest.mark.parametrize("error", [UnsupportedOpsError, LoweringError])
def test_a_part_that_has_no_form_says_why(error, monkeypatch):
    whole = parts.lower

    def some(program, name, **how):
        if name.endswith("_2"):
            refused = error("no such weights", got="a row", fix="bind them")
            refused.rows = (RefusedEquation("dot_general", "", "no such weights", "bind them", None, ""),)
            raise refused
        return whole(program, name, **how)

    monkeypatch.setattr(parts, "lower", some)
    artifact = nx.compile(transformed, target="tflite")(X)
    reasons = {r.op: (r.reason, r.suggestion) for r in artifact.report.rows}
    assert "no such weights" in reasons["dot_general"][0] and reasons["dot_general"][1] == "bind them"
    assert artifact.deviation.max_error < 1e-5


def test_what_parts_call_alike_is_kept_apart():
    q = nx.quantize(transformed, "int8", calibrate=[(X,)])
    artifact = nx.compile(q, target="aie-npu1")(X)
    scripts = [data for name, data in artifact.files.items() if name.endswith("build.sh")]
    assert len(scripts) == 2 and b"transformed_0" in scripts[0] and b"transformed_2" in scripts[1]
    plan = json.loads(artifact.bytes)
    assert {name for part in plan["parts"] for name in part["sha256"]} == set(artifact.files) - {
        "transformed.parts.json"
    }


def test_a_plan_has_constants_of_all_types():
    constants = np.float32([np.nan, np.inf, -0.0]), np.int32([-1]), np.complex64([1 + 2j]), np.bool_([True])
    f = lambda x: (jnp.fft.fft(jnp.tanh(x @ W)).real, *map(jnp.asarray, constants))
    artifact = nx.compile(f, target="tflite")(X)
    refuse = lambda word: pytest.fail(f"{word} is no JSON")
    plan = json.loads(artifact.bytes, parse_constant=refuse)
    assert plan["inputs"] == [{"dtype": "float32", "shape": [4, 16]}]
    values = [entry[1] for entry in plan["outputs"] if entry[0] == "value"]
    for value, wanted in zip(values, constants, strict=True):
        data = np.frombuffer(base64.b64decode(value["base64"]), value["dtype"]).reshape(value["shape"])
        assert data.dtype == wanted.dtype and data.tobytes() == wanted.tobytes()


def test_plans_of_two_names_in_one_folder(tmp_path):
    first = nx.compile(transformed, target="tflite")(X)
    second = nx.compile(nx.quantize(transformed, "int8", calibrate=[(X,)]), target="tflite")(X)
    for artifact, name in ((first, "a.json"), (second, "b.parts.json"), (first, "a.json")):
        artifact.save(tmp_path / name)
    for artifact, name in ((first, "a.json"), (second, "b.parts.json")):
        plan = json.loads((tmp_path / name).read_bytes())
        names = [file for part in plan["parts"] for file in part["sha256"]]
        assert all(file.startswith(name[0] + "_") for file in names)
        assert [(tmp_path / file).read_bytes() for file in names] == list(artifact.files.values())[1:]


def test_a_plan_of_packages_has_a_name(tmp_path):
    pytest.importorskip("coremltools")
    artifact = nx.compile(transformed, target="apple-ane")(X)
    artifact.save(tmp_path / "net.json")
    plan = json.loads((tmp_path / "net.json").read_bytes())
    assert all((tmp_path / file).is_file() for part in plan["parts"] for file in part["sha256"])
