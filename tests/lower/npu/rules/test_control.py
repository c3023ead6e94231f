"""Loops and choices whose course is known are written out; the others say what to do."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import ParameterError, UnsupportedOpsError
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

X = normal(2, 3)


def test_loops_that_count():
    f = lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, jnp.tanh(c[1]) + c[0]), (0, x))[1]
    g = same(f, X)
    assert count(g)["tanh"] == 3
    assert count(same(lambda x: lax.fori_loop(0, 4, lambda i, v: jnp.sin(v) * i, x), X))["sin"] == 4
    assert "sin" not in count(same(lambda x: lax.fori_loop(0, 0, lambda i, v: jnp.sin(v), x), X))


def test_loops_inside_of_calls_and_loops():
    inner = nx.jit(lambda x: lax.fori_loop(0, 2, lambda i, v: jnp.cos(v), x))
    f = lambda x: lax.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, inner(c[1])), (0, x))[1]
    assert ops(same(f, X)) == ["cos"] * 4


def test_choices_that_are_known():
    @nx.jit
    def f(x, deep):
        return lax.cond(deep, jnp.sin, jnp.cos, x)

    assert ops(same(lambda x: f(x, True), X)) == ["sin"]
    assert ops(same(lambda x: f(x, jnp.arange(3)[1] > 5), X)) == ["cos"]
    assert ops(same(lambda x: lax.switch(1, [jnp.sin, jnp.tanh], x), X)) == ["tanh"]


W = normal(3, 3)


def counted(x, n):
    return lax.fori_loop(0, n, lambda i, v: jnp.tanh(v @ W) + i, x)


def recurrent(steps, reverse=False):
    def f(xs):
        def step(h, x):
            h = jnp.tanh(x @ W + h)
            return h, (h[:, 0], h * 2)

        return lax.scan(step, jnp.zeros((2, 3)), xs, reverse=reverse)

    return f, (normal(steps, 2, 3),)


def nested(x):
    inner = lambda v: lax.while_loop(lambda u: u.sum() < 6, lambda u: u + 1.5, v)
    return lax.cond(x[0, 0] > 0, inner, lambda v: lax.cond(v[0, 1] > 0, jnp.sin, inner, v), x)


SWITCHED = lambda i, x: lax.switch(i, [jnp.sin, lambda v: v @ W, lambda v: v, lambda v: jnp.ones((2, 3))], x)
# By name: the function, its arguments, and the op that its graph ends in.
COURSES = {
    "while": (lambda x: lax.while_loop(lambda v: v.sum() < 10, lambda v: v * 1.5 + 1, x), (X,), "while"),
    "no step": (lambda x: lax.while_loop(lambda v: v.sum() < -1e9, lambda v: v + 1, x), (X,), "while"),
    "counted": (counted, (X, np.int32(5)), "while"),
    "too long": (lambda x: lax.fori_loop(0, 65, lambda i, v: jnp.sin(v), x), (X,), "while"),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, lambda v: v @ W, x), (X,), "if"),
    "the other": (lambda x: lax.cond(x.sum() < 0, jnp.sin, lambda v: v @ W, x), (X,), "if"),
    **{f"switch {i}": (SWITCHED, (np.int32(i), X), "if") for i in (-3, 0, 1, 2, 3, 9)},
    "scan": (*recurrent(70), "while"),
    "backwards": (*recurrent(70, True), "while"),
    "nested": (nested, (X,), "if"),
    "nested, the other": (nested, (-X,), "if"),
}


@pytest.mark.parametrize("name", COURSES)
def test_what_is_data_is_a_node_of_graphs(name):
    f, args, last = COURSES[name]
    assert ops(same(f, *args))[-1] == last


@pytest.mark.parametrize("target", ["tflite", "onnx", "openvino-cpu"])
@pytest.mark.parametrize("name", COURSES)
def test_the_runtimes_take_the_same_course(name, target):
    """IF and WHILE in LiteRT, If and Loop in ONNX Runtime and OpenVINO."""
    pytest.importorskip({"tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino"}[target])
    f, args, _ = COURSES[name]
    artifact = nx.compile(f, target=target)(*args)
    assert artifact.deviation.max_error < 1e-5


@pytest.mark.parametrize("target", ["tflite", "onnx"])
def test_a_quantized_loop(target):
    pytest.importorskip({"tflite": "ai_edge_litert", "onnx": "onnxruntime"}[target])
    f, args = recurrent(70)
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[args]), target=target)(*args)
    assert artifact.deviation.exact if target == "tflite" else artifact.deviation.sqnr > 25


def test_grids_inside_of_a_loop_become_powers_of_two():
    pytest.importorskip("onnxruntime")
    f, args = recurrent(70)
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[args]), target="onnx", style="qdq-pow2")
    with pytest.raises(ParameterError, match="powers of two"):
        artifact(*args)
    regular = nx.compile(nx.quantize(f, "int8", calibrate=[args]), target="amd-xdna")(*args)
    assert regular.deviation.sqnr > 15


def test_weights_inside_of_a_loop_count():
    g = graph_of(*recurrent(70)[:1], *recurrent(70)[1])
    assert g.weights >= W.nbytes > sum(t.nbytes for t in g.constants() if t.shape == W.shape)


def test_a_chip_without_loops_leaves_them_to_the_host():
    pytest.importorskip("ethosu")
    f = lambda x: counted(jnp.tanh(x @ W), 70)
    artifact = nx.compile(nx.quantize(f, "int8", calibrate=[(X,)]), target="ethos-u55")(X)
    devices = {row.op: row.device for row in artifact.report.rows}
    assert devices["while"] == "host" and devices["fully_connected"] == "npu"
    assert artifact.deviation.max_error < 1e-6


def test_a_part_that_has_no_form_is_named_with_its_advice():
    with pytest.raises(UnsupportedOpsError, match="there is no NPU instruction for lgamma"):
        graph_of(lambda x: lax.cond(x.sum() > 0, lax.lgamma, jnp.sin, x), X)


def test_more_steps_where_asked():
    f = lambda x: lax.fori_loop(0, 70, lambda i, v: jnp.sin(v), x)
    assert count(graph_of(f, X, unroll=70)) == {"sin": 70}
    np.testing.assert_equal(len(graph_of(lambda x: x + 1, X, unroll=0).nodes), 1)
