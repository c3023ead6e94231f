"""Programs that come again with other numbers."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.backend import CpuBackend

X = np.linspace(-1, 1, 7, dtype=np.float32)


def scan(s):
    return nx.lax.scan(lambda c, _: (c * s + 1.0, c), jnp.asarray(X), None, length=3)


def while_loop(s):
    return nx.lax.while_loop(lambda c: (c < 4 * s).all(), lambda c: c + s, jnp.asarray(X))


def cond(s):
    return nx.lax.cond(jnp.asarray(True), lambda x: x * s, lambda x: x - s, jnp.asarray(X))


def nested(s):
    body = lambda c, _: (nx.lax.cond(c.sum() > 1, lambda c: c - s, lambda c: c + 2 * s, c), None)
    return nx.lax.scan(body, jnp.asarray(X), None, length=4)[0]


def integer(s):
    return nx.lax.fori_loop(0, 5, lambda i, c: c + i * int(8 * s), jnp.arange(3))


@pytest.fixture
def compiled(monkeypatch):
    """The programs that are compiled."""
    found = []
    compile = CpuBackend.compile

    def counted(self, program, *args, **kwargs):
        found.append(program)
        return compile(self, program, *args, **kwargs)

    monkeypatch.setattr(CpuBackend, "compile", counted)
    with nx.config.using(executor="cpu"):
        yield found


@pytest.mark.parametrize("loop", [scan, while_loop, cond, nested, integer])
def test_a_number_that_changes_is_compiled_twice(loop, compiled):
    numbers = [0.25, 0.5, 0.75, 1.25, 1.5, 0.5]
    found = [loop(s) for s in numbers]
    assert len(compiled) == 2
    for s, ys in zip(numbers, found, strict=True):
        for got, expected in zip(nx.tree.leaves(ys), nx.tree.leaves(nx.jit(lambda s=s: loop(s))()), strict=True):
            assert got.dtype == expected.dtype
            np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))


def test_numbers_that_stay_are_not_arguments(compiled):
    for s in (0.1, 0.2, 0.3):
        nx.lax.scan(lambda c, _, s=s: (c * s + 7.5, None), jnp.asarray(X), None, length=2)
    assert len(compiled) == 2 and len(compiled[1].inputs) == len(compiled[0].inputs) + 1


def test_the_same_program_is_compiled_once(compiled):
    for _ in range(3):
        nx.lax.scan(lambda c, _: (c * 0.875 - 0.375, None), jnp.asarray(X), None, length=5)
    assert len(compiled) == 1


def test_an_argument_is_no_number_of_another_program(compiled):
    x, z = jnp.asarray(X), jnp.float32(0.375)
    for s, t in ((z, 0.625), (0.375, 0.625), (0.125, z), (0.5, 0.25), (z, z)):
        y = nx.lax.scan(lambda c, _, s=s, t=t: (c * s - t, None), x, None, length=2)[0]
        np.testing.assert_allclose(
            np.asarray(y), (X * np.float32(s) - np.float32(t)) * np.float32(s) - np.float32(t), 1e-5
        )
