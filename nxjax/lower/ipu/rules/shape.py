"""Ops that only say where elements are: strides of a `VariableView`, and copies where strides do not reach."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import VariableView
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation


def reshape(b: Builder, e: Equation, x: VariableView) -> VariableView:
    return b.reshaped(x, e.outputs[0].type.shape)


def broadcast_in_dim(b: Builder, e: Equation, x: VariableView) -> VariableView:
    shape = e.params["shape"]
    strides = [0] * len(shape)
    for d, to in enumerate(e.params["broadcast_dimensions"]):
        if x.shape[d] == shape[to]:
            strides[to] = x.strides[d]
    return VariableView(x.variable, x.offset, shape, tuple(strides))


def transpose(b: Builder, e: Equation, x: VariableView) -> VariableView:
    order = e.params["permutation"]
    return VariableView(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))


def rev(b: Builder, e: Equation, x: VariableView) -> VariableView:
    offset, strides = x.offset, list(x.strides)
    if x.size:
        for d in e.params["dimensions"]:
            offset += (x.shape[d] - 1) * strides[d]
            strides[d] = -strides[d]
    return VariableView(x.variable, offset, x.shape, tuple(strides))


def cut(x: VariableView, starts: Any, limits: Any, steps: Any = None) -> VariableView:
    """Elements ``starts`` to ``limits`` of each dimension, every ``steps``-th."""
    steps = steps or (1,) * len(x.shape)
    shape = tuple(max(0, -(-(stop - start) // step)) for start, stop, step in zip(starts, limits, steps, strict=True))
    offset = x.offset + sum(start * s for start, s in zip(starts, x.strides, strict=True))
    strides = tuple(s * step for s, step in zip(x.strides, steps, strict=True))
    return VariableView(x.variable, offset if x.size else 0, shape, strides)


def slice_(b: Builder, e: Equation, x: VariableView) -> VariableView:
    return cut(x, e.params["start_indices"], e.params["limit_indices"], e.params.get("strides"))


def split(b: Builder, e: Equation, x: VariableView) -> tuple[VariableView, ...]:
    axis, start = e.params["axis"], 0
    found: list[VariableView] = []
    for size in e.params["sizes"]:
        starts, limits = [0] * len(x.shape), list(x.shape)
        starts[axis], limits[axis] = start, start + size
        found.append(cut(x, starts, limits))
        start += size
    return tuple(found)


def concatenate(b: Builder, e: Equation, *xs: VariableView) -> VariableView:
    axis = e.params["dimension"]
    y = b.variable(e.outputs[0].type.shape, xs[0].dtype).view()
    pairs: list[tuple[VariableView, VariableView]] = []
    start = 0
    for x in xs:
        starts, limits = [0] * len(y.shape), list(y.shape)
        starts[axis], limits[axis] = start, start + x.shape[axis]
        pairs.append((x, cut(y, starts, limits)))
        start += x.shape[axis]
    b.copy(pairs)
    return y


def pad(b: Builder, e: Equation, x: VariableView, value: VariableView) -> VariableView:
    y = b.variable(e.outputs[0].type.shape, x.dtype).view()
    if not y.size:
        return y
    # Per dimension: the part of x that stays, where it begins in y, and the step.
    starts, limits, to, steps = [], [], [], []
    for size, whole, (low, _, interior) in zip(x.shape, y.shape, e.params["padding_config"], strict=True):
        step = interior + 1
        first = max(0, -(low // step)) if low < 0 else 0
        last = min(size, -(-(whole - low) // step)) if whole > low else 0
        starts.append(min(first, size))
        limits.append(max(min(first, size), last))
        to.append(low + first * step)
        steps.append(step)
    kept = cut(x, starts, limits)
    pairs: list[tuple[VariableView, VariableView]] = []
    if kept.size:
        ends = [t + (n - 1) * s + 1 for t, n, s in zip(to, kept.shape, steps, strict=True)]
        pairs.append((kept, cut(y, to, ends, steps)))
        _around(y, value, to, ends, steps, pairs)
    else:
        pairs.append((VariableView(value.variable, value.offset, y.shape, (0,) * len(y.shape)), y))
    b.copy(pairs)
    return y


def _around(
    y: VariableView, value: VariableView, to: Any, ends: Any, steps: Any, pairs: list[tuple[VariableView, VariableView]]
) -> None:
    """The fill of what lies before, after and between, dimension by dimension: slabs that do not overlap."""
    starts, limits, strides = [0] * len(y.shape), list(y.shape), [1] * len(y.shape)
    for d, (first, end, step) in enumerate(zip(to, ends, steps, strict=True)):
        slabs = [(0, first, 1), (end, y.shape[d], 1), *((first + k, end, step) for k in range(1, step))]
        for low, high, by in slabs:
            if low < high:
                part = cut(
                    y,
                    [*starts[:d], low, *starts[d + 1 :]],
                    [*limits[:d], high, *limits[d + 1 :]],
                    [*strides[:d], by, *strides[d + 1 :]],
                )
                pairs.append((VariableView(value.variable, value.offset, part.shape, (0,) * len(part.shape)), part))
        starts[d], limits[d], strides[d] = first, end, step


def same(b: Builder, e: Equation, *xs: VariableView) -> Any:
    return xs if e.op.multi else xs[0]


def iota(b: Builder, e: Equation) -> VariableView:
    shape, dimension = e.outputs[0].type.shape, e.params["dimension"]
    dtype = e.outputs[0].type.dtype
    line = b.constant(np.arange(shape[dimension]).astype(dtype))
    strides = [0] * len(shape)
    strides[dimension] = line.strides[0]
    return VariableView(line.variable, line.offset, shape, tuple(strides))


RULES: Final = {
    "reshape": Rule(reshape),
    "broadcast_in_dim": Rule(broadcast_in_dim),
    "transpose": Rule(transpose),
    "rev": Rule(rev),
    "slice": Rule(slice_),
    "split": Rule(split),
    "concatenate": Rule(concatenate),
    "pad": Rule(pad),
    "iota": Rule(iota),
    **dict.fromkeys(("copy", "stop_gradient", "name", "optimization_barrier", "sharding_constraint"), Rule(same)),
}
