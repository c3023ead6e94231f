"""Elementwise functions on floats that are more than one op: tests, parts, signs and pieces, angles, limits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import DtypeError, ShapeError
from nxjax.numpy.creation import asarray, full_scalar
from nxjax.numpy.documented import COMPLEX, example, shown
from nxjax.numpy.elementwise import equal, greater, less, logical_and, logical_not, maximum, minimum
from nxjax.numpy.promotion import (
    as_operand,
    broadcast,
    convert,
    dtype_of,
    full_like,
    inexact_operands,
    operands,
    promote,
    promote_inexact,
    promote_to,
    refuse_complex,
)
from nxjax.numpy.reductions import all as all_
from nxjax.numpy.selection import where
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import constant
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import copied, wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.transforms.custom_jvp import custom_jvp

# --- tests ---


@example("jnp.array([1.0, jnp.inf, jnp.nan])", "Array([ True, False, False], dtype=bool)")
def isfinite(x: ArrayLike, /) -> Array:
    """Whether x is neither infinite nor nan; true of all integers."""
    v = as_operand(x, "isfinite")
    if v.dtype in dtypes.FLOAT:
        return ops.is_finite(v)
    if v.dtype in dtypes.COMPLEX:
        return ops.and_(ops.is_finite(ops.real(v)), ops.is_finite(ops.imag(v)))
    return _constant(v, True)


@example("jnp.array([1.0, jnp.inf, jnp.nan])", "Array([False, False,  True], dtype=bool)")
def isnan(x: ArrayLike, /) -> Array:
    """Whether x is not a number; a complex number where either part is."""
    v = as_operand(x, "isnan")
    return ops.ne(v, v) if v.dtype in dtypes.INEXACT else _constant(v, False)


@example("jnp.array([-jnp.inf, 1.0, jnp.nan])", "Array([ True, False, False], dtype=bool)")
def isinf(x: ArrayLike, /) -> Array:
    """Whether x is positive or negative infinity; a complex number where either part is."""
    v = as_operand(x, "isinf")
    if v.dtype in dtypes.COMPLEX:
        return ops.or_(isinf(ops.real(v)), isinf(ops.imag(v)))
    return ops.eq(ops.abs(v), full_like(v, np.inf)) if v.dtype in dtypes.FLOAT else _constant(v, False)


def _infinity(name: str, x: Any, sign: float) -> Array:
    v = as_operand(x, name)
    if v.dtype in dtypes.COMPLEX:
        raise DtypeError(f"{name}: not defined for complex values", got=v.type)
    return ops.eq(v, full_like(v, sign * np.inf)) if v.dtype in dtypes.FLOAT else _constant(v, False)


@example("jnp.array([-jnp.inf, jnp.inf])", "Array([False,  True], dtype=bool)", raises=COMPLEX)
def isposinf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether x is positive infinity."""
    return _infinity("isposinf", x, 1.0)


@example("jnp.array([-jnp.inf, jnp.inf])", "Array([ True, False], dtype=bool)", raises=COMPLEX)
def isneginf(x: ArrayLike, /, out: None = None) -> Array:
    """Whether x is negative infinity."""
    return _infinity("isneginf", x, -1.0)


def _constant(v: Array, truth: bool) -> Array:
    return full_scalar(v.shape, truth, dtypes.bool_)


@example("jnp.array([1 + 0j, 1j])", "Array([ True, False], dtype=bool)")
def isreal(x: ArrayLike) -> Array:
    """Whether the imaginary part is zero, element by element."""
    v = as_operand(x, "isreal")
    if v.dtype not in dtypes.COMPLEX:
        return _constant(v, True)
    i = ops.imag(v)
    return ops.eq(i, full_like(i, 0))


@example("jnp.array([1 + 0j, 1j])", "Array([False,  True], dtype=bool)")
def iscomplex(x: ArrayLike) -> Array:
    """Whether the imaginary part is not zero, element by element."""
    return logical_not(isreal(x))


@example("jnp.array([1 + 0j])", "True")
def iscomplexobj(x: ArrayLike) -> bool:
    """Whether the dtype is complex, even if all imaginary parts are 0; a Python bool."""
    if x is None:
        return False
    dtype: DType = x.dtype if hasattr(x, "dtype") else np.asarray(x).dtype
    return dtype in dtypes.COMPLEX


@example("jnp.array([1 + 0j])", "False")
def isrealobj(x: ArrayLike) -> bool:
    """Whether the dtype is not complex; a Python bool."""
    return not iscomplexobj(x)


@shown("jnp.isscalar(3.0), jnp.isscalar(jnp.array(3.0)), jnp.isscalar(jnp.array([3.0]))", "(True, True, False)")
def isscalar(element: object) -> bool:
    """Whether ``element`` is a number or a 0-d array."""
    return element.ndim == 0 if isinstance(element, Array) else bool(np.isscalar(element))


@example(
    "jnp.array([1.0, jnp.inf, jnp.nan]), jnp.array([1.000001, jnp.inf, jnp.nan])",
    "Array([ True,  True, False], dtype=bool)",
    raises="ShapeError: the shapes do not broadcast.",
)
def isclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """|a - b| <= atol + rtol * |b|, element by element. Equal infinities are close, nan is with ``equal_nan``.

    Args:
        a, b: arrays, which broadcast; the result is boolean. Keys are close when they are equal.
        rtol, atol: relative to ``b``, and absolute; arrays or numbers.
        equal_nan: two nan are close.
    """
    x, y = operands("isclose", a, b)
    if x.dtype == dtypes.key:
        return equal(x, y)
    if x.dtype in dtypes.BITS:
        x, y = (convert(v, dtypes.as_dtype(float)) for v in (x, y))
    real = dtypes.real_part(x.dtype)
    r, s = promote_to("isclose", (rtol, atol), real)
    magnitude = ops.abs(y)
    r, s, _ = broadcast("isclose", r, s, magnitude)
    near = ops.le(ops.abs(ops.sub(x, y)), ops.add(s, ops.mul(r, magnitude)))
    near = logical_and(near, logical_and(isfinite(x), isfinite(y)))
    out = ops.or_(near, ops.eq(x, y))
    return ops.or_(out, ops.and_(isnan(x), isnan(y))) if equal_nan else out


@example("jnp.array([1.0, 1e-9]), jnp.array([1.0, 0.0])", "Array(True, dtype=bool)")
def allclose(
    a: ArrayLike, b: ArrayLike, rtol: ArrayLike = 1e-05, atol: ArrayLike = 1e-08, equal_nan: bool = False
) -> Array:
    """Whether `isclose` holds everywhere, as a 0-d boolean array.

    Args:
        a, b, rtol, atol, equal_nan: as `isclose`.

    Raises:
        ShapeError: the shapes do not broadcast.
    """
    return all_(isclose(a, b, rtol, atol, equal_nan))


def array_equal(a1: ArrayLike | Sequence[Any], a2: ArrayLike | Sequence[Any], equal_nan: bool = False) -> Array:
    """Whether both have the same shape and the same elements, as a 0-d boolean array.

    >>> jnp.array_equal(jnp.array([1.0, jnp.nan]), jnp.array([1.0, jnp.nan]))
    Array(False, dtype=bool)
    >>> jnp.array_equal(jnp.array([1.0, jnp.nan]), jnp.array([1.0, jnp.nan]), equal_nan=True)
    Array(True, dtype=bool)
    """
    x, y = asarray(a1), asarray(a2)
    if x.shape != y.shape:
        return wrap(np.asarray(False))
    x, y = promote("array_equal", x, y)
    same = equal(x, y)
    return all_(ops.or_(same, ops.and_(isnan(x), isnan(y))) if equal_nan else same)


@example("jnp.array([2, 2]), 2", "Array(True, dtype=bool)")
def array_equiv(a1: ArrayLike | Sequence[Any], a2: ArrayLike | Sequence[Any]) -> Array:
    """Whether both have the same elements after broadcasting; false where they do not broadcast."""
    try:
        x, y = operands("array_equiv", asarray(a1), asarray(a2))
    except ShapeError:
        return wrap(np.asarray(False))
    return all_(ops.eq(x, y))


# --- complex parts ---


@example("jnp.array([3 + 4j])", "Array([3.], dtype=float32)")
def real(x: ArrayLike, /) -> Array:
    """The real part; real x is itself."""
    v = as_operand(x, "real")
    return ops.real(v) if v.dtype in dtypes.COMPLEX else copied(v)


@example("jnp.array([3, 4])", "Array([0, 0], dtype=int32)")
def imag(x: ArrayLike, /) -> Array:
    """The imaginary part; zeros of the dtype for real x."""
    v = as_operand(x, "imag")
    return ops.imag(v) if v.dtype in dtypes.COMPLEX else full_like(v, 0)


@example("jnp.array([3 + 4j, 2])", "Array([3.-4.j, 2.-0.j], dtype=complex64)")
def conjugate(x: ArrayLike, /) -> Array:
    """The complex conjugate; real x is itself."""
    v = as_operand(x, "conjugate")
    return ops.complex(ops.real(v), ops.neg(ops.imag(v))) if v.dtype in dtypes.COMPLEX else copied(v)


conj = conjugate


@example("jnp.array([1j, -1.0]), deg=True", "Array([ 90., 180.], dtype=float32)")
def angle(z: ArrayLike, deg: bool = False) -> Array:
    """The argument of a complex number, from -pi to pi, or in degrees with ``deg``."""
    (v,) = promote_inexact("angle", z)
    given = as_operand(z, "angle").dtype
    if given in dtypes.BITS or (given in dtypes.FLOAT and not v.ndim):
        v = convert(v, dtypes.as_dtype(float))  # of these the default float: a choice that JAX made
    out = ops.atan2(imag(v), real(v))
    if given in dtypes.BITS:
        out = convert(out, out.dtype)
    return rad2deg(out) if deg else out


# --- signs and pieces of floats ---


def _bits_of(v: Array) -> tuple[Array, DType, Any]:
    unsigned = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}[v.dtype.itemsize]
    return ops.bitcast_convert_type(v, dtype=unsigned), unsigned, dtypes.float_info(v.dtype)


@example("jnp.array([-0.0, 0.0, -jnp.inf])", "Array([ True, False,  True], dtype=bool)", raises=COMPLEX)
def signbit(x: ArrayLike, /) -> Array:
    """Whether the sign is minus, for -0.0 too."""
    v = as_operand(x, "signbit")
    if v.dtype in dtypes.UNSIGNED or v.dtype == dtypes.bool_:
        return _constant(v, False)
    if v.dtype in dtypes.SIGNED:
        return ops.lt(v, full_like(v, 0))
    if v.dtype not in dtypes.FLOAT:
        raise DtypeError("signbit: takes real numbers", got=v.type)
    bits, unsigned, _ = _bits_of(v)
    top = np.array(1 << (dtypes.bit_width(unsigned) - 1), unsigned)
    return ops.ne(ops.and_(bits, full_like(bits, top)), full_like(bits, 0))


@example("jnp.array([1, 2]), jnp.array([-0.0, 3.0])", "Array([-1.,  2.], dtype=float32)", raises=COMPLEX)
def copysign(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """|x1| with the sign of x2. Broadcasts; integers become float."""
    a, b = inexact_operands("copysign", x1, x2)
    refuse_complex("copysign", a)
    size = ops.abs(convert(a, a.dtype, a.type.weak and b.type.weak))
    return ops.select_n(signbit(b), size, ops.neg(size))


def frexp(x: ArrayLike, /) -> tuple[Array, Array]:
    """Mantissa in [0.5, 1) and exponent (int32): x = mantissa * 2**exponent; zeros, nan and infinities have exponent 0.

    Raises:
        DtypeError: complex input.

    >>> jnp.frexp(jnp.array([6.0, -0.25, 0.0]))
    (Array([ 0.75, -0.5 ,  0.  ], dtype=float32), Array([ 3, -1,  0], dtype=int32))
    """
    (v,) = promote_inexact("frexp", x)
    refuse_complex("frexp", v)
    info = dtypes.float_info(v.dtype)
    mantissa_bits, bias = info.nmant, 1 - info.minexp
    # Subnormals are scaled up first, since their exponent field says nothing.
    zero = full_like(v, 0)
    tiny = ops.lt(ops.abs(v), full_like(v, info.smallest_normal))
    scaled = ops.select_n(tiny, v, ops.mul(v, full_like(v, 2.0**mantissa_bits)))
    bits, unsigned, _ = _bits_of(scaled)
    field = (1 << info.nexp) - 1
    exponent = ops.and_(
        ops.shift_right_logical(bits, full_like(bits, mantissa_bits)), full_like(bits, np.array(field, unsigned))
    )
    e = ops.sub(convert(exponent, dtypes.int32), _int32(exponent, bias - 1))
    e = ops.select_n(tiny, e, ops.sub(e, _int32(exponent, mantissa_bits)))
    keep = np.array(((1 << dtypes.bit_width(unsigned)) - 1) ^ (field << mantissa_bits), unsigned)
    half = np.array((bias - 1) << mantissa_bits, unsigned)
    m = ops.bitcast_convert_type(ops.or_(ops.and_(bits, full_like(bits, keep)), full_like(bits, half)), dtype=v.dtype)
    special = ops.or_(ops.eq(v, zero), ops.not_(ops.is_finite(v)))
    # The bits have no derivative: the mantissa moves as v / 2**e does.
    scale = ops.exp2(convert(ops.neg(ops.max(e, full_like(e, info.minexp))), v.dtype))
    m = ops.add(m, ops.mul(ops.sub(v, ops.stop_gradient(v)), scale))
    return ops.select_n(special, m, v), ops.select_n(special, e, full_like(e, 0))


def _int32(like: Array, n: int) -> Array:
    return constant(n, dtypes.int32, like.shape)


@example("jnp.array([0.75, 1.0]), jnp.array([3, -1])", "Array([6. , 0.5], dtype=float32)")
def ldexp(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """x1 * 2**x2, without overflow on the way. Broadcasts.

    Raises:
        ValueError: ``x2`` is not of integers, or ``x1`` is complex.
    """
    own, _ = dtype_of(x2, "ldexp")
    if own not in dtypes.BITS:
        raise ValueError(f"ldexp: x2 must have an integer dtype, got {own.name}")
    (a,) = promote_inexact("ldexp", x1)
    if a.dtype in dtypes.COMPLEX:
        raise ValueError("ldexp: complex x1 is not supported")
    a, n = broadcast("ldexp", a, convert(as_operand(x2, "ldexp"), dtypes.int32))
    return times_power(a, n)


def times_power(x: Array, exponent: Array) -> Array:
    """x * 2**exponent in three steps, since no power by itself may overflow or vanish."""
    if x.dtype in dtypes.COMPLEX:  # infinite parts times a complex number with no imaginary part are unknown
        return ops.complex(*(times_power(part, exponent) for part in (ops.real(x), ops.imag(x))))
    most = -3 * int(dtypes.float_info(x.dtype).minexp)
    exponent = clip(exponent, -most, most)
    for i in range(3):
        x = ops.mul(x, ops.exp2(convert((exponent + i) // 3, x.dtype)))
    return x


@example("jnp.array([1.0, -1.0, jnp.inf])", "Array([ 1.1920929e-07, -1.1920929e-07,            nan], dtype=float32)")
def spacing(x: ArrayLike, /) -> Array:
    """The distance to the next float away from zero, negative for negative x."""
    (v,) = promote_inexact("spacing", x)
    v = convert(v, v.dtype)
    away = copysign(full_like(v, np.inf), v)
    step = ops.sub(ops.nextafter(v, away), v)
    return ops.select_n(ops.is_finite(v), full_like(v, np.nan), step)


@example("jnp.array([jnp.nan, jnp.inf, 1.0]), posinf=9.0", "Array([0., 9., 1.], dtype=float32)")
def nan_to_num(
    x: ArrayLike,
    copy: bool = True,
    nan: ArrayLike = 0.0,
    posinf: ArrayLike | None = None,
    neginf: ArrayLike | None = None,
) -> Array:
    """nan and infinities replaced by finite numbers: by default 0, the largest and the lowest of the dtype."""
    v = as_operand(x, "nan_to_num")
    if v.dtype in dtypes.BITS:
        return v
    if v.dtype in dtypes.COMPLEX:
        parts = (nan_to_num(p, copy, nan, posinf, neginf) for p in (ops.real(v), ops.imag(v)))
        return ops.complex(*parts)
    info = dtypes.float_info(v.dtype)
    posinf = float(info.max) if posinf is None else posinf
    neginf = float(info.min) if neginf is None else neginf
    for special, number in ((isnan, nan), (isposinf, posinf), (isneginf, neginf)):
        v = convert(where(special(v), number, v), v.dtype)
    return v


# --- others ---


@example("jnp.array([0.0, jnp.pi])", "Array([  0., 180.], dtype=float32)")
def rad2deg(x: ArrayLike, /) -> Array:
    """Radians to degrees; integers become float."""
    (v,) = promote_inexact("rad2deg", x)
    return _times(v, 180.0 / np.pi)


@example("jnp.array([0, 180])", "Array([0.       , 3.1415927], dtype=float32)")
def deg2rad(x: ArrayLike, /) -> Array:
    """Degrees to radians; integers become float."""
    (v,) = promote_inexact("deg2rad", x)
    return _times(v, np.pi / 180.0)


def _times(v: Array, factor: float) -> Array:
    """The product, which is weak for a weak scalar only."""
    return ops.mul(v, convert(full_like(v, factor), v.dtype, v.type.weak and not v.ndim))


degrees, radians = rad2deg, deg2rad


@example("jnp.array([1.0, jnp.nan]), jnp.array([3.0, 2.0])", "Array([3., 2.], dtype=float32)")
def fmax(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The larger of x1 and x2; the other one if one is nan. Broadcasts and promotes."""
    a, b = operands("fmax", x1, x2)
    return where(ops.or_(greater(a, b), isnan(b)), a, b)


@example("jnp.array([1.0, jnp.nan]), jnp.array([3.0, 2.0])", "Array([1., 2.], dtype=float32)")
def fmin(x1: ArrayLike, x2: ArrayLike) -> Array:
    """The smaller of x1 and x2; the other one if one is nan. Broadcasts and promotes."""
    a, b = operands("fmin", x1, x2)
    return where(ops.or_(less(a, b), isnan(b)), a, b)


@example("jnp.array([-2.0, 0.0, 3.0]), 0.5", "Array([0. , 0.5, 1. ], dtype=float32)", raises=COMPLEX)
def heaviside(x1: ArrayLike, x2: ArrayLike, /) -> Array:
    """0 for negative x1, x2 for zero, 1 for positive; nan for nan. Broadcasts; integers become float."""
    first, second = promote_inexact("heaviside", x1, x2)
    a, b = broadcast("heaviside", first, second)
    refuse_complex("heaviside", a)
    zero = full_like(a, 0)
    y = where(ops.lt(a, zero), zero, where(ops.gt(a, zero), full_like(a, 1), b))
    # Strong, unless x1 is a weak number.
    return convert(where(isnan(a), a, y), y.dtype, y.type.weak and not first.ndim)


@example("jnp.array([0.0, 1.0, -1.0])", "Array([1.      , 1.266066, 1.266066], dtype=float32)")
def i0(x: ArrayLike) -> Array:
    """The modified Bessel function of the first kind and order zero (DLMF 10.25.2), even in x.

    Raises:
        ValueError: complex input.
    """
    (v,) = promote_inexact("i0", x)
    if v.dtype not in dtypes.FLOAT:
        raise ValueError(f"Unsupported input type to jax.numpy.i0: {v.dtype.name}")
    return _i0(v)


@custom_jvp
def _i0(v: Array) -> Array:
    return ops.mul(ops.exp(ops.abs(v)), ops.bessel_i0e(v))


# DLMF 10.29.3. The parts' own slopes cancel, and |x| has none at 0.
_i0.defjvps(lambda t, y, v: ops.mul(t, ops.mul(ops.exp(ops.abs(v)), ops.bessel_i1e(v))))


@example(
    "jnp.array([-3, 0, 9]), 0, 5",
    "Array([0, 0, 5], dtype=int32)",
    "jnp.array([1.0, jnp.nan]), max=0.5",
    "Array([0.5, nan], dtype=float32)",
    raises="ValueError: complex input.",
)
def clip(
    arr: ArrayLike | None = None,
    /,
    min: ArrayLike | None = None,
    max: ArrayLike | None = None,
    *,
    a: ArrayLike | None = None,
    a_min: ArrayLike | None = None,
    a_max: ArrayLike | None = None,
) -> Array:
    """``arr`` kept between ``min`` and ``max``, either of which may be None; all broadcast and promote.

    Args:
        arr: real array.
        min, max: arrays or numbers; ``max`` wins where it is below ``min``.
        a, a_min, a_max: former names of the three.
    """
    arr = a if arr is None else arr
    lower = a_min if min is None else min
    upper = a_max if max is None else max
    v = as_operand(arr, "clip")
    if any(dtype_of(x, "clip")[0] in dtypes.COMPLEX for x in (v, lower, upper) if x is not None):
        raise ValueError("Clip received a complex value either through the input or the min/max keywords.")
    if lower is not None:
        v = maximum(lower, v)
    if upper is not None:
        v = minimum(upper, v)
    return copied(v) if v is arr else v
