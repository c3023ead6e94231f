"""Which values of a plan need a range, and what counts of each: where masks lie, and beyond which all is the same."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, final

from nxjax.ops.arithmetic import Mul, add
from nxjax.ops.base import Elementwise
from nxjax.ops.composite_softmax import softmax
from nxjax.ops.indexing import gather
from nxjax.ops.shape import broadcast_in_dim, reshape, transpose
from nxjax.quant.groups import FusedGroup
from nxjax.quant.plan import Inner, MaskedRow, QuantPlan
from nxjax.quant.pointwise import (
    LARGEST_FACTOR,
    UNIFIES,
    ClampedGrid,
    GridKeeping,
    QuantBinary,
    QuantSoftmax,
    TableFunction,
    Unify,
    keeps_grid,
)
from nxjax.quant.view import WeightView
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Var
from nxjax.trace.types import Shape

# How far below the others a masked value has to lie to become 0: half a step of a softmax's grid, as a logarithm.
MARGINS: Final = {dtypes.int8: 6.5, dtypes.int16: 11.5}
# The same for a mask before it is added to values that differ among themselves.
ADDED: Final = 64.0
SHIFTS: Final[frozenset[Op]] = frozenset((add,))
# Extreme elements stay extreme ones, though each result depends on all.
MONOTONE: Final[frozenset[Op]] = frozenset((softmax,))
# What looks for the extreme elements of its operand.
EXTREMES: Final = frozenset(("reduce_max", "reduce_min", "argmax", "argmin", "sort", "top_k", "cummax", "cummin"))
# Beyond these operands, results of 8 bits stay as they are: by less than half a step of the grid of [0, 1) or [-1, 1).
SATURATED: Final = {
    "hard_swish": (-3.0, math.inf),
    "logistic": (-6.3, 6.3),
    "tanh": (-2.8, 2.8),
}


def find_sites(plan: QuantPlan, view: WeightView) -> None:
    """Write the sites of ``plan`` into it, with what is known of their ranges."""
    _Sites(plan, view).find()


@final
class _Sites:
    """Which values need a range: results of groups whose grid no specification fixes, and operands not on a grid."""

    def __init__(self, plan: QuantPlan, view: WeightView) -> None:
        self.plan = plan
        self.view = view
        self.on: dict[Var, DType] = {}
        self.made: dict[Var, FusedGroup] = {}

    def find(self) -> None:
        made = self.made
        for step in self.plan.steps:
            if isinstance(step, FusedGroup) and step.scheme.integer:
                self._group(step)
                made[step.output] = step
        for step in self.plan.steps:
            if isinstance(step, QuantSoftmax) and step.scheme.integer:
                axis = step.equations[0].params["axis"]
                self._masked(step.activations[0], MaskedRow(MARGINS[step.dtype], axis), made)
        for e in self.plan.program.equations:
            self._masking(e)
        for e in reversed(self.plan.program.equations):
            for v in e.outputs:
                self._partly(v)
        readers: dict[Var, list[FusedGroup | None]] = {}
        for step in self.plan.steps:
            group = step if isinstance(step, FusedGroup) and step.scheme.integer else None
            own = (
                step.equations
                if isinstance(step, FusedGroup)
                else (step.equation if isinstance(step, Inner) else step,)
            )
            for v in {a for e in own for a in e.inputs if isinstance(a, Var)}:
                readers.setdefault(v, []).append(group)
        self.plan.extreme.update(self.view.results)
        for e in reversed(self.plan.program.equations):
            for v in e.outputs:
                self._bounded(v, readers.get(v, []))
            if e.op.name in EXTREMES or (_goes_on(e) and not self.plan.extreme.isdisjoint(e.outputs)):
                self.plan.extreme.update(a for a in e.inputs if isinstance(a, Var))
        # Inputs are left alone: onto a grid without negative numbers, relu would be done before the chip has begun.

    def _bounded(self, v: Var, readers: Sequence[FusedGroup | None]) -> None:
        """Mark ``v`` if all who read it make the same of every value beyond some bound."""
        if v in self.view.results or not self.view.is_float(v) or not readers or v in self.plan.masked:
            return
        ends = [(-math.inf, math.inf) if g is None else self._saturates(g, v) for g in readers]
        low, high = min(a for a, _ in ends), max(b for _, b in ends)
        if low <= high and (low, high) != (-math.inf, math.inf):
            self.plan.bounds[v] = low, high

    def _saturates(self, group: FusedGroup, v: Var) -> tuple[float, float]:
        """Beyond which values of its operand ``v`` a group's result stays as it is."""
        everywhere = -math.inf, math.inf
        if isinstance(group, ClampedGrid):
            low, high = group.clamp.low, group.clamp.high
            return (-math.inf if low is None else low, math.inf if high is None else high)
        if isinstance(group, TableFunction):
            return SATURATED.get(group.function, everywhere) if group.dtype == dtypes.int8 else everywhere
        if isinstance(group, GridKeeping) and group.activations[0] is v:
            return self.plan.bounds.get(group.output, everywhere)
        if isinstance(group, QuantBinary) and isinstance(group.equations[0].op, Mul):
            return self._gated(group, v)
        if isinstance(group, QuantBinary) and group.equations[0].op in SHIFTS:
            other = self.view.other(group.equations[0], v)
            shift = None if other is None else self.view.number(other)
            if shift is not None:
                low, high = group.clamp.low, group.clamp.high
                return (-math.inf if low is None else low - shift, math.inf if high is None else high - shift)
        return everywhere

    def _gated(self, group: FusedGroup, v: Var) -> tuple[float, float]:
        """x * clip(x + 3, 0, 6), a hard_swish in pieces, is 0 below -3."""
        gate = self.made.get(other) if isinstance(other := self.view.other(group.equations[0], v), Var) else None
        if not isinstance(gate, QuantBinary) or gate.clamp.low != 0 or v not in gate.activations:
            return -math.inf, math.inf
        return self._saturates(gate, v)[0], math.inf

    def _partly(self, v: Var) -> None:
        """Mark ``v`` if all who read it choose among its elements, or go on one by one to someone who does."""
        partly = self.plan.partly
        found: list[tuple[Equation, int | None]] = []
        for e in self.view.users.get(v, ()):
            y = next(iter(e.outputs), None)
            if e.op.name == "select_n" and e.inputs[0] is not v:
                found += [(e, i) for i, a in enumerate(e.inputs[1:]) if a is v]
            elif isinstance(e.op, Elementwise) and y is not None and y in partly and y.type.shape == v.type.shape:
                found.append((e, None))
            else:
                return
        if found and self.view.is_float(v) and v not in self.view.results and v not in self.plan.masked:
            partly[v] = found

    def _masking(self, e: Equation) -> None:
        """Mark what a mask makes very low, and what is made of it; the calibration data may have nothing to mask."""
        if not e.outputs or (y := e.outputs[0]) not in self.plan.masked:
            return
        masks = _MASKING.get(e.op.name)
        low = masks is not None and masks(self, e)
        if low or any(a in self.plan.masking for a in e.inputs):
            self.plan.masking.add(y)

    def masks_by_choice(self, e: Equation) -> bool:
        return any((self.view.number(a) or 0.0) <= -LARGEST_FACTOR for a in e.inputs[1:])

    def masks_by_product(self, e: Equation) -> bool:
        number = self.view.number
        x, factor = e.inputs if number(e.inputs[0]) is None else e.inputs[::-1]
        value = number(factor) or 0.0
        low = abs(value) >= LARGEST_FACTOR
        while low and isinstance(x, Var):
            self.plan.least[x] = (0.0, 1.0) if value < 0 else (-1.0, 0.0)
            made = self.view.producer.get(x)
            x = made.inputs[0] if made is not None and keeps_grid(made) else None
        return low

    def _masked(self, a: Atom, masked: MaskedRow, made: dict[Var, FusedGroup]) -> None:
        """Mark what enters a softmax, and what masks are added to on the way there."""
        if not isinstance(a, Var) or a in self.plan.masked:
            return
        self.plan.masked[a] = masked
        group = made.get(a)
        if isinstance(group, (GridKeeping, Unify)):
            for operand in group.activations:
                self._masked(
                    operand, masked._replace(axis=_axis_before(group.equations[0], masked.axis, operand)), made
                )
        elif isinstance(group, QuantBinary) and group.equations[0].op.name == "add":
            for operand in group.activations:
                self._masked(operand, masked._replace(margin=ADDED), made)

    def _group(self, group: FusedGroup) -> None:
        # Operands that share the result's grid go there directly.
        for a in () if isinstance(group, Unify) else group.activations:
            if isinstance(a, Var) and self.on.get(a) != group.dtype:
                self.plan.sites[a] = self.plan.names.get(a) or f"{self.plan.names[group.output]}/operand"
        if group.fixed_grid() is None and not group.moves:
            self.plan.sites[group.output] = self.plan.names[group.output]
        self.on[group.output] = group.dtype


def _goes_on(e: Equation) -> bool:
    """Whether extreme elements of operands are those of the result."""
    return isinstance(e.op, Elementwise) or keeps_grid(e) or e.op.name in UNIFIES or e.op in MONOTONE


def _axis_before(e: Equation, axis: int | None, a: Atom) -> int | None:
    """The axis of ``a`` that becomes ``axis`` of what ``e`` makes of it, if one axis does."""
    if axis is None:
        return None
    old, new = a.type.shape, e.outputs[0].type.shape
    find = _AXES.get(e.op)
    if find is not None:
        return find(e.params, axis, old, new)
    # Others of the same rank leave axes where they are.
    return axis if len(old) == len(new) else None


def _before_reshape(params: dict[str, Any], axis: int, old: Shape, new: Shape) -> int | None:
    after = math.prod(new[axis + 1 :])
    return next((i for i, n in enumerate(old) if n == new[axis] and math.prod(old[i + 1 :]) == after), None)


def _before_broadcast(params: dict[str, Any], axis: int, old: Shape, new: Shape) -> int | None:
    dims = params["broadcast_dimensions"]
    return dims.index(axis) if axis in dims else None


# Whether an op makes a mask, by a very low number.
_MASKING: Final = {"select_n": _Sites.masks_by_choice, "mul": _Sites.masks_by_product}
# Ops that move axes: which of the operand's is an axis of the result.
_AXES: Final[dict[Op, Callable[[dict[str, Any], int, Shape, Shape], int | None]]] = {
    transpose: lambda params, axis, old, new: params["permutation"][axis],
    reshape: _before_reshape,
    broadcast_in_dim: _before_broadcast,
    gather: lambda params, axis, old, new: None,
}
