"""`lax`'s reductions: values, derivatives and any associative function, against JAX."""

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax.errors import AxisError, ParameterError, ShapeError

X = np.random.default_rng(0).normal(size=(5, 7)).astype(np.float32)


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min"])
@pytest.mark.parametrize("axes", [(0,), (-1, 0), ()])
def test_named(name, axes):
    y, peer = (getattr(L, f"reduce_{name}")(X, tuple(a % 2 for a in axes)) for L in (lax, jax.lax))
    np.testing.assert_allclose(y, peer, rtol=1e-5)
    np.testing.assert_array_equal(getattr(lax, f"reduce_{name}")(X, axes), y)


@pytest.mark.parametrize("name", ["and", "or", "xor"])
def test_bits(name):
    whole = (X * 50).astype(np.int16)
    y, peer = (getattr(L, f"reduce_{name}")(whole, (1,)) for L in (lax, jax.lax))
    np.testing.assert_array_equal(y, peer)


RUNNING = {
    "cumsum": (np.add, lambda x, y: np.ones_like(x * y)),
    "cumprod": (np.multiply, None),
    "cummax": (np.maximum, lambda x, y: x == y),
    "cummin": (np.minimum, lambda x, y: x == y),
    "cumlogsumexp": (np.logaddexp, lambda x, y: np.exp(x - y)),
}


@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("n", [0, 1, 3, 16, 17, 64, 67, 261])
@pytest.mark.parametrize("reverse", [False, True])
def test_running_over_any_length(name, n, reverse):
    """Beside NumPy in float64; no two elements are equal."""
    x = np.random.default_rng(n).normal(size=(2, n)).astype(np.float32)
    ct = np.linspace(-1, 1, 2 * n, dtype=np.float32).reshape(2, n)
    f = lambda x: getattr(lax, name)(x, 1, reverse)
    turned = slice(None, None, -1 if reverse else 1)
    accumulated, slope = RUNNING[name]
    wide = x[:, turned].astype(np.float64)
    y = accumulated.accumulate(wide, 1)
    np.testing.assert_allclose(f(x), y[:, turned], rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(nx.jit(f)(x), y[:, turned], rtol=2e-5, atol=2e-5)
    if n and slope is not None:
        # Of result j by element i, which it has seen.
        slopes = np.where(np.tri(n, dtype=bool).T, slope(wide[:, :, None], y[:, None, :]), 0)
        expected = np.einsum("bij,bj->bi", slopes, ct[:, turned].astype(np.float64))
        np.testing.assert_allclose(nx.vjp(f, x)[1](ct)[0], expected[:, turned], rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_narrow_floats_accumulate_in_float32(dtype):
    ones = nx.ones(5000, dtype)
    assert nx.jit(lambda x: lax.reduce_sum(x, (0,)))(ones) == nx.array(5000, dtype)
    assert nx.jit(lambda x: lax.cumsum(x))(ones)[-1] == nx.array(5000, dtype)


def test_any_function_of_several_arrays():
    """Largest element and where it is, first one on ties."""

    def pick(a, b):
        (x, i), (y, j) = a, b
        left = (x > y) | ((x == y) & (i < j))
        return select(left, x, y), select(left, i, j)

    index = np.broadcast_to(np.arange(7, dtype=np.int32), X.shape)
    values = np.round(X)
    select = lambda c, a, b: nx.where(c, a, b)
    y, i = lax.reduce((values, index), (np.float32(-np.inf), np.int32(99)), pick, (1,))
    np.testing.assert_array_equal(y, values.max(1))
    np.testing.assert_array_equal(i, values.argmax(1))


def test_operands_that_are_reduced_together_have_one_shape():
    pick = lambda a, b: (a[0] + b[0], a[1] + b[1])
    for other in ((4, 1), (1, 9), (9, 4)):
        with pytest.raises(ShapeError):
            lax.reduce((np.ones((4, 9)), np.ones(other)), (np.float32(0), np.float32(0)), pick, (1,))


def test_reduce_keeps_the_order_of_neighbours():
    """Two-by-two matrix products do not commute."""
    a = np.random.default_rng(1).normal(size=(4, 9)).astype(np.float32)

    def product(p, q):
        return (
            p[0] * q[0] + p[1] * q[2],
            p[0] * q[1] + p[1] * q[3],
            p[2] * q[0] + p[3] * q[2],
            p[2] * q[1] + p[3] * q[3],
        )

    got = lax.reduce(tuple(a), tuple(np.float32(v) for v in (1, 0, 0, 1)), product, (0,))
    expected = np.linalg.multi_dot([a[:, i].reshape(2, 2) for i in range(9)])
    np.testing.assert_allclose(np.ravel(expected), [float(v) for v in got], rtol=1e-4)


def test_reduce_by_a_known_function_is_that_reduction():
    assert "reduce_max" in str(nx.make_jaxpr(lambda x: lax.reduce(x, -np.inf, lax.max, (0,)))(X))
    np.testing.assert_array_equal(lax.reduce(X, 0.5, lax.max, (0,)), np.maximum(X.max(0), 0.5))
    np.testing.assert_allclose(nx.grad(lambda x: lax.reduce(x, 1.0, lax.mul, (0, 1)))(X[:1]).shape, (1, 7))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions(name):
    y, peer = (getattr(L, name)(X, 1, np.int8) for L in (lax, jax.lax))
    assert y.dtype == np.int8
    np.testing.assert_array_equal(y, peer)
    with pytest.raises(ParameterError, match=name):
        getattr(lax, name)(X, 1, np.float32)
    with pytest.raises(AxisError, match=name):
        getattr(lax, name)(X, 2, np.int32)
