"""dot_product_attention as jax.nn: values, derivatives, masks, groups, vmap."""

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.ops.composite_attention import cached_attention

rng = np.random.default_rng(0)
B, T, S, N, K, H = 2, 3, 5, 4, 2, 8
Q = rng.normal(size=(B, T, N, H)).astype(np.float32)
KEY, V = (rng.normal(size=(B, S, K, H)).astype(np.float32) for _ in range(2))
BIAS = rng.normal(size=(1, N, T, S)).astype(np.float32)
MASK = rng.random((B, 1, T, S)) > 0.4
LENGTHS = np.array([2, 3], np.int32)
CASES = [
    {},
    {"scale": 0.3},
    {"is_causal": True},
    {"bias": BIAS},
    {"mask": MASK},
    {"mask": MASK, "bias": BIAS, "is_causal": True},
    {"local_window_size": 1},
    {"local_window_size": (2, 0)},
    {"query_seq_lengths": LENGTHS, "key_value_seq_lengths": LENGTHS + 1},
]


@pytest.mark.parametrize("kwargs", CASES)
def test_values_and_derivatives(kwargs):
    def ours(q, k, v):
        return nx.nn.dot_product_attention(q, k, v, **kwargs)

    def theirs(q, k, v):
        return jax.nn.dot_product_attention(q, k, v, **kwargs)

    want = np.asarray(theirs(Q, KEY, V))
    np.testing.assert_allclose(np.asarray(ours(Q, KEY, V)), want, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(nx.jit(ours)(Q, KEY, V)), want, rtol=1e-4, atol=1e-5)
    got = nx.grad(lambda *a: (ours(*a) * Q).sum(), (0, 1, 2))(Q, KEY, V)
    wanted = jax.grad(lambda *a: (theirs(*a) * Q).sum(), (0, 1, 2))(Q, KEY, V)
    for g, w in zip(got, wanted, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-3, atol=1e-4)


def test_one_equation_also_under_vmap():
    f = nx.nn.dot_product_attention
    names = [e.op.name for e in nx.make_jaxpr(nx.vmap(f))(Q[None], KEY[None], V[None]).equations]
    assert names.count("dot_product_attention") == 1
    assert "dot_general" not in names


@pytest.mark.parametrize(
    "axes", [(0, 0, 0, 0, 0), (1, None, None, None, None), (None, 0, 0, None, 0), (None, None, 2, 1, None)]
)
def test_vmap(axes):
    def batched(x, d):
        return x if d is None else np.stack([x, x[..., ::-1], x], d)

    args = [batched(x, d) for x, d in zip((Q, KEY, V, BIAS, MASK), axes, strict=True)]
    got = nx.vmap(nx.nn.dot_product_attention, axes)(*args)
    want = jax.vmap(jax.nn.dot_product_attention, axes)(*args)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_low_precision_and_no_batch(dtype):
    q, k, v = (x[0].astype(dtype) for x in (Q, KEY, V))
    got, want = nx.nn.dot_product_attention(q, k, v), jax.nn.dot_product_attention(q, k, v)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    np.testing.assert_allclose(np.asarray(got, np.float32), np.asarray(want, np.float32), atol=2e-2)


def test_residual():
    for kwargs in ({}, {"is_causal": True, "bias": BIAS}):
        got = nx.nn.dot_product_attention(Q, KEY, V, return_residual=True, **kwargs)
        want = jax.nn.dot_product_attention(Q, KEY, V, return_residual=True, **kwargs)
        for g, w in zip(got, want, strict=True):
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-4, atol=1e-5)


def test_errors():
    with pytest.raises(nx.errors.ShapeError, match="do not fit"):
        nx.nn.dot_product_attention(Q, KEY[..., :3], V)
    with pytest.raises(nx.errors.ParameterError, match="boolean"):
        nx.nn.dot_product_attention(Q, KEY, V, mask=BIAS)
    with pytest.raises(nx.errors.ParameterError, match="implementation"):
        nx.nn.dot_product_attention(Q, KEY, V, implementation="other")


@pytest.mark.parametrize(("window", "tokens"), [(0, 1), (3, 1), (0, 3)])
def test_a_cache_is_read_as_with_a_mask(window, tokens):
    """The kernel for a cache, against attention that masks what is not filled."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: rng.standard_normal(shape).astype(np.float32)
    q, k, v = draw(2, tokens, 4, 16), draw(2, 12, 2, 16), draw(2, 12, 2, 16)
    lengths = np.array([1, 7], np.int32)
    last = lengths[:, None, None, None] + np.arange(tokens)[:, None]
    mask = (np.arange(12) <= last) & (np.arange(12) > (last - window if window else -1))
    want = nx.nn.dot_product_attention(q, k, v, mask=mask, scale=0.3)
    read = nx.jit(lambda *xs: cached_attention(*xs, scale=0.3, window=window, cap=None))
    np.testing.assert_allclose(read(q, k, v, lengths), want, rtol=1e-5, atol=1e-6)
    assert "cached_attention(" in read.lower(q, k, v, lengths).as_text()
