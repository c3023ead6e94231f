"""Factorizations and triangular systems: a batch over tiles, a matrix on one tile. What no tile holds, and what has no
codelet, is `portable`'s loops over all tiles."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from nxjax.kernels.ipu.linalg import Cholesky, Lu, TriangularSolve
from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.program import View
from nxjax.lower.ipu.rules import portable
from nxjax.lower.ipu.rules.rows import by_rows, fits
from nxjax.lower.ipu.rules.table import Rule
from nxjax.trace.program import Equation


def _batch(b: Builder, x: View) -> View:
    return b.reshaped(x, (math.prod(x.shape[:-2]), *x.shape[-2:]))


def _small(b: Builder, *sizes: int) -> bool:
    return fits(b, 4 * sum(sizes))


def cholesky(b: Builder, e: Equation, x: View) -> View:
    n = x.shape[-1]
    if not x.size or x.dtype != np.float32 or not _small(b, 2 * n * n):
        return portable.cholesky(b, e, x)
    y = by_rows(b, Cholesky(), {"x": _batch(b, x)}, {"y": ((n, n), x.dtype)}, {"n": n})["y"]
    return b.reshaped(y, x.shape)


def triangular_solve(b: Builder, e: Equation, a: View, x: View) -> View:
    p = e.params
    n = a.shape[-1]
    k = x.shape[-1] if p["left_side"] else x.shape[-2]
    if not x.size or x.dtype != np.float32 or not _small(b, n * n, 2 * n * k):
        return portable.triangular_solve(b, e, a, x)
    codelet = TriangularSolve(p["left_side"], p["lower"], p["transpose_a"], p["unit_diagonal"])
    ins = {"a": _batch(b, a), "b": _batch(b, x)}
    y = by_rows(b, codelet, ins, {"y": (x.shape[-2:], x.dtype)}, {"n": n, "k": k})["y"]
    return b.reshaped(y, x.shape)


def lu(b: Builder, e: Equation, x: View) -> tuple[View, ...]:
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
