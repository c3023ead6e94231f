"""Transforms that give a function's own values in another way. Knows nothing of programs."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

import nxjax
from nxjax import lax
from nxjax import numpy as jnp
from nxjax.testing.comparison import LawBroken
from nxjax.trace import dtypes
from nxjax.trace.text import parse_program, to_text

Function = Callable[..., Any]
# A rule of derivatives, or a policy: a Python function, which a text names and cannot hold.
_RULE: Final = re.compile(r"<\w+(?: of |>)")


def _of_floats(f: Function, xs: Sequence[Any]) -> tuple[Function, list[Any]]:
    """``f`` of its floating point arguments alone."""
    places = [i for i, x in enumerate(xs) if x.dtype in dtypes.FLOAT]

    def of(*floats: Any) -> Any:
        full = list(xs)
        for i, x in zip(places, floats, strict=True):
            full[i] = x
        return f(*full)

    return of, [xs[i] for i in places]


def _row(results: Any) -> Any:
    return nxjax.tree.map(lambda y: y[1], results)


def _batched(f: Function, *xs: Any) -> Any:
    """The second of two rows; in the first, all is turned round."""
    rows = [jnp.stack([jnp.flip(x), x]) for x in xs]
    return _row(nxjax.vmap(f)(*rows))


def _pushed(f: Function, *xs: Any) -> Any:
    of, floats = _of_floats(f, xs)
    return nxjax.jvp(of, tuple(floats), tuple(floats))[0]


def _linear(f: Function, *xs: Any) -> Any:
    of, floats = _of_floats(f, xs)
    return nxjax.linearize(of, *floats)[0]


def _pulled(f: Function, *xs: Any) -> Any:
    of, floats = _of_floats(f, xs)
    return nxjax.vjp(of, *floats)[0]


def _scanned(f: Function, *xs: Any) -> Any:
    return _row(lax.scan(lambda c, _: (c, f(*c)), tuple(xs), None, length=2)[1])


def _chosen(f: Function, *xs: Any) -> Any:
    other = lambda *ys: nxjax.tree.map(jnp.zeros_like, f(*ys))
    first = xs[0].reshape(-1)[:1]
    return lax.cond((first == first).all() | True, f, other, *xs)


def _printed(f: Function, *xs: Any) -> Any:
    program = nxjax.make_jaxpr(f)(*xs)
    text = to_text(program)
    if _RULE.search(text):
        return program(*xs)
    again = parse_program(text, program.values)
    if to_text(again) != text:
        raise LawBroken("print, parse, print gives another text")
    return again(*xs)


# Each gives a function's own values in another way.
THROUGH: Final[dict[str, Function]] = {
    "jit": lambda f, *xs: nxjax.jit(f)(*xs),
    "vmap": _batched,
    "jvp": _pushed,
    "linearize": _linear,
    "vjp": _pulled,
    "checkpoint": lambda f, *xs: nxjax.checkpoint(f)(*xs),
    "scan": _scanned,
    "cond": _chosen,
    "printing": _printed,
}
DIFFERENTIATING: Final = ("jvp", "linearize", "vjp")
