"""Where an elementwise vertex computes what: boxes of the result over tiles, and what each reads of its operands.

Results lie where the largest operand lies, if it is spread well; else in order over the tiles, or in boxes where some
operand is strided. An operand that repeats along a box is read once, not repeated by the exchange. Knows no op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np

from nxjax.kernels.ipu.expression import CodeletNode, Kind, codelet
from nxjax.lower.ipu.builder import Builder, collapsed
from nxjax.lower.ipu.mapping import grid, linear, parts
from nxjax.lower.ipu.program import (
    GRAIN,
    Boxes,
    FieldConnection,
    Group,
    MappedRegion,
    NDArray,
    Shape,
    Variable,
    VariableView,
    row_major,
)

# A mapping is taken over if no tile has more than so many times its share of it,
UNEVEN: Final = 2.0
# and if it does not shred a tile's part into more boxes than this.
MOST_BOXES: Final = 4


def spread(
    b: Builder,
    leaves: Sequence[VariableView],
    nodes: Sequence[CodeletNode],
    outputs: Sequence[int],
    views: Sequence[VariableView],
) -> list[Group]:
    """Vertices that compute the views from the leaves, and places for the views' variables.

    Args:
        leaves: operands, all of one shape.
        nodes: the expression; operands are numbers, of leaves first and of nodes then.
        outputs: which numbers the views are.
        views: whole new variables without a place, of the leaves' shape.
    """
    shape = views[0].shape
    if not views[0].size:
        return []
    dims = collapsed(shape, [row_major(shape), *(x.strides for x in leaves)])
    size = dims.shape
    strides = dims.strides[1:]
    if not size:
        size, strides = (1,), tuple((1,) for _ in leaves)
    width = max(v.dtype.itemsize for v in views)
    boxes = _reused(b, leaves, size, strides) or _fresh(b, size, strides, width)
    rows = row_major(size)
    for view in views:
        view.variable.pieces = tuple(
            MappedRegion(Boxes(starts @ np.asarray(rows), part, rows), tiles) for starts, part, tiles in boxes
        )
    groups: list[Group] = []
    for starts, part, tiles in boxes:
        cut, kinds = _kinds(part, strides)
        edges: dict[str, FieldConnection] = {}
        for i, (x, steps, kind) in enumerate(zip(leaves, strides, kinds, strict=True)):
            offsets = x.offset + starts @ np.asarray(steps, np.int64)
            edges[f"x{i}"] = FieldConnection(x.variable, _operand(offsets, part, steps, kind, cut))
        for i, view in enumerate(views):
            edges[f"y{i}"] = FieldConnection(view.variable, Boxes(starts @ np.asarray(rows), part, rows))
        inner = math.prod(part[cut:])
        vertex, attributes = codelet([x.dtype for x in leaves], kinds, nodes, outputs, [v.dtype for v in views], inner)
        groups.append(Group(vertex, tiles, edges, attributes))
    return groups


Box = tuple[NDArray, Shape, NDArray]  # starts [n, ndim], sizes, tiles [n]


def _operand(offsets: NDArray, part: Shape, steps: Shape, kind: Kind, cut: int) -> Boxes:
    if kind == "one":
        return Boxes(offsets, (1,), (1,))
    if kind == "row":
        return Boxes(offsets, part[cut:], steps[cut:])
    if kind == "column":
        return Boxes(offsets, part[:cut], steps[:cut])
    return Boxes(offsets, part, steps)


def _kinds(part: Shape, strides: Sequence[Shape]) -> tuple[int, list[Kind]]:
    """Where to cut a box's dimensions in outer and inner ones, so that least is repeated, and each operand's kind."""
    best: tuple[int, int, list[Kind]] | None = None
    for cut in range(1, len(part)) if len(part) > 1 else (0,):
        outer, inner = math.prod(part[:cut]), math.prod(part[cut:])
        kinds: list[Kind] = []
        moved = 0
        for steps in strides:
            still = [s == 0 or n == 1 for n, s in zip(part, steps, strict=True)]
            if all(still):
                kinds.append("one")
                moved += 1
            elif all(still[:cut]):
                kinds.append("row")
                moved += inner
            elif all(still[cut:]):
                kinds.append("column")
                moved += outer
            else:
                kinds.append("full")
                moved += outer * inner
        if best is None or moved < best[0]:
            best = (moved, cut, kinds)
    assert best is not None
    return best[1], best[2]


def _fresh(b: Builder, size: Shape, strides: Sequence[Shape], width: int) -> list[Box]:
    """Boxes in order over the tiles: along the first dimensions, along the next where these are few."""
    if len(size) == 1:
        found: list[Box] = []
        for p in linear(size[0], width, b.tiles, b.first):
            found.append((p.boxes.offsets[:, None], p.boxes.sizes, p.tiles))
        return found
    tiles = max(1, min(b.tiles, math.prod(size) * width // GRAIN))
    splits: list[list[tuple[int, int, int]]] = []
    for d, n in enumerate(size):
        grain = max(1, min(n, 8 // width)) if d == len(size) - 1 else 1
        split = parts(n, max(1, tiles), grain)
        splits.append(split)
        tiles //= sum(many for *_, many in split)
    return [(starts, part, (b.first + place).astype(np.int32)) for starts, part, place in grid(size, splits)]


def _reused(b: Builder, leaves: Sequence[VariableView], size: Shape, strides: Sequence[Shape]) -> list[Box] | None:
    """The boxes of the largest operand that is a whole variable, if they are good ones for this work."""
    rows = row_major(size)
    whole = [x for x, steps in zip(leaves, strides, strict=True) if x.whole and steps == rows]
    total = math.prod(size)
    for x in sorted(whole, key=lambda v: -v.variable.nbytes):
        if not spread_well(b, x.variable):
            continue
        found: list[Box] = []
        for p in x.variable.pieces:
            box = _box_in(p.boxes, size)
            if box is None:
                break
            found.append((*box, p.tiles))
        else:
            if sum(len(t) * math.prod(part) for _, part, t in found) == total:
                return found
    return None


def spread_well(b: Builder, v: Variable) -> bool:
    """Whether work on ``v`` where it lies keeps the tiles evenly busy."""
    last = int(max(p.tiles.max() for p in v.pieces)) + 1
    load, boxes = np.zeros(last, np.int64), np.zeros(last, np.int64)
    for p in v.pieces:
        load += np.bincount(p.tiles, minlength=last) * p.boxes.count
        boxes += np.bincount(p.tiles, minlength=last)
    tiles = max(1, min(b.tiles, v.nbytes // GRAIN))
    if int(load.max()) > UNEVEN * -(-v.size // tiles) + GRAIN // v.dtype.itemsize:
        return False
    return int(boxes.max()) <= MOST_BOXES


def _box_in(boxes: Boxes, size: Shape) -> tuple[NDArray, Shape] | None:
    """Boxes of a contiguous variable as boxes of an array of ``size``: starts and sizes, or None if they are none.

    The order of a box's elements must be that of the array.
    """
    rows = row_major(size)
    starts = np.stack(np.unravel_index(boxes.offsets, size), axis=-1).astype(np.int64)
    room = [n - int(starts[:, d].max(initial=0)) for d, n in enumerate(size)]
    part = [1] * len(size)
    at = -1  # the dimension last filled: boxes go through dimensions in order
    for n, step in zip(boxes.sizes, boxes.strides, strict=True):
        if n == 1:
            continue
        # A run may go through several dimensions, from the innermost outwards.
        if step not in rows:
            return None
        d = max(i for i, r in enumerate(rows) if r == step)
        found: list[tuple[int, int]] = []
        left = n
        while left > 1:
            if d <= at or d < 0 or part[d] != 1:
                return None
            if left <= room[d]:
                found.append((d, left))
                left = 1
            elif room[d] == size[d] and left % size[d] == 0:
                found.append((d, size[d]))
                left //= size[d]
                d -= 1
            else:
                return None
        for where, many in found:
            part[where] = many
        at = max(where for where, _ in found)
    return starts, tuple(part)
