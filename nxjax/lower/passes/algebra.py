"""Identities of ops that never change a bit: what an equation may be replaced by.

A row answers for one op: it gets the equation and what is known of its operands and gives an atom (the result is that
value), another equation with the same outputs, several of which the last has them, or None. Signed zeros, NaN,
infinities and subnormals keep their bits: ``x + 0.0`` is not ``x`` (for -0.0), ``x - 0.0`` is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, Protocol

import numpy as np

from nxjax.ops.arithmetic import mul
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import slice as slice_
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Literal, Var


class OperandFacts(Protocol):
    """What a row may ask about operands."""

    def made_by(self, a: Atom, *names: str) -> Equation | None:
        """The equation that makes ``a``, if its op has one of these names."""
        ...

    def splat(self, a: Atom) -> Any:
        """The number that every element of ``a`` is, as a NumPy scalar; None if that is not known."""
        ...

    def once(self, a: Atom) -> bool:
        """Whether ``a`` has one reader, so that changing its equation for that reader doubles no work."""
        ...


Found = Atom | Equation | tuple[Equation, ...] | None
Row = Callable[[Equation, OperandFacts], Found]
ROWS: Final[dict[str, Row]] = {}


def _row(*names: str) -> Callable[[Row], Row]:
    def add(row: Row) -> Row:
        ROWS.update(dict.fromkeys(names, row))
        return row

    return add


def _is(value: Any, number: float) -> bool:
    """Whether a known real number (or None) is this one; zeros by their sign."""
    if value is None or value.dtype in dtypes.COMPLEX:
        return False
    return bool(value == number) and (
        number != 0 or bool(np.signbit(np.float64(value))) == (math.copysign(1, number) < 0)
    )


def _filled(e: Equation, number: Any) -> Atom | Equation:
    """``number`` as the result of ``e``."""
    t = e.outputs[0].type
    literal = Literal(wrap(np.asarray(number).astype(t.dtype), t.weak))
    if not t.shape:
        return literal
    return Equation(
        broadcast_in_dim, (literal,), e.outputs, {"shape": t.shape, "broadcast_dimensions": ()}, e.source, e.scope
    )


def _reshaped(e: Equation, x: Atom) -> Atom | Equation:
    """``x`` in the shape of the result of ``e``."""
    shape = e.outputs[0].type.shape
    return x if x.type.shape == shape else Equation(reshape, (x,), e.outputs, {"shape": shape}, e.source, e.scope)


# --- arithmetic ---


@_row("add")
def _add(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs
    for a, b in ((x, y), (y, x)):
        if _is(known.splat(b), -0.0 if b.type.dtype in dtypes.FLOAT else 0):
            return a
    return None


@_row("sub")
def _sub(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs
    if _is(known.splat(y), 0.0):
        return x
    return _filled(e, 0) if x is y and x.type.dtype in dtypes.INTEGER else None


@_row("mul")
def _mul(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs
    for a, b in ((x, y), (y, x)):
        number = known.splat(b)
        if _is(number, 1):
            return a
        if _is(number, 0) and b.type.dtype in dtypes.INTEGER:
            return _filled(e, 0)
    return None


@_row("div")
def _div(e: Equation, known: OperandFacts) -> Found:
    x, y = e.inputs
    number = known.splat(y)
    if _is(number, 1):
        return x
    if number is None or number.dtype not in (dtypes.float32, dtypes.float64):
        return None
    # Division by a power of two and multiplication by its inverse round the same exact number.
    mantissa, exponent = math.frexp(abs(float(number)))
    lowest = -125 if number.dtype == dtypes.float32 else -1021
    if mantissa != 0.5 or not lowest <= 2 - exponent <= -lowest:
        return None
    inverse = wrap(np.asarray(1 / number).astype(number.dtype), y.type.weak)
    if not y.type.shape:
        return Equation(mul, (x, Literal(inverse)), e.outputs, {}, e.source, e.scope)
    repeated, params = Var(y.type), {"shape": y.type.shape, "broadcast_dimensions": ()}
    return (
        Equation(broadcast_in_dim, (Literal(inverse),), (repeated,), params, e.source, e.scope),
        Equation(mul, (x, repeated), e.outputs, {}, e.source, e.scope),
    )


@_row("max", "min")
def _idempotent(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs
    return x if x is y else None


# Whether all bits set change nothing, and none set decide the result; or the other way round.
_FULL: Final = {"and": True, "or": False}


@_row(*_FULL)
def _logic(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs
    if x is y:
        return x
    for a, b in ((x, y), (y, x)):
        number = known.splat(b)
        if number is None:
            continue
        full = bool(number == ~number.dtype.type(0)) if number.dtype in dtypes.INTEGER else bool(number)
        if full or not number:
            return a if full == _FULL[e.op.name] else b
    return None


@_row("xor", "shift_left", "shift_right_arithmetic", "shift_right_logical")
def _by_nothing(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs
    return x if _is(known.splat(y), 0) else None


@_row("neg", "not")
def _involution(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    inner = known.made_by(e.inputs[0], e.op.name)
    return None if inner is None else inner.inputs[0]


@_row("abs")
def _abs(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    if known.made_by(e.inputs[0], "abs") is not None:
        return e.inputs[0]
    if e.inputs[0].type.dtype in dtypes.UNSIGNED:
        return None  # negation wraps around, and has no sign to take away
    inner = known.made_by(e.inputs[0], "neg")
    return None if inner is None else e.replaced(inner.inputs, e.outputs)


@_row("integer_pow")
def _integer_pow(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    return e.inputs[0] if e.params.get("y") == 1 else None


@_row("select_n")
def _select_n(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    which, *cases = e.inputs
    if all(c is cases[0] for c in cases):
        return cases[0]
    number = known.splat(which)
    if number is None:
        return None
    # Of two cases, any number but 0 takes the second; of more, numbers outside take the nearest.
    return cases[bool(number)] if len(cases) == 2 else cases[min(max(int(number), 0), len(cases) - 1)]


# --- conversions ---


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of ``narrow`` is one of ``wide``, which is another dtype."""
    if narrow == dtypes.bool_:
        return True
    small = (dtypes.bfloat16, dtypes.float16)
    if narrow in small:
        return wide in (dtypes.float32, dtypes.float64)
    if narrow == dtypes.float32 or wide in small:
        return narrow == dtypes.float32 and wide == dtypes.float64
    if wide in dtypes.FLOAT:
        return narrow in dtypes.INTEGER and dtypes.bit_width(narrow) <= dtypes.float_info(wide).nmant
    return narrow in dtypes.INTEGER and wide in dtypes.INTEGER and bool(np.can_cast(narrow, wide, "safe"))


@_row("convert_element_type")
def _convert(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, to = e.inputs[0], e.outputs[0].type.dtype
    if x.type.dtype == to:
        return x
    inner = known.made_by(x, "convert_element_type")
    if inner is None:
        return None
    first = inner.inputs[0]
    if not _holds(x.type.dtype, first.type.dtype):
        return None
    if first.type.dtype == to:
        return first
    middle, start = x.type.dtype, first.type.dtype
    if middle in dtypes.FLOAT and to in dtypes.INTEGER:
        exact = _holds(to, start)  # what is out of range: a float ends at the ends, an integer wraps around
    elif middle in dtypes.FLOAT and start in dtypes.INTEGER and to in dtypes.NARROW:
        exact = _holds(dtypes.float32, start)  # an integer gets there by way of float32
    else:
        exact = start in dtypes.BITS or to in dtypes.FLOAT
    return e.replaced((first,), e.outputs) if exact else None


# --- shapes ---


@_row("reshape")
def _reshape(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, shape = e.inputs[0], e.outputs[0].type.shape
    if x.type.shape == shape:
        return x
    inner = known.made_by(x, "reshape")
    if inner is not None:
        first = inner.inputs[0]
        return first if first.type.shape == shape else e.replaced((first,), e.outputs)
    inner = known.made_by(x, "broadcast_in_dim")
    if inner is not None and not inner.inputs[0].type.shape:
        params = {"shape": shape, "broadcast_dimensions": ()}
        return inner.inputs[0] if not shape else inner.replaced(inner.inputs, e.outputs, params)
    return None


@_row("broadcast_in_dim")
def _broadcast(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    (x,), shape, dims = e.inputs, e.params["shape"], tuple(e.params["broadcast_dimensions"])
    if x.type.shape == tuple(shape) and dims == tuple(range(len(shape))):
        return x
    inner = known.made_by(x, "broadcast_in_dim")
    if inner is not None:
        composed = tuple(dims[d] for d in inner.params["broadcast_dimensions"])
        return e.replaced(inner.inputs, e.outputs, {"shape": shape, "broadcast_dimensions": composed})
    inner = known.made_by(x, "reshape")
    if inner is not None:
        # Dimensions of size 1 that were put in (or taken out) need not be there.
        kept = [i for i, n in enumerate(x.type.shape) if n != 1]
        first = inner.inputs[0]
        if first.type.shape == tuple(x.type.shape[i] for i in kept):
            params = {"shape": shape, "broadcast_dimensions": tuple(dims[i] for i in kept)}
            return e.replaced((first,), e.outputs, params)
    return None


@_row("transpose")
def _transpose(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, order = e.inputs[0], tuple(e.params["permutation"])
    if order == tuple(range(len(order))):
        return x
    inner = known.made_by(x, "transpose")
    if inner is not None:
        composed = tuple(inner.params["permutation"][i] for i in order)
        return e.replaced(inner.inputs, e.outputs, {"permutation": composed})
    inner = known.made_by(x, "dot_general")
    if inner is not None and known.once(x):
        return _swapped_product(e, inner)
    # An order that only moves dimensions of size 1 moves no element.
    moved = [i for i in order if x.type.shape[i] != 1]
    return _reshaped(e, x) if moved == sorted(moved) else None


def _swapped_product(e: Equation, inner: Equation) -> Equation | None:
    """The product of the operands the other way round, if that is all that the transpose ``e`` does to it."""
    (lhs, rhs), params = inner.inputs, inner.params
    (lhs_sums, rhs_sums), (lhs_batch, rhs_batch) = params["dimension_numbers"]
    batch = len(lhs_batch)
    middle = lhs.type.ndim - len(lhs_sums)
    end = middle + rhs.type.ndim - batch - len(rhs_sums)
    if tuple(e.params["permutation"]) != (*range(batch), *range(middle, end), *range(batch, middle)):
        return None
    swapped = {**params, "dimension_numbers": ((rhs_sums, lhs_sums), (rhs_batch, lhs_batch))}
    if isinstance(params.get("precision"), tuple):
        swapped["precision"] = tuple(reversed(params["precision"]))
    return Equation(inner.op, (rhs, lhs), e.outputs, swapped, inner.source, inner.scope)


@_row("rev")
def _rev(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, dims = e.inputs[0], {d % e.inputs[0].type.ndim for d in e.params["dimensions"]}
    if all(x.type.shape[d] <= 1 for d in dims):
        return x
    inner = known.made_by(x, "rev")
    if inner is None:
        return None
    both = dims ^ {d % x.type.ndim for d in inner.params["dimensions"]}
    return e.replaced(inner.inputs, e.outputs, {"dimensions": tuple(sorted(both))})


@_row("pad")
def _pad(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    return e.inputs[0] if all(not any(part) for part in e.params["padding_config"]) else None


@_row("slice")
def _slice(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, shape = e.inputs[0], e.outputs[0].type.shape
    return x if x.type.shape == shape and 0 not in shape else None


@_row("dynamic_slice")
def _dynamic_slice(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x, y = e.inputs[0], e.outputs[0]
    if x.type.shape == y.type.shape:
        return x
    starts = [known.splat(i) for i in e.inputs[1:]]
    if any(s is None for s in starts):
        return None
    low = [min(max(int(s), 0), n - k) for s, n, k in zip(starts, x.type.shape, y.type.shape, strict=True)]
    params = {
        "start_indices": tuple(low),
        "limit_indices": tuple(i + k for i, k in zip(low, y.type.shape, strict=True)),
        "strides": None,
    }
    return Equation(slice_, (x,), e.outputs, params, e.source, e.scope)


@_row("concatenate")
def _concatenate(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    axis = e.params["dimension"]
    parts = [a for a in e.inputs if a.type.shape[axis]]
    if len(parts) == 1:
        return parts[0]
    return e.replaced(tuple(parts), e.outputs) if parts and len(parts) < len(e.inputs) else None


@_row("reduce_prod", "reduce_max", "reduce_min", "reduce_and", "reduce_or", "reduce_xor")
def _reduce(e: Equation, known: OperandFacts) -> Atom | Equation | None:
    x = e.inputs[0]
    return None if any(x.type.shape[a] != 1 for a in e.params["axes"]) else _reshaped(e, x)


@_row("reduce_sum")
def _reduce_sum(e: Equation, known: OperandFacts) -> Found:
    # The sum of -0.0 alone is 0.0.
    return _reduce(e, known) if e.inputs[0].type.dtype in dtypes.INTEGER else None


def rewritten(e: Equation, known: OperandFacts) -> Atom | tuple[Equation, ...] | None:
    """What ``e`` may be replaced by: a value, or equations the last of which gives its results; None: nothing."""
    row = ROWS.get(e.op.name)
    found = None if row is None else row(e, known)
    return (found,) if isinstance(found, Equation) else found
