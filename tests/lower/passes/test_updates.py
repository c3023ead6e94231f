"""Reads go before updates: what moves, what stays, and that loops then update in place."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import CopyStep, RepeatStep, walk
from nxjax.lower.passes import updates
from nxjax.lower.passes.updates import reads_first

R = np.arange(1000, dtype=np.float32)
I, J = np.random.default_rng(0).integers(0, 1000, (2, 50)).astype(np.int32)


def names(f, *xs):
    return [
        e.op.name
        for e in reads_first(nx.make_jaxpr(f)(*xs)).equations
        if "scatter" in e.op.name or "slice" in e.op.name
    ]


def updated(x, y):
    return lax.dynamic_update_slice(x, y, (0,))


def test_a_read_goes_before_the_update():
    f = lambda x: (updated(x, jnp.ones(2)), lax.dynamic_slice(x, (3,), (2,)) + 1)
    assert names(f, R) == ["dynamic_slice", "dynamic_update_slice"]


def test_what_it_is_made_of_goes_with_it():
    def f(x, i):
        y = updated(x, jnp.ones(2))
        return y, lax.dynamic_slice(x, (i * 2,), (2,))

    found = [e.op.name for e in reads_first(nx.make_jaxpr(f)(R, np.int32(3))).equations]
    assert found.index("mul") < found.index("dynamic_slice") < found.index("dynamic_update_slice")


@pytest.mark.parametrize("f", [
    lambda x: (y := updated(x, jnp.ones(2)), lax.dynamic_slice(x, (y[0].astype(int),), (2,))),
    lambda x: (updated(x, jnp.ones(2)), x + 1),
    lambda x: (updated(x, jnp.ones(2)), updated(x, jnp.zeros(2))),
    lambda x: (updated(x[:10], jnp.ones(2)), x[20:]),
], ids=["needs the update", "large", "another update", "another array"])  # fmt: skip
def test_what_stays(f):
    program = nx.make_jaxpr(f)(R)
    assert reads_first(program) is program


def test_none_moves_if_one_has_to_stay():
    """The array is kept for one reader as for several."""
    f = lambda x: (updated(x, jnp.ones(2)), lax.dynamic_slice(x, (3,), (2,)), x + 1)
    assert names(f, R) == ["dynamic_update_slice", "dynamic_slice"]


def test_reads_go_before_the_last_update():
    f = lambda x: (updated(x, jnp.ones(2)), updated(x, jnp.zeros(2)), lax.dynamic_slice(x, (3,), (2,)))
    assert names(f, R) == ["dynamic_update_slice", "dynamic_slice", "dynamic_update_slice"]


def test_each_reader_is_looked_at_once(monkeypatch):
    """However many updates come before it: long programs take no square of their length."""
    seen = []
    monkeypatch.setattr(updates, "_needed", lambda reader, *more: seen.append(reader) or [])
    f = lambda x: [(updated(x, jnp.ones(2)), lax.dynamic_slice(x, (i,), (2,))) for i in range(20)]
    reads_first(nx.make_jaxpr(f)(R))
    assert len(seen) == 1


def test_effects_stay():
    def f(x):
        y = updated(x, jnp.ones(2))
        nx.debug.print("{}", x[0])
        return y

    found = [e.op.name for e in reads_first(nx.make_jaxpr(f)(R)).equations]
    assert found.index("debug_callback") > found.index("dynamic_update_slice")


STEPS = {
    "two sums": lambda r, i, j: r.at[i].add(1.0).at[j].add(-r[i]),
    "three": lambda r, i, j: r.at[i].set(1.0).at[j].add(-2.0).at[j + 1].mul(2.0),
    "exchange": lambda r, i, j: r.at[i].set(r[j]).at[j].set(r[i]),
    "slices": lambda r, i, j: lax.dynamic_update_slice(
        lax.dynamic_update_slice(r, jnp.ones(4), (i,)), lax.dynamic_slice(r, (i,), (2,)), (j,)
    ),
}


@pytest.mark.parametrize("step", STEPS)
def test_loops_update_in_place(step):
    f = lambda r, i, j: lax.scan(lambda r, at: (STEPS[step](r, *at), None), r, (i, j))[0]
    program, _ = nx.make_jaxpr(f)(R, I, J).hoist_consts()
    (loop,) = (s for s in lower(program).steps if isinstance(s, RepeatStep))
    assert not [s for s in walk(loop.body) if isinstance(s, CopyStep) and s.nbytes == R.nbytes]
    wanted = R.copy()
    for i, j in zip(I, J, strict=True):
        wanted = np.asarray(STEPS[step](jnp.asarray(wanted), int(i), int(j)))
    np.testing.assert_allclose(nx.jit(f)(R, I, J), wanted, rtol=1e-6)
