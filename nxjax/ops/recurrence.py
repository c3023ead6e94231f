"""Recurrences that run until they settle, for functions without a closed form.

A recurrence is written once, in terms that stand for NumPy arrays (`run`) and for values of the language (`emit`, where
it becomes a while loop in StableHLO). Knows no function in particular.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.ops import arithmetic, bitwise, compare, elementary, special
from nxjax.ops.base import NDArray, like
from nxjax.ops.reduce import reduce_or
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Op
from nxjax.trace.types import ArrayType

MOST_STEPS: Final = 2000


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
        return Term(arithmetic.neg(self.value))

    def __invert__(self) -> Term:
        return Term(bitwise.not_(self.value))

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


def function_of(op: Op) -> Callable[[Any], Any]:
    """An op of one operand on terms and on NumPy arrays."""
    return lambda x: Term(op(x.value)) if isinstance(x, Term) else op.eval(np.asarray(x))


exp, expm1 = function_of(elementary.exp), function_of(elementary.expm1)
log, log1p = function_of(elementary.log), function_of(elementary.log1p)
lgamma, digamma = function_of(special.lgamma), function_of(special.digamma)


def where(test: Any, x: Any, y: Any) -> Any:
    if not isinstance(test, Term):
        return np.where(test, x, y)
    known = next(v for v in (x, y) if isinstance(v, Term))
    return Term(select_n(test.value, *(v.value if isinstance(v, Term) else like(known.value, v) for v in (y, x))))


def fill(x: Any, value: float) -> Any:
    return Term(like(x.value, value)) if isinstance(x, Term) else np.full_like(x, value)


class Recurrence:
    """``start`` makes the state of the fixed ``xs``, ``step`` moves it, ``unfinished`` says where it still moves."""

    def start(self, eps: float, tiny: float, *xs: Any) -> tuple[Any, ...]:
        raise NotImplementedError

    def step(self, eps: float, tiny: float, n: Any, xs: Sequence[Any], state: Sequence[Any]) -> tuple[Any, ...]:
        """The state after step ``n``, counted from 1."""
        raise NotImplementedError

    def unfinished(self, eps: float, state: Sequence[Any]) -> Any:
        raise NotImplementedError


def away(v: Any, tiny: float) -> Any:
    """Lentz's guard against division by zero."""
    return where(abs(v) < tiny, tiny, v)


def _guards(dtype: dtypes.DType) -> tuple[float, float]:
    info = dtypes.float_info(dtype)
    return float(info.eps), float(info.tiny) * 1e4


def run(recurrence: Recurrence, xs: Sequence[NDArray]) -> tuple[NDArray, ...]:
    """The recurrence in NumPy."""
    eps, tiny = _guards(dtypes.float64)
    state = recurrence.start(eps, tiny, *xs)
    for n in range(1, MOST_STEPS):
        if not np.any(recurrence.unfinished(eps, state)):
            break
        state = recurrence.step(eps, tiny, float(n), xs, state)
    return state


Loop = Callable[[Recurrence, Sequence[Term]], tuple[Term, ...]]


def while_unfinished(while_loop: Callable[..., Any]) -> Loop:
    """Runs recurrences in other ops, by `while_loop`."""

    def loop(recurrence: Recurrence, xs: Sequence[Term]) -> tuple[Term, ...]:
        first = xs[0].value
        eps, tiny = _guards(first.dtype)
        one = like(first, 1)
        start = [y.value for y in recurrence.start(eps, tiny, *xs)]

        def unfinished(state: tuple[Array, ...]) -> Array:
            moving = recurrence.unfinished(eps, [Term(v) for v in state[1:]]).value
            some = reduce_or(moving, axes=tuple(range(moving.ndim)))
            few = compare.lt(state[0], like(state[0], MOST_STEPS))
            return bitwise.and_(some, reduce_or(few, axes=tuple(range(few.ndim))))

        def step(state: tuple[Array, ...]) -> tuple[Array, ...]:
            moved = recurrence.step(eps, tiny, Term(state[0]), xs, [Term(v) for v in state[1:]])
            return (arithmetic.add(state[0], one), *(y.value for y in moved))

        return tuple(map(Term, while_loop(unfinished, step, (one, *start))[1:]))

    return loop


def emit(b: Any, recurrence: Recurrence, xs: Sequence[Any]) -> tuple[Any, ...]:
    """The recurrence as a while loop in StableHLO, over a step counter and the state."""
    type = xs[0].type
    eps, tiny = _guards(type.dtype)
    counter, flag = ArrayType((), type.dtype), ArrayType((), dtypes.bool_)
    start = b.inline(on_terms(lambda *v: recurrence.start(eps, tiny, *v)), xs)
    state_types = (counter, *(s.type for s in start))

    def test(b: Any, n: Any, *state: Any) -> Any:
        moving = b.inline(on_terms(lambda *v: (recurrence.unfinished(eps, v),)), state)[0]
        axes = tuple(range(len(type.shape)))
        some = b.reduce("or", moving, b.constant(False, flag), axes, flag) if axes else moving
        below = b.compare("LT", n, b.constant(MOST_STEPS, counter), flag)
        return b.simple("and", (some, below), flag)

    def step(b: Any, n: Any, *state: Any) -> Any:
        repeated = b.broadcast(n, type.shape) if type.shape else n
        body = on_terms(lambda k, *v: recurrence.step(eps, tiny, k, v[: len(xs)], v[len(xs) :]))
        moved = b.inline(body, (repeated, *xs, *state))
        return (b.simple("add", (n, b.constant(1, counter)), counter), *moved)

    regions = [(state_types, test), (state_types, step)]
    return b.op("stablehlo.while", (b.constant(1, counter), *start), state_types, regions=regions)[1:]


def on_terms(function: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Array, ...]]:
    return lambda *xs: tuple(y.value for y in function(*map(Term, xs)))
