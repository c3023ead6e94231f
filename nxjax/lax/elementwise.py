"""`jax.lax`'s elementwise functions. Strict: see `_operands` for the little that is converted.

Those that are an op are made from what the op says; the others are written here.
"""

from __future__ import annotations

import enum

from nxjax.lax._operands import aligned, lax_function, reject_bool
from nxjax.numpy.documented import example
from nxjax.ops import arithmetic, bitwise, compare, convert, rounding
from nxjax.ops import select as select_ops
from nxjax.ops.base import require
from nxjax.ops.vocabulary import functions
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array

__getattr__ = functions("lax", __name__, globals(), lambda op, own: lax_function(op, own, __name__))


class RoundingMethod(enum.IntEnum):
    """How `round` treats halves.

    >>> lax.round(jnp.array([0.5, 1.5, -2.5]), lax.RoundingMethod.TO_NEAREST_EVEN)
    Array([ 0.,  2., -2.], dtype=float32)
    """

    AWAY_FROM_ZERO = rounding.AWAY_FROM_ZERO
    TO_NEAREST_EVEN = rounding.TO_NEAREST_EVEN


@example("jnp.array([250, 1], jnp.uint8), jnp.array([10, 1], jnp.uint8)", "Array([4, 2], dtype=uint8)")
def add(x: ArrayLike, y: ArrayLike) -> Array:
    """x + y

    Takes integers, floats or complex numbers, both of one dtype and one shape; a scalar, or a dimension of size 1, is
    repeated.

    Raises:
        DtypeError: the operands differ in dtype, or their dtype is not supported.
        ShapeError: the shapes do not fit.
    """
    a, b = aligned("add", x, y)
    reject_bool("add", a)
    return arithmetic.add(a, b)


def mul(x: ArrayLike, y: ArrayLike, *, out_dtype: DTypeLike | None = None) -> Array:
    """x * y; with ``out_dtype``, the operands are converted to it first.

    Takes numbers of one dtype and shape; a scalar is repeated. Integers wrap around.

    Raises:
        DtypeError: the dtypes differ, or are boolean.
        ShapeError: the shapes do not fit.

    >>> x = jnp.array([100, 2], jnp.int8)
    >>> lax.mul(x, x)
    Array([16,  4], dtype=int8)
    >>> lax.mul(x, x, out_dtype=jnp.int32)
    Array([10000,     4], dtype=int32)
    """
    if out_dtype is not None:
        x, y = convert_element_type(x, out_dtype), convert_element_type(y, out_dtype)
    a, b = aligned("mul", x, y)
    reject_bool("mul", a)
    return arithmetic.mul(a, b)


@example("jnp.array([100, -1], jnp.int8), jnp.array([100, 1], jnp.int8)", "Array([39, -1], dtype=int8)")
def mulhi(x: ArrayLike, y: ArrayLike, /) -> Array:
    """The upper half of the bits of an integer product.

    Raises:
        DtypeError: the dtypes differ.
        ParameterError: they are not integers.
    """
    a, b = aligned("mulhi", x, y)
    require("mulhi", a.dtype in dtypes.INTEGER, "operands are integers", a.type)
    bits = dtypes.bit_width(a.dtype)
    if bits < 64:
        # The whole product fits the next wider type.
        wide = dtypes.int64 if a.dtype in dtypes.SIGNED else dtypes.uint64
        product = arithmetic.mul(*(convert.convert_element_type(v, dtype=wide) for v in (a, b)))
        shift = bitwise.shift_right_arithmetic if a.dtype in dtypes.SIGNED else bitwise.shift_right_logical
        weak = a.type.weak and b.type.weak
        return convert.convert_element_type(shift(product, bits), dtype=a.dtype, weak=weak)
    return _mulhi64(a, b)


def _mulhi64(a: Array, b: Array) -> Array:
    """By halves of 32 bits; for signed numbers the unsigned result, less each operand where the other is negative."""
    unsigned = [convert.convert_element_type(v, dtype=dtypes.uint64) for v in (a, b)]
    (al, ah), (bl, bh) = ((bitwise.and_(v, 0xFFFFFFFF), bitwise.shift_right_logical(v, 32)) for v in unsigned)
    middle = arithmetic.add(arithmetic.mul(ah, bl), bitwise.shift_right_logical(arithmetic.mul(al, bl), 32))
    other = arithmetic.add(arithmetic.mul(al, bh), bitwise.and_(middle, 0xFFFFFFFF))
    high = arithmetic.add(
        arithmetic.mul(ah, bh),
        arithmetic.add(bitwise.shift_right_logical(middle, 32), bitwise.shift_right_logical(other, 32)),
    )
    if a.dtype == dtypes.uint64:
        return high
    signed = convert.convert_element_type(high, dtype=dtypes.int64)
    for x, y in ((a, b), (b, a)):
        signed = arithmetic.sub(signed, select_ops.select_n(compare.lt(x, 0), arithmetic.sub(y, y), y))
    return signed


def pow(x: ArrayLike, y: ArrayLike) -> Array:
    """x to the power y, for float or complex x; an integer y is converted to the dtype of x.

    Raises:
        DtypeError: ``x`` is an integer: see `integer_pow`; or the dtypes differ.
        ShapeError: the shapes differ.

    >>> lax.pow(jnp.array([2.0, 0.0]), jnp.array([-1, 0]))
    Array([0.5, 1. ], dtype=float32)
    >>> lax.pow(-8.0, 1 / 3)
    Array(nan, dtype=float32, weak_type=True)
    """
    base, exponent = as_value(x, "pow"), as_value(y, "pow")
    if exponent.dtype in dtypes.INTEGER and base.dtype in dtypes.INEXACT:
        exponent = convert.convert_element_type(exponent, dtype=base.dtype, weak=exponent.type.weak)
    return arithmetic.pow(*aligned("pow", base, exponent))


@example(
    "jnp.array([2, -3]), 3",
    "Array([  8, -27], dtype=int32)",
    "jnp.array([2.0, 0.0]), -1",
    "Array([0.5, inf], dtype=float32)",
    raises="DtypeError: the operand is not a number, or an integer with a negative power.",
)
def integer_pow(x: ArrayLike, y: int) -> Array:
    """x to a power that is a Python int.

    Keeps shape and dtype. Integers wrap around.
    """
    return arithmetic.integer_pow(as_value(x, "integer_pow"), y=y.__index__())


@example("jnp.array([4.0, 0.0, -jnp.inf])", "Array([ 0.25,   inf, -0.  ], dtype=float32)")
def reciprocal(x: ArrayLike) -> Array:
    """1 / x

    Takes floats or complex numbers and keeps shape and dtype.

    Raises:
        DtypeError: the operand is an integer or boolean.
    """
    return integer_pow(x, -1)


@example(
    "jnp.array([0.5, 1.5, -2.5])",
    "Array([ 1.,  2., -3.], dtype=float32)",
    "jnp.array([0.5, 1.5, -2.5]), lax.RoundingMethod.TO_NEAREST_EVEN",
    "Array([ 0.,  2., -2.], dtype=float32)",
    raises="DtypeError: the operand is not a float.",
)
def round(x: ArrayLike, rounding_method: RoundingMethod | int = RoundingMethod.AWAY_FROM_ZERO) -> Array:
    """The nearest integer.

    Halves go away from zero, or to the even neighbour. Keeps shape and dtype.
    """
    return rounding.round(as_value(x, "round"), rounding_method=int(rounding_method))


@example("jnp.array([1.001, 70000.0]), 5, 10", "Array([1.0009766,       inf], dtype=float32)")
def reduce_precision(operand: ArrayLike, exponent_bits: int, mantissa_bits: int) -> Array:
    """The operand rounded to a float format of that many bits, kept in its dtype.

    What is too large becomes infinite.

    Raises:
        DtypeError: the operand is not a float.
    """
    x = as_value(operand, "reduce_precision")
    return rounding.reduce_precision(x, exponent_bits=int(exponent_bits), mantissa_bits=int(mantissa_bits))


@example(
    "jnp.array([-1.7, 300.0, jnp.nan]), jnp.int8",
    "Array([ -1, 127,   0], dtype=int8)",
    "jnp.array([257, -1]), jnp.uint8",
    "Array([  1, 255], dtype=uint8)",
    raises="DtypeError: no such dtype.",
)
def convert_element_type(operand: ArrayLike, new_dtype: DTypeLike | None = None) -> Array:
    """The values of the operand in another dtype; None keeps its own.

    Floats are truncated to integers and clamped to the limits; NaN becomes 0. Integers wrap around.
    """
    x = as_value(operand, "convert_element_type")
    dtype = x.dtype if new_dtype is None else dtypes.as_dtype(new_dtype)
    weak = new_dtype is None and x.type.weak
    if x.dtype == dtype and x.type.weak == weak:
        return x
    return convert.convert_element_type(x, dtype=dtype, weak=weak)


def bitcast_convert_type(operand: ArrayLike, new_dtype: DTypeLike) -> Array:
    """The operand's bits read as another dtype.

    A narrower dtype adds a dimension at the end, a wider one removes it.

    Raises:
        DtypeError: a dtype has no bits to read: it is boolean or complex.
        ShapeError: the last dimension does not hold the bits of the wider dtype.

    >>> lax.bitcast_convert_type(jnp.array([1.0, -0.0]), jnp.int32)
    Array([ 1065353216, -2147483648], dtype=int32)
    >>> lax.bitcast_convert_type(jnp.array([258]), jnp.uint8)
    Array([[2, 1, 0, 0]], dtype=uint8)
    """
    return convert.bitcast_convert_type(
        as_value(operand, "bitcast_convert_type"), dtype=dtypes.as_bits(new_dtype, "bitcast_convert_type")
    )


@example("jnp.array([True, False]), jnp.array([1, 2]), jnp.array([-1, -2])", "Array([ 1, -2], dtype=int32)")
def select(pred: ArrayLike, on_true: ArrayLike, on_false: ArrayLike) -> Array:
    """``on_true`` where ``pred``, else ``on_false``.

    ``pred`` is boolean, of the shape of the others or a scalar.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the shapes differ.
    """
    return select_ops.select_n(as_value(pred, "select"), *aligned("select", on_false, on_true))


def select_n(which: ArrayLike, *cases: ArrayLike) -> Array:
    """``cases[which]``, element by element.

    ``which`` is boolean (two cases) or int32, of the shape of the cases or a scalar.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: the shapes differ.
        ParameterError: no case.

    >>> lax.select_n(jnp.array([0, 2, 1]), jnp.array([1, 2, 3]), jnp.array([10, 20, 30]), jnp.array([100, 200, 300]))
    Array([  1, 200,  30], dtype=int32)
    """
    require("select_n", len(cases) > 0, "needs at least one case", len(cases))
    return select_ops.select_n(as_value(which, "select_n"), *aligned("select_n", *cases))


def clamp(min: ArrayLike, x: ArrayLike, max: ArrayLike) -> Array:
    """``x`` moved between ``min`` and ``max``, which have its shape or are scalars.

    Where the limits cross, ``max`` decides; NaN stays.

    Raises:
        DtypeError: the dtypes differ.
        ShapeError: a limit has another shape.

    >>> lax.clamp(0.0, jnp.array([-1.0, 0.5, jnp.nan]), 1.0)
    Array([0. , 0.5, nan], dtype=float32)
    >>> lax.clamp(3, jnp.array([1, 9]), 2)
    Array([2, 2], dtype=int32)
    """
    low, middle, high = (as_value(v, "clamp") for v in (min, x, max))
    scalars = [v for v in (low, high) if not v.shape]
    cast = aligned("clamp", middle, *scalars) if scalars else [middle]
    converted = iter(convert_element_type(v, cast[0].dtype) for v in scalars)
    low, high = (next(converted) if not v.shape else v for v in (low, high))
    return select_ops.clamp(low, cast[0], high)
