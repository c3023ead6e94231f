"""The memory plan: no value is overwritten while it is needed, and few bytes are copied or held.

Plans are checked by what they mean: a program runs with real buffers, and is watched for reads of other bytes than
the equations gave.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.memory_offsets import lifetimes
from nxjax.lower.cpu.memory_uses import Uses
from nxjax.lower.cpu.tape import ALIGN, CopyStep, RepeatStep, walk

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def program(function, *args, donate=()):
    hoisted, consts = nx.make_jaxpr(function)(*args).hoist_consts()
    assert not consts
    return lower(hoisted, donate)


def copies(p):
    return [s for s in walk(p.steps) if isinstance(s, CopyStep)]


def alive_together_do_not_overlap(p):
    lives = lifetimes(Uses(p.steps))
    items = [(b, *life) for b, life in lives.items() if life[2]]
    for i, (a, first, last, size) in enumerate(items):
        assert a.offset >= 0 and a.offset % ALIGN == 0 and a.offset + size <= p.arena
        for b, start, end, other in items[:i]:
            if first <= end and start <= last:
                assert a.offset + size <= b.offset or b.offset + other <= a.offset


def test_results_are_made_where_they_belong():
    p = program(lambda x: (nx.sort(x), nx.sort(x) * 0 + 1, x, x, nx.sort(x)), X)
    assert not copies(p)
    assert p.outputs[2] is p.outputs[3] is p.inputs[0] and p.outputs[4] is p.outputs[0]


@pytest.mark.parametrize("shape", [(66, 64), (16, 300)])
def test_fields_that_are_updated_in_parts_are_not_copied_in_a_loop(shape):
    """The parts of a field at the edges of a shift are kernels of their own, along both dimensions."""

    def waves(e, h):
        def step(_, state):
            e, hx, hy = state
            hx, hy = hx - 0.5 * (jnp.roll(e, -1, 1) - e), hy + 0.5 * (jnp.roll(e, -1, 0) - e)
            return e + 0.5 * (hy - jnp.roll(hy, 1, 0) - hx + jnp.roll(hx, 1, 1)), hx, hy

        return lax.fori_loop(0, 7, step, (e, h, h))

    e, h = fields = np.random.default_rng(0).normal(size=(2, *shape)).astype(np.float32)
    (loop,) = [s for s in program(waves, e, h).steps if isinstance(s, RepeatStep)]
    assert not any(isinstance(s, CopyStep) for s in walk([loop]))
    expected = [e, h, h]
    for _ in range(7):
        e, hx, hy = expected
        hx, hy = hx - 0.5 * (np.roll(e, -1, 1) - e), hy + 0.5 * (np.roll(e, -1, 0) - e)
        expected = [e + 0.5 * (hy - np.roll(hy, 1, 0) - hx + np.roll(hx, 1, 1)), hx, hy]
    for y, z in zip(nx.jit(waves)(*fields), expected, strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-4)


def test_a_chain_needs_the_memory_of_a_few_links():
    def chain(x):
        for _ in range(20):
            x = nx.sort(nx.argsort(x, axis=0) * 1.5, 1)
        return x

    p = program(chain, np.zeros((64, 64), np.float32))
    assert p.arena <= 6 * 64 * 64 * 4
    alive_together_do_not_overlap(p)


def test_what_a_loop_reads_outlives_it():
    def f(x, w):
        a = nx.sort(w, 0)
        c, ys = nx.lax.scan(lambda c, r: (nx.sort(c @ a + r), nx.sort(c)), x[0], x)
        return nx.sort(c) + 1, ys

    p = program(f, X, np.eye(3, dtype=np.float32))
    alive_together_do_not_overlap(p)


def test_rows_and_carries_are_written_in_place():
    p = program(lambda x: nx.lax.scan(lambda c, r: (nx.sort(c + r), nx.sort(r)), x[0], x), X)
    # Rows of ys are made where they belong; the carry is copied once, or made in place.
    assert len([s for s in walk(p.steps) if isinstance(s, CopyStep)]) <= 1


def test_a_large_carry_is_updated_not_copied():
    def f(x, w):
        def body(i, c):
            return nx.lax.dynamic_update_slice(c, w[None] * 2, (i, 0))

        return nx.lax.fori_loop(0, 100, body, x)

    p = program(f, np.zeros((100, 1000), np.float32), np.zeros(1000, np.float32))
    assert p.arena < 20_000
    inside = [s for step in p.steps for body in step.bodies() for s in walk(body) if isinstance(s, CopyStep)]
    assert all(s.nbytes < 10_000 for s in inside)
    assert sum(s.nbytes >= 400_000 for s in copies(p)) == 1
    donated = program(f, np.zeros((100, 1000), np.float32), np.zeros(1000, np.float32), donate=(0,))
    assert not any(s.nbytes >= 400_000 for s in copies(donated)) and donated.outputs[0] is donated.inputs[0]


def test_donated_memory_is_used_where_nobody_needs_it():
    big = np.zeros((50, 50), np.float32)
    p = program(lambda x, y: nx.sort(y), big, big, donate=(0,))
    assert p.outputs[0] is p.inputs[0]
    p = program(lambda x, y: (nx.sort(y), nx.sort(x)), big, big, donate=(0,))
    assert p.outputs[0] is not p.inputs[0]
    p = program(lambda x: nx.sort(x)[:3], big, donate=(0,))
    assert p.outputs[0].kind == "output"


LOOPS = {
    "swap": lambda x: nx.lax.fori_loop(0, 5, lambda i, c: (c[1], c[0] + 1), (x, x * 2)),
    "rotate": lambda x: nx.lax.fori_loop(0, 4, lambda i, c: (c[1], c[2], c[0]), (x, x + 1, x + 2)),
    "turned": lambda x: nx.lax.fori_loop(0, 3, lambda i, c: c.T, x[:3, :3]),
    "reversed": lambda x: nx.lax.fori_loop(0, 3, lambda i, c: c[::-1], x),
    "self and rows": lambda x: nx.lax.scan(lambda c, r: (c + r, c), x[0], x),
    "backwards": lambda x: nx.lax.scan(lambda c, r: (c * r, (c, r)), x[0], x, reverse=True),
    "no carry": lambda x: nx.lax.map(lambda r: nx.sort(r) + r.sum(), x),
    "two deep": lambda x: nx.lax.scan(
        lambda c, r: nx.lax.scan(lambda d, v: (d + v * c.sum(), d * v), c, nx.stack([r, c])), x[0], x
    ),
    "three deep": lambda x: nx.lax.fori_loop(
        0,
        3,
        lambda i, a: nx.lax.fori_loop(
            0, i + 1, lambda j, b: nx.lax.cond(j > 0, lambda v: v + i, lambda v: v * 2, b), a
        ),
        x,
    ),
    "until": lambda x: nx.lax.while_loop(lambda c: c[0].sum() < 100, lambda c: (c[0] + c[1], c[0]), (x[0], x[1] + 1)),
    "carry is an argument": lambda x: (nx.lax.fori_loop(0, 3, lambda i, c: c + x, x), x),
    "same first value": lambda x: nx.lax.fori_loop(0, 3, lambda i, c: (c[0] + 1, c[1] * 2), (x * 2, x * 2)),
    "no turns": lambda x: nx.lax.scan(lambda c, r: (c + r, c), x[0], x[:0]),
    "never": lambda x: nx.lax.while_loop(lambda c: c.sum() < -1e9, lambda c: c + 1, x),
    "choices": lambda x: nx.lax.cond(x.sum() > 3, lambda v: (v, v.T.reshape(4, 3)), lambda v: (v + 1, v), x),
    "swapped choice": lambda x: nx.lax.cond(x.sum() < 3, lambda a, b: (a, b), lambda a, b: (b, a), x, x + 1),
}


@pytest.mark.parametrize("name", list(LOOPS))
def test_loops_mean_what_they_say(name):
    expected = nx.tree.leaves(_run(LOOPS[name], X, "reference"))
    for got, want in zip(nx.tree.leaves(_run(LOOPS[name], X, "cpu")), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)
    alive_together_do_not_overlap(program(LOOPS[name], X))


def _run(function, x, executor, donate=()):
    with nx.config.using(executor=executor):
        return nx.jit(function, donate_argnums=donate)(nx.array(x))


@pytest.mark.parametrize("name", list(LOOPS))
@pytest.mark.filterwarnings("ignore:Some donated buffers")
def test_a_donated_argument_gives_the_same(name):
    expected = nx.tree.leaves(_run(LOOPS[name], X, "reference"))
    for got, want in zip(nx.tree.leaves(_run(LOOPS[name], X, "cpu", 0)), expected, strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-6)


RETYPED = {
    "shape": lambda x: x.reshape(-1, 1),
    "dtype": lambda x: nx.lax.bitcast_convert_type(x, np.int32),
    "twice": lambda x: (x.reshape(1, -1), nx.expand_dims(x, 0), x),
    "in parts": lambda x: nx.concatenate([x[:1], x[1:]])[..., None],
}


@pytest.mark.parametrize("name", list(RETYPED))
def test_a_donated_argument_that_nobody_writes_gets_the_type_of_its_result(name):
    for _ in range(4):
        expected = nx.tree.leaves(_run(RETYPED[name], X, "reference"))
        for got, want in zip(nx.tree.leaves(_run(RETYPED[name], X, "cpu", 0)), expected, strict=True):
            assert np.asarray(got).dtype == np.asarray(want).dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@given(st.data())
def test_random_carries(data):
    """Bodies that hand carries on in any order, changed or not, with rows that are old or new ones."""
    n = data.draw(st.integers(1, 4))
    sources = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.integers(0, 3)), min_size=n, max_size=n))
    rows = data.draw(st.lists(st.tuples(st.integers(0, n - 1), st.booleans()), max_size=3))
    changes = (lambda v, r: v, lambda v, r: v + r, lambda v, r: v[::-1], lambda v, r: nx.sort(v) * 1.25)

    def f(x):
        def body(c, r):
            new = tuple(changes[k](c[i], r) for i, k in sources)
            return new, [(new if late else c)[i] for i, late in rows]

        return nx.lax.scan(body, tuple(x[0] + i for i in range(n)), x)

    expected = nx.tree.leaves(_run(f, X, "reference"))
    for got, want in zip(nx.tree.leaves(_run(f, X, "cpu")), expected, strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


def test_guard_mode_overwrites_what_is_dead():
    assert nx.config.guard in ("", "poison"), "tests of this folder are about the arena (conftest.py)"
