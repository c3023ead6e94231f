"""Where tensors lie: linear and grid mappings over tiles. Knows shapes and tiles, no op."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nxjax.lower.ipu.program import GRAIN, Boxes, MappedRegion, NDArray, Shape, row_major


def parts(size: int, count: int, grain: int = 1) -> list[tuple[int, int, int]]:
    """``size`` in at most ``count`` parts, as equal as grains allow: (first start, length, how many of it) per length.

    Parts are multiples of ``grain`` but for the last one.

    >>> parts(10, 3)
    [(0, 4, 1), (4, 3, 2)]
    >>> parts(10, 3, 4)
    [(0, 4, 2), (8, 2, 1)]
    """
    if size == 0:
        return []
    grains = -(-size // grain)
    n = min(count, grains)
    each, more = divmod(grains, n)
    lengths = [(each + 1) * grain] * more + [each * grain] * (n - more)
    lengths[-1] -= grains * grain - size
    found: list[tuple[int, int, int]] = []
    start = 0
    for length in lengths:
        if found and found[-1][1] == length:
            first, same, many = found[-1]
            found[-1] = (first, same, many + 1)
        else:
            found.append((start, length, 1))
        start += length
    return found


def linear(size: int, itemsize: int, tiles: int, first: int = 0, grain: int = GRAIN) -> tuple[MappedRegion, ...]:
    """Elements in order over tiles ``first`` to ``first + tiles``, at least ``grain`` bytes on each.

    >>> [(p.boxes.sizes, p.tiles.tolist()) for p in linear(80, 4, 1472)]
    [((32,), [0, 1]), ((16,), [2])]
    """
    pieces: list[MappedRegion] = []
    tile = first
    for start, length, many in parts(size, tiles, max(1, grain // itemsize)):
        offsets = start + length * np.arange(many, dtype=np.int64)
        pieces.append(MappedRegion(Boxes(offsets, (length,), (1,)), np.arange(tile, tile + many, dtype=np.int32)))
        tile += many
    return tuple(pieces)


def single(shape: Shape, tile: int = 0) -> tuple[MappedRegion, ...]:
    """Everything on one tile."""
    boxes = Boxes(np.zeros(1, np.int64), (math.prod(shape),), (1,))
    return (MappedRegion(boxes, np.asarray([tile], np.int32)),)


def grid(shape: Shape, splits: Sequence[Sequence[tuple[int, int, int]]]) -> list[tuple[NDArray, Shape, NDArray]]:
    """The boxes that cutting each dimension into `parts` gives, equal ones together.

    Args:
        shape: of the tensor.
        splits: per dimension what `parts` gave.

    Returns:
        Per kind of box: starts int64 [n, ndim], sizes, and the box's place in the whole grid, row-major, int64 [n].

    >>> [(s.tolist(), z, at.tolist()) for s, z, at in grid((3, 4), [parts(3, 2), parts(4, 2)])]
    [([[0, 0], [0, 2]], (2, 2), [0, 1]), ([[2, 0], [2, 2]], (1, 2), [2, 3])]
    """
    counts = [sum(many for _, _, many in s) for s in splits]
    place = row_major(tuple(counts))
    found: list[tuple[NDArray, Shape, NDArray]] = []
    kinds: list[list[tuple[int, int, int, int]]] = []  # start, length, many, first place
    for s in splits:
        at = 0
        kinds.append([])
        for start, length, many in s:
            kinds[-1].append((start, length, many, at))
            at += many
    for choice in np.ndindex(*(len(k) for k in kinds)):
        chosen = [k[i] for k, i in zip(kinds, choice, strict=True)]
        each = [np.arange(many, dtype=np.int64) for _, _, many, _ in chosen]
        mesh = np.meshgrid(*each, indexing="ij") if each else []
        flat = [m.ravel() for m in mesh]
        n = len(flat[0]) if flat else 1
        starts = np.zeros((n, len(shape)), np.int64)
        at = np.zeros(n, np.int64)
        for d, (start, length, _, first) in enumerate(chosen):
            starts[:, d] = start + length * flat[d]
            at += (first + flat[d]) * place[d]
        found.append((starts, tuple(length for _, length, _, _ in chosen), at))
    return found
