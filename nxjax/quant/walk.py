"""Two interpreters of a plan: one that observes ranges in float, one that computes on grids.

Both run under the current trace, so that what they give can be differentiated, batched, staged and compiled.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from nxjax.errors import ParameterError
from nxjax.ops.base import constant
from nxjax.ops.fake_quantize import quantize_dequantize, quantize_weight
from nxjax.ops.quant_grid import Grid, asymmetric, symmetric
from nxjax.ops.quant_grid import Rounding as Halves
from nxjax.ops.quant_traced import broadcast_blocks
from nxjax.ops.shape import reshape, transpose
from nxjax.quant.accumulators import regridded
from nxjax.quant.groups import FusedGroup, Rounding, StoredWeight
from nxjax.quant.plan import Inner, QuantPlan, named_grid
from nxjax.quant.pointwise import GridKeeping
from nxjax.quant.subprograms import LOOPS, InnerOperand, inner_operands, rebuild_call
from nxjax.quant.weight_groups import Storing
from nxjax.trace import dtypes
from nxjax.trace.array import as_value
from nxjax.trace.core import Array, Op
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.types import ArrayType, Shape
from nxjax.transforms.control.loop_params import LoopParams

NDArray = np.ndarray[Any, Any]
Range = tuple[float, float]
# What calibration found for products: by layer what is added to the bias, per channel; by layer and one of these
# the shares of the scales of weights, and what is added to the nearest numbers (int8).
Corrections = Mapping[str, NDArray | Array]
SHARES: Final = ":shares"
STEPS: Final = ":steps"
Beside = dict[FusedGroup, tuple[Grid, Grid]]


class Walker(ABC):
    """Runs a plan's steps in order. ``env`` holds the float value of every variable made so far."""

    def __init__(self, plan: QuantPlan) -> None:
        self.plan = plan
        self.env: dict[Var, Array] = {}

    def value(self, a: Atom) -> Array:
        return self.env[a] if isinstance(a, Var) else a.value

    def correction(self, group: FusedGroup) -> Array | None:
        """What is added to the bias of a product."""
        return None

    def weight_scale(self, a: Atom) -> StoredWeight | None:
        """How a weight comes that is quantized."""
        return None

    def rounding(self, group: FusedGroup) -> Rounding | None:
        """How the weights of a product are stored."""
        return None

    def run(self, args: Sequence[Array]) -> list[Array]:
        """The program's results."""
        program = self.plan.program
        for v, x in zip((*program.constvars, *program.inputs), (*program.values, *args), strict=True):
            self.define(v, x)
        for step in self.plan.steps:
            if isinstance(step, FusedGroup):
                # The op itself, not the bias or the activation that became part of it.
                first = step.equations[0]
                with replaying(first.scope, first.source):
                    self.group(step)
            else:
                e = step.equation if isinstance(step, Inner) else step
                with replaying(e.scope, e.source):
                    if isinstance(step, Inner):
                        self.inner(step)
                    else:
                        self.plain(e)
            for e in self.plan.held.get(step, ()):
                self.held(e)
        return [self.value(a) for a in program.outputs]

    def define(self, v: Var, x: Array) -> None:
        self.env[v] = x

    def plain(self, e: Equation) -> None:
        """An equation as it stands."""
        self.results(e, e.op(*map(self.value, e.inputs), **e.params))

    def held(self, e: Equation) -> None:
        """The last operands stay as they are, with the derivative of ``e``."""
        self.env.update(zip(e.inputs[-len(e.outputs) :], e.op(*map(self.value, e.inputs), **e.params), strict=True))  # pyright: ignore

    def results(self, e: Equation, y: Any) -> None:
        for v, part in zip(e.outputs, y if e.op.multi else (y,), strict=True):
            self.define(v, part)

    @abstractmethod
    def group(self, group: FusedGroup) -> None:
        """A group of equations."""

    @abstractmethod
    def inner(self, step: Inner) -> None:
        """An equation that holds programs."""


class Quantizer(Walker):
    """Computes groups on grids: those that `quantize_dequantize` names in the program, else those of ranges by site.

    Without ranges, a group whose grids the program does not name stays float.
    """

    def __init__(
        self,
        plan: QuantPlan,
        ranges: Mapping[str, Range] | None,
        stored: Mapping[Var, StoredWeight] | None = None,
        grids: Mapping[Var, Grid] | None = None,
        wanted: Mapping[Var, Grid] | None = None,
        beside: Beside | None = None,
        corrections: Corrections | None = None,
    ) -> None:
        super().__init__(plan)
        self.corrections = dict(corrections or {})
        # The grids around each product with weights, of inner plans too.
        self.beside: Beside = {} if beside is None else beside
        self.ranges = ranges
        self.stored = dict(stored or {})
        self.grids = dict(grids or {})
        self.wanted = named_results(plan.program) | dict(wanted or {})
        self._snapped: dict[tuple[Var, Grid], Array] = {}
        self._rounding: Halves = "double"

    def group(self, group: FusedGroup) -> None:
        if self.ranges is None and not self._named(group):
            for e in group.equations:
                self.plain(e)
            return
        self._rounding = group.scheme.rounding
        for v, x in group.prepare(self).items():
            self.define(v, x)
        y, grid = group.emit(self)
        self.define(group.output, y)
        if grid is not None:
            self.grids[group.output] = grid
            if isinstance(group, Storing):
                self.beside[group] = self.on_grid(group.activations[0], group.dtype)[1], grid

    def correction(self, group: FusedGroup) -> Array | None:
        found = self.corrections.get(self.plan.layer(group))
        return None if found is None else as_value(found)

    def rounding(self, group: FusedGroup) -> Rounding | None:
        return rounding_of(self.corrections, self.plan.layer(group))

    def _named(self, group: FusedGroup) -> bool:
        """Whether the program names every grid of the group."""
        for a in group.activations:
            grid = self.grid_of(a)
            if grid is None or grid.dtype != group.dtype:
                return False
        if isinstance(group, Storing):
            given = None if group.changes_weights else self.weight_scale(group.weight)
            if given is None or not group.suits(given, group.weight.type.shape):
                return False
        return group.scheme.integer and (isinstance(group, GridKeeping) or group.output in self.wanted)

    def inner(self, step: Inner) -> None:
        e = step.equation
        operands = inner_operands(e)
        first = e.params.get("num_consts", 0)
        # The scales of weights that come quantized go in beside them.
        scaled = {h.operand: h.stepped for hs in operands for h in hs if self._stored_as(e, h) is not None}
        order = {operand: place for place, operand in enumerate(scaled)}
        further = [self._scales(e, i, stepped) for i, stepped in scaled.items()]
        carried = self._carried(step)
        made: list[Quantizer] = []

        def program_of(plan: QuantPlan, hands: Sequence[InnerOperand]) -> Any:
            """Makes the program that computes ``plan`` on grids."""

            def staged(types: Sequence[ArrayType], split: Callable[..., Any]) -> Program:
                inputs, outputs = plan.program.inputs, plan.program.outputs
                loop = {i: (outputs[i - first], grid) for i, grid in carried.items()}

                def walk(*xs: Array) -> Sequence[Array]:
                    given, scales = split(xs)
                    stored, grids = dict[Var, StoredWeight](), {inputs[i]: grid for i, grid in carried.items()}
                    for h in hands:
                        how, grid = self._stored_as(e, h), self.grid_of(e.inputs[h.operand])
                        if how is not None and scales[order[h.operand]] is not None:
                            stored[inputs[h.input]] = StoredWeight(scales[order[h.operand]], how.dtype)
                        if grid is not None:
                            grids[inputs[h.input]] = grid
                    wanted = {v: grid for v, grid in loop.values() if isinstance(v, Var)}
                    inner = Quantizer(plan, self.ranges, stored, grids, wanted, self.beside)
                    made.append(inner)
                    y = inner.run(given)
                    for i, (v, grid) in loop.items():
                        y[i - first] = inner.moved_to(v, grid)
                    return y

                program = stage(walk, types, plan.program.name)
                if program.constvars:
                    raise ParameterError(f"quantize: {e.op.name} would hold constants", got=program.constvars)
                return program

            return staged

        makers = [program_of(p, hs) for p, hs in zip(step.plans, operands, strict=True)]
        args = [self.moved_to(a, carried[i]) if i in carried else self.value(a) for i, a in enumerate(e.inputs)]
        self.results(e, rebuild_call(e, args, further, list(scaled.values()), makers))
        self.grids.update((e.outputs[i - first], grid) for i, grid in carried.items())
        if e.op.name in LOOPS and not e.params["loop"].length:
            # What a loop carries may leave it as it came.
            return
        for i, v in enumerate(e.outputs):
            if i + first in carried:
                continue
            grids = {walk.grid_of(walk.plan.program.outputs[i]) for walk in made}
            if len(grids) == 1 and (grid := grids.pop()) is not None:
                self.grids[v] = grid

    def _carried(self, step: Inner) -> dict[int, Grid]:
        """The grids of what a scan carries, by operand: one from step to step, so that all of them are the same."""
        found: dict[int, Grid] = {}
        if step.equation.op.name != "scan":
            return found
        (plan,) = step.plans
        made = {s.output: s for s in plan.groups() if s.scheme.integer}
        loop: LoopParams = step.equation.params["loop"]
        first = loop.num_consts
        for i in range(first, first + loop.num_carry):
            v, y = plan.program.inputs[i], plan.program.outputs[i - first]
            if self.ranges is None or not isinstance(y, Var) or v not in plan.sites or y not in made:
                continue
            low, high = self.ranges[plan.sites[v]]
            grid = made[y].fixed_grid()
            if grid is None:
                a, b = self.ranges[plan.sites[y]] if y in plan.sites else (low, high)
                found[i] = covering(min(low, a), max(high, b), made[y].dtype)
            elif grid.bounds[0] <= low and high <= grid.bounds[1] + float(np.asarray(grid.scale)):
                # The largest result of tanh is a step beyond its grid.
                found[i] = grid
        return found

    def _stored_as(self, e: Equation, h: InnerOperand) -> StoredWeight | None:
        """How the operand comes, if its scales can go where it goes."""
        stored = self.weight_scale(e.inputs[h.operand])
        rows = stored.scale.shape[0] if stored is not None and h.stepped else 1
        return stored if rows in (1, e.params.get("length")) else None

    def _scales(self, e: Equation, operand: int, stepped: bool) -> Array:
        """The scales of an operand; of one that goes in row by row, those of every row."""
        stored = self.weight_scale(e.inputs[operand])
        assert stored is not None
        scale = stored.scale
        shape = (e.params["length"], *scale.shape[1:]) if stepped else scale.shape
        return scale if scale.shape == shape else broadcast_blocks(scale, shape)

    def plain(self, e: Equation) -> None:
        grid = named_grid(e)
        if grid is not None:
            (v,) = e.outputs
            self.define(v, self.moved_to(e.inputs[0], grid))
            self.grids[v] = grid
            return
        super().plain(e)
        stores = _STORES.get(e.op)
        if stores is not None:
            self.stored[e.outputs[0]] = stores(self, e)
        arranged = _ARRANGED.get(e.op.name)
        stored = self.weight_scale(e.inputs[0]) if arranged is not None and e.inputs else None
        if arranged is not None and stored is not None:
            scale = arranged(e, stored.scale)
            if scale is not None:
                self.stored[e.outputs[0]] = StoredWeight(scale, stored.dtype)

    def grid_of(self, a: Atom) -> Grid | None:
        return self.grids.get(a) if isinstance(a, Var) else None

    def on_grid(self, a: Atom, dtype: DType) -> tuple[Array, Grid]:
        grid = self.grid_of(a)
        if grid is not None and grid.dtype == dtype:
            return self.value(a), grid
        wanted = self._range_grid(a, dtype)
        return self.moved_to(a, wanted), wanted

    def held(self, e: Equation) -> None:
        super().held(e)
        self._snapped = {key: x for key, x in self._snapped.items() if key[0] not in e.inputs}

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
                found = regridded(x, own, grid, *grid.limits, self._rounding)
            self._snapped[a, grid] = found
        return found

    def result_grid(self, v: Var, dtype: DType) -> Grid:
        wanted = self.wanted.get(v)
        return wanted if wanted is not None and wanted.dtype == dtype else self._range_grid(v, dtype)

    def _range_grid(self, a: Atom, dtype: DType) -> Grid:
        if isinstance(a, Var):
            assert self.ranges is not None
            low, high = self.ranges[self.plan.sites[a]]
        else:
            low = high = float(np.asarray(a.value.numpy()))
        return covering(low, high, dtype)

    def weight_scale(self, a: Atom) -> StoredWeight | None:
        found = self.stored.get(a) if isinstance(a, Var) else None
        grid = self.grid_of(a)
        if found is None and grid is not None and grid.zero_point == 0:
            return StoredWeight(constant(grid.scale, dtypes.float32, (1,) * len(a.type.shape)), grid.dtype)
        return found


def rounding_of(corrections: Corrections, layer: str) -> Rounding | None:
    """How ``corrections`` store the weights of a layer."""
    shares, steps = corrections.get(layer + SHARES), corrections.get(layer + STEPS)
    return None if shares is None else Rounding(as_value(shares), None if steps is None else as_value(steps))


def named_results(program: Program) -> dict[Var, Grid]:
    """The grid of each value that all who read it put on one grid."""
    found: dict[Var, set[Grid | None]] = {}
    for e in program.equations:
        for a in e.inputs:
            if isinstance(a, Var):
                found.setdefault(a, set()).add(named_grid(e))
    for a in program.outputs:
        if isinstance(a, Var):
            found.setdefault(a, set()).add(None)
    return {v: grid for v, grids in found.items() if len(grids) == 1 and (grid := grids.pop()) is not None}


def covering(low: float, high: float, dtype: DType) -> Grid:
    """The grid of activations that covers a range."""
    return asymmetric(low, high, dtype) if dtype == dtypes.int8 else symmetric(max(abs(low), abs(high)), dtype)


def reshaped_blocks(blocks: Shape, old: Shape, new: Shape) -> Shape | None:
    """The shape of the scales of a reshaped weight, if each still stands for a block.

    Dimensions that are merged or split have to be under one scale, or each entry under its own.

    >>> reshaped_blocks((1, 12), (8, 12), (8, 3, 4)), reshaped_blocks((1, 12), (8, 12), (96,))
    ((1, 3, 4), None)
    """
    found: list[int] = []
    i = j = 0
    while i < len(old) or j < len(new):
        m, n = i + (i < len(old)), j + (j < len(new))
        while (before := math.prod(old[i:m])) != (after := math.prod(new[j:n])):
            if before < after and m < len(old):
                m += 1
            elif after < before and n < len(new):
                n += 1
            else:
                return None
        if old[i:m] == new[j:n]:
            found += blocks[i:m]
        elif all(k == 1 for k in blocks[i:m]):
            found += [1] * (n - j)
        elif blocks[i:m] == old[i:m]:
            found += new[j:n]
        else:
            return None
        i, j = m, n
    return tuple(found)


def _transposed(e: Equation, scale: Array) -> Array:
    return transpose(scale, **e.params)


def _reshaped(e: Equation, scale: Array) -> Array | None:
    shape = reshaped_blocks(scale.shape, e.inputs[0].type.shape, e.params["shape"])
    return None if shape is None else reshape(scale, shape=shape)


# How weights come that an op stores.
_STORES: Final[dict[Op, Callable[[Quantizer, Equation], StoredWeight]]] = {
    quantize_weight: lambda walk, e: StoredWeight(walk.value(e.inputs[1]), e.params["dtype"]),
}
# The scales of weights that an op arranges anew.
_ARRANGED: Final[dict[str, Callable[[Equation, Array], Array | None]]] = {
    "transpose": _transposed,
    "reshape": _reshaped,
}
