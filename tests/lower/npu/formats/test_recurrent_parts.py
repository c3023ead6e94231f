"""Recurrent layers are each format's own operators, and runtimes compute with the files what the functions mean."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import InvalidFileError
from nxjax.lower.npu.formats import onnx_read, tflite, tflite_read
from nxjax.lower.npu.formats.recurrent_parts import zero
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from tests.lower.npu.recurrent.cells import CELLS, EVERY, OTHERS, X, hoisted, joined, reset_after

RUNTIMES = {"onnx": "onnxruntime", "openvino-cpu": "openvino", "tflite": "ai_edge_litert"}
HAS = {"tflite": {"lstm", "rnn"}}


def other(seed):
    return np.random.default_rng(seed).normal(size=X.shape).astype(np.float32)


def leaves(y):
    return [np.asarray(v) for v in nx.tree.leaves(y)]


def assert_runs(f, artifact, tolerance=1e-5):
    """Call by call: none depends on one before."""
    for seed in (1, 2, 1):
        x = other(seed)
        for got, want in zip(leaves(artifact.run(x)), leaves(f(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize(("op", "f"), EVERY, ids=[f.__name__ for _, f in EVERY])
def test_a_runtime_has_the_layer_as_its_own(target, op, f):
    pytest.importorskip(RUNTIMES[target])
    made = nx.compile(f, target=target)(X)
    found = {row.op for row in made.report.rows}
    assert (op in found) == (op in HAS.get(target, CELLS)) and "while" not in found
    assert_runs(f, made)


@pytest.mark.parametrize("target", RUNTIMES)
def test_another_loop_is_as_it_was(target):
    pytest.importorskip(RUNTIMES[target])
    for f in OTHERS[:3]:
        made = nx.compile(f, target=target)(X)
        assert not CELLS.keys() & {row.op for row in made.report.rows}
        assert_runs(f, made)


@pytest.mark.parametrize("target", RUNTIMES)
def test_a_file_does_not_grow_with_the_steps(target):
    pytest.importorskip(RUNTIMES[target])
    f = lambda x: joined(x)[1]
    sizes = [len(nx.compile(f, target=target)(np.resize(X, (steps, 2, 3))).bytes) for steps in (4, 64, 400)]
    assert max(sizes) - min(sizes) < 64


@pytest.mark.parametrize("options", [{}, {"kernels": "default"}], ids=["reference", "default"])
def test_litert_keeps_no_state_from_call_to_call(options):
    pytest.importorskip("ai_edge_litert")
    for f in (joined, hoisted, *CELLS["rnn"]):
        assert_runs(f, nx.compile(f, target="tflite", **options)(X))


def states_given(x, h, c):
    """The states are results of another node, in whose place LiteRT may compute."""
    from tests.lower.npu.recurrent.cells import R, W, cell

    def step(s, row):
        h, c = cell(s[1], *nx.numpy.split(row @ W + s[0] @ R, 4, -1))
        return (h, c), h

    return nx.lax.scan(step, (nx.numpy.tanh(h), c * 2), x)


@pytest.mark.parametrize("target", RUNTIMES)
def test_states_that_are_computed(target):
    pytest.importorskip(RUNTIMES[target])
    args = X, other(3)[0, :, :1].repeat(5, 1), other(4)[1, :, :1].repeat(5, 1)
    made = nx.compile(states_given, target=target)(*args)
    for got, want in zip(leaves(made.run(*args)), leaves(states_given(*args)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize("policy", ["int8-weights", "int4-weights", "dynamic-int8"])
def test_a_first_step_on_constants_with_stored_weights(target, policy):
    """Intel's plugin has no product of a constant with weights on a grid."""
    pytest.importorskip(RUNTIMES[target])
    f = nx.quantize(lambda x: joined(x)[1], policy, calibrate=[(X,)])
    made = nx.compile(f, target=target)(X)
    np.testing.assert_allclose(leaves(made.run(X))[0], f(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize("policy", ["int8-weights", "int4-weights"])
def test_layers_store_weights_of_few_bits(target, policy):
    pytest.importorskip(RUNTIMES[target])
    w, u = (np.random.default_rng(i).normal(size=(64, 256)).astype(np.float32) / 8 for i in (1, 2))
    x = np.random.default_rng(3).normal(size=(5, 2, 64)).astype(np.float32)
    f = lambda x: nx.lax.scan(
        lambda c, row: lstm_step(row @ w + c[0] @ u, c[1]), (np.zeros((2, 64), np.float32),) * 2, x
    )
    q = nx.quantize(f, policy)
    made = nx.compile(q, target=target)(x)
    assert [row.op for row in made.report.rows if row.op not in ("dequantize", "reshape")] == ["lstm"]
    for got, want in zip(leaves(made.run(x)), leaves(q(x)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    size = lambda artifact: sum(map(len, artifact.files.values()))
    assert size(made) < 0.45 * size(nx.compile(f, target=target)(x))
    if target != "openvino-cpu":
        for got, want in zip(leaves(nx.deploy.load(made.bytes).run(x)), leaves(q(x)), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def lstm_step(z, c):
    i, f, g, o = nx.numpy.split(z, 4, -1)
    c = nx.nn.sigmoid(f) * c + nx.nn.sigmoid(i) * nx.numpy.tanh(g)
    h = nx.nn.sigmoid(o) * nx.numpy.tanh(c)
    return (h, c), h


def test_products_that_round_their_operands_stay_steps():
    made = nx.compile(nx.quantize(lambda x: joined(x)[1], "dynamic-int8"), target="onnx", verify=False)(X)
    assert "lstm" not in {row.op for row in made.report.rows}


def test_onnx_names_its_operator_and_leaves_out_states_of_zeros():
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    zeros = lambda x: nx.lax.scan(
        lambda h, row: (nx.numpy.tanh(row + h @ np.eye(3, dtype=np.float32)), None), nx.numpy.zeros((2, 3)), x
    )[0]
    for f, kind, inputs in ((joined, "LSTM", 7), (reset_after, "GRU", 6), (zeros, "RNN", 4)):
        model = onnx.load_from_string(nx.compile(f, target="onnx")(X).bytes)
        (node,) = (n for n in model.graph.node if n.op_type == kind)
        assert len(node.input) == inputs and node.input[4:5] != ["x"]


def test_tflite_files_are_read_back_as_functions_without_a_state():
    for f in (joined, hoisted, *CELLS["rnn"]):
        data = nx.compile(f, target="tflite", verify=False)(X).bytes
        back = nx.interop.from_tflite(data, closed=True)
        graph = tflite_read.read(data)
        assert {"lstm", "rnn"} & {n.op for n in graph.nodes}
        for mine, read, want in zip(leaves(back(X)), interpret(graph, [X]), leaves(f(X)), strict=True):
            np.testing.assert_allclose(mine, want, rtol=1e-5, atol=1e-6)
            np.testing.assert_allclose(read, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("op", "f"), EVERY, ids=[f.__name__ for _, f in EVERY])
def test_onnx_files_are_read_back(op, f):
    pytest.importorskip("onnxruntime")
    graph = onnx_read.read(nx.compile(f, target="onnx", verify=False)(X).bytes)
    assert op in {n.op for n in graph.nodes}
    for got, want in zip(interpret(graph, [X]), leaves(f(X)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)


def test_onnx_layers_of_other_functions_are_refused():
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    model = onnx.load_from_string(nx.compile(joined, target="onnx", verify=False)(X).bytes)
    (node,) = (n for n in model.graph.node if n.op_type == "LSTM")
    node.attribute.append(onnx.helper.make_attribute("clip", 0.5))
    with pytest.raises(nx.errors.LoweringError, match="LSTM with lengths"):
        onnx_read.read(model.SerializeToString())


def test_a_state_that_nothing_writes_is_refused():
    data = bytearray(nx.compile(lambda x: joined(x)[1], target="tflite", verify=False)(X).bytes)
    from nxjax.lower.npu.formats import flatbuffer
    from nxjax.lower.npu.formats.tflite_file import tables
    from nxjax.lower.npu.formats.tflite_schema import IDENTIFIER, SCHEMA

    root = tables(memoryview(bytes(data)))
    (graph,) = root["subgraphs"]
    graph["operators"] = graph["operators"][2:]
    with pytest.raises(InvalidFileError, match="state"):
        tflite_read.read(flatbuffer.write(SCHEMA, "Model", root, IDENTIFIER))


def test_a_state_of_zeros_is_known():
    assert zero(Tensor("z", (1,), "float32", None, np.zeros(1, np.float32)))
    assert not zero(Tensor("z", (1,), "float32", None, np.ones(1, np.float32))) and not zero(
        Tensor("z", (1,), "float32")
    )


def test_a_gru_has_no_operator_in_tflite():
    x, h, ys, end = (
        Tensor(n, s, "float32") for n, s in (("x", (1, 1, 1)), ("h", (1, 1)), ("y", (1, 1, 1)), ("e", (1, 1)))
    )
    w, r, b = (
        Tensor(n, s, "float32", None, np.ones(s, np.float32)) for n, s in (("w", (3, 1)), ("r", (3, 1)), ("b", (4,)))
    )
    graph = NpuGraph("g", [x, h], [ys], [Node("gru", (x, w, r, b, h), (ys, end))])
    with pytest.raises(nx.errors.LoweringError, match="gru has no TFLite form"):
        tflite.write(graph)
