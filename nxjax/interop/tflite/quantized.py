"""Rules of values on grids: functions of elements, pools, reductions. They become nxjax's quantized ops.

An operator without such an op is computed on stored integers, exactly, with the derivative of its float form.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from nxjax import lax, nn
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused, straight_through
from nxjax.interop.tflite.graph import Quantization, TFLiteNode
from nxjax.interop.tflite.held import GridValue, constant, grid_of
from nxjax.interop.tflite.products import edges
from nxjax.interop.tflite.reductions import along
from nxjax.interop.tflite.shapes import ints, to_batch, widths
from nxjax.interop.tflite.walk import quantized
from nxjax.interop.tflite.windows import pooled
from nxjax.ops.fake_quantize import quantize_dequantize, requantize
from nxjax.ops.fixed import elementwise as fixed
from nxjax.ops.fixed.point import divide_by_power, high_product, quantize_multiplier
from nxjax.ops.fixed.resize import ONE, fixed_positions, real_positions
from nxjax.ops.fixed.series import leading_zeros, reciprocal
from nxjax.ops.prelu import qprelu
from nxjax.ops.quant_elementwise import qadd, qmul, qsub, qunary
from nxjax.ops.quant_grid import Grid
from nxjax.ops.quant_reduce import qavgpool, qmean, qsum
from nxjax.ops.quant_resize import qresize
from nxjax.ops.quant_softmax import qsoftmax
from nxjax.ops.quant_traced import (
    all_grid_integers,
    from_stored,
    rescale_static,
    rescale_wide,
    take_row,
    to_output_grid,
    wrap_int32,
)
from nxjax.trace import dtypes

DOUBLE: Final = "double"


def clamp(grid: Grid, number: int) -> tuple[int, int]:
    """The stored integers between which a fused activation keeps its result."""
    low, high = grid.limits
    at = lambda v: int(grid.quantize(np.asarray(v, np.float32)))
    if number not in (0, 1, 2, 3):
        raise Refused("from_tflite: a fused activation that quantized operators do not have", got=number)
    return ((low, high), (at(0), high), (at(-1), at(1)), (at(0), at(6)))[number]


def value_of(x: Any, node: TFLiteNode) -> GridValue:
    """An operand that must be on a grid."""
    if not isinstance(x, GridValue):
        raise Refused(f"from_tflite: a {node.kind} of quantized values and others", got=node)
    return x


def on_stored(
    out: Quantization, exact: Callable[..., Any], smooth: Callable[..., Any], *values: GridValue
) -> GridValue:
    """``exact`` of values on grids, which gives stored integers, with the derivative of ``smooth`` of real numbers."""
    live = [i for i, v in enumerate(values) if v.is_real]
    if not live:
        return GridValue(out, stored=exact(*values).astype(out.dtype))

    def filled(reals: Any) -> list[GridValue]:
        # What these make of what they hold is of the trace that asks.
        every = [v if v.is_real else GridValue(v.quantization, stored=v.stored) for v in values]
        for i, x in zip(live, reals, strict=True):
            every[i] = GridValue(values[i].quantization, real=x)
        return every

    run = lambda *reals: from_stored(exact(*filled(reals)).astype(jnp.int32), out.grid)
    plain = lambda *reals: jnp.clip(smooth(*(v.real for v in filled(reals))), *out.grid.bounds)
    return GridValue(out, real=straight_through(run, plain, *(values[i].real for i in live)))


# --- two operands ---


def _pair(x: Any, y: Any, node: TFLiteNode) -> tuple[Any, Any, dict[str, Any]]:
    """Both operands as real numbers of one shape, and the grids that quantized ops name."""
    p, q = value_of(x, node), value_of(y, node)
    shape = np.broadcast_shapes(p.shape, q.shape)
    grids = {"x_grid": p.grid, "y_grid": q.grid, "out_grid": grid_of(node.out).grid, "rounding": DOUBLE}
    return jnp.broadcast_to(p.real, shape), jnp.broadcast_to(q.real, shape), grids


def _arithmetic(op: Any, sign: int = 0) -> Callable[..., Any]:
    def run(x: Any, y: Any, *, fused_activation_function: int, pot_scale_int16: bool = False, node: TFLiteNode) -> Any:
        p, q, grids = _pair(x, y, node)
        lo, hi = clamp(grids["out_grid"], fused_activation_function)
        powers = [_power_of_two(grids[k]) for k in ("x_grid", "y_grid", "out_grid")]
        if pot_scale_int16 and all(n is not None for n in powers):
            exact = lambda a, b: _sum_by_shifts(a.stored, b.stored, powers, sign, lo, hi)
            smooth = lambda a, b: a + sign * b
            return on_stored(grid_of(node.out), exact, smooth, value_of(x, node), value_of(y, node))
        return op(p, q, **grids, lo=lo, hi=hi)

    return run


def _power_of_two(grid: Grid) -> int | None:
    """The exponent of a scale of 16 bits that is a power of two."""
    exponent = float(np.log2(fixed.scale_of(grid)))
    return round(exponent) if grid.dtype == dtypes.int16 and abs(exponent - round(exponent)) < 1e-3 else None


def _sum_by_shifts(x: Any, y: Any, powers: Any, sign: int, lo: int, hi: int) -> Any:
    """A sum of 16 bits where the scales are powers of two and that of one operand is the result's."""
    a, b = x.astype(jnp.int32), y.astype(jnp.int32)
    shifts = powers[2] - powers[0], powers[2] - powers[1]
    if min(shifts) < 0 or 0 not in shifts:
        raise Refused("from_tflite: a sum of 16 bits by shifts whose result is finer", got=powers)
    a, b = (_shifted(v, n) for v, n in zip((a, b), shifts, strict=True))
    return jnp.clip(jnp.clip(a + sign * b, -32768, 32767), lo, hi)


def _shifted(x: Any, bits: int) -> Any:
    """``x / 2**bits`` to the nearest, halves away from zero."""
    half = (1 << bits) >> 1
    return jnp.sign(x) * ((jnp.abs(x) + half) >> bits)


for _name, _op, _sign in (("ADD", qadd, 1), ("SUB", qsub, -1), ("MUL", qmul, 0)):
    quantized(_name)(_arithmetic(_op, _sign))


@quantized("PRELU")
def _prelu(x: Any, alpha: Any, *, node: TFLiteNode) -> Any:
    p, q, grids = _pair(x, alpha, node)
    return qprelu(p, q, **grids)


@lru_cache(64)
def _pairs(x: Grid, y: Grid, out: Grid, function: Callable[..., Any]) -> Any:
    """The stored result for every pair of stored bytes."""
    p, q = all_grid_integers(x)[:, None], all_grid_integers(y)[None]
    return np.asarray(function(p, x, q, y, out), np.int32).reshape(-1)


def _by_pairs(function: Callable[..., Any], smooth: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any, *, node: TFLiteNode) -> Any:
        p, q, out = value_of(x, node), value_of(y, node), grid_of(node.out)
        if 16 in map(dtypes.bit_width, (p.grid.dtype, q.grid.dtype)):
            raise Refused(f"from_tflite: {node.kind} of 16 bits has no integer kernel", got=node)
        table = _pairs(p.grid, q.grid, out.grid, function)

        def exact(p: GridValue, q: GridValue) -> Any:
            a, b = (v.stored.astype(jnp.int32) - v.grid.limits[0] for v in (p, q))
            return take_row(table, a * 256 + b)

        return on_stored(out, exact, smooth, p, q)

    return run


def _squared(p: Any, x: Grid, q: Any, y: Grid, out: Grid) -> Any:
    return fixed.squared_difference(p, x, q, y, out, *out.limits)


quantized("SQUARED_DIFFERENCE")(_by_pairs(_squared, lambda x, y: jnp.square(x - y)))


def _quotients(p: Any, x: Grid, q: Any, y: Grid, out: Grid) -> Any:
    """Stored ``x / y`` by a reciprocal in fixed point (TFLite, ``DivElementwise``)."""
    a, b = np.broadcast_arrays(p.astype(np.int64) - x.zero_point, q.astype(np.int64) - y.zero_point)
    # The kernel has no meaning for a divisor of 0.
    a, b = np.where(b < 0, -a, a), np.maximum(np.abs(b), 1)
    inverse, over = reciprocal(b, 31)
    room = np.where(a >= 0, leading_zeros(np.maximum(a, 0)) - 1, leading_zeros(np.maximum(-2 * a - 1, 0)))
    multiplier, shift = quantize_multiplier(np.float64(fixed.scale_of(x) / (fixed.scale_of(y) * fixed.scale_of(out))))
    scaled = high_product(high_product(a << room, inverse), multiplier)
    whole = divide_by_power(scaled, np.maximum(over + room - shift, 0))
    return np.clip(whole + out.zero_point, *out.limits)


@quantized("DIV")
def _divided(x: Any, y: Any, *, fused_activation_function: int, node: TFLiteNode) -> Any:
    out = grid_of(node.out)
    if out.dtype != np.uint8:
        raise Refused("from_tflite: a DIV of quantized values that are not uint8", got=node)
    found: GridValue = _by_pairs(_quotients, jnp.divide)(x, y, node=node)
    lo, hi = clamp(out.grid, fused_activation_function)
    if (lo, hi) == out.grid.limits:
        return found
    if found.is_real:
        return _clipped(found.real, out.grid, fused_activation_function)
    return jnp.clip(found.stored, lo, hi)


def _compared(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, y: Any, *, node: TFLiteNode) -> Any:
        sides: list[Any] = []
        values = value_of(x, node), value_of(y, node)
        if values[0].grid.dtype == dtypes.int16 and node.kind not in ("EQUAL", "NOT_EQUAL"):
            # LiteRT orders stored integers of 16 bits, whatever their grids.
            return function(*(v.stored for v in values))
        for v in values:
            wide = wrap_int32(v.centred(jnp.int64) << 8)
            sides.append(rescale_static(wide, fixed.scale_of(v.grid), DOUBLE))
        return function(*sides)

    return run


for _name, _comparison in {
    "EQUAL": jnp.equal, "NOT_EQUAL": jnp.not_equal, "LESS": jnp.less, "LESS_EQUAL": jnp.less_equal,
    "GREATER": jnp.greater, "GREATER_EQUAL": jnp.greater_equal,
}.items():  # fmt: skip
    quantized(_name)(_compared(_comparison))


# --- one operand ---


def _function(x: Any, node: TFLiteNode, function: str, **parameters: Any) -> Any:
    p = value_of(x, node)
    settings = tuple(sorted(parameters.items()))
    return qunary(
        p.real, function=function, x_grid=p.grid, y_grid=grid_of(node.out).grid, rounding=DOUBLE, parameters=settings
    )


def _named(function: str) -> Callable[..., Any]:
    return lambda x, *, node: _function(x, node, function)


for _name in (
    "LOGISTIC", "TANH", "HARD_SWISH", "ELU", "EXP", "LOG", "SQRT", "RSQRT", "ABS", "NEG", "SQUARE", "SIN", "COS",
    "FLOOR", "CEIL", "ROUND", "SIGN",
):  # fmt: skip
    quantized(_name)(_named(_name.lower()))


@quantized("LEAKY_RELU")
def _leaky_relu(x: Any, *, alpha: float, node: TFLiteNode) -> Any:
    return _function(x, node, "leaky_relu", alpha=float(alpha))


@quantized("GELU")
def _gelu(x: Any, *, approximate: bool, node: TFLiteNode) -> Any:
    return _function(x, node, "gelu", approximate=bool(approximate))


def _relu(number: int) -> Callable[..., Any]:
    def run(x: Any, *, node: TFLiteNode) -> Any:
        p, out = value_of(x, node), grid_of(node.out)
        lo, hi = clamp(out.grid, number)
        # A clamp that does not clamp is a QUANTIZE to the op, whose factor is rounded otherwise.
        factor = fixed.requantize_factor(p.grid, out.grid, lo, hi)
        real = np.float64(fixed.scale_of(p.grid) / fixed.scale_of(out.grid))
        same = [int(v) for v in quantize_multiplier(factor)] == [int(v) for v in quantize_multiplier(real)]
        if same:
            return requantize(p.real, x_grid=p.grid, y_grid=out.grid, lo=lo, hi=hi, rounding=DOUBLE)
        exact = lambda v: to_output_grid(rescale_static(v.centred(jnp.int64), real, DOUBLE), out.grid, lo, hi)
        return on_stored(out, exact, nn.relu, p)

    return run


for _name, _number in (("RELU", 1), ("RELU_N1_TO_1", 2), ("RELU6", 3)):
    quantized(_name)(_relu(_number))


@quantized("QUANTIZE")
def _quantize(x: Any, *, node: TFLiteNode) -> Any:
    out = grid_of(node.out)
    if not isinstance(x, GridValue):
        return quantize_dequantize(x.astype(jnp.float32), grid=out.grid)
    if dtypes.bit_width(out.dtype) > 16 or dtypes.bit_width(x.grid.dtype) > 16:
        raise Refused("from_tflite: a QUANTIZE of 32 bits", got=node)
    low, high = out.grid.limits
    return requantize(x.real, x_grid=x.grid, y_grid=out.grid, lo=low, hi=high, rounding=DOUBLE)


@quantized("DEQUANTIZE")
def _dequantize(x: Any, *, node: TFLiteNode) -> Any:
    return value_of(x, node).real


@quantized("SOFTMAX")
def _softmax(x: Any, *, beta: float, node: TFLiteNode) -> Any:
    p, out = value_of(x, node), grid_of(node.out)
    grid, real = p.grid, p.real
    if beta != 1:
        grid = Grid(grid.dtype, float(np.float32(beta) * fixed.scale_of(grid)), grid.zero_point)
        real = real * np.float32(beta)
    return qsoftmax(real, axis=p.ndim - 1, x_grid=grid, y_grid=out.grid, rounding=DOUBLE)


# --- windows, reductions, borders ---


def _clipped(x: Any, grid: Grid, number: int) -> Any:
    """Real numbers on a grid between the ends of a fused activation."""
    lo, hi = clamp(grid, number)
    if (lo, hi) == grid.limits:
        return x
    scale = fixed.scale_of(grid)
    return jnp.clip(x, *(np.float32(v - grid.zero_point) * scale for v in (lo, hi)))


@quantized("MAX_POOL_2D")
def _max_pool(
    x: Any, *, padding: int, stride_w: int, stride_h: int, filter_width: int, filter_height: int,
    fused_activation_function: int, node: TFLiteNode,
) -> Any:  # fmt: skip
    p = value_of(x, node)
    y = pooled(p.real, -np.inf, lax.max, padding, (filter_height, filter_width), (stride_h, stride_w))
    return _clipped(y, grid_of(node.out).grid, fused_activation_function)


@quantized("AVERAGE_POOL_2D")
def _average_pool(
    x: Any, *, padding: int, stride_w: int, stride_h: int, filter_width: int, filter_height: int,
    fused_activation_function: int, node: TFLiteNode,
) -> Any:  # fmt: skip
    p = value_of(x, node)
    window, strides = (filter_height, filter_width), (stride_h, stride_w)
    around = ((0, 0), *edges(padding, p.shape[1:3], window, strides, (1, 1)), (0, 0))
    y = qavgpool(
        p.real, grid=p.grid, window_dimensions=(1, *window, 1), window_strides=(1, *strides, 1), padding=around
    )
    return _clipped(y, p.grid, fused_activation_function)


def _total(op: Any) -> Callable[..., Any]:
    def run(x: Any, axes: Any, *, keep_dims: bool, node: TFLiteNode) -> Any:
        p = value_of(x, node)
        gone = along(p, axes)
        y = op(p.real, axes=gone, x_grid=p.grid, y_grid=grid_of(node.out).grid, rounding=DOUBLE)
        return jnp.expand_dims(y, gone) if keep_dims else y

    return run


@quantized("REDUCE_PROD", known=("axes",))
def _product(x: Any, axes: Any, *, keep_dims: bool, node: TFLiteNode) -> Any:
    p, out = value_of(x, node), grid_of(node.out)
    gone = along(p, axes)
    count = math.prod(p.shape[a] for a in gone)
    root = np.float64(fixed.scale_of(out.grid)) ** (1.0 / max(count, 1))
    mantissa, exponent = (int(v) for v in quantize_multiplier(np.float64(fixed.scale_of(p.grid)) / root))

    def exact(v: GridValue) -> Any:
        kept = [i for i in range(v.ndim) if i not in gone]
        rows = v.centred(jnp.int64).transpose(*kept, *gone).reshape((*(v.shape[i] for i in kept), count))
        scaled = lambda y: rescale_wide(y, jnp.full_like(y, mantissa), jnp.full_like(y, exponent))
        total = rows[..., 0]
        for i in range(1, count):
            total = scaled(total * rows[..., i])
        y = jnp.clip(scaled(total) + out.grid.zero_point, *out.grid.limits)
        return jnp.expand_dims(y, gone) if keep_dims else y

    return on_stored(out, exact, lambda v: jnp.prod(v, gone, keepdims=keep_dims), p)


quantized("MEAN", known=("axes",))(_total(qmean))
quantized("SUM", known=("axes",))(_total(qsum))


@quantized("PAD", known=("around",))
def _pad(x: Any, around: Any, *, node: TFLiteNode) -> Any:
    return jnp.pad(value_of(x, node).real, widths(around))


@quantized("PADV2", known=("around",))
def _pad_v2(x: Any, around: Any, filled: Any, *, node: TFLiteNode) -> Any:
    p, border = value_of(x, node), value_of(filled, node)
    return lax.pad(p.real, border.real.reshape(()), [(a, b, 0) for a, b in widths(around)])


@quantized("SPACE_TO_BATCH_ND", known=("block", "around"))
def _space_to_batch(x: Any, block: Any, around: Any, *, node: TFLiteNode) -> Any:
    p = value_of(x, node)
    return to_batch(p.real, ints(block), widths(around), jnp.zeros((), jnp.float32))


@quantized("CONCATENATION")
def _concatenation(*xs: Any, axis: int, fused_activation_function: int, node: TFLiteNode) -> Any:
    out = grid_of(node.out)
    values = [value_of(x, node) for x in xs]
    if all(v.quantization.same(out) for v in values) and any(v.is_real for v in values):
        return jnp.concatenate([v.real for v in values], axis)
    if out.dtype == np.uint8:
        values = [GridValue(out, stored=_moved_grid(v, out.grid)) for v in values]
    # Other types are copied, whatever their grids.
    return jnp.concatenate([v.stored for v in values], axis)


def _moved_grid(x: GridValue, out: Grid) -> Any:
    """Bytes on another grid, by floats."""
    if x.quantization.grid == out:
        return x.stored
    f = np.float32
    scale = fixed.scale_of(x.grid) * (f(1) / fixed.scale_of(out))
    bias = f(-x.grid.zero_point) * scale
    y = x.stored.astype(jnp.float32) * scale + bias
    steps = jnp.sign(y) * jnp.floor(jnp.abs(y) + f(0.5))
    return jnp.clip(steps.astype(jnp.int32) + out.zero_point, 0, 255).astype(jnp.uint8)


@quantized("RESIZE_BILINEAR", known=("size",))
def _resize_bilinear(x: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool, node: TFLiteNode) -> Any:
    p, to, out = value_of(x, node), ints(size), grid_of(node.out)
    if half_pixel_centers and not align_corners and out.dtype != np.uint8:
        return qresize(p.real, axes=(1, 2), sizes=to, grid=p.grid, rounding=DOUBLE)

    positions = real_positions if out.dtype == np.uint8 else fixed_positions

    def weighted(v: Any, far: Callable[[Any], Any], one: Any) -> Any:
        """The sum of the four neighbours, in the order of the kernels."""
        total: Any = 0
        sides: list[Any] = []
        for axis, n in zip((1, 2), to, strict=True):
            low, high, distance = positions(v.shape[axis], n, align_corners, half_pixel_centers)
            d = far(distance).reshape([-1 if i == axis else 1 for i in range(4)])
            sides.append(((low, one - d), (high, d)))
        for j in (0, 1):
            for i in (0, 1):
                (at, p), (across, q) = sides[0][i], sides[1][j]
                found = jnp.take(jnp.take(v, constant(at), axis=1), constant(across), axis=2)
                total = total + found * constant(p) * constant(q)
        return total

    def exact(v: GridValue) -> Any:
        if out.dtype == np.uint8:
            real = weighted(v.stored.astype(jnp.float32), lambda d: d.astype(np.float32), np.float32(1))
            return jnp.floor(real + np.float32(0.5)).astype(jnp.int32)
        wide = weighted(v.stored.astype(jnp.int64), lambda d: d.astype(np.int64), np.int64(ONE))
        size = (jnp.abs(wide) + (1 << 19)) >> 20
        return jnp.where(wide > 0, size, -size)

    f, one = np.float32, np.float32(1)
    smooth = lambda v: weighted(v, lambda d: d.astype(f) / f(1 if out.dtype == np.uint8 else ONE), one)
    return on_stored(out, exact, smooth, p)
