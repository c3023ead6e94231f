"""Compressors keep their laws: nothing is lost, all devices have the same bits, means are right on average."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.distributed import compress
from nxjax.distributed.compress import Memory
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.sharding import PartitionSpec as P

N = 4
MAKERS = {
    "none": compress.none,
    "int8": partial(compress.int8, block=16),
    "int8 at random, remembered": partial(compress.int8, block=16, stochastic=True, error_feedback=True),
    "top_k": partial(compress.top_k, ratio=0.1),
    "power_sgd": partial(compress.power_sgd, rank=2),
    "power_sgd, cold": partial(compress.power_sgd, rank=1, warm_start=False),
}


def gradients(step: int = 0, devices: int = N) -> dict[str, Any]:
    """Of each device along the first axis: leaves of several ranks and dtypes, sizes that no block divides."""
    random = np.random.default_rng(step)
    draw = lambda *shape: random.normal(size=(devices, *shape)).astype(np.float32)
    return {"kernel": draw(3, 3, 4, 9), "w": draw(20, 11) * 100, "b": draw(5), "half": draw(7, 8).astype(jnp.bfloat16)}


def on_devices(compressor: Any, count: int = N) -> Any:
    """The compressor over real devices, jitted: (grads of each, memory) -> (mean of each, memory)."""
    mesh = nx.make_mesh((count,), ("x",), devices=nx.devices("cpu")[:count])

    def one(grads: Any, memory: Any) -> Any:
        mean, memory = compressor(nx.tree.map(lambda g: g[0], grads), memory)
        return nx.tree.map(lambda m: m[None], mean), memory

    specs = compressor.specs
    return nx.jit(nx.shard_map(one, mesh=mesh, in_specs=(P("x"), specs), out_specs=(P("x"), specs), check_vma=False))


def as_batch(compressor: Any) -> Any:
    """The same as a batch, op by op: what `vmap` makes of the axis."""

    def step(grads: Any, memory: Any) -> Any:
        first = Memory(nx.tree.map(lambda x: x[:, None], memory.own), memory.shared)
        axes = Memory(0, None)
        run = nx.vmap(compressor, axis_name="x", in_axes=(0, axes), out_axes=(0, axes))
        mean, after = run(grads, first)
        return mean, Memory(nx.tree.map(lambda x: x[:, 0], after.own), after.shared)

    return step


def wide(x: Any) -> np.ndarray[Any, Any]:
    return np.asarray(x).astype(np.float64)


@pytest.mark.parametrize("name", MAKERS)
def test_what_was_given_and_what_is_remembered_add_up_to_the_gradients(name: str) -> None:
    """And every device has the same bits of each mean, of the gradients' dtypes."""
    compressor = MAKERS[name]("x")
    step = as_batch(compressor) if "random" in name or "cold" in name else on_devices(compressor)
    like = nx.tree.map(lambda g: g[0], gradients())
    memory = compressor.init(like, devices=N)
    given = nx.tree.map(lambda g: np.zeros(g.shape), like)
    wanted = nx.tree.map(lambda g: np.zeros(g.shape), like)
    for t in range(4):
        grads = gradients(t)
        mean, memory = step(grads, memory)
        for k, m in mean.items():
            rows = np.asarray(m)
            assert rows.dtype == grads[k].dtype
            assert all(r.tobytes() == rows[0].tobytes() for r in rows), k
            given[k] += wide(rows[0])
            wanted[k] += wide(grads[k]).mean(0)
    late = owed(name, memory, like)
    for k in like:
        # bfloat16's last bits are lost where a mean is given in it.
        atol = 0.05 if k == "half" else 1e-3 if k == "w" else 1e-5
        np.testing.assert_allclose(given[k] + late[k], wanted[k], rtol=0, atol=atol, err_msg=k)
    if name != "none":
        assert max(np.abs(given[k] - wanted[k]).max() for k in like) > 0.1, "nothing was compressed"


def owed(name: str, memory: Any, like: Any) -> dict[str, Any]:
    """What means still lack, by leaf."""
    found = nx.tree.map(lambda g: np.zeros(g.shape), like)
    flat = np.zeros(sum(g.size for g in nx.tree.leaves(like)))
    if name.startswith("power"):
        keys = sorted(like)
        for i, kept in memory.own.items():
            found[keys[int(i)]] += wide(kept).mean(0)
        return found
    if memory.own:
        flat += wide(memory.own["unsent"]).mean(0)[: flat.size]
        flat += wide(memory.own.get("unanswered", np.zeros((N, flat.size)))).reshape(-1)[: flat.size] / N
    at = 0
    for k in sorted(like):
        found[k] = flat[at : at + like[k].size].reshape(like[k].shape)
        at += like[k].size
    return found


@pytest.mark.parametrize("name", MAKERS)
def test_memory_for_another_number_of_devices_owes_the_same(name: str) -> None:
    compressor = MAKERS[name]("x")
    like = nx.tree.map(lambda g: g[0], gradients())
    step = as_batch(compressor)
    _, memory = step(gradients(), compressor.init(like, devices=N))
    fewer = compressor.resize(memory, like, 3)
    assert all(x.shape[0] == 3 for x in nx.tree.leaves(fewer.own))
    if memory.own and not name.startswith("power"):
        size = sum(g.size for g in nx.tree.leaves(like))
        before, after = (
            wide(m.own["unsent"]).mean(0)[:size]
            + wide(m.own.get("unanswered", np.zeros((n, size)))).reshape(-1)[:size] / n
            for m, n in ((memory, N), (fewer, 3))
        )
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5)
    mean, _ = step(gradients(1, 3), fewer)
    assert mean["w"].shape == (3, 20, 11)


def test_int8_at_random_is_right_on_average() -> None:
    """And another key each step: the same gradients are rounded otherwise."""
    compressor = compress.int8("i", block=32, stochastic=True)
    grads = np.random.default_rng(0).normal(size=(N, 64)).astype(np.float32)
    run = nx.jit(nx.vmap(compressor, axis_name="i", in_axes=(0, None), out_axes=(0, None)))
    memory = compressor.init(grads[0], devices=N)
    assert memory.own == ()
    means = []
    for _ in range(400):
        mean, memory = run(grads, memory)
        means.append(np.asarray(mean[0]))
    exact, found = grads.mean(0), np.mean(means, 0)
    one = np.abs(means[0] - exact).max()
    assert np.abs(found - exact).max() < 0.3 * one
    assert 0.8 * 400**-0.5 < np.std(found - exact) / np.std(means[0] - exact) < 1.2 * 400**-0.5 * 1.3


def test_top_k_sends_the_largest_and_then_what_has_grown() -> None:
    run = as_batch(compress.top_k("x", 0.25))
    grads = jnp.array([[8.0, 1.0, 3.0, 0.0], [0.0, 1.0, 6.0, 0.0]])
    memory = Memory({"unsent": jnp.zeros((2, 4))}, ())
    mean, memory = run(grads, memory)
    assert mean.tolist() == [[4.0, 0.0, 3.0, 0.0]] * 2
    assert memory.own["unsent"].tolist() == [[0.0, 1.0, 3.0, 0.0], [0.0, 1.0, 0.0, 0.0]]
    mean, _ = run(jnp.zeros((2, 4)), memory)
    assert mean[0].tolist() == [0.0, 0.5, 1.5, 0.0]
    nan, _ = run(grads.at[0, 1].set(jnp.nan), memory)
    assert bool(jnp.isnan(nan[:, 1]).all()), "a number that is none is seen by all"


def test_power_sgd_finds_matrices_of_its_rank_and_better_ones_with_time() -> None:
    random = np.random.default_rng(0)
    low = (random.normal(size=(12, 2)) @ random.normal(size=(2, 10))).astype(np.float32)
    run = lambda c, m, g: nx.vmap(c, axis_name="i", in_axes=(None, m and Memory(None, None)), axis_size=2)(g, m)
    exact = compress.power_sgd("i", 2, error_feedback=False)
    mean, _ = run(exact, exact.init(low, devices=2), low)
    np.testing.assert_allclose(mean[0], low, atol=1e-4)
    # Without memory, a step of the power method at a time: towards the best approximation (Eckart and Young).
    full = random.normal(size=(12, 10)).astype(np.float32)
    best = np.sqrt((np.linalg.svd(full)[1][2:] ** 2).sum())
    memory, errors = exact.init(full, devices=2), []
    for _ in range(30):
        mean, memory = run(exact, memory, full)
        memory = Memory((), nx.tree.map(lambda q: q[0], memory.shared))
        errors.append(np.linalg.norm(mean[0] - full))
    assert errors[0] > 1.05 * best
    assert errors[-1] < 1.01 * best


def test_memory_is_kept_in_checkpoints_and_a_run_goes_on_with_the_same_bits(tmp_path: Any) -> None:
    compressor = compress.int8("x", stochastic=True, error_feedback=True)
    step = as_batch(compressor)
    like = nx.tree.map(lambda g: g[0], gradients())
    _, memory = step(gradients(0), compressor.init(like, devices=N))
    nx.checkpoints.save(tmp_path, memory, step=1)
    back = nx.checkpoints.restore(tmp_path, like=memory)
    assert isinstance(back, Memory)
    for a, b in zip(nx.tree.leaves(step(gradients(1), back)), nx.tree.leaves(step(gradients(1), memory)), strict=True):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()


def test_wrong_use_is_named() -> None:
    for make in (
        lambda: compress.int8("x", block=0),
        lambda: compress.top_k("x", 1.5),
        lambda: compress.power_sgd("x", 0),
    ):
        with pytest.raises(ParameterError):
            make()
    compressor = compress.int8("x")
    with pytest.raises(DtypeError, match=r"grads\['n'\]"):
        compressor.init({"n": jnp.arange(3)}, devices=2)
    memory = compressor.init(jnp.ones(8), devices=2)
    with pytest.raises(ShapeError, match="not that of one device") as error:
        nx.vmap(lambda g: compressor(g, memory), axis_name="x")(jnp.ones((2, 8)))
    assert "compressor.specs" in error.value.fix
    with pytest.raises(ShapeError, match="of other gradients"):
        nx.vmap(lambda g: compressor(g, compressor.init(jnp.ones(4000))), axis_name="x")(jnp.ones((2, 8)))


def test_digits_are_learned_and_a_run_goes_on_with_fewer_devices(tmp_path: Any) -> None:
    from nxjax.demo.parallel.compressed import train

    devices = nx.devices("cpu")
    plain = train("none", 16, devices=devices[:1])
    first = train("int8", 8, devices=devices[:4], folder=tmp_path)
    rest = train("int8", 16, devices=devices[:3], folder=tmp_path, stop=lambda n: n == 16)
    assert sorted(rest.losses) == list(range(8, 16))
    assert rest.stopped and not first.stopped
    for n, loss in (first.losses | rest.losses).items():
        assert abs(loss - plain.losses[n]) < 0.02, n
    assert rest.losses[15] < first.losses[0] / 2
    assert nx.checkpoints.metadata(tmp_path)["devices"] == 3
