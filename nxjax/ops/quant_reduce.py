"""Quantized means, sums and average pools: qmean, qsum, qavgpool."""

from __future__ import annotations

import math
from typing import Any, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import abs, add, div, mul, sub
from nxjax.ops.base import NDArray, RemovesAxes, check_counted_axes, constant, like, move_batch
from nxjax.ops.bitwise import shift_right_arithmetic
from nxjax.ops.compare import gt
from nxjax.ops.convert import cast
from nxjax.ops.fixed import reduce as fixed
from nxjax.ops.fixed.elementwise import scale_of
from nxjax.ops.fixed.point import quantize_multiplier
from nxjax.ops.quant_base import QuantizedOp
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_traced import clipped, rescale_by, to_output_grid, wrap_int32
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.select import select_n
from nxjax.ops.window import Pairs, reduce_window_sum, window_shape
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Tangents
from nxjax.trace.types import ArrayType, Shape

Axes = tuple[int, ...]


class QuantizedTotal(RemovesAxes, QuantizedOp):
    """A sum over axes, rescaled."""

    def infer(self, x: ArrayType, /, *, axes: Axes, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> ArrayType:
        self.check(x, x_grid=x_grid, y_grid=y_grid, rounding=rounding)
        gone = check_counted_axes(self, axes, x.ndim)
        return ArrayType(tuple(n for i, n in enumerate(x.shape) if i not in gone), x.dtype)

    def factor(self, count: int, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> tuple[int, int]:
        """Multiplier and exponent of the rescaling."""
        multiplier, shift = quantize_multiplier(np.float64(scale_of(x_grid)) / np.float64(scale_of(y_grid)), rounding)
        return int(multiplier), int(shift)

    def traced(self, q: Array, /, *, axes: Axes, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> Array:
        count = math.prod(q.shape[a] for a in axes)
        total = wrap_int32(reduce_sum(cast(q, dtypes.int64), axes=axes))
        total = wrap_int32(sub(total, like(total, x_grid.zero_point * count)))
        return to_output_grid(
            rescale_by(total, *self.factor(count, x_grid, y_grid, rounding), rounding), y_grid, *y_grid.limits
        )


@final
class QMean(QuantizedTotal):
    """Quantized mean over ``axes``, which leave the shape."""

    name = "qmean"

    def infer(self, x: ArrayType, /, *, axes: Axes, **params: Any) -> ArrayType:
        out = super().infer(x, axes=axes, **params)
        if not math.prod(x.shape[a] for a in axes):
            raise ShapeError("qmean: a mean of no elements has no place on a grid", got=x, fix="pass at least one")
        return out

    def exact(self, q: NDArray, /, *, axes: Axes, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> NDArray:
        return fixed.mean(q, x_grid, y_grid, axes, rounding)

    def factor(self, count: int, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> tuple[int, int]:
        multiplier, shift = super().factor(count, x_grid, y_grid, rounding)
        bits = min(count.bit_length() - 1, 32, 31 + shift)
        return (multiplier << bits) // count, shift - bits

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, *, axes: Axes, **params: Any) -> Any:
        (t,) = tangents
        assert t is not None
        count = math.prod(t.shape[a] for a in axes)
        return mul(reduce_sum(t, axes=axes), like(y, 1.0 / count))


@final
class QSum(QuantizedTotal):
    """Quantized sum over ``axes``, which leave the shape."""

    name = "qsum"

    def exact(self, q: NDArray, /, *, axes: Axes, x_grid: Grid, y_grid: Grid, rounding: Rounding) -> NDArray:
        return fixed.sum(q, x_grid, y_grid, axes, rounding)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, *, axes: Axes, **params: Any) -> Any:
        (t,) = tangents
        assert t is not None
        return reduce_sum(t, axes=axes)


@final
class QAvgPool(QuantizedOp):
    """Mean of each window, rounded to the grid of the operand; padding is not counted.

    Windows, strides and padding have one entry per dimension of x, as in `reduce_window_sum`.
    """

    name = "qavgpool"
    operands = ("grid",)
    result = "grid"

    def infer(
        self, x: ArrayType, /, *, grid: Grid, window_dimensions: Shape, window_strides: Shape, padding: Pairs
    ) -> ArrayType:
        self.check(x, grid=grid)
        windows = _windows(window_dimensions=window_dimensions, window_strides=window_strides, padding=padding)
        return x.with_shape(window_shape(self, x, **windows)).strong()

    def exact(self, q: NDArray, /, *, grid: Grid, **params: Any) -> NDArray:
        windows = _windows(**params)
        sums = reduce_window_sum.eval(q.astype(np.int32), **windows)
        counts = reduce_window_sum.eval(np.ones(q.shape, np.int32), **windows)
        return fixed.average(sums, counts, *grid.limits).astype(grid.dtype)

    def traced(self, q: Array, /, *, grid: Grid, **params: Any) -> Array:
        windows = _windows(**params)
        sums = reduce_window_sum(q, **windows)
        counts = reduce_window_sum(like(q, 1), **windows)
        half = shift_right_arithmetic(counts, like(counts, 1))
        size = div(add(abs(sums), half), counts)
        signed = select_n(gt(sums, like(sums, 0)), sub(like(size, 0), size), size)
        return clipped(signed, *grid.limits)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, *, grid: Grid, **params: Any) -> Any:
        (t,), windows = tangents, _windows(**params)
        assert t is not None
        counts = reduce_window_sum(constant(1, dtypes.float32, t.shape), **windows)
        return div(reduce_window_sum(t, **windows), counts)

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, grid: Grid, padding: Pairs, **params: Any
    ) -> tuple[Any, Any]:
        wider = {name: (1, *entries) for name, entries in params.items()}
        x = move_batch(args[0], dims[0], size)
        return self(x, grid=grid, padding=((0, 0), *padding), **wider), 0


def _windows(*, window_dimensions: Shape, **params: Any) -> dict[str, Any]:
    ones = (1,) * len(window_dimensions)
    return {"window_dimensions": window_dimensions, **params, "base_dilation": ones, "window_dilation": ones}


qmean = QMean()
qsum = QSum()
qavgpool = QAvgPool()
