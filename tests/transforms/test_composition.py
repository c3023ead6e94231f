"""Every composition of three transforms, over functions with every kind of control flow, against JAX."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.faces import close, ours, peer

X = np.array([0.3, 0.7, 0.45], np.float32)
SCALES = np.array([1.0, 0.5], np.float32)
NAMES = ("jit", "grad", "vmap", "checkpoint", "jvp")
TRIPLES = tuple(itertools.product(NAMES, repeat=3))


def elementwise(m: Any, x: Any) -> Any:
    return m.np.sin(x) * x


def softmax_like(m: Any, x: Any) -> Any:
    y = m.np.exp(x)
    return y / y.sum()


def product(m: Any, x: Any) -> Any:
    return m.np.tanh(m.np.dot(m.np.outer(x, x), x))


def gathers(m: Any, x: Any) -> Any:
    return m.np.concatenate([x[::-1][:2], x[1:2] * x[0]]) * x


def scan_carry(m: Any, x: Any) -> Any:
    def step(c: Any, s: Any) -> Any:
        c = m.np.sin(c) * x + s
        return c, None

    return m.lax.scan(step, x, m.np.asarray(SCALES))[0]


def scan_ys(m: Any, x: Any) -> Any:
    return m.lax.scan(lambda c, s: (c * m.np.cos(s), c * s), 1.0 * x[0], x, reverse=True)[1]


def scan_in_scan(m: Any, x: Any) -> Any:
    def inner(c: Any, _: Any) -> Any:
        return c * m.np.cos(c), None

    def outer(c: Any, s: Any) -> Any:
        return m.lax.scan(inner, c * s, None, length=2)[0], None

    return m.lax.scan(outer, x, x[:2])[0]


def fori(m: Any, x: Any) -> Any:
    return m.lax.fori_loop(0, 3, lambda i, c: m.np.sin(c) * (i + 1) * x, x)


def cond(m: Any, x: Any) -> Any:
    return m.lax.cond(x.sum() > 1.0, lambda y: m.np.sin(y) * x, lambda y: y * y * y, x)


def switch(m: Any, x: Any) -> Any:
    index = (x[1] * 4.0).astype(int)
    return m.lax.switch(index, [m.np.sin, lambda y: y * y, lambda y: m.np.exp(y) * x], x)


def cond_in_scan(m: Any, x: Any) -> Any:
    def step(c: Any, s: Any) -> Any:
        c = m.lax.cond(c.sum() > 1.2, lambda v: m.np.sin(v) * s, lambda v: v * m.np.exp(s), c)
        return c, c.sum()

    c, ys = m.lax.scan(step, x, x)
    return c * ys


def custom_forward(m: Any, x: Any) -> Any:
    @m.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return m.np.sin(x) * y

    f.defjvps(lambda t, out, x, y: t * m.np.cos(x) * y, lambda t, out, x, y: t * m.np.sin(x))
    return f(x, x * x)


def custom_reverse(m: Any, x: Any) -> Any:
    @m.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return m.np.sin(x) * y

    f.defvjp(lambda x, y: (f(x, y), (x, y)), lambda r, ct: (ct * m.np.cos(r[0]) * r[1] * 2.0, ct * m.np.sin(r[0])))
    return f(x, x * x)


def custom_pushed(m: Any, x: Any) -> Any:
    """The rule pushes values and tangents through one loop."""

    def plain(y: Any) -> Any:
        return m.lax.scan(lambda c, _: (m.np.sin(c) * m.checkpoint(m.np.cos)(y), None), y, None, length=2)[0]

    f = m.custom_jvp(plain)
    f.defjvp(lambda xs, ts: m.jvp(plain, xs, ts))
    return f(x)


def kept_pull(m: Any, x: Any) -> Any:
    """What the rule keeps is a function, with traced arrays in it."""
    f = m.custom_vjp(lambda y: m.np.sin(y) * y)
    f.defvjp(lambda y: m.vjp(lambda z: m.np.sin(z) * z, y), lambda pull, ct: pull(ct))
    return m.lax.scan(lambda c, _: (f(c) * x, None), x, None, length=2)[0]


def handed_out(m: Any, x: Any) -> Any:
    y, pull = m.jit(lambda v: m.vjp(lambda w: m.np.sin(w) * x, v))(x)
    pulls = m.vmap(lambda v: m.vjp(m.np.sin, v)[1])(x)
    push = m.jit(lambda v: m.linearize(m.np.sin, v)[1])(x)
    return pull(x)[0] + push(y) + m.vmap(lambda p, ct: p(ct)[0])(pulls, x)


def inner_jit(m: Any, x: Any) -> Any:
    return m.jit(lambda y: m.np.sin(y) * x)(x * x)


def inner_grad(m: Any, x: Any) -> Any:
    return m.grad(lambda y: (m.np.sin(y) * x * y).sum())(x * 2.0)


def inner_vmap(m: Any, x: Any) -> Any:
    return m.vmap(lambda y: (m.np.sin(x) * y).sum())(x)


def mapped(m: Any, x: Any) -> Any:
    return m.lax.map(lambda y: (x * m.np.sin(y)).sum(), x)


def prefixes(m: Any, x: Any) -> Any:
    return m.np.sin(m.lax.associative_scan(m.np.multiply, x))


def remat_in_scan(m: Any, x: Any) -> Any:
    body = m.checkpoint(lambda c: m.np.sin(m.np.exp(c) * x), policy=m.policies.dots_saveable)
    return m.lax.scan(lambda c, _: (body(c), None), x, None, length=2)[0]


FUNCTIONS = (
    elementwise, softmax_like, product, gathers, scan_carry, scan_ys, scan_in_scan, fori, cond, switch, cond_in_scan,
    custom_forward, custom_reverse, custom_pushed, kept_pull, handed_out, inner_jit, inner_grad, inner_vmap, mapped,
    prefixes, remat_in_scan,
)  # fmt: skip


def transformed(m: Any, name: str, f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A transform as a map from functions of a vector to functions of a vector."""
    if name == "jit":
        return m.jit(f)
    if name == "checkpoint":
        return m.checkpoint(f)
    if name == "grad":
        return m.grad(lambda x: f(x).sum())
    if name == "jvp":
        return lambda x: m.jvp(f, (x,), (m.np.ones_like(x),))[1]
    return lambda x: m.vmap(f)(x[None] * m.np.asarray(SCALES)[:, None]).sum(0)


def composed(m: Any, triple: tuple[str, ...], f: Callable[[Any], Any]) -> Callable[[Any], Any]:
    for name in reversed(triple):
        f = transformed(m, name, f)
    return f


@pytest.mark.parametrize("k", range(len(FUNCTIONS)), ids=[f.__name__ for f in FUNCTIONS])
def test_three_transforms(k: int) -> None:
    function, them = FUNCTIONS[k], peer()
    # Each triple meets four of the functions, each function a quarter or so of the triples.
    triples = [t for j, t in enumerate(TRIPLES) if (j + k) % 5 == 0]
    triples = [t for t in triples if not (function in (custom_reverse, kept_pull) and "jvp" in t)]
    # jit and checkpoint change no value, so JAX need not be asked for them; what it is asked, it compiles as one.
    plain = {t: tuple(name for name in t if name not in ("jit", "checkpoint")) for t in triples}
    distinct = sorted(set(plain.values()))
    answers = them.jit(lambda x: [composed(them, t, lambda x: function(them, x))(x) for t in distinct])(X)
    expected = dict(zip(distinct, answers, strict=True))
    for triple in triples:
        close(composed(ours, triple, lambda x: function(ours, x))(X), expected[plain[triple]], rtol=5e-4, atol=1e-4)
