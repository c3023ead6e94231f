"""Loops of short kernels as one function: which they are, that they give the same bits, that carries are registers."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax
from nxjax.backends.cpu.engine import engine
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.turns import CountedLoop, EndingLoop
from nxjax.lower.cpu.lower import lower
from nxjax.lower.cpu.turns import loops

X = np.linspace(-1, 1, 24, dtype=np.float32)


def turned(f, *xs):
    program, _ = nx.make_jaxpr(f)(*xs).hoist_consts()
    return [found.code for found in loops(lower(program)).values()]


def smoothed(x):
    return lax.scan(lambda y, v: (0.9 * y + 0.1 * v,) * 2, jnp.zeros_like(x[0]), x)


def nested(x):
    inner = lambda i, c: lax.fori_loop(0, 5, lambda j, d: d * 0.9 + (i - j), c)
    return lax.fori_loop(0, 7, inner, x)


def until(x):
    step = lambda s: (s[0] * 0.999 + 0.25, s[1] + 1)
    return lax.while_loop(lambda s: s[1] < 25_000, step, (x, 0))


def pendulum(x):
    step = lambda s, v: ((s[0] + 0.1 * s[1], s[1] - 0.1 * jnp.sin(s[0]) + v), s[0])
    return lax.scan(step, (x[0], x[1]), x, reverse=True)


PROGRAMS = {
    "carry": smoothed,
    "matrix": lambda x: smoothed(x.reshape(4, 6)),
    "nested": nested,
    "until": until,
    "tuple": pendulum,
    "gradient": nx.grad(lambda x: (pendulum(x)[1] ** 2).sum()),
    "narrow": lambda x: smoothed(x.astype(jnp.bfloat16)),
    "integers": lambda x: lax.scan(lambda y, v: (y * 3 + v, y), 1, (x * 9).astype(jnp.int32)),
    "product": lambda x: lax.scan(lambda y, v: (y @ x.reshape(4, 6)[:, :4] * 0.1 + v, y), x[:4], x[:20].reshape(5, 4)),
    "table": lambda x: lax.fori_loop(0, 30, lambda i, t: t.at[(i * 7) % 24].add(t[i % 24]), x),
    "none": lambda x: lax.while_loop(lambda s: s[0] > 9, lambda s: (s[0], s[1] + 1), (x[0], x))[1],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_one_function_gives_what_the_steps_give(name):
    f = PROGRAMS[name]
    assert turned(f, X)
    with nx.config.using(executor="cpu"):
        ours = nx.jit(f)(X)
        with nx.config.using(guard="end"):  # step by step
            steps = nx.jit(f)(X)
    for y, want in zip(nx.tree.leaves(ours), nx.tree.leaves(steps), strict=True):
        np.testing.assert_array_equal(np.asarray(y), np.asarray(want))


def test_a_carry_is_a_register():
    (code,) = turned(smoothed, X)
    made = engine(isa.current())
    text = made._translated(made.texts([code]), str)
    inside = text[text.index(f"@{code.symbol}") :]
    inside = inside[: inside.index("\n}")]
    assert "alloca" not in inside
    assert "call void" not in inside
    assert "phi i32" in inside or "phi float" in inside


def test_both_kinds_of_loops():
    (found,) = turned(nested, X)
    assert isinstance(found.loop, CountedLoop)
    assert CountedLoop in map(type, found.loop.body)
    (found,) = turned(until, X[0])
    assert isinstance(found.loop, EndingLoop)
    assert 1 < found.loop.most < 25_000, "the machine asks for signals in between"


def test_others_are_left_to_the_machine():
    square = np.ones((64, 64), np.float32)
    assert not turned(lambda x: lax.scan(lambda y, v: (y + v, y), jnp.zeros(100_000), jnp.ones((3, 100_000))), X)
    assert not turned(lambda x: lax.fori_loop(0, 9, lambda i, y: y @ x, x), square)
    assert not turned(lambda x: lax.fori_loop(0, 10**8, lambda i, y: y * 0.5, x), X), "nobody could end it"
    assert not turned(lambda x: lax.scan(lambda y, v: (nx.pure_callback(np.sin, v, v), y), x[0], x)[1], X)


def test_a_loop_inside_of_a_longer_one():
    def f(x):
        inner = lambda y: lax.scan(lambda c, v: (0.5 * c + v, c), y[0, 0], y[0])[1]
        return lax.scan(lambda y, _: (jnp.tanh(y @ x), inner(y)), x, None, length=4)

    x = np.random.default_rng(0).normal(size=(64, 64)).astype(np.float32) / 8
    (code,) = turned(f, x)
    assert isinstance(code.loop, CountedLoop)
    assert code.loop.count == 64
    with nx.config.using(executor="cpu"):
        _, ours = nx.jit(f)(x)
        with nx.config.using(guard="end"):
            _, steps = nx.jit(f)(x)
    np.testing.assert_array_equal(np.asarray(ours), np.asarray(steps))
