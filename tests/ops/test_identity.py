"""Ops that give their operands back: every law, and what derivatives see."""

import numpy as np

import nxjax as nx
from nxjax.ops.identity import copy, optimization_barrier, stop_gradient
from nxjax.testing import check_op, sample

X = np.linspace(-1, 1, 6, dtype=np.float32).reshape(2, 3)


def test_laws():
    check_op(copy, [sample(X)], reference=lambda x: x)
    check_op(stop_gradient, [sample(X, differentiable=False)], reference=lambda x: x)
    check_op(optimization_barrier, [sample(X, X[0])], reference=lambda *xs: xs)


def test_stop_gradient_is_a_constant():
    assert nx.grad(lambda x: x * stop_gradient(x))(3.0) == 3.0


def test_barriers_stay_in_the_text():
    text = nx.jit(lambda x: optimization_barrier(x)[0] + 1).lower(X).as_text("stablehlo")
    assert "optimization_barrier" in text


def test_a_copy_has_memory_of_its_own():
    assert not np.shares_memory(copy.eval(X), X)
