"""Ops that move elements and change none: views of memory, or index changes in graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nxjax.kernels.cpu import convert
from nxjax.lower.cpu.builder import Builder, NoKernel, rule
from nxjax.lower.cpu.lazy import FIXED, Affine, Count, Lazy, indexed, shaped
from nxjax.lower.cpu.rules.elementwise import lowered
from nxjax.lower.cpu.view import View
from nxjax.trace.program import Equation


def _given(x: Lazy) -> Any:
    """Memory as a view, which rules of any kind take."""
    return x if x.view is None else x.view


def _checked(b: Builder, x: Any) -> Lazy:
    """``x`` in a graph; memory of any dtype has strides, but only what registers hold is computed."""
    if not isinstance(x, View | Lazy) and not convert.known(x.dtype):
        raise NoKernel("no code for its dtype")
    return b.lazy(x)


def _along(d: int, n: int, start: int = 0, step: int = 1) -> Affine:
    return FIXED if n == 1 and not start else (start, ((d, step),)) if n != 1 else (start, ())


@rule("broadcast_in_dim")
def broadcast_in_dim(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    x, shape = _checked(b, x), e.params["shape"]
    places = [
        FIXED if n == 1 else _along(d, shape[d]) for n, d in zip(x.shape, e.params["broadcast_dimensions"], strict=True)
    ]
    return (_given(lowered(b, indexed(x, shape, tuple(places)))),)


@rule("transpose")
def transpose(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    x, order = _checked(b, x), e.params["permutation"]
    places = [FIXED] * len(order)
    for d, k in enumerate(order):
        places[k] = _along(d, x.shape[k])
    return (_given(lowered(b, indexed(x, e.outputs[0].type.shape, tuple(places)))),)


@rule("slice")
def slice_(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    x, p, shape = _checked(b, x), e.params, e.outputs[0].type.shape
    steps = p.get("strides") or (1,) * len(shape)
    places = [_along(d, n, s, k) for d, (n, s, k) in enumerate(zip(shape, p["start_indices"], steps, strict=True))]
    return (_given(lowered(b, indexed(x, shape, tuple(places)))),)


@rule("rev")
def rev(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    x, dims = _checked(b, x), e.params["dimensions"]
    places = [_along(d, n, n - 1, -1) if d in dims and n > 1 else _along(d, n) for d, n in enumerate(x.shape)]
    return (_given(lowered(b, indexed(x, x.shape, tuple(places)))),)


@rule("reshape")
def reshape(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    return (_given(lowered(b, shaped(_checked(b, x), e.params["shape"]))),)


@rule("iota")
def iota(b: Builder, e: Equation) -> Sequence[Any]:
    p = e.params
    if not convert.known(p["dtype"]):
        raise NoKernel("no code for its dtype")
    return (lowered(b, Count(p["shape"], p["dtype"], p["dimension"])),)
