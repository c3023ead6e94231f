"""Arithmetic on numbers: negate, add, subtract, multiply, divide, remainder, power, minimum, maximum, ...

Operands have equal shapes and dtypes; promotion and broadcasting belong to `nxjax.numpy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, final

import ml_dtypes
import numpy as np

from nxjax.errors import DtypeError
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import (
    Binary,
    Composed,
    Differentiable,
    Face,
    LinearOp,
    NDArray,
    Nondifferentiable,
    RoundedDerivative,
    Tangent,
    Unary,
    define_op,
    like,
)
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Tangents, UndefinedPrimal
from nxjax.trace.types import ArrayType


@final
class Neg(LinearOp, Unary):
    """-x"""

    name = "neg"
    makes_nan = False
    hlo = "negate"
    ufunc = np.negative
    example = "jnp.array([1, 0], jnp.uint8)", "Array([255,   0], dtype=uint8)"

    def eval(self, x: NDArray, /) -> NDArray:
        return _wrapped(np.asarray(np.negative(x), x.dtype))

    def transpose(self, ct: Array, x: UndefinedPrimal, /) -> Tangents:
        return (neg(ct),)


def _wrapped(y: NDArray) -> NDArray:
    """ml_dtypes' negative and absolute value leave the four bits: the -8 of int4 becomes 8."""
    return y.astype(np.int8).astype(y.dtype) if y.dtype == dtypes.int4 else y


@final
class Add(LinearOp, Binary):
    """x + y; logical or for booleans."""

    name = "add"
    allowed = dtypes.NUMERIC
    hlo = "add"
    ufunc = np.add

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Array, Array | None]:
        tx, ty = tangents
        return self(*primals), ty if tx is None else tx if ty is None else add(tx, ty)

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Tangents:
        return (ct if isinstance(x, UndefinedPrimal) else None, ct if isinstance(y, UndefinedPrimal) else None)


@final
class Sub(LinearOp, Binary):
    """x - y"""

    name = "sub"
    hlo = "subtract"
    ufunc = np.subtract
    example = "jnp.array([1, 2], jnp.uint8), jnp.array([2, 2], jnp.uint8)", "Array([255,   0], dtype=uint8)"

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Array, Array | None]:
        tx, ty = tangents
        if ty is None:
            return self(*primals), tx
        return self(*primals), neg(ty) if tx is None else sub(tx, ty)

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Tangents:
        return (ct if isinstance(x, UndefinedPrimal) else None, neg(ct) if isinstance(y, UndefinedPrimal) else None)


@final
class Mul(Differentiable, Binary):
    """x * y; logical and for booleans."""

    name = "mul"
    allowed = dtypes.NUMERIC
    hlo = "multiply"
    ufunc = np.multiply

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, y), lambda t: mul(x, t))

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Tangents:
        return (mul(ct, y), None) if isinstance(x, UndefinedPrimal) else (None, mul(x, ct))


def ratio(x: NDArray, y: NDArray) -> NDArray:
    """Complex x / y, with the limits of C99 (annex G.5.1) where NumPy has NaN or loses the sign of a divisor of 0."""
    quotient = np.divide(x, y)
    above, below, zero = np.isinf(x), np.isinf(y), y == 0
    if zero.any():
        parts = np.empty_like(quotient)
        parts.real, parts.imag = np.divide(x.real, y.real), np.divide(x.imag, y.real)
        quotient = np.where(zero, parts, quotient)
    if not (above.any() or below.any()):
        return quotient
    gone, grown = below & np.isfinite(x), above & np.isfinite(y) & ~zero
    a, b = (np.where(np.isinf(v), np.copysign(1, v), np.copysign(0, v)) for v in (x.real, x.imag))
    limit = np.empty_like(quotient)
    limit.real, limit.imag = np.inf * (a * y.real + b * y.imag), np.inf * (b * y.real - a * y.imag)
    return np.where(gone, np.zeros_like(quotient), np.where(grown, limit, quotient))


@final
class Div(Differentiable, Binary):
    """x / y; for integers, the quotient rounded toward zero (x / 0 is -1, as in XLA)."""

    name = "div"
    hlo = "divide"
    example = "jnp.array([-7, 7]), 2", "Array([-3,  3], dtype=int32)"
    numpy = Face(
        "divide true_divide",
        "x / y, always inexact.",
        ("jnp.array([1, 0, -1]), 0", "Array([ inf,  nan, -inf], dtype=float32)"),
    )

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        if x.dtype not in dtypes.INTEGER:
            return np.asarray(ratio(x, y) if x.dtype.kind == "c" else np.divide(x, y), x.dtype)
        safe = np.where(y == 0, np.ones_like(y), y)
        quotient = np.floor_divide(x, safe)
        # NumPy rounds down; one is missing where the signs differ and a remainder is left.
        quotient = quotient + ((np.remainder(x, safe) != 0) & ((x < 0) != (safe < 0))).astype(x.dtype)
        return np.asarray(
            np.where(
                y == 0, np.full_like(y, -1 if x.dtype in dtypes.SIGNED else dtypes.integer_info(x.dtype).max), quotient
            ),
            x.dtype,
        )

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        # d(x / y) = (dx - (x / y) dy) / y
        return (lambda t: div(t, y), lambda t: neg(mul(t, div(out, y))))

    def transpose(self, ct: Array, x: Any, y: Any, /) -> Tangents:
        return (div(ct, y), None)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        if out.dtype not in dtypes.INTEGER:
            return b.simple("divide", (x, y), out)
        all_ones = -1 if out.dtype in dtypes.SIGNED else dtypes.integer_info(out.dtype).max
        return _guarded(b, "divide", out, x, y, b.constant(all_ones, out))


def _guarded(b: Any, name: str, out: ArrayType, x: Any, y: Any, by_zero: Any) -> Any:
    """Integer division with the divisor 0 taken out: XLA's simplifier traps when it folds a division by constant 0."""
    zero = b.compare("EQ", y, b.constant(0, out), ArrayType(out.shape, dtypes.bool_))
    divisor = b.op("stablehlo.select", (zero, b.constant(1, out), y), out)
    return b.op("stablehlo.select", (zero, by_zero, b.simple(name, (x, divisor), out)), out)


@final
class Rem(Differentiable, Binary):
    """Remainder with the sign of x (truncated division); x for integer division by zero."""

    name = "rem"
    allowed = dtypes.INTEGER | dtypes.FLOAT
    hlo = "remainder"
    example = "jnp.array([-7, 7]), 3", "Array([-1,  1], dtype=int32)"

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        if x.dtype in dtypes.INTEGER:
            safe = np.where(y == 0, np.ones_like(y), y)
            return np.asarray(np.where(y == 0, x, np.fmod(x, safe)), x.dtype)
        return np.asarray(np.fmod(x, y), x.dtype)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        return (
            b.simple("remainder", (x, y), out) if out.dtype in dtypes.FLOAT else _guarded(b, "remainder", out, x, y, x)
        )

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        # rem(x, y) = x - trunc(x / y) y

        from nxjax.ops.rounding import truncate

        return (lambda t: t, lambda t: neg(mul(t, truncate(div(x, y)))))


@final
class Pow(Differentiable, Binary):
    """x to the power y, of one float or complex dtype."""

    name = "pow"
    allowed = dtypes.INEXACT
    hlo = "power"

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        if x.dtype in dtypes.NARROW:
            return self.eval(x.astype(np.float32), y.astype(np.float32)).astype(x.dtype)
        out = np.asarray(np.power(x, y), x.dtype)
        # Where NumPy sees one exponent of 1/2 for all elements it takes the root, which is NaN for -inf and -0 for -0;
        # IEEE 754 (9.2.1) has inf and 0 there.
        if x.dtype in dtypes.FLOAT and (half := y == 0.5).any():
            out = np.where(half, np.where(x == -np.inf, -x, out + x.dtype.type(0)), out)
        # 1^y and x^0 are 1 for any NaN; of a signaling one, some C libraries say NaN.
        if x.dtype in dtypes.FLOAT and (none := np.isnan(out)).any():
            out = np.where(none & ((x == 1) | (y == 0)), x.dtype.type(1), out)
        return out

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        def by_base(t: Array) -> Array:
            # d/dx x^y = y x^(y-1), which is 0 for y = 0 even where x^(y-1), or its derivatives down to x^(y-4), are
            # infinite. Elsewhere it moves with y there, too.
            least = float(ml_dtypes.finfo(x.dtype).smallest_normal) ** 0.25
            size = abs(x)
            kept = ops.or_(ops.ne(y, like(y, 0)), ops.ge(size, like(size, least)))
            derivative = mul(y, pow(ops.select_n(kept, like(x, 1), x), sub(y, 1)))
            return mul(t, ops.select_n(kept, like(x, 0), derivative))

        def by_exponent(t: Array) -> Array:
            # d/dy x^y = log(x) x^y, taken as 0 for x = 0, where x^y does not move for y > 0.
            zero = ops.eq(x, like(x, 0))
            logarithm = ops.log(ops.select_n(zero, x, like(x, 1)))
            return mul(t, mul(ops.select_n(zero, logarithm, like(x, 0)), out))

        return (by_base, by_exponent)


@final
class IntegerPow(Differentiable, Unary):
    """x to a power ``y`` that is a Python int."""

    name = "integer_pow"
    allowed = dtypes.NUMBER

    def infer(self, x: ArrayType, /, *, y: int) -> ArrayType:
        if y < 0 and x.dtype in dtypes.INTEGER:
            raise DtypeError(
                "integer_pow: integers have no negative powers", got=f"{x} ** {y}", fix="cast to float first"
            )
        return super().infer(x)

    def eval(self, x: NDArray, /, *, y: int) -> NDArray:
        if x.dtype in dtypes.INTEGER:
            return np.asarray(_by_squaring(x, y, np.multiply, np.ones_like(x)), x.dtype)
        power = _by_squaring(x, -y if y < 0 else y, np.multiply, np.ones_like(x))
        if y >= 0:
            return np.asarray(power, x.dtype)
        return np.asarray(ratio(np.ones_like(power), power) if x.dtype.kind == "c" else np.reciprocal(power), x.dtype)

    def tangents(self, out: Array, x: Array, /, *, y: int) -> Sequence[Tangent | None]:
        if y == 0:
            return (None,)
        if y == 1:
            return (lambda t: t,)
        return (lambda t: mul(t, mul(integer_pow(x, y=y - 1), y)),)

    def expand(self, x: Array, /, *, y: int) -> Array:
        power = _by_squaring(x, -y if y < 0 else y, mul, like(x, 1))
        return div(like(x, 1), power) if y < 0 else power


def _by_squaring(x: Any, n: int, multiply: Any, one: Any) -> Any:
    result: Any = None
    while n:
        if n & 1:
            result = x if result is None else multiply(result, x)
        n >>= 1
        if n:
            x = multiply(x, x)
    return one if result is None else result


def _second_of_equals(ufunc: Any) -> Any:
    """NumPy's ``maximum`` or ``minimum``, which of two zeros is the second one on x86; elsewhere it may go by signs."""
    zeros = np.zeros(64, np.float32)
    if np.signbit(ufunc(zeros, -zeros)).all() and not np.signbit(ufunc(-zeros, zeros)).any():
        return ufunc

    def of(x: NDArray, y: NDArray) -> NDArray:
        out = ufunc(x, y)
        return np.where(x == y, y, out) if out.dtype in (dtypes.float32, dtypes.float64) else out

    return of


class _Extremum(Differentiable, Binary):
    """The larger or smaller of two; NaN if either is. Tangents of equal operands are averaged."""

    makes_nan = False
    allowed = dtypes.NUMERIC
    compare: ClassVar[str] = "gt"

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, _share(self, out, x, y)), lambda t: mul(t, _share(self, out, y, x)))

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        # XLA has no order of complex numbers of its own.
        complex_ = out.dtype in dtypes.COMPLEX
        return b.inline(self._by_parts, (x, y)) if complex_ else b.simple(self.hlo, (x, y), out)

    def _by_parts(self, x: Array, y: Array) -> Array:
        """By real part, then imaginary part; a NaN wins, the first of two."""
        a, b, c, d = ops.real(x), ops.imag(x), ops.real(y), ops.imag(y)
        compare = getattr(ops, self.compare)
        second = ops.or_(compare(c, a), ops.and_(ops.eq(c, a), compare(d, b)))
        return ops.select_n(ops.and_(ops.or_(second, or_nan(c, d)), ops.not_(or_nan(a, b))), x, y)


def _share(op: _Extremum, out: Array, x: Array, y: Array) -> Array:
    """1 where ``x`` is the extremum, 1/2 where both are, 0 elsewhere."""
    if x.dtype in dtypes.COMPLEX:  # which have an order here, but no comparisons
        return ops.select_n(ops.eq(x, y), ops.select_n(ops.eq(x, out), like(x, 0), like(x, 1)), like(x, 0.5))
    wins = getattr(ops, op.compare)(x, y)
    return ops.select_n(wins, ops.select_n(ops.eq(x, y), like(x, 0), like(x, 0.5)), like(x, 1))


max = define_op(
    _Extremum,
    "max",
    "The larger of x and y",
    hlo="maximum",
    ufunc=_second_of_equals(np.maximum),
    example=("jnp.array([1.0, jnp.nan]), 3.0", "Array([ 3., nan], dtype=float32)"),
)
min = define_op(
    _Extremum,
    "min",
    "The smaller of x and y",
    compare="lt",
    hlo="minimum",
    ufunc=_second_of_equals(np.minimum),
    example=("jnp.array([1.0, jnp.nan]), 3.0", "Array([ 1., nan], dtype=float32)"),
)


@final
class Abs(Differentiable, Unary):
    """Absolute value; of a complex number, its real modulus."""

    name = "abs"
    makes_nan = False
    gives = " (of which it gives floats)"
    hlo = "abs"
    example = "jnp.array([-128, 3], jnp.int8)", "Array([-128,    3], dtype=int8)"

    def infer(self, x: ArrayType, /) -> ArrayType:
        x = super().infer(x)
        return ArrayType(x.shape, dtypes.real_part(x.dtype), x.weak)

    def eval(self, x: NDArray, /) -> NDArray:
        return _wrapped(np.asarray(np.abs(x), dtypes.real_part(x.dtype)))

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        return x if out.dtype in dtypes.UNSIGNED else b.simple("abs", (x,), out)

    def tangents(self, out: Array, x: Array) -> Sequence[Tangent | None]:
        if x.dtype not in dtypes.COMPLEX:
            # 1 at 0, the derivative on the side of 0 itself. JAX chose so.
            return (lambda t: ops.select_n(ops.ge(x, like(x, 0)), neg(t), t),)
        # d|z| = Re(conj(z) dz) / |z|, that is Re(conj(sign z) dz)
        return (lambda t: ops.real(mul(t, ops.conj(sign(x)))),)


@final
class Sign(Nondifferentiable, Unary):
    """-1, 0 or 1 (NaN for NaN, -0.0 for -0.0); of a complex number, z / |z|."""

    name = "sign"
    makes_nan = False
    example = "jnp.array([-2.5, -0.0, jnp.nan])", "Array([-1., -0., nan], dtype=float32)"

    def eval(self, x: NDArray, /) -> NDArray:
        y = np.sign(x)
        return np.asarray(np.where(x == 0, x, y) if x.dtype in dtypes.FLOAT else y, x.dtype)

    def jvp(self, primals: Arrays, tangents: Tangents) -> tuple[Array, Array | None]:
        (x,), (t,) = primals, tangents
        y = self(x)
        if t is None or x.dtype not in dtypes.COMPLEX:
            return y, None
        # z = r u: du = i u Im(conj(u) dz) / r
        turn = div(ops.imag(mul(ops.conj(y), t)), abs(x))
        return y, mul(y, ops.complex(like(turn, 0), turn))

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        if out.dtype not in dtypes.UNSIGNED:
            return b.simple("sign", (x,), out)
        one, zero = b.constant(1, out), b.constant(0, out)
        nonzero = b.compare("NE", x, zero, ArrayType(out.shape, dtypes.bool_))
        return b.op("stablehlo.select", (nonzero, one, zero), out)


@final
class Square(Differentiable, Unary):
    """x * x"""

    name = "square"
    ufunc = np.square
    example = "jnp.array([-3, 16], jnp.int8)", "Array([9, 0], dtype=int8)"

    def eval(self, x: NDArray, /) -> NDArray:
        y = super().eval(x)
        if x.dtype.kind == "c" and not np.isfinite(y).all():
            # Of large parts both squares are infinite, and their difference is not.
            a, b = x.real, x.imag
            y.real = np.where(np.isfinite(y.real), y.real, (a - b) * (a / 2 + b / 2) * 2)
        return y

    def tangents(self, out: Array, x: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, mul(x, 2)),)

    def expand(self, x: Array, /) -> Array:
        return mul(x, x)


class _Root(RoundedDerivative, Unary):
    allowed = dtypes.INEXACT


@final
class Sqrt(_Root):
    """Square root; NaN below zero."""

    name = "sqrt"
    hlo = "sqrt"
    ufunc = np.sqrt
    accuracy = True
    example = "jnp.array([4.0, -1.0])", "Array([ 2., nan], dtype=float32)"
    numpy = Face("sqrt", "Square root.", ("jnp.array([4, -1])", "Array([ 2., nan], dtype=float32)"))

    def tangents(self, out: Array, x: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, div(like(out, 0.5), out)),)


@final
class Rsqrt(_Root, Composed):
    """1 / sqrt(x)"""

    name = "rsqrt"
    hlo = "rsqrt"
    accuracy = True
    example = "jnp.array([4.0, 0.0])", "Array([0.5, inf], dtype=float32)"

    def eval(self, x: NDArray, /) -> NDArray:
        root = np.sqrt(x.astype(np.float32) if x.dtype in dtypes.NARROW else x)
        inverse = ratio(np.ones_like(root), root) if x.dtype.kind == "c" else np.reciprocal(root)
        return np.asarray(inverse).astype(x.dtype)

    def composed(self, x: Array, /) -> Array:
        return div(like(x, 1), sqrt(x))

    def tangents(self, out: Array, x: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, div(mul(out, -0.5), x)),)


@final
class Cbrt(_Root):
    """Real cube root"""

    name = "cbrt"
    allowed = dtypes.FLOAT
    hlo = "cbrt"
    accuracy = True
    example = "jnp.array([8.0, -1.0])", "Array([ 2., -1.], dtype=float32)"
    numpy = Face("cbrt", "Cube root.")

    def eval(self, x: NDArray, /) -> NDArray:
        wide = x if x.dtype in (dtypes.float32, dtypes.float64) else x.astype(np.float32)
        return np.asarray(np.cbrt(wide)).astype(x.dtype)

    def tangents(self, out: Array, x: Array) -> Sequence[Tangent | None]:
        return (lambda t: mul(t, mul(integer_pow(out, y=-2), 1 / 3)),)


@final
class Atan2(Differentiable, Binary):
    """The angle of the point (y, x) in (-pi, pi], continued to complex numbers; operands in the order (y, x)."""

    name = "atan2"
    allowed = dtypes.INEXACT
    hlo = "atan2"
    example = "jnp.array([0.0, -0.0]), -1.0", "Array([ 3.1415927, -3.1415927], dtype=float32)"
    numpy = Face(
        "arctan2 atan2",
        "Angle of the point (y, x): arctan2(y, x).",
        ("jnp.array([0.0, -0.0]), -1", "Array([ 3.1415927, -3.1415927], dtype=float32)"),
    )

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        if x.dtype in dtypes.COMPLEX:
            # -i log((x + iy) / sqrt(x^2 + y^2)), with the operands' names here the other way round
            return np.asarray(-1j * np.log((y + 1j * x) / np.sqrt(x * x + y * y)), x.dtype)
        if x.dtype.isbuiltin == 1:
            return np.asarray(np.arctan2(x, y), x.dtype)
        return np.asarray(np.arctan2(x.astype(np.float32), y.astype(np.float32))).astype(x.dtype)

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        norm = lambda: add(square(x), square(y))
        return (lambda t: mul(t, div(y, norm())), lambda t: mul(t, div(neg(x), norm())))


@final
class Nextafter(Nondifferentiable, Binary):
    """The next representable float after x in the direction of y"""

    name = "nextafter"
    makes_nan = False
    arguments = "x1 x2"
    example = "jnp.array([1.0, 0.0]), jnp.array([2.0, 0.0])", "Array([1.0000001, 0.       ], dtype=float32)"
    lax = Face("nextafter", "The next representable float after ``x1`` in the direction of ``x2``.")
    allowed = dtypes.FLOAT
    numpy = Face(
        "nextafter",
        "The next float after x in the direction of y.",
        ("1.0, 2.0", "Array(1.0000001, dtype=float32, weak_type=True)"),
    )

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        # Of equal ones it is y, whose zero may have the other sign; NumPy's float16 gives x.
        return np.asarray(np.where(x == y, y, np.nextafter(x, y)), x.dtype)

    def expand(self, x: Array, y: Array, /) -> Array:
        # Adjacent floats of one sign are adjacent integers; zero steps to the smallest subnormal of y's sign.
        width = 8 * x.dtype.itemsize
        word = {8: dtypes.int8, 16: dtypes.int16, 32: dtypes.int32, 64: dtypes.int64}[width]
        bits = ops.bitcast_convert_type(x, dtype=word)
        toward_zero = ops.ne(ops.lt(x, y), ops.lt(bits, like(bits, 0)))
        stepped = add(bits, ops.select_n(toward_zero, like(bits, -1), like(bits, 1)))
        sign_of_y = ops.and_(ops.bitcast_convert_type(y, dtype=word), like(bits, -(2 ** (width - 1))))
        smallest = add(sign_of_y, 1)
        if not np.asarray(-0.0).astype(x.dtype).view(word):  # the word of -0 is NaN
            stepped = ops.select_n(ops.eq(stepped, like(bits, -(2 ** (width - 1)))), stepped, like(bits, 0))
        result = ops.bitcast_convert_type(ops.select_n(ops.eq(x, like(x, 0)), stepped, smallest), dtype=x.dtype)
        result = ops.select_n(ops.or_(ops.eq(x, y), ops.ne(y, y)), result, y)
        return ops.select_n(ops.ne(x, x), result, x)


def or_nan(x: Array, y: Array) -> Array:
    """Where either is NaN."""
    return ops.or_(ops.ne(x, x), ops.ne(y, y))


neg = Neg()
add = Add()
sub = Sub()
mul = Mul()
div = Div()
rem = Rem()
pow = Pow()
integer_pow = IntegerPow()
abs = Abs()
sign = Sign()
square = Square()
sqrt = Sqrt()
rsqrt = Rsqrt()
cbrt = Cbrt()
atan2 = Atan2()
nextafter = Nextafter()
