"""What a plan writes in other words before it groups: running sums."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax

R = np.random.default_rng(0)
P = {"w": R.standard_normal((6, 8)).astype(np.float32) / 2, "o": R.standard_normal((8, 3)).astype(np.float32) / 2}


def data(n):
    return jnp.asarray(np.random.default_rng(n).standard_normal((2, n, 6)).astype(np.float32))


def running(axis=1, reverse=False):
    return lambda p, x: lax.cumsum(nx.nn.relu(x @ p["w"]), axis=axis, reverse=reverse) @ p["o"]


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_running_sums_are_products(axis, reverse, policy):
    f = running(axis, reverse)
    q = nx.quantize(f, policy, calibrate=[(P, data(7))])
    assert not q.plan(q.traced(P, data(7))).left
    eager, wanted = np.asarray(q(P, data(7))), np.asarray(f(P, data(7)))
    assert 20 * np.log10(np.linalg.norm(wanted) / np.linalg.norm(wanted - eager)) > 30
    np.testing.assert_array_equal(nx.jit(q)(P, data(7)), eager)
    artifact = nx.compile(q, target="tflite")(P, data(7))
    assert "cumsum" not in [r.op for r in artifact.report.rows]
    assert artifact.deviation.exact
    assert nx.explain(q, target="ethos-u55")(P, data(7)).share == 1.0
    slopes = nx.grad(lambda p: (q(p, data(7)) ** 2).sum())(P)
    assert all(np.isfinite(v).all() and np.any(v) for v in slopes.values())


def test_sums_too_long_for_a_product_stay_as_they_are():
    f = lambda p, x: jnp.cumsum(x @ p["w"], axis=1)
    q = nx.quantize(f, "int8", calibrate=[(P, data(600))])
    assert [e.op.name for e, _ in q.plan(q.traced(P, data(600))).left] == ["cumsum"]


def test_running_sums_of_any_length():
    q = nx.quantize(running(), "int8", calibrate=[(P, data(8)), (P, data(5))])
    bucketed = nx.bucketed(q, dims={1: {1: "t"}}, buckets={"t": [4, 8]})
    for n in (3, 4, 6):
        np.testing.assert_array_equal(bucketed(P, data(n)), q(P, data(n)))
