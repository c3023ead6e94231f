"""How a parameter can be stored so that the quantized function gives the same bits: its scales and its dtype.

Follows a parameter to all that read it, through transposes, reshapes and into loops. Only products that agree on the
scales can take it as integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.quant.groups import FusedGroup, Rounding, StoredWeight, Values
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.subprograms import InnerOperand, inner_operands
from nxjax.quant.walk import Beside, Corrections, reshaped_blocks, rounding_of
from nxjax.quant.weight_groups import Storing
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Var

NDArray = np.ndarray[Any, Any]


class Storage(NamedTuple):
    """The weights that are stored in place of a parameter, with their scales and their dtype."""

    weights: NDArray
    scale: NDArray
    dtype: DType


@final
class Known(Values):
    """The values in a plan that are given, and what is made of them alone: biases, on which scales may depend."""

    def __init__(
        self, plan: QuantPlan, given: Callable[[Var], Array], beside: Beside, corrections: Corrections
    ) -> None:
        self.plan = plan
        self.given = given
        self.beside = beside
        self.corrections = corrections
        self._made = dict(zip(plan.program.constvars, plan.program.values, strict=True))
        self._producer = {v: e for e in plan.program.equations for v in e.outputs}

    def value(self, a: Atom) -> Array:
        if not isinstance(a, Var):
            return a.value
        if a not in self._made:
            e = self._producer.get(a)
            if e is None:
                self._made[a] = self.given(a)
            else:
                y = e.op(*map(self.value, e.inputs), **e.params)
                self._made.update(zip(e.outputs, y if e.op.multi else (y,), strict=True))
        return self._made[a]

    def correction(self, group: FusedGroup) -> Array | None:
        found = self.corrections.get(self.plan.layer(group))
        return None if found is None else wrap(found)

    def weight_scale(self, a: Atom) -> StoredWeight | None:
        return None

    def rounding(self, group: FusedGroup) -> Rounding | None:
        return rounding_of(self.corrections, self.plan.layer(group))


def weight_storage(known: Known, v: Var, w: NDArray) -> Storage | None:
    """How everything that reads ``v``, whose value is ``w``, stores it.

    None where something needs it as it is, where products differ, and where nothing reads it.
    """
    found = storages(known, v, w)
    return found[0] if found and all(_same(found[0], other) for other in found[1:]) else None


def storages(known: Known, v: Var, w: NDArray) -> list[Storage]:
    """How each product that reads ``v``, whose value is ``w``, stores it; none where something needs it as it is."""
    if v in known.plan.program.outputs:
        return []
    found = list(_of_readers(known, v, w))
    stored = [storage for storage in found if storage is not None]
    return stored if len(stored) == len(found) else []


def _same(a: Storage, b: Storage) -> bool:
    return a.dtype == b.dtype and np.array_equal(a.scale, b.scale) and np.array_equal(a.weights, b.weights)


def _of_readers(known: Known, v: Var, w: NDArray) -> Iterator[Storage | None]:
    for step in known.plan.steps:
        if isinstance(step, FusedGroup):
            if any(v in e.inputs for e in step.equations) or v in step.activations:
                yield _of_group(known, step, v, w)
        elif isinstance(step, Inner):
            if v in step.equation.inputs:
                yield from _of_inner(known, step, v, w)
        elif v in step.inputs:
            yield from _of_equation(known, step, w)


def _of_group(known: Known, group: FusedGroup, v: Var, w: NDArray) -> Storage | None:
    if not isinstance(group, Storing) or group.weight is not v or group.scheme.weights is None:
        return None
    others = [a for e in group.equations for a in e.inputs if a is v]
    if len(others) > 1 or group.changes_weights:
        return None
    return Storage(*group.stored_beside(known, w, known.beside.get(group)), group.scheme.weights)


def _of_inner(known: Known, step: Inner, v: Var, w: NDArray) -> Iterator[Storage | None]:
    taken = 0
    for plan, hands in zip(step.plans, inner_operands(step.equation), strict=True):
        for h in hands:
            if step.equation.inputs[h.operand] is not v:
                continue
            taken += 1
            inner = plan.program.inputs[h.input]
            if not _is_read(plan, inner):
                continue
            if not h.stepped:
                yield from storages(_within(known, step, plan, hands, 0), inner, w) or (None,)
                continue
            rows = [weight_storage(_within(known, step, plan, hands, i), inner, row) for i, row in enumerate(w)]
            stored = [row for row in rows if row is not None]
            if not stored or len(stored) < len(rows):
                yield None
                continue
            weights, scales = np.stack([row.weights for row in stored]), np.stack([row.scale for row in stored])
            yield Storage(weights, scales, stored[0].dtype)
    if not taken:
        # A loop carries it.
        yield None


def _within(known: Known, step: Inner, plan: QuantPlan, hands: Sequence[InnerOperand], turn: int) -> Known:
    """What is known in a held program, in one turn of a loop."""
    operands = {plan.program.inputs[h.input]: h for h in hands}

    def given(v: Var) -> Array:
        h = operands[v]
        x = known.value(step.equation.inputs[h.operand])
        return wrap(x.numpy()[turn]) if h.stepped else x

    return Known(plan, given, known.beside, known.corrections)


def _is_read(plan: QuantPlan, v: Var) -> bool:
    return v in plan.program.outputs or any(v in e.inputs for e in plan.program.equations)


def _of_equation(known: Known, e: Equation, w: NDArray) -> Iterator[Storage | None]:
    """Through an equation that only arranges weights anew, and the scales back."""
    way = _ARRANGING.get(e.op.name)
    if way is None:
        yield None
        return
    moved, back = way(e, w)
    yield from list(map(back, storages(known, e.outputs[0], moved))) or (None,)


# Weights as an equation arranges them, and what is stored of these as it lies in the weights before.
_Arranged = tuple[NDArray, Callable[[Storage], Storage | None]]


def _transposed(e: Equation, w: NDArray) -> _Arranged:
    order = e.params["permutation"]
    back = np.argsort(order)
    return w.transpose(order), lambda s: Storage(s.weights.transpose(back), s.scale.transpose(back), s.dtype)


def _reshaped(e: Equation, w: NDArray) -> _Arranged:
    def back(s: Storage) -> Storage | None:
        blocks = reshaped_blocks(s.scale.shape, e.params["shape"], w.shape)
        return None if blocks is None else Storage(s.weights.reshape(w.shape), s.scale.reshape(blocks), s.dtype)

    return w.reshape(e.params["shape"]), back


_ARRANGING: Final[dict[str, Callable[[Equation, NDArray], _Arranged]]] = {
    "transpose": _transposed,
    "reshape": _reshaped,
}
