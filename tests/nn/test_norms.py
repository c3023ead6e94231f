"""Normalizations against formulas in JAX."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx

rng = np.random.default_rng(0)
X = (rng.normal(size=(4, 3, 5)) * 2 + 1).astype(np.float32)
S, B = (rng.normal(size=5).astype(np.float32) for _ in range(2))


def layer_norm(x, s, b, axis=-1, eps=1e-5):
    mean = x.mean(axis, keepdims=True)
    var = ((x - mean) ** 2).mean(axis, keepdims=True)
    return (x - mean) / jnp.sqrt(var + eps) * s + b


def rms_norm(x, s, axis=-1, eps=1e-6):
    return x / jnp.sqrt((x * x).mean(axis, keepdims=True) + eps) * s


CASES = [
    (lambda x, s, b: nx.nn.layer_norm(x, s, b), layer_norm, (X, S, B)),
    (lambda x, s: nx.nn.rms_norm(x, s), rms_norm, (X, S)),
    (
        lambda x, s, b, m, v: nx.nn.batch_norm_inference(x, s, b, m, v),
        lambda x, s, b, m, v: (x - m) / jnp.sqrt(v + 1e-5) * s + b,
        (X, S, B, S * 2, np.abs(B) + 0.1),
    ),
]


@pytest.mark.parametrize(("ours", "theirs", "args"), CASES)
def test_values_and_derivatives(ours, theirs, args):
    np.testing.assert_allclose(np.asarray(ours(*args)), np.asarray(theirs(*args)), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(np.asarray(nx.jit(ours)(*args)), np.asarray(theirs(*args)), rtol=1e-4, atol=1e-5)
    every = tuple(range(len(args)))
    weights = rng.normal(size=X.shape).astype(np.float32)
    got = nx.grad(lambda *a: (ours(*a) * weights).sum(), every)(*args)
    want = jax.grad(lambda *a: (theirs(*a) * weights).sum(), every)(*args)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("ours", "theirs", "args"), CASES)
def test_vmap(ours, theirs, args):
    f = nx.vmap(ours, in_axes=(1, *(None,) * (len(args) - 1)))
    assert len(nx.make_jaxpr(f)(*args).equations) <= 2
    np.testing.assert_allclose(
        np.asarray(f(*args)), np.asarray(jax.vmap(theirs, (1, *(None,) * (len(args) - 1)))(*args)), rtol=1e-4, atol=1e-5
    )
    many = (args[0], *(np.stack([a * (i + 1) for i in range(4)]) for a in args[1:]))
    np.testing.assert_allclose(
        np.asarray(nx.vmap(ours)(*many)), np.asarray(jax.vmap(theirs)(*many)), rtol=1e-4, atol=1e-5
    )
    shared = (None, *(0,) * (len(args) - 1))
    args0 = (args[0][0], *many[1:])
    np.testing.assert_allclose(
        np.asarray(nx.vmap(ours, shared)(*args0)), np.asarray(jax.vmap(theirs, shared)(*args0)), rtol=1e-4, atol=1e-5
    )


def test_several_axes_defaults_and_low_precision():
    got = nx.nn.layer_norm(X, axis=(1, 2))
    np.testing.assert_allclose(np.asarray(got), np.asarray(layer_norm(X, 1, 0, (1, 2))), rtol=1e-4, atol=1e-5)
    half = nx.nn.layer_norm(X.astype("bfloat16"))
    assert half.dtype.name == "bfloat16"
    np.testing.assert_allclose(np.asarray(half, np.float32), np.asarray(layer_norm(X, 1, 0)), atol=5e-2)
    with pytest.raises(nx.errors.ShapeError):
        nx.nn.layer_norm(X, np.ones(4, np.float32))


@pytest.mark.parametrize(
    "kwargs", [{}, {"axis": 0}, {"axis": (0, 2)}, {"algorithm": "stable"}, {"where": X > 0}, {"mean": 0.5}]
)
def test_standardize(kwargs):
    np.testing.assert_allclose(
        np.asarray(nx.nn.standardize(X, **kwargs)), np.asarray(jax.nn.standardize(X, **kwargs)), rtol=1e-3, atol=1e-4
    )
    with pytest.raises(nx.errors.ParameterError, match="algorithm"):
        nx.nn.standardize(X, algorithm="other")
