"""Reductions over axes."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Final, final

import numpy as np

from nxjax.ops import vocabulary as ops
from nxjax.ops.arithmetic import abs, add, div, mul, neg, sub
from nxjax.ops.arithmetic import max as max_
from nxjax.ops.arithmetic import min as min_
from nxjax.ops.base import (
    Combining,
    LinearOp,
    NDArray,
    Nondifferentiable,
    RemovesAxes,
    check_counted_axes,
    check_dtype,
    constant,
    define_op,
    like,
)
from nxjax.ops.bitwise import and_, or_, xor
from nxjax.ops.compare import eq, gt, lt
from nxjax.ops.convert import cast, convert_element_type
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents, UndefinedPrimal
from nxjax.trace.dtypes import DType, highest, lowest
from nxjax.trace.sums import blocked_sum
from nxjax.trace.types import ArrayType


class ReduceOp(RemovesAxes, Combining):
    """Combines the elements along ``axes``, which disappear from the shape."""

    allowed: ClassVar[frozenset[DType]] = dtypes.NUMBER
    combiner: ClassVar[Any]
    wide: ClassVar[bool] = False  # 16-bit and smaller floats accumulate in float32

    def infer(self, x: ArrayType, /, *, axes: tuple[int, ...]) -> ArrayType:
        check_dtype(self, self.allowed, x)
        check_counted_axes(self, axes, x.ndim)
        return x.with_shape(tuple(n for i, n in enumerate(x.shape) if i not in axes))

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, axes: tuple[int, ...]) -> Any:
        dtype = x.type.dtype
        if self.wide and dtype in dtypes.FLOAT and dtype.itemsize < 4:
            x, wide = b.convert(x, dtypes.float32), ArrayType(out.shape, dtypes.float32)
            start = b.constant(self.identity(dtypes.float32), ArrayType((), dtypes.float32))
            return b.convert(b.reduce(self.combiner.hlo, x, start, axes, wide), dtype)
        return b.reduce(self.combiner.hlo, x, b.constant(self.identity(dtype), ArrayType((), dtype)), axes, out)


@final
class ReduceSum(LinearOp, ReduceOp):
    """Sum along ``axes``. float16 and bfloat16 accumulate in float32."""

    name = "reduce_sum"
    combiner = add
    wide = True

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...]) -> NDArray:
        y = blocked_sum(x, axes)
        # The sum of one element is the element: NumPy adds it to 0, which makes 0 of -0.
        return x.reshape(y.shape).copy() if y.size == x.size else y.astype(x.dtype)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, *, axes: tuple[int, ...]) -> Tangents:
        kept = tuple(i for i in range(x.ndim) if i not in axes)
        return (broadcast_in_dim(ct, shape=x.shape, broadcast_dimensions=kept),)


@final
class ReduceProd(ReduceOp):
    """Product along ``axes``."""

    name = "reduce_prod"
    combiner = mul
    wide = True

    def identity(self, dtype: DType) -> Any:
        return 1

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...]) -> NDArray:
        wide = np.float32 if x.dtype.itemsize < 4 and x.dtype in dtypes.FLOAT else x.dtype
        return np.asarray(np.prod(x, axis=axes, dtype=wide)).astype(x.dtype)

    def jvp(self, primals: Arrays, tangents: Tangents, *, axes: tuple[int, ...]) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        y = self(x, axes=axes)
        if t is None or not axes:
            return y, t
        # Every element's factor is the product of all the others, also where some element is zero.
        x, t = widened(x), widened(t)
        return y, convert_element_type(reduce_sum(mul(t, products_of_others(x, axes)), axes=axes), dtype=y.dtype)


def products_of_others(x: Array, axes: tuple[int, ...]) -> Array:
    """For every element, the product of the other elements along ``axes``.

    Exclusive products from the left times those from the right, so that no division is needed, of `balanced` elements,
    so that none of these products leaves the range of the dtype.
    """
    kept = [i for i in range(x.ndim) if i not in axes]
    order = (*kept, *axes)
    moved = transpose(x, permutation=order)
    n = math.prod(x.shape[a] for a in axes)
    rows = math.prod(x.shape[i] for i in kept)
    flat = reshape(moved, shape=(rows, n))
    one = constant(1, x.dtype)
    m, e = balanced(flat) if n > 2 else (flat, None)

    def exclusive(reverse: bool) -> Array:
        lo, hi = ((1, n), (0, 1)) if reverse else ((0, n - 1), (1, 0))
        start, limit = lo
        part = ops.slice(m, start_indices=(0, start), limit_indices=(rows, limit))
        padded = ops.pad(part, one, padding_config=((0, 0, 0), (hi[0], hi[1], 0)))
        return ops.cumprod(padded, axis=1, reverse=reverse)

    others = mul(exclusive(False), exclusive(True)) if n else flat
    if e is not None:
        total = broadcast_in_dim(reduce_sum(e, axes=(1,)), shape=e.shape, broadcast_dimensions=(0,))
        others = scaled(others, sub(total, e))
    inverse = sorted(range(x.ndim), key=order.__getitem__)
    return transpose(reshape(others, shape=moved.shape), permutation=tuple(inverse))


def widened(x: Array) -> Array:
    """Floats of less than 32 bits as float32, in which products and sums of them are accumulated."""
    narrow = x.dtype in dtypes.FLOAT and x.dtype.itemsize < 4
    return convert_element_type(x, dtype=dtypes.float32) if narrow else x


def balanced(x: Array) -> tuple[Array, Array]:
    """``x`` as ``m * 2**e`` with whole numbers ``e`` (int32), so that products of neighbours among ``m`` are near 1.

    The running sum of log2(abs(x)) along the last axis is rounded, and ``e`` are its steps. Zeros and what is not
    finite count as 1. ``e`` are constants to derivatives.
    """
    size = abs(x)
    known = ops.and_(gt(size, like(size, 0)), lt(size, like(size, np.inf)))
    powers = mul(ops.log(select_n(known, like(size, 1), size)), like(size, 1 / math.log(2)))
    axis = x.ndim - 1
    sums = ops.floor(add(ops.cumsum(powers, axis=axis, reverse=False), like(size, 0.5)))
    after = convert_element_type(sums, dtype=dtypes.int32)
    width = x.shape[axis]
    first = ops.slice(after, start_indices=(0,) * x.ndim, limit_indices=(*x.shape[:-1], width - 1))
    before = ops.pad(first, constant(0, dtypes.int32), padding_config=((0, 0, 0),) * axis + ((1, 0, 0),))
    e = sub(after, before)
    return scaled(x, neg(e)), e


def scaled(x: Array, e: Array) -> Array:
    """``x * 2**e`` for whole ``e`` (int32), exact but among subnormal numbers. Derivatives take ``e`` as constants.

    The power is two factors, since it may be out of range where the result is not.
    """
    real = dtypes.real_part(x.dtype)
    info = np.finfo(real)
    word = {4: dtypes.int32, 8: dtypes.int64}[real.itemsize]
    most = 2 * info.maxexp - 2  # powers beyond leave nothing of any number
    e = ops.max(ops.min(e, like(e, most)), like(e, -most))
    half = ops.shift_right_arithmetic(e, like(e, 1))
    for part in (half, sub(e, half)):
        whole = convert_element_type(part, dtype=word)
        bits = ops.shift_left(add(whole, like(whole, info.maxexp - 1)), like(whole, info.nmant))
        power = ops.bitcast_convert_type(bits, dtype=real)
        x = mul(x, cast(power, x.dtype))
    return x


class _Extremum(ReduceOp):
    """NaN wins. The tangent is the mean of those of the elements that attain the extremum."""

    makes_nan = False
    allowed = dtypes.NUMERIC - dtypes.COMPLEX
    ufunc: ClassVar[Any] = np.maximum

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...]) -> NDArray:
        start = np.asarray(self.identity(x.dtype)).astype(x.dtype)
        return np.asarray(type(self).ufunc.reduce(x, axis=axes, initial=start), x.dtype) if axes else x

    def jvp(self, primals: Arrays, tangents: Tangents, *, axes: tuple[int, ...]) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        y = self(x, axes=axes)
        if t is None:
            return y, None
        kept = tuple(i for i in range(x.ndim) if i not in axes)
        spread = broadcast_in_dim(y, shape=x.shape, broadcast_dimensions=kept)
        attained = convert_element_type(eq(x, spread), dtype=x.dtype)
        return y, div(reduce_sum(mul(t, attained), axes=axes), reduce_sum(attained, axes=axes))


class _Logic(Nondifferentiable, ReduceOp):
    """Bit by bit, of booleans by their truth."""

    allowed = dtypes.BITS
    ufunc: ClassVar[Any] = np.bitwise_or

    def eval(self, x: NDArray, /, *, axes: tuple[int, ...]) -> NDArray:
        return np.asarray(type(self).ufunc.reduce(x, axis=axes), x.dtype) if axes else x


def _all_bits(dtype: DType) -> Any:
    return True if dtype == dtypes.bool_ else -1 if dtype in dtypes.SIGNED else dtypes.integer_info(dtype).max


reduce_sum = ReduceSum()
reduce_prod = ReduceProd()
reduce_max = define_op(
    _Extremum,
    "reduce_max",
    "Largest along ``axes``; of no elements, the smallest value of the dtype.",
    combiner=max_,
    ufunc=np.maximum,
    start=lowest,
)
reduce_min = define_op(
    _Extremum,
    "reduce_min",
    "Smallest along ``axes``; of no elements, the largest value of the dtype.",
    combiner=min_,
    ufunc=np.minimum,
    start=highest,
)
reduce_and = define_op(
    _Logic,
    "reduce_and",
    "Bitwise (logical) and along ``axes``.",
    combiner=and_,
    ufunc=np.bitwise_and,
    start=_all_bits,
)
reduce_or = define_op(_Logic, "reduce_or", "Bitwise (logical) or along ``axes``.", combiner=or_, ufunc=np.bitwise_or)
reduce_xor = define_op(
    _Logic, "reduce_xor", "Bitwise (logical) exclusive or along ``axes``.", combiner=xor, ufunc=np.bitwise_xor
)
REDUCTIONS: Final[tuple[ReduceOp, ...]] = (
    reduce_sum, reduce_prod, reduce_max, reduce_min, reduce_and, reduce_or, reduce_xor
)  # fmt: skip
