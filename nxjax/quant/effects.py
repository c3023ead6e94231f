"""What grids do to a function's results: one compiled program takes all grids as arguments, so that it measures any.

It computes in float. What lies on a grid is rounded to it and an op is the float op; integers round some results once
more. So it tells which of several choices is best, and integers themselves measure what was chosen. Knows no policy's
presets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.ops.arithmetic import div, mul, sub
from nxjax.ops.arithmetic import max as _max
from nxjax.ops.arithmetic import min as _min
from nxjax.ops.base import like
from nxjax.ops.compare import gt
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_grid import Grid
from nxjax.ops.rounding import TO_NEAREST_EVEN, round
from nxjax.ops.select import select_n
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import slice as slice_
from nxjax.quant import bias, results
from nxjax.quant.groups import FusedGroup
from nxjax.quant.observe import Ranges, StatisticsTrace
from nxjax.quant.plan import Inner, QuantPlan, Step
from nxjax.quant.planned import PlannedCall
from nxjax.quant.pointwise import GridKeeping
from nxjax.quant.products import Weighted
from nxjax.quant.results import Quality
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Corrections, NDArray, Quantizer, Range
from nxjax.trace import dtypes
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.program import Atom, Var
from nxjax.trace.stage import stage
from nxjax.transforms.jit import jit

# A layer and a value that it reads or makes.
Use = tuple[str, str]
# So many rows are few, for a product.
FEW: Final = 32
# Step and ends, in steps, of a grid that every float lies on.
FLOAT: Final = (2.0**-60, -(2.0**127), 2.0**127)


def switched_steps(plan: QuantPlan) -> list[Step]:
    """The steps of a plan that round: integer groups, and equations that hold programs.

    What only moves values rounds them where it is the first to put them on a grid: an argument, or a table of weights.
    """
    made = {g.output for g in plan.groups() if g.scheme.integer}
    rounds = lambda g: not g.moves or not made.issuperset(a for a in g.activations if isinstance(a, Var))
    return [s for s in plan.steps if isinstance(s, Inner) or (isinstance(s, FusedGroup) and rounds(s))]


class GridChoice(NamedTuple):
    """Grids of a function.

    Attributes:
        grids: of what each layer reads and makes.
        made: of values, by name.
        products: by integer product with weights, the shape of its bias.
        inside: ranges of loops and branches.
        wider: loops and branches that are not on the grids of the first policy.
    """

    grids: dict[Use, Grid]
    made: dict[str, Grid]
    products: dict[str, tuple[int, ...]]
    inside: dict[str, Range]
    wider: set[str]


@final
class GridEffects:
    """A function on grids that are given, and what they do to its results.

    Args:
        policy: says which layers there are; in what is measured any of them may be wider, or float.
        ranges: of a first choice of grids.
        batches: the arguments to measure with.
        known: corrections that stay: how weights are rounded.
        switched: whether layers can leave the grids of ``policy``. The program is larger then.
    """

    def __init__(
        self,
        fun: Callable[..., Any],
        policy: Policy,
        params: Sequence[int] | int | None,
        ranges: Mapping[str, Range],
        batches: Sequence[tuple[Any, ...]],
        known: Corrections | None = None,
        switched: bool = False,
    ) -> None:
        self.fun, self.policy, self.params = fun, policy, params
        self.batches, self.known, self.switched = batches, dict(known or {}), switched
        self._call = PlannedCall(fun, batches[0], {}, params)
        self.plan = self._call.plan(policy, "quantize", True)
        self._steps = switched_steps(self.plan)
        self._holding = [s for s in self.plan.steps if isinstance(s, Inner)]
        self._first = first = self.choice(ranges)
        self._places: dict[Use, int] = {use: i for i, use in enumerate(first.grids)}
        # A value that its reader takes as it was made needs no second rounding.
        whole = () if switched else first.grids.items()
        self._taken = {use for use, grid in whole if first.made.get(use[1]) == grid}
        self._runs: dict[Any, Callable[..., Any]] = {}
        # Of the parts of results, the number of each one's; known when the program is traced.
        self._owners: list[str] = []

    def choice(self, ranges: Mapping[str, Range], policy: Policy | None = None) -> GridChoice:
        """The grids that ranges give, with ``policy`` of another one than at first; nothing is computed."""
        plan = self.plan if policy is None else self._call.plan(policy, "quantize", True)
        found = GridChoice({}, {}, {}, {}, set())
        stored = self._call.stored(plan)

        def walked(*xs: Array) -> Sequence[Array]:
            return _Noting(Quantizer(plan, ranges, stored, corrections=self.known), found).run(xs)

        stage(walked, [x.type for x in self._call.values], plan.program.name)
        if self._holding:
            found.inside.update({site: span for site, span in ranges.items() if "/" in site})
            inner = {layer_name(plan, s): _layers(s) for s in plan.steps if isinstance(s, Inner)}
            found.wider.update(n for s in self._holding if inner.get(n := layer_name(self.plan, s)) != _layers(s))
        return found

    def _measured(
        self,
        choice: GridChoice,
        corrections: Corrections,
        floats: Sequence[bool] | None,
        correcting: bool,
        batches: Sequence[tuple[Any, ...]],
    ) -> list[Any]:
        """What the program gives for each batch."""
        rows = np.full((len(self._places), 3), FLOAT, np.float32)
        off = self._off(floats or ())
        for use, grid in choice.grids.items():
            # What a call holds is off with it.
            if use in self._places and off.isdisjoint((use[0], use[0].split("/")[0])):
                low, high = grid.limits
                rows[self._places[use]] = grid.scale, low - grid.zero_point, high - grid.zero_point
        held = [layer_name(self.plan, s) in off | choice.wider for s in self._holding]
        run = self._run_for(choice)
        products = self._first.products
        corrected = np.asarray([correcting and k in choice.products for k in products], np.float32)
        shifts = {k: np.asarray(corrections.get(k, np.zeros(n)), np.float32) for k, n in products.items()}
        return [run(rows, np.asarray(held, np.bool_), corrected, shifts, *args) for args in batches]

    def _off(self, floats: Sequence[bool]) -> set[str]:
        """The layers that are float, and those that only move what these make."""
        if not floats:
            return set()
        off = {step for step, wide in zip(self._steps, floats, strict=True) if wide}
        rounding, made = set(self._steps), set[Var]()
        for step in self.plan.steps:
            read = step.activations if isinstance(step, FusedGroup) else ()
            if step in off or (step not in rounding and not made.isdisjoint(a for a in read if isinstance(a, Var))):
                off.add(step)
                made.update([step.output] if isinstance(step, FusedGroup) else ())
        return {layer_name(self.plan, step) for step in off}

    def _run_for(self, choice: GridChoice) -> Callable[..., Any]:
        """The program, which holds the grids in loops and branches and of what these are given."""
        if not self._holding:
            inside, named = dict[str, Range](), dict[str, Grid]()
        else:
            inside = {site: choice.inside.get(site, span) for site, span in self._first.inside.items()}
            same = lambda name, grid: (found := choice.made.get(name)) is not None and found.dtype == grid.dtype
            named = {k: choice.made[k] if same(k, grid) else grid for k, grid in self._first.made.items()}
        key = tuple(inside.items()), tuple(named.items())
        if key not in self._runs:
            bound: Callable[..., Any] = functools.partial(self._program, inside, named)
            self._runs[key] = jit(bound)
        return self._runs[key]

    def _program(
        self,
        inside: Mapping[str, Range],
        named: Mapping[str, Grid],
        rows: Array,
        held: Array,
        correcting: Array,
        shifts: Mapping[str, Array],
        *args: Any,
    ) -> Any:
        call = PlannedCall(self.fun, args, {}, self.params)
        plan = call.plan(self.policy, "quantize", True)
        exact = StatisticsTrace(plan, Ranges())
        products = {
            k: slice_(correcting, start_indices=(i,), limit_indices=(i + 1,))
            for i, k in enumerate(self._first.products)
        }
        given = _Given(self._places, self._taken, named, self.switched, rows, held, products, shifts)
        walk = _Rounded(exact, Quantizer(plan, inside, call.stored(plan), corrections=self.known), given)
        self._owners[:], ends = results.ends(plan, exact, walk, call.values)
        values = () if self.switched else results.group_values(plan)
        inner = results.powers((exact.env[v], walk.env[v]) for v in values)
        return results.powers(ends, apart=True), inner, walk.found

    def quality(self, choice: GridChoice, corrections: Corrections) -> Quality:
        """The noise of results, and of layers where none is switched."""
        found = self._measured(choice, corrections, None, False, self.batches)
        ends, inner = ([each[i] for each in found] for i in (0, 1))
        values = () if self.switched else results.group_values(self.plan)
        noise = dict(zip(values, (results.sqnr(*pair) for pair in results.summed(inner)), strict=True))
        return results.quality(self._owners, ends, list(results.noisy_layers(self.plan, noise)))

    def noise(
        self, choice: GridChoice, corrections: Corrections, floats: Sequence[bool], batches: int | None = None
    ) -> list[float]:
        """Noise of each float result and of each small part, as a share of its signal, over ``batches`` of the batches.

        Args:
            floats: for each of `switched_steps`, whether it is float.
        """
        found = self._measured(choice, corrections, floats, False, self.batches[:batches])
        ends = results.large_and_small(self._owners, [each[0] for each in found])
        return [float(n) / max(float(s), 1e-300) for each in ends for s, n in each]

    def corrections(self, choice: GridChoice, batches: Sequence[tuple[Any, ...]] | None = None) -> dict[str, NDArray]:
        """What to add to the bias of each integer product with weights, per channel; not in loops and branches.

        Nagel et al. 2019, "Data-free quantization through weight equalization and bias correction" (arXiv:1906.04721),
        section 4.2 and appendix D: the mean error of the product, on operands as the corrected layers before it make
        them. One pass measures all layers, for each batch apart. A mean that differs from batch to batch is no bias:
        it shrinks by the share of its square that its standard error explains.
        """
        found = self._measured(choice, {}, None, True, self.batches if batches is None else batches)
        return bias.certain([{k: pair for k, pair in each[2].items() if k in choice.products} for each in found])


def _layers(step: Step) -> list[tuple[str, DType | None]]:
    """The layers in the programs that a step holds."""
    found: list[tuple[str, DType | None]] = []
    for plan in step.plans if isinstance(step, Inner) else ():
        for inner in plan.steps:
            if isinstance(inner, FusedGroup):
                found.append((plan.layer(inner), inner.scheme.activations))
            found += _layers(inner)
    return found


def layer_name(plan: QuantPlan, step: Step) -> str:
    """The layer, or what holds layers: the first part of their names."""
    if isinstance(step, FusedGroup):
        return plan.layer(step)
    e = step.equation if isinstance(step, Inner) else step
    return plan.names[e.outputs[0]].removesuffix(".0")


def _value_name(plan: QuantPlan, a: Atom) -> str | None:
    return plan.sites.get(a) or plan.names.get(a) if isinstance(a, Var) else None


@final
class _Noting(Quantizer):
    """Writes down the grids of all values."""

    def __init__(self, walk: Quantizer, found: GridChoice) -> None:
        super().__init__(walk.plan, walk.ranges, walk.stored, walk.grids, corrections=walk.corrections)
        self.found = found
        self._layer: str | None = None

    def group(self, group: FusedGroup) -> None:
        self._layer = self.plan.layer(group) if group.scheme.integer else None
        super().group(group)
        name, grid = _value_name(self.plan, group.output), self.grids.get(group.output)
        if self._layer is not None and name is not None and grid is not None:
            self.found.grids[self._layer, name] = self.found.made[name] = grid
            if isinstance(group, Weighted):
                self.found.products[self._layer] = group.bias_shape
        self._layer = None

    def on_grid(self, a: Atom, dtype: DType) -> tuple[Array, Grid]:
        x, grid = super().on_grid(a, dtype)
        self._note(a, grid)
        return x, grid

    def moved_to(self, a: Atom, grid: Grid) -> Array:
        self._note(a, grid)
        return super().moved_to(a, grid)

    def _note(self, a: Atom, grid: Grid) -> None:
        name = _value_name(self.plan, a)
        if self._layer is not None and name is not None:
            self.found.grids[self._layer, name] = grid


class _Given(NamedTuple):
    """What the program is given: the grids by place and the corrections, and where integers are as they were made."""

    places: Mapping[Use, int]
    taken: set[Use]
    named: Mapping[str, Grid]
    switched: bool
    rows: Array
    held: Array
    correcting: Mapping[str, Array]
    shifts: Mapping[str, Array]

    def row(self, use: Use) -> tuple[Array, Array, Array] | None:
        """Step and ends of the grid of a use, each [1]."""
        i = self.places.get(use)
        if i is None:
            return None
        low, middle, high = (slice_(self.rows, start_indices=(i, k), limit_indices=(i + 1, k + 1)) for k in range(3))
        return low, middle, high


@final
class _Rounded(Quantizer):
    """Computes in float on values that are rounded to the grids that it is given.

    Attributes:
        found: by product, the mean error and the square of its standard error.
    """

    def __init__(self, exact: StatisticsTrace, walk: Quantizer, given: _Given) -> None:
        super().__init__(walk.plan, walk.ranges, walk.stored, corrections=walk.corrections)
        self.exact, self.given = exact, given
        self.found: dict[str, tuple[Array, Array]] = {}
        self._apart = iter(range(given.held.shape[0]))

    def group(self, group: FusedGroup) -> None:
        if not group.scheme.integer:
            super().group(group)
            return
        layer = self.plan.layer(group)
        for v, x in group.prepare(self).items():
            self.define(v, x)
        before = {a: self.env[a] for a in group.activations if isinstance(a, Var)}
        uses = {a: (layer, _value_name(self.plan, a) or "") for a in before}
        rounded = {a for a, use in uses.items() if use not in self.given.taken}
        # What only moves values is rounded once it is moved: of a large table it may take a few rows.
        keeps = isinstance(group, GridKeeping)
        if not keeps:
            self.env.update((a, self._on(self.env[a], uses[a])) for a in rounded)
        if isinstance(group, Weighted):
            self.env[group.output] = self._product(group, layer)
        else:
            for e in group.equations:
                self.plain(e)
        self.env.update(before)
        if rounded or not keeps:
            self.env[group.output] = self._on(self.env[group.output], (layer, self.plan.names[group.output]))

    def _on(self, x: Array, use: Use) -> Array:
        """``x`` rounded to the grid of a use."""
        row = self.given.row(use)
        if row is None:
            return x
        step, low, high = (_spread(v, x) for v in row)
        whole = round(div(x, step), rounding_method=TO_NEAREST_EVEN)
        return mul(_min(_max(whole, low), high), step)

    def _product(self, group: Weighted, layer: str) -> Array:
        w = group.folded_weights(self)
        rounded = group.stored_values(self, w)
        x = self.value(group.activations[0])
        row = self.given.row((layer, _value_name(self.plan, group.activations[0]) or ""))
        self.found[layer] = mean, _ = group.mean_error(x, rounded, self.exact, w)
        given = self.given.shifts.get(layer)
        if given is not None:
            self.corrections[layer] = sub(given, mul(mean, _spread(self.given.correcting[layer], mean)))
        if row is None or not self.given.switched:
            return group.in_float(self, x, rounded)
        on = lambda x: gt(_spread(row[0], x), like(x, FLOAT[0]))
        if group.output.type.size > FEW * math.prod(group.bias_shape):
            return group.in_float(self, x, select_n(on(w), w, rounded))
        # Where few rows meet many weights, two products cost less than a choice of weights.
        y, z = group.in_float(self, x, w), group.in_float(self, x, rounded)
        return select_n(on(y), y, z)

    def inner(self, step: Inner) -> None:
        e = step.equation
        grids = {v: grid for v, name in self.plan.names.items() if (grid := self.given.named.get(name)) is not None}
        before = {a: self.env[a] for a in e.inputs if isinstance(a, Var) and a in grids}
        self.grids.update(grids)
        self.env.update((a, quantize_dequantize(x, grid=grids[a])) for a, x in before.items())
        super().inner(step)
        self.env.update(before)
        made = [self.env[v] for v in e.outputs]
        i = next(self._apart)
        if self.given.switched:
            self.plain(e)
            off = slice_(self.given.held, start_indices=(i,), limit_indices=(i + 1,))
            for v, y in zip(e.outputs, made, strict=True):
                if v.type.dtype == dtypes.float32:
                    self.env[v] = select_n(_spread(off, y), y, self.env[v])


def _spread(x: Array, like: Array) -> Array:
    """One number over the shape of another array."""
    return broadcast_in_dim(reshape(x, shape=()), shape=like.shape, broadcast_dimensions=())
