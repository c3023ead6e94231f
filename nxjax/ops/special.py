"""Special functions: error functions, gamma functions, exponentially scaled Bessel functions, Hurwitz zeta.

The NumPy meaning is computed in float64 from the definitions named at each op. XLA has its own expansions (the CHLO
dialect), which the portable lowering names; the Bessel functions are expanded here. Incomplete gamma and beta functions
are in `incomplete`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import numpy as np

from nxjax.errors import GradientError
from nxjax.ops.arithmetic import abs, add, div, max, min, mul, neg, rsqrt, sign, square, sub
from nxjax.ops.base import Binary, Differentiable, Face, LinearOp, NDArray, Tangent, define_op, eval_by_expand, like
from nxjax.ops.bitwise import and_
from nxjax.ops.compare import eq, ge, gt, lt, ne
from nxjax.ops.elementary import Composed, Smooth, exp
from nxjax.ops.rounding import floor
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op, Tangents
from nxjax.trace.types import ArrayType


def _pointwise(function: Callable[[float], float]) -> Callable[[NDArray], NDArray]:
    """A scalar function of the standard library over an array, in float64."""
    each = np.frompyfunc(function, 1, 1)

    def over(x: NDArray) -> NDArray:
        return np.asarray(each(x.astype(np.float64)), np.float64).reshape(x.shape)

    return over


class _Real(Smooth):
    """A real function whose meaning is given in float64, for one number by ``scalar``."""

    allowed = dtypes.FLOAT
    scalar: ClassVar[Callable[[float], float]] = math.erf

    def double(self, x: NDArray) -> NDArray:
        """The value in float64."""
        return _pointwise(type(self).scalar)(x)

    def eval(self, x: NDArray, /) -> NDArray:
        return np.asarray(self.double(x.astype(np.float64))).astype(x.dtype)


erf = define_op(
    _Real,
    "erf",
    "2/sqrt(pi) times the integral of e^(-t^2) from 0 to x (DLMF 7.2.1)",
    scalar=math.erf,
    push=lambda t, y, x: mul(t, mul(exp(neg(square(x))), 2 / math.sqrt(math.pi))),
    chlo="erf",
    example=("jnp.array([0.0, jnp.inf, -jnp.inf])", "Array([ 0.,  1., -1.], dtype=float32)"),
    scipy=Face(
        "erf",
        "The error function, 2 / sqrt(pi) times the integral of exp(-t^2) from 0 to x (DLMF 7.2.1).",
        ("0.5", "0.5205"),
    ),
)
erfc = define_op(
    _Real,
    "erfc",
    "1 - erf x, exact for large x",
    scalar=math.erfc,
    push=lambda t, y, x: mul(t, mul(exp(neg(square(x))), -2 / math.sqrt(math.pi))),
    chlo="erfc",
    example=("jnp.array([0.0, jnp.inf, -jnp.inf])", "Array([1., 0., 2.], dtype=float32)"),
    scipy=Face("erfc", "1 - erf(x), without cancellation (DLMF 7.2.2).", ("0.5", "0.4795")),
)


# Giles, "Approximating the erfinv function" (GPU Computing Gems, 2012), single precision, highest power first.
GILES_CENTRE = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
    -0.00125372503, -0.00417768164, 0.246640727, 1.50140941,
)  # fmt: skip
GILES_TAIL = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
    -0.0076224613, 0.00943887047, 1.00167406, 2.83297682,
)  # fmt: skip


def _giles(x: NDArray) -> NDArray:
    w = -np.log1p(-x * x)
    centre = np.polyval(np.asarray(GILES_CENTRE, x.dtype), w - x.dtype.type(2.5))
    tail = np.polyval(np.asarray(GILES_TAIL, x.dtype), np.sqrt(np.maximum(w, 5)) - 3)
    y = np.where(w < 5, centre, tail) * x
    return np.where(np.abs(x) == 1, x * np.inf, y).astype(x.dtype)


@final
class ErfInv(_Real):
    """The inverse of erf on (-1, 1)"""

    name = "erf_inv"
    chlo = "erf_inv"
    example = "jnp.array([0.0, 1.0, 2.0])", "Array([ 0., inf, nan], dtype=float32)"
    scipy = Face("erfinv", "The inverse of `erf` (DLMF 7.17.1).", ("0.5", "0.4769"), "NaN outside [-1, 1]")
    push = staticmethod(lambda t, y, x: mul(t, mul(exp(square(y)), math.sqrt(math.pi) / 2)))

    def eval(self, x: NDArray, /) -> NDArray:
        if x.dtype != dtypes.float64:
            return _giles(x.astype(np.float32)).astype(x.dtype)
        y = _giles(x)
        # Giles' tail ends where float32 does, at w = 16. Beyond, e^-t = erfc(y) is about e^(-y^2) / (sqrt(pi) y).
        w = -np.log1p(-x * x)
        t = np.maximum(w, 16) + math.log(2)
        far = np.sqrt(t - 0.5 * np.log(math.pi * (t - 0.5 * np.log(math.pi * t))))
        y = np.where((w > 16) & (np.abs(x) < 1), np.copysign(far, x), y)
        for _ in range(2):
            # Newton on erfc for the tails: erf saturates there, erfc does not.
            tails = np.where(x > 0, (1 - x) - _pointwise(math.erfc)(y), _pointwise(math.erfc)(-y) - (1 + x))
            error = np.where(np.abs(x) < 0.5, _pointwise(math.erf)(y) - x, tails)
            step = error * math.sqrt(math.pi) / 2 * np.exp(y * y)
            y = np.where(np.isfinite(y) & np.isfinite(step), y - step / (1 + y * step), y)
        return np.asarray(y)


def _lgamma(x: float) -> float:
    if math.isinf(x) or (x <= 0 and x == math.floor(x)):
        return math.inf
    try:
        return math.lgamma(x)
    except OverflowError:
        return math.inf


@final
class Lgamma(_Real):
    """log |Gamma(x)| (DLMF 5.2.1)"""

    name = "lgamma"
    scalar = _lgamma
    chlo = "lgamma"
    example = "jnp.array([1.0, 0.0, jnp.inf])", "Array([ 0., inf, inf], dtype=float32)"
    scipy = Face("gammaln", "log |gamma(x)| (DLMF 5.2.1).", ("5.0", "3.1781"), "inf at the poles")
    push = staticmethod(lambda t, y, x: mul(t, digamma(x)))


@final
class Digamma(_Real):
    """The derivative of log Gamma(x); NaN at the poles (DLMF 5.2.2)"""

    name = "digamma"
    chlo = "digamma"
    example = "jnp.array([1.0, -1.0])", "Array([-0.5772157,        nan], dtype=float32)"
    scipy = Face("digamma", "The derivative of `gammaln` (DLMF 5.2.2).", ("2.0", "0.4228"), "NaN at the poles")
    push = staticmethod(lambda t, y, x: mul(t, polygamma(like(x, 1), x)))

    def double(self, x: NDArray) -> NDArray:
        # Reflection (DLMF 5.5.4) to x >= 1/2, recurrence (5.5.2) to x >= 8, then the asymptotic series (5.11.2).
        low = x < 0.5
        z = np.where(low, 1 - x, x)
        shift = np.zeros_like(z)
        for k in range(8):
            shift += 1 / (z + k)
        z = z + 8
        r = 1 / (z * z)
        series = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r * 691 / 32760)))))
        y = np.log(z) - 0.5 / z - series - shift
        # The tangent has period pi: only the distance to the next whole number counts, which is exact.
        y = np.where(low, y - np.pi / np.tan(np.pi * (x - np.rint(x))), y)
        return np.where((x <= 0) & (x == np.floor(x)), np.nan, y)


@final
class NoDerivative(LinearOp):
    """The tangent in an operand without a derivative rule: an error if it is used, because zero would be wrong.

    An unused one costs nothing: it is removed before the program runs, or reverse mode never reaches it.
    """

    name = "no_derivative"

    def infer(self, t: ArrayType, /, *, function: str, operand: str) -> ArrayType:
        return t

    def eval(self, t: NDArray, /, *, function: str, operand: str) -> NDArray:
        raise _refused(function, operand)

    def transpose(self, ct: Array, t: Any, /, *, function: str, operand: str) -> Tangents:
        raise _refused(function, operand)

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Array, int | None]:
        return self(*args, **params), dims[0]

    def stablehlo(self, b: Any, out: ArrayType, t: Any, /, *, function: str, operand: str) -> Any:
        raise _refused(function, operand)


def _refused(function: str, operand: str) -> GradientError:
    return GradientError(
        f"{function}: has no derivative in {operand}", fix="pass lax.stop_gradient(...) for that operand"
    )


_no_derivative = NoDerivative()


def no_derivative(op: Op, operand: str) -> Tangent:
    """The tangent map of an operand in which there is no rule."""
    return lambda t: _no_derivative(t, function=op.name, operand=operand)


class _RealBinary(Differentiable, Binary):
    allowed = dtypes.FLOAT

    def double(self, x: NDArray, y: NDArray) -> NDArray:
        raise NotImplementedError

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        return np.asarray(self.double(x.astype(np.float64), y.astype(np.float64))).astype(x.dtype)


def _is_even(x: Array) -> Array:
    return eq(x, mul(floor(mul(x, 0.5)), 2))


def _hurwitz(s: NDArray, q: NDArray) -> NDArray:
    """The sum of (q + k)^-s for q > 0 and s > 1: Euler-Maclaurin (DLMF 25.11.5) after N terms."""
    count = 12
    total = np.zeros_like(q)
    for k in range(count):
        total += np.power(q + k, -s)
    a = q + count
    power = np.power(a, -s)
    total += power * a / (s - 1) + 0.5 * power
    factor, term = s / a, power
    for j, bernoulli in enumerate((1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)):
        total += bernoulli / math.factorial(2 * j + 2) * factor * term
        factor = factor * (s + 2 * j + 1) * (s + 2 * j + 2) / (a * a)
    return total


@final
class Zeta(_RealBinary):
    """Hurwitz zeta: the sum of (q + k)^-s over k >= 0 (DLMF 25.11.1); operands in the order (s, q)

    For q = -n - f below 0, with f in (0, 1), the terms of positive q + k are the sum from 1 - f on, and the others are
    (-1)^s times the sum from f on without the terms from n + 1 + f on.
    """

    name = "zeta"
    arguments = "x q"
    example = "jnp.array([2.0, 1.0]), 1.0", "Array([1.644934,      inf], dtype=float32)"
    lax = Face("zeta", "The Hurwitz zeta function: the sum of (q + k)^-x over k >= 0.")

    def double(self, x: NDArray, y: NDArray) -> NDArray:
        s, q = np.broadcast_arrays(x, y)
        low = q < 0
        part = np.fmod(np.where(low, -q, 0), 1)
        total = _hurwitz(s, np.where(low, 1 - part, q))
        if low.any():
            side = np.where(s % 2 == 0, 1.0, -1.0)
            # In this order nothing is lost half way between poles, where the large sums cancel.
            both = total + side * _hurwitz(s, np.where(low, part, 1)) - side * _hurwitz(s, np.where(low, 1 - q, 1))
            total = np.where(low, both, total)
        total = np.where(s == 1, np.inf, np.where(s < 1, np.nan, total))
        # At the poles of even order both sides go to +inf; powers of negative numbers need a whole exponent.
        pole = np.where(s % 2 == 0, np.inf, np.nan)
        total = np.where((q <= 0) & (q == np.floor(q)) & (s > 1), pole, total)
        return np.where((q <= 0) & (s != np.floor(s)), np.nan, total)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        # XLA's zeta is right for q >= 0 only.
        wide = dtypes.float64 if out.dtype == dtypes.float64 else dtypes.float32
        s, q = b.convert(x, wide), b.convert(y, wide)
        sums = [b.op("chlo.zeta", (s, start), s.type) for start in b.inline(self._starts, (q,))]
        return b.convert(b.inline(self._joined, (s, q, *sums)), out.dtype)

    def _starts(self, q: Array) -> Arrays:
        """Where the three sums start."""
        low = lt(q, like(q, 0))
        size = select_n(low, like(q, 1), neg(q))
        part = sub(size, floor(size))
        return select_n(low, q, sub(1, part)), part, add(size, 1)

    def _joined(self, s: Array, q: Array, up: Array, down: Array, rest: Array) -> Array:
        both = select_n(_is_even(s), add(sub(up, down), rest), sub(add(up, down), rest))
        low = lt(q, like(q, 0))
        total = select_n(and_(low, gt(s, like(s, 1))), up, both)
        return select_n(and_(low, ne(s, floor(s))), total, like(s, math.nan))

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        # By q: -s zeta(s + 1, q). By s there is no closed form.
        return (no_derivative(self, "s"), lambda t: mul(t, mul(neg(x), zeta(add(x, 1), y))))


@final
class Polygamma(_RealBinary):
    """The derivative of order m of digamma(x) (DLMF 5.15.1); operands in the order (m, x), m a whole float"""

    name = "polygamma"
    arguments = "m x"
    example = "1.0, jnp.array([1.0, 0.0])", "Array([1.644934,      inf], dtype=float32)"
    lax = Face("polygamma", "The derivative of order ``m`` (a whole float) of digamma.")

    def double(self, x: NDArray, y: NDArray) -> NDArray:
        m, z = np.broadcast_arrays(x, y)
        # psi_m(x) = (-1)^(m+1) m! zeta(m + 1, x)
        series = np.where(m % 2 == 0, -1.0, 1.0) * np.exp(_pointwise(_lgamma)(m + 1)) * zeta.double(m + 1, z)
        value = np.where(m == 0, digamma.double(z), series)
        return np.where((m < 0) | (m != np.floor(m)), np.nan, value)

    def stablehlo(self, b: Any, out: ArrayType, x: Any, y: Any, /) -> Any:
        wide = dtypes.float64 if out.dtype == dtypes.float64 else dtypes.float32
        return b.convert(b.inline(self._by_zeta, (b.convert(x, wide), b.convert(y, wide))), out.dtype)

    def _by_zeta(self, m: Array, x: Array) -> Array:
        size = mul(exp(lgamma(add(m, 1))), zeta(add(m, 1), x))
        y = select_n(_is_even(m), size, neg(size))
        y = select_n(eq(m, like(m, 0)), y, digamma(x))
        return select_n(and_(ge(m, like(m, 0)), eq(m, floor(m))), like(x, math.nan), y)

    def tangents(self, out: Array, x: Array, y: Array) -> Sequence[Tangent | None]:
        return (no_derivative(self, "the order m"), lambda t: mul(t, polygamma(add(x, 1), y)))


def _horner(coefficients: Sequence[float], x: Array) -> Array:
    """A polynomial, highest power first."""
    total = like(x, coefficients[0])
    for c in coefficients[1:]:
        total = add(mul(total, x), like(x, c))
    return total


def _bessel(order: int, x: Array) -> Array:
    """e^-|x| I_order(|x|) for order 0 and 1.

    The power series (DLMF 10.25.2), of positive terms only, up to |x| = 20; the asymptotic one (10.40.1) beyond.
    """
    size = abs(x)
    near = min(size, 20)
    terms = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(45)]
    series = mul(_horner(terms[::-1], square(mul(near, 0.5))), exp(neg(near)))
    if order == 1:
        series = mul(series, mul(near, 0.5))
    far = max(size, 20)
    asymptotic = [1.0]
    for k in range(1, 14):
        asymptotic.append(asymptotic[-1] * -(4 * order**2 - (2 * k - 1) ** 2) / (8 * k))
    tail = mul(_horner(asymptotic[::-1], div(like(far, 1), far)), mul(rsqrt(far), 1 / math.sqrt(2 * math.pi)))
    return select_n(lt(size, like(size, 20)), tail, series)


class _Bessel(Composed, _Real):
    allowed = dtypes.FLOAT

    def double(self, x: NDArray) -> NDArray:
        return np.asarray(eval_by_expand(self, (x,), {}))


@final
class BesselI0e(_Bessel):
    """e^-|x| I_0(x)"""

    name = "bessel_i0e"
    example = "jnp.array([0.0, jnp.inf])", "Array([1., 0.], dtype=float32)"
    scipy = Face(
        "i0e", "exp(-|x|) I_0(x), the modified Bessel function (DLMF 10.25.2) without overflow.", ("2.0", "0.3085")
    )
    push = staticmethod(lambda t, y, x: mul(t, sub(bessel_i1e(x), mul(sign(x), y))))

    def composed(self, x: Array, /) -> Array:
        return _bessel(0, x)


@final
class BesselI1e(_Bessel):
    """e^-|x| I_1(x)"""

    name = "bessel_i1e"
    example = "jnp.array([0.0, -jnp.inf])", "Array([ 0., -0.], dtype=float32)"
    scipy = Face(
        "i1e", "exp(-|x|) I_1(x), the modified Bessel function (DLMF 10.25.2) without overflow.", ("2.0", "0.2153")
    )

    def composed(self, x: Array, /) -> Array:
        return mul(sign(x), _bessel(1, x))

    @staticmethod
    def push(t: Array, y: Array, x: Array) -> Array:
        # I_1' = I_0 - I_1 / x. Near 0 the ratio is a series: of subnormal numbers the quotient has no digits, and its
        # derivative is a difference of nearly equal numbers over x.
        size = abs(x)
        near = lt(size, like(size, 1))
        terms = [0.5 / (math.factorial(k) * math.factorial(k + 1)) for k in range(9)]
        inner = select_n(near, like(x, 0), x)
        series = mul(_horner(terms[::-1], square(mul(inner, 0.5))), exp(neg(size)))
        ratio = select_n(near, div(y, select_n(near, x, like(x, 1))), series)
        return mul(t, sub(sub(bessel_i0e(x), ratio), mul(sign(x), y)))


erf_inv = ErfInv()
lgamma = Lgamma()
digamma = Digamma()
zeta = Zeta()
polygamma = Polygamma()
bessel_i0e = BesselI0e()
bessel_i1e = BesselI1e()
