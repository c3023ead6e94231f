"""ONNX files of one-node graphs mean what the nodes mean, on ONNX Runtime without optimizations."""

import itertools
import time

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import ParameterError
from nxjax.lower.npu.formats.onnx_build import OnnxOptions
from nxjax.lower.npu.formats.onnx_writer import emit, write
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes
from tests.lower.npu.formats.onnx_cases import (
    I8,
    I16,
    WEIGHTED,
    Case,
    cases,
    chain,
    conv_meaning,
    depthwise_meaning,
    float_graph,
    int8_graph,
    mixed,
    steps,
)
from tests.vendors.graphs import cnn

CASES = cases()


def run(written, args):
    """Exact int8: ONNX Runtime's optimized kernels saturate on CPUs without VNNI."""
    so = ort.SessionOptions()
    so.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    so.log_severity_level = 3
    session = ort.InferenceSession(written.data, so, providers=["CPUExecutionProvider"])
    return written.fetched(session.run([p.name for p in written.outputs], written.feeds(args)))


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_float_files_compute_the_operator(case, opset):
    graph = float_graph(case)
    (got,) = run(emit(graph, OnnxOptions(opset)), [a for i, a in enumerate(case.arrays) if i not in case.constant])
    assert got.dtype == graph.outputs[0].dtype
    np.testing.assert_allclose(got, case.expected(), rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("dtype", [I8, I16])
@pytest.mark.parametrize("case", CASES, ids=repr)
def test_quantized_files_are_within_one_step(case, dtype, unsigned):
    graph, feeds, y = int8_graph(case, dtype)
    (got,) = run(emit(graph, OnnxOptions(17, "qdq", unsigned)), feeds)
    grid = graph.outputs[0].grid
    assert got.dtype == grid.dtype
    assert steps(got, y, grid) <= 1


@pytest.mark.parametrize("case", [c for c in CASES if c.op in WEIGHTED], ids=repr)
def test_weights_with_one_scale_have_biases_with_one_scale(case):
    graph, feeds, y = int8_graph(case, channels=False)
    written = emit(graph, OnnxOptions())
    (got,) = run(written, feeds)
    assert steps(got, y, graph.outputs[0].grid) <= 1
    model = onnx.load_from_string(written.data)
    assert all(not t.dims for t in model.graph.initializer if t.name.startswith(("scale", "zero")))


def test_float_files_say_the_activations_that_grids_were():
    x, y = Tensor("x", (256,), I8, Grid(I8, 0.06, 0)), Tensor("y", (256,), I8, Grid(I8, 6 / 255, -128))
    graph = NpuGraph("g", [x], [y], [Node("add", (x, x), (y,), {"activation": None}, name="add")])
    written = emit(graph, OnnxOptions(style="float"))
    stored = np.arange(-128, 128).astype(I8)
    (want,), (got,) = interpret(graph, [stored]), run(written, [stored])
    assert got.dtype == I8
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1
    assert "Relu" in str(written.data) or "Clip" in str(written.data)
    assert "QuantizeLinear" not in str(written.data)
    assert set(written.owners.values()) == {graph.nodes[0]}


def names_of(written):
    return [n.name for n in onnx.load_from_string(written.data).graph.node]


def test_node_names_are_the_graphs():
    graph = cnn()
    written = emit(graph, OnnxOptions(17, "qdq", unsigned=True))
    assert set(names_of(written)) == set(written.owners)
    assert {n.name for n in graph.nodes} <= set(names_of(written))
    assert {n.name for n in written.owners.values()} == {n.name for n in graph.nodes}


def test_transposes_are_at_the_edges_only():
    kinds = [n.op_type for n in onnx.load_from_string(write(cnn())).graph.node]
    assert kinds.count("Transpose") == 1
    assert kinds.index("Transpose") < kinds.index("Conv")


def test_transposes_of_the_graph_cancel():
    """Channels first in the user's code, channels last in the graph, channels first in the file: nothing to move."""
    x, y = Tensor("x", (1, 3, 4, 5), np.dtype("float32")), Tensor("y", (1, 3, 2, 2), np.dtype("float32"))
    a, b = Tensor("a", (1, 4, 5, 3), x.dtype), Tensor("b", (1, 2, 2, 3), x.dtype)
    attrs = {"window": (2, 2), "strides": (2, 2), "padding": ((0, 0), (0, 0)), "activation": None}
    nodes = [
        Node("transpose", (x,), (a,), {"permutation": (0, 2, 3, 1)}),
        Node("max_pool_2d", (a,), (b,), attrs),
        Node("transpose", (b,), (y,), {"permutation": (0, 3, 1, 2)}),
    ]
    graph = NpuGraph("g", [x], [y], nodes).check()
    written = emit(graph, OnnxOptions())
    assert [n.op_type for n in onnx.load_from_string(written.data).graph.node] == ["MaxPool"]
    values = np.random.default_rng(0).standard_normal(x.shape).astype(np.float32)
    np.testing.assert_array_equal(run(written, [values])[0], interpret(graph, [values])[0])


def test_inputs_and_constants_may_be_outputs():
    x, c = Tensor("x", (2,), np.dtype("float32")), Tensor("c", (2,), np.dtype("float32"))
    c.data = np.ones(2, np.float32)
    graph = NpuGraph("g", [x], [x, c, x], [])
    got = run(emit(graph, OnnxOptions()), [np.zeros(2, np.float32)])
    assert [g.tolist() for g in got] == [[0, 0], [1, 1], [0, 0]]


def test_equal_names_are_told_apart():
    x, y, z = (Tensor("t", (2,), np.dtype("float32")) for _ in range(3))
    graph = NpuGraph("g", [x], [z], [Node("abs", (x,), (y,), name="n"), Node("neg", (y,), (z,), name="n")])
    written = emit(graph, OnnxOptions())
    assert run(written, [np.float32([1, -2])])[0].tolist() == [-1, -2]
    assert names_of(written) == ["n", "n_1"]


def test_what_cannot_be_written_is_an_error():
    with pytest.raises(ParameterError, match="opset"):
        write(cnn(), opset=9)


def test_int4_weights_are_written_in_either_opset():
    rng = np.random.default_rng(0)
    x, y = Tensor("x", (3, 8), np.dtype("float32")), Tensor("y", (3, 5), np.dtype("float32"))
    grid = Grid(dtypes.int4, tuple(float(s) for s in rng.uniform(0.1, 1, 5).astype(np.float32)), 0, 0)
    w = Tensor("w", (5, 8), dtypes.int4, grid, rng.integers(-7, 8, (5, 8)).astype(dtypes.int4))
    graph = NpuGraph("g", [x], [y], [Node("fully_connected", (x, w, None), (y,), {"activation": None})])
    values = rng.standard_normal((3, 8)).astype(np.float32)
    want = values @ grid.dequantize(w.data).T
    sizes = []
    for opset in (17, 21):
        written = emit(graph, OnnxOptions(opset))
        np.testing.assert_allclose(run(written, [values])[0], want, rtol=1e-5, atol=1e-5)
        sizes.append(len(written.data))
    assert sizes[1] < sizes[0]


shapes = st.tuples(st.integers(1, 2), st.integers(3, 8), st.integers(3, 8), st.integers(1, 5))


@settings(max_examples=40)
@given(shapes, st.integers(1, 6), st.integers(1, 3), st.integers(1, 2), st.integers(0, 2), st.booleans(), st.data())
def test_random_convolutions_against_the_integer_reference(shape, out, kernel, stride, pad, unsigned, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 10**6)))
    depthwise = data.draw(st.booleans())
    c = shape[3]
    attrs = {"strides": (stride, 1), "dilations": (1, 1), "padding": ((pad, 0), (1, pad))}
    attrs["activation"] = data.draw(st.sampled_from([None, "relu", "relu6"]))
    w = rng.standard_normal((1, kernel, kernel, c * out) if depthwise else (out, kernel, kernel, c)).astype(np.float32)
    b = rng.standard_normal(w.shape[3] if depthwise else out).astype(np.float32)
    x = rng.standard_normal(shape).astype(np.float32) * data.draw(st.sampled_from([0.01, 1, 100]))
    plain = {k: v for k, v in attrs.items() if k != "activation"}
    means = (lambda *a: depthwise_meaning(*a, **plain)) if depthwise else (lambda *a: conv_meaning(*a, **plain))
    case = Case("depthwise_conv_2d" if depthwise else "conv_2d", [x, w, b], means, attrs, (1, 2))
    graph, feeds, _ = int8_graph(case, channels=data.draw(st.booleans()))
    (want,) = interpret(graph, feeds)
    (got,) = run(emit(graph, OnnxOptions(17, "qdq", unsigned)), feeds)
    assert np.abs(got.astype(int) - want.astype(int)).max() <= 1


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.booleans())
def test_random_networks_against_the_meaning_of_graphs(seed, unsigned):
    """Chains of operators that move, sum and clamp, in whatever order: layouts have to follow."""
    graph, feeds = chain(seed)
    written = emit(graph, OnnxOptions(17, "qdq", unsigned))
    for got, want in zip(run(written, feeds), interpret(graph, feeds), strict=True):
        assert np.abs(got.astype(int) - want.astype(int)).max(initial=0) <= 1


@pytest.mark.parametrize("opset", [13, 21])
@pytest.mark.parametrize("quantized", [False, True])
def test_operators_with_other_operands_are_exact(quantized, opset):
    for graph, feeds, expected in mixed(quantized):
        written = emit(graph, OnnxOptions(opset, "qdq", quantized))
        for got, want in zip(run(written, feeds), expected, strict=True):
            assert got.dtype == want.dtype
            np.testing.assert_array_equal(got, want, err_msg=graph.nodes[0].op)


@pytest.mark.parametrize("unsigned", [False, True])
@pytest.mark.parametrize("to", ["int32", "float32", "bool"])
def test_a_cast_takes_the_stored_integers(unsigned, to):
    grid = Grid(np.dtype("int8"), 3.5, -7)
    x, y = Tensor("x", (1, 5), "int8", grid), Tensor("y", (1, 5), to)
    graph = NpuGraph("c", [x], [y], [Node("cast", (x,), (y,))])
    stored = np.int8([[-128, -7, 0, 5, 127]])
    (want,) = interpret(graph, [stored])
    (got,) = run(emit(graph, OnnxOptions(17, "qdq", unsigned)), [stored])
    assert got.dtype == want.dtype and got.tolist() == want.tolist() == stored.astype(to).tolist()


def test_thousands_of_one_name_take_no_time_each():
    """Telling names apart was once quadratic: 12 000 nodes took 40 seconds."""
    chain = [Tensor("t", (1,), "float32") for _ in range(12001)]
    nodes = [Node("abs", (a,), (b,)) for a, b in itertools.pairwise(chain)]
    start = time.process_time()
    data = write(NpuGraph("g", [chain[0]], [chain[-1]], nodes))
    assert time.process_time() - start < 12
    names = [n.name for n in onnx.load_from_string(data).graph.node]
    assert len(set(names)) == len(names) >= len(nodes)
