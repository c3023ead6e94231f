"""Loops, choices and effects as steps of the tape."""

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import ExecutionError
from nxjax.experimental import io_callback
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.tape import BranchStep, CallStep, CopyStep, HostStep, RepeatStep, WhileStep, walk

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def kinds(function, *args):
    hoisted, _ = nx.make_jaxpr(function)(*args).hoist_consts()
    return [type(s) for s in walk(lower(hoisted).steps)]


def test_loops_and_choices_are_steps():
    assert RepeatStep in kinds(lambda x: nx.lax.scan(lambda c, r: (c + r, c * r), x[0], x), X)
    assert WhileStep in kinds(lambda x: nx.lax.while_loop(lambda c: c.sum() < 9, lambda c: c + 1, x), X)
    found = kinds(lambda p, x: nx.lax.cond(p, lambda v: v + 1, lambda v: v * 2, x), True, X)
    assert BranchStep in found and HostStep not in found
    # A choice per element is a selection, a loop of one turn its body.
    assert BranchStep not in kinds(nx.vmap(lambda p, x: nx.lax.cond(p, nx.sin, nx.cos, x)), X[:, 0] > 3, X)
    assert RepeatStep not in kinds(lambda x: nx.lax.scan(lambda c, r: (c + r, c * r), x[0], x[:1]), X)


def products(function, *args):
    """How often a turn or a choice takes each product."""
    hoisted, _ = nx.make_jaxpr(function)(*args).hoist_consts()
    return sum(isinstance(s, CallStep) and type(s.kernel).__name__ == "Gemm" for s in walk(lower(hoisted).steps))


def test_what_two_results_of_a_body_are_made_of_is_made_once():
    w, c = np.ones((64, 64), np.float32), np.ones((32, 64), np.float32)

    def body(c, _=None):
        h = nx.numpy.tanh(c @ w)
        return h, 1 - h * h

    assert products(lambda c: nx.lax.scan(body, c, length=3), c) == 1
    assert products(lambda c: nx.lax.while_loop(lambda s: s[1].sum() < 9, lambda s: body(s[0]), (c, c)), c) == 1
    assert products(lambda p, c: nx.lax.cond(p, body, lambda c: (c, c), c), True, c) == 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [4, 5, 8, 9, 31])
def test_turns_take_two_places_alternately_where_a_large_carry_cannot_be_updated_in_place(length, reverse):
    """Beside a carry that can, two that change places, and a small one; with slices and rows."""
    jnp = nx.numpy

    def step(state, x):
        field, total, (a, b), small = state
        field = 0.5 * (jnp.roll(field, 1, 0) + jnp.roll(field, -3, 0)) + x.sum()
        return (field, total + x[0] * field, (b, a + field), small[::-1] + x), field[::7] * small[0]

    def plain(state, xs):
        rows = [None] * length
        for i in range(length)[:: -1 if reverse else 1]:
            state, rows[i] = step(state, xs[i])
        return state, jnp.stack(rows)

    rng = np.random.default_rng(0)
    a, b, c, d = rng.normal(size=(4, 1200)).astype(np.float32)
    xs = rng.normal(size=(length, 3)).astype(np.float32)
    args = ((a, b, (c, d), a[:3]), xs)
    f = lambda state, xs: nx.lax.scan(step, state, xs, reverse=reverse)
    hoisted, _ = nx.make_jaxpr(f)(*args).hoist_consts()
    (loop,) = [s for s in lower(hoisted).steps if isinstance(s, RepeatStep)]
    assert loop.counter.count == length // 2
    with nx.config.using(executor="cpu"):
        for y, z in zip(nx.tree.leaves(nx.jit(f)(*args)), nx.tree.leaves(plain(*args)), strict=True):
            np.testing.assert_allclose(y, z, rtol=1e-4, atol=1e-4)


def test_a_large_carry_that_only_a_stencil_updates_is_not_copied():
    roll = lambda x: 0.5 * (nx.numpy.roll(x, 1) + x)
    copied = lambda f, x: [s for s in walk(lower(nx.make_jaxpr(f)(x)).steps) if isinstance(s, CopyStep)]
    loop = lambda count: lambda x: nx.lax.fori_loop(0, count, lambda _, x: roll(x), x)
    assert len(copied(loop(10), np.ones(5000, np.float32))) <= 1  # into the result
    x = np.random.default_rng(0).normal(size=5000).astype(np.float32)
    for count in (10, 11):
        y = x
        for _ in range(count):
            y = np.float32(0.5) * (np.roll(y, 1) + y)
        np.testing.assert_allclose(nx.jit(loop(count))(x), y, rtol=1e-5, atol=1e-6)


BODIES = {
    "product": lambda a, b, w: nx.numpy.tanh(a @ w) + 0.1 * b,
    "held product": lambda a, b, w: 0.5 * nx.numpy.tanh(w @ a) + nx.numpy.roll(b, 1, 0),
    "convolution": lambda a, b, w: nx.lax.conv(a[None, None], w[None, None, :3, :3], (1, 1), "SAME")[0, 0] + 0.1 * b,
    "sort": lambda a, b, w: 0.9 * nx.numpy.sort(a, 0) + 0.05 * b,
    "softmax": lambda a, b, w: nx.nn.softmax(a @ b.T) @ w,
}


@pytest.mark.parametrize("length", [4, 5])
@pytest.mark.parametrize("body", BODIES)
def test_bodies_of_every_kind_may_take_two_places(body, length):
    """What a body makes once for itself is made again for the second of two turns."""
    rng = np.random.default_rng(0)
    a, b, w = (rng.normal(size=(3, 40, 40)) / 6).astype(np.float32)
    step = lambda c, _: ((BODIES[body](*c, w), c[0]), c[1][0])
    f = lambda a, b: nx.lax.scan(step, (a, b), None, length=length)
    (loop,) = [s for s in lower(nx.make_jaxpr(f)(a, b).hoist_consts()[0]).steps if isinstance(s, RepeatStep)]
    assert loop.counter.count == length // 2
    (x, y), rows = nx.jit(f)(a, b)
    expected = []
    for _ in range(length):
        expected.append(b[0])
        a, b = np.asarray(BODIES[body](nx.array(a), nx.array(b), nx.array(w))), a
    for got, right in ((x, a), (y, b), (rows, np.stack(expected))):
        np.testing.assert_allclose(np.asarray(got), right, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("index", [-7, 0, 1, 2, 9])
def test_an_index_out_of_range_is_moved_into_it(index):
    f = nx.jit(lambda i, x: nx.lax.switch(i, [lambda v: v, lambda v: v + 1, lambda v: v + 2], x))
    with nx.config.using(executor="cpu"):
        np.testing.assert_array_equal(np.asarray(f(nx.array(index), nx.array(X))), X + min(max(index, 0), 2))


def test_a_result_may_be_any_operand():
    def f(p, x, y):
        return nx.lax.cond(p, lambda a, b: (a, b, a.T), lambda a, b: (b, a, b.T), x, y)

    with nx.config.using(executor="cpu"):
        for p in (True, False):
            x, y = (X, X + 1) if p else (X + 1, X)
            for got, expected in zip(nx.jit(f)(nx.array(p), X, X + 1), (x, y, x.T), strict=True):
                np.testing.assert_array_equal(np.asarray(got), expected)


def test_effects_run_once_per_turn_in_order():
    seen = []

    def body(c, r):
        nx.debug.callback(lambda v: seen.append(("row", float(v))), r[0])
        c = nx.lax.cond(r[0] > 3, lambda v: (nx.debug.callback(lambda: seen.append("large")), v)[1], lambda v: v, c)
        return c + 1, None

    with nx.config.using(executor="cpu"):
        nx.block_until_ready(nx.jit(lambda x: nx.lax.scan(body, 0.0, x)[0])(nx.array(X)))
    assert seen == [("row", 0.0), ("row", 3.0), ("row", 6.0), "large", ("row", 9.0), "large"]


def test_an_error_of_a_callback_ends_the_loop_and_is_the_cause():
    calls = []

    def fails(v):
        calls.append(float(v))
        if v > 1:
            raise KeyError("not there")
        return v

    def f(x):
        shape = nx.ShapeDtypeStruct((), nx.float32)
        return nx.lax.fori_loop(0, 5, lambda i, c: io_callback(fails, shape, c) + 1, x)

    with nx.config.using(executor="cpu"):
        with pytest.raises(ExecutionError, match="KeyError: 'not there'") as caught:
            nx.block_until_ready(nx.jit(f)(nx.array(0.0)))
        assert isinstance(caught.value.__cause__, KeyError)
        assert calls == [0.0, 1.0, 2.0]
        # The next call is as good as the first.
        assert float(nx.jit(lambda x: x + 1)(nx.array(1.0))) == 2.0
