"""Sums of NumPy arrays with an error that does not grow with their length, for ops and for eager arithmetic.

Knows no op: `import nxjax` loads this file, and none of the op files.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]
# Rows that are added one after the other.
BLOCK: Final = 128


def _is_chained(x: NDArray, axes: tuple[int, ...]) -> bool:
    """Whether NumPy adds many elements one after the other; it adds pairs along contiguous memory only."""
    if math.prod(x.shape[a] for a in axes) <= 2 * BLOCK or not x.size:
        return False
    trailing = x.flags.c_contiguous and axes == tuple(range(x.ndim - len(axes), x.ndim))
    whole = x.flags.forc and len(axes) == x.ndim
    along = len(axes) == 1 and x.strides[axes[0]] == x.itemsize
    return not (trailing or whole or along)


def blocked_sum(x: NDArray, axes: tuple[int, ...]) -> NDArray:
    """``x`` added along ``axes``; 16-bit and smaller floats in float32.

    No chain of additions is longer than a block, so that the error does not grow with the number of rows.
    """
    wide = np.float32 if x.dtype.itemsize < 4 and x.dtype in dtypes.FLOAT else x.dtype
    if x.dtype not in dtypes.FLOAT | dtypes.COMPLEX or not _is_chained(x, axes):
        return np.asarray(np.add.reduce(x, axis=axes, dtype=wide))
    kept = [i for i in range(x.ndim) if i not in axes]
    rows = x.transpose((*axes, *kept)).reshape(math.prod(x.shape[a] for a in axes), -1).astype(wide, copy=False)
    while len(rows) > 1:
        blocks = -(-len(rows) // BLOCK)
        whole = len(rows) // blocks * blocks
        y = np.add.reduce(rows[:whole].reshape(-1, blocks, rows.shape[1]), axis=0)
        y[: len(rows) - whole] += rows[whole:]
        rows = y
    return rows.reshape([x.shape[i] for i in kept])
