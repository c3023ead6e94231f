"""Sums of products of quantized values by 8-bit integer products, for chips that have them.

The same numbers as the float products of `quant_products`, in other words: with zero points zx and zy,
``sum (x - zx)(y - zy) = sum x y - zx sum y - zy sum x + n zx zy``, every term an int32 sum of int8 products. A lowering
asks for them with `integer_products`; elsewhere float products are the faster ones.
"""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from nxjax.ops.arithmetic import add, mul, sub
from nxjax.ops.base import constant, like
from nxjax.ops.conv import conv_general_dilated, dilated
from nxjax.ops.convert import convert_element_type
from nxjax.ops.dimension_numbers import ConvDimensionNumbers
from nxjax.ops.dot import DotDimensionNumbers, dot_general
from nxjax.ops.quant_grid import Grid
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import pad
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType

_wanted: ContextVar[bool] = ContextVar("nxjax_integer_products", default=False)
# Sums of so many products of differences of bytes fit into 32 bits. Where a part of them wraps, the whole is right
# again, as integers wrap.
_TERMS: Final = (1 << 31) // (255 * 255)


@contextmanager
def integer_products() -> Generator[None, None, None]:
    """Inside, quantized ops are written out with int8 products where these hold their values."""
    token = _wanted.set(True)
    try:
        yield
    finally:
        _wanted.reset(token)


def _fits(terms: int, *kinds: DType) -> bool:
    small = (dtypes.int8, dtypes.uint8, dtypes.int4)
    return _wanted.get() and terms < _TERMS and all(k in small for k in kinds)


def _stored(x: Array, grid: Grid) -> tuple[Array, int]:
    """An integer of the grid as int8, and the zero point that goes with it."""
    offset = 128 if grid.limits[1] > 127 else 0
    shifted = sub(x, like(x, offset)) if offset else x
    return convert_element_type(shifted, dtype=dtypes.int8), grid.zero_point - offset


def _spread(x: Array, shape: tuple[int, ...]) -> Array:
    return broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(x.ndim)))


def dense(x: Array, x_grid: Grid, w: Array, w_dtype: DType, numbers: DotDimensionNumbers) -> Array | None:
    """The int64 sums of a product with stored weights; None where float products are to be taken."""
    if not _fits(math.prod(x.shape[d] for d in numbers[0][0]), x_grid.dtype, w_dtype):
        return None
    return _dot(*_stored(x, x_grid), convert_element_type(w, dtype=dtypes.int8), 0, numbers)


def matmul(x: Array, x_grid: Grid, y: Array, y_grid: Grid, numbers: DotDimensionNumbers) -> Array | None:
    """The int64 sums of a product of two activations; None where float products are to be taken."""
    if not _fits(math.prod(x.shape[d] for d in numbers[0][0]), x_grid.dtype, y_grid.dtype):
        return None
    return _dot(*_stored(x, x_grid), *_stored(y, y_grid), numbers)


def _dot(x: Array, x_zero: int, y: Array, y_zero: int, numbers: DotDimensionNumbers) -> Array:
    (xc, yc), (xb, yb) = numbers
    product: Any = lambda a, b: dot_general(a, b, dimension_numbers=numbers, preferred_element_type=dtypes.int32)
    acc: Array = product(x, y)

    def ones(v: Array, contracting: Any, batch: Any) -> Array:
        """Ones in the place of ``v``, whose free dimensions are 1: products with them are sums."""
        kept = (*contracting, *batch)
        shape = tuple(n if d in kept else 1 for d, n in enumerate(v.shape))
        return broadcast_in_dim(constant(1, dtypes.int8), shape=shape, broadcast_dimensions=())

    if x_zero:
        sums = _spread(product(ones(x, xc, xb), y), acc.shape)
        acc = sub(acc, mul(sums, like(sums, x_zero)))
    if y_zero:
        sums = _spread(product(x, ones(y, yc, yb)), acc.shape)
        acc = sub(acc, mul(sums, like(sums, y_zero)))
    if x_zero and y_zero:
        terms = math.prod(x.shape[d] for d in xc)
        acc = add(acc, like(acc, terms * x_zero * y_zero))
    return convert_element_type(acc, dtype=dtypes.int64)


def convolution(x: Array, x_grid: Grid, w: Array, w_dtype: DType, **params: Any) -> Array | None:
    """The int64 sums of a convolution with stored weights; None where float products are to be taken.

    What is padded is the zero point: the value that stands for zero.
    """
    numbers: ConvDimensionNumbers = params["dimension_numbers"]
    window = [w.shape[d] for d in numbers.rhs_spec[2:]]
    if not _fits(math.prod(window) * w.shape[numbers.rhs_spec[1]], x_grid.dtype, w_dtype):
        return None
    if 0 in x.shape or 0 in w.shape:
        return None
    data, zero = _stored(x, x_grid)
    w8 = convert_element_type(w, dtype=dtypes.int8)
    spatial = numbers.lhs_spec[2:]
    if zero:
        config = [(0, 0, 0)] * x.ndim
        for d, (low, high), hole in zip(spatial, params["padding"], params["lhs_dilation"], strict=True):
            config[d] = (low, high, hole - 1)
        data = pad(data, constant(zero, dtypes.int8), padding_config=tuple(config))
        params = {**params, "padding": ((0, 0),) * len(spatial), "lhs_dilation": (1,) * len(spatial)}
    params["preferred_element_type"] = dtypes.int32
    acc = conv_general_dilated(data, w8, batch_group_count=1, **params)
    if zero:
        # One window of ones gives the sum of each output's weights.
        sizes = list(x.shape)
        sizes[numbers.lhs_spec[0]] = 1
        for d, n, hole in zip(spatial, window, params["rhs_dilation"], strict=True):
            sizes[d] = dilated(n, hole)
        ones = broadcast_in_dim(constant(1, dtypes.int8), shape=tuple(sizes), broadcast_dimensions=())
        once = {**params, "window_strides": (1,) * len(spatial)}
        sums = conv_general_dilated(ones, w8, batch_group_count=1, **once)
        row = reshape(sums, shape=(acc.shape[numbers.out_spec[1]],))
        spread = broadcast_in_dim(row, shape=acc.shape, broadcast_dimensions=(numbers.out_spec[1],))
        acc = sub(acc, mul(spread, like(spread, zero)))
    return convert_element_type(acc, dtype=dtypes.int64)
