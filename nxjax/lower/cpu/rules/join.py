"""concatenate, split and pad: each piece is moved to its place; a split only looks."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.move import GROUP
from nxjax.lower.cpu.builder import Builder, View, rule
from nxjax.lower.cpu.layout import ordered
from nxjax.lower.cpu.lazy import Joined, Lazy, LazyIndex, Map, Shaped, pending
from nxjax.lower.cpu.rules.elementwise import lowered
from nxjax.lower.cpu.rules.slicing import move, part
from nxjax.trace.program import Equation
from nxjax.trace.types import ArrayType

MANY = 4096  # elements of a concatenation from which on its pieces are read where they lie
PIECES = 4  # if there are no more
CHEAP = 4  # additions that an element of a piece may take, which every reader makes again
FEW = 4096  # bytes below which a result is filled at once, not border by border


def _along(axis: int, at: int, ndim: int) -> list[int]:
    return [at if d == axis else 0 for d in range(ndim)]


def _whole(x: Any) -> Any:
    """What ``x`` is a part of, in another shape or order; None for memory."""
    while isinstance(x, LazyIndex | Shaped) and x.view is None:
        x = x.args[0]
    return x if isinstance(x, Lazy) and x.view is None else None


def _is_fused(b: Builder, xs: Sequence[Any], axis: int, type: ArrayType) -> bool:
    """Whether elementwise ops read the pieces where they lie: few, long ones, which are memory or cheap to make."""
    if not 1 < len(xs) <= PIECES or type.size < MANY or not convert.known(type.dtype):
        return False
    if axis == len(type.shape) - 1 and 2 * max(x.shape[axis] for x in xs) < type.shape[axis]:
        return False
    return all(b.is_memory(x) or _is_cheap(pending(x)) for x in xs)


def _is_cheap(found: Collection[Lazy]) -> bool:
    return all(isinstance(y, Map) for y in found) and sum(y.own for y in found) <= CHEAP


def _goes_by_planes(xs: Sequence[Any], axis: int, type: ArrayType) -> bool:
    """Whether few channels of small elements lie apart first: between others they would be stored one by one."""
    if axis != len(type.shape) - 1 or not len(xs) == type.shape[axis] <= GROUP:
        return False
    return all(x.shape[axis] for x in xs) and type.dtype.itemsize < 4 and type.size >= MANY


@rule("concatenate")
def concatenate(b: Builder, e: Equation, *xs: Any) -> Sequence[Any]:
    if len(xs) == 1:
        return (xs[0],)
    axis: int = e.params["dimension"]
    pieces = [x for x in xs if x.shape[axis]]
    for whole, count in Counter(map(_whole, pieces)).items():
        dear = isinstance(whole, Map) or (isinstance(whole, Joined) and not _is_cheap(pending(whole)))
        if dear and whole.refs > count > 1 and whole.size >= MANY:
            b.view(whole)  # parts of what somebody else wants, too
    by_planes = _goes_by_planes(xs, axis, e.outputs[0].type)
    if not by_planes and _is_fused(b, pieces, axis, e.outputs[0].type):
        return (lowered(b, Joined(tuple([b.lazy(x) for x in pieces]), e.outputs[0].type.shape, axis)),)
    out = b.new(e.outputs[0].type)
    if by_planes:
        planes = ordered(out.shape, out.dtype, [axis, *range(axis)])
        b.write_all(xs, [part(planes, _along(axis, i, len(out.shape)), x.shape) for i, x in enumerate(xs)])
        move(b, planes, out)
        return (out,)
    ends = itertools.accumulate(x.shape[axis] for x in xs)
    places = [_along(axis, end - x.shape[axis], len(out.shape)) for x, end in zip(xs, ends, strict=True)]
    b.write_all(xs, [part(out, place, x.shape) for x, place in zip(xs, places, strict=True)])
    return (out,)


@rule("split")
def split(b: Builder, e: Equation, x: Any) -> Sequence[Any]:
    axis: int = e.params["axis"]
    v = b.view(x)
    starts = [0, *itertools.accumulate(e.params["sizes"])]
    return [part(v, _along(axis, at, len(v.shape)), y.type.shape) for at, y in zip(starts[:-1], e.outputs, strict=True)]


def _kept(n: int, size: int, low: int, step: int) -> tuple[int, int]:
    """Which of ``n`` elements, ``step`` apart and the first at ``low``, lie inside ``size``: the first and how many."""
    first = max(0, -(low // step))
    return first, max(0, min(n, -((low - size) // step)) - first)


@rule("pad")
def pad(b: Builder, e: Equation, x: Any, value: Any) -> Sequence[Any]:
    config: Sequence[tuple[int, int, int]] = e.params["padding_config"]
    given, filler, out = e.inputs[0].type.shape, b.view(value), b.new(e.outputs[0].type)
    steps = [interior + 1 for _, _, interior in config]
    kept = [
        _kept(n, size, low, step) for n, size, (low, _, _), step in zip(given, out.shape, config, steps, strict=True)
    ]
    firsts, counts = [first for first, _ in kept], tuple(count for _, count in kept)
    places = [low + first * step for (low, _, _), first, step in zip(config, firsts, steps, strict=True)]

    def fill(target: View) -> None:
        move(b, replace(filler, shape=target.shape, strides=(0,) * len(target.shape)), target)

    spread = any(step > 1 and count > 1 for step, count in zip(steps, counts, strict=True))
    if 0 in counts or spread or out.size * out.dtype.itemsize <= FEW:
        if counts != out.shape:
            fill(out)
    else:
        # Along each dimension what lies before and after, no wider than the operand along those that are done.
        for d, (at, count, size) in enumerate(zip(places, counts, out.shape, strict=True)):
            starts, shape = [*places[:d], *(0 for _ in places[d:])], [*counts[:d], *out.shape[d:]]
            for begin, length in ((0, at), (at + count, size - at - count)):
                starts[d], shape[d] = begin, length
                fill(part(out, starts, tuple(shape)))
    if counts == given:
        b.write(x, part(out, places, counts, steps))
    elif 0 not in counts:
        move(b, part(b.view(x), firsts, counts), part(out, places, counts, steps))
    return (out,)
