"""Where a variable's elements lie, as runs; boxes of elements cut at the borders of tiles; unions of what is wanted.

Everything is arrays of runs, never a Python loop over elements or vertices. Knows variables, no steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import final

import numpy as np

from nxjax.lower.ipu.program import NDArray, Shape, Variable, VariableView


@final
@dataclass(frozen=True, eq=False)
class Runs:
    """A variable's elements in ascending order, in runs that lie on one tile, one behind the other.

    Attributes:
        starts: first element of each run, ascending, int64 [k].
        lengths: elements of each run.
        tiles: where it lies, int64.
        addresses: where its first element lies in the tile's share of the variable, in elements.
    """

    starts: NDArray
    lengths: NDArray
    tiles: NDArray
    addresses: NDArray


@final
@dataclass(frozen=True, eq=False)
class RunCut:
    """Ranges of elements cut where runs end.

    Attributes:
        range: which range each part is of, ascending.
        starts, stops: elements of each part.
        run: the run that holds it.
    """

    range: NDArray
    starts: NDArray
    stops: NDArray
    run: NDArray

    @property
    def lengths(self) -> NDArray:
        return self.stops - self.starts


def ordered(sizes: Shape, strides: Shape) -> tuple[NDArray, int]:
    """A box in its own order: where each run begins, relative to the box, and the length that all runs have.

    >>> starts, length = ordered((2, 3), (10, 1))
    >>> starts.tolist(), length
    ([0, 10], 3)
    """
    kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1]
    length = 1
    while kept and kept[-1][1] == length and kept[-1][0] > 0:
        length *= kept.pop()[0]
    starts = np.zeros(1, np.int64)
    for size, stride in kept:
        starts = (starts[:, None] + np.arange(size, dtype=np.int64) * stride).ravel()
    return starts, length


@lru_cache(4096)
def distinct(sizes: Shape, strides: Shape) -> tuple[NDArray, NDArray]:
    """A box as a set: its distinct elements in ascending runs, relative to the box: starts and lengths.

    >>> [x.tolist() for x in distinct((4, 2, 3), (0, 3, 1))]
    [[0], [6]]
    """
    if math.prod(sizes) == 0:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    kept = [(n, s) for n, s in zip(sizes, strides, strict=True) if n != 1 and s]
    first = sum((n - 1) * s for n, s in kept if s < 0)
    kept = sorted(((n, abs(s)) for n, s in kept), key=lambda d: -d[1])
    span, apart = 1, True
    for size, stride in reversed(kept):
        apart = apart and stride >= span
        span += (size - 1) * stride
    if apart:
        starts, length = ordered(tuple(n for n, _ in kept), tuple(s for _, s in kept))
        return first + starts, np.full(len(starts), length, np.int64)
    # Windows that overlap: the elements themselves, once each.
    elements, length = ordered(tuple(n for n, _ in kept), tuple(s for _, s in kept))
    elements = np.unique((elements[:, None] + np.arange(length)).ravel())
    ends = np.flatnonzero(np.diff(elements) != 1)
    starts = elements[np.r_[0, ends + 1]]
    return first + starts, elements[np.r_[ends, len(elements) - 1]] + 1 - starts


def runs_of(v: Variable) -> Runs:
    """The runs of a variable."""
    counts = [p.boxes.count for p in v.pieces]
    tiles = np.concatenate([p.tiles for p in v.pieces] or [np.zeros(0, np.int32)]).astype(np.int64)
    sizes = np.repeat(counts, [len(p.tiles) for p in v.pieces]).astype(np.int64)
    # A tile holds its boxes in the order of the pieces.
    order = np.argsort(tiles, kind="stable")
    ends = np.cumsum(sizes[order])
    firsts = np.flatnonzero(np.diff(tiles[order], prepend=-1))
    before = np.repeat((ends - sizes[order])[firsts], np.diff(np.r_[firsts, len(order)]))
    bases = np.empty(len(order), np.int64)
    bases[order] = ends - sizes[order] - before
    starts, lengths, owners, addresses = [], [], [], []
    at = 0
    for p, count in zip(v.pieces, counts, strict=True):
        n = len(p.tiles)
        if count:
            relative, length = ordered(p.boxes.sizes, p.boxes.strides)
            many = len(relative)
            starts.append((p.boxes.offsets[:, None] + relative).ravel())
            lengths.append(np.full(n * many, length, np.int64))
            owners.append(np.repeat(p.tiles.astype(np.int64), many))
            addresses.append((bases[at : at + n, None] + np.arange(many, dtype=np.int64) * length).ravel())
        at += n
    if not starts:
        nothing = np.zeros(0, np.int64)
        return Runs(nothing, nothing, nothing, nothing)
    order = np.argsort(np.concatenate(starts), kind="stable")
    s, n, t, a = (np.concatenate(x)[order] for x in (starts, lengths, owners, addresses))
    heads = np.flatnonzero(np.r_[True, (t[1:] != t[:-1]) | (a[1:] != a[:-1] + n[:-1])])
    return Runs(s[heads], np.add.reduceat(n, heads), t[heads], a[heads])


def cut(runs: Runs, begins: NDArray, ends: NDArray) -> RunCut:
    """Ranges of elements ``begins`` to ``ends`` (none empty), cut at the borders of ``runs``."""
    if len(runs.starts) == 1:
        return RunCut(np.arange(len(begins)), begins, ends, np.zeros(len(begins), np.int64))
    first = np.searchsorted(runs.starts, begins, "right") - 1
    counts = np.searchsorted(runs.starts, ends, "left") - first
    which = np.repeat(np.arange(len(begins)), counts)
    run = np.arange(len(which)) + np.repeat(first - (np.cumsum(counts) - counts), counts)
    return RunCut(
        which,
        np.maximum(begins[which], runs.starts[run]),
        np.minimum(ends[which], runs.starts[run] + runs.lengths[run]),
        run,
    )


def covered(groups: NDArray, starts: NDArray, stops: NDArray, size: int, count: int) -> NDArray:
    """Elements below ``size`` that the ranges of each group cover, each element once: int64 [count].

    Args:
        groups: of each range, 0 to ``count``.
        starts, stops: of each range.
        size: above all stops.
        count: of groups.

    >>> covered(np.array([0, 0, 1]), np.array([0, 2, 5]), np.array([4, 6, 6]), 8, 2).tolist()
    [6, 1]
    """
    found = np.zeros(count, np.int64)
    if not len(starts):
        return found
    # Ranges merge where, both sorted, a start lies below the end before it: starts and ends may be sorted apart.
    base = groups.astype(np.int64) * (size + 1)
    # Ranges come in ascending stretches, which a merging sort makes use of.
    s, e = np.sort(base + starts, kind="stable"), np.sort(base + stops, kind="stable")
    many = np.bincount(groups, minlength=count)
    some = np.flatnonzero(many)
    firsts = (np.cumsum(many) - many)[some]
    gaps = np.maximum(s[1:] - e[:-1], 0)
    gaps = np.r_[gaps, 0]
    lasts = firsts + many[some] - 1
    gaps[lasts] = 0
    found[some] = e[lasts] - s[firsts] - np.add.reduceat(gaps, firsts)
    return found


def view_ranges(view: VariableView) -> tuple[NDArray, NDArray]:
    """Elements of a view in its own order, as ranges: begins and ends."""
    if not view.size:
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    starts, length = ordered(view.shape, view.strides)
    starts = view.offset + starts
    return starts, starts + length


def shares(v: Variable, runs: Runs, tiles: int) -> NDArray:
    """Bytes of a variable on each tile, int64 [tiles]; a share begins at a multiple of 8 bytes."""
    elements = np.zeros(tiles, np.int64)
    np.add.at(elements, runs.tiles, runs.lengths)
    return -(-elements * v.dtype.itemsize // 8) * 8
