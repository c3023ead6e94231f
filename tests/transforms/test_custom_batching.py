"""`custom_vmap` and `sequential_vmap`: the rule is used under every transform, or an error says why not."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.custom_batching import custom_vmap, sequential_vmap


def marked():
    @custom_vmap
    def f(x, y):
        return jnp.sin(x) * y

    @f.def_vmap
    def rule(size, batched, x, y):
        return jnp.cos(x) * y + 10.0 * batched[0] + 100.0 * batched[1], True

    return f


def test_the_rule_is_used():
    f, x = marked(), jnp.arange(3.0)
    want = np.cos(np.arange(3.0))
    np.testing.assert_allclose(f(x, 1.0), np.sin(np.arange(3.0)), rtol=1e-6)
    np.testing.assert_allclose(nx.vmap(f)(x, jnp.ones(3)), want + 110, rtol=1e-6)
    np.testing.assert_allclose(nx.jit(nx.vmap(nx.jit(f), (0, None)))(x, 1.0), want + 10, rtol=1e-6)
    np.testing.assert_allclose(nx.vmap(nx.vmap(f, (0, None)), (None, 0))(x, jnp.ones(2))[1], want + 10, rtol=1e-6)


def test_forward_mode_is_the_rules():
    f, x = marked(), jnp.ones(3)
    for wrap in (lambda g: g, nx.jit):
        y, t = nx.jvp(wrap(lambda v: nx.vmap(f, (0, None))(v, 2.0)), (x,), (x,))
        np.testing.assert_allclose(y, 10 + 2 * np.cos(np.ones(3)), rtol=1e-6)
        np.testing.assert_allclose(t, -2 * np.sin(np.ones(3)), rtol=1e-6)
    y, t = nx.vmap(lambda v: nx.jvp(f, (v, 2.0), (1.0, 0.0)))(x)
    np.testing.assert_allclose(t, -2 * np.sin(np.ones(3)), rtol=1e-6)
    np.testing.assert_allclose(nx.grad(f)(1.0, 2.0), 2 * np.cos(1.0), rtol=1e-6)


def test_derivatives_of_derivatives_are_the_rules():
    """With a const in front of the arguments, which is not the rule's."""
    c = jnp.arange(2.0)

    def outer(v, y):
        f = custom_vmap(lambda x, y: jnp.sin(x) * y + c.sum())
        f.def_vmap(lambda size, batched, x, y: (jnp.cos(x) * y + 10.0, True))
        return f(v, y)

    slope = lambda g: lambda v, y: nx.jvp(lambda u: g(u, y), (v,), (1.0,))[1]
    x = np.linspace(0.0, 1.0, 3, dtype=np.float32)
    for f, wanted in (
        (outer, 2 * np.cos(x) + 10),
        (slope(outer), -2 * np.sin(x)),
        (slope(slope(outer)), -2 * np.cos(x)),
        (slope(slope(slope(outer))), 2 * np.sin(x)),
    ):
        for wrap in (lambda g: g, nx.jit):
            y = wrap(nx.vmap(f, (0, None)))(x, 2.0)
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def test_trees_and_shared_results():
    f = custom_vmap(lambda d: {"z": d["a"]})
    f.def_vmap(lambda size, batched, d: ({"z": d["a"] * size}, {"z": batched[0]["a"]}))
    assert nx.vmap(f)({"a": jnp.ones(2), "b": jnp.ones(2)})["z"].tolist() == [2, 2]
    g = custom_vmap(lambda x: x)
    g.def_vmap(lambda size, batched, x: (jnp.sum(x), False))
    assert nx.vmap(g)(jnp.ones(2)).tolist() == [2, 2] and nx.vmap(g, out_axes=None)(jnp.ones(2)).tolist() == 2


def test_errors():
    with pytest.raises(AttributeError):
        custom_vmap(lambda x: x)(1.0)
    f = custom_vmap(lambda x: x)
    for result, error in (((1.0, (True, True)), ValueError), (1.0, ValueError), ((1.0, True), ValueError)):
        f.def_vmap(lambda size, batched, x, result=result: result)
        with pytest.raises(error):
            nx.vmap(f)(jnp.ones(2))

    def closing(x):
        g = custom_vmap(lambda y: x * y)
        g.def_vmap(lambda size, batched, y: (y, batched[0]))
        return g(1.0)

    with pytest.raises(ValueError, match="closes over"):
        nx.vmap(closing)(jnp.ones(2))


def test_one_after_the_other():
    f = sequential_vmap(lambda x, y: {"a": x + y})
    assert nx.vmap(f, (0, None))(jnp.arange(3.0), 1.0)["a"].tolist() == [1, 2, 3]
    assert nx.jit(nx.vmap(nx.vmap(f)))(jnp.ones((2, 3)), jnp.ones((2, 3)))["a"].tolist() == [[2] * 3] * 2
    assert nx.jvp(lambda x: nx.vmap(f, (0, None))(x, 1.0), (jnp.ones(2),), (jnp.ones(2),))[1]["a"].tolist() == [1, 1]
