"""Numbers that fit integer arithmetic: scales that cut no bias and wrap no sum, and moves that wrap nothing.

A bias is stored in steps of ``x_scale * w_scale``. If weights are so small that it needs more than 32 bits (64-bit
sums: the 48 that LiteRT rescales), they get a coarser scale. So do those of a product so deep that its sum could
overflow. Knows no product.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.arithmetic import abs, add, max, min, mul, neg
from nxjax.ops.base import like
from nxjax.ops.compare import gt
from nxjax.ops.convert import cast
from nxjax.ops.fake_quantize import requantize
from nxjax.ops.fixed.functions import coarser_than, scale_of
from nxjax.ops.identity import stop_gradient
from nxjax.ops.quant_grid import Grid, Rounding
from nxjax.ops.quant_products import largest_centred
from nxjax.ops.quant_traced import stored_weights, symmetric_limit
from nxjax.ops.reduce import reduce_max, reduce_sum
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType

Axes = tuple[int, ...]
# What sums may grow to, and the share of it that products get if they are many; the bias has the rest.
SUM_BITS: Final = {dtypes.int8: 31, dtypes.int16: 47}
SHARE: Final = 4
# The greatest scale of weights: their largest stored value is a finite float32.
GREATEST: Final = 2.0**120

# Fixed-point kernels shift to the left within 32 bits, stored numbers of these dtypes by so much at most.
SHIFT_BITS: Final = {dtypes.int8: 20, dtypes.int16: 14}


def regridded(x: Array, own: Grid, out: Grid, lo: int, hi: int, rounding: Rounding) -> Array:
    """``x`` of the grid ``own`` on ``out``, in [lo, hi]; onto one finer by far in several moves."""
    while float(scale_of(own)) > float(scale_of(out)) * (finer := 2.0 ** SHIFT_BITS[own.dtype]):
        # What is not 0 is at an end of it already.
        middle = Grid(out.dtype, float(scale_of(own)) / finer, out.zero_point)
        low, high = middle.limits
        x, own = requantize(x, x_grid=own, y_grid=middle, lo=low, hi=high, rounding=rounding), middle
    return requantize(x, x_grid=own, y_grid=out, lo=lo, hi=hi, rounding=rounding)


def _farthest(dtype: DType) -> int:
    """How far a stored activation may lie from its zero point, which is 0 in 16 bits."""
    info = dtypes.integer_info(dtype)
    return int(info.max) - int(info.min) if dtype == dtypes.int8 else -int(info.min)


def holds(dtype: DType, depth: int) -> bool:
    """Whether sums of ``depth`` products of two stored activations always fit their accumulators."""
    return depth * _farthest(dtype) ** 2 < 2 ** SUM_BITS[dtype]


def holds_weighted(dtype: DType, depth: int) -> bool:
    """Whether sums of ``depth`` products with stored weights fit their accumulators, with some scale of the weights."""
    return 2 * depth <= (2 ** SUM_BITS[dtype] - 1) // SHARE // _farthest(dtype)


def holds_sum(dtype: DType, count: int) -> bool:
    """Whether sums of ``count`` stored activations fit 32 bits, which sums and means have in every dtype."""
    return count * _farthest(dtype) < 2**31


def product_size(x_grid: Grid, y_grid: Grid, depth: int = 1) -> tuple[float, int]:
    """The unit of a sum of ``depth`` products of two operands, and how many of it they come to at most."""
    assert not isinstance(x_grid.scale, tuple) and not isinstance(y_grid.scale, tuple)
    return x_grid.scale * y_grid.scale, depth * largest_centred(x_grid) * largest_centred(y_grid)


def saturated(
    make: Callable[..., Array], unit: float, most: int, out: Grid, lo: int, hi: int, rounding: Rounding
) -> Array:
    """``make(out_grid=, lo=, hi=)`` where ``most`` times ``unit`` fits 32 bits, moved to ``out`` from there.

    Where results beyond the grid's ends are so large that their stored numbers would wrap, instead of ending there.
    """
    # A product of scales may vanish in float32, but has no use for room then.
    middle = coarser_than(out, builtins.min(unit * most / 2.0**30, GREATEST))
    if middle == out:
        return make(out_grid=out, lo=lo, hi=hi)
    low, high = middle.limits
    return regridded(make(out_grid=middle, lo=low, hi=high), middle, out, lo, hi, rounding)


def fitting(
    w: Array, scale: Array, b: Array | None, x_grid: Grid, y_grid: Grid, dtype: DType, summed: Axes, channels: Axes
) -> tuple[Array, Array | None]:
    """``scale`` of ``w``, raised so that all sums fit, and the bias without what is beyond any result.

    Args:
        w: the float weights.
        scale: of w's rank, 1 in the ``summed`` dimensions.
        b: the bias, in the ``channels`` dimensions of w.
        x_grid, y_grid: of the operand and of the result.
        dtype: which stores the weights.
        summed, channels: dimensions of w.
    """
    depth = math.prod(w.shape[a] for a in summed)
    largest = largest_centred(x_grid)
    products = depth * largest * int(symmetric_limit(dtype))
    capacity = 2 ** SUM_BITS[x_grid.dtype] - 1
    if products > capacity // SHARE:
        products = capacity // SHARE
        scale = _of_deep(w, scale, dtype, summed, depth, products // largest)
    if x_grid.dtype == dtypes.int16:
        assert not isinstance(x_grid.scale, tuple) and not isinstance(y_grid.scale, tuple)
        # Fixed-point factors below 2**-32 are 0, and sums of more than 32 bits would count even so.
        least = builtins.min(y_grid.scale / x_grid.scale * 2.0**-30, GREATEST)
        scale = max(scale, like(scale, least))
    if b is None:
        return scale, None
    return _with_bias(w, scale, b, x_grid, y_grid, products, capacity, channels)


def _of_deep(w: Array, scale: Array, dtype: DType, summed: Axes, depth: int, most: int) -> Array:
    """The scale with which stored weights sum to ``most`` in size. Whole numbers, whose order makes no difference."""
    # Each weight may be rounded up.
    room = most - depth
    if room < depth:
        raise ParameterError(
            "quantize: a product sums more elements than its accumulators hold",
            got=f"{depth} elements",
            expected=f"at most {most // 2}",
            fix="let the policy answer None for it, or cut it into several",
        )
    wide = cast(scale, dtypes.float64)
    size = abs(cast(stored_weights(stop_gradient(w), scale, dtype), dtypes.float64))
    # Per channel, then the largest of those that share a scale.
    total = reshape(reduce_sum(size, axes=summed), shape=tuple(1 if a in summed else n for a, n in enumerate(w.shape)))
    axes = tuple(a for a, k in enumerate(scale.shape) if k == 1)
    total = reshape(reduce_max(total, axes=axes), shape=scale.shape)
    raised = cast(mul(wide, mul(total, like(total, 1.0 / room))), dtypes.float32)
    return select_n(gt(total, like(total, most)), scale, raised)


def _with_bias(
    w: Array, scale: Array, b: Array, x_grid: Grid, y_grid: Grid, products: int, capacity: int, channels: Axes
) -> tuple[Array, Array]:
    x_scale, y_scale = np.float64(np.float32(x_grid.scale)), np.float64(np.float32(y_grid.scale))  # pyright: ignore[reportArgumentType]
    low, high = y_grid.limits
    reach = float(y_scale) * (high - low + 1)
    # Whether the bias fits, or is cut to fit: with what room it needs beside the products all sums are at an end then.
    # Rounding to float32 takes less than is left.
    room = (capacity - 2 * products) * (1 - 2.0**-20)
    if reach > GREATEST * float(x_scale) * room:
        raise ParameterError(
            "quantize: no scale of weights brings the operand and the result of a product together",
            got=f"an operand in steps of {x_scale:.3g}, a result in steps of {y_scale:.3g}",
            fix="scale the function's values, or let the policy answer None for it",
        )
    kept = tuple(n if a in channels else 1 for a, n in enumerate(w.shape))
    order = tuple(sorted(range(b.ndim), key=channels.__getitem__))
    ordered = order == tuple(range(b.ndim))
    size = abs(stop_gradient(b))
    size = reshape(size if ordered else transpose(size, permutation=order), shape=kept)
    # Per scale: the largest bias, as far as the result reaches.
    size = cast(reduce_max(size, axes=tuple(a for a, k in enumerate(scale.shape) if k == 1)), dtypes.float64)
    wanted = mul(min(size, like(size, reach)), like(size, 1.0 / (float(x_scale) * room)))
    scale = max(stop_gradient(scale), reshape(cast(wanted, dtypes.float32), shape=scale.shape))
    # Beyond the result's ends and what products make up for, more of it changes nothing.
    wide = cast(scale, dtypes.float64)
    limit = min(
        mul(wide, like(wide, float(x_scale) * (capacity - products) * (1 - 2.0**-21))),
        add(mul(wide, like(wide, float(x_scale) * 2.0 * products)), like(wide, reach)),
    )
    limit = broadcast_in_dim(cast(limit, dtypes.float32), shape=kept, broadcast_dimensions=tuple(range(w.ndim)))
    limit = reshape(limit, shape=tuple(b.shape[i] for i in order))
    if not ordered:
        limit = transpose(limit, permutation=tuple(map(order.index, range(b.ndim))))
    return scale, max(min(b, limit), neg(limit))
