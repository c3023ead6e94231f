"""Running reductions: rows on tiles; long rows in blocks, whose totals are run over by the same rule."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from nxjax.kernels.ipu.scan import Cumulative, ScanKind
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.mapping import grid, parts
from nxjax.lower.ipu.program import Boxes, FieldConnection, Group, MappedRegion, VariableView, row_major
from nxjax.lower.ipu.rules.shape import cut
from nxjax.lower.ipu.rules.table import Rule
from nxjax.ops.cumulative import CUMULATIVE
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace.program import Equation

# Rows of at most so many elements are not cut.
SHORT: Final = 64


def supports(e: Equation) -> bool:
    # Halves are summed in float: their expansion converts.
    return e.inputs[0].type.dtype.name in ("float32", "int32", "uint32", "int16", "uint16", "int8", "uint8")


def cumulative(b: Builder, e: Equation, x: VariableView) -> VariableView:
    axis: int = e.params["axis"]
    if not x.size:
        return x
    outer, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    rows = b.reshaped(x, (outer, x.shape[axis], inner))
    return b.reshaped(_run(b, e, rows, bool(e.params.get("reverse", False))), x.shape)


def _run(b: Builder, e: Equation, x: VariableView, reverse: bool) -> VariableView:
    """[outer, n, inner] along the middle."""
    outer, n, inner = x.shape
    op: Any = e.op
    blocks = min(b.tiles // (outer * inner), math.isqrt(n))
    if n <= SHORT or blocks < 2:
        return _local(b, e, x, reverse)
    length = -(-n // blocks)
    blocks = -(-n // length)
    whole = length * blocks
    if whole > n:
        filled = b.variable((outer, whole, inner), x.dtype).view()
        value = b.constant(np.full((outer, whole - n, inner), op.identity(x.dtype)).astype(x.dtype))
        ends = (0, whole - n) if reverse else (n, whole)
        rest = (whole - n, whole) if reverse else (0, n)
        b.copy(
            [
                (x, cut(filled, (0, rest[0], 0), (outer, rest[1], inner))),
                (value, cut(filled, (0, ends[0], 0), (outer, ends[1], inner))),
            ]
        )
        x = filled
    apart = b.reshaped(x, (outer * blocks, length, inner))
    within = b.reshaped(_local(b, e, apart, reverse), (outer, blocks, length, inner))
    at = 0 if reverse else length - 1
    last = cut(within, (0, 0, at, 0), (outer, blocks, at + 1, inner))
    totals = _run(b, e, b.reshaped(last, (outer, blocks, inner)), reverse)
    # Each block but the first of the direction takes the total before it.
    low, high = (0, blocks - 1) if reverse else (1, blocks)
    later = cut(within, (0, low, 0, 0), (outer, high, length, inner))
    before = cut(totals, (0, 1 - low, 0), (outer, blocks - low, inner))

    def joined(before: Any, later: Any) -> Any:
        return op.combine(broadcast_in_dim(before, shape=later.shape, broadcast_dimensions=(0, 1, 3)), later)

    moved = b.inline(joined, [before, later])
    y = b.variable((outer, blocks, length, inner), x.dtype).view()
    first = blocks - 1 if reverse else 0
    same = (0, first, 0, 0), (outer, first + 1, length, inner)
    b.copy([(moved, cut(y, (0, low, 0, 0), (outer, high, length, inner))), (cut(within, *same), cut(y, *same))])
    start = whole - n if reverse else 0
    return cut(b.reshaped(y, (outer, whole, inner)), (0, start, 0), (outer, start + n, inner))


def _local(b: Builder, e: Equation, x: VariableView, reverse: bool) -> VariableView:
    """Rows that a tile has whole."""
    outer, n, inner = x.shape
    y = b.variable(x.shape, x.dtype, ())
    ys = row_major(x.shape)
    by_outer = parts(outer, b.tiles)
    by_inner = parts(inner, max(1, b.tiles // sum(many for *_, many in by_outer)))
    combiner: Any = e.op.combiner  # pyright: ignore[reportAttributeAccessIssue]
    kind: ScanKind = combiner.name if combiner else "logsumexp"
    codelet = Cumulative(kind, x.dtype.name, reverse)
    groups: list[Group] = []
    pieces: list[MappedRegion] = []
    for starts, sizes, place in grid(x.shape, [by_outer, parts(n, 1), by_inner]):
        tiles = (b.first + place).astype(np.int32)
        to = Boxes(starts @ np.asarray(ys, np.int64), sizes, ys)
        edges = {"x": FieldConnection(x.variable, x.boxes(starts, sizes)), "y": FieldConnection(y, to)}
        pieces.append(MappedRegion(to, tiles))
        groups.append(Group(codelet, tiles, edges, {"outer": sizes[0], "inner": sizes[2]}))
    y.pieces = tuple(pieces)
    b.execute(groups)
    return y.view()


RULES: Final = dict.fromkeys((op.name for op in CUMULATIVE), Rule(cumulative, supports))
