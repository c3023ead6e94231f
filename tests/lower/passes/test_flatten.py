"""One flat program: which equations are left, and that they mean the same."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.lower.passes.flatten import flattened
from nxjax.ops.base import expansion
from nxjax.ops.composite_softmax import softmax
from nxjax.trace.evaluate import evaluate
from nxjax.trace.types import ArrayType

X = np.linspace(-2, 2, 6, dtype=np.float32).reshape(2, 3)


def flat(function, *args, whole=()):
    program = nx.make_jaxpr(function)(*args)
    hoisted, consts = program.hoist_consts()
    result = flattened(hoisted, whole).check()
    values = [x.numpy() for x in consts] + [np.asarray(a) for a in nx.tree.leaves(args)]
    for got, expected in zip(evaluate(result, values), evaluate(hoisted, values), strict=True):
        np.testing.assert_array_equal(got, expected)
    return [e.op.name for e in result.equations], result


def test_calls_and_identities_leave_nothing_behind():
    @nx.jit
    def inner(x):
        return nx.lax.stop_gradient(nx.checkpoint(nx.sin)(x))

    names, program = flat(lambda x: inner(x) + 1, X)
    assert names == ["sin", "broadcast_in_dim", "add"]
    assert program.equations[0].source is not None


def test_composites_are_written_out_unless_a_device_has_them():
    names, program = flat(lambda x: nx.nn.softmax(x) * 2, X)
    assert "softmax" not in names and "exp" in names
    line = {e.source for e in program.equations[:-2]}
    assert len(line) == 1 and line.pop().file.endswith("test_flatten.py")
    assert "softmax" in flat(lambda x: nx.nn.softmax(x) * 2, X, whole={"softmax"})[0]


def test_equal_composites_are_staged_once():
    t = ArrayType((2, 3), np.dtype(np.float32))
    params = {"axis": 1}
    assert expansion(softmax, [t], params) is expansion(softmax, [t], dict(params))
    assert expansion(softmax, [t], {"axis": 0}) is not expansion(softmax, [t], params)


def test_parameters_that_do_not_hash_are_taken():
    t = ArrayType((2, 3), np.dtype(np.float32))
    given = lambda x, *, axis: softmax.expand(x, axis=axis[0])
    assert expansion(softmax, [t], {"axis": [1]}, given).out_types == (t,)


def test_what_is_recomputed_stays_apart():
    names, _ = flat(nx.grad(lambda x: nx.checkpoint(lambda v: nx.sin(nx.sin(v)))(x).sum()), X)
    assert "optimization_barrier" in names


def test_a_choice_per_element_runs_every_branch():
    f = nx.vmap(lambda p, x: nx.lax.cond(p, nx.sin, nx.cos, x))
    names, _ = flat(f, np.array([True, False]), X)
    assert {"sin", "cos", "select_n"} <= set(names) and "cond" not in names


def test_solvers_are_their_programs():
    def solve(a, b):
        return nx.lax.custom_linear_solve(lambda v: a @ v, b, lambda mv, rhs: rhs / 2 + mv(rhs) * 0, symmetric=True)

    names, _ = flat(solve, np.eye(3, dtype=np.float32) * 2, X[0])
    assert "custom_linear_solve" not in names and "div" in names

    def root(a):
        return nx.lax.custom_root(lambda v: v - a, a * 0, lambda f, g: g - f(g), lambda g, y: y)

    names, _ = flat(root, X[0])
    assert "custom_root" not in names and "sub" in names


@pytest.mark.parametrize("length", [0, 1, 2])
def test_a_scan_of_one_step_is_its_body(length):
    names, _ = flat(lambda xs: nx.lax.scan(lambda c, x: (c + x, c * x), X[0], xs), np.ones((length, 3), np.float32))
    assert ("scan" in names) == (length != 1)
