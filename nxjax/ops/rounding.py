"""Rounding and float inspection: floor, ceil, round, is_finite, reduce_precision."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from nxjax.ops import vocabulary as ops
from nxjax.ops.base import LinearOp, NDArray, Nondifferentiable, Unary, check_dtype, define_op, like, require
from nxjax.ops.compare import lt
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType

AWAY_FROM_ZERO = 0
TO_NEAREST_EVEN = 1


class _Rounding(Nondifferentiable, Unary):
    makes_nan = False
    allowed = dtypes.FLOAT


floor = define_op(
    _Rounding,
    "floor",
    "Largest integer not above x",
    hlo="floor",
    ufunc=np.floor,
    example=("jnp.array([-1.5, 1.5])", "Array([-2.,  1.], dtype=float32)"),
)
ceil = define_op(
    _Rounding,
    "ceil",
    "Smallest integer not below x",
    hlo="ceil",
    ufunc=np.ceil,
    example=("jnp.array([-1.5, -0.5])", "Array([-1., -0.], dtype=float32)"),
)


@final
class Round(_Rounding):
    """Nearest integer; halves away from zero (``rounding_method`` 0) or to even (1)."""

    name = "round"

    def infer(self, x: ArrayType, /, *, rounding_method: int) -> ArrayType:
        require(
            self, rounding_method in (AWAY_FROM_ZERO, TO_NEAREST_EVEN), "rounding_method", rounding_method, "0 or 1"
        )
        return super().infer(x)

    def eval(self, x: NDArray, /, *, rounding_method: int) -> NDArray:
        if rounding_method == TO_NEAREST_EVEN:
            return np.asarray(np.rint(x), x.dtype)
        whole = np.trunc(x)
        step = np.where(np.abs(x - whole) >= 0.5, np.sign(x), 0).astype(x.dtype)
        return np.asarray(np.where(step == 0, whole, whole + step), x.dtype)  # -0 and 0 would be 0

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, rounding_method: int) -> Any:
        return b.simple("round_nearest_even" if rounding_method == TO_NEAREST_EVEN else "round_nearest_afz", (x,), out)


@final
class IsFinite(Nondifferentiable, Unary):
    """Neither infinite nor NaN"""

    name = "is_finite"
    gives = " (giving booleans)"
    allowed = dtypes.FLOAT
    example = "jnp.array([1.0, jnp.inf, jnp.nan])", "Array([ True, False, False], dtype=bool)"

    def infer(self, x: ArrayType, /) -> ArrayType:
        check_dtype(self, self.allowed, x)
        return ArrayType(x.shape, dtypes.bool_)

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(np.isfinite(x), np.bool_)

    def expand(self, x: Array, /) -> Array:
        if x.dtype in dtypes.NARROW:  # some have no infinity
            x = ops.convert_element_type(x, dtype=dtypes.float32)
        return lt(ops.abs(x), like(x, np.inf))

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        return b.op("stablehlo.is_finite", (x,), out)


@final
class ReducePrecision(LinearOp, Unary):
    """x rounded to a float format of ``exponent_bits`` and ``mantissa_bits``, kept in its dtype."""

    name = "reduce_precision"
    makes_nan = False
    allowed = dtypes.FLOAT

    def infer(self, x: ArrayType, /, *, exponent_bits: int, mantissa_bits: int) -> ArrayType:
        fine = 1 <= exponent_bits < 1 << 31 and 0 <= mantissa_bits < 1 << 31
        require(self, fine, "bits", (exponent_bits, mantissa_bits), ">= 1 and >= 0, below 2**31")
        return super().infer(x)

    def eval(self, x: NDArray, /, *, exponent_bits: int, mantissa_bits: int) -> NDArray:
        wide = x.astype(np.float64)
        # More bits than float64 has change nothing.
        exponent_bits, mantissa_bits = min(exponent_bits, 11), min(mantissa_bits, 52)
        mantissa, exponent = np.frexp(wide)
        # Nearest even at the last kept bit: the implicit leading one makes mantissa_bits + 1 significant bits.
        kept = np.rint(np.ldexp(mantissa, mantissa_bits + 1))
        if mantissa_bits == 0:
            # The last kept bit is the exponent's own; all formats have odd biases.
            kept = np.where((mantissa == np.copysign(0.75, wide)) & (exponent % 2 == 0), np.copysign(1.0, wide), kept)
        rounded = np.ldexp(kept, exponent - mantissa_bits - 1)
        bias = 2 ** (exponent_bits - 1) - 1
        largest = np.ldexp(2 - 2.0**-mantissa_bits, bias)
        out = np.where(np.abs(rounded) > largest, np.copysign(np.inf, wide), rounded)
        out = np.where(np.abs(out) < np.ldexp(1.0, 1 - bias), np.copysign(0, wide), out)
        return np.asarray(np.where(np.isfinite(wide), out, wide)).astype(x.dtype)

    def transpose(self, ct: Array, x: UndefinedPrimal, /, **params: Any) -> Tangents:
        return (self(ct, **params),)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /, *, exponent_bits: int, mantissa_bits: int) -> Any:
        attrs = f"exponent_bits = {exponent_bits} : i32, mantissa_bits = {mantissa_bits} : i32"
        return b.op("stablehlo.reduce_precision", (x,), out, attrs)


def truncate(x: Array) -> Array:
    """The integer part, rounded toward zero."""
    return select_n(lt(x, like(x, 0)), floor(x), ceil(x))


round = Round()
is_finite = IsFinite()
reduce_precision = ReducePrecision()
