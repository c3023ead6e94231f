"""Folding: what only reads constants is computed once, and repeated values stay small."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.lower.passes.fold import LARGEST, compact, folded
from nxjax.trace import dtypes
from nxjax.trace.evaluate import evaluate


def names(p):
    return [e.op.name for e in p.equations]


def same(p, q, *xs):
    for a, b in zip(evaluate(p, xs), evaluate(q.check(), xs), strict=True):
        np.testing.assert_array_equal(a, b)
        assert a.dtype == b.dtype


def test_constants_meet_each_other_first():
    w = np.arange(12, dtype=np.float32).reshape(3, 4)
    p = nx.make_jaxpr(lambda x: x @ (jnp.asarray(w) * 2 + 1).T)(np.zeros((2, 4), np.float32))
    q = folded(p)
    assert names(q) == ["dot_general"]
    same(p, q, np.random.default_rng(0).normal(size=(2, 4)).astype(np.float32))


def test_a_broadcast_is_not_materialized():
    p = nx.make_jaxpr(lambda x: x + (jnp.ones((1024, 1024)) * 2 + 1))(np.zeros((1024, 1024), np.float32))
    q = folded(p)
    assert names(q) == ["broadcast_in_dim", "add"]
    assert not q.constvars
    same(p, q, np.ones((1024, 1024), np.float32))


def test_what_repeats_along_one_axis_keeps_the_other():
    def f(x):
        counts = nx.lax.reduce_window(jnp.ones_like(x), 0.0, nx.lax.add, (1, 3, 1), (1, 1, 1), "SAME")
        return x / counts

    x = np.random.default_rng(0).normal(size=(4, 6, 5)).astype(np.float32)
    p = nx.make_jaxpr(f)(x)
    q = folded(p)
    assert names(q) == ["broadcast_in_dim", "div"]
    assert [v.type.shape for v in q.constvars] == [(6,)]
    same(p, q, x)


def test_results_may_be_constants():
    p = nx.make_jaxpr(lambda x: (jnp.arange(3.0) + 1, jnp.zeros((2, 2)), x))(np.float32(1))
    q = folded(p)
    assert set(names(q)) == {"broadcast_in_dim"}
    same(p, q, np.float32(3))


def test_large_results_are_left():
    n = int(LARGEST**0.5) + 1
    p = nx.make_jaxpr(lambda x: x + jnp.arange(float(n))[:, None] * jnp.arange(float(n))[None])(np.zeros((n, n), "f4"))
    assert "mul" in names(folded(p))


def test_kept_ops_are_left():
    p = nx.make_jaxpr(lambda x: x + jnp.sin(jnp.arange(3.0)))(np.zeros(3, np.float32))
    assert names(folded(p, keep=("sin",))) == ["sin", "add"]


def test_compact():
    assert compact(np.broadcast_to(np.arange(3), (2, 3))).data.shape == (1, 3)
    assert compact(np.arange(6).reshape(2, 3)).data.shape == (2, 3)
    assert compact(np.float32(np.nan) * np.ones((2, 2))).data.shape == (1, 1)
    x = np.zeros((5, 7))
    x[4, 6] = 1
    assert compact(x).data.shape == (5, 7)
    for shape in ((3, 0), (0, 3), (2, 0, 2)):
        assert compact(np.zeros(shape)).full.shape == shape


def test_constants_with_several_results():
    """What has several results is known as a whole, one of them repeated or not."""

    def f(x):
        a, b = nx.lax.sort((jnp.asarray([3.0, 1.0, 2.0]), jnp.ones(3)), num_keys=1)
        return x + a, b - x

    p = nx.make_jaxpr(f)(np.ones(3, np.float32))
    q = folded(p)
    assert "sort" not in names(q)
    same(p, q, np.arange(3, dtype=np.float32))


@pytest.mark.parametrize("dtype", [*sorted(dtypes.INEXACT, key=str), np.dtype(np.int32)], ids=str)
def test_only_equal_bits_repeat(dtype):
    """0.0 equals -0.0 and is another number."""
    pairs = [[0.0, -0.0], *[[0j, complex(0.0, -0.0)]] * (dtype in dtypes.COMPLEX)]
    for x in [np.array(pair).astype(dtype) for pair in pairs]:
        assert compact(np.stack([x[:1], x[1:]])).full.tobytes() == x.tobytes()
        with nx.enable_x64(True):
            p = nx.make_jaxpr(lambda x=x: jnp.concatenate([jnp.asarray(x[:1]), jnp.asarray(x[1:])]))()
        assert evaluate(folded(p), ())[0].tobytes() == x.tobytes()
