"""Generic ONNX artifacts: written, checked, run on the host."""

import numpy as np
import onnx
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ExecutionError, MissingExtraError, ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions
from nxjax.lower.npu.formats.onnx_writer import emit
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.vendors.amd.vitisai import AmdXdna
from nxjax.vendors.graphcore.popart import GraphcorePopart
from nxjax.vendors.onnx.target import TARGETS, Onnx, host
from tests.vendors.graphs import F32, cnn, hybrid, images


@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
@pytest.mark.parametrize("graph", [cnn(), hybrid()], ids=lambda g: g.name)
def test_targets_emit_and_run_on_the_host(target, graph):
    build = target().build(graph, {})
    assert build.label == "emitted" == target().available()[0]
    (data,) = build.files.values()
    onnx.checker.check_model(onnx.load_from_string(data), full_check=True)
    x = images() if graph.name == "cnn" else np.random.default_rng(0).standard_normal((4, 8)).astype(F32)
    (want,), (got,) = interpret(graph, [x]), build.run([x])
    np.testing.assert_allclose(got, want, atol=3 / 256 if graph.name == "cnn" else 1e-5)
    assert "host" in build.runs_on
    # A file for any reader: nobody here knows what a chip takes of it.
    assert {(p.device, p.decided_by) for p in build.placements} == {("unknown", "nobody")}


def test_options():
    build = Onnx().build(cnn(), {"opset": 21, "style": "float"})
    model = onnx.load_from_string(build.files["cnn.onnx"])
    assert model.opset_import[0].version == 21
    assert not any("Linear" in n.op_type for n in model.graph.node)
    (want,), (got,) = interpret(cnn(), [images()]), build.run([images()])
    assert np.abs(want - got).max() < 0.2
    for wrong in ({"opset": 12}, {"opset": "17"}, {"style": "best"}, {"level": 3}):
        with pytest.raises(ParameterError):
            Onnx().build(cnn(), wrong)


def test_popart_has_no_double():
    x = Tensor("x", (2,), np.dtype("float64"))
    verdict = GraphcorePopart().supports(Node("abs", (x,), (x,)))
    assert not verdict.ok and "f64" in verdict.reason


def test_missing_runtime_names_the_extra(monkeypatch):
    written = emit(hybrid(), OnnxOptions())
    monkeypatch.setattr("nxjax.backends.extras.installed", lambda _: False)
    with pytest.raises(MissingExtraError, match=r"nxjax\[onnx\]"):
        host(written)


def test_types_that_the_host_has_no_kernel_for_are_written_and_said():
    x, y = (Tensor(n, (4,), "int16") for n in "xy")
    graph = NpuGraph("m", [x], [y], [Node("maximum", (x, x), (y,), name="m")])
    for target in (Onnx(), AmdXdna()):
        build = target.build(graph, {})
        assert build.label == "emitted" and build.run is None and build.runs_on == ""
        assert any("the host cannot run the file" in n and "Max" in n for n in build.notes)


def test_failures_of_a_run_are_errors_of_nxjax():
    x, i, y = Tensor("x", (4,), "float32"), Tensor("i", (1,), "int32"), Tensor("y", (1,), "float32")
    build = Onnx().build(NpuGraph("g", [x, i], [y], [Node("gather", (x, i), (y,), {"axis": 0})]), {})
    assert build.run([np.float32([1, 2, 3, 4]), np.int32([2])])[0].tolist() == [3]
    with pytest.raises(ExecutionError, match="out of data bounds"):
        build.run([np.float32([1, 2, 3, 4]), np.int32([9])])


NUMBERS = {
    "arithmetic": lambda x: x * 2 + 1,
    "relu": nx.nn.relu,
    "sigmoid": nx.nn.sigmoid,
    "gelu": nx.nn.gelu,
    "choice": lambda x: jnp.where(x > 0, x, -1.0),
    "cast": lambda x: x.astype("int32"),
    "two": lambda x: (jnp.maximum(x, 2.0), x),
    "spread": lambda x: jnp.broadcast_to(x, (2, 3)) * x,
}


@pytest.mark.parametrize("target", ["onnx", "graphcore-popart", "amd-xdna"])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_without_dimensions_stay_so(name, target):
    """Inputs, constants and results of no dimensions, in float and on grids."""
    f, x = NUMBERS[name], jnp.float32(1.5)
    functions = [f]
    if target != "graphcore-popart" and name in ("arithmetic", "sigmoid", "relu"):
        functions.append(nx.quantize(f, "int8", calibrate=[(x,), (-x,)], params=()))
    for g in functions:
        artifact = nx.compile(g, target=target)(x)
        for got, want in zip(nx.tree.leaves(artifact.run(x)), nx.tree.leaves(f(x)), strict=True):
            assert got.shape == want.shape
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=0.03)
