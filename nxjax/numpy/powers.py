"""Powers, logarithms, quotients, remainders and rounding: elementwise functions that are more than one op."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nxjax.errors import DtypeError
from nxjax.numpy.documented import COMPLEX, example
from nxjax.numpy.elementwise import exp, log1p, maximum, trunc, with_methods
from nxjax.numpy.floats import copysign, isposinf
from nxjax.numpy.promotion import (
    as_operand,
    broadcast,
    convert,
    dtype_of,
    full_like,
    inexact_operands,
    numeric_operands,
    operands,
    promote_inexact,
    promote_to,
    refuse_complex,
    reject_out,
    reject_out_and_where,
    result_type_of,
    static_int,
)
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array
from nxjax.transforms.custom_jvp import custom_jvp

_TO_EVEN = 1  # RoundingMethod.TO_NEAREST_EVEN

# --- powers ---


def power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x to the power y. A Python or concrete integer exponent of float x is exact repeated multiplication.

    Args:
        x: base of any numeric dtype.
        y: exponent that broadcasts against ``x``; a Python integer keeps the dtype of ``x``.

    Raises:
        DtypeError: an integer to a fixed negative integer power.
        ShapeError: the shapes do not broadcast.

    >>> jnp.power(jnp.array([2, 3]), 2)
    Array([4, 9], dtype=int32)
    >>> jnp.power(jnp.array([-8.0, 0.0]), 0.5)
    Array([nan,  0.], dtype=float32)
    """
    if isinstance(y, (bool, np.bool_)):
        y = int(y)
    fixed = _fixed_integer(y)
    if fixed is not None:
        v = as_operand(x, "power")
        if v.dtype == dtypes.bool_:
            v = convert(v, dtypes.int32)
        if fixed < 0 and v.dtype in dtypes.INTEGER:
            raise DtypeError(
                "power: Integers cannot be raised to negative powers",
                got=f"{v.type} ** {fixed}",
                fix="make the base a float: x.astype(float)",
            )
        return ops.integer_pow(v, y=fixed)
    if (
        isinstance(y, float)
        and y.is_integer()
        and dtype_of(x, "power")[0] in dtypes.INEXACT
        and -(2**31) < y < 2**31
        and not isinstance(x, (float, complex))
    ):
        return ops.integer_pow(as_operand(x, "power"), y=int(y)) if y in (2.0, 3.0) else _general_power(x, y)
    return _general_power(x, y)


def _fixed_integer(y: Any) -> int | None:
    """The exponent as a Python integer, when it is one, NumPy's or a concrete array's."""
    if type(y) is int:
        return y
    if isinstance(y, (np.integer, np.ndarray)) and not y.shape and y.dtype.kind in "iu":
        return int(y)
    if isinstance(y, DeviceArray) and not y.type.shape and y.dtype in dtypes.INTEGER:
        return int(y.numpy())
    return None


def _general_power(x: Any, y: Any) -> Array:
    dtype, weak = result_type_of((x, y), "power")
    if dtype in dtypes.BITS:
        if dtype == dtypes.bool_:
            dtype = dtypes.int32
        a, b = broadcast("power", *promote_to("power", (x, y), dtype, weak))
        # A boolean exponent is strong, too, and one that is no scalar.
        return convert(ops.pow_integers(a, b), dtype, weak and not np.ndim(y) and dtype_of(y, "power")[1])
    a, b = broadcast("power", *promote_to("power", (x, y), dtype, weak))
    # Unlike elsewhere, an integer exponent that is not weak makes the result strong.
    own, own_weak = dtype_of(y, "power")
    out = ops.pow(a, b)
    return convert(out, dtype) if own in dtypes.INTEGER and not own_weak else out


@example("jnp.array([4.0, 9.0]), 0.5", "Array([2., 3.], dtype=float32)")
def pow(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x to the power y; see `power`."""
    return power(x, y)


@example("2, jnp.array([-1, 3])", "Array([0.5, 8. ], dtype=float32)")
def float_power(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x to the power y in float or complex arithmetic, so that integers may have negative exponents. Broadcasts."""
    return ops.pow(*inexact_operands("float_power", x, y))


@example("jnp.array([4, 0])", "Array([0.25,  inf], dtype=float32)")
def reciprocal(x: ArrayLike, /) -> Array:
    """1 / x; integers and booleans become float."""
    (v,) = promote_inexact("reciprocal", x)
    return ops.integer_pow(v, y=-1)


@example("jnp.array([8, 1, 0])", "Array([  3.,   0., -inf], dtype=float32)")
def log2(x: ArrayLike, /) -> Array:
    """Logarithm to the base 2; integers and booleans become float."""
    return _log_base("log2", x, 2.0)


@example("jnp.array([1.0, 0.0, -1.0])", "Array([  0., -inf,  nan], dtype=float32)")
def log10(x: ArrayLike, /) -> Array:
    """Logarithm to the base 10; integers and booleans become float."""
    return _log_base("log10", x, 10.0)


def _log_base(name: str, x: Any, base: float) -> Array:
    (v,) = promote_inexact(name, x)
    v = convert(v, v.dtype)  # a weak number's logarithm is not weak: a choice that JAX made for these two
    y = ops.log(v)
    if y.dtype in dtypes.COMPLEX:  # a complex quotient of an infinite number would lose the other part
        return ops.complex(*(ops.div(part, full_like(part, np.log(base))) for part in (ops.real(y), ops.imag(y))))
    return ops.div(y, full_like(v, np.log(base)))


@with_methods(-np.inf)
@example("jnp.array([1000.0, -jnp.inf]), jnp.array([-1000.0, -jnp.inf])", "Array([1000.,  -inf], dtype=float32)")
def logaddexp(x1: ArrayLike, x2: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
    """log(exp(x1) + exp(x2)) without overflow. Broadcasts; integers become float."""
    reject_out_and_where("logaddexp", out, where)
    return _log_of_sum("logaddexp", *inexact_operands("logaddexp", x1, x2))


@with_methods(-np.inf)
@example("jnp.array([3.0, 0.0]), jnp.array([3.0, -jnp.inf])", "Array([4., 0.], dtype=float32)")
def logaddexp2(x1: ArrayLike, x2: ArrayLike, /, *, out: None = None, where: None = None) -> Array:
    """log2(2**x1 + 2**x2) without overflow. Broadcasts; integers become float."""
    reject_out_and_where("logaddexp2", out, where)
    a, b = inexact_operands("logaddexp2", x1, x2)
    # Strong, unless of weak numbers alone.
    return convert(_log_of_sum("logaddexp2", a, b), a.dtype, a.type.weak and not a.ndim)


_UNITS = {"logaddexp": 1.0, "logaddexp2": float(np.log(2.0))}  # natural logarithms of the bases


def _log_of_sum(name: str, a: Array, b: Array) -> Array:
    unit = _UNITS[name]
    if a.dtype in dtypes.COMPLEX:
        m = maximum(a, b)
        s = ops.sub(ops.add(a, b), ops.add(m, m))
        return convert(ops.add(m, _by(1 / unit, log1p(exp(_by(unit, s))))), m.dtype)
    return _with_weights(unit)(a, b)


def _by(factor: float, x: Array) -> Array:
    return x if factor == 1 else ops.mul(x, full_like(x, factor))


@functools.cache
def _with_weights(unit: float) -> Any:
    """The function with its own derivative, whose weights are the softmax of (x1, x2), finite at infinities."""

    def function(a: Array, b: Array) -> Array:
        m = ops.max(a, b)
        d = ops.sub(a, b)
        # a - b is nan where both are the same infinity, or either is nan: then the sum says it.
        safe = ops.add(m, _by(1 / unit, log1p(exp(_by(unit, ops.neg(ops.abs(d)))))))
        return ops.select_n(ops.ne(d, d), safe, ops.add(a, b))

    rule = custom_jvp(function)

    def push(primals: Any, tangents: Any) -> Any:
        a, b = primals
        ta, tb = tangents
        # Of the difference, never of the result, whose rounding is a factor of the weights beside a large result.
        apart = _by(unit, ops.sub(a, b))
        # inf - inf: each operand is the infinite result.
        level = ops.and_(ops.ne(apart, apart), ops.eq(a, b))
        weight = lambda x: ops.select_n(level, ops.logistic(x), full_like(x, 1))
        return rule(a, b), ops.add(ops.mul(ta, weight(apart)), ops.mul(tb, weight(ops.neg(apart))))

    rule.defjvp(push)
    return rule


@example("jnp.array([3.0, 3e30]), jnp.array([4.0, 4e30])", "Array([5.e+00, 5.e+30], dtype=float32)", raises=COMPLEX)
def hypot(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """sqrt(x1**2 + x2**2) without overflow. Broadcasts; integers become float."""
    a, b = inexact_operands("hypot", x1, x2)
    refuse_complex("hypot", a)
    a, b = ops.abs(a), ops.abs(b)
    infinite = ops.or_(isposinf(a), isposinf(b))
    big = ops.max(a, b)
    zero = ops.eq(big, full_like(big, 0))
    one = full_like(big, 1)
    special = ops.or_(zero, infinite)
    # s sqrt((a / s)^2 + (b / s)^2) is the same for any s, so its derivatives are those of a constant s, at ties too.
    scale = ops.stop_gradient(ops.select_n(special, big, one))
    part = lambda x: ops.div(ops.select_n(special, x, one), scale)
    u, v = part(a), part(b)
    y = ops.mul(scale, ops.sqrt(ops.add(ops.mul(u, u), ops.mul(v, v))))
    y = ops.select_n(zero, y, big)
    # Strong, unless of weak numbers alone.
    return convert(ops.select_n(infinite, y, full_like(y, np.inf)), y.dtype, y.type.weak and not y.ndim)


# --- quotients and remainders ---


@example("jnp.array([7, -7]), 2", "Array([ 3, -4], dtype=int32)", raises=COMPLEX)
def floor_divide(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The quotient rounded down, toward minus infinity. Broadcasts and keeps integers."""
    a, b = numeric_operands("floor_divide", x1, x2)
    refuse_complex("floor_divide", a)
    q = ops.div(a, b)
    if a.dtype in dtypes.UNSIGNED:
        return q
    if a.dtype in dtypes.SIGNED:
        # The op rounds toward zero: one too many where the signs differ and something is left.
        left = ops.and_(ops.ne(ops.sign(a), ops.sign(b)), ops.ne(ops.rem(a, b), full_like(a, 0)))
        return ops.select_n(left, q, ops.sub(q, full_like(q, 1)))
    return _float_divmod(a, b)[0]


@example(
    "jnp.array([7, -7]), 3",
    "Array([1, 2], dtype=int32)",
    "7.5, jnp.array([-2.0, 0.0])",
    "Array([-0.5,  nan], dtype=float32)",
    raises="DtypeError: complex input.",
)
def remainder(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 - floor(x1 / x2) * x2: the remainder with the sign of x2. Broadcasts and promotes."""
    a, b = numeric_operands("remainder", x1, x2)
    refuse_complex("remainder", a)
    zero = full_like(a, 0)
    b = _no_zero(b)
    r = ops.rem(a, b)
    if a.dtype in dtypes.UNSIGNED:
        return r
    wrong = ops.and_(ops.ne(ops.lt(r, zero), ops.lt(b, zero)), ops.ne(r, zero))
    r = ops.select_n(wrong, r, ops.add(r, b))
    return _zero_signed_as(b, r) if a.dtype in dtypes.FLOAT else r


def _zero_signed_as(b: Array, r: Array) -> Array:
    """``r``, its zeros with the sign of ``b``, as NumPy and the Array API standard have it; ``r``'s derivative."""
    zero = ops.sub(r, ops.stop_gradient(r))  # positive, where r is finite
    signed = ops.select_n(ops.lt(b, full_like(b, 0)), zero, ops.neg(ops.sub(ops.stop_gradient(r), r)))
    return ops.select_n(ops.eq(r, full_like(r, 0)), r, signed)


mod = remainder


@example("jnp.array([7, -7]), 3", "Array([ 1, -1], dtype=int32)")
def fmod(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """The remainder with the sign of x1, as in C; of integers by 0, 0. Broadcasts and promotes."""
    a, b = numeric_operands("fmod", x1, x2)
    return ops.rem(a, _no_zero(b))


def _no_zero(b: Array) -> Array:
    """A divisor of which nothing is left where it is 0, of integers: 1."""
    return ops.select_n(ops.eq(b, full_like(b, 0)), b, full_like(b, 1)) if b.dtype in dtypes.INTEGER else b


def _float_divmod(a: Array, b: Array) -> tuple[Array, Array]:
    r = ops.rem(a, b)
    q = ops.div(ops.sub(a, r), b)
    zero = full_like(a, 0)
    wrong = ops.and_(ops.ne(r, zero), ops.ne(ops.sign(b), ops.sign(r)))
    r = ops.select_n(wrong, r, ops.add(r, b))
    q = ops.select_n(wrong, q, ops.sub(q, full_like(q, 1)))
    q = ops.round(q, rounding_method=_TO_EVEN)
    # A zero has the sign of the quotient.
    q = ops.select_n(ops.eq(q, zero), q, copysign(zero, ops.mul(ops.sign(b), copysign(full_like(a, 1), a))))
    q = ops.select_n(ops.eq(b, zero), q, ops.div(a, b))
    return ops.stop_gradient(q), _zero_signed_as(b, r)  # whole numbers do not move


@example("jnp.array([7, -7]), 3", "(Array([ 2, -3], dtype=int32), Array([1, 2], dtype=int32))", raises=COMPLEX)
def divmod(x1: ArrayLike, x2: ArrayLike, /) -> tuple[Array, Array]:
    """``(x1 // x2, x1 % x2)``. Broadcasts and promotes."""
    a, b = operands("divmod", x1, x2)
    if a.dtype in dtypes.FLOAT:
        return _float_divmod(a, b)
    return floor_divide(a, b), remainder(a, b)


@example("jnp.array([1.5, -2.25])", "(Array([ 0.5 , -0.25], dtype=float32), Array([ 1., -2.], dtype=float32))")
def modf(x: ArrayLike, /, out: None = None) -> tuple[Array, Array]:
    """The fraction and the whole part, both with the sign of x; integers become float."""
    (v,) = promote_inexact("modf", x)
    whole = trunc(v)
    return ops.sub(v, whole), whole


# --- rounding ---


@example(
    "jnp.array([0.5, 1.5, -2.5])",
    "Array([ 0.,  2., -2.], dtype=float32)",
    "jnp.array([1250, 1350]), -2",
    "Array([1200, 1400], dtype=int32)",
    raises="NotImplementedError: ``out`` is given.",
)
def round(a: ArrayLike, decimals: int = 0, out: None = None) -> Array:
    """Rounded to ``decimals`` places, halves to even; keeps the dtype.

    Args:
        a: array of any shape; integers are rounded where ``decimals`` is negative.
        decimals: static integer.
    """
    reject_out("round", out)
    v = as_operand(a, "round")
    places = static_int("round", decimals)
    if v.dtype == dtypes.bool_:
        v = convert(v, dtypes.as_dtype(int))
    if v.dtype in dtypes.INTEGER:
        if places >= 0:
            return v
        factor = 10 ** (-places)
        return convert(ops.mul(rint(ops.div(convert(v, dtypes.float64), float(factor))), float(factor)), v.dtype)
    if v.dtype in dtypes.COMPLEX:
        return ops.complex(round(ops.real(v), places), round(ops.imag(v), places))
    if places == 0:
        return ops.round(v, rounding_method=_TO_EVEN)
    wide = convert(v, dtypes.float32) if v.dtype.itemsize < 4 else v
    factor = full_like(wide, 10.0 ** abs(places))
    up, down = (ops.mul, ops.div) if places > 0 else (ops.div, ops.mul)
    y = down(ops.round(up(wide, factor), rounding_method=_TO_EVEN), factor)
    return y if y.dtype == v.dtype else convert(y, v.dtype)


around = round


@example("jnp.array([0.5, 1.5, 2.6])", "Array([0., 2., 3.], dtype=float32)")
def rint(x: ArrayLike, /) -> Array:
    """Rounded to an integer, halves to even; integers become float."""
    v = as_operand(x, "rint")
    if v.dtype in dtypes.BITS:
        return convert(v, dtypes.as_dtype(float))
    if v.dtype in dtypes.COMPLEX:
        return ops.complex(rint(ops.real(v)), rint(ops.imag(v)))
    return ops.round(v, rounding_method=_TO_EVEN)


@example("jnp.array([-1.7, 1.7])", "Array([-1.,  1.], dtype=float32)")
def fix(x: ArrayLike, out: None = None) -> Array:
    """Rounded toward zero, as `trunc`."""
    return trunc(x)
