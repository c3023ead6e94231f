"""Loops that are recurrent layers are found whatever their spelling, and others stay loops."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import UnsupportedOpsError
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower, prepared
from tests.lower.npu.recurrent.cells import EVERY, OTHERS, X, hoisted, joined, one_product, reset_before

ALL = frozenset(("lstm", "gru", "rnn"))
STEPS = {"slice", "reshape", "reverse", "transpose", "concatenation"}


def lowered(f, **options):
    return lower(nx.make_jaxpr(f)(X), f.__name__, **{"recurrent": ALL} | options)


def assert_same(f, graph):
    for got, want in zip(interpret(graph, [X]), nx.tree.leaves(f(X)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize(("op", "f"), EVERY, ids=[f.__name__ for _, f in EVERY])
def test_a_layer_is_one_node_however_it_is_written(op, f):
    graph = lowered(f)
    found = [n.op for n in graph.nodes if n.op not in STEPS]
    assert set(found) - {"fully_connected", "softmax", "add"} == {op} and found.count(op) <= 2
    assert_same(f, graph)


@pytest.mark.parametrize("f", OTHERS, ids=lambda f: f.__name__)
def test_what_is_no_layer_is_written_out(f):
    graph = lowered(f)
    assert not ALL.intersection(n.op for n in graph.nodes)
    assert_same(f, graph)


@pytest.mark.parametrize("f", [hoisted, reset_before])
def test_a_product_in_front_of_the_loop_is_the_layers_own(f):
    assert [n.op for n in lowered(f).nodes] == [{g: op for op, g in EVERY}[f]]


def test_only_the_layers_that_are_asked_for():
    assert "lstm" not in [n.op for n in lowered(joined, recurrent=frozenset(("gru",))).nodes]
    assert "lstm" not in [n.op for n in lowered(joined, recurrent=frozenset()).nodes]
    program = nx.make_jaxpr(joined)(X)
    assert [e.op.name for e in prepared(program, 64, ALL).equations].count("scan") == 1
    assert "scan" not in [e.op.name for e in prepared(program, 64).equations]


def test_long_loops_too_and_as_few_nodes():
    x = np.tile(X, (30, 1, 1))
    for f in (joined, one_product):
        graph = lower(nx.make_jaxpr(f)(x), "long", recurrent=ALL)
        assert [n.op for n in graph.nodes] == ["lstm"]


def test_no_features_are_no_layer():
    state = np.ones((2, 4), np.float32)

    def with_none(h, row):
        h = nx.numpy.tanh(nx.numpy.concatenate([h[:, 4:], h[:, :4]], -1) + row @ np.ones((row.shape[-1], 4)))
        return h, None

    for width in (0, 3):
        f = lambda x: nx.lax.scan(with_none, state, x)
        with pytest.raises(UnsupportedOpsError, match="tensors without elements"):
            lower(nx.make_jaxpr(f)(np.zeros((7, 2, width), np.float32)), "f", recurrent=ALL)


def test_a_layer_inside_of_a_choice():
    f = lambda x: nx.lax.cond(x.sum() > 0, one_product, lambda x: x[0] @ np.ones((3, 5), np.float32), x)
    graph = lowered(f)
    (node,) = (n for n in graph.nodes if n.op == "if")
    assert "lstm" in [n.op for n in node.attrs["otherwise"].nodes]
    for x in (X, -X, np.abs(X)):
        np.testing.assert_allclose(interpret(graph, [x])[0], f(x), rtol=1e-5, atol=2e-6)


def test_the_work_is_that_of_the_products():
    (node,) = lowered(joined).nodes
    from nxjax.lower.npu.ops import op_of

    assert op_of(node).macs(node) == 7 * 2 * 4 * 5 * (3 + 5)
