"""Incomplete gamma and beta functions.

Series (DLMF 8.11.4) below x = a + 1 and the continued fraction (8.9.2) by Lentz's method above it; near a large a a
uniform expansion; for beta, the fraction 8.17.22. Derivatives in the parameter carry the derivative of each term along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, final

import numpy as np

from nxjax.ops import arithmetic, elementary, special
from nxjax.ops.arithmetic import mul, neg
from nxjax.ops.base import (
    Differentiable,
    Elementwise,
    Face,
    NDArray,
    Tangent,
    check_dtype,
    define_op,
    equal_dtypes,
    equal_shapes,
)
from nxjax.ops.convert import cast
from nxjax.ops.incomplete_large import Large, is_large, near
from nxjax.ops.recurrence import (
    Loop,
    Recurrence,
    Term,
    away,
    digamma,
    emit,
    exp,
    expm1,
    fill,
    lgamma,
    log,
    log1p,
    on_terms,
    run,
    where,
)
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType


@final
class _Series(Recurrence):
    """S = sum of x^n / ((a + 1) ... (a + n)): the lower function is x^a e^-x / Gamma(a + 1) S. With its slope dS/da."""

    def __init__(self, slope: bool) -> None:
        self.slope = slope

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        zero, one = fill(xs[0], 0), fill(xs[0], 1)
        return (one, one, zero, zero) if self.slope else (one, one)

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        (a, x), (term, total, *more) = xs, state
        term = term * x / (a + n)
        if not self.slope:
            return term, total + term
        slope, derivative = more
        slope = slope - 1 / (a + n)  # of log term
        return term, total + term, slope, derivative + term * slope

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        term, total, *more = state
        moving = term > total * eps
        return moving | (abs(term * more[0]) > total * eps) if self.slope else moving


@final
class _Fraction(Recurrence):
    """The fraction F: the upper function is x^a e^-x / Gamma(a) F. With its slope dF/da."""

    def __init__(self, slope: bool) -> None:
        self.slope = slope

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        a, x = xs
        b = x + 1 - a
        d = 1 / away(b, tiny)
        state = b, fill(a, 1 / tiny), d, d, fill(a, 1)
        return (*state, fill(a, 0), d * d, d * d) if self.slope else state

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        a = xs[0]
        b, c, d, f, last_change, *more = state
        an = (a - n) * n
        b = b + 2
        before = c, d
        d = 1 / away(an * d + b, tiny)
        c = away(b + an / c, tiny)
        factor = c * d
        # What is done stays as it is: rounding may move it once more, and others would have to wait for it.
        going = last_change > eps
        change, further = where(going, abs(factor - 1), last_change), where(going, f * factor, f)
        if not self.slope:
            return b, c, d, further, change
        # The slope of ``an`` is n, that of b is -1.
        (dc, dd, df), (last_c, last_d) = more, before
        dd = -(last_d * n + an * dd - 1) * d * d
        dc = -1 + n / last_c - an * dc / (last_c * last_c)
        slope = df * factor + f * (dc * d + c * dd)
        # For integer a the fraction ends, but its derivative goes on.
        moved = abs(slope - df) / (abs(slope) + abs(f))
        change = where(going & (moved > change), moved, change)
        return b, c, d, further, change, dc, dd, where(going, slope, df)

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        return state[4] > eps


@final
class _BetaFraction(Recurrence):
    """The fraction of x^a (1 - x)^b / (a B(a, b)); two of its terms a step."""

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        a, b, x = xs
        d = 1 / away(1 - (a + b) * x / (a + 1), tiny)
        return fill(x, 1), d, d, fill(x, 1)

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        (a, b, x), (c, d, f, last_change) = xs, state
        even = (b - n) * x * n / ((a + n * 2 - 1) * (a + n * 2))
        d = 1 / away(even * d + 1, tiny)
        c = away(even / c + 1, tiny)
        last, f = f, f * d * c
        odd = -(a + n) * (a + b + n) * x / ((a + n * 2) * (a + n * 2 + 1))
        d = 1 / away(odd * d + 1, tiny)
        c = away(odd / c + 1, tiny)
        going = last_change > eps  # as in `_Fraction`
        return c, d, where(going, f * d * c, last), where(going, abs(d * c - 1), last_change)

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        return state[-1] > eps


_BETA = _BetaFraction()


class Incomplete(Differentiable, Elementwise):
    """Of float operands of one type. ``prepared`` makes the recurrences' operands, ``join`` makes the result."""

    count = 2
    recurrences: tuple[Recurrence, ...] = (_Series(False), _Fraction(False))

    allowed = dtypes.FLOAT

    def infer(self, *types: ArrayType) -> ArrayType:
        if len(types) != self.count:
            raise TypeError(f"{self.name} takes {self.count} operands but {len(types)} were given")
        equal_shapes(self, *types)
        equal_dtypes(self, *types)
        check_dtype(self, self.allowed, *types)
        return next((t for t in types if not t.weak), types[0])

    def prepared(self, *xs: Any) -> Sequence[Sequence[Any]]:
        """Operands of each recurrence, which converges for them."""
        a, x = xs
        slow = _inside(a, x) & ~is_large(a, x)
        a, x = where(slow, a, 1), where(slow, x, 0.5)
        below = x < a + 1
        return (where(below, a, 1), where(below, x, 0.5)), (where(below, 1, a), where(below, 3, x))

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        raise NotImplementedError

    def eval(self, *xs: NDArray) -> NDArray:
        wide = [x.astype(np.float64) for x in xs]
        operands = self.prepared(*wide)
        states = [run(r, args) for r, args in zip(self.recurrences, operands, strict=True)]
        return np.asarray(self.join(wide, operands, states)).astype(xs[0].dtype)

    def by(self, loop: Loop) -> Callable[..., Array]:
        """The function in float64 as other ops, with ``loop`` for its recurrences."""

        def expanded(*xs: Array) -> Array:
            wide = [Term(cast(x, dtypes.float64)) for x in xs]
            operands = self.prepared(*wide)
            states = [loop(r, args) for r, args in zip(self.recurrences, operands, strict=True)]
            return cast(self.join(wide, operands, states).value, xs[0].dtype)

        return expanded

    def stablehlo(self, b: Any, out: ArrayType, *xs: Any) -> Any:
        wide = [b.convert(x, dtypes.float64 if out.dtype == dtypes.float64 else dtypes.float32) for x in xs]
        flat = b.inline(on_terms(lambda *v: [w for args in self.prepared(*v) for w in args]), wide)
        n = len(flat) // len(self.recurrences)
        operands = [flat[i : i + n] for i in range(0, len(flat), n)]
        states = [emit(b, r, args) for r, args in zip(self.recurrences, operands, strict=True)]

        def join(*values: Any) -> Sequence[Any]:
            rest = iter(values)
            take = lambda like: [next(rest) for _ in like]
            return (self.join(take(wide), [take(o) for o in operands], [take(s) for s in states]),)

        refs = [*wide, *flat, *(r for s in states for r in s)]
        return b.convert(b.inline(on_terms(join), refs)[0], out.dtype)


def _inside(a: Any, x: Any) -> Any:
    """Where neither operand is at an edge of the domain or beyond."""
    return (x > 0) & (x < math.inf) & (a > 0) & (a < math.inf)


def _beyond(a: Any, x: Any) -> Any:
    # Of an infinite shape XLA has values only where x^a vanishes, and at the other end.
    grown = (a == math.inf) & (x >= 1) & (x < math.inf)
    return (x < 0) | (a < 0) | (a != a) | (x != x) | ((a == 0) & (x == 0)) | grown


def _density(a: Array, x: Array) -> Array:
    """x^(a-1) e^-x / Gamma(a)"""
    power = mul(arithmetic.sub(a, 1), elementary.log(x))
    large = near(a, x)
    other = elementary.exp(arithmetic.sub(arithmetic.sub(power, x), special.lgamma(a)))
    return large.or_else(large.front * large.density(), other)


class _Gamma(Incomplete):
    """Both regularized functions follow from the one that is computed without cancellation."""

    arguments = "a x"
    upper: ClassVar[bool] = False

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, x = xs
        (sa, sx), (fa, fx) = operands
        factor, series = sa * log(sx) - sx - lgamma(sa + 1), states[0][1]
        q = exp(fa * log(fx) - fx - lgamma(fa)) * states[1][3]
        below = x < a + 1
        if self.upper:
            # 1 - P where P is next to 1 has the digits of the exponent, and none of the exponential's errors.
            exponent = factor + log(series)
            value = where(below, -expm1(where(exponent < 0, exponent, 0)), q)
        else:
            value = where(below, exp(factor) * series, 1 - q)
        large = Large(is_large(a, x), a, x)
        value = where(is_large(a, x), large.upper() if self.upper else large.lower(), value)
        zero, one = fill(a, 0), fill(a, 1)
        nothing, everything = (one, zero) if self.upper else (zero, one)
        edge = where((a == 0) | (x == math.inf), everything, nothing)
        return where(_inside(a, x), value, where(_beyond(a, x), math.nan, edge))

    def tangents(self, y: Array, a: Array, x: Array) -> Sequence[Tangent | None]:
        sign = neg if self.upper else lambda t: t
        return (
            lambda t: sign(mul(t, igamma_grad_a(a, x))),
            lambda t: sign(mul(t, _density(a, x))),
        )


igamma = define_op(
    _Gamma,
    "igamma",
    "Regularized lower incomplete gamma function P(a, x) (DLMF 8.2.4): a gamma(a) number's chance to be below x.",
    example=("1.0, jnp.array([0.0, 1.0, jnp.inf])", "Array([0.        , 0.63212055, 1.        ], dtype=float32)"),
    lax=Face("igamma", "The regularized lower incomplete gamma function."),
)
igammac = define_op(
    _Gamma,
    "igammac",
    "Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), without cancellation (DLMF 8.2.4)",
    example=("1.0, jnp.array([0.0, 1.0, jnp.inf])", "Array([1.        , 0.36787945, 0.        ], dtype=float32)"),
    lax=Face("igammac", "The regularized upper incomplete gamma function."),
    upper=True,
)


class _Derivative(Incomplete):
    recurrences = (_Series(True), _Fraction(True))

    def edge(self, a: Any, x: Any, value: Any) -> Any:
        """0 at x = 0; NaN elsewhere outside."""
        at_zero = (x == 0) & (a > 0)
        return where(_inside(a, x), value, where(at_zero, fill(a, 0), fill(a, math.nan)))


@final
class IgammaGradA(_Derivative):
    """The derivative of P(a, x) in a"""

    name = "igamma_grad_a"
    arguments = "a x"
    example = "jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0])", "Array([ 0.        , -0.27619603], dtype=float32)"
    lax = Face("igamma_grad_a", "The derivative of `igamma` in ``a``.")

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, x = xs
        (sa, sx), (fa, fx) = operands
        (_, s, _, ds), (_, _, _, f, _, _, _, df) = states
        by_series = exp(sa * log(sx) - sx - lgamma(sa + 1)) * (s * (log(sx) - digamma(sa + 1)) + ds)
        by_fraction = exp(fa * log(fx) - fx - lgamma(fa)) * (f * (log(fx) - digamma(fa)) + df)
        large = Large(is_large(a, x), a, x)
        value = where(x < a + 1, by_series, -by_fraction)
        return self.edge(a, x, where(is_large(a, x), large.front * large.slope(), value))

    def tangents(self, y: Array, a: Array, x: Array) -> Sequence[Tangent | None]:
        def by_x(t: Array) -> Array:
            # The density's own derivative in a.
            return mul(t, mul(_density(a, x), arithmetic.sub(elementary.log(x), special.digamma(a))))

        return (special.no_derivative(self, "a"), by_x)


@final
class RandomGammaGrad(_Derivative):
    """How a gamma(a) sample x moves with a at a fixed quantile: -(dP/da) / (dP/dx) (Figurnov et al., 2018)"""

    name = "random_gamma_grad"
    arguments = "a x"
    example = "jnp.array([1.0, 1.0]), jnp.array([1.0, 2.0])", "Array([1.173563 , 1.6316915], dtype=float32)"
    lax = Face("random_gamma_grad", "How a gamma(``a``) sample ``x`` moves with ``a`` at a fixed quantile.")

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, x = xs
        (sa, sx), (fa, fx) = operands
        (_, s, _, ds), (_, _, _, f, _, _, _, df) = states
        # The common factor x^a e^-x / Gamma(a) cancels.
        by_series = -(sx / sa) * (s * (log(sx) - digamma(sa + 1)) + ds)
        by_fraction = fx * (f * (log(fx) - digamma(fa)) + df)
        large = Large(is_large(a, x), a, x)
        value = where(x < a + 1, by_series, by_fraction)
        return self.edge(a, x, where(is_large(a, x), large.sample_slope(), value))

    def tangents(self, y: Array, a: Array, x: Array) -> Sequence[Tangent | None]:
        return (special.no_derivative(self, "a"), special.no_derivative(self, "the sample"))


@final
class RegularizedIncompleteBeta(Incomplete):
    """I_x(a, b) (DLMF 8.17.2): a beta(a, b) number's chance to be below x; operands in the order (a, b, x)"""

    name = "regularized_incomplete_beta"
    arguments = "a b x"
    example = "2.0, 2.0, jnp.array([0.0, 0.5, 1.0, 2.0])", "Array([0. , 0.5, 1. , nan], dtype=float32)"
    lax = Face(
        "betainc",
        "The regularized incomplete beta function.",
        outside="NaN unless ``a`` and ``b`` are positive and ``x`` is in [0, 1]",
    )
    count = 3
    recurrences = (_BETA,)

    def prepared(self, *xs: Any) -> Sequence[Sequence[Any]]:
        a, b, x = xs
        inside = self.inside(a, b, x)
        a, b, x = where(inside, a, 1), where(inside, b, 1), where(inside, x, 0.5)
        # The fraction converges fast below the mean; above it, that of I_(1-x)(b, a) does.
        straight = x < (a + 1) / (a + b + 2)
        return ((where(straight, a, b), where(straight, b, a), where(straight, x, 1 - x)),)

    def inside(self, a: Any, b: Any, x: Any) -> Any:
        return (x > 0) & (x < 1) & (a > 0) & (b > 0) & (a < math.inf) & (b < math.inf)

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, b, x = xs
        p, q, y = operands[0]
        front = exp(p * log(y) + q * log1p(-y) + lgamma(p + q) - lgamma(p) - lgamma(q))
        value = front * states[0][2] / p
        inside = self.inside(a, b, x)
        value = where(x < (a + 1) / (a + b + 2), value, 1 - value)
        degenerate = ((a == 0) & (b == 0)) | ((a == math.inf) & (b == math.inf))
        beyond = (a < 0) | (b < 0) | (x < 0) | (x > 1) | (a != a) | (b != b) | (x != x) | degenerate
        zero, one = fill(x, 0), fill(x, 1)
        edge = where(x == 0, zero, where((x == 1) | (a == 0) | (b == math.inf), one, zero))
        edge = where(beyond, math.nan, edge)
        return where(inside, value, edge)

    def tangents(self, y: Array, a: Array, b: Array, x: Array) -> Sequence[Tangent | None]:
        def by_x(t: Array) -> Array:
            add, sub, lgamma = arithmetic.add, arithmetic.sub, special.lgamma
            powers = add(mul(sub(a, 1), elementary.log(x)), mul(sub(b, 1), elementary.log1p(neg(x))))
            beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
            return mul(t, elementary.exp(sub(powers, beta)))

        return (special.no_derivative(self, "a"), special.no_derivative(self, "b"), by_x)


igamma_grad_a = IgammaGradA()
random_gamma_grad = RandomGammaGrad()
regularized_incomplete_beta = RegularizedIncompleteBeta()
