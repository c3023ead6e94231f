"""Incomplete gamma and beta functions.

Series (DLMF 8.11.4) below x = a + 1 and the continued fraction (8.9.2) by Lentz's method above it; for beta, the
fraction 8.17.22. Each recurrence is written once, in terms that stand for NumPy arrays (`eval`) and for values of the
language (`stablehlo`, where it becomes a while loop). Derivatives in the parameter carry the slope along.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.ops import arithmetic, bitwise, compare, elementary, special
from nxjax.ops.arithmetic import mul, neg
from nxjax.ops.base import Differentiable, Elementwise, NDArray, Tangent, equal_dtypes, equal_shapes, like, of_dtype
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Op
from nxjax.trace.types import ArrayType

_STEPS: Final = 2000


@final
class Term:
    """A value with operators, each of which is an op: what a recurrence is written in when it is lowered."""

    __slots__ = ("value",)
    __array_ufunc__ = None

    def __init__(self, value: Array) -> None:
        self.value = value

    def _with(self, op: Op, other: Any, swapped: bool = False) -> Term:
        y = other.value if isinstance(other, Term) else other
        return Term(op(y, self.value) if swapped else op(self.value, y))

    def __add__(self, other: Any) -> Term:
        return self._with(arithmetic.add, other)

    def __sub__(self, other: Any) -> Term:
        return self._with(arithmetic.sub, other)

    def __mul__(self, other: Any) -> Term:
        return self._with(arithmetic.mul, other)

    def __truediv__(self, other: Any) -> Term:
        return self._with(arithmetic.div, other)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Term:
        return self._with(arithmetic.sub, other, True)

    def __rtruediv__(self, other: Any) -> Term:
        return self._with(arithmetic.div, other, True)

    def __neg__(self) -> Term:
        return Term(neg(self.value))

    def __abs__(self) -> Term:
        return Term(arithmetic.abs(self.value))

    def __lt__(self, other: Any) -> Term:
        return self._with(compare.lt, other)

    def __le__(self, other: Any) -> Term:
        return self._with(compare.le, other)

    def __gt__(self, other: Any) -> Term:
        return self._with(compare.gt, other)

    def __ge__(self, other: Any) -> Term:
        return self._with(compare.ge, other)

    def __eq__(self, other: Any) -> Any:
        return self._with(compare.eq, other)

    def __ne__(self, other: Any) -> Any:
        return self._with(compare.ne, other)

    def __and__(self, other: Any) -> Term:
        return self._with(bitwise.and_, other)

    def __or__(self, other: Any) -> Term:
        return self._with(bitwise.or_, other)


def _function(op: Op) -> Callable[[Any], Any]:
    """An op of one operand on terms and on NumPy arrays."""
    return lambda x: Term(op(x.value)) if isinstance(x, Term) else op.eval(np.asarray(x))


_exp, _log, _log1p = _function(elementary.exp), _function(elementary.log), _function(elementary.log1p)
_lgamma, _digamma = _function(special.lgamma), _function(special.digamma)


def _where(test: Any, x: Any, y: Any) -> Any:
    if not isinstance(test, Term):
        return np.where(test, x, y)
    known = next(v for v in (x, y) if isinstance(v, Term))
    return Term(select_n(test.value, *(v.value if isinstance(v, Term) else like(known.value, v) for v in (y, x))))


def _fill(x: Any, value: float) -> Any:
    return Term(like(x.value, value)) if isinstance(x, Term) else np.full_like(x, value)


class _Recurrence:
    """``start`` makes the state of the fixed ``xs``, ``step`` moves it, ``unfinished`` says where it still moves."""

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        """The state after step ``n``, counted from 1."""
        raise NotImplementedError

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        raise NotImplementedError


def _away(v: Any, tiny: float) -> Any:
    """Lentz's guard against division by zero."""
    return _where(abs(v) < tiny, tiny, v)


@final
class _Series(_Recurrence):
    """S = sum of x^n / ((a + 1) ... (a + n)) and dS/da: the lower function is x^a e^-x / Gamma(a + 1) S."""

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        zero, one = _fill(xs[0], 0), _fill(xs[0], 1)
        return one, zero, one, zero

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        (a, x), (term, slope, total, derivative) = xs, state
        term = term * x / (a + n)
        slope = slope - 1 / (a + n)  # of log term
        return term, slope, total + term, derivative + term * slope

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        term, slope, total, _ = state
        return (term > total * eps) | (abs(term * slope) > total * eps)


@final
class _Fraction(_Recurrence):
    """The fraction F and dF/da: the upper function is x^a e^-x / Gamma(a) F."""

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        a, x = xs
        b = x + 1 - a
        d = 1 / _away(b, tiny)
        return b, _fill(a, 1 / tiny), d, d, _fill(a, 0), d * d, d * d, _fill(a, 1)

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        a = xs[0]
        b, c, d, f, dc, dd, df, _ = state
        an = (a - n) * n  # its slope in a is n, that of b is -1
        b = b + 2
        dd = -(d * n + an * dd - 1)
        d = 1 / _away(an * d + b, tiny)
        dd = dd * d * d
        dc = -1 + n / c - an * dc / (c * c)
        c = _away(b + an / c, tiny)
        factor = c * d
        df = df * factor + f * (dc * d + c * dd)
        return b, c, d, f * factor, dc, dd, df, abs(factor - 1)

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        return state[-1] > eps


@final
class _BetaFraction(_Recurrence):
    """The fraction of x^a (1 - x)^b / (a B(a, b)); two of its terms a step."""

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        a, b, x = xs
        d = 1 / _away(1 - (a + b) * x / (a + 1), tiny)
        return _fill(x, 1), d, d, _fill(x, 1)

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        (a, b, x), (c, d, f, _) = xs, state
        even = (b - n) * x * n / ((a + n * 2 - 1) * (a + n * 2))
        d = 1 / _away(even * d + 1, tiny)
        c = _away(even / c + 1, tiny)
        f = f * d * c
        odd = -(a + n) * (a + b + n) * x / ((a + n * 2) * (a + n * 2 + 1))
        d = 1 / _away(odd * d + 1, tiny)
        c = _away(odd / c + 1, tiny)
        return c, d, f * d * c, abs(d * c - 1)

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        return state[-1] > eps


_SERIES, _FRACTION, _BETA = _Series(), _Fraction(), _BetaFraction()


def _guards(dtype: dtypes.DType) -> tuple[float, float]:
    info = dtypes.float_info(dtype)
    return float(info.eps), float(info.tiny) * 1e4


def _run(recurrence: _Recurrence, xs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """The recurrence in NumPy."""
    eps, tiny = _guards(dtypes.float64)
    state = recurrence.start(eps, tiny, *xs)
    for n in range(1, _STEPS):
        if not np.any(recurrence.unfinished(eps, state)):
            break
        state = recurrence.step(eps, tiny, float(n), xs, state)
    return state


def _emit(b: Any, recurrence: _Recurrence, xs: Sequence[Any]) -> tuple[Any, ...]:
    """The recurrence as a while loop in StableHLO, over a step counter and the state."""
    type = xs[0].type
    eps, tiny = _guards(type.dtype)
    counter, flag = ArrayType((), type.dtype), ArrayType((), dtypes.bool_)
    start = b.inline(_on_terms(lambda *v: recurrence.start(eps, tiny, *v)), xs)
    state_types = (counter, *(s.type for s in start))

    def test(b: Any, n: Any, *state: Any) -> Any:
        moving = b.inline(_on_terms(lambda *v: (recurrence.unfinished(eps, v),)), state)[0]
        axes = tuple(range(len(type.shape)))
        some = b.reduce("or", moving, b.constant(False, flag), axes, flag) if axes else moving
        below = b.compare("LT", n, b.constant(_STEPS, counter), flag)
        return b.simple("and", (some, below), flag)

    def turn(b: Any, n: Any, *state: Any) -> Any:
        repeated = b.broadcast(n, type.shape) if type.shape else n
        body = _on_terms(lambda k, *v: recurrence.step(eps, tiny, k, v[: len(xs)], v[len(xs) :]))
        moved = b.inline(body, (repeated, *xs, *state))
        return (b.simple("add", (n, b.constant(1, counter)), counter), *moved)

    regions = [(state_types, test), (state_types, turn)]
    return b.op("stablehlo.while", (b.constant(1, counter), *start), state_types, regions=regions)[1:]


def _on_terms(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Array, ...]]:
    return lambda *xs: tuple(y.value for y in function(*map(Term, xs)))


class _Incomplete(Differentiable, Elementwise):
    """Of float operands of one type. ``split`` prepares the recurrences' operands, ``join`` makes the result."""

    count = 2
    recurrences: tuple[_Recurrence, ...] = (_SERIES, _FRACTION)

    def infer(self, *types: ArrayType) -> ArrayType:
        if len(types) != self.count:
            raise TypeError(f"{self.name} takes {self.count} operands but {len(types)} were given")
        equal_shapes(self, *types)
        equal_dtypes(self, *types)
        of_dtype(self, dtypes.FLOAT, *types)
        return next((t for t in types if not t.weak), types[0])

    def split(self, *xs: Any) -> Sequence[Sequence[Any]]:
        """Operands of each recurrence, which converges for them."""
        a, x = xs
        inside = _inside(a, x)
        a, x = _where(inside, a, 1), _where(inside, x, 0.5)
        below = x < a + 1
        return (_where(below, a, 1), _where(below, x, 0.5)), (_where(below, 1, a), _where(below, 3, x))

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        raise NotImplementedError

    def eval(self, *xs: NDArray) -> NDArray:
        wide = [x.astype(np.float64) for x in xs]
        operands = self.split(*wide)
        states = [_run(r, args) for r, args in zip(self.recurrences, operands, strict=True)]
        return np.asarray(self.join(wide, operands, states)).astype(xs[0].dtype)

    def stablehlo(self, b: Any, out: ArrayType, *xs: Any) -> Any:
        wide = [b.convert(x, dtypes.float64 if out.dtype == dtypes.float64 else dtypes.float32) for x in xs]
        flat = b.inline(_on_terms(lambda *v: [w for args in self.split(*v) for w in args]), wide)
        n = len(flat) // len(self.recurrences)
        operands = [flat[i : i + n] for i in range(0, len(flat), n)]
        states = [_emit(b, r, args) for r, args in zip(self.recurrences, operands, strict=True)]

        def join(*values: Any) -> Sequence[Any]:
            rest = iter(values)
            take = lambda like: [next(rest) for _ in like]
            return (self.join(take(wide), [take(o) for o in operands], [take(s) for s in states]),)

        refs = [*wide, *flat, *(r for s in states for r in s)]
        return b.convert(b.inline(_on_terms(join), refs)[0], out.dtype)


def _inside(a: Any, x: Any) -> Any:
    """Where neither operand is at an edge of the domain or beyond."""
    return (x > 0) & (x < math.inf) & (a > 0) & (a < math.inf)


def _beyond(a: Any, x: Any) -> Any:
    return (
        (x < 0) | (a < 0) | (a != a) | (x != x) | ((a == 0) & (x == 0)) | ((a == math.inf) & (x > 0) & (x < math.inf))
    )


def _density(a: Array, x: Array) -> Array:
    """x^(a-1) e^-x / Gamma(a)"""
    power = mul(arithmetic.sub(a, 1), elementary.log(x))
    return elementary.exp(arithmetic.sub(arithmetic.sub(power, x), special.lgamma(a)))


class _Gamma(_Incomplete):
    """Both regularized functions follow from the one that is computed without cancellation."""

    upper: bool

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, x = xs
        (sa, sx), (fa, fx) = operands
        p = _exp(sa * _log(sx) - sx - _lgamma(sa + 1)) * states[0][2]
        q = _exp(fa * _log(fx) - fx - _lgamma(fa)) * states[1][3]
        below = x < a + 1
        value = _where(below, 1 - p, q) if self.upper else _where(below, p, 1 - q)
        zero, one = _fill(a, 0), _fill(a, 1)
        nothing, everything = (one, zero) if self.upper else (zero, one)
        edge = _where((a == 0) | (x == math.inf), everything, nothing)
        return _where(_inside(a, x), value, _where(_beyond(a, x), math.nan, edge))

    def tangents(self, y: Array, a: Array, x: Array) -> Sequence[Tangent | None]:
        sign = neg if self.upper else lambda t: t
        return (
            lambda t: sign(mul(t, igamma_grad_a(a, x))),
            lambda t: sign(mul(t, _density(a, x))),
        )


@final
class Igamma(_Gamma):
    """Regularized lower incomplete gamma function P(a, x) (DLMF 8.2.4): a gamma(a) number's chance to be below x."""

    name = "igamma"
    upper = False


@final
class Igammac(_Gamma):
    """Regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), without cancellation (DLMF 8.2.4)"""

    name = "igammac"
    upper = True


class _Slope(_Incomplete):
    def edge(self, a: Any, x: Any, value: Any) -> Any:
        """0 at x = 0; NaN elsewhere outside."""
        at_zero = (x == 0) & (a > 0)
        return _where(_inside(a, x), value, _where(at_zero, _fill(a, 0), _fill(a, math.nan)))


@final
class IgammaGradA(_Slope):
    """The derivative of P(a, x) in a"""

    name = "igamma_grad_a"

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, x = xs
        (sa, sx), (fa, fx) = operands
        (_, _, s, ds), (_, _, _, f, _, _, df, _) = states
        by_series = _exp(sa * _log(sx) - sx - _lgamma(sa + 1)) * (s * (_log(sx) - _digamma(sa + 1)) + ds)
        by_fraction = _exp(fa * _log(fx) - fx - _lgamma(fa)) * (f * (_log(fx) - _digamma(fa)) + df)
        return self.edge(a, x, _where(x < a + 1, by_series, -by_fraction))

    def tangents(self, y: Array, a: Array, x: Array) -> Sequence[Tangent | None]:
        def by_x(t: Array) -> Array:
            # The density's own derivative in a.
            return mul(t, mul(_density(a, x), arithmetic.sub(elementary.log(x), special.digamma(a))))

        return (special.no_derivative(self, "a"), by_x)


@final
class RandomGammaGrad(_Slope):
    """How a gamma(a) sample x moves with a at a fixed quantile: -(dP/da) / (dP/dx) (Figurnov et al., 2018)"""

    name = "random_gamma_grad"

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, x = xs
        (sa, sx), (fa, fx) = operands
        (_, _, s, ds), (_, _, _, f, _, _, df, _) = states
        # The common factor x^a e^-x / Gamma(a) cancels.
        by_series = -(sx / sa) * (s * (_log(sx) - _digamma(sa + 1)) + ds)
        by_fraction = fx * (f * (_log(fx) - _digamma(fa)) + df)
        return self.edge(a, x, _where(x < a + 1, by_series, by_fraction))

    def tangents(self, y: Array, a: Array, x: Array) -> Sequence[Tangent | None]:
        return (special.no_derivative(self, "a"), special.no_derivative(self, "the sample"))


@final
class RegularizedIncompleteBeta(_Incomplete):
    """I_x(a, b) (DLMF 8.17.2): a beta(a, b) number's chance to be below x; operands in the order (a, b, x)"""

    name = "regularized_incomplete_beta"
    count = 3
    recurrences = (_BETA,)

    def split(self, *xs: Any) -> Sequence[Sequence[Any]]:
        a, b, x = xs
        inside = self.inside(a, b, x)
        a, b, x = _where(inside, a, 1), _where(inside, b, 1), _where(inside, x, 0.5)
        # The fraction converges fast below the mean; above it, that of I_(1-x)(b, a) does.
        straight = x < (a + 1) / (a + b + 2)
        return ((_where(straight, a, b), _where(straight, b, a), _where(straight, x, 1 - x)),)

    def inside(self, a: Any, b: Any, x: Any) -> Any:
        return (x > 0) & (x < 1) & (a > 0) & (b > 0) & (a < math.inf) & (b < math.inf)

    def join(self, xs: Sequence[Any], operands: Sequence[Sequence[Any]], states: Sequence[Sequence[Any]]) -> Any:
        a, b, x = xs
        p, q, y = operands[0]
        front = _exp(p * _log(y) + q * _log1p(-y) + _lgamma(p + q) - _lgamma(p) - _lgamma(q))
        value = front * states[0][2] / p
        inside = self.inside(a, b, x)
        value = _where(x < (a + 1) / (a + b + 2), value, 1 - value)
        degenerate = ((a == 0) & (b == 0)) | ((a == math.inf) & (b == math.inf))
        beyond = (a < 0) | (b < 0) | (x < 0) | (x > 1) | (a != a) | (b != b) | (x != x) | degenerate
        zero, one = _fill(x, 0), _fill(x, 1)
        edge = _where(x == 0, zero, _where((x == 1) | (a == 0) | (b == math.inf), one, zero))
        edge = _where(beyond, math.nan, edge)
        return _where(inside, value, edge)

    def tangents(self, y: Array, a: Array, b: Array, x: Array) -> Sequence[Tangent | None]:
        def by_x(t: Array) -> Array:
            add, sub, lgamma = arithmetic.add, arithmetic.sub, special.lgamma
            powers = add(mul(sub(a, 1), elementary.log(x)), mul(sub(b, 1), elementary.log1p(neg(x))))
            beta = sub(add(lgamma(a), lgamma(b)), lgamma(add(a, b)))
            return mul(t, elementary.exp(sub(powers, beta)))

        return (special.no_derivative(self, "a"), special.no_derivative(self, "b"), by_x)


igamma = Igamma()
igammac = Igammac()
igamma_grad_a = IgammaGradA()
random_gamma_grad = RandomGammaGrad()
regularized_incomplete_beta = RegularizedIncompleteBeta()
