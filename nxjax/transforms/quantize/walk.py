"""Two interpreters of a plan: one that observes ranges in float, one that computes on grids.

Both run under the current trace, so that what they give can be differentiated, batched, staged and compiled.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.quant_grid import Grid, Rounding, asymmetric, symmetric
from nxjax.ops.quant_snap import quantize_dequantize, requantize
from nxjax.ops.shape import transpose
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.transforms.quantize.groups import Group
from nxjax.transforms.quantize.plan import Inner, Plan

Range = tuple[float, float]


class Walker(ABC):
    """Runs a plan's steps in order. ``env`` holds the float value of every variable made so far."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.env: dict[Var, Array] = {}

    def value(self, a: Atom) -> Array:
        return self.env[a] if isinstance(a, Var) else a.value

    def run(self, args: Sequence[Array]) -> list[Array]:
        """The program's results."""
        program = self.plan.program
        for v, x in zip((*program.consts, *program.inputs), (*program.values, *args), strict=True):
            self.define(v, x)
        for step in self.plan.steps:
            if isinstance(step, Group):
                last = step.equations[-1]
                with replaying(last.scope, last.source):
                    self.group(step)
            else:
                e = step.equation if isinstance(step, Inner) else step
                with replaying(e.scope, e.source):
                    if isinstance(step, Inner):
                        self.inner(step)
                    else:
                        self.plain(e)
        return [self.value(a) for a in program.outputs]

    def define(self, v: Var, x: Array) -> None:
        self.env[v] = x

    def plain(self, e: Equation) -> None:
        """An equation as it stands."""
        self.results(e, e.op(*map(self.value, e.inputs), **e.params))

    def results(self, e: Equation, y: Any) -> None:
        for v, part in zip(e.outputs, y if e.op.multi else (y,), strict=True):
            self.define(v, part)

    @abstractmethod
    def group(self, group: Group) -> None:
        """A group of equations."""

    @abstractmethod
    def inner(self, step: Inner) -> None:
        """An equation that holds programs."""


@final
class Quantizer(Walker):
    """Computes groups on grids, whose ranges are given by site."""

    def __init__(self, plan: Plan, ranges: Mapping[str, Range], scales: Mapping[Var, Array] | None = None) -> None:
        super().__init__(plan)
        self.ranges = ranges
        self.scales = dict(scales or {})
        self.grids: dict[Var, Grid] = {}
        self._snapped: dict[tuple[Var, Grid], Array] = {}
        self._rounding: Rounding = "double"

    def group(self, group: Group) -> None:
        self._rounding = group.scheme.rounding
        for v, x in group.prepare(self).items():
            self.define(v, x)
        y, grid = group.emit(self)
        self.define(group.output, y)
        if grid is not None:
            self.grids[group.output] = grid

    def inner(self, step: Inner) -> None:
        plans = iter(step.plans)

        def rewritten(program: Program) -> Program:
            plan = next(plans)
            walk = lambda *xs: Quantizer(plan, self.ranges).run(xs)
            made = stage(walk, program.in_types, program.name)
            if made.consts:
                raise ParameterError(f"quantize: {step.equation.op.name} would hold constants", got=made.consts)
            return made

        e = step.equation
        params = {k: mapped(v, rewritten) for k, v in e.params.items()}
        self.results(e, e.op(*map(self.value, e.inputs), **params))

    def plain(self, e: Equation) -> None:
        super().plain(e)
        if e.op is transpose and e.inputs[0] in self.scales:
            assert isinstance(e.inputs[0], Var)
            self.scales[e.outputs[0]] = transpose(self.scales[e.inputs[0]], **e.params)

    def grid_of(self, a: Atom) -> Grid | None:
        return self.grids.get(a) if isinstance(a, Var) else None

    def on_grid(self, a: Atom, dtype: DType) -> tuple[Array, Grid]:
        grid = self.grid_of(a)
        if grid is not None and grid.dtype == dtype:
            return self.value(a), grid
        wanted = self._range_grid(a, dtype)
        return self.moved_to(a, wanted), wanted

    def moved_to(self, a: Atom, grid: Grid) -> Array:
        own = self.grid_of(a)
        if own == grid:
            return self.value(a)
        if not isinstance(a, Var):
            return quantize_dequantize(a.value, grid=grid)
        found = self._snapped.get((a, grid))
        if found is None:
            x = self.env[a]
            if own is None:
                found = quantize_dequantize(x, grid=grid)
            else:
                low, high = grid.limits
                found = requantize(x, x_grid=own, y_grid=grid, lo=low, hi=high, rounding=self._rounding)
            self._snapped[a, grid] = found
        return found

    def result_grid(self, v: Var, dtype: DType) -> Grid:
        return self._range_grid(v, dtype)

    def _range_grid(self, a: Atom, dtype: DType) -> Grid:
        if isinstance(a, Var):
            low, high = self.ranges[self.plan.sites[a]]
        else:
            low = high = float(np.asarray(a.value.numpy()))
        return asymmetric(low, high, dtype) if dtype == dtypes.int8 else symmetric(max(abs(low), abs(high)), dtype)

    def weight_scale(self, a: Atom) -> Array | None:
        return self.scales.get(a) if isinstance(a, Var) else None


def mapped(value: Any, change: Callable[[Program], Program]) -> Any:
    """An op's parameter with the programs in it changed, in the order in which `Equation.programs` gives them."""
    if isinstance(value, Program):
        return change(value)
    if isinstance(value, tuple) and any(isinstance(v, Program) for v in value):  # pyright: ignore[reportUnknownVariableType]
        return tuple(change(v) if isinstance(v, Program) else v for v in value)  # pyright: ignore[reportUnknownVariableType]
    return value
