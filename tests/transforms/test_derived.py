"""What is kept with a program under a key is what would be made anew: no key leaves out what its program depends on.

Each body is traced once, and then asked for by every choice of what is batched, differentiated and known.
"""

import itertools
import re

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax import numpy as jnp
from nxjax.trace.program import Program
from nxjax.trace.text import canonical_text

N = 3


@pytest.fixture
def remade(monkeypatch):
    """`Program.derive` that makes everything twice; the number of things that were found and made again."""
    counted = []
    busy = []

    def derive(self, key, make):
        found = kept(self, key, lambda: busy.append(1) or make())
        if busy:
            busy.clear()
            return found
        fresh = make()
        busy.clear()
        assert written(found) == written(fresh), key
        counted.append(key)
        return found

    kept = Program.derive
    monkeypatch.setattr(Program, "derive", derive)
    return counted


def written(x):
    if isinstance(x, Program):
        return re.sub(r" [0-9a-f]+>", ">", canonical_text(x))  # objects show their addresses
    return tuple(map(written, x)) if isinstance(x, (tuple, list)) else x if isinstance(x, (bool, int, str)) else None


def loop(x, y, z):
    return lax.while_loop(lambda c: c[0] < jnp.abs(y) + 2, lambda c: (c[0] + 1, c[1] * z, c[2]), (0 * x, x, y))


def counted_loop(x, y, z):
    return lax.scan(lambda c, i: ((c[0] * z, c[1] + y, c[0] * i), c[1] * i), (x, y, z), jnp.arange(3.0))


def bounded(x, y, z):
    return lax.fori_loop(0, jnp.int32(3), lambda i, c: c * y + z, x)


def choice(x, y, z):
    return lax.cond(z > 0.5, lambda a, b: (a * b, b, a), lambda a, b: (jnp.sin(b), a, 0 * b), x, y)


def several(x, y, z):
    index = (2 * jnp.abs(z)).astype(int)
    return lax.switch(index, [lambda a, b: (a * b, 1.0), lambda a, b: (b, a), lambda a, b: (3 * a, b * b)], x, y)


def repeated(x, y, z):
    return nx.checkpoint(lambda a, b: jnp.sin(a * b) * z)(x, y)


@nx.custom_jvp
def _by_rule(x, y, z):
    return x * y + jnp.sin(z)


_by_rule.defjvps(lambda t, o, x, y, z: t * y, lambda t, o, x, y, z: t * x, lambda t, o, x, y, z: t * jnp.cos(z))


@nx.custom_vjp
def _backwards(x, y, z):
    return x * y * z


_backwards.defvjp(lambda x, y, z: (x * y * z, (x, y, z)), lambda r, t: (t * r[1] * r[2], t * r[0] * r[2], None))


def by_rule(x, y, z):
    return _by_rule(x, y, z) * x


def backwards(x, y, z):
    return _backwards(x, y, z) * x


FORWARDS = [loop, counted_loop, bounded, choice, several, repeated, by_rule]
ALL = [counted_loop, choice, several, repeated, by_rule, backwards]


def subsets():
    return [s for n in (1, 2, 3) for s in itertools.combinations(range(N), n)]


def batches(f, size, base):
    """Results of all ways to batch ``f``, by what is batched."""
    for which in subsets():
        xs = [jnp.asarray(np.linspace(0.2, 1.3, size) * v) if i in which else v for i, v in enumerate(base)]
        axes = tuple(0 if i in which else None for i in range(N))
        yield which, nx.vmap(f, axes)(*xs)


def slopes(f, base, backwards):
    for which in subsets():
        part = lambda *vs, w=which: f(*(vs[w.index(i)] if i in w else base[i] for i in range(N)))
        at = [base[i] for i in which]
        if not backwards:
            yield which, nx.jvp(part, at, [jnp.float32(1)] * len(at))
            continue
        ys, pull = nx.vjp(part, *at)
        yield which, pull(nx.tree.map(jnp.ones_like, ys))


def equal(found, wanted):
    for (which, x), (_, y) in zip(found, wanted, strict=True):
        for a, b in zip(nx.tree.leaves(x), nx.tree.leaves(y), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6, err_msg=str(which))


BASE = [jnp.float32(v) for v in (0.7, 1.1, 0.9)]


@pytest.mark.parametrize("function", sorted({*FORWARDS, *ALL}, key=lambda f: f.__name__), ids=lambda f: f.__name__)
def test_one_trace_serves_every_batch_and_slope(function, remade):
    once = nx.jit(function)  # one trace; without, each call has its own
    equal(batches(once, 2, BASE), batches(function, 2, BASE))
    equal(batches(once, 3, BASE), batches(function, 3, BASE))
    for way in [*([False] if function in FORWARDS else []), *([True] if function in ALL else [])]:
        equal(slopes(once, BASE, way), slopes(function, BASE, way))
        mapped = lambda f: (
            lambda *xs: nx.tree.map(jnp.sum, nx.vmap(f, (0, None, 0))(xs[0] * jnp.ones(2), xs[1], xs[2] * jnp.ones(2)))
        )
        equal(slopes(mapped(once), BASE, way), slopes(mapped(function), BASE, way))
    assert remade
