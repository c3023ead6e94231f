"""Loops and choices whose course is known are written out; the others say what to do."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import UnsupportedOpsError
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


@pytest.mark.parametrize(
    ("word", "function"),
    [
        ("the number of its steps is data", lambda x: lax.while_loop(lambda v: v.sum() < 10, lambda v: v + 1, x)),
        ("nx.numpy.where", lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x)),
        ("more than 64 steps", lambda x: lax.fori_loop(0, 65, lambda i, v: jnp.sin(v), x)),
        (
            "more than 64 steps",
            lambda x: lax.while_loop(lambda c: c[0] < 70, lambda c: (c[0] + 1, jnp.sin(c[1])), (0, x))[1],
        ),
    ],
)
def test_what_is_not_known_is_refused(word, function):
    with pytest.raises(UnsupportedOpsError, match=word):
        graph_of(function, X)


def test_more_steps_where_asked():
    f = lambda x: lax.fori_loop(0, 70, lambda i, v: jnp.sin(v), x)
    assert count(graph_of(f, X, unroll=70)) == {"sin": 70}
    np.testing.assert_equal(len(graph_of(lambda x: x + 1, X, unroll=0).nodes), 1)
