"""Onto a grid and between grids: of a whole value, of weights by blocks, of rows. Float in, float out."""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops.arithmetic import abs, add, max, min, mul, sub
from nxjax.ops.base import Elementwise, NDArray, check_dtype, like, move_batch, require
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import ge, gt, le
from nxjax.ops.convert import cast
from nxjax.ops.fixed import elementwise as fixed
from nxjax.ops.quant_base import FLOAT32, QuantizedOp
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_traced import (
    broadcast_blocks,
    clipped,
    from_stored,
    quotient,
    rescale_static,
    stored_weights,
    symmetric_limit,
    to_output_grid,
    to_stored,
)
from nxjax.ops.reduce import reduce_max, reduce_min
from nxjax.ops.rounding import TO_NEAREST_EVEN, round
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape


@final
class QuantizeDequantize(QuantizedOp, Elementwise):
    """The nearest value on ``grid``, halves away from zero; values outside go to its ends.

    Tangents pass where ``x`` lies within the grid's ends (TensorFlow's ``fake_quant_with_min_max_args_gradient``).
    """

    name = "quantize_dequantize"
    operands = ("grid",)
    result = "grid"

    def infer(self, x: ArrayType, /, *, grid: Grid) -> ArrayType:
        self.check(x, grid=grid)
        return x.strong()

    def exact(self, q: NDArray, /, *, grid: Grid) -> NDArray:
        return q

    def traced(self, q: Array, /, *, grid: Grid) -> Array:
        return q

    def expand(self, x: Array, /, *, grid: Grid) -> Array:
        return from_stored(to_stored(x, grid), grid)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        return tangents[0]

    def jvp(self, primals: Arrays, tangents: Tangents, *, grid: Grid) -> tuple[Any, Any]:
        (x,), (t,) = primals, tangents
        y = self(x, grid=grid)
        if t is None:
            return y, None
        low, high = grid.bounds
        kept = and_(ge(x, like(x, np.float32(low))), le(x, like(x, np.float32(high))))
        return y, select_n(kept, like(t, 0), t)


@final
class Requantize(QuantizedOp, Elementwise):
    """A value of one grid on another, by integer arithmetic; ``lo, hi`` clamp it (the relu family)."""

    name = "requantize"

    def infer(self, x: ArrayType, /, *, x_grid: Grid, y_grid: Grid, lo: int, hi: int, rounding: Rounding) -> ArrayType:
        self.check(x, x_grid=x_grid, y_grid=y_grid, lo=lo, hi=hi, rounding=rounding)
        return x.strong()

    def exact(self, q: NDArray, /, *, x_grid: Grid, y_grid: Grid, lo: int, hi: int, rounding: Rounding) -> NDArray:
        return fixed.requantize(q, x_grid, y_grid, lo, hi, rounding)

    def traced(self, q: Array, /, *, x_grid: Grid, y_grid: Grid, lo: int, hi: int, rounding: Rounding) -> Array:
        real = fixed.requantize_factor(x_grid, y_grid, lo, hi)
        centred = cast(sub(q, like(q, x_grid.zero_point)), dtypes.int64)
        return to_output_grid(rescale_static(centred, real, rounding), y_grid, lo, hi)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, **params: Any) -> Any:
        return tangents[0]


STORED: Final = (dtypes.int4, dtypes.int8, dtypes.float8_e4m3fn, dtypes.float8_e5m2)


@final
class QuantizeWeight(Op):
    """Weights as ``dtype`` stores them: ``rint(w / scale) * scale``, for float8 its nearest value; a scale per block.

    ``scale`` has w's rank and sizes that divide w's: 1 along an axis for one scale, more for groups of equal length.
    Tangents of ``w`` pass unchanged, except where it is clipped; ``scale`` has none.
    """

    name = "quantize_weight"

    def infer(self, w: ArrayType, scale: ArrayType, /, *, dtype: DType) -> ArrayType:
        check_dtype(self, FLOAT32, w, scale)
        check_blocks(self, w, scale)
        stored = ", ".join(dtypes.short_name(d) for d in STORED)
        require(self, dtype in STORED, "storage dtype", dtypes.short_name(dtype), stored)
        return w.strong()

    def eval(self, w: NDArray, scale: NDArray, /, *, dtype: DType) -> NDArray:
        return np.asarray(weight_integers(w, scale, dtype).astype(np.float32) * blocks(scale, w.shape))

    def expand(self, w: Array, scale: Array, /, *, dtype: DType) -> Array:
        stored = stored_weights(w, scale, dtype)
        if dtype not in dtypes.FLOAT:
            # Integers have one zero, floats two.
            stored = cast(cast(stored, dtypes.int32), dtypes.float32)
        return mul(stored, broadcast_blocks(scale, w.shape))

    def jvp(self, primals: Arrays, tangents: Tangents, *, dtype: DType) -> tuple[Any, Any]:
        (w, scale), t = primals, tangents[0]
        y = self(w, scale, dtype=dtype)
        if t is None:
            return y, None
        # Half a step beyond the last value still rounds to it: the weight that gave its scale is not clipped.
        bound = mul(broadcast_blocks(scale, w.shape), like(w, symmetric_limit(dtype) + 0.5))
        return y, select_n(gt(abs(w), bound), t, like(t, 0))

    def batch(self, size: int, args: Arrays, dims: Dims, *, dtype: DType) -> tuple[Any, Any]:
        w, scale = (move_batch(x, d, size) for x, d in zip(args, dims, strict=True))
        return self(w, scale, dtype=dtype), 0

    def stablehlo(self, b: Any, out: ArrayType, *xs: Any, dtype: DType) -> Any:
        return b.inline(self.expand, xs, {"dtype": dtype})


@final
class QuantizeRows(Op):
    """Values on int8 grids of their own: one per row, spanning 0 and the row's values; ``axes`` are those of a row.

    As ONNX's ``DynamicQuantizeLinear`` for every row: with ``low = min(x, 0)`` and ``high = max(x, 0)`` over the row,
    ``scale = (high - low) / 255``, ``zero = rint(-128 - low / scale)``, and the result is
    ``(clip(rint(x / scale) + zero, -128, 127) - zero) * scale``. Tangents pass unchanged: nothing is clipped by more
    than half a step.
    """

    name = "quantize_rows"

    def infer(self, x: ArrayType, /, *, axes: tuple[int, ...]) -> ArrayType:
        check_dtype(self, FLOAT32, x)
        good = tuple(sorted(set(axes))) == axes and all(0 <= a < x.ndim for a in axes) and bool(axes)
        require(self, good, "axes", axes, f"dimensions of {x} in ascending order, at least one")
        return x.strong()

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...]) -> NDArray:
        scale, zero = row_grids(x, axes)
        q = np.clip(np.rint(x / scale) + zero, np.float32(-128), np.float32(127))
        return np.asarray((q - zero) * scale)

    def expand(self, x: Array, /, *, axes: tuple[int, ...]) -> Array:
        rows = tuple(1 if a in axes else n for a, n in enumerate(x.shape))
        low, high = (reshape(reduce(x, axes=axes), shape=rows) for reduce in (reduce_min, reduce_max))
        low, high = min(low, like(low, 0)), max(high, like(high, 0))
        scale = max(quotient(sub(high, low), like(low, 255)), like(low, LEAST_ROW_SCALE))
        nearest = lambda v: round(v, rounding_method=TO_NEAREST_EVEN)
        zero = clipped(nearest(sub(like(low, -128), quotient(low, scale))), -128, 127)
        over = lambda v: broadcast_blocks(v, x.shape)
        q = clipped(add(nearest(quotient(x, over(scale))), over(zero)), -128, 127)
        return mul(sub(q, over(zero)), over(scale))

    def jvp(self, primals: Arrays, tangents: Tangents, *, axes: tuple[int, ...]) -> tuple[Any, Any]:
        return self(primals[0], axes=axes), tangents[0]

    def batch(self, size: int, args: Arrays, dims: Dims, *, axes: tuple[int, ...]) -> tuple[Any, Any]:
        return self(move_batch(args[0], dims[0], size), axes=tuple(a + 1 for a in axes)), 0

    def stablehlo(self, b: Any, out: ArrayType, *xs: Any, axes: tuple[int, ...]) -> Any:
        return b.inline(self.expand, xs, {"axes": axes})


# Of a row of zeros, and of one so small that its scale would be no number that divides.
LEAST_ROW_SCALE: Final = 2.0**-100


def row_grids(x: NDArray, axes: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Scale and zero point of each row of ``x``, as float32 with sizes 1 along ``axes``."""
    low = np.minimum(x.min(axes, keepdims=True), np.float32(0))
    high = np.maximum(x.max(axes, keepdims=True), np.float32(0))
    scale = np.maximum((high - low) / np.float32(255), np.float32(LEAST_ROW_SCALE))
    return scale, np.clip(np.rint(np.float32(-128) - low / scale), np.float32(-128), np.float32(127))


def check_blocks(op: Op, w: ArrayType, scale: ArrayType) -> None:
    """One scale per block: equal rank, sizes that divide."""
    if not divides(scale.shape, w.shape):
        raise ShapeError(
            f"{op}: the scales do not divide the weights into blocks",
            got=f"weights {w}, scales {scale}",
            expected="equal rank, each size of the scales a divisor of the weights'",
        )


def divides(scales: Shape, shape: Shape) -> bool:
    """Whether scales cut weights of ``shape`` into blocks; where there are no weights there need be no scales."""
    return len(scales) == len(shape) and all(n % k == 0 if k else n == 0 for n, k in zip(shape, scales, strict=True))


def blocks(scale: NDArray, shape: Shape) -> NDArray:
    """``scale`` repeated over ``shape`` blockwise."""
    for axis, (n, k) in enumerate(zip(shape, scale.shape, strict=True)):
        if k not in (1, n):
            scale = np.repeat(scale, n // k, axis)
    return np.broadcast_to(scale, shape)


def weight_integers(w: NDArray, scale: NDArray, dtype: DType) -> NDArray:
    """Stored weights: ``rint(w / scale)`` in float32, clipped to the symmetric range; of ``dtype``."""
    last = symmetric_limit(dtype)
    ratio = np.asarray(w, np.float32) / blocks(np.asarray(scale, np.float32), w.shape)
    if dtype in dtypes.FLOAT:
        return np.asarray(np.clip(ratio, -last, last).astype(dtype))
    return np.asarray(np.clip(np.rint(ratio), -last, last).astype(np.int8).astype(dtype))


quantize_dequantize = QuantizeDequantize()
requantize = Requantize()
quantize_weight = QuantizeWeight()
quantize_rows = QuantizeRows()
