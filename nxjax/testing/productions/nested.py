"""Rows of the table of productions that define inner functions: control flow, and transforms of functions.

Inner functions use values from around them, and may hold such rows themselves.
"""

from __future__ import annotations

from typing import Any, Final

import nxjax
from nxjax.testing.steps import GeneratedVar, Production, Unfit
from nxjax.testing.writer import MEDIUM, Draw

_LOOPED: Final = 1_200


def any_(draw: Draw, kinds: str = "fiucb", rank: int = 0, **more: Any) -> GeneratedVar:
    return draw.pick("f" if draw.smooth else kinds, rank, most=_LOOPED, **more)


def _scan(draw: Draw) -> str:
    carry = any_(draw)
    if draw.r.random() < 0.5:
        xs = any_(draw, rank=1, test=lambda v: 0 < v.shape[0] <= 40)
        body = draw.block((carry.value, xs.value[0]), (carry, "fiucb"))
        return f"lax.scan({body}, {carry}, {xs}{draw.r.choice(('', ', reverse=True', ', unroll=2'))})"
    body = draw.block((carry.value, nxjax.numpy.int32(0)), (carry, "fiucb"))
    return f"lax.scan({body}, {carry}, jnp.arange({draw.r.choice((0, 1, 2, 3, 5))}, dtype=jnp.int32))"


def _scan_two(draw: Draw) -> str:
    """Two carries, which may change places."""
    a, b = any_(draw), any_(draw)
    wanted = (b, a) if a.type == b.type and draw.r.random() < 0.5 else (a, b)
    inner = draw.block((a.value, b.value), wanted)
    return f"lax.scan(lambda c, _: ({inner}(*c), None), ({a}, {b}), None, length={draw.r.randint(1, 4)})[0]"


def _fori(draw: Draw) -> str:
    carry = any_(draw)
    body = draw.block((nxjax.numpy.int32(0), carry.value), (carry,))
    low, high = draw.r.choice(((0, 3), (1, 4), (0, 0), (2, 1), (0, 1), (-2, 1)))
    return f"lax.fori_loop({low}, {high}, {body}, {carry})"


def _while(draw: Draw) -> str:
    carry = any_(draw)
    body = draw.block((carry.value,), (carry,))
    turns = draw.r.randint(0, 4)
    stop = ""
    if carry.kind == "f" and draw.r.random() < 0.4:
        stop = " & (jnp.abs(c[1]).max(initial=0) < 50)"
    test = f"lambda c: (c[0] < {turns}){stop}"
    return f"lax.while_loop({test}, lambda c: (c[0] + 1, {body}(c[1])), (jnp.int32(0), {carry}))[1]"


def _predicate(draw: Draw) -> str:
    x = draw.pick("fiub", most=MEDIUM, huge=True)
    if x.kind == "b":
        return f"{x}.any()"
    return f"{x}.sum() > {draw.r.choice((0, 1))}" if draw.r.random() < 0.8 else f"{x}.size % 2 == 0"


def _cond(draw: Draw) -> str:
    test, x = _predicate(draw), any_(draw)
    y = any_(draw)
    wanted = (x,) if draw.r.random() < 0.5 else (x, y)
    branches = [draw.block((x.value, y.value), wanted) for _ in range(2)]
    return f"lax.cond({test}, {branches[0]}, {branches[1]}, {x}, {y})"


def _switch(draw: Draw) -> str:
    x = any_(draw)
    count = draw.r.randint(1, 4)
    branches = [draw.block((x.value,), (x,)) for _ in range(count)]
    if draw.r.random() < 0.5:
        index = f"{draw.pick('iu', most=MEDIUM)}.sum().astype(jnp.int32)"
    else:
        index = f"jnp.int32({draw.r.randint(-1, count)})"
    return f"lax.switch({index}, [{', '.join(branches)}], {x})"


def _map(draw: Draw) -> str:
    xs = any_(draw, rank=1, test=lambda v: 0 < v.shape[0] <= 20)
    body = draw.block((xs.value[0],), ("fiucb",))
    return f"lax.map({body}, {xs}{draw.r.choice(('', ', batch_size=2'))})"


def _associative(draw: Draw) -> str:
    x = draw.pick("fi" if not draw.smooth else "f", 1, most=_LOOPED, test=lambda v: v.size > 0)
    how = draw.r.choice(("lax.add", "lax.max", "lambda p, q: p + q - jnp.tanh(p) * 0", "lax.min"))
    return f"lax.associative_scan({how}, {x}, axis={draw.axis(x)}, reverse={draw.r.random() < 0.3})"


def _jit(draw: Draw) -> str:
    x, y = any_(draw), any_(draw)
    return f"jax.jit({draw.block((x.value, y.value), ('fiucb', 'fiucb'))})({x}, {y})"


def _vmap(draw: Draw) -> str:
    x = any_(draw, rank=1, test=lambda v: v.size > 0)
    axis = draw.axis(x)
    sample = nxjax.numpy.take(x.value, 0, axis=axis)
    body = draw.block((sample,), ("fiucb",))
    return f"jax.vmap({body}, in_axes={axis}, out_axes={draw.r.choice((0, 0, -1))})({x})"


def _vmap_two(draw: Draw) -> str:
    x = any_(draw, rank=1, test=lambda v: v.size > 0)
    y = any_(draw)
    axis = draw.axis(x)
    body = draw.block((nxjax.numpy.take(x.value, 0, axis=axis), y.value), ("fiucb",))
    return f"jax.vmap({body}, in_axes=({axis}, None))({x}, {y})"


def floats(draw: Draw) -> tuple[GeneratedVar, ...]:
    test = lambda v: not isinstance(v.value, (float, int))
    x = draw.pick("f", most=_LOOPED, test=test)
    if draw.r.random() < 0.5:
        return (x,)
    return (x, draw.pick("f", most=_LOOPED, test=test))


def function(draw: Draw, xs: tuple[GeneratedVar, ...]) -> str:
    """A function of floats, plain, compiled, or computed anew for its derivative."""
    inner = draw.block([x.value for x in xs], ("f",), smooth=True)
    return draw.r.choice(("{}", "{}", "{}", "jax.checkpoint({})", "jax.jit({})")).format(inner)


def scalar(function: str, xs: tuple[GeneratedVar, ...], draw: Draw) -> str:
    """A function to one number, whose cotangents differ from element to element."""
    names = ", ".join("ab"[: len(xs)])
    total = draw.r.choice(("jnp.sin({}).sum()", "{}.sum()", "({} ** 2).sum() * 0.5", "jnp.tanh({}).mean()"))
    return f"lambda {names}: {total.format(f'{function}({names})')}"


def tangents(xs: tuple[GeneratedVar, ...]) -> str:
    return ", ".join(f"jnp.cos({x})" for x in xs) + ("," if len(xs) == 1 else "")


def points(xs: tuple[GeneratedVar, ...]) -> str:
    return ", ".join(xs) + ("," if len(xs) == 1 else "")


def _grad(draw: Draw) -> str:
    xs = floats(draw)
    f = scalar(function(draw, xs), xs, draw)
    numbers = draw.r.choice((0, tuple(range(len(xs)))))
    return f"jax.grad({f}, {numbers})({', '.join(xs)})"


def _value_and_grad(draw: Draw) -> str:
    xs = floats(draw)
    return f"jax.value_and_grad({scalar(function(draw, xs), xs, draw)})({', '.join(xs)})"


def _jvp(draw: Draw) -> str:
    xs = floats(draw)
    return f"jax.jvp({function(draw, xs)}, ({points(xs)}), ({tangents(xs)}))"


def _vjp(draw: Draw) -> str:
    xs = floats(draw)
    f = function(draw, xs)
    return f"(lambda y, back: back(jnp.cos(y)))(*jax.vjp({f}, {', '.join(xs)}))"


def _linearize(draw: Draw) -> str:
    xs = floats(draw)
    f = function(draw, xs)
    return f"(lambda y, push: (y, push({tangents(xs)[: -1 if len(xs) == 1 else None]})))(*jax.linearize({f}, {', '.join(xs)}))"


def _second(draw: Draw) -> str:
    """A gradient of a gradient, or a product of the Hessian with a vector."""
    x = draw.pick("f", most=_LOOPED)
    f = scalar(function(draw, (x,)), (x,), draw)
    if draw.r.random() < 0.5:
        return f"jax.jvp(jax.grad({f}), ({x},), (jnp.cos({x}),))[1]"
    return f"jax.grad(lambda c: jnp.sin(jax.grad({f})(c)).sum())({x})"


def _jacobian(draw: Draw) -> str:
    x = draw.pick("f", most=12)
    inner = draw.block((x.value,), ("f",), smooth=True)
    y = draw.call(inner, x.value)
    if y.size > 200:
        raise Unfit
    return f"{draw.r.choice(('jax.jacfwd', 'jax.jacrev'))}({inner})({x})"


def _checkpoint(draw: Draw) -> str:
    xs = floats(draw)
    return f"jax.checkpoint({draw.block([x.value for x in xs], ('f',), smooth=True)})({', '.join(xs)})"


def _vmapped_grad(draw: Draw) -> str:
    """Gradients of every row: what batched training does."""
    x = draw.pick("f", 1, most=_LOOPED, test=lambda v: v.size > 0)
    axis = draw.axis(x)
    inner = draw.block((nxjax.numpy.take(x.value, 0, axis=axis),), ("f",), smooth=True)
    return f"jax.vmap(jax.grad(lambda a: jnp.sin({inner}(a)).sum()), in_axes={axis})({x})"


def _stop(draw: Draw) -> str:
    x = draw.pick("f")
    return f"{x} * 0.5 + lax.stop_gradient({x}) * 0.5"


NESTED: Final = (
    Production(_scan, "scan", smooth=True, weight=1.0, nested=True),
    Production(_scan_two, "scan", smooth=True, weight=0.6, nested=True),
    Production(_fori, "fori_loop", weight=0.6, nested=True),
    Production(_while, "while_loop", weight=0.6, nested=True),
    Production(_cond, "cond", smooth=True, weight=0.8, nested=True),
    Production(_switch, "switch", smooth=True, weight=0.5, nested=True),
    Production(_map, "map", smooth=True, weight=0.5, nested=True),
    Production(_jit, "jit", smooth=True, weight=0.5, nested=True),
    Production(_vmap, "vmap", smooth=True, weight=0.9, nested=True),
    Production(_vmap_two, "vmap", smooth=True, weight=0.4, nested=True),
    Production(_grad, "grad", smooth=True, weight=1.2, nested=True),
    Production(_value_and_grad, "grad", smooth=True, weight=0.6, nested=True),
    Production(_vmapped_grad, "vmap of grad", smooth=True, weight=0.5, nested=True),
    Production(_second, "second derivative", smooth=True, weight=0.6, nested=True),
    Production(_jvp, "jvp", smooth=True, weight=0.8, nested=True),
    Production(_vjp, "vjp", smooth=True, weight=0.8, nested=True),
    Production(_linearize, "linearize", smooth=True, weight=0.6, nested=True),
    Production(_jacobian, "jacobian", smooth=True, weight=0.3, nested=True),
    Production(_checkpoint, "checkpoint", smooth=True, weight=0.4, nested=True),
    Production(_associative, "associative_scan", smooth=True, weight=0.4),
    Production(_stop, "stop_gradient", smooth=True, weight=0.2),
)
