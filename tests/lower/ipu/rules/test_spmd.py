"""shard_map over several modelled IPUs: its values, where its parts lie, and what crosses the links."""

from dataclasses import replace

import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.ipu.chip import BOW, IpuSystem
from nxjax.lower.ipu.interpret import interpret
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.program import Execute
from nxjax.lower.ipu.verify import verify
from nxjax.sharding import AbstractMesh
from nxjax.sharding import PartitionSpec as P

RNG = np.random.default_rng(0)
X = RNG.standard_normal((8, 12)).astype(np.float32)
W = RNG.standard_normal((12, 16)).astype(np.float32)
V = RNG.standard_normal((16, 12)).astype(np.float32)


def small(ipus: int) -> IpuSystem:
    return IpuSystem("small", "small IPUs", replace(BOW, tiles=8), ipus)


def mapped(f, mesh, in_specs, out_specs):
    return nx.shard_map(f, mesh=mesh, in_specs=in_specs, out_specs=out_specs)


def run(f, args, ipus: int):
    program = nx.make_jaxpr(f)(*args)
    found = lower(program, small(ipus))
    verify(found)
    ys = interpret(found, [np.asarray(a) for a in args])
    want = [y.numpy() for y in program(*map(nx.asarray, args))]
    for y, w in zip(ys, want, strict=True):
        np.testing.assert_allclose(y.reshape(w.shape), w, rtol=1e-4, atol=1e-4)
    return found


def used(program) -> set[int]:
    """IPUs with vertices."""
    tiles = [g.tiles for s in program.walk() if isinstance(s, Execute) for g in s.groups]
    return set((np.concatenate(tiles) // 8).tolist())


FOUR = AbstractMesh((4,), ("i",))
GRID = AbstractMesh((2, 2), ("a", "b"))


def test_elementwise_work_stays_on_its_ipu():
    found = run(mapped(lambda x: nx.tanh(x) * 2, FOUR, P("i"), P("i")), [X], 4)
    assert used(found) == {0, 1, 2, 3}
    # All IPUs in the same steps.
    assert max(len(set((s.tiles // 8).tolist())) for e in found.walk() if isinstance(e, Execute) for s in e.groups) == 1
    assert all({int(g.tiles[0]) // 8 for g in e.groups} == {0, 1, 2, 3} for e in found.walk() if isinstance(e, Execute))


def test_megatron_layer():
    def layer(x, w, v):
        return nx.lax.psum(nx.nn.relu(x @ w) @ v, "i")

    found = run(mapped(layer, FOUR, (P(), P(None, "i"), P("i")), P()), [X, W, V], 4)
    assert used(found) == {0, 1, 2, 3}


COLLECTIVES = {
    "psum": (lambda x: nx.lax.psum(x, "i"), P()),
    "pmean": (lambda x: nx.lax.pmean(x, "i"), P()),
    "pmax": (lambda x: nx.lax.pmax(x, "i"), P()),
    "all_gather": (lambda x: nx.lax.all_gather(x, "i", tiled=True), P("i")),
    "psum_scatter": (lambda x: nx.lax.psum_scatter(x, "i", scatter_dimension=1, tiled=True), P("i")),
    "all_to_all": (lambda x: nx.lax.all_to_all(x, "i", 1, 0, tiled=True), P("i")),
    "ppermute": (lambda x: nx.lax.ppermute(x, "i", [(0, 1), (1, 2), (2, 3)]), P("i")),
    "axis_index": (lambda x: x + nx.lax.axis_index("i"), P("i")),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_collectives(name: str):
    f, out = COLLECTIVES[name]
    run(mapped(f, FOUR, P("i"), out), [X], 4)


def test_two_axes_and_partly_shared_results():
    f = lambda x, w: nx.lax.psum(x @ w, "b")
    run(mapped(f, GRID, (P("a", "b"), P("b")), P("a")), [X, W], 4)
    run(mapped(lambda x: nx.lax.psum(x.sum(), ("a", "b")), GRID, P("a", "b"), P()), [X], 4)


def test_data_parallel_gradients():
    def loss(w, x):
        return (nx.tanh(x @ w) ** 2).mean()

    def step(w, x):
        g = nx.grad(loss)(w, x)
        return nx.lax.pmean(g, "i")

    run(nx.shard_map(step, mesh=FOUR, in_specs=(P(), P("i")), out_specs=P(), check_vma=False), [W, X], 4)


def test_a_loop_inside():
    def f(x):
        return nx.lax.scan(lambda c, _: (nx.tanh(c) + 1.0, c.sum()), x, None, length=3)

    run(mapped(lambda x: nx.lax.psum(f(x)[0], "i"), FOUR, P("i"), P()), [X], 4)


def test_fewer_ipus_than_devices_fall_back_to_one():
    found = run(mapped(lambda x: nx.lax.psum(x, "i"), FOUR, P("i"), P()), [X], 2)
    assert used(found) == {0}
