"""Quantized sums of products: qdot and qconv with weights, qmatmul between activations.

Accumulators are exact. NumPy uses int64. Compilers use floats: all sums are integers small enough to be exact, and CPUs
multiply floats fastest. A lowering may ask for `quant_integer`'s products instead. Weights and bias come as floats and
are stored inside:

    stored w = rint(w / w_scale)        stored b = rint(b / (x_scale * w_scale))
    stored y = requantize(sum (x - x_zero) * w + b) by x_scale * w_scale / y_scale
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.errors import ShapeError
from nxjax.ops import quant_integer
from nxjax.ops.arithmetic import add, div, mul, sub
from nxjax.ops.base import NDArray, constant, like, move_batch, require
from nxjax.ops.compare import gt
from nxjax.ops.conv import Pairs, conv_general_dilated, fold, unfold
from nxjax.ops.convert import cast
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.dot import Axes, DotDimensionNumbers, dot_general, free, shifted
from nxjax.ops.fake_quantize import check_blocks, quantize_weight, weight_integers
from nxjax.ops.fixed.point import quantize_multiplier, wrap32
from nxjax.ops.fixed.product import Kind, factor, requantize_products
from nxjax.ops.precision import Precision
from nxjax.ops.quant_base import QuantizedOp, ResultGrid, sum_tangents
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_traced import (
    EXACT_FLOAT32,
    Factor,
    clipped,
    like_int,
    multiplier_of,
    rescale_static,
    rescale_wide,
    stored_weights,
    to_output_grid,
    wrap_int32,
)
from nxjax.ops.rounding import AWAY_FROM_ZERO, TO_NEAREST_EVEN, round
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.ops.slicing import slice_axis
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

EXACT: Final = (Precision.HIGHEST, Precision.HIGHEST)


def bias_limit(x_grid: Grid) -> int:
    """The largest stored bias: 32 bits for 8-bit activations; for 16-bit ones, 53 bits, which float64 holds exactly."""
    return 2**31 - 1 if x_grid.dtype != dtypes.int16 else 2**53


def stored_bias(b: NDArray, x_grid: Grid, w_scale: NDArray) -> NDArray:
    """``rint(b / (x_scale * w_scale))`` in float64, clipped to the accumulator's width; int64."""
    scale = np.float64(np.float32(x_grid.scale)) * np.asarray(w_scale, np.float32).astype(np.float64)  # pyright: ignore[reportArgumentType]
    last = bias_limit(x_grid)
    return np.clip(np.rint(np.asarray(b, np.float64) / scale), -last, last).astype(np.int64)


def _traced_bias(b: Array, x_grid: Grid, w_scale: Array) -> Array:
    scale = mul(cast(w_scale, dtypes.float64), constant(np.float32(x_grid.scale), dtypes.float64, w_scale.shape))  # pyright: ignore[reportArgumentType]
    last = bias_limit(x_grid)
    ratio = round(div(cast(b, dtypes.float64), scale), rounding_method=TO_NEAREST_EVEN)
    return cast(clipped(ratio, -float(last), float(last)), dtypes.int64)


def _factor(x_grid: Grid, y_grid: Grid, w_scale: Array) -> Array:
    """``x_scale * w_scale / y_scale`` per channel, float64."""
    product = mul(cast(w_scale, dtypes.float64), constant(np.float32(x_grid.scale), dtypes.float64, w_scale.shape))  # pyright: ignore[reportArgumentType]
    # Selected by data, so that no compiler takes the divisor for a constant and multiplies by its rounded reciprocal.
    positive = gt(product, like(product, 0))
    divisor = select_n(positive, like(product, 1), like(product, np.float32(y_grid.scale)))  # pyright: ignore[reportArgumentType]
    return div(product, divisor)


def largest_centred(grid: Grid) -> int:
    """The largest magnitude of a stored integer less the zero point."""
    low, high = grid.limits
    return max(grid.zero_point - low, high - grid.zero_point)


def sums_to_grid(summed: Array, real: Array, over: Callable[[Array], Array], out: ResultGrid, kind: Kind) -> Array:
    """`fixed.product.requantize_products` in ops: int64 sums times ``real``, which ``over`` repeats over them."""
    y_grid, lo, hi, rounding = out
    if kind == "dense" and rounding == "double":
        summed = summed if y_grid.dtype == dtypes.int16 else wrap_int32(summed)
        scaled = mul(cast(summed, dtypes.float64), over(real))
        whole = clipped(round(scaled, rounding_method=AWAY_FROM_ZERO), -(2.0**31), 2.0**31 - 1)
        # Saturated sums stay at their end: nothing wraps when the zero point is added.
        placed = add(cast(whole, dtypes.int64), constant(y_grid.zero_point, dtypes.int64, whole.shape))
        return cast(clipped(placed, lo, hi), dtypes.int32)
    mantissa, exponent = multiplier_of(real, rounding)
    if y_grid.dtype == dtypes.int16:
        scaled = rescale_wide(summed, over(mantissa), over(exponent))
    else:
        scaled = Factor(mantissa, exponent, rounding).applied(wrap_int32(summed), over)
    return to_output_grid(scaled, y_grid, lo, hi)


class WeightedProduct(QuantizedOp):
    """x with weights: the operands are (x, w, w_scale, b). Parameters that are not spelled out are the product's."""

    kind: ClassVar[Kind]

    def exact(
        self, q: NDArray, w: NDArray, w_scale: NDArray, b: NDArray, /, *, x_grid: Grid, w_dtype: DType, **params: Any
    ) -> NDArray:
        out, params = self.output(params)
        centred = (q.astype(np.int32) - x_grid.zero_point).astype(np.int16)
        acc = self.product(centred, weight_integers(w, w_scale, w_dtype).astype(np.int16), **params)
        scale, shape = self.row(w_scale, b.shape, acc.ndim, **params)
        acc = acc + stored_bias(b.reshape(shape), x_grid, scale)
        if out.grid.dtype != dtypes.int16:
            acc = wrap32(acc)
        return requantize_products(acc, x_grid.scale, scale, *out, self.kind)  # pyright: ignore[reportArgumentType]

    def traced(
        self,
        q: Array,
        w: Array,
        w_scale: Array,
        b: Array,
        /,
        *,
        x_grid: Grid,
        y_grid: Grid,
        lo: int,
        hi: int,
        w_dtype: DType,
        rounding: Rounding,
        **params: Any,
    ) -> Array:
        acc = self.traced_product(q, x_grid, stored_weights(w, w_scale, w_dtype), w_dtype, **params)
        row, dims = self.traced_row(w_scale, b.shape, **params), self.bias_dims(acc, b, **params)
        real = _factor(x_grid, y_grid, row)
        bias = _traced_bias(b, x_grid, row)
        over = lambda v: broadcast_in_dim(v, shape=acc.shape, broadcast_dimensions=dims)
        return sums_to_grid(add(acc, over(bias)), real, over, ResultGrid(y_grid, lo, hi, rounding), self.kind)

    def tangent(self, y: Array, primals: Arrays, tangents: Tangents, *, w_dtype: DType, **params: Any) -> Array | None:
        x, w, w_scale, b = primals
        tx, tw, _, tb = tangents
        snapped, tw = quantize_weight.jvp((w, w_scale), (tw, None), dtype=w_dtype)
        _, numbers = self.output(params)
        del numbers["x_grid"]
        parts = [
            None if tx is None else self.plain(tx, snapped, **numbers),
            None if tw is None else self.plain(x, tw, **numbers),
        ]
        if tb is not None:
            parts.append(broadcast_in_dim(tb, shape=y.shape, broadcast_dimensions=self.bias_dims(y, b, **numbers)))
        return sum_tangents(parts)

    @abstractmethod
    def product(self, x: NDArray, w: NDArray, **params: Any) -> NDArray:
        """The sums of whole numbers, int64."""

    @abstractmethod
    def traced_product(self, q: Array, x_grid: Grid, w: Array, w_dtype: DType, **params: Any) -> Array:
        """`product` in ops, of stored integers and whole weights."""

    @abstractmethod
    def row(self, w_scale: NDArray, channels: Shape, ndim: int, **params: Any) -> tuple[NDArray, Shape]:
        """The scales, repeated per channel, and the shape in which they lie against the result."""

    @abstractmethod
    def traced_row(self, w_scale: Array, channels: Shape, **params: Any) -> Array:
        """The scales, one per channel, in the order of the result's dimensions."""

    @abstractmethod
    def plain(self, x: Array, w: Array, **params: Any) -> Array:
        """The float op."""

    @abstractmethod
    def bias_dims(self, y: Array, b: Array, **params: Any) -> Axes:
        """The dimensions of the result in which the bias lies."""


def _check_weights(
    op: Op, w: ArrayType, w_scale: ArrayType, b: ArrayType, summed: Axes, channels: Shape, w_dtype: DType
) -> None:
    require(op, w_dtype in (dtypes.int4, dtypes.int8), "w_dtype", dtypes.short_name(w_dtype), "i4 or i8")
    check_blocks(op, w, w_scale)
    if any(w_scale.shape[a] != 1 for a in summed):
        raise ShapeError(
            f"{op.name}: scales differ along a dimension that is summed over",
            got=f"weights {w}, scales {w_scale}",
            expected=f"size 1 in dimensions {summed}",
            fix="use one scale per output channel; groups along the sum need a weight-only policy",
        )
    if b.shape != channels:
        raise ShapeError(f"{op.name}: one bias per output channel", got=b, expected=f"shape {channels}")


@final
class QDot(WeightedProduct):
    """Quantized `dot_general` of x with weights, plus bias: (x, w, w_scale, b).

    ``w_scale`` has w's rank, 1 in the contracted dimensions; ``b`` has w's batch and free dimensions.
    """

    name = "qdot"
    kind = "dense"

    def infer(
        self,
        x: ArrayType,
        w: ArrayType,
        w_scale: ArrayType,
        b: ArrayType,
        /,
        *,
        dimension_numbers: DotDimensionNumbers,
        w_dtype: DType,
        **params: Any,
    ) -> ArrayType:
        self.check(x, w, w_scale, b, **params)
        out = dot_general.infer(x, w, dimension_numbers=dimension_numbers)
        (_, wc), (_, wb) = dimension_numbers
        channels = tuple(w.shape[i] for i in (*wb, *free(w.ndim, wc, wb)))
        _check_weights(self, w, w_scale, b, wc, channels, w_dtype)
        return out.strong()

    def product(self, x: NDArray, w: NDArray, *, dimension_numbers: DotDimensionNumbers) -> NDArray:
        return dot_general.eval(x, w, dimension_numbers=dimension_numbers, preferred_element_type=dtypes.int64)

    def traced_product(
        self, q: Array, x_grid: Grid, w: Array, w_dtype: DType, *, dimension_numbers: DotDimensionNumbers
    ) -> Array:
        acc = quant_integer.dense(q, x_grid, w, w_dtype, dimension_numbers)
        if acc is not None:
            return acc
        depth = math.prod(w.shape[i] for i in dimension_numbers[0][1])
        work = dtypes.float32 if depth * largest_centred(x_grid) * 127 < EXACT_FLOAT32 else dtypes.float64
        centred, weights = cast(sub(q, like(q, x_grid.zero_point)), work), cast(w, work)
        found = dot_general(centred, weights, dimension_numbers=dimension_numbers, precision=EXACT)
        return cast(found, dtypes.int64)

    def row(
        self, w_scale: NDArray, channels: Shape, ndim: int, *, dimension_numbers: DotDimensionNumbers
    ) -> tuple[NDArray, Shape]:
        (_, wc), (_, wb) = dimension_numbers
        order = (*wb, *free(w_scale.ndim, wc, wb))
        row = np.broadcast_to(w_scale.transpose(*order, *wc).reshape([w_scale.shape[i] for i in order]), channels)
        shape = (*channels[: len(wb)], *(1,) * (ndim - len(channels)), *channels[len(wb) :])
        return row.reshape(shape), shape

    def traced_row(self, w_scale: Array, channels: Shape, *, dimension_numbers: DotDimensionNumbers) -> Array:
        (_, wc), (_, wb) = dimension_numbers
        order = (*wb, *free(w_scale.ndim, wc, wb))
        moved = transpose(w_scale, permutation=(*order, *wc))
        row = reshape(moved, shape=tuple(w_scale.shape[i] for i in order))
        return broadcast_in_dim(row, shape=channels, broadcast_dimensions=tuple(range(len(channels))))

    def plain(self, x: Array, w: Array, **params: Any) -> Array:
        return dot_general(x, w, **params)

    def bias_dims(self, y: Array, b: Array, *, dimension_numbers: DotDimensionNumbers, **params: Any) -> Axes:
        return _channel_dims(y.ndim, b.ndim, len(dimension_numbers[1][1]))

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, dimension_numbers: DotDimensionNumbers, **params: Any
    ) -> tuple[Any, Any]:
        (xc, wc), (xb, wb) = dimension_numbers
        x, *rest = args
        d = dims[0]
        if all(i is None for i in dims[1:]):
            assert d is not None
            xc, xb = shifted(xc, d), shifted(xb, d)
            y = self(x, *rest, dimension_numbers=((xc, wc), (xb, wb)), **params)
            return y, len(xb) + free(x.ndim, xc, xb).index(d)
        x, w, w_scale, b = (move_batch(v, i, size) for v, i in zip(args, dims, strict=True))
        numbers = (
            (shifted(xc, 0), shifted(wc, 0)),
            ((0, *shifted(xb, 0)), (0, *shifted(wb, 0))),
        )
        return self(x, w, w_scale, b, dimension_numbers=numbers, **params), 0


def _channel_dims(ndim: int, channels: int, batch: int) -> Axes:
    """Where batch and free dimensions of the weights lie in a product: batch first, free last."""
    return (*range(batch), *range(ndim - channels + batch, ndim))


@final
class QConv(WeightedProduct):
    """Quantized convolution plus bias: (x, w, w_scale, b); parameters as of `conv_general_dilated`.

    ``w_scale`` has w's rank, 1 but for the output channels; ``b`` has one entry per output channel. Padding holds the
    zero point. With ``lhs_dilation`` it is a transposed convolution.
    """

    name = "qconv"
    kind = "conv"

    def infer(
        self,
        x: ArrayType,
        w: ArrayType,
        w_scale: ArrayType,
        b: ArrayType,
        /,
        *,
        window_strides: Shape,
        padding: Pairs,
        lhs_dilation: Shape,
        rhs_dilation: Shape,
        feature_group_count: int,
        dimension_numbers: ConvDimensionNumbers,
        w_dtype: DType,
        **params: Any,
    ) -> ArrayType:
        self.check(x, w, w_scale, b, **params)
        out = conv_general_dilated.infer(
            x,
            w,
            window_strides=window_strides,
            padding=padding,
            lhs_dilation=lhs_dilation,
            rhs_dilation=rhs_dilation,
            feature_group_count=feature_group_count,
            batch_group_count=1,
            dimension_numbers=dimension_numbers,
        )
        o, *summed = dimension_numbers.rhs_spec
        _check_weights(self, w, w_scale, b, tuple(summed), (w.shape[o],), w_dtype)
        return out.strong()

    def product(self, x: NDArray, w: NDArray, **params: Any) -> NDArray:
        return conv_general_dilated.eval(x, w, batch_group_count=1, preferred_element_type=dtypes.int64, **params)

    def traced_product(self, q: Array, x_grid: Grid, w: Array, w_dtype: DType, **params: Any) -> Array:
        acc = quant_integer.convolution(q, x_grid, w, w_dtype, **params)
        if acc is not None:
            return acc
        centred = cast(sub(q, like(q, x_grid.zero_point)), dtypes.float32)
        return _exact_conv(centred, w, largest_centred(x_grid), **params)

    def row(
        self, w_scale: NDArray, channels: Shape, ndim: int, *, dimension_numbers: ConvDimensionNumbers, **params: Any
    ) -> tuple[NDArray, Shape]:
        shape = tuple(-1 if i == dimension_numbers.out_spec[1] else 1 for i in range(ndim))
        return np.broadcast_to(w_scale.reshape(-1), channels).reshape(shape), shape

    def traced_row(self, w_scale: Array, channels: Shape, **params: Any) -> Array:
        return broadcast_in_dim(reshape(w_scale, shape=(w_scale.size,)), shape=channels, broadcast_dimensions=(0,))

    def plain(self, x: Array, w: Array, **params: Any) -> Array:
        return conv_general_dilated(x, w, batch_group_count=1, **params)

    def bias_dims(self, y: Array, b: Array, *, dimension_numbers: ConvDimensionNumbers, **params: Any) -> Axes:
        return (dimension_numbers.out_spec[1],)

    def batch(
        self,
        size: int,
        args: Arrays,
        dims: Dims,
        *,
        feature_group_count: int,
        dimension_numbers: ConvDimensionNumbers,
        **params: Any,
    ) -> tuple[Any, Any]:
        numbers = dimension_numbers
        x, w, w_scale, b = args
        if all(d is None for d in dims[1:]):
            assert dims[0] is not None
            x = fold(x, dims[0], size, numbers.lhs_spec[0])
            y = self(x, w, w_scale, b, feature_group_count=feature_group_count, dimension_numbers=numbers, **params)
            return unfold(y, size, numbers.out_spec[0]), numbers.out_spec[0]
        # One more level of groups: each element of the batch has its own features and kernels.
        x, w, w_scale, b = (move_batch(v, d, size) for v, d in zip(args, dims, strict=True))
        o = numbers.rhs_spec[0]
        spread = broadcast_in_dim(
            w_scale,
            shape=(*w_scale.shape[: o + 1], w.shape[o + 1], *w_scale.shape[o + 2 :]),
            broadcast_dimensions=tuple(range(w_scale.ndim)),
        )
        y = self(
            fold(x, 0, size, numbers.lhs_spec[1]),
            fold(w, 0, size, o),
            fold(spread, 0, size, o),
            reshape(b, shape=(b.size,)),
            feature_group_count=feature_group_count * size,
            dimension_numbers=numbers,
            **params,
        )
        return unfold(y, size, numbers.out_spec[1]), numbers.out_spec[1]


def _exact_conv(x: Array, w: Array, largest: int, **params: Any) -> Array:
    """The int64 convolution of whole numbers in float32: cut along the input features where sums could grow inexact.

    The alternative, float64, has no fast convolution on CPUs.
    """
    numbers: ConvDimensionNumbers = params["dimension_numbers"]
    groups: int = params["feature_group_count"]
    window = math.prod(w.shape[i] for i in numbers.rhs_spec[2:])
    features = w.shape[numbers.rhs_spec[1]]
    if largest * 127 * window >= EXACT_FLOAT32:
        # Too large even for one feature: 16-bit activations go in two halves, high * 256 + low.
        high = round(mul(x, like(x, 1 / 256)), rounding_method=TO_NEAREST_EVEN)
        low = sub(x, mul(high, like(x, 256)))
        halves = (_exact_conv(high, w, -(-largest // 256), **params), _exact_conv(low, w, 128, **params))
        return add(mul(halves[0], like_int(halves[0], 256, dtypes.int64)), halves[1])
    step = max(1, (EXACT_FLOAT32 - 1) // (largest * 127 * window))
    acc: Array | None = None
    for start in range(0, features, step) if features > step else (0,):
        part_x, part_w = x, w
        if features > step:
            stop = min(start + step, features)
            part_x = _features(x, numbers.lhs_spec[1], start, stop, groups)
            part_w = slice_axis(w, numbers.rhs_spec[1], start, stop)
        found = cast(conv_general_dilated(part_x, part_w, batch_group_count=1, precision=EXACT, **params), dtypes.int64)
        acc = found if acc is None else add(acc, found)
    assert acc is not None
    return acc


def _features(x: Array, axis: int, start: int, stop: int, groups: int) -> Array:
    """Features [start, stop) of each group."""
    if groups == 1:
        return slice_axis(x, axis, start, stop)
    shape = x.shape
    grouped = reshape(x, shape=(*shape[:axis], groups, shape[axis] // groups, *shape[axis + 1 :]))
    rows = slice_axis(grouped, axis + 1, start, stop)
    return reshape(rows, shape=(*shape[:axis], groups * (stop - start), *shape[axis + 1 :]))


@final
class QMatmul(QuantizedOp):
    """Quantized `dot_general` of two activations."""

    name = "qmatmul"
    operands = ("x_grid", "y_grid")
    result = "out_grid"

    def infer(
        self, x: ArrayType, y: ArrayType, /, *, dimension_numbers: DotDimensionNumbers, **params: Any
    ) -> ArrayType:
        self.check(x, y, **params)
        return dot_general.infer(x, y, dimension_numbers=dimension_numbers).strong()

    def exact(self, p: NDArray, q: NDArray, /, *, x_grid: Grid, y_grid: Grid, **params: Any) -> NDArray:
        out, numbers = self.output(params)
        left, right = ((v.astype(np.int32) - g.zero_point).astype(np.int16) for v, g in ((p, x_grid), (q, y_grid)))
        acc = dot_general.eval(left, right, preferred_element_type=dtypes.int64, **numbers)
        return requantize_products(acc, x_grid.scale, y_grid.scale, *out, "matmul")  # pyright: ignore[reportArgumentType]

    def traced(
        self,
        p: Array,
        q: Array,
        /,
        *,
        x_grid: Grid,
        y_grid: Grid,
        out_grid: Grid,
        lo: int,
        hi: int,
        rounding: Rounding,
        dimension_numbers: DotDimensionNumbers,
    ) -> Array:
        depth = math.prod(p.shape[i] for i in dimension_numbers[0][0])
        acc = quant_integer.matmul(p, x_grid, q, y_grid, dimension_numbers)
        if acc is None:
            exact32 = depth * largest_centred(x_grid) * largest_centred(y_grid) < EXACT_FLOAT32
            work = dtypes.float32 if exact32 else dtypes.float64
            left, right = (cast(sub(v, like(v, g.zero_point)), work) for v, g in ((p, x_grid), (q, y_grid)))
            acc = cast(dot_general(left, right, dimension_numbers=dimension_numbers, precision=EXACT), dtypes.int64)
        real = factor(x_grid.scale, y_grid.scale, out_grid, "matmul")  # pyright: ignore[reportArgumentType]
        if out_grid.dtype == dtypes.int16:
            mantissa, exponent = quantize_multiplier(real, rounding)
            scaled = rescale_wide(acc, like(acc, int(mantissa)), like(acc, int(exponent)))
        else:
            scaled = rescale_static(wrap_int32(acc), real, rounding)
        return to_output_grid(scaled, out_grid, lo, hi)

    def tangent(
        self, y: Array, primals: Arrays, tangents: Tangents, *, dimension_numbers: DotDimensionNumbers, **params: Any
    ) -> Array | None:
        (p, q), (tp, tq) = primals, tangents
        product = lambda a, b: dot_general(a, b, dimension_numbers=dimension_numbers)
        return sum_tangents([None if tp is None else product(tp, q), None if tq is None else product(p, tq)])

    def batch(
        self, size: int, args: Arrays, dims: Dims, *, dimension_numbers: DotDimensionNumbers, **params: Any
    ) -> tuple[Any, Any]:
        (xc, yc), (xb, yb) = dimension_numbers
        p, q = (move_batch(v, d, size) for v, d in zip(args, dims, strict=True))
        numbers = ((shifted(xc, 0), shifted(yc, 0)), ((0, *shifted(xb, 0)), (0, *shifted(yb, 0))))
        return self(p, q, dimension_numbers=numbers, **params), 0


qdot = QDot()
qconv = QConv()
qmatmul = QMatmul()
