"""`from_jax` and `to_jax`: trees, types, keys, derivatives, errors."""

import sys
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, MissingExtraError, ParameterError, StaticArgumentError
from nxjax.interop import from_jax, to_jax

X = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
P = {"w": np.random.default_rng(1).standard_normal((3, 2)).astype(np.float32), "b": np.zeros(2, np.float32)}


def layer(p, x):
    return {"y": jnp.tanh(x @ p["w"] + p["b"]), "mean": x.mean()}


def test_trees_in_and_out():
    got, expected = from_jax(layer)(P, X), layer(P, X)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for y, z in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        assert isinstance(y, nx.Array)
        np.testing.assert_allclose(y, z, 1e-5, 1e-6)


def test_containers_registered_with_jax():
    @jax.tree_util.register_dataclass
    @dataclass
    class Model:
        w: object
        b: object

    f = from_jax(lambda m, x: Model(x @ m.w, m.b))
    y = f(Model(P["w"], P["b"]), X)
    assert isinstance(y, Model)
    np.testing.assert_allclose(y.w, X @ P["w"], 1e-5)
    g = nx.grad(lambda m: f(m, nx.array(X)).w.sum())(Model(*map(nx.array, (P["w"], P["b"]))))
    assert isinstance(g, Model) and g.w.shape == (3, 2)


def test_transforms():
    f = from_jax(layer)
    p, x = nx.tree.map(nx.array, P), nx.array(X)
    np.testing.assert_allclose(nx.jit(f)(p, x)["y"], layer(P, X)["y"], 1e-5)
    ours = nx.grad(lambda p: f(p, x)["y"].sum())(p)
    theirs = jax.grad(lambda p: layer(p, X)["y"].sum())(P)
    for k in P:
        np.testing.assert_allclose(ours[k], theirs[k], 1e-5)
    np.testing.assert_allclose(nx.vmap(f, in_axes=(None, 0))(p, x)["y"], layer(P, X)["y"], 1e-5, 1e-6)
    second = nx.hessian(lambda b: f({**p, "b": b}, x)["y"].sum())(p["b"])
    np.testing.assert_allclose(second, jax.hessian(lambda b: layer({**P, "b": b}, X)["y"].sum())(P["b"]), 1e-4, 1e-6)


def test_one_tracing_per_types():
    traced = []

    def f(x):
        traced.append(x.shape)
        return x * 2

    g = from_jax(f)
    for n in (3, 3, 4, 3):
        g(nx.ones(n))
    nx.jit(g)(nx.ones(4))
    assert traced == [(3,), (4,)]


def test_static_arguments():
    def f(x, n, *, mode="sum"):
        return getattr(jnp, mode)(x) * n

    g = from_jax(f, static_argnums=1, static_argnames=("mode",))
    assert float(g(nx.array([1.0, 2.0]), 3)) == 9 and float(g(nx.array([1.0, 2.0]), 2, mode="max")) == 4
    with pytest.raises(StaticArgumentError, match="not hashable"):
        g(nx.ones(2), [1])


def test_keys_and_weak_types():
    def f(key, x):
        return jax.random.normal(key, (3,)) * x, jax.random.fold_in(key, 1), 2.0 * x

    y, key, weak = from_jax(f)(nx.random.key(3), 2.0)
    z, other, _ = f(jax.random.key(3), 2.0)
    np.testing.assert_allclose(y, z, 1e-5)
    assert nx.random.key_data(key).tolist() == jax.random.key_data(other).tolist()
    assert weak.weak_type and (weak + nx.ones((), nx.bfloat16)).dtype == nx.bfloat16
    np.testing.assert_allclose(from_jax(f)(jax.random.key(3), 2.0)[0], z, 1e-5)


def test_wide_types_need_no_switch():
    y = from_jax(lambda x: jnp.sin(x) * 2)(np.float64([1.0, 2.0]))
    assert y.dtype == np.float64
    np.testing.assert_allclose(y, np.sin([1.0, 2.0]) * 2, 1e-15)
    assert not jax.config.jax_enable_x64


def test_values_that_it_closes_over_are_constants():
    w = np.random.default_rng(2).standard_normal((64, 64)).astype(np.float32)
    f = from_jax(lambda x: x @ w + jnp.asarray(w)[0])
    np.testing.assert_allclose(f(w), w @ w + w[0], 1e-3, 1e-4)


def test_derivatives_of_its_own():
    @jax.custom_vjp
    def clipped(x):
        return x * x

    clipped.defvjp(lambda x: (x * x, x), lambda x, ct: (jnp.clip(ct, -1, 1) * 2 * x,))

    def f(x, n):
        return {"y": clipped(x) * 3, "n": n + 1}

    x = nx.array(3.0)
    theirs = float(jax.grad(lambda x: f(x, 1)["y"])(3.0))
    assert theirs == 6
    assert float(nx.grad(lambda x: from_jax(f)(x, 1)["y"])(x)) == 18
    g = from_jax(f, derivative="jax")
    assert float(g(x, 1)["y"]) == 27 and int(g(x, 1)["n"]) == 2
    assert float(nx.grad(lambda x: g(x, 1)["y"])(x)) == theirs
    assert float(nx.jit(nx.grad(lambda x: g(x, 1)["y"]))(x)) == theirs
    assert nx.vmap(nx.grad(lambda x: g(x, 1)["y"]))(nx.array([1.0, 3.0])).tolist() == [2, 6]
    relu = from_jax(lambda x: jax.nn.relu(x).sum(), derivative="jax")
    assert nx.grad(relu)(nx.array([-1.0, 0.0, 2.0])).tolist() == [0, 0, 1]


def test_what_is_refused():
    with pytest.raises(ParameterError, match="needs a function"):
        from_jax(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ParameterError, match="derivative"):
        from_jax(jnp.sin, derivative="none")
    with pytest.raises(DtypeError, match="not an array"):
        from_jax(jnp.sin)("text")


def test_without_jax(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "jax", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'nxjax\[jax\]'"):
        from_jax(lambda x: x)


def test_functions_for_jax():
    def f(p, x):
        return {"y": nx.tanh(x @ p["w"] + p["b"])}

    g = to_jax(f)
    y = jax.jit(g)(P, X)
    assert isinstance(y["y"], jax.Array)
    np.testing.assert_allclose(y["y"], layer(P, X)["y"], 1e-5)
    ours = jax.jit(jax.grad(lambda p: g(p, X)["y"].sum()))(P)
    theirs = jax.grad(lambda p: layer(p, X)["y"].sum())(P)
    for k in P:
        np.testing.assert_allclose(ours[k], theirs[k], 1e-5)
    np.testing.assert_allclose(from_jax(lambda x: g(P, x)["y"])(X), y["y"], 1e-5)
    with pytest.raises(ParameterError):
        to_jax(3)  # pyright: ignore[reportArgumentType]
