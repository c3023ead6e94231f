"""Rules of elementwise operations: arithmetic, comparisons, conversions, and CHLO's functions."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.ops import (
    arithmetic,
    bitwise,
    compare,
    convert,
    elementary,
    rounding,
    select,
    special,
)
from nxjax.ops import complex as complex_ops
from nxjax.ops.base import Unary, like
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.stablehlo.bits import mulhi, order_bits
from nxjax.stablehlo.walk import Operation, Scope, refused, result, rule
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap

# Ops of one operand that are one operation, and what several are.
_OPS: Final = [op for f in (arithmetic, bitwise, elementary, rounding, special) for op in vars(f).values()]
_UNARY: Final[dict[str, Any]] = {
    **{op.hlo: op for op in _OPS if isinstance(op, Unary) and op.hlo},
    "imag": complex_ops.imag,
    "is_finite": rounding.is_finite,
    "real": complex_ops.real,
    "sign": arithmetic.sign,
}
_CHLO: Final[dict[str, Any]] = {
    **{op.chlo: op for op in _OPS if isinstance(op, elementary.Smooth) and op.chlo},
    "bessel_i1e": special.bessel_i1e,
    "conj": complex_ops.conj,
    "next_after": arithmetic.nextafter,
    "polygamma": special.polygamma,
    "square": arithmetic.square,
    "tan": elementary.tan,
    "zeta": special.zeta,
}
_BINARY: Final[dict[str, Any]] = {
    "add": arithmetic.add,
    "and": bitwise.and_,
    "atan2": arithmetic.atan2,
    "complex": complex_ops.complex,
    "divide": arithmetic.div,
    "maximum": arithmetic.max,
    "minimum": arithmetic.min,
    "multiply": arithmetic.mul,
    "or": bitwise.or_,
    "power": arithmetic.pow,
    "remainder": arithmetic.rem,
    "shift_left": bitwise.shift_left,
    "shift_right_arithmetic": bitwise.shift_right_arithmetic,
    "shift_right_logical": bitwise.shift_right_logical,
    "subtract": arithmetic.sub,
    "xor": bitwise.xor,
}
# Arithmetic of truth values.
_LOGIC: Final[dict[str, Any]] = {
    "add": bitwise.or_,
    "maximum": bitwise.or_,
    "minimum": bitwise.and_,
    "multiply": bitwise.and_,
    "subtract": bitwise.xor,
}
_COMPARE: Final[dict[str, Any]] = {
    "EQ": compare.eq,
    "GE": compare.ge,
    "GT": compare.gt,
    "LE": compare.le,
    "LT": compare.lt,
    "NE": compare.ne,
}


def _plain(function: Any) -> Any:
    def apply(_: Scope, op: Operation, *xs: Array) -> Array:
        return function(*xs)

    return apply


for _name, _function in _UNARY.items():
    rule(f"stablehlo.{_name}")(_plain(_function))
for _name, _function in _CHLO.items():
    rule(f"chlo.{_name}")(_plain(_function))


def binary(name: str, x: Array, y: Array) -> Array:
    """A two-operand operation of StableHLO."""
    if x.dtype == dtypes.bool_ and name in _LOGIC:
        return _LOGIC[name](x, y)
    if name == "power" and x.dtype in dtypes.INTEGER:
        return integer_power(x, y)
    if name == "remainder" and x.dtype in dtypes.COMPLEX:
        raise LoweringError(
            "from_stablehlo: stablehlo.remainder has no meaning for complex numbers",
            got=x.type,
            expected="integers or real floats",
        )
    return _BINARY[name](x, y)


def _binary_rule(name: str) -> Any:
    def apply(_: Scope, op: Operation, x: Array, y: Array) -> Array:
        return binary(name, x, y)

    return apply


for _name in _BINARY:
    rule(f"stablehlo.{_name}")(_binary_rule(_name))


def integer_power(x: Array, y: Array) -> Array:
    """``x ** y`` of integers by squaring; a negative exponent leaves 1, -1 and 0 as StableHLO says."""
    one, zero = like(x, 1), like(x, 0)
    bits = dtypes.bit_width(x.dtype)
    total, base, left = one, x, y
    for _ in range(bits):
        odd = compare.ne(bitwise.and_(left, like(left, 1)), like(left, 0))
        total = select.select_n(odd, total, arithmetic.mul(total, base))
        base = arithmetic.mul(base, base)
        left = bitwise.shift_right_logical(left, like(left, 1))
    if x.dtype not in dtypes.SIGNED:
        return total
    odd = compare.ne(bitwise.and_(y, one), zero)
    minus = like(x, -1)
    inverse = select.select_n(
        compare.eq(x, minus),
        select.select_n(compare.eq(x, one), zero, one),
        select.select_n(odd, one, minus),
    )
    return select.select_n(compare.lt(y, zero), total, inverse)


@rule("stablehlo.round_nearest_afz")
def _round_afz(_: Scope, op: Operation, x: Array) -> Array:
    return rounding.round(x, rounding_method=0)


@rule("stablehlo.round_nearest_even")
def _round_even(_: Scope, op: Operation, x: Array) -> Array:
    return rounding.round(x, rounding_method=1)


@rule("stablehlo.reduce_precision")
def _reduce_precision(_: Scope, op: Operation, x: Array) -> Array:
    a = op.attributes
    return rounding.reduce_precision(x, exponent_bits=a["exponent_bits"], mantissa_bits=a["mantissa_bits"])


@rule("stablehlo.convert")
def _convert(_: Scope, op: Operation, x: Array) -> Array:
    dtype = result(op).dtype
    return x if dtype == x.dtype else convert.convert_element_type(x, dtype=dtype)


@rule("stablehlo.bitcast_convert")
def _bitcast(_: Scope, op: Operation, x: Array) -> Array:
    out = result(op)
    if x.dtype == out.dtype:
        return x
    if x.dtype in dtypes.COMPLEX or out.dtype in dtypes.COMPLEX:
        raise refused(op, "the bits of a complex number are not those of another type here")
    return convert.bitcast_convert_type(x, dtype=out.dtype)


def compared(direction: str, kind: str, x: Array, y: Array) -> Array:
    """``EQ NE LT LE GT GE``; TOTALORDER tells zeros and NaNs apart."""
    if kind == "TOTALORDER" and x.dtype in dtypes.FLOAT:
        x, y = order_bits(x), order_bits(y)
    return _COMPARE[direction](x, y)


@rule("stablehlo.compare")
def _compare(_: Scope, op: Operation, x: Array, y: Array) -> Array:
    return compared(op.attributes["comparison_direction"], op.attributes.get("compare_type", ""), x, y)


@rule("stablehlo.select")
def _select(_: Scope, op: Operation, which: Array, yes: Array, no: Array) -> Array:
    return select.select_n(which, no, yes)


@rule("stablehlo.clamp")
def _clamp(_: Scope, op: Operation, low: Array, x: Array, high: Array) -> Array:
    return select.clamp(low, x, high)


@rule("stablehlo.map")
def _map(scope: Scope, op: Operation, *xs: Array) -> Any:
    shape = xs[0].shape
    if not shape:
        return scope.function(op.regions[0])(*xs)
    function: Any = lambda *scalars: tuple(scope.function(op.regions[0])(*scalars))
    for _ in shape:
        function = vmap(function)
    return function(*xs)


@rule("chlo.is_inf")
def _is_inf(_: Scope, op: Operation, x: Array) -> Array:
    return compare.eq(arithmetic.abs(x), like(x, np.inf))


@rule("chlo.is_pos_inf")
def _is_pos_inf(_: Scope, op: Operation, x: Array) -> Array:
    return compare.eq(x, like(x, np.inf))


@rule("chlo.is_neg_inf")
def _is_neg_inf(_: Scope, op: Operation, x: Array) -> Array:
    return compare.eq(x, like(x, -np.inf))


@rule("chlo.mulhi")
def _mulhi(_: Scope, op: Operation, x: Array, y: Array) -> Array:
    return mulhi(x, y)


@rule("chlo.constant_like")
def _constant_like(_: Scope, op: Operation, x: Array) -> Array:
    value = op.attributes["value"]
    return like(x, complex(value.strip("()").replace(",", "+") + "j") if isinstance(value, str) else value)


@rule("chlo._asin_acos_kernel")
def _kernel(_: Scope, op: Operation, x: Array) -> Array:
    raise refused(op, "it is a step of a lowering and no function of its own")


def _spread(scope: Scope, op: Operation, *xs: Array) -> list[Array]:
    """Operands of CHLO's broadcasting forms in one shape."""
    shape = np.broadcast_shapes(*(x.shape for x in xs))
    given = op.attributes.get("broadcast_dimensions")
    rank = max(x.ndim for x in xs)
    spread: list[Array] = []
    for x in xs:
        dims = tuple(given) if given is not None and x.ndim < rank else tuple(range(len(shape) - x.ndim, len(shape)))
        target = result(op).shape
        kept = tuple(d for d, n in zip(dims, x.shape, strict=True) if n == target[d])
        if len(kept) < x.ndim:
            x = reshape(x, shape=tuple(target[d] for d in kept))
        spread.append(x if x.shape == target else broadcast_in_dim(x, shape=target, broadcast_dimensions=kept))
    return spread


def _broadcast_rule(name: str) -> Any:
    def apply(scope: Scope, op: Operation, *xs: Array) -> Array:
        ys = _spread(scope, op, *xs)
        if name in _BINARY:
            return binary(name, *ys)
        if name == "compare":
            return compared(op.attributes["comparison_direction"], op.attributes.get("compare_type", ""), *ys)
        if name == "select":
            return select.select_n(ys[0], ys[2], ys[1])
        return _CHLO[name](*ys)

    return apply


for _name in (*_BINARY, "compare", "select", "next_after", "polygamma", "zeta"):
    rule(f"chlo.broadcast_{_name}")(_broadcast_rule(_name))


# CHLO's functions by the names that composites and portable artifacts give them.
RECOGNIZED: Final[dict[str, Any]] = {f"chlo.{name}": function for name, function in _CHLO.items()}
