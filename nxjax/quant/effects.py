"""What each layer's integers do to the results of a function: the layers are switched between integers and float.

One compiled program has both forms of every layer, and takes which of them to use. Knows no policy's presets.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_grid import Grid
from nxjax.ops.select import select_n
from nxjax.quant import results
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import Inner, QuantPlan, Step
from nxjax.quant.planned import PlannedCall
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Corrections, Quantizer, Range
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Var
from nxjax.transforms.jit import jit


def switched_steps(plan: QuantPlan) -> list[Step]:
    """The steps of a plan that round: integer groups, and equations that hold programs.

    What only moves values rounds them where it is the first to put them on a grid: an argument, or a table of weights.
    """
    made = {g.output for g in plan.groups() if g.scheme.integer}
    rounds = lambda g: not g.moves or not made.issuperset(a for a in g.activations if isinstance(a, Var))
    return [s for s in plan.steps if isinstance(s, Inner) or (isinstance(s, FusedGroup) and rounds(s))]


@final
class LayerSwitches:
    """A quantized function whose layers can be switched to float. Call it with one bool per `switched_steps`.

    Args:
        batches: the arguments to measure with.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        policy: Policy,
        params: Sequence[int] | int | None,
        ranges: Mapping[str, Range],
        corrections: Corrections,
        batches: Sequence[tuple[Any, ...]],
    ) -> None:
        self.batches = batches

        def powers(floats: Array, *args: Any) -> list[tuple[Array, Array, Array]]:
            call = PlannedCall(fun, args, {}, params)
            plan = call.plan(policy, "quantize")
            exact = StatisticsTrace(plan, Ranges())
            walk = _Switched(Quantizer(plan, ranges, call.stored(plan), corrections=corrections), floats)
            return results.powers(zip(exact.run(call.values), walk.run(call.values), strict=True))

        self._powers = jit(powers)

    def noise(self, floats: Sequence[bool], batches: int | None = None) -> list[float]:
        """Noise of each float result, as a share of its signal, over ``batches`` of the batches."""
        found = [self._powers(wrap(np.asarray(floats)), *args) for args in self.batches[:batches]]
        return [float(n) / max(float(s), 1e-300) for s, n in results.summed(found)]


@final
class _Switched(Quantizer):
    """Computes both forms of each layer and takes one; values that may be float are rounded by their readers."""

    def __init__(self, walk: Quantizer, floats: Array) -> None:
        super().__init__(walk.plan, walk.ranges, walk.stored, corrections=walk.corrections)
        self.floats = floats
        self.places: dict[Step, int] = {step: i for i, step in enumerate(switched_steps(walk.plan))}
        self.loose: set[Var] = set()

    def group(self, group: FusedGroup) -> None:
        super().group(group)
        y = self.env[group.output]
        place = self.places.get(group)
        if place is None and self.loose.isdisjoint(a for a in group.activations if isinstance(a, Var)):
            return
        for e in group.equations:
            self.plain(e)
        self._switch(group.output, y, place)

    def inner(self, step: Inner) -> None:
        super().inner(step)
        e, made = step.equation, [self.env[v] for v in step.equation.outputs]
        self.plain(e)
        for v, y in zip(e.outputs, made, strict=True):
            if v.type.dtype == dtypes.float32:
                self._switch(v, y, self.places[step])

    def _switch(self, v: Var, y: Array, place: int | None) -> None:
        """``v`` has its float value; ``y`` unless its layer is switched. What only moves has what it was given."""
        self.loose.add(v)
        if place is not None:
            self.env[v] = select_n(self.floats[place], y, self.env[v])

    def on_grid(self, a: Atom, dtype: DType) -> tuple[Array, Grid]:
        x, grid = super().on_grid(a, dtype)
        return (self.moved_to(a, grid) if a in self.loose else x), grid

    def moved_to(self, a: Atom, grid: Grid) -> Array:
        if a in self.loose:
            return quantize_dequantize(self.value(a), grid=grid)
        return super().moved_to(a, grid)

    def plain(self, e: Equation) -> None:
        super().plain(e)
        self.loose.update(v for v in e.outputs if not self.loose.isdisjoint(a for a in e.inputs if isinstance(a, Var)))
