"""The rewriter: one walk, what it counts, and what it drops."""

import numpy as np

from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.rewrite import Rewriter, constant, fixpoint, live, number, split_constant
from nxjax.ops.quant_grid import Grid
from nxjax.trace import dtypes


def chain(*ops):
    """A graph of unary nodes, one after the other."""
    x = Tensor("x", (3,), dtypes.float32)
    nodes, t = [], x
    for op in ops:
        y = Tensor(op, (3,), dtypes.float32)
        nodes.append(Node(op, (t,), (y,), {}))
        t = y
    return NpuGraph("chain", [x], [t], nodes)


def without_neg_pairs(r, n):
    inner = r.sole(n.inputs[0], "neg")
    return inner.inputs[0] if n.op == "neg" and inner is not None else None


def test_a_rule_runs_until_nothing_changes():
    g = fixpoint(chain("neg", "abs", "neg", "neg", "neg", "neg", "exp"), without_neg_pairs).check()
    assert [n.op for n in g.nodes] == ["neg", "abs", "exp"]


def test_what_others_read_is_not_sole():
    g = chain("neg", "neg")
    g.outputs.append(g.nodes[0].output)
    assert [n.op for n in Rewriter(g).run(without_neg_pairs).nodes] == ["neg", "neg"]


def test_results_may_be_replaced():
    g = chain("neg", "neg")
    g = Rewriter(g).run(without_neg_pairs)
    assert g.outputs == g.inputs
    assert not g.nodes


def test_new_nodes_keep_line_and_scope():
    g = chain("neg")
    g.nodes[0].scope = "deep"
    emit = lambda r, n: r.emit("leaky_relu", n.inputs, (3,), dtypes.float32, alpha=0.5) if n.op == "neg" else None
    new = Rewriter(g).run(emit)
    assert [(n.op, n.scope, n.attrs) for n in new.nodes] == [("leaky_relu", "deep", {"alpha": 0.5})]


def test_dead_nodes_are_dropped():
    g = chain("neg", "abs")
    g.outputs[:] = [g.nodes[0].output]
    assert [n.op for n in live(g).nodes] == ["neg"]


def test_constants():
    grid = Grid(dtypes.int8, 0.5, 2)
    two, row, x = constant(np.float32(2)), constant(np.ones(3, np.float32)), Tensor("x", (3,), dtypes.float32)
    assert number(two) == 2
    assert number(constant(np.int8([6]), grid)) == 2
    assert number(row) is None
    assert number(x) is None
    y = Tensor("y", (3,), dtypes.float32)
    assert split_constant(Node("add", (two, x), (y,))) == (x, two)
    assert split_constant(Node("add", (x, row), (y,))) == (x, row)
    assert split_constant(Node("add", (x, x), (y,))) is None


def matched(pattern, sub=False, outputs=()):
    """What a pattern of the last node's operands finds in relu(x) * (x + 3), or with the sum's operands swapped."""
    x, y, z, out = (Tensor(name, (3,), dtypes.float32) for name in "xyzo")
    three = constant(np.array(3, np.float32))
    add = Node("sub" if sub else "add", (three, x), (z,), {"activation": None})
    nodes = [Node("relu", (x,), (y,)), add, Node("mul", (y, z), (out,), {"activation": None})]
    graph = NpuGraph("g", [x], [out, *(z for _ in outputs)], nodes)
    found = []
    Rewriter(graph).run(lambda r, n: found.append(r.match(n, pattern)) if n.op == "mul" else None)
    return found[0] and {name: t.name for name, t in found[0].items()}


def test_a_pattern_names_tensors_in_either_order():
    assert matched((("relu", "x"), ("add", "x", 3))) == {"x": "x"}
    assert matched((("add", "x", "C"), ("relu", "x"))) == {"x": "x", "C": ""}
    assert matched(("a", "b")) == {"a": "y", "b": "z"}
    assert matched((("sub", 3, "x"), "y"), sub=True) == {"x": "x", "y": "y"}


def test_a_pattern_of_other_operands_finds_nothing():
    assert matched((("relu", "x"), ("add", "x", 4))) is None
    assert matched((("relu", "x"), ("add", "x", "c"))) is None
    assert matched((("relu", "C"), ("add", "x", 3))) is None
    assert matched((("abs", "x"), ("add", "x", 3))) is None
    assert matched(("a", ("add", "a", 3))) is None
    assert matched((("sub", "x", 3), "y"), sub=True) is None


def test_a_pattern_says_whether_others_may_read_too():
    assert matched(("y", ("add", "x", 3)), outputs="z") is None
    assert matched(("y", ("~add", "x", 3)), outputs="z") == {"y": "y", "x": "x"}
