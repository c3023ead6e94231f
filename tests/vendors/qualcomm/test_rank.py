"""Five dimensions in fewer: the same meaning, reshapes at the ends of a run only; what the simulator then gives."""

import numpy as np
import pytest

from nxjax.backends import target_registry as registry
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.interpret import interpret
from nxjax.ops.quant_grid import Grid
from nxjax.vendors.qualcomm.rank import merged

I8 = np.dtype("int8")
SHAPE = (1, 4, 3, 2, 8)
R = np.random.default_rng(0)


def tensor(name, shape=SHAPE, scale=0.05, zero=3):
    return Tensor(name, shape, I8, Grid(I8, scale, zero))


def constant(name, shape):
    t = tensor(name, shape)
    return Tensor(name, shape, I8, t.grid, R.integers(-128, 128, shape).astype(I8))


def stored(graph):
    return [R.integers(-128, 128, t.shape).astype(I8) for t in graph.inputs]


def chain(*functions, axis=4):
    """input -> functions -> requantized -> concatenated with a second input"""
    x, other = tensor("x"), tensor("other", scale=0.1)
    nodes, at = [], x
    for i, f in enumerate(functions):
        y = tensor(f"y{i}", scale=1 / 256 if f == "logistic" else 0.05, zero=-128 if f == "logistic" else 3)
        nodes.append(Node(f, (at,), (y,), name=f"f{i}"))
        at = y
    q = tensor("q", scale=0.1)
    shape = tuple(2 * n if i == axis else n for i, n in enumerate(SHAPE))
    out = tensor("out", shape, 0.1)
    nodes += [
        Node("quantize", (at,), (q,), name="q"),
        Node("concatenation", (other, q), (out,), {"axis": axis}, name="cat"),
    ]
    return NpuGraph("g", [x, other], [out], nodes)


@pytest.mark.parametrize("axis", range(5))
def test_the_meaning_stays(axis):
    graph = chain("logistic", "tanh", axis=axis)
    other, origin = merged(graph)
    args = stored(graph)
    assert (interpret(other.check(), args)[0] == interpret(graph, args)[0]).all()
    assert all(len(n.output.shape) < 5 for n in other.nodes if n.op != "reshape")
    assert set(origin) == set(other.nodes) and set(origin.values()) <= set(graph.nodes)


def test_a_run_is_reshaped_at_its_ends_only():
    other, _ = merged(chain("logistic", "relu", "abs"))
    assert [n.op for n in other.nodes].count("reshape") == 4


def test_broadcasts():
    x, out = tensor("x", (2, 3, 4, 2, 8)), tensor("out", (2, 3, 4, 2, 8))
    for shape in [(8,), (1, 1, 1, 1, 8), (), (2, 1), (2, 3, 1, 1, 8)]:
        node = Node("add", (x, constant("c", shape)), (out,), {"activation": None}, name="add")
        graph = NpuGraph("g", [x], [out], [node])
        other, _ = merged(graph)
        args = stored(graph)
        assert (interpret(other.check(), args)[0] == interpret(graph, args)[0]).all()
        assert all(len(n.output.shape) == 4 for n in other.nodes if n.op == "add")
    # One leading dimension is spread and the other is not: they cannot be one.
    node = Node("add", (x, constant("c", (2, 1, 1, 1, 8))), (out,), {"activation": None}, name="add")
    graph = NpuGraph("g", [x], [out], [node])
    assert [n.op for n in merged(graph)[0].nodes] == ["add"]


def test_other_nodes_stay():
    x, y = tensor("x"), tensor("y", (4, 1, 3, 2, 8))
    graph = NpuGraph("g", [x], [y], [Node("transpose", (x,), (y,), {"permutation": (1, 0, 2, 3, 4)}, name="t")])
    assert merged(graph)[0].nodes == graph.nodes


@pytest.mark.parametrize("function", ["logistic", "exp", "hard_swish"])
def test_the_simulator_gets_it_right(function):
    pytest.importorskip("onnxruntime_qnn")
    graph = chain(function)
    build = registry.get("qualcomm-htp").build(graph, {})
    args = stored(graph)
    got, wanted = build.run(args)[0].astype(int), interpret(graph, args)[0].astype(int)
    assert abs(got - wanted).max() <= 1
    assert all(r.device == "npu" for r in build.placements)


def test_a_sum_behind_a_reshape_ends_no_process():
    pytest.importorskip("onnxruntime_qnn")
    x, five, out = tensor("x", (4, 3, 2, 8)), tensor("five"), tensor("out", scale=0.1)
    nodes = [
        Node("reshape", (x,), (five,), {"shape": SHAPE}, name="r"),
        Node("add", (five, constant("c", (1, 1, 1, 1, 8))), (out,), {"activation": "relu"}, name="a"),
    ]
    graph = NpuGraph("g", [x], [out], nodes)
    build = registry.get("qualcomm-htp").build(graph, {})
    args = stored(graph)
    assert abs(build.run(args)[0].astype(int) - interpret(graph, args)[0].astype(int)).max() <= 1
