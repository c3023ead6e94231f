"""What a step of a loop computes, as values of the algebra: one row per op that recurrent cells are written with."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from nxjax.lower.npu.recurrent.algebra import EXP, LOGISTIC, RECIPROCAL, RELU, TANH, Algebra, NoForm, StepValue
from nxjax.lower.passes.fold import KEPT, FoldedValue, evaluated
from nxjax.ops.base import NDArray
from nxjax.trace import dtypes
from nxjax.trace.program import Atom, Equation, Literal, Program, Var
from nxjax.trace.types import ArrayType

# What is known of a variable: a constant, a value of the step, or nothing.
Known = FoldedValue | StepValue | None
Rule = Callable[..., StepValue]


def computed(algebra: Algebra, body: Program, inputs: Sequence[Known]) -> dict[Var, Known]:
    """All values of a flat program on what is known of its inputs."""
    env: dict[Var, Known] = dict(zip(body.inputs, inputs, strict=True))
    env.update((v, _held(x)) for v, x in zip(body.constvars, body.values, strict=True))
    of: Callable[[Atom], Known] = lambda a: _held(a.value) if isinstance(a, Literal) else env[a]
    for e in body.equations:
        env.update(zip(e.outputs, _equation(algebra, e, [of(a) for a in e.inputs]), strict=True))
    return env


def _held(x: Any) -> FoldedValue:
    data = x.numpy()
    return FoldedValue(data, data.shape)


def _equation(algebra: Algebra, e: Equation, xs: Sequence[Known]) -> Sequence[Known]:
    nothing = [None] * len(e.outputs)
    known = [x for x in xs if isinstance(x, FoldedValue)]
    if len(known) == len(xs) and e.op.name in KEPT:
        data: NDArray = e.op.eval(*(x.full for x in known), **e.params)
        return [FoldedValue(data, data.shape)]
    if len(known) == len(xs):
        return evaluated(e.op, known, e.params, [v.type for v in e.outputs]) or nothing
    rule, (out, *more) = _RULES.get(e.op.name), [v.type for v in e.outputs]
    if rule is None or more or out.dtype != dtypes.float32 or any(x is None for x in xs):
        return nothing
    try:
        return [rule(algebra, out, *xs, **e.params)]
    except NoForm:
        return nothing


def _both(algebra: Algebra, x: Known, y: Known) -> tuple[StepValue, StepValue]:
    """Operands of an elementwise op, a constant in the shape of the other."""
    if isinstance(x, FoldedValue):
        y, x = _both(algebra, y, x)
        return x, y
    assert isinstance(x, StepValue)
    return x, algebra.constant(y.full, x) if isinstance(y, FoldedValue) else _value(y)


def _value(x: Known) -> StepValue:
    if not isinstance(x, StepValue):
        raise NoForm
    return x


def _scaled(algebra: Algebra, x: StepValue, factor: float) -> StepValue:
    return algebra.value(x.shape, [algebra.scaled(s, factor) for s in x.segments], x.batch)


def _add(algebra: Algebra, out: ArrayType, x: Known, y: Known, **_: Any) -> StepValue:
    return algebra.combined(*_both(algebra, x, y), product=False)


def _sub(algebra: Algebra, out: ArrayType, x: Known, y: Known, **_: Any) -> StepValue:
    x, y = _both(algebra, x, y)
    return algebra.combined(x, _scaled(algebra, y, -1), product=False)


def _mul(algebra: Algebra, out: ArrayType, x: Known, y: Known, **_: Any) -> StepValue:
    return algebra.combined(*_both(algebra, x, y), product=True)


def _div(algebra: Algebra, out: ArrayType, x: Known, y: Known, **_: Any) -> StepValue:
    if isinstance(y, FoldedValue):
        with np.errstate(all="ignore"):
            return _mul(algebra, out, x, FoldedValue(1 / y.data.astype(np.float64), y.shape))
    return _mul(algebra, out, x, algebra.mapped(RECIPROCAL, _value(y)))


def _max(algebra: Algebra, out: ArrayType, x: Known, y: Known, **_: Any) -> StepValue:
    x, y = (y, x) if isinstance(x, FoldedValue) else (x, y)
    if not isinstance(y, FoldedValue) or np.any(y.data):
        raise NoForm
    return algebra.mapped(RELU, _value(x))


def _power(algebra: Algebra, out: ArrayType, x: Known, y: int = 2, **_: Any) -> StepValue:
    if y != 2:
        raise NoForm
    return algebra.combined(_value(x), _value(x), product=True)


def _function(kind: str) -> Rule:
    return lambda algebra, out, x, **_: algebra.mapped(kind, _value(x))


def _reshape(algebra: Algebra, out: ArrayType, x: Known, **_: Any) -> StepValue:
    return algebra.reshaped(_value(x), out.shape)


def _broadcast(
    algebra: Algebra, out: ArrayType, x: Known, shape: Any, broadcast_dimensions: Sequence[int]
) -> StepValue:
    """Only dimensions of size 1 come."""
    x = _value(x)
    if math.prod(x.shape) != math.prod(shape):
        raise NoForm
    return algebra.value(out.shape, x.segments, tuple(broadcast_dimensions[i] for i in x.batch))


def _transpose(algebra: Algebra, out: ArrayType, x: Known, permutation: Sequence[int]) -> StepValue:
    return algebra.transposed(_value(x), permutation)


def _slice(
    algebra: Algebra, out: ArrayType, x: Known, start_indices: Any, limit_indices: Any, strides: Any = None
) -> StepValue:
    x = _value(x)
    steps = strides or (1,) * len(x.shape)
    parts = [slice(*part) for part in zip(start_indices, limit_indices, steps, strict=True)]
    if any(parts[i] != slice(0, x.shape[i], 1) for i in x.batch):
        raise NoForm
    at = x.numbers[tuple(parts[i] for i in x.features)].reshape(-1)
    return algebra.value(out.shape, algebra.picked(x, at), x.batch)


def _concatenate(algebra: Algebra, out: ArrayType, *xs: Known, dimension: int) -> StepValue:
    """Along the first dimension of features that is not of size 1."""
    first = next(x for x in xs if isinstance(x, StepValue))
    if dimension in first.batch or any(first.shape[i] != 1 for i in first.features if i < dimension):
        raise NoForm
    parts: list[StepValue] = []
    for x in xs:
        if isinstance(x, FoldedValue):
            shape = (*first.shape[:dimension], x.shape[dimension], *first.shape[dimension + 1 :])
            width = algebra.segment(math.prod(shape) // algebra.batch, {})
            x = algebra.constant(x.full, algebra.value(shape, [width], first.batch))
        parts.append(_value(x))
    if any(x.batch != first.batch for x in parts):
        raise NoForm
    return algebra.value(out.shape, [s for x in parts for s in x.segments], first.batch)


def _dot(algebra: Algebra, out: ArrayType, x: Known, y: Known, dimension_numbers: Any, **_: Any) -> StepValue:
    """All features of a value times a constant, on either side."""
    (xc, yc), (xb, _yb) = dimension_numbers
    right = isinstance(y, FoldedValue)
    v, w, vc, wc = (_value(x), y, xc, yc) if right else (_value(y), x, yc, xc)
    if xb or not isinstance(w, FoldedValue):
        raise NoForm
    kept = [i for i in range(len(v.shape)) if i not in vc]
    if set(vc) & set(v.batch) or any(v.shape[i] != 1 for i in kept if i not in v.batch):
        raise NoForm
    # Rows in the order of the value's features.
    order = sorted(range(len(vc)), key=vc.__getitem__)
    free = [i for i in range(len(w.shape)) if i not in wc]
    matrix = w.full.transpose([*(wc[i] for i in order), *free]).reshape(v.width, -1)
    before = 0 if right else len(free)
    batch = tuple(before + kept.index(i) for i in v.batch)
    return algebra.value(out.shape, [algebra.product(v, np.asarray(matrix, np.float64))], batch)


def _same(algebra: Algebra, out: ArrayType, x: Known, **_: Any) -> StepValue:
    return _value(x)


_RULES: Final[dict[str, Rule]] = {
    "add": _add,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "max": _max,
    "neg": lambda algebra, out, x: _scaled(algebra, _value(x), -1),
    "square": _power,
    "integer_pow": _power,
    **{name: _function(kind) for name, kind in
       (("logistic", LOGISTIC), ("tanh", TANH), ("relu", RELU), ("exp", EXP))},
    "reshape": _reshape,
    "broadcast_in_dim": _broadcast,
    "transpose": _transpose,
    "slice": _slice,
    "concatenate": _concatenate,
    "dot_general": _dot,
    "convert_element_type": _same,
}  # fmt: skip
