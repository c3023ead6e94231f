"""Incomplete gamma functions of large parameters, against SciPy: next to the median, in tails, where methods change."""

import numpy as np
import pytest
import scipy.special as peer

import nxjax as nx
from nxjax.ops import incomplete as ops

A = np.repeat([150.0, 199.9, 200.1, 1e3, 3e4, 5e5, 1e7, 1e9, 1e12, 1e100], 9)
X = A + np.tile([-4.3, -1.5, -0.3, -1e-4, 0, 1e-3, 0.7, 2, 4.3], 10) * np.sqrt(A)
# So far away that the recurrences are used again, and just before that.
FAR_A, FAR_X = np.repeat([250.0, 1e3, 1e6, 1e9], 6), np.tile([0.5, 0.749, 0.751, 1.249, 1.251, 2], 4)
FAR_X = FAR_A * FAR_X
EVERY = [pytest.param(f, id=name) for name, f in (("eager", lambda f: f), ("jit", nx.jit))]


@pytest.fixture(autouse=True)
def wide():
    with nx.enable_x64():
        yield


@pytest.mark.parametrize("way", EVERY)
@pytest.mark.parametrize(("op", "reference"), [(ops.igamma, peer.gammainc), (ops.igammac, peer.gammaincc)])
def test_functions(way, op, reference):
    np.testing.assert_allclose(way(op)(A, X), reference(A, X), rtol=1e-12)
    np.testing.assert_allclose(way(op)(FAR_A, FAR_X), reference(FAR_A, FAR_X), rtol=1e-10, atol=1e-300)


@pytest.mark.parametrize("way", EVERY)
def test_slopes(way):
    a, x = A[:63], X[:63]
    step = 1e-3 * np.sqrt(a)
    by_a, by_x = (
        (peer.gammainc(a + i, x + k) - peer.gammainc(a - i, x - k)) / (2 * step) for i, k in ((step, 0), (0, step))
    )
    np.testing.assert_allclose(way(ops.igamma_grad_a)(a, x), by_a, rtol=1e-4)
    np.testing.assert_allclose(way(ops.random_gamma_grad)(a, x), -by_a / by_x, rtol=1e-4)
    np.testing.assert_allclose(way(nx.vmap(nx.grad(ops.igamma, argnums=1)))(a, x), by_x, rtol=1e-4)


def test_second_slopes():
    a, x = A[28:34], X[28:34]
    slopes = nx.vmap(lambda a, x: nx.jvp(lambda a: nx.grad(nx.scipy.special.gammainc)(a, x), (a,), (1.0,))[1])(a, x)
    step = 1e-2 * np.sqrt(a)
    before, here, after = (peer.gammainc(a + i * step, x) for i in (-1, 0, 1))
    np.testing.assert_allclose(slopes, (before - 2 * here + after) / step**2, rtol=1e-2, atol=1e-7)


@pytest.mark.parametrize("way", EVERY)
def test_samples_move_with_a_large_parameter(way):
    a = np.array([1e3, 1e5, 1e6, 1e7], np.float32)
    x, slope = way(nx.vmap(nx.value_and_grad(lambda a: nx.random.gamma(nx.random.key(3), a))))(a)
    # A sample is a + z sqrt(a), z fixed, but for terms next to z^2 / sqrt(a).
    assert (abs(np.asarray(slope) - (1 + (np.asarray(x) - a) / (2 * a))) <= 1 / a + 1e-6).all()


def test_float32():
    a = np.array([5e4, 1e6, 8e7], np.float32)
    x = (a + np.sqrt(a)).astype(np.float32)
    for op, reference in ((ops.igamma, peer.gammainc), (ops.igammac, peer.gammaincc)):
        np.testing.assert_allclose(nx.jit(op)(a, x), reference(a.astype("f8"), x.astype("f8")), rtol=1e-6)


def test_a_chance_is_not_negative():
    a, x = 10.0 ** -np.arange(20, 300, 20), np.full(14, 1e-3)
    for way in (lambda f: f, nx.jit):
        q = np.asarray(way(ops.igammac)(a, x))
        assert (q >= 0).all()
        np.testing.assert_allclose(q, 0, atol=1e-15)
