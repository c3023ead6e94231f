"""Keyword arguments that few calls give: what they do, and that signatures name them."""

import inspect

import jax
import jax.numpy as jj
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = np.array([[3, 1, np.nan, 2], [5, 4, 4, -1]], np.float32)
W = np.array([[1, 2, 0, 3], [0, 0, 1, 1]], np.float32)
INDEX = np.array([0, 5, -1, -9])


def same(y, want):
    want = np.asarray(want)
    assert y.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(y), want, rtol=1e-5)


def test_weights_of_quantiles():
    for name in ("quantile", "nanquantile"):
        for q, axis, keepdims in ((0.5, 1, False), ([0.1, 0.9], None, True)):
            got, want = (
                getattr(m, name)(
                    m.asarray(X),
                    m.asarray(q, "float32"),
                    axis=axis,
                    keepdims=keepdims,
                    weights=m.asarray(W),
                    method="inverted_cdf",
                )
                for m in (jnp, jj)
            )
            same(got, want)
    x = jnp.asarray(X)
    same(jnp.percentile(x[1], 50, weights=jnp.array([0, 0, 0, 2]), method="inverted_cdf"), np.float32(-1))
    assert np.isnan(jnp.quantile(x[1], 0.5, weights=-x[1], method="inverted_cdf"))
    with pytest.raises(NotImplementedError, match="linear"):
        jnp.quantile(x, 0.5, weights=x)
    with pytest.raises(ValueError, match="axis is None"):
        jnp.quantile(x, 0.5, weights=x[0], method="inverted_cdf")
    assert jnp.quantile(x.astype("bfloat16"), jnp.float32(0.5)).dtype == jnp.bfloat16


def test_mean_given():
    x = X[1]
    for name in ("var", "std", "nanvar", "nanstd"):
        same(getattr(jnp, name)(jnp.asarray(x), mean=2.0), np.float32(getattr(np, name)(x, mean=np.float32(2.0))))


def test_matrix_rank():
    m = jnp.diag(jnp.array([1e-9, 1.0, -2.0]))
    assert int(jnp.linalg.matrix_rank(m, hermitian=True)) == 2
    assert int(jnp.linalg.matrix_rank(m, tol=1.5, hermitian=True)) == 1
    with pytest.raises(ValueError, match="only one"):
        jnp.linalg.matrix_rank(m, rtol=0.1, tol=0.1)


def test_reads_out_of_range_clamp_and_drop_their_gradient():
    x = jnp.array([1.0, 2.0, 3.0])
    for run in (lambda f: f, nx.jit):
        same(run(lambda v: v[INDEX])(x), np.float32([1, 3, 3, 1]))
        same(run(nx.grad(lambda v: (v[INDEX] * jnp.arange(1.0, 5.0)).sum()))(x), np.float32([1, 0, 3]))
        same(run(nx.grad(lambda v: v.at[INDEX].get(mode="clip").sum()))(x), np.float32([2, 0, 2]))


def test_updates_of_places():
    z = jnp.array([1 + 1j, 2 - 1j, 3])
    same(z.at[jnp.array([0, 0, 1, 7])].max(jnp.array([1 + 3j, 1 + 2j, 5, 9])), np.complex64([1 + 3j, 5, 3]))
    same(z.at[jnp.array([0, 0, 1])].min(jnp.array([1 + 3j, 0, 2])), np.complex64([0, 2 - 1j, 3]))
    twice = np.array([0, 0, 1])
    for run in (lambda f: f, nx.jit):
        same(run(lambda v: v.at[twice].apply(lambda e: 2 * e + 1))(jnp.arange(3.0)), np.float32([3, 3, 2]))
    same(nx.jit(lambda v, i: v.at[i].apply(lambda e: 2 * e + 1))(jnp.arange(3.0), twice), np.float32([3, 3, 2]))
    nothing = jnp.zeros((0, 3))
    assert nothing[7, jnp.zeros(0, "int32")].shape == (0,)
    with pytest.raises(IndexError, match="size 0"):
        nothing.at[0].set(1)


def test_truths_are_counted():
    b = jnp.array([True, False])
    for y in (b // True, b % True, jnp.fmod(b, True), jnp.left_shift(b, True)):
        assert y.dtype == jnp.int32
    assert bool(jnp.sum(jnp.array([0.0, 2.0]), dtype="bool")) and not bool(
        jnp.prod(jnp.array([0.0, 2.0]), dtype="bool")
    )


def test_signatures_name_what_jax_names():
    for name in ("sum", "max", "std", "argsort", "take", "compress", "repeat", "searchsorted", "sort", "trace"):
        ours, theirs = (inspect.signature(getattr(m.Array, name)).parameters for m in (nx, jax))
        assert [(p.name, p.kind, p.default) for p in ours.values()][1:] == [
            (p.name, p.kind, p.default) for p in theirs.values()
        ][1:] or list(ours) == list(theirs), name
    assert jnp.array([1, 2, 3]).compress(jnp.array([True, False, True])).tolist() == [1, 3]
    for name in ("set", "add", "min", "power", "apply", "get"):
        assert "wrap_negative_indices" in inspect.signature(getattr(type(jnp.zeros(1).at[0]), name)).parameters
    with pytest.raises(NotImplementedError, match="out"):
        jnp.add(1, 2, out=jnp.zeros(()))
    same(
        jnp.ravel_multi_index((jnp.array([0, 9]), jnp.array([2, 1])), (2, 3), mode="ignore", dtype="int8"),
        np.int8([2, 28]),
    )
