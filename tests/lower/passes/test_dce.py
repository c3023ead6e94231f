"""Dead equations: what leaves a program, and what stays with it."""

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes.dce import dead_code_eliminated
from nxjax.trace.evaluate import evaluate

X = np.linspace(-1, 1, 3, dtype=np.float32)


def test_what_nobody_reads_goes_and_arrays_stay():
    a, b = jnp.arange(3.0), jnp.arange(3.0) + 10

    def f(x):
        jnp.sin(x) * b
        return x * a + b

    p = nx.make_jaxpr(f)(X)
    q = dead_code_eliminated(p).check()
    assert [e.op.name for e in p.equations] == ["sin", "mul", "mul", "add"]
    assert [e.op.name for e in q.equations] == ["mul", "add"]
    assert q.constvars == p.constvars and q.values == p.values and q.inputs == p.inputs
    np.testing.assert_array_equal(evaluate(q, [X]), evaluate(p, [X]))
    assert dead_code_eliminated(q) is q


def test_effects_stay():
    seen = []

    def f(x):
        nx.debug.callback(lambda v: seen.append(float(v)), x.sum())
        jnp.cos(x)
        return x

    q = dead_code_eliminated(nx.make_jaxpr(f)(X))
    assert "cos" not in {e.op.name for e in q.equations}
    evaluate(q, [X])
    assert seen == [0.0]
