"""Loops and choices whose course is known are written out; the others say what to do."""

import subprocess
import sys

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import InvalidFileError, ParameterError, UnsupportedOpsError
from nxjax.lower.npu.formats import flatbuffer, tflite, tflite_read
from nxjax.lower.npu.formats.tflite_file import tables
from nxjax.lower.npu.formats.tflite_schema import IDENTIFIER, SCHEMA
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower
from nxjax.transforms.control.cond_op import cond_op
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


def batched(x, i):
    """A choice for each row."""
    branches = [jnp.sin, lambda v: v @ W, lambda v: jnp.ones(3)]
    return nx.vmap(lambda v, i: lax.switch(i, branches, v))(x, i)


def exchanged(x, y, n):
    """What a loop's results read of each other, some of them only moved."""
    return lax.fori_loop(0, n, lambda i, c: (c[1].T, c[0].T, c[3], c[2] + c[3]), (x, y, x + 1, x + 2))


def unread(x, n):
    """A value that a loop makes anew at each step; without a step it is what it was."""
    return lax.fori_loop(0, n, lambda i, c: (c[0] + 1, nn.relu(c[0])), (x, x + 1))


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
    "batched": (batched, (X, np.int32([1, 2])), "select"),
    "batched, clamped": (batched, (X, np.int32([-1, 7])), "select"),
    "exchanged": (exchanged, (X, X.T * 2, np.int32(3)), "while"),
    "unread": (unread, (X, np.int32(2)), "while"),
    "unread, no step": (unread, (X, np.int32(0)), "while"),
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


def test_a_number_below_all_branches_is_the_last_ones():
    """As StableHLO has it; `lax.switch` clamps before."""
    branches = tuple(nx.make_jaxpr(f)(X) for f in (jnp.sin, jnp.cos, jnp.tanh))
    f = lambda i, x: cond_op(i, x, branches=branches)[0]
    graph, n = graph_of(f, np.int32(0), X), np.iinfo(np.int32)
    for i, g in [(0, np.sin), (1, np.cos), (2, np.tanh), (-1, np.tanh), (n.min, np.tanh), (n.max, np.tanh)]:
        np.testing.assert_allclose(interpret(graph, [np.asarray(i, np.int32), X])[0], g(X), rtol=1e-6)


_ENDED = """
import sys, numpy as np
from ai_edge_litert.interpreter import Interpreter, OpResolverType
for chosen in (True, False, True) * 5:
    runtime = Interpreter(model_path=sys.argv[1], experimental_op_resolver_type=OpResolverType.BUILTIN_REF)
    runtime.allocate_tensors()
    for t in runtime.get_input_details():
        given = np.asarray(chosen) if t["dtype"] == np.bool_ else np.ones(t["shape"], np.float32)
        runtime.set_tensor(t["index"], given.reshape(t["shape"]))
    runtime.invoke()
    print(chosen, [runtime.get_tensor(t["index"]).ravel().tolist() for t in runtime.get_output_details()])
    del runtime
"""


def test_litert_lives_on_after_a_branch_that_gives_constants(tmp_path):
    """Its RESHAPE of a constant owns the result, which IF frees too: the process died when the interpreter went."""
    pytest.importorskip("ai_edge_litert")

    def f(p, x):
        kept = jnp.arange(64.0).reshape(1, 2, 2, 2, 2, 2, 2)
        return lax.cond(p, lambda x: (x + 1, jnp.int32(3), kept), lambda x: (x * 2, jnp.int32(-1), kept - 1), x)

    path = nx.compile(f, target="tflite", verify=False)(np.bool_(True), X).save(tmp_path / "f.tflite")
    run = subprocess.run([sys.executable, "-c", _ENDED, path], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    wanted = {p: [np.ravel(y).tolist() for y in f(p, np.ones_like(X))] for p in (True, False)}
    assert run.stdout.splitlines() == [f"{p} {wanted[p]}" for p in (True, False, True) * 5]


@pytest.mark.parametrize("name", COURSES)
def test_tflite_files_of_choices_and_loops_are_read_back(name):
    f, args, last = COURSES[name]
    graph = lower(nx.make_jaxpr(f)(*args), "f", format="tflite")
    back = tflite_read.read(tflite.write(graph))
    assert last in [n.op for n in back.nodes]
    given = [np.asarray(x, t.dtype) for x, t in zip(args, graph.inputs, strict=True)]
    for got, want in zip(interpret(back, given), interpret(graph, given), strict=True):
        np.testing.assert_array_equal(got, want)


def test_graphs_that_hold_themselves_are_refused():
    data = tflite.write(lower(nx.make_jaxpr(COURSES["while"][0])(X), "f", format="tflite"))
    root = tables(memoryview(data))
    held = root["subgraphs"][0]["operators"]
    (loop,) = [o for o in held if o["builtin_options"] and o["builtin_options"][0] == "WhileOptions"]
    body = root["subgraphs"][loop["builtin_options"][1]["body_subgraph_index"]]
    body["operators"], own = [*body["operators"], loop], loop["builtin_options"][1]["body_subgraph_index"]
    for index, said in ((own, "holds itself"), (99, "out of range"), (0, "out of range")):
        loop["builtin_options"][1]["body_subgraph_index"] = index
        with pytest.raises(InvalidFileError, match=said):
            tflite_read.read(flatbuffer.write(SCHEMA, "Model", root, IDENTIFIER))


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
