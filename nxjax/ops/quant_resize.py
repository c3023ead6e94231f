"""Quantized linear resizing of two dimensions; the nearest neighbour needs none, it keeps values."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from nxjax.ops.arithmetic import abs, add, mul, sub
from nxjax.ops.base import NDArray, like, require
from nxjax.ops.bitwise import shift_right_arithmetic
from nxjax.ops.compare import gt
from nxjax.ops.convert import cast
from nxjax.ops.fixed.resize import ONE, fixed_positions, resize_bilinear
from nxjax.ops.quant_base import QuantizedOp
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.resize import resize, row_of, taken_along
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.types import ArrayType

Pair = tuple[int, int]


@final
class QResize(QuantizedOp):
    """Quantized `resize`, linear, along two dimensions; the grid stays."""

    name = "qresize"
    operands = ("grid",)
    result = "grid"

    def infer(self, x: ArrayType, /, *, axes: Pair, sizes: Pair, grid: Grid, rounding: Rounding) -> ArrayType:
        self.check(x, grid=grid, rounding=rounding)
        require(self, len(axes) == 2, "axes", axes, "two")
        return resize.infer(x, axes=axes, sizes=sizes, method="linear").strong()

    def exact(self, q: NDArray, /, *, axes: Pair, sizes: Pair, grid: Grid, rounding: Rounding) -> NDArray:
        others = [i for i in range(q.ndim) if i not in axes]
        order = [*axes, *others]
        moved = q.transpose(order)
        image = moved.reshape(1, *moved.shape[:2], math.prod(moved.shape[2:]))
        y = resize_bilinear(image, sizes, False, True, rounding)
        return y.reshape(*sizes, *(q.shape[i] for i in others)).transpose(np.argsort(order))

    def traced(self, q: Array, /, *, axes: Pair, sizes: Pair, grid: Grid, rounding: Rounding) -> Array:
        wide = cast(q, dtypes.int64)
        for axis, size in zip(axes, sizes, strict=True):
            low, high, distance = fixed_positions(wide.shape[axis], size, False, True)
            a, b = taken_along(wide, axis, low), taken_along(wide, axis, high)
            left, right = (row_of(np.asarray(v, np.int64), axis, a) for v in (ONE - distance, distance))
            wide = add(mul(a, left), mul(b, right))
        half, bits = like(wide, 1 << 19), like(wide, 20)
        if rounding == "single":
            return cast(shift_right_arithmetic(add(wide, half), bits), dtypes.int32)
        size = shift_right_arithmetic(add(abs(wide), half), bits)
        return cast(select_n(gt(wide, like(wide, 0)), sub(like(size, 0), size), size), dtypes.int32)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, *, axes: Pair, sizes: Pair, **params: Any) -> Any:
        (t,) = tangents
        assert t is not None
        # Its pieces have transposes.
        return resize.expand(t, axes=axes, sizes=sizes, method="linear")

    def batch(self, size: int, args: Arrays, dims: Dims, *, axes: Pair, **params: Any) -> tuple[Any, Any]:
        d = dims[0]
        assert d is not None
        return self(args[0], axes=tuple(a + (a >= d) for a in axes), **params), d


qresize = QResize()
