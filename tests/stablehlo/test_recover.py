"""Composite functions are found where programs spell them out, and only there."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.interop import from_jax
from nxjax.transforms.inline import inlined

X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32) * 3


def ops_of(f, x=X):
    return [e.op.name for e in inlined(nx.make_jaxpr(from_jax(f))(x)).equations]


def gelu_by_hand(x):
    return x * (0.5 * (1 + jnp.tanh(0.7978845608 * x * (1 + 0.044715 * x * x))))


@pytest.mark.parametrize(
    ("f", "name"),
    [
        (jax.nn.relu, "relu"),
        (jax.nn.relu6, "relu6"),
        (jax.nn.silu, "silu"),
        (lambda x: x * (1 / (1 + jnp.exp(-x))), "silu"),
        (jax.nn.gelu, "gelu"),
        (lambda x: jax.nn.gelu(x, approximate=False), "gelu"),
        (gelu_by_hand, "gelu"),
        (jax.nn.hard_swish, "hard_swish"),
        (jax.nn.softplus, "softplus"),
        (jax.nn.elu, "elu"),
        (jax.nn.leaky_relu, "leaky_relu"),
        (jax.nn.sigmoid, "logistic"),
        (jax.nn.softmax, "softmax"),
        (lambda x: jax.nn.softmax(x, axis=0), "softmax"),
        (jax.nn.log_softmax, "log_softmax"),
    ],
)
def test_found(f, name: str):
    assert ops_of(f) == [name]
    np.testing.assert_allclose(from_jax(f)(X), f(X), 1e-5, 1e-6)


@pytest.mark.parametrize("f", [jax.nn.silu, jax.nn.gelu, jax.nn.softmax])
def test_short_floats_keep_their_roundings(f):
    x = X.astype(jnp.bfloat16)
    np.testing.assert_array_equal(from_jax(f)(x).astype(np.float32), jax.jit(f)(x).astype(np.float32))


def test_slopes_are_kept():
    f = from_jax(lambda x: jnp.where(x > 0, x, 0.3 * x))
    (e,) = inlined(nx.make_jaxpr(f)(X)).equations
    assert e.op.name == "leaky_relu" and np.isclose(e.params["alpha"], 0.3, 1e-6)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: jnp.maximum(x, 0),
        lambda x: 0.5 * x * (1 + jnp.tanh(0.79 * (x + 0.044715 * x**3))),
        lambda x: x * jax.nn.sigmoid(1.702 * x),
        lambda x: jnp.exp(x - 1) / jnp.exp(x - 1).sum(1, keepdims=True),
        lambda x: jnp.exp(x - x.max(0)) / jnp.exp(x - x.max(0)).sum(1, keepdims=True),
        lambda x: jnp.where(x > 1, x, 0.3 * x),
        lambda x: x * jnp.tanh(jnp.exp(x)),
    ],
)
def test_what_is_nearly_one_is_left(f):
    found = {"relu", "gelu", "silu", "softmax", "log_softmax", "leaky_relu", "elu", "softplus"}
    assert not found & set(ops_of(f))
    np.testing.assert_allclose(from_jax(f)(X), f(X), 1e-5, 1e-6)


def test_values_that_others_read_stay():
    def f(x):
        s = jax.nn.sigmoid(x)
        return x * s, s

    for y, z in zip(from_jax(f)(X), f(X), strict=True):
        np.testing.assert_allclose(y, z, 1e-5, 1e-6)


def test_derivatives_are_those_of_the_functions():
    functions = (jax.nn.gelu, jax.nn.silu, jax.nn.softplus, jax.nn.relu, jax.nn.elu)
    total = lambda x: sum((i + 1) * f(x).sum() for i, f in enumerate(functions))
    ours = nx.jit(nx.grad(from_jax(total)))(nx.array(X))
    np.testing.assert_allclose(ours, jax.jit(jax.grad(total))(X), 1e-4, 1e-5)
    # The largest of zero and a value has half a slope at zero, in both.
    zero = nx.zeros(2)
    assert nx.grad(lambda x: from_jax(lambda x: jnp.maximum(x, 0))(x).sum())(zero).tolist() == [0.5, 0.5]
    assert nx.grad(lambda x: from_jax(jax.nn.relu)(x).sum())(zero).tolist() == [0, 0]
