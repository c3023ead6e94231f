"""Bits of integers, truth of booleans: and, or, xor, not, shifts, counts."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.ops.base import Binary, Face, NDArray, Nondifferentiable, Unary, define_op
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType


class _Logic(Nondifferentiable, Binary):
    allowed = dtypes.BITS

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        # NumPy has no bit operations on 4-bit types; a byte holds the same bits.
        function: Any = type(self).ufunc
        if x.dtype in (dtypes.int4, dtypes.uint4):
            return np.asarray(function(x.astype(np.int8), y.astype(np.int8))).astype(x.dtype)
        return np.asarray(function(x, y), x.dtype)


and_ = define_op(
    _Logic,
    "and",
    "Bitwise and",
    hlo="and",
    ufunc=np.bitwise_and,
    example=("jnp.array([12, 5]), 10", "Array([8, 0], dtype=int32)"),
    lax=Face("bitwise_and"),
)
or_ = define_op(
    _Logic,
    "or",
    "Bitwise or",
    hlo="or",
    ufunc=np.bitwise_or,
    example=("jnp.array([True, False]), False", "Array([ True, False], dtype=bool)"),
    lax=Face("bitwise_or"),
)
xor = define_op(
    _Logic,
    "xor",
    "Bitwise exclusive or",
    hlo="xor",
    ufunc=np.bitwise_xor,
    example=("jnp.array([12, 5]), 10", "Array([ 6, 15], dtype=int32)"),
    lax=Face("bitwise_xor"),
)


@final
class Not(Nondifferentiable, Unary):
    """Bitwise complement; logical for booleans."""

    name = "not"
    allowed = dtypes.BITS
    hlo = "not"
    example = "jnp.array([0, 7])", "Array([-1, -8], dtype=int32)"
    lax = Face("bitwise_not")

    def eval(self, x: NDArray, /) -> NDArray:
        if x.dtype in (dtypes.int4, dtypes.uint4):
            return np.bitwise_not(x.astype(np.int8)).astype(x.dtype)
        return np.asarray(np.bitwise_not(x), x.dtype)


def _word(dtype: DType, signed: bool) -> DType:
    """The NumPy integer of at least the dtype's width in which shifts are done."""
    bits = dtypes.bit_width(dtype) if dtype not in (dtypes.int4, dtypes.uint4) else 8
    return np.dtype(f"{'i' if signed else 'u'}{bits // 8}")


class _Shift(Nondifferentiable, Binary):
    """Shift of x by y bits; y outside [0, width) shifts everything out."""

    allowed = dtypes.INTEGER

    def shifted(self, x: NDArray, amount: NDArray, width: int, dtype: DType) -> NDArray:
        raise NotImplementedError

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        width = dtypes.bit_width(x.dtype)
        # A negative amount is a large unsigned one.
        amount = y.astype(np.int64) if y.dtype != dtypes.uint64 else np.minimum(y, np.uint64(width)).astype(np.int64)
        amount = np.where((amount < 0) | (amount > width), width, amount)
        return np.asarray(self.shifted(x, amount, width, x.dtype)).astype(x.dtype)


def _unsigned(x: NDArray, width: int) -> NDArray:
    word = _word(x.dtype, signed=False)
    bits = x.astype(word) if x.dtype in (dtypes.int4, dtypes.uint4) else x.view(word)
    return bits & word.type(2**width - 1)


@final
class ShiftLeft(_Shift):
    """x << y, filled with zeros."""

    name = "shift_left"
    hlo = "shift_left"
    example = "jnp.array([1, 1]), jnp.array([4, 32])", "Array([16,  0], dtype=int32)"

    def shifted(self, x: NDArray, amount: NDArray, width: int, dtype: DType) -> NDArray:
        bits = _unsigned(x, width)
        out = np.where(amount < width, bits << np.minimum(amount, width - 1).astype(bits.dtype), 0).astype(bits.dtype)
        return _signed_again(out, dtype)


@final
class ShiftRightLogical(_Shift):
    """x >> y, filled with zeros."""

    name = "shift_right_logical"
    hlo = "shift_right_logical"
    example = "jnp.array([-1, 8], jnp.int8), jnp.array([1, 1], jnp.int8)", "Array([127,   4], dtype=int8)"

    def shifted(self, x: NDArray, amount: NDArray, width: int, dtype: DType) -> NDArray:
        bits = _unsigned(x, width)
        out = np.where(amount < width, bits >> np.minimum(amount, width - 1).astype(bits.dtype), 0).astype(bits.dtype)
        return _signed_again(out, dtype)


def _signed_again(bits: NDArray, dtype: DType) -> NDArray:
    if dtype == dtypes.int4:
        return ((bits << 4).view(np.int8) >> 4).astype(np.int8)
    if dtype == dtypes.uint4:
        return bits & np.uint8(15)
    return bits.view(dtype)


@final
class ShiftRightArithmetic(_Shift):
    """x >> y, copies of the sign bit coming in."""

    name = "shift_right_arithmetic"
    hlo = "shift_right_arithmetic"
    example = "jnp.array([-16, 8]), 2", "Array([-4,  2], dtype=int32)"

    def shifted(self, x: NDArray, amount: NDArray, width: int, dtype: DType) -> NDArray:
        if dtype == dtypes.int4:
            return x.astype(np.int8) >> np.minimum(amount, 3).astype(np.int8)
        bits = _signed_again(_unsigned(x, width), dtypes.int4) if width == 4 else x.view(_word(dtype, signed=True))
        out = bits >> np.minimum(amount, width - 1).astype(bits.dtype)
        return out & np.int8(15) if width == 4 else out.view(dtype)


def _narrow(counts: NDArray, dtype: DType) -> NDArray:
    """Small counts in ``dtype``, modulo its range."""
    return _signed_again(counts.astype(np.uint8), dtype).astype(dtype) if dtype == dtypes.int4 else counts.astype(dtype)


class _Count(Nondifferentiable, Unary):
    allowed = dtypes.INTEGER


@final
class PopulationCount(_Count):
    """Number of set bits"""

    name = "population_count"
    hlo = "popcnt"
    example = "jnp.array([7, -1], jnp.int8)", "Array([3, 8], dtype=int8)"

    def eval(self, x: NDArray, /) -> NDArray:
        return _narrow(np.bitwise_count(_unsigned(x, dtypes.bit_width(x.dtype))), x.dtype)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        if out.dtype != dtypes.int4:
            return super().stablehlo(b, out, x)
        # Compilers widen four bits to eight, and the sign would be counted there.
        byte = ArrayType(out.shape, dtypes.uint8)
        bits = b.simple("and", (b.convert(b.convert(x, dtypes.int8), dtypes.uint8), b.constant(15, byte)), byte)
        return b.convert(b.simple("popcnt", (bits,), byte), dtypes.int4)


@final
class Clz(_Count):
    """Number of leading zero bits"""

    name = "clz"
    hlo = "count_leading_zeros"
    example = "jnp.array([0, 1, -1], jnp.int8)", "Array([8, 7, 0], dtype=int8)"

    def eval(self, x: NDArray, /) -> NDArray:
        width = dtypes.bit_width(x.dtype)
        bits = _unsigned(x, width).astype(np.uint64)
        # Smear the highest bit downwards; what is left unset are the leading zeros.
        for step in (1, 2, 4, 8, 16, 32):
            bits = bits | (bits >> np.uint64(step))
        return _narrow(width - np.bitwise_count(bits), x.dtype)


not_ = Not()
shift_left = ShiftLeft()
shift_right_logical = ShiftRightLogical()
shift_right_arithmetic = ShiftRightArithmetic()
population_count = PopulationCount()
clz = Clz()
