"""Inlining: calls disappear, lines and scopes stay."""

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.trace.evaluate import evaluate
from nxjax.transforms.inline import inlined


def names(p):
    return [e.op.name for e in p.equations]


def same(p, q, *xs):
    for a, b in zip(evaluate(p, xs), evaluate(q.check(), xs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


def test_nested_calls_are_written_out():
    w = jnp.asarray(X)

    @nx.jit
    def inner(x):
        return jnp.sin(x) + w

    def f(x):
        return nx.checkpoint(lambda y: inner(y) * nx.nn.softplus(y))(inner(x))

    p = nx.make_jaxpr(f)(X)
    q = inlined(p)
    assert not {"jit", "checkpoint", "custom_jvp_call"} & set(names(q))
    assert names(q).count("sin") == 2
    assert len(q.constvars) == 1, "one const per array, however often its program is called"
    same(p, q, X)


def test_sources_and_scopes_stay():
    @nx.jit
    def inner(x):
        with nx.named_scope("deep"):
            return jnp.sin(x)

    def f(x):
        with nx.named_scope("top"):
            return inner(x)

    (e,) = inlined(nx.make_jaxpr(f)(X)).equations
    assert e.scope == "top/deep"
    assert e.source is not None
    assert e.source.text == "return jnp.sin(x)"


def test_short_scans_are_unrolled():
    def f(x):
        def step(c, row):
            c = c * 0.5 + row
            return c, c.sum()

        return nx.lax.scan(step, jnp.zeros(4), x), nx.lax.scan(step, jnp.zeros(4), x, reverse=True)

    p = nx.make_jaxpr(f)(X)
    assert "scan" in names(inlined(p))
    assert "scan" in names(inlined(p, unroll=5))
    q = inlined(p, unroll=6)
    assert "scan" not in names(q)
    same(p, q, X)


def test_loops_and_choices_stay():
    def f(x):
        y = nx.lax.while_loop(lambda c: c[0, 0] < 10, lambda c: c * 2, x)
        return nx.lax.cond(y[0, 0] > 3, lambda v: v, lambda v: -v, y)

    p = nx.make_jaxpr(f)(jnp.ones((2, 2)))
    assert {"while", "cond"} <= set(names(inlined(p, unroll=100)))
