"""Factorizations and triangular systems: a batch over tiles, a matrix on one tile. What no tile holds, and what has no
codelet, is `portable`'s loops over all tiles."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nxjax.kernels.ipu.linalg import Cholesky, Lu, TriangularSolve
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.mapping import parts
from nxjax.lower.ipu.program import Boxes, FieldConnection, Group, MappedRegion, NDArray, Shape, VariableView
from nxjax.lower.ipu.rules import portable
from nxjax.lower.ipu.rules.rows import by_rows, fits
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation


def _batch(b: Builder, x: VariableView) -> VariableView:
    return b.reshaped(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _small(b: Builder, *sizes: int) -> bool:
    return fits(b, 4 * sum(sizes))


def cholesky(b: Builder, e: Equation, x: VariableView) -> VariableView:
    n = x.shape[-1]
    if not x.size or x.dtype != np.float32 or not _small(b, 2 * n * n):
        return portable.cholesky(b, e, x)
    y = by_rows(b, Cholesky(), {"x": _batch(b, x)}, {"y": ((n, n), x.dtype)}, {"n": n})["y"]
    return b.reshaped(y, x.shape)


def triangular_solve(b: Builder, e: Equation, a: VariableView, x: VariableView) -> VariableView:
    p = e.params
    n = a.shape[-1]
    left = bool(p["left_side"])
    k = x.shape[-1] if left else x.shape[-2]
    free = b.tiles // math.prod(x.shape[:-2]) if x.size else 1
    if not x.size or x.dtype != np.float32 or not _small(b, n * n, 2 * n * -(-k // (free or 1))):
        return portable.triangular_solve(b, e, a, x)
    codelet = TriangularSolve(left, p["lower"], p["transpose_a"], p["unit_diagonal"])
    matrices, sides = _batch(b, a), _batch(b, x)
    if free > 1 and k > 1:
        return b.reshaped(_by_sides(b, codelet, matrices, sides, parts(k, free)), x.shape)
    y = by_rows(b, codelet, {"a": matrices, "b": sides}, {"y": (x.shape[-2:], x.dtype)}, {"n": n, "k": k})["y"]
    return b.reshaped(y, x.shape)


def _by_sides(
    b: Builder, codelet: TriangularSolve, a: VariableView, x: VariableView, split: list[tuple[int, int, int]]
) -> VariableView:
    """Right-hand sides know nothing of each other: every tile has the matrix and some of them."""
    count, n = a.shape[:2]
    axis = 2 if codelet.left else 1
    y = b.variable(x.shape, x.dtype, ())
    groups: list[Group] = []
    tile = b.first
    for start, length, many in split:
        batch = np.repeat(np.arange(count), many)
        first = np.tile(start + length * np.arange(many), count)
        sizes = (1, n, length) if codelet.left else (1, length, n)

        def box(v: VariableView, batch: NDArray = batch, first: NDArray = first, sizes: Shape = sizes) -> Boxes:
            return Boxes(v.offset + batch * v.strides[0] + first * v.strides[axis], sizes, v.strides)

        edges = {
            "a": FieldConnection(a.variable, Boxes(a.offset + batch * a.strides[0], (1, n, n), a.strides)),
            "b": FieldConnection(x.variable, box(x)),
            "y": FieldConnection(y, box(y.view())),
        }
        tiles = np.arange(tile, tile + len(batch), dtype=np.int32)
        tile += len(batch)
        groups.append(Group(codelet, tiles, edges, {"n": n, "k": length}))
    y.pieces = tuple(MappedRegion(g.edges["y"].boxes, g.tiles) for g in groups)
    b.execute(groups)
    return y.view()


def lu(b: Builder, e: Equation, x: VariableView) -> tuple[VariableView, ...]:
    m, n = x.shape[-2:]
    if not x.size or x.dtype != np.float32 or not _small(b, 2 * m * n):
        return portable.portable(b, e, x)
    outs = {"y": ((m, n), x.dtype), "pivots": ((min(m, n),), np.int32), "permutation": ((m,), np.int32)}
    found = by_rows(b, Lu(), {"x": _batch(b, x)}, outs, {"rows": m, "columns": n})
    return tuple(b.reshaped(found[name], v.type.shape) for name, v in zip(outs, e.outputs, strict=True))


RULES: Final = {
    "cholesky": Rule(cholesky),
    "triangular_solve": Rule(triangular_solve),
    "lu": Rule(lu),
}
