"""64-bit values on tiles that have none: integers that are known to be small, and floats that only guard a rounding.

The integer arithmetic of quantized ops is written in int64 so that products do not wrap. Inside one vertex that is
fine, as C++ has the type; in tile memory such a value lies as int32, if its bounds say that it fits, else as two words.
Bounds follow from what the value is made of. A float64 that is rounded to float32 after one operation on float32 values
is that operation in float32: 53 bits are more than twice 24 and two (Figueroa, "When is double rounding innocuous?",
1995).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.lower.ipu.builder import Builder
from nxjax.lower.ipu.lazy import LazyOp, Value
from nxjax.lower.ipu.program import VariableView
from nxjax.ops.base import DataMovement
from nxjax.ops.rounding import AWAY_FROM_ZERO
from nxjax.trace.program import Equation, Literal, Var
from nxjax.trace.types import ArrayType

INTEGERS: Final = (np.dtype(np.int64), np.dtype(np.uint64))
FLOAT: Final = np.dtype(np.float64)
INT: Final = np.dtype(np.int32)
SINGLE: Final = np.dtype(np.float32)
LOW, HIGH = -(2**31), 2**31 - 1

Bounds = tuple[float, float]
# Bounds of a result, from those of the integer operands.
Row = Callable[[Equation, Sequence[Bounds]], Bounds]
# The name of a lazy constant of float64 values that float32 cannot hold.
FACTORS: Final = "float64 constants"

# Ops that choose among elements: bounds are those of all operands together, as of those that move them.
_CHOOSES: Final = ("reduce_max", "reduce_min", "cummax", "cummin", "reduce_window_max", "reduce_window_min")
# One operation of float32 values that float64 guards.
_SAFE: Final = frozenset(("add", "sub", "mul", "div", "sqrt"))


def in_words(e: Equation) -> bool:
    """Whether an op may be done on the low and the high words of integers apart: it moves them, by no wide index."""
    if not isinstance(e.op, DataMovement):
        return False
    moved = range(len(e.inputs))[e.op.moved]
    return not any(is_wide(a.type.dtype) for i, a in enumerate(e.inputs) if i not in moved)


def is_wide(dtype: np.dtype[Any]) -> bool:
    return dtype in INTEGERS or dtype == FLOAT


def converted(b: Builder, x: Value, dtype: np.dtype[Any], bounds: Bounds | None = None) -> LazyOp:
    """``x`` by value in another dtype, lazily."""
    y = LazyOp("convert_element_type", (x,), {"dtype": dtype}, x.shape, dtype, b.source, b.scope)
    y.bounds = bounds
    if isinstance(x, LazyOp):
        x.refs += 1
    return y


def constant(b: Builder, data: np.ndarray[Any, Any]) -> LazyOp | None:
    """A 64-bit constant, or None if tiles cannot hold it."""
    flat = data.reshape(-1)
    bits = flat.view(np.uint64)  # 0.0 is not -0.0
    if data.size and bool((bits == bits[0]).all()):
        return LazyOp("literal", (), {"value": flat[0]}, data.shape, data.dtype, b.source, b.scope)
    small = INT if data.dtype in INTEGERS else SINGLE
    with np.errstate(all="ignore"):
        narrow = data.astype(small)
        if not np.array_equal(narrow.astype(data.dtype), data):
            if data.dtype in INTEGERS:
                return None
            # Factors of a rescaling: see `scaled`.
            return LazyOp(FACTORS, (), {"value": data}, data.shape, data.dtype, b.source, b.scope)
    bounds = (int(data.min()), int(data.max())) if data.size and data.dtype in INTEGERS else None
    return converted(b, b.constant(narrow), data.dtype, bounds)


def stored(x: LazyOp) -> LazyOp | VariableView | None:
    """What a 64-bit value is as one that tiles hold: an int32 or float32 value, or None if it does not fit."""
    if x.name == "convert_element_type" and x.xs and x.xs[0].dtype in (INT, SINGLE):
        return x.xs[0] if (x.xs[0].dtype == INT) == (x.dtype in INTEGERS) else None
    if x.dtype == FLOAT:
        return None
    low, high = bounds_of(x)
    return None if low < LOW or high > HIGH else x


def narrowed(b: Builder, x: LazyOp) -> Value | None:
    """A 64-bit value as one that tiles hold, or None if it does not fit."""
    found = as_single(x) if x.dtype == FLOAT else stored(x)
    return converted(b, x, INT, bounds_of(x)) if found is x else found


def as_single(x: Value) -> Value | None:
    """The float32 value that a float64 one is the conversion of."""
    if not isinstance(x, LazyOp) or x.view is not None:
        return None
    if x.name == "convert_element_type" and x.xs[0].dtype in (SINGLE, np.dtype(np.float16)):
        return x.xs[0] if x.xs[0].dtype == SINGLE else None
    if x.name == "literal" and (np.float64(np.float32(x.params["value"])) == x.params["value"]):
        return LazyOp("literal", (), {"value": np.float32(x.params["value"])}, x.shape, SINGLE, x.source, x.scope)
    return None


def rounded(x: LazyOp) -> LazyOp | None:
    """float64 ``x`` rounded to float32, as work in float32; None if that is not the same."""
    found = as_single(x)
    if isinstance(found, LazyOp):
        return found
    if x.name not in _SAFE:
        return None
    operands = [as_single(v) for v in x.xs]
    if any(o is None for o in operands):
        return None
    xs = tuple(o for o in operands if o is not None)
    y = LazyOp(x.name, xs, x.params, x.shape, SINGLE, x.source, x.scope)
    for v in xs:
        if isinstance(v, LazyOp):
            v.refs += 1
    return y


def word(b: Builder, x: Value, number: int) -> LazyOp:
    """The low (0) or high (1) 32 bits of a 64-bit integer, as int32."""
    assert isinstance(x, LazyOp)
    work = WideOps(b, x)
    return converted(b, work("shift_right_arithmetic", x, 32) if number else x, INT)


def joined(b: Builder, low: Value, high: Value, dtype: np.dtype[Any]) -> LazyOp:
    """The 64-bit integer of two words."""
    upper = converted(b, high, INTEGERS[0], of_dtype(INT))
    lower = converted(b, low, INTEGERS[0], of_dtype(INT))
    work = WideOps(b, upper)
    whole = work("or", work("shift_left", upper, 32), work("and", lower, 2**32 - 1))
    return whole if dtype == INTEGERS[0] else converted(b, whole, dtype)


def moved(e: Equation, x: LazyOp) -> LazyOp | None:
    """A structural op on a constant that only this file knows."""
    if x.name not in (FACTORS, "literal") or e.op.multi or len(e.inputs) != 1:
        return None
    if not isinstance(e.op, DataMovement):
        return None
    data = x.params["value"] if x.name == "literal" else np.asarray(e.op.eval(x.params["value"], **e.params))
    return LazyOp(x.name, (), {"value": data}, e.outputs[0].type.shape, x.dtype, x.source, x.scope)


# --- the rescaling of quantized dense layers ---


def as_integer(b: Builder, x: Value) -> Value | None:
    """A float64 value that is known to be whole, as int64; None if it is not."""
    if not isinstance(x, LazyOp):
        return None
    if x.name == "literal":
        value = float(x.params["value"])
        if not value.is_integer() or abs(value) >= 2**53:
            return None
        return LazyOp("literal", (), {"value": np.int64(value)}, x.shape, INTEGERS[0], x.source, x.scope)
    if x.name == "convert_element_type" and x.xs[0].dtype.kind in "iu":
        inner = x.xs[0]
        return inner if inner.dtype == INTEGERS[0] else converted(b, inner, INTEGERS[0], bounds_of(inner))
    if x.name == "round" and x.params.get("rounding_method") == AWAY_FROM_ZERO:
        return _scaled(b, x.xs[0])
    if x.name in ("clamp", "max", "min", "add", "sub", "neg"):
        xs = [as_integer(b, v) for v in x.xs]
        if any(v is None for v in xs):
            return None
        y = LazyOp(x.name, tuple(v for v in xs if v is not None), x.params, x.shape, INTEGERS[0], x.source, x.scope)
        for v in y.xs:
            if isinstance(v, LazyOp):
                v.refs += 1
        return y
    return None


def _scaled(b: Builder, x: Value) -> Value | None:
    """The float64 product of an int32 and a positive factor, rounded to the nearest integer, halves away from zero.

    In integers, with the rounding of the product to 53 bits: it carries a value that is at most half a last bit below
    a half up to it. The factor is ``m * 2**-s`` with 53 bits m, and the product of its halves (27 and 26 bits) with 31
    bits fits 64.
    """
    if not isinstance(x, LazyOp) or x.name != "mul":
        return None
    whole, factor = x.xs if _is_factor(x.xs[1]) else x.xs[::-1]
    a = as_integer(b, whole)
    if a is None or not _is_factor(factor) or not isinstance(factor, LazyOp):
        return None
    low, high = bounds_of(a)
    fraction, exponent = np.frexp(np.broadcast_to(np.asarray(factor.params["value"], np.float64), x.shape))
    mantissa = np.ldexp(fraction, 53).astype(np.int64)
    right = 27 - exponent.astype(np.int64)  # of the product's upper part
    if low < LOW or high > HIGH or not bool(((mantissa > 0) & (right >= 1) & (right <= 62)).all()):
        return None
    parts = [constant(b, np.ascontiguousarray(v)) for v in (mantissa >> 26, mantissa & ((1 << 26) - 1), right)]
    if any(v is None for v in parts):
        return None
    work = WideOps(b, x)
    upper, lower, t = (v for v in parts if v is not None)
    size = work("abs", a)
    tail = work("mul", size, lower)
    total = work("add", work("mul", size, upper), work("shift_right_arithmetic", tail, 26))
    rest = work("and", tail, (1 << 26) - 1)
    quotient = work("shift_right_arithmetic", total, t)
    one = work("max", work("and", total, 0), 1)
    unit = work("shift_left", one, t)
    left = work("and", total, work("sub", unit, 1))
    # How far below a half, in units of the upper part, then in 2**-26 of them.
    below = work("sub", work("shift_right_arithmetic", unit, 1), left)
    near = work("sub", work("mul", work("min", work("max", below, -64), 64), 1 << 26), rest)
    bits = work("sub", 64, work("clz", total))
    shift = work("max", work("sub", bits, 28), 0)
    reach = work("shift_left", one, work("min", shift, 40))
    reach = work.choose(work.test("ge", bits, 28), work("sub", reach, reach), reach)
    up = work.choose(work.test("le", near, reach), work("sub", reach, reach), one)
    rounded = work("add", quotient, up)
    return work.choose(work.test("lt", a, 0), rounded, work("neg", rounded))


def _is_factor(x: Value) -> bool:
    return isinstance(x, LazyOp) and x.name in (FACTORS, "literal")


@final
class WideOps:
    """Writes lazy int64 ops; numbers among the operands are constants."""

    def __init__(self, b: Builder, like: LazyOp) -> None:
        self.b, self.like = b, like

    def _value(self, x: Any) -> Value:
        if isinstance(x, (VariableView, LazyOp)):
            return x
        at = self.like
        return LazyOp("literal", (), {"value": np.int64(x)}, at.shape, INTEGERS[0], at.source, at.scope)

    def _made(self, name: str, dtype: np.dtype[Any], xs: Sequence[Any]) -> LazyOp:
        values = tuple(self._value(x) for x in xs)
        y = LazyOp(name, values, {}, self.like.shape, dtype, self.like.source, self.like.scope)
        for v in values:
            if isinstance(v, LazyOp):
                v.refs += 1
        return y

    def __call__(self, name: str, *xs: Any) -> LazyOp:
        return self._made(name, INTEGERS[0], xs)

    def test(self, name: str, *xs: Any) -> LazyOp:
        return self._made(name, np.dtype(np.bool_), xs)

    def choose(self, test: LazyOp, no: Any, yes: Any) -> LazyOp:
        return self._made("select_n", INTEGERS[0], (test, no, yes))


# --- bounds ---


def of_dtype(dtype: np.dtype[Any]) -> Bounds:
    if dtype.kind == "b":
        return 0, 1
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        return int(info.min), int(info.max)
    return -math.inf, math.inf


def bounds_of(x: Value) -> Bounds:
    """Numbers that no element is below or above."""
    if isinstance(x, VariableView):
        value = x.variable.value
        if x.variable.role == "constant" and value is not None and value.size and value.dtype.kind in "iu":
            return int(value.min()), int(value.max())
        if x.variable.role == "constant" and value is not None and value.size and bool(np.isfinite(value).all()):
            return float(value.min()), float(value.max())
        return of_dtype(x.dtype)
    if x.bounds is None:
        low, high = _bounds(x)
        least, most = of_dtype(x.dtype)
        # What leaves the dtype wraps.
        x.bounds = (low, high) if least <= low and high <= most else (least, most)
    return x.bounds


def _bounds(x: LazyOp) -> Bounds:
    if x.view is not None:
        return bounds_of(x.view)
    if x.name == "literal":
        value = x.params["value"]
        return (int(value), int(value)) if x.dtype.kind in "iu" else (float(value), float(value))
    parts = [bounds_of(v) for v in x.xs]
    (low, high), *rest = parts
    match x.name:
        case "convert_element_type":
            if x.xs[0].dtype.kind == "f" and x.dtype.kind in "iu":
                # Saturates, truncates, and a NaN becomes 0.
                least, most = of_dtype(x.dtype)
                whole = lambda v: int(v) if math.isfinite(v) else v
                return min(max(whole(low), least), 0), max(min(whole(high), most), 0)
            return low, high
        case "add":
            return low + rest[0][0], high + rest[0][1]
        case "sub":
            return low - rest[0][1], high - rest[0][0]
        case "neg":
            return -high, -low
        case "abs":
            return (0 if low <= 0 <= high else min(abs(low), abs(high))), max(abs(low), abs(high))
        case "mul":
            ends = [_product(p, q) for p in parts[0] for q in parts[1]]
            return min(ends), max(ends)
        case "max":
            return max(low, rest[0][0]), max(high, rest[0][1])
        case "min":
            return min(low, rest[0][0]), min(high, rest[0][1])
        case "clamp":
            (_, _), (under, over) = parts[1], parts[2]
            return min(max(parts[1][0], low), under), min(max(parts[1][1], high), over)
        case "select_n":
            return min(p[0] for p in parts[1:]), max(p[1] for p in parts[1:])
        case "shift_right_arithmetic" | "shift_right_logical" if rest[0][0] >= 0 and (low >= 0 or "arith" in x.name):
            least, most = int(min(rest[0][0], 63)), int(min(rest[0][1], 63))
            ends = [int(v) >> k for v in (low, high) for k in (least, most)]
            return min(ends), max(ends)
        case "shift_left" if rest[0][0] >= 0 and rest[0][1] < 63:
            ends = [int(v) << int(k) for v in (low, high) for k in rest[0]]
            return min(ends), max(ends)
        case "and" if any(p[0] >= 0 for p in parts):
            return 0, min(p[1] for p in parts if p[0] >= 0)
        case "sign":
            return -1, 1
        case "clz" | "population_count":
            return 0, 8 * x.dtype.itemsize
        case "round" | "floor" | "ceil":
            return (math.floor(low) if math.isfinite(low) else low), (math.ceil(high) if math.isfinite(high) else high)
        case "div" if x.dtype.kind in "iu" and rest[0][0] > 0:
            ends = [_divided(v, d) for v in (low, high) for d in rest[0]]
            return min(ends), max(ends)
        case "rem" if x.dtype.kind in "iu" and rest[0][0] > 0:
            return (0 if low >= 0 else -rest[0][1]), rest[0][1]
        case _:
            return of_dtype(x.dtype)


def _divided(v: float, d: float) -> int:
    """Towards zero."""
    return int(v) // int(d) if v >= 0 else -(-int(v) // int(d))


def _product(p: float, q: float) -> float:
    return 0 if p == 0 or q == 0 else p * q


def result_bounds(e: Equation, args: Sequence[Bounds]) -> Bounds | None:
    """Bounds of what a structural op gives, from those of its integer operands; None if nothing is known."""
    row = _of_all if isinstance(e.op, DataMovement) else _BOUNDS.get(e.op.name)
    return None if row is None else row(e, args)


def _of_all(e: Equation, args: Sequence[Bounds]) -> Bounds:
    return min(a[0] for a in args) if args else 0, max(a[1] for a in args) if args else 0


def _of_sum(count: Callable[[Equation], int]) -> Row:
    def row(e: Equation, args: Sequence[Bounds]) -> Bounds:
        (low, high), n = _of_all(e, args), count(e)
        return min(low * n, 0), max(high * n, 0)

    return row


def _of_products(e: Equation, args: Sequence[Bounds]) -> Bounds:
    (contract, _), _ = e.params["dimension_numbers"]
    count = math.prod(e.inputs[0].type.shape[d] for d in contract)
    ends = [_product(p, q) * count for p in args[0] for q in args[1]]
    return min(*ends, 0), max(*ends, 0)


_BOUNDS: Final[dict[str, Row]] = {
    **dict.fromkeys(_CHOOSES, _of_all),
    "reduce_sum": _of_sum(lambda e: e.inputs[0].type.size // max(1, e.outputs[0].type.size)),
    "cumsum": _of_sum(lambda e: e.inputs[0].type.shape[e.params["axis"]]),
    "reduce_window_sum": _of_sum(lambda e: math.prod(e.params["window_dimensions"])),
    "iota": lambda e, args: (0, e.params["shape"][e.params["dimension"]]),
    **dict.fromkeys(("argmax", "argmin"), lambda e, args: (0, max(e.inputs[0].type.shape))),
    "dot_general": _of_products,
}


def narrow_equation(e: Equation) -> Equation:
    """``e`` on int32 and float32 where it is on 64-bit types."""
    small = lambda t: t if not is_wide(t.dtype) else ArrayType(t.shape, SINGLE if t.dtype == FLOAT else INT)
    params = {k: _narrow_param(v) for k, v in e.params.items()}
    inputs = tuple(a if isinstance(a, Literal) and not is_wide(a.type.dtype) else Var(small(a.type)) for a in e.inputs)
    return e.replaced(inputs, tuple(Var(small(v.type)) for v in e.outputs), params)


def _narrow_param(value: Any) -> Any:
    if isinstance(value, np.dtype):
        return INT if value in INTEGERS else SINGLE if value == FLOAT else value
    return value
