"""`vmap`: what is shared and no array, and results that do not vary."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import AxisSpecError, DtypeError

X = np.arange(3, dtype=np.float32)
PAIR = np.array([True, False])


@pytest.mark.parametrize("shared", [lambda y: y * 2, "name", object(), 2**40, np.array(["a"])])
def test_what_is_shared_may_be_no_array(shared):
    def f(s, x):
        return s(x) if callable(s) else x + 1

    expected = np.asarray(jax.vmap(f, (None, 0))(shared, X))
    np.testing.assert_array_equal(nx.vmap(f, (None, 0))(shared, X), expected)
    np.testing.assert_array_equal(nx.jit(lambda x: nx.vmap(f, (None, 0))(shared, x))(X), expected)
    np.testing.assert_array_equal(nx.vmap(nx.vmap(f, (None, 0)), (None, 0))(shared, X[None])[0], expected)
    np.testing.assert_array_equal(nx.vmap(f, None, axis_size=2)(shared, X)[1], expected)


def test_shared_leaves_of_trees_and_gradients():
    tree = {"f": nx.numpy.sin, "a": X}
    got = nx.vmap(lambda d, x: d["f"](x) + d["a"], ({"f": None, "a": 0}, 0))(tree, X)
    np.testing.assert_allclose(got, np.sin(X) + X, rtol=1e-6)
    slope = nx.grad(lambda x: nx.vmap(lambda f, y: f(y), (None, 0))(nx.numpy.sin, x).sum())(X)
    np.testing.assert_allclose(slope, np.cos(X), rtol=1e-6)


def test_what_is_mapped_must_be_an_array():
    with pytest.raises(DtypeError, match="vmap: not an array"):
        nx.vmap(lambda f, x: x, (0, 0))(len, X)
    with pytest.raises(DtypeError, match="vmap: not an array"):
        nx.vmap(lambda x, f: x)(X, f=len)
    with pytest.raises(AxisSpecError, match="no argument is mapped"):
        nx.vmap(lambda f, x: x, None)(len, X)


def _custom_jvp(m):
    @m.custom_jvp
    def f(x, y):
        return x, y * 2

    f.defjvp(lambda p, t: ((p[0], p[1] * 2), (t[0] * 3, t[1] * 2)))
    return f


def _custom_vjp(m):
    @m.custom_vjp
    def f(x, y):
        return x, y * 2

    f.defvjp(lambda x, y: (f(x, y), None), lambda _, g: (g[0] * 3, g[1] * 2))
    return f


CALLS = {
    "cond": lambda m: lambda p, x, y: m.lax.cond(p, lambda a, b: (a, b), lambda a, b: (a, b * 2), x, y),
    "switch": lambda m: lambda p, x, y: m.lax.switch(p * 1, [lambda a: (a, y), lambda a: (a, y + a)], x),
    "while": lambda m: lambda p, x, y: m.lax.while_loop(lambda c: c[1] < 3 + p, lambda c: (c[0], c[1] + c[0]), (x, y)),
    "fori": lambda m: lambda p, x, y: m.lax.fori_loop(0, 2 + p, lambda i, c: (c[0], c[1] * c[0]), (x, y)),
    "scan": lambda m: lambda p, x, y: m.lax.scan(lambda c, _: ((c[0], c[1] * c[0]), p), (x, y), None, length=2)[0],
    "jit": lambda m: lambda p, x, y: m.jit(lambda a, b: (a, b * 2))(x, y),
    "checkpoint": lambda m: lambda p, x, y: m.checkpoint(lambda a, b: (a, b * 2))(x, y),
    "custom_jvp": lambda m: lambda p, x, y: _custom_jvp(m)(x, y),
    "custom_vjp": lambda m: lambda p, x, y: _custom_vjp(m)(x, y),
}


@pytest.mark.parametrize("name", CALLS)
def test_what_a_call_hands_on_does_not_vary(name):
    y = np.array([1.0, 2.0], np.float32)

    def both(m):
        f = m.vmap(CALLS[name](m), (0, None, 0), (None, 0))

        def loss(x, y):
            a, b = f(PAIR, x, y)
            return a * 5.0 + b.sum()

        slopes = () if name in ("while", "fori") else m.grad(loss, (0, 1))(np.float32(3.0), y)
        return f(PAIR, np.float32(3.0), y), m.jit(f)(PAIR, np.float32(3.0), y), slopes

    for got, expected in zip(
        jax.tree.leaves(nx.tree.map(np.asarray, both(nx))), jax.tree.leaves(both(jax)), strict=True
    ):
        assert got.shape == np.shape(expected)
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_branches_that_hand_on_what_they_close_over():
    # JAX refuses a scalar here.
    for x in (np.float32(3.0), np.arange(2.0, dtype=np.float32)):
        f = nx.vmap(lambda p, x: nx.lax.cond(p, lambda: x, lambda: x), (0, None), None)
        np.testing.assert_array_equal(f(PAIR, x), x)
        np.testing.assert_array_equal(nx.jit(f)(PAIR, x), x)


def test_a_result_that_varies_needs_an_axis():
    with pytest.raises(AxisSpecError, match="out_axes is None"):
        nx.vmap(lambda p, x: nx.lax.cond(p, lambda a: a, lambda a: a * 2, x), (0, None), None)(PAIR, jnp.float32(3))
