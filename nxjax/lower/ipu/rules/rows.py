"""Rows that a tile works on whole: a batch over tiles, each vertex with some of its rows. Knows codelets, no op."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from nxjax.kernels.ipu.spec import Codelet
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.mapping import parts
from nxjax.lower.ipu.program import Boxes, FieldConnection, Group, MappedRegion, Shape, VariableView, row_major


def fits(b: Builder, bytes_each: int) -> bool:
    """Whether a tile holds a row's operands and results, and as much beside."""
    return 2 * bytes_each <= b.chip.memory


def cycles(b: Builder, codelet: Codelet, count: int, tails: Mapping[str, Shape], attributes: Mapping[str, Any]) -> int:
    """What the busiest tile takes for ``count`` rows over all tiles."""
    each = -(-count // b.tiles)
    return codelet.cycles({name: (each, *tail) for name, tail in tails.items()}, attributes, b.chip)


def by_rows(
    b: Builder,
    codelet: Codelet,
    ins: Mapping[str, VariableView],
    outs: Mapping[str, tuple[Shape, Any]],
    attributes: Mapping[str, Any],
    once: Collection[str] = (),
) -> dict[str, VariableView]:
    """Every row through a codelet.

    Args:
        codelet: its fields are [rows, ...].
        ins: operands [rows, ...], by field.
        outs: shape of a row and dtype of each result, by field.
        attributes: of the codelet; none depends on the number of rows.
        once: operands of which every vertex takes one row only, as all are the same.

    Returns:
        The results [rows, ...], by field.
    """
    rows = next(iter(ins.values())).shape[0]
    found: dict[str, VariableView] = {}
    for name, (tail, dtype) in outs.items():
        found[name] = b.variable((rows, *tail), dtype, ()).view()
    groups: list[Group] = []
    pieces: dict[str, list[MappedRegion]] = {name: [] for name in outs}
    tile = b.first
    for start, length, many in parts(rows, b.tiles):
        first = start + length * np.arange(many, dtype=np.int64)
        tiles = np.arange(tile, tile + many, dtype=np.int32)
        tile += many
        edges: dict[str, FieldConnection] = {}
        for name, x in ins.items():
            sizes = (1 if name in once else length, *x.shape[1:])
            edges[name] = FieldConnection(x.variable, Boxes(x.offset + first * x.strides[0], sizes, x.strides))
        for name, y in found.items():
            boxes = Boxes(first * math.prod(y.shape[1:]), (length, *y.shape[1:]), row_major(y.shape))
            edges[name] = FieldConnection(y.variable, boxes)
            pieces[name].append(MappedRegion(boxes, tiles))
        groups.append(Group(codelet, tiles, edges, attributes))
    for name, y in found.items():
        y.variable.pieces = tuple(pieces[name])
    b.execute(groups)
    return found
