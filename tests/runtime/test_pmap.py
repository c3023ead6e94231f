"""pmap: what vmap gives, on as many devices."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import AxisSpecError, ShapeError, ShardingError

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def same(f, *args, **options):
    found, expected = nx.pmap(f, "i", **options)(*args), nx.vmap(f, axis_name="i", **options)(*args)
    for x, y in zip(nx.tree.leaves(found), nx.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)
    return found


def test_elements_lie_on_devices_of_their_own():
    y = same(lambda x: x / nx.lax.psum(x, "i"), X)
    assert len(y.sharding.device_set) == 4 and y.sharding.shard_shape(y.shape) == (1, 3)


def test_axes_trees_and_keywords():
    same(lambda x, w: {"a": x * w, "b": x.sum()}, X, 2.0, in_axes=(0, None))
    same(lambda x: jnp.stack([x, x]), X, out_axes=1)
    same(lambda p: p["w"] @ p["v"], {"w": X.T, "v": X[0]}, in_axes=({"w": 1, "v": None},))
    y = nx.pmap(lambda x, *, s: x * s)(X, s=X)
    np.testing.assert_allclose(y, X * X, rtol=1e-6)
    total = nx.pmap(lambda x: nx.lax.psum(x, "i"), "i", out_axes=None)(X)
    np.testing.assert_allclose(total, X.sum(0), rtol=1e-5, atol=1e-6)


def test_static_arguments_and_the_decorator():
    @nx.pmap(static_broadcasted_argnums=1)
    def f(x, how):
        return getattr(jnp, how)(x)

    np.testing.assert_allclose(f(X, "sin"), np.sin(X), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(f(X, "cos"), np.cos(X), rtol=1e-5, atol=1e-6)


def test_a_training_step_in_the_old_style():
    def step(w, x):
        loss, g = nx.value_and_grad(lambda w: ((x * w) ** 2).sum())(w)
        return w - 0.1 * nx.lax.pmean(g, "i"), nx.lax.pmean(loss, "i")

    w = jnp.stack([jnp.ones(3)] * 4)
    new, loss = same(step, w, X)
    assert np.ptp(new, 0).max() < 1e-6 and float(loss[0]) == pytest.approx(float((X**2).sum() / 4), rel=1e-5)
    g = nx.grad(lambda w: nx.pmap(lambda w, x: nx.lax.psum((w * x).sum(), "i"), "i")(w, X).sum())(w)
    np.testing.assert_allclose(g, 4 * X, rtol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: nx.pmap(lambda x: x)(np.ones((9, 2))), ShardingError, "longer than there are devices"),
        (lambda: nx.pmap(lambda x, y: x)(X, X[:2]), ShapeError, "differ in size"),
        (lambda: nx.pmap(lambda x: x, in_axes=2)(X), AxisSpecError, "out of range"),
        (lambda: nx.pmap(lambda x: x, in_axes=None)(X), AxisSpecError, "no argument is mapped"),
        (lambda: nx.pmap(lambda x, y: x, in_axes=(0,))(X, X), AxisSpecError, "one entry per argument"),
        (lambda: nx.pmap(lambda x: x, in_axes="i")(X), AxisSpecError, "not an axis"),
    ],
)
def test_what_does_not_fit_is_told(call, error, says):
    with pytest.raises(error, match=says):
        call()
