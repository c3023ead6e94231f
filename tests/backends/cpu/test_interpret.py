"""Step by step from Python gives the bits of the machine that walks tapes, and tells of every step."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import TapeInterpreter, empty
from nxjax.kernels.cpu import isa
from nxjax.lower.cpu.lower import lower

X = np.linspace(-2, 2, 24, dtype=np.float32).reshape(4, 6)


def loop(x):
    total, ys = nx.lax.scan(lambda c, v: (c + jnp.sin(v), c * v), x[0], x)
    n = nx.lax.while_loop(lambda v: v.sum() < 50, lambda v: v * 2 + 1, abs(total))
    return ys, nx.lax.cond(n[0] > 3, lambda a: a + 1, lambda a: a - 1, n), nx.pure_callback(np.sort, total, total)


PROGRAMS = {
    "chain": lambda x: [jnp.tanh(x) @ x.T, x, jnp.sort(x), jnp.float32(3)],
    "loops": loop,
    "nothing": lambda x: x[:0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_gives_the_bits_of_the_compiled_program(name):
    f = PROGRAMS[name]
    program, consts = nx.make_jaxpr(f)(X).hoist_consts()
    seen = []
    run = TapeInterpreter(
        lower(program), engine(isa.current()), lambda step, start, seconds: seen.append((step, seconds))
    )
    got = run([X, *consts])
    with nx.config.using(executor="cpu", compile_first=True):
        wanted = nx.tree.leaves(nx.jit(f)(X))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, np.asarray(b))
    assert all(seconds >= 0 for _, seconds in seen)
    assert seen or name == "nothing"


def test_memory_begins_at_a_cache_line():
    for n in (1, 63, 1000):
        room = empty(n)
        assert room.nbytes == n
        assert room.ctypes.data % 64 == 0
