"""Reductions along any dimensions: partial ones where there are more tiles than results, then what is left of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.reduce import Reduce, ReduceKind
from nxjax.lower.ipu.builder import Builder, collapsed
from nxjax.lower.ipu.mapping import grid, parts
from nxjax.lower.ipu.program import Boxes, FieldConnection, Group, MappedRegion, Shape, VariableView, row_major
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.convert import convert_element_type
from nxjax.ops.reduce import REDUCTIONS
from nxjax.trace.program import Equation

# A vertex reduces at least so many elements to each of its results before the reduced dimensions are cut, too.
DEPTH: Final = 32


def reduce(b: Builder, e: Equation, x: VariableView) -> VariableView:
    axes: tuple[int, ...] = e.params["axes"]
    out = e.outputs[0].type
    op: Any = e.op
    kind: ReduceKind = op.combiner.name
    kept = [d for d in range(len(x.shape)) if d not in axes]
    if not out.size:
        return b.variable(out.shape, out.dtype).view()
    if not x.size:
        return b.constant(np.full(out.shape, op.identity(out.dtype)).astype(out.dtype))
    if all(x.shape[d] == 1 for d in axes):
        return VariableView(x.variable, x.offset, out.shape, tuple(x.strides[d] for d in kept))
    y = reduced(b, x, axes, kind)
    if y.dtype != out.dtype:
        y = b.inline(lambda v: convert_element_type(v, dtype=out.dtype), [y])
    return b.reshaped(y, out.shape)


def partial_dtype(kind: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What sums and products are kept in: halves in float."""
    return np.dtype(np.float32) if dtype == np.float16 and kind in ("add", "mul") else dtype


def reduced(b: Builder, x: VariableView, axes: Sequence[int], kind: ReduceKind) -> VariableView:
    """``x`` reduced along ``axes``, as a new variable of the kept dimensions that are not 1."""
    flags = tuple(0 if d in axes else 1 for d in range(len(x.shape)))
    # A dimension is joined with the next one if both are kept or both reduced: the second "view" tells them apart.
    marks = tuple(s if keep else 0 for keep, s in zip(flags, row_major(x.shape), strict=True))
    dims = collapsed(x.shape, [x.strides, marks])
    strides = dims.strides[0]
    kept = [d for d, mark in enumerate(dims.strides[1]) if mark]
    gone = [d for d, mark in enumerate(dims.strides[1]) if not mark]
    out_dtype = partial_dtype(kind, x.dtype)
    results, depth = math.prod(dims.shape[d] for d in kept), math.prod(dims.shape[d] for d in gone)
    stages = min(b.tiles // min(results, b.tiles), depth // DEPTH)
    splits = [parts(n, 1) for n in dims.shape]
    left = b.tiles
    for d in kept:
        splits[d] = parts(dims.shape[d], max(1, left))
        left //= sum(many for *_, many in splits[d])
    cuts = 1
    for d in gone:
        splits[d] = parts(dims.shape[d], max(1, stages // cuts))
        cuts *= sum(many for *_, many in splits[d])
    # Partial results: [cut of each reduced dimension..., kept dimensions...].
    counts = tuple(sum(many for *_, many in splits[d]) for d in gone)
    shape = (*counts, *(dims.shape[d] for d in kept))
    y = b.variable(shape, out_dtype, ())
    ys = row_major(shape)
    groups: list[Group] = []
    pieces: list[MappedRegion] = []
    for starts, sizes, place in grid(dims.shape, splits):
        order, outer, inner = _arranged(sizes, kept, gone, strides)
        offsets = x.offset + starts @ np.asarray(strides, np.int64)
        source = Boxes(offsets, tuple(sizes[d] for d in order), tuple(strides[d] for d in order))
        at = _cut_numbers(splits, gone, starts)
        to = sum((n * ys[i] for i, n in enumerate(at)), np.zeros(len(starts), np.int64))
        to = to + starts[:, kept] @ np.asarray(ys[len(gone) :], np.int64).reshape(-1)
        ranked = [d for d in order if d in kept]
        target = Boxes(to, tuple(sizes[d] for d in ranked), tuple(ys[len(gone) + kept.index(d)] for d in ranked))
        tiles = (b.first + place).astype(np.int32)
        pieces.append(MappedRegion(target, tiles))
        edges = {"x": FieldConnection(x.variable, source), "y": FieldConnection(y, target)}
        groups.append(Group(Reduce(kind, x.dtype.name, out_dtype.name), tiles, edges, {"outer": outer, "inner": inner}))
    y.pieces = tuple(pieces)
    b.execute(groups)
    found = y.view()
    if cuts > 1:
        found = reduced(b, found, tuple(range(len(gone))), kind)
    elif gone:
        found = VariableView(y, 0, shape[len(gone) :], ys[len(gone) :])
    return found


def _arranged(sizes: Shape, kept: Sequence[int], gone: Sequence[int], strides: Shape) -> tuple[list[int], int, int]:
    """The order in which a vertex reads its box as [outer kept, reduced, inner kept], and sizes of the kept parts.

    Kept dimensions that are nearer in memory than all reduced ones come last, so that rows are read as they lie.
    """
    reach = min((abs(strides[d]) for d in gone if sizes[d] > 1), default=0)
    inner = [d for d in kept if sizes[d] > 1 and abs(strides[d]) < reach and strides[d]]
    outer = [d for d in kept if d not in inner]
    order = [*outer, *gone, *inner]
    return order, math.prod(sizes[d] for d in outer), math.prod(sizes[d] for d in inner)


def _cut_numbers(splits: Sequence[Sequence[tuple[int, int, int]]], gone: Sequence[int], starts: Any) -> list[Any]:
    """Per reduced dimension, the number of the cut that a box is in."""
    found: list[Any] = []
    for d in gone:
        begins = np.concatenate([start + length * np.arange(many) for start, length, many in splits[d]])
        found.append(np.searchsorted(begins, starts[:, d], side="right") - 1)
    return found


RULES: Final = dict.fromkeys((op.name for op in REDUCTIONS), Rule(reduce))
