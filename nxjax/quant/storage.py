"""How a parameter can be stored so that the quantized function gives the same bits: its scales and its dtype.

Follows a parameter to all that read it, through transposes, reshapes and into loops. Only products that agree on the
scales can take it as integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from nxjax.quant.groups import FusedGroup
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.subprograms import inner_operands
from nxjax.quant.walk import reshaped_blocks
from nxjax.quant.weight_groups import Storing
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation, Var

NDArray = np.ndarray[Any, Any]
Storage = tuple[NDArray, DType]


def weight_storage(plan: QuantPlan, v: Var, w: NDArray) -> Storage | None:
    """Scales and dtype with which everything that reads ``v``, whose value is ``w``, stores it.

    None where something needs it as it is, where products differ, and where nothing reads it.
    """
    if v in plan.program.outputs:
        return None
    found: Storage | None = None
    for storage in _of_readers(plan, v, w):
        if storage is None:
            return None
        if found is not None and not (found[1] == storage[1] and np.array_equal(found[0], storage[0])):
            return None
        found = storage
    return found


def _of_readers(plan: QuantPlan, v: Var, w: NDArray) -> Iterator[Storage | None]:
    for step in plan.steps:
        if isinstance(step, FusedGroup):
            if any(v in e.inputs for e in step.equations) or v in step.activations:
                yield _of_group(step, v, w)
        elif isinstance(step, Inner):
            if v in step.equation.inputs:
                yield from _of_inner(step, v, w)
        elif v in step.inputs:
            yield _of_equation(plan, step, w)


def _of_group(group: FusedGroup, v: Var, w: NDArray) -> Storage | None:
    if not isinstance(group, Storing) or group.weight is not v or group.scheme.weights is None:
        return None
    others = [a for e in group.equations for a in e.inputs if a is v]
    if len(others) > 1 or group.changes_weights:
        return None
    return group.plain_scale(w), group.scheme.weights


def _of_inner(step: Inner, v: Var, w: NDArray) -> Iterator[Storage | None]:
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
                yield weight_storage(plan, inner, w)
                continue
            rows = [weight_storage(plan, inner, row) for row in w]
            known = [row for row in rows if row is not None]
            yield (np.stack([scale for scale, _ in known]), known[0][1]) if known and len(known) == len(rows) else None
    if not taken:
        # A loop carries it.
        yield None


def _is_read(plan: QuantPlan, v: Var) -> bool:
    return v in plan.program.outputs or any(v in e.inputs for e in plan.program.equations)


def _of_equation(plan: QuantPlan, e: Equation, w: NDArray) -> Storage | None:
    """Through an equation that only arranges weights anew, and the scales back."""
    way = _ARRANGING.get(e.op.name)
    return None if way is None else way(plan, e, w)


def _transposed(plan: QuantPlan, e: Equation, w: NDArray) -> Storage | None:
    order = e.params["permutation"]
    inner = weight_storage(plan, e.outputs[0], w.transpose(order))
    return None if inner is None else (inner[0].transpose(np.argsort(order)), inner[1])


def _reshaped(plan: QuantPlan, e: Equation, w: NDArray) -> Storage | None:
    inner = weight_storage(plan, e.outputs[0], w.reshape(e.params["shape"]))
    back = None if inner is None else reshaped_blocks(inner[0].shape, e.params["shape"], w.shape)
    return None if inner is None or back is None else (inner[0].reshape(back), inner[1])


_ARRANGING: Final = {"transpose": _transposed, "reshape": _reshaped}
