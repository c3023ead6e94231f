"""Which values of a plan need a range, and what counts of each: beyond which all is the same, and what is taken."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

from nxjax.ops.arithmetic import Mul, add
from nxjax.ops.base import Elementwise
from nxjax.ops.composite_softmax import softmax
from nxjax.quant.groups import FusedGroup
from nxjax.quant.masks import Masks
from nxjax.quant.plan import Inner, QuantPlan
from nxjax.quant.pointwise import (
    UNIFIES,
    ClampedGrid,
    GridKeeping,
    QuantBinary,
    TableFunction,
    Unify,
    keeps_grid,
)
from nxjax.quant.view import WeightView
from nxjax.quant.whole import wanted_whole
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Equation, Var

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


def find_sites(plan: QuantPlan, view: WeightView) -> set[Equation]:
    """Write the sites of ``plan`` into it, with what is known of their ranges.

    Returns:
        The equations that no grid is right for, by reason of a mask or of whole numbers: the plan is to be made again
        without them.
    """
    return _Sites(plan, view).find()


@final
class _Sites:
    """Which values need a range: results of groups whose grid no specification fixes, and operands not on a grid."""

    def __init__(self, plan: QuantPlan, view: WeightView) -> None:
        self.plan = plan
        self.view = view
        self.on: dict[Var, DType] = {}
        self.made: dict[Var, FusedGroup] = {}

    def find(self) -> set[Equation]:
        for step in self.plan.steps:
            if isinstance(step, FusedGroup) and step.scheme.integer:
                self._group(step)
                self.made[step.output] = step
        masks = Masks(self.plan, self.view)
        masks.mark()
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
        return masks.without_room() | wanted_whole(self.plan, self.view)

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

    def _group(self, group: FusedGroup) -> None:
        # Operands that share the result's grid go there directly.
        for a in () if isinstance(group, Unify) else group.activations:
            if isinstance(a, Var) and self.on.get(a) != group.dtype:
                # Numbers of broadcasts depend on sizes: at size 1 there are fewer.
                source = self.view.spread_from(a)
                named = isinstance(source, Var) and self.plan.names.get(source)
                self.plan.sites[a] = named or f"{self.plan.names[group.output]}/operand"
        if group.fixed_grid() is None and not group.moves:
            self.plan.sites[group.output] = self.plan.names[group.output]
        self.on[group.output] = group.dtype


def _goes_on(e: Equation) -> bool:
    """Whether extreme elements of operands are those of the result."""
    return isinstance(e.op, Elementwise) or keeps_grid(e) or e.op.name in UNIFIES or e.op in MONOTONE
