"""Activations: values and derivatives as jax.nn, first and second order."""

import jax
import mpmath
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = np.array([-7.0, -3.0, -1.0, -0.3, -0.0, 0.0, 0.4, 1.0, 2.5, 5.0, 6.0, 30.0], np.float32)
NAMES = [
    *("relu", "relu6", "sigmoid", "silu", "swish", "gelu", "tanh", "softplus", "log_sigmoid", "soft_sign"),
    *("squareplus", "sparse_plus", "sparse_sigmoid", "mish", "elu", "selu", "celu", "leaky_relu", "hard_tanh"),
    *("hard_sigmoid", "hard_silu", "hard_swish", "identity"),
]
SIGMOIDS = ("sigmoid", "silu", "swish")


@pytest.mark.parametrize("name", NAMES)
def test_values(name):
    ours, theirs = getattr(nx.nn, name), getattr(jax.nn, name)
    np.testing.assert_allclose(np.asarray(ours(X)), np.asarray(theirs(X)), rtol=2e-5, atol=1e-6)
    np.testing.assert_allclose(np.asarray(nx.jit(ours)(X)), np.asarray(theirs(X)), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_dtypes(name):
    ours, theirs = getattr(nx.nn, name), getattr(jax.nn, name)
    # jax.nn refuses integers for the functions made of a sigmoid alone.
    integers = () if name in SIGMOIDS else (X.astype(np.int32), 1)
    for x in (X.astype("bfloat16"), X.astype(np.float16), 0.5, *integers):
        got, want = ours(x), theirs(x)
        assert got.dtype == want.dtype, x
        assert got.weak_type == want.weak_type, x
        np.testing.assert_allclose(np.asarray(got, np.float64), np.asarray(want, np.float64), rtol=3e-2, atol=3e-2)


@pytest.mark.parametrize("name", NAMES)
def test_derivatives(name):
    """Beside JAX in float64: its tanh in float32 errs by 1e-5 of 1."""
    ours, theirs = getattr(nx.nn, name), getattr(jax.nn, name)
    with jax.enable_x64(True):
        once, twice = jax.grad(theirs), jax.grad(jax.grad(theirs))
        want, second = (np.asarray(jax.vmap(f)(X.astype(np.float64)), np.float32) for f in (once, twice))
    got = nx.vmap(nx.grad(ours))(X)
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-5, atol=2e-6)
    if name not in ("hard_tanh", "leaky_relu", "identity", "soft_sign"):
        got = nx.vmap(nx.grad(nx.grad(ours)))(X)
        want = second
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-4, atol=2e-5)


def test_exact_gelu():
    np.testing.assert_allclose(
        np.asarray(nx.nn.gelu(X, approximate=False)),
        np.asarray(jax.nn.gelu(X, approximate=False)),
        rtol=2e-5,
        atol=1e-6,
    )
    got = nx.vmap(nx.grad(lambda x: nx.nn.gelu(x, False)))(X)
    want = jax.vmap(jax.grad(lambda x: jax.nn.gelu(x, False)))(X)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=2e-5, atol=2e-6)


def test_relu_has_derivative_zero_at_zero_and_is_one_equation():
    assert float(nx.grad(nx.nn.relu)(0.0)) == 0.0
    assert float(nx.grad(nx.nn.relu6)(6.0)) == 0.0
    assert [e.op.name for e in nx.make_jaxpr(nx.nn.relu)(X).equations] == ["relu"]
    assert [e.op.name for e in nx.make_jaxpr(nx.vmap(nx.nn.gelu))(X).equations] == ["gelu"]


def test_complex_numbers_are_clipped_in_their_order_and_have_derivatives():
    z = np.array([1 - 2j, -1 + 2j], np.complex64)
    y, t = nx.jvp(nx.nn.relu, (z,), (np.ones(2, np.complex64),))
    assert np.asarray(y).tolist() == [1 - 2j, 0] and np.asarray(t).tolist() == [1, 0]
    want = z * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3)))
    np.testing.assert_allclose(np.asarray(nx.nn.gelu(z)), want, rtol=1e-5)


def test_glu():
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(nx.nn.glu(x)), np.asarray(jax.nn.glu(x)), rtol=1e-6)
    np.testing.assert_allclose(np.asarray(nx.nn.glu(x[:2], 0)), np.asarray(jax.nn.glu(x[:2], 0)), rtol=1e-6)
    with pytest.raises(nx.errors.ShapeError, match="divisible by 2"):
        nx.nn.glu(x, 0)


def test_log1mexp():
    x = np.array([1e-4, 0.1, 0.7, 2.0, 20.0], np.float32)
    np.testing.assert_allclose(np.asarray(nx.nn.log1mexp(x)), np.asarray(jax.nn.log1mexp(x)), rtol=1e-5)
    np.testing.assert_allclose(
        np.asarray(nx.vmap(nx.grad(nx.nn.log1mexp))(x)), np.asarray(jax.vmap(jax.grad(jax.nn.log1mexp))(x)), rtol=1e-4
    )


@pytest.mark.parametrize("name", ["elu", "celu", "leaky_relu"])
def test_parameters(name):
    np.testing.assert_allclose(
        np.asarray(getattr(nx.nn, name)(X, 0.3)), np.asarray(getattr(jax.nn, name)(X, 0.3)), rtol=1e-5, atol=1e-6
    )


_SLOPES = {
    "soft_sign": (nx.nn.soft_sign, lambda x: 1 / (1 + abs(x)) ** 2, lambda x: -2 * mpmath.sign(x) / (1 + abs(x)) ** 3),
    "squareplus": (
        nx.nn.squareplus,
        lambda x: (1 + x / mpmath.sqrt(x * x + 4)) / 2,
        lambda x: 2 / mpmath.sqrt(x * x + 4) ** 3,
    ),
    "squareplus of 0.25": (
        lambda x: nx.nn.squareplus(x, 0.25),
        lambda x: (1 + x / mpmath.sqrt(x * x + 0.25)) / 2,
        lambda x: 1 / mpmath.sqrt(x * x + 0.25) ** 3 / 8,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("name", _SLOPES)
def test_slopes_keep_their_digits_far_from_zero(name, dtype):
    """Those of quotients and sums are differences of nearly equal numbers there."""
    f, first, second = _SLOPES[name]
    with nx.enable_x64(dtype == "float64"), mpmath.workdps(60):
        info = jnp.finfo(dtype)
        places = np.concatenate([10.0 ** np.linspace(-6, 12, 91), np.linspace(0.1, 9, 40)])
        x = np.asarray(jnp.asarray(np.concatenate([places, -places]), dtype))
        x = x[np.isfinite(x.astype(np.float64))]
        slope = lambda x: nx.jvp(f, (x,), (jnp.ones_like(x),))[1]
        bend = lambda x: nx.jvp(slope, (x,), (jnp.ones_like(x),))[1]
        for run, exact in ((slope, first), (bend, second)):
            want = np.array([float(exact(mpmath.mpf(float(v)))) for v in x])
            seen = np.abs(want) > float(info.tiny) * 4
            for way in (run, nx.jit(run)):
                got = np.asarray(way(jnp.asarray(x))).astype(np.float64)
                off = np.abs(got - want)[seen] / np.abs(want)[seen] / float(info.eps)
                assert off.max() < 16, x[seen][off.argmax()]


def test_squareplus_has_a_slope_in_its_parameter():
    for x, b in ((-3.0, 2.0), (0.5, 4.0), (30.0, 0.25)):
        found = nx.grad(nx.nn.squareplus, (0, 1))(x, b)
        root = (x * x + b) ** 0.5
        np.testing.assert_allclose(found, [(1 + x / root) / 2, 1 / (4 * root)], rtol=1e-5)
        found = nx.grad(nx.grad(nx.nn.squareplus), 1)(x, b)
        np.testing.assert_allclose(found, -x / (4 * root**3), rtol=1e-5)
    assert nx.grad(lambda b: nx.nn.squareplus(jnp.ones((3, 1)), b).sum())(jnp.ones(2)).shape == (2,)
