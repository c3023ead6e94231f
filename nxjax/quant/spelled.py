"""Functions of one value that a program spells out, whatever the spelling: found by the values that they have.

Each elementwise equation is evaluated at some points as a function of every value behind it. One that is there what an
op is becomes that op: ``1 / (1 + exp(-x))`` is logistic, with one rounding instead of three. Knows no policy.

A hard_swish in pieces stays so: Edge TPUs have the pieces only.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.ops.arithmetic import add, div, integer_pow, max, mul, pow, sqrt, square
from nxjax.ops.base import Elementwise
from nxjax.ops.composite_activation import gelu, softplus
from nxjax.ops.elementary import log, logistic, tanh
from nxjax.ops.reduce import reduce_sum
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.quant.view import WeightView
from nxjax.trace.core import Op
from nxjax.trace.program import Atom, Equation, Program, Var

NDArray = np.ndarray[Any, Any]
# Where functions are compared: both sides of every bend of those below, in no regular distance.
POINTS: Final = np.concatenate([np.linspace(-9.3, 9.1, 61), [-2.97, -1e-2, 1e-2, 3.03]]).astype(np.float32)
CLOSE: Final = 2e-5
# A function begins at most so many values back.
BACK: Final = 14


class SpelledFunction(NamedTuple):
    """An op of ``x`` that an equation's result is; with ``product``, the result is x times it."""

    op: Op
    params: dict[str, Any]
    x: Var
    product: bool = False


@final
class _Known(NamedTuple):
    values: NDArray
    op: Op
    params: dict[str, Any]
    product: bool = False


def _known() -> tuple[_Known, ...]:
    rows: tuple[tuple[Op, dict[str, Any]], ...] = (
        (gelu, {"approximate": False}), (gelu, {"approximate": True}), (logistic, {}), (tanh, {}), (softplus, {}),
    )  # fmt: skip
    found = [_Known(np.asarray(op.eval(POINTS, **params)), op, params) for op, params in rows]
    sigmoid = np.asarray(logistic.eval(POINTS))
    return (*found, _Known(POINTS * sigmoid, logistic, {}, True))


@final
class _Behind(NamedTuple):
    """Values that one depends on alone, and what it is at the points of each: [values, points]."""

    sources: tuple[Var, ...]
    values: NDArray
    # Equations between each and this one.
    depths: tuple[int, ...]


def spelled(program: Program, view: WeightView) -> dict[Equation, SpelledFunction]:
    """The equations whose result is a known function of one value, made by two equations or more."""
    behind: dict[Var, _Behind] = {}
    known = _known()
    found: dict[Equation, SpelledFunction] = {}
    table = np.stack([k.values for k in known])
    for e in program.equations:
        if not isinstance(e.op, Elementwise) or e.op.multi or e.effect or e.op.nested:
            continue
        y = e.outputs[0]
        here = _evaluated(e, view, behind)
        if here is None:
            continue
        behind[y] = here
        if not view.is_float(y):
            continue
        for x, values, depth in zip(here.sources, here.values, here.depths, strict=True):
            if depth < 2 or x.type.shape != y.type.shape:
                continue
            off = np.abs(values - table) / (1 + np.abs(table))
            best = int(off.max(1).argmin())
            if off[best].max() <= CLOSE:
                found[e] = SpelledFunction(known[best].op, known[best].params, x, known[best].product)
                break
    return found


def _evaluated(e: Equation, view: WeightView, behind: dict[Var, _Behind]) -> _Behind | None:
    """What ``e`` makes, as a function of the values that all its operands come from."""
    operands: list[_Behind | float] = []
    for a in e.inputs:
        number = view.number(a)
        if number is not None:
            operands.append(number)
        elif isinstance(a, Var) and not view.is_weight(a):
            operands.append(_with_itself(a, view, behind))
        else:
            return None
    places = [o for o in operands if isinstance(o, _Behind)]
    if not places:
        return None
    shared = [v for v in places[0].sources if all(v in o.sources for o in places[1:])][-BACK:]
    if not shared:
        return None
    rows: list[NDArray] = []
    for a, o in zip(e.inputs, operands, strict=True):
        if isinstance(o, _Behind):
            rows.append(o.values[[o.sources.index(v) for v in shared]])
        else:
            rows.append(np.full((len(shared), len(POINTS)), o, a.type.dtype))
    depths = [1 + builtins.max(o.depths[o.sources.index(v)] for o in places) for v in shared]
    call: Callable[..., Any] = e.op.eval
    with np.errstate(all="ignore"):
        values = np.asarray(call(*rows, **e.params))
    return _Behind(tuple(shared), values, tuple(depths))


def _with_itself(a: Var, view: WeightView, behind: dict[Var, _Behind]) -> _Behind:
    """What is known of ``a``, and ``a`` as a function of itself."""
    before = behind.get(a)
    if not view.is_float(a):
        return before or _Behind((), np.empty((0, len(POINTS)), bool), ())
    if before is None:
        return _Behind((a,), POINTS[None], (0,))
    return _Behind((*before.sources, a), np.concatenate([before.values, POINTS[None]]), (*before.depths, 0))


def softmax_of(view: WeightView, e: Equation) -> tuple[Atom, int] | None:
    """x and axis of exp(x) / sum(exp(x)) along it; something that is the same along the axis may be subtracted first.

    ``e`` is the quotient.
    """
    above, below = e.inputs
    total = _unspread(view, below)
    sum_ = view.made_by(total, "reduce_sum") if total is not None else None
    exp = view.made_by(above, "exp")
    if sum_ is None or exp is None or sum_.inputs[0] is not above or len(sum_.params["axes"]) != 1:
        return None
    (axis,) = sum_.params["axes"]
    if _differs(view, below, axis):
        return None
    x = exp.inputs[0]
    less = view.made_by(x, "sub")
    if less is not None and not _differs(view, less.inputs[1], axis):
        x = less.inputs[0]
    return x, axis


def _unspread(view: WeightView, a: Atom) -> Atom | None:
    while (e := view.made_by(a, "broadcast_in_dim", "reshape", "stop_gradient")) is not None:
        a = e.inputs[0]
    return a


def _differs(view: WeightView, a: Atom, axis: int) -> bool:
    """Whether ``a`` may have different elements along ``axis``."""
    e = view.made_by(a, "broadcast_in_dim")
    if e is None:
        return a.type.shape[axis] != 1
    dims = e.params["broadcast_dimensions"]
    return axis in dims and e.inputs[0].type.shape[dims.index(axis)] != 1


# What a square passes on its way to the root: nothing that changes how its sizes compare.
_ON_THE_WAY: Final[frozenset[Op]] = frozenset((add, reduce_sum, mul, div, max, reshape, transpose, broadcast_in_dim))


_SCALING: Final[frozenset[Op]] = frozenset((mul, div))
_EITHER: Final[frozenset[Op]] = frozenset((mul,))
_ROOTS: Final[frozenset[Op]] = frozenset((sqrt, log))


def magnitudes(program: Program, view: WeightView) -> set[Equation]:
    """The equations of every sqrt(a * a + b * b), and of log(a * a + b * b), the decibels of a spectrum.

    Squares have twice the decibels of the values, and 8 bits have not.

    >>> from nxjax.trace.stage import stage
    >>> p = stage(lambda x, y: [jnp.sqrt(x * x + y * y)], [jnp.ones(2).type, jnp.ones(2).type], "f")
    >>> sorted(e.op.name for e in magnitudes(p, WeightView(p, [False, False])))
    ['add', 'mul', 'mul', 'sqrt']
    """
    found: set[Equation] = set()
    for e in program.equations:
        if e.op in _ROOTS and not view.is_weight(e.inputs[0]):
            path = _squares(view, e.inputs[0])
            found |= {e, *path} if path else set()
    for e in [e for e in found if is_square(view, e)]:
        # The square of a root: what lies between only moves.
        moved = list(_moved(view, e.inputs[0]))
        if moved and view.producer.get(moved[-1].inputs[0]) in found:  # pyright: ignore[reportArgumentType]
            found.update(moved)
    return found


def _moved(view: WeightView, a: Atom) -> Iterator[Equation]:
    """The equations that only move what becomes ``a``."""
    while (e := view.made_by(a, "transpose", "reshape", "slice")) is not None:
        yield e
        a = e.inputs[0]


def _squares(view: WeightView, a: Atom) -> set[Equation] | None:
    """The equations from squares to ``a``, if nothing else is in it but numbers."""
    e = view.producer.get(a) if isinstance(a, Var) else None
    if e is None or not view.is_float(a):
        return None
    if is_square(view, e):
        return {e}
    if e.op not in _ON_THE_WAY:
        return None
    active = [x for x in e.inputs if not view.is_weight(x)]
    if e.op in _SCALING and active != [e.inputs[0]] and (e.op not in _EITHER or len(active) > 1):
        return None
    path = {e}
    for x in active:
        more = _squares(view, x)
        if more is None:
            return None
        path |= more
    return path


def is_square(view: WeightView, e: Equation) -> bool:
    """Whether ``e`` is x * x."""
    found = _SQUARES.get(e.op)
    return found is not None and found(view, e)


_SQUARES: Final[dict[Op, Callable[[WeightView, Equation], bool]]] = {
    mul: lambda view, e: e.inputs[0] is e.inputs[1],
    square: lambda view, e: True,
    integer_pow: lambda view, e: e.params["y"] == 2,
    pow: lambda view, e: view.number(e.inputs[1]) == 2,
}
