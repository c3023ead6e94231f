"""Resizing along some dimensions, half-pixel centers: the nearest neighbour, or linear between two.

One equation, so that a device may match it whole. Antialiased and higher-order resizing are matrix products, and live
where they are composed (`nxjax.image`).
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from nxjax.ops.arithmetic import add, mul
from nxjax.ops.base import CompositeOp, check_counted_axes, check_dtype, require
from nxjax.ops.dimension_numbers import GatherDimensionNumbers, GatherScatterMode
from nxjax.ops.fixed.resize import nearest_index, real_positions
from nxjax.ops.indexing import gather
from nxjax.ops.shape import broadcast_in_dim
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array, Arrays, Dims
from nxjax.trace.types import ArrayType

METHODS: Final = ("nearest", "linear")


def taken_along(x: Array, axis: int, index: np.ndarray[Any, Any]) -> Array:
    """``x`` at the places ``index`` of dimension ``axis``."""
    kept = tuple(i for i in range(x.ndim) if i != axis)
    return gather(
        x,
        wrap(index.astype(np.int32).reshape(-1, 1)),
        dimension_numbers=GatherDimensionNumbers(kept, (axis,), (axis,)),
        slice_sizes=tuple(1 if i == axis else n for i, n in enumerate(x.shape)),
        mode=GatherScatterMode.CLIP,
    )


def row_of(weights: np.ndarray[Any, Any], axis: int, x: Array) -> Array:
    """Weights along ``axis``, repeated over the shape of ``x``."""
    return broadcast_in_dim(wrap(weights), shape=x.shape, broadcast_dimensions=(axis,))


@final
class Resize(CompositeOp):
    """``x`` with ``sizes`` in dimensions ``axes``; result element i lies at ``(i + 1/2) * old / new - 1/2`` of x."""

    name = "resize"

    def infer(self, x: ArrayType, /, *, axes: tuple[int, ...], sizes: tuple[int, ...], method: str) -> ArrayType:
        check_counted_axes(self, axes, x.ndim)
        require(self, method in METHODS, "method", method, " or ".join(METHODS))
        require(self, len(sizes) == len(axes) and all(n > 0 for n in sizes), "sizes", sizes, f"one per axis {axes}")
        if method == "linear":
            check_dtype(self, dtypes.FLOAT, x)
        shape = list(x.shape)
        for a, n in zip(axes, sizes, strict=True):
            shape[a] = n
        return x.with_shape(tuple(shape))

    def expand(self, x: Array, /, *, axes: tuple[int, ...], sizes: tuple[int, ...], method: str) -> Array:
        for axis, size in zip(axes, sizes, strict=True):
            if method == "nearest":
                x = taken_along(x, axis, nearest_index(x.shape[axis], size, False, True))
                continue
            low, high, distance = real_positions(x.shape[axis], size, False, True)
            a, b = taken_along(x, axis, low), taken_along(x, axis, high)
            left, right = (row_of(v.astype(x.dtype), axis, a) for v in (1 - distance, distance))
            x = add(mul(a, left), mul(b, right))
        return x

    def batch(self, size: int, args: Arrays, dims: Dims, *, axes: tuple[int, ...], **params: Any) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return self(args[0], axes=tuple(a + (a >= d) for a in axes), **params), d


resize = Resize()
