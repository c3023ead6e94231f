"""Collectives over named axes, against JAX where JAX has the case, else against NumPy."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ParameterError, ShapeError
from nxjax.trace.axes import UnboundAxisError
from tests.faces import close, ours, peer

X = np.linspace(0.1, 1.3, 6).astype(np.float32).reshape(3, 2)
Z = np.random.RandomState(0).rand(3, 3, 3, 2).astype(np.float32)

CASES = {
    "psum": lambda m, x: m.lax.psum(m.np.sin(x), "i"),
    "softmax": lambda m, x: m.np.exp(x) / m.lax.psum(m.np.exp(x), "i"),
    "pmean": lambda m, x: m.lax.pmean({"a": x * x, "b": 1.0}, "i")["a"] * x,
    "all_gather": lambda m, x: m.lax.all_gather(m.np.sin(x), "i"),
    "all_gather axis": lambda m, x: m.lax.all_gather(m.np.sin(x), "i", axis=1),
    "all_gather tiled": lambda m, x: m.lax.all_gather(x * x, "i", tiled=True),
    "ppermute": lambda m, x: m.lax.ppermute(m.np.sin(x), "i", [(0, 1), (1, 2), (2, 0)]),
    "pshuffle": lambda m, x: m.lax.pshuffle(x * x, "i", [2, 0, 1]),
    "axis_index": lambda m, x: x * m.lax.axis_index("i"),
    "count": lambda m, x: m.lax.psum(1, "i") * x,
    "twice": lambda m, x: m.lax.psum(m.lax.psum(x, "i") * x, "i"),
    "in jit": lambda m, x: m.jit(lambda y: m.lax.psum(y * x, "i"))(x),
    "index in jit": lambda m, x: m.jit(lambda: m.lax.axis_index("i"))() * x,
    "in scan": lambda m, x: m.lax.scan(lambda c, _: (m.np.sin(m.lax.psum(c, "i")), None), x, None, length=2)[0],
    "in cond": lambda m, x: m.lax.cond(x.sum() > 1.0, lambda y: y, lambda y: y * 2, x + m.lax.psum(x, "i")),
    "in checkpoint": lambda m, x: m.checkpoint(lambda y: m.np.sin(m.lax.psum(y, "i") * y))(x),
    "unmapped": lambda m, x: x * m.lax.psum(m.np.asarray(np.float32(2.0)), "i"),
}


@pytest.mark.parametrize("f", CASES.values(), ids=list(CASES))
def test_values_and_gradients(f: Any) -> None:
    them = peer()

    def total(m: Any) -> Any:
        return lambda x: (f(m, x) * 1.5).sum()

    expected = jax.vmap(lambda x: f(them, x), axis_name="i")(X)
    close(nx.vmap(lambda x: f(ours, x), axis_name="i")(X), expected)
    close(nx.jit(nx.vmap(lambda x: f(ours, x), axis_name="i"))(X), expected)
    close(nx.vmap(nx.grad(total(ours)), axis_name="i")(X), jax.vmap(jax.grad(total(them)), axis_name="i")(X))
    expected = jax.grad(lambda x: jax.vmap(total(them), axis_name="i")(x).sum())(X)
    close(nx.grad(lambda x: nx.vmap(total(ours), axis_name="i")(x).sum())(X), expected)
    close(nx.grad(lambda x: nx.jit(nx.vmap(total(ours), axis_name="i"))(x).sum())(X), expected)


@pytest.mark.parametrize(
    "f",
    [
        lambda m, x: m.lax.all_to_all(x, "i", 0, 0),
        lambda m, x: m.lax.all_to_all(x, "i", 1, 0),
        lambda m, x: m.lax.all_to_all(x, "i", 0, 1),
        lambda m, x: m.lax.all_to_all(x, "i", 0, 1, tiled=True),
        lambda m, x: m.lax.pswapaxes(x, "i", 1),
        lambda m, x: m.lax.psum_scatter(x, "i"),
        lambda m, x: m.lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True),
    ],
)
def test_exchanges(f: Any) -> None:
    close(nx.vmap(lambda x: f(ours, x), axis_name="i")(Z), jax.vmap(lambda x: f(peer(), x), axis_name="i")(Z))

    # The adjoint identity, since JAX has no transpose for some of them: <f(z), c> = <z, f'(c)>.
    def whole(z: Any) -> Any:
        return nx.vmap(lambda x: f(ours, x), axis_name="i")(z)

    y, pull = nx.vjp(whole, Z)
    ct = np.random.RandomState(1).rand(*y.shape).astype(np.float32)
    np.testing.assert_allclose((np.asarray(y) * ct).sum(), (Z * np.asarray(pull(ct)[0])).sum(), rtol=1e-4)
    # And batched over a second axis.
    close(nx.vmap(whole)(np.stack([Z, 2 * Z])), np.stack([np.asarray(y), 2 * np.asarray(y)]))


def test_several_axes() -> None:
    def both(m: Any, f: Any) -> Any:
        return m.vmap(m.vmap(lambda x: f(m, x), axis_name="j"), axis_name="i")(X)

    for f in (
        lambda m, x: m.lax.psum(x, ("i", "j")),
        lambda m, x: m.lax.psum(x, "j") * m.lax.axis_index("i"),
        lambda m, x: m.lax.axis_index(("i", "j")) * x,
        lambda m, x: m.lax.pmax(x, "i") - m.lax.pmin(x, "j"),
    ):
        close(both(ours, f), both(peer(), f))
    gathered = both(ours, lambda m, x: m.lax.all_gather(x, ("i", "j")))
    np.testing.assert_array_equal(np.asarray(gathered)[2, 1], X.reshape(-1))
    assert both(ours, lambda m, x: x * m.lax.axis_size(("i", "j")))[0, 0] == X[0, 0] * 6


def test_the_extremum_shares_its_gradient_among_ties() -> None:
    x = np.array([1.0, 3.0, 3.0], np.float32)
    got = nx.grad(lambda x: nx.vmap(lambda v: nx.lax.pmax(v, "i"), axis_name="i")(x)[0])(x)
    assert got.tolist() == [0.0, 0.5, 0.5]


@pytest.mark.parametrize("groups", [None, [[0, 1], [2, 3]]])
def test_the_gradient_of_an_extremum_of_shards(groups) -> None:
    x = np.array([[1.0, 5.0], [3.0, 2.0], [4.0, 2.0], [0.0, 7.0]], np.float32)
    weights = np.array([1.0, 10.0], np.float32)
    mesh = nx.sharding.AbstractMesh((4,), ("i",))
    P = nx.sharding.PartitionSpec

    def f(v):
        return (nx.lax.pmax(v, "i", axis_index_groups=groups) * weights).sum(keepdims=True)

    mapped = nx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P("i"), check_vma=groups is None)
    if groups is None:
        mapped = nx.shard_map(f, mesh=mesh, in_specs=P("i"), out_specs=P())
    # Each shard's result counts, where shards have results of their own.
    shares = [[0, 0], [0, 0], [1, 0], [0, 10]] if groups is None else [[0, 20], [2, 0], [2, 0], [0, 20]]
    assert nx.grad(lambda x: mapped(x).sum())(x).tolist() == shares


def test_an_unreceived_value_is_zero() -> None:
    assert nx.vmap(lambda x: nx.lax.ppermute(x, "i", [(0, 1)]), axis_name="i")(X)[:, 0].tolist() == [0, X[0, 0], 0]


def test_errors() -> None:
    for call in (lambda: nx.lax.psum(1.0, "z"), lambda: nx.lax.axis_index("z"), lambda: nx.lax.axis_size("z")):
        with pytest.raises(UnboundAxisError, match="no axis 'z' is in scope"):
            call()
    with pytest.raises(NameError):  # what JAX programs catch
        nx.vmap(lambda x: nx.lax.psum(x, "j"), axis_name="i")(X)

    def mapped(f: Any) -> Any:
        return nx.vmap(f, axis_name="i")(Z)

    with pytest.raises(ShapeError, match="split axis"):
        mapped(lambda x: nx.lax.all_to_all(x, "i", 2, 0))
    with pytest.raises(ShapeError, match="scattered dimension"):
        mapped(lambda x: nx.lax.psum_scatter(x, "i", scatter_dimension=2))
    with pytest.raises(ParameterError, match="must be unique"):
        mapped(lambda x: nx.lax.ppermute(x, "i", [(0, 1), (0, 2)]))
    with pytest.raises(ParameterError, match="not there"):
        mapped(lambda x: nx.lax.ppermute(x, "i", [(0, 7)]))
    with pytest.raises(ParameterError, match="its results vary along the axis"):
        nx.vmap(lambda x: nx.lax.all_gather(x, "i", to="reduced"), axis_name="i")(X)
    with pytest.raises(ParameterError, match="axis_index_groups"):
        mapped(lambda x: nx.lax.psum(x, "i", axis_index_groups=[[0], [1]]))


def test_a_reduction_whose_function_asks_other_elements_of_the_batch():
    """JAX refuses these: a row's product of what all rows hold at a place, and of the rows' numbers."""
    x = np.linspace(1, 2, 6, dtype=np.float32).reshape(2, 3)
    along = lambda f: lambda row: nx.lax.reduce(row, np.float32(1), f, (0,))
    numbered = nx.vmap(along(lambda a, b: a * b + 0 * nx.lax.axis_index("i").astype(np.float32)), axis_name="i")
    summed = nx.vmap(along(lambda a, b: a + nx.lax.pmax(b, "i")), axis_name="i")
    for wrap in (lambda f: f, nx.jit):
        close(wrap(numbered)(x), x.prod(1))
        # Elements are combined with their neighbours: 1 + max over rows of (a0 + max a1), and of a2 beside them.
        close(wrap(summed)(x[:, :1]), 1 + x[:, :1].max(0).repeat(2))


@pytest.mark.parametrize("tiled", [False, True])
@pytest.mark.parametrize(("split", "concat"), [(0, 0), (0, 1), (1, 0), (0, 2), (2, 1)])
def test_an_exchange_over_two_axes_is_one_over_both(split: int, concat: int, tiled: bool) -> None:
    """The first axis counts in steps of the second."""
    shape = [2, 3, 4]
    shape[split] = 12 if tiled else 6
    x = np.arange(6 * np.prod(shape), dtype=np.float32).reshape(6, *shape)
    exchange = lambda names: lambda x: nx.lax.all_to_all(x, names, split, concat, tiled=tiled)
    one = nx.vmap(exchange("k"), axis_name="k")(x)
    two = nx.vmap(nx.vmap(exchange(("i", "j")), axis_name="j"), axis_name="i")(x.reshape(2, 3, *shape))
    np.testing.assert_array_equal(np.asarray(two).reshape(one.shape), one)
