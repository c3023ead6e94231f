"""Sorting along any dimension: rows on tiles; long rows in blocks, which are sorted and then merged in pairs.

Which blocks meet is Batcher's bitonic network ("Sorting networks and their applications", 1968), whose comparisons may
be of sorted blocks: one side keeps the lower half of both, the other the upper half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.sort import MergeBlocks, SortRows
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import Boxes, FieldConnection, Group, MappedRegion, VariableView
from nxjax.lower.ipu.rules.rows import by_rows, cycles, fits
from nxjax.lower.ipu.rules.shape import cut
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation

# What a stage of merging costs beside its vertices: exchange and sync.
STAGE: Final = 1000


def sort(b: Builder, e: Equation, *xs: VariableView) -> tuple[VariableView, ...]:
    axis: int = e.params["dimension"]
    keys: int = e.params.get("num_keys", 1)
    shape = xs[0].shape
    n = shape[axis]
    if n < 2 or not xs[0].size:
        return xs
    order = [*(d for d in range(len(shape)) if d != axis), axis]
    rows = [_rows(b, x, order, n) for x in xs]
    ys = _sorted(b, rows, keys)
    lead = tuple(shape[d] for d in order)
    back = [order.index(d) for d in range(len(shape))]
    found: list[VariableView] = []
    for y in ys:
        y = b.reshaped(y, lead)
        found.append(VariableView(y.variable, y.offset, shape, tuple(y.strides[d] for d in back)))
    return tuple(found)


def _rows(b: Builder, x: VariableView, order: Sequence[int], n: int) -> VariableView:
    moved = VariableView(x.variable, x.offset, tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order))
    return b.reshaped(moved, (x.size // n, n))


def _sorted(b: Builder, xs: Sequence[VariableView], keys: int) -> list[VariableView]:
    """Rows [rows, n] sorted together by the first ``keys`` of them, stably."""
    count, n = xs[0].shape
    width = sum(x.dtype.itemsize for x in xs)
    whole = SortRows([x.dtype.name for x in xs], keys)
    tails = {f.name: (n,) for f in whole.fields}
    blocks = _blocks(b, count, n)
    if fits(b, n * (2 * width + 8)):
        alone = cycles(b, whole, count, tails, {"n": n})
        stages = (blocks.bit_length() - 1) * blocks.bit_length() // 2
        length = -(-n // blocks)
        if blocks < 2 or alone <= alone // blocks + stages * (STAGE + 60 * length * b.chip.workers):
            return _here(b, whole, xs)
    return _merged(b, xs, keys, blocks)


def _here(b: Builder, codelet: SortRows, xs: Sequence[VariableView]) -> list[VariableView]:
    n = xs[0].shape[1]
    outs: dict[str, Any] = {f"y{i}": ((n,), x.dtype) for i, x in enumerate(xs)}
    outs |= {"order": ((n,), np.int32), "scratch": ((n,), np.int32)}
    found = by_rows(b, codelet, {f"x{i}": x for i, x in enumerate(xs)}, outs, {"n": n})
    return [found[f"y{i}"] for i in range(len(xs))]


def _blocks(b: Builder, rows: int, n: int) -> int:
    """Blocks of a row: a power of two, a few elements in each."""
    most = max(1, min(b.tiles // rows, n // 4))
    return 1 << (most.bit_length() - 1)


def _merged(b: Builder, xs: Sequence[VariableView], keys: int, blocks: int) -> list[VariableView]:
    rows, n = xs[0].shape
    blocks = max(blocks, 2)
    length = -(-n // blocks)
    whole = length * blocks
    # The number of an element is the last key: no two are equal, and equal ones keep their order.
    line = b.constant(np.arange(whole, dtype=np.int32))
    number = VariableView(line.variable, line.offset, (rows, whole), (0, line.strides[0]))
    filled = [_filled(b, x, whole, i < keys) for i, x in enumerate(xs)]
    columns = [*filled[:keys], number, *filled[keys:]]
    names = [c.dtype.name for c in columns]
    split = [b.reshaped(c, (rows * blocks, length)) for c in columns]
    values = _here(b, SortRows(names, keys + 1), split)
    codelet = MergeBlocks(names, keys + 1)
    size = 2
    while size <= blocks:
        step = size // 2
        while step:
            values = _stage(b, codelet, values, blocks, size, step)
            step //= 2
        size *= 2
    del values[keys]
    found = [b.reshaped(v, (rows, whole)) for v in values]
    return [cut(v, (0, 0), (rows, n)) for v in found]


def _filled(b: Builder, x: VariableView, whole: int, key: bool) -> VariableView:
    """Rows filled up with what comes last."""
    rows, n = x.shape
    if n == whole:
        return x
    last: Any = 0
    if key:
        last = np.nan if x.dtype.kind == "f" else True if x.dtype.kind == "b" else np.iinfo(x.dtype).max
    y = b.variable((rows, whole), x.dtype).view()
    value = b.constant(np.full((rows, whole - n), last).astype(x.dtype))
    b.copy([(x, cut(y, (0, 0), (rows, n))), (value, cut(y, (0, n), (rows, whole)))])
    return y


def _stage(
    b: Builder, codelet: MergeBlocks, xs: Sequence[VariableView], blocks: int, size: int, step: int
) -> list[VariableView]:
    count, length = xs[0].shape
    ys = [b.variable(x.shape, x.dtype, ()) for x in xs]
    groups: list[Group] = []
    pieces: list[MappedRegion] = []
    for start, many in _spread(b, count):
        here = start + np.arange(many, dtype=np.int64)
        number = here % blocks
        partner = here - number + (number ^ step)
        upper = ((number & step) != 0) == ((number & size) == 0)
        tiles = (b.first + np.arange(many) % b.tiles).astype(np.int32)
        mine = Boxes(here * length, (1, length), (length, 1))
        edges: dict[str, FieldConnection] = {}
        for i, (x, y) in enumerate(zip(xs, ys, strict=True)):
            edges[f"x{i}"] = FieldConnection(x.variable, mine)
            edges[f"z{i}"] = FieldConnection(x.variable, Boxes(partner * length, (1, length), (length, 1)))
            edges[f"y{i}"] = FieldConnection(y, mine)
        pieces.append(MappedRegion(mine, tiles))
        groups.append(Group(codelet, tiles, edges, {"n": length, "upper": upper.astype(np.int64)}))
    for y in ys:
        y.pieces = tuple(pieces)
    b.execute(groups)
    return [y.view() for y in ys]


def _spread(b: Builder, count: int) -> list[tuple[int, int]]:
    """Blocks in turns over the tiles: (first, how many)."""
    return [(start, min(b.tiles, count - start)) for start in range(0, count, b.tiles)]


RULES: Final = {"sort": Rule(sort)}
