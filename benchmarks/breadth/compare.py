"""Whether two libraries' results are the same. Knows neither."""

from __future__ import annotations

from typing import Any

import numpy as np

import nxjax as nx

# The usual error of a program's result, of the largest element, by the coarsest dtype in it.
TOLERANCE = {"bfloat16": 4e-2, "float16": 1e-2, "float32": 2e-4, "complex64": 2e-4}
FINEST = 1e-9


def leaves(result: Any) -> list[np.ndarray]:
    """A result's arrays in order."""
    return [np.asarray(x) for x in nx.tree.leaves(result)]


def differs(ours: Any, other: Any, *, dtype: str, tolerance: float = 1.0) -> str:
    """What differs, or "": elements are held against the largest of their array, in the error of ``dtype``."""
    mine, others = leaves(ours), leaves(other)
    if len(mine) != len(others):
        return f"{len(mine)} arrays, expected {len(others)}"
    least = tolerance * TOLERANCE.get(dtype, FINEST)
    for i, (x, y) in enumerate(zip(mine, others, strict=True)):
        if x.shape != y.shape:
            return f"array {i}: shape {x.shape}, expected {y.shape}"
        kind = np.complex128 if "c" in (x.dtype.kind, y.dtype.kind) else np.float64
        a, b = x.astype(kind), y.astype(kind)
        finite = np.isfinite(b)
        if not np.array_equal(np.isfinite(a), finite):
            return f"array {i}: other elements are finite"
        gap = np.abs(np.where(finite, a, 0) - np.where(finite, b, 0))
        most = least * max(1e-6, float(np.abs(np.where(finite, b, 0)).max(initial=0.0)))
        if (gap > most).any():
            at = np.unravel_index(int(gap.argmax()), gap.shape)
            return f"array {i}{list(map(int, at))}: {a[at]}, expected {b[at]} to {most:.1e}"
    return ""
