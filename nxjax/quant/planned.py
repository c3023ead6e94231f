"""Functions of pytrees as planned programs: what tracing, calibration and quantization of a user's function share."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeGuard, final

from nxjax.errors import ParameterError
from nxjax.ops.quant_grid import Grid
from nxjax.quant.groups import StoredWeight
from nxjax.quant.observe import Stat, Statistics, StatisticsTrace
from nxjax.quant.plan import QuantPlan, check_inputs
from nxjax.quant.planner import make_plan, named_policy
from nxjax.quant.qarray import QArray, float_leaf, is_quantized, leaves_of
from nxjax.quant.scheme import Policy
from nxjax.quant.walk import Beside, Corrections, Quantizer, Range
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.program import Program, Var
from nxjax.trace.stage import stage


@final
class PlannedCall:
    """One call of a function, traced.

    Attributes:
        leaves: the arguments' leaves, QArrays whole.
        values: the same as arrays; QArrays as the floats they stand for.
        weights: which leaves belong to parameters.
        program, out_tree: what the function does with them.
    """

    def __init__(
        self, fun: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], params: Sequence[int] | int | None
    ) -> None:
        # However an argument is given, its leaves have the same numbers, by which ranges are known.
        named = _in_order(fun, kwargs)
        given = (*args, *(kwargs[k] for k in named))
        self.leaves, self.in_tree = leaves_of(given, {})
        self.weights = parameter_mask(given, params)
        self.values = [as_value(float_leaf(x), "quantize") for x in self.leaves]
        store: list[tree.TreeDef] = []

        def flat(*xs: Array) -> Sequence[Any]:
            every, _ = tree.unflatten(self.in_tree, xs)
            n = len(args)
            leaves, out_tree = tree.flatten(fun(*every[:n], **dict(zip(named, every[n:], strict=True))))
            store[:] = [out_tree]
            return leaves

        name = getattr(fun, "__name__", "function")
        names = tree.path_names(given, "args") if not any(map(is_quantized, self.leaves)) else ()
        self.program: Program = stage(flat, [x.type for x in self.values], name, names)
        self.out_tree = store[0]

    def plan(self, policy: Policy, what: str, calibrated: bool = False) -> QuantPlan:
        """How the traced program is quantized; refused if nothing is, unless it was so in calibration."""
        plan = make_plan(self.program, self.weights, policy)
        if not calibrated:
            check_inputs(plan, what)
        return plan

    def stored(self, plan: QuantPlan) -> dict[Var, StoredWeight]:
        """How the parameters are stored that come quantized."""
        pairs = zip(plan.program.inputs, self.leaves, strict=True)
        return {v: StoredWeight(as_value(x.scale, "QArray"), x.dtype) for v, x in pairs if _has_grid(x)}

    def quantized(self, plan: QuantPlan, ranges: Mapping[str, Range], corrections: Corrections) -> Any:
        """The results, computed on grids."""
        walk = Quantizer(plan, ranges, self.stored(plan), corrections=corrections)
        return tree.unflatten(self.out_tree, walk.run(self.values))

    def quantized_as_named(self, grid_of: Callable[[QArray], Grid | None]) -> Any:
        """The results, with integers where the program names the grids of what an op reads and makes.

        Args:
            grid_of: the grid of a quantized argument, if it is one grid.
        """
        inputs = zip(self.program.inputs, self.leaves, strict=True)
        grids = {v: g for v, x in inputs if _has_grid(x) and (g := grid_of(x)) is not None}
        plan = make_plan(self.program, self.weights, named_policy(self.program, self.weights, grids))
        return tree.unflatten(self.out_tree, Quantizer(plan, None, self.stored(plan), grids).run(self.values))

    def beside(self, plan: QuantPlan, ranges: Mapping[str, Range], corrections: Corrections) -> Beside:
        """The grids of operand and result of each product with weights; nothing is computed."""
        found: Beside = {}
        stored = self.stored(plan)
        walked = lambda *xs: Quantizer(plan, ranges, stored, beside=found, corrections=corrections).run(xs)
        stage(walked, [x.type for x in self.values], plan.program.name)
        return found

    def observed(self, plan: QuantPlan, recorder: Statistics) -> tuple[Any, dict[str, Stat]]:
        """The float results, and statistics by site."""
        walk = StatisticsTrace(plan, recorder)
        y = walk.run(self.values)
        return tree.unflatten(self.out_tree, y), {s: walk.stats[s] for s in plan.all_sites()}


def _in_order(fun: Callable[..., Any], kwargs: Mapping[str, Any]) -> list[str]:
    """The names of keyword arguments in the order of the signature; those it does not name by name, last."""
    try:
        order = list(inspect.signature(fun).parameters) if kwargs else []
    except (TypeError, ValueError):
        order = []
    place = {name: i for i, name in enumerate(order)}
    return sorted(kwargs, key=lambda name: (place.get(name, len(order)), name))


def parameter_mask(args: Sequence[Any], params: Sequence[int] | int | None) -> list[bool]:
    """Which leaves hold weights: those of arguments numbered in ``params``; by default of arguments that are trees.

    A dict, list, tuple, module or QArray is a tree of parameters, one array is data.
    """
    if params is None:
        chosen = {i for i, a in enumerate(args) if is_tree(a)}
    else:
        positions = (params,) if isinstance(params, int) else tuple(params)
        for i in positions:
            if not -len(args) <= i < len(args):
                raise ParameterError("params: no such positional argument", got=i, expected=f"below {len(args)}")
        chosen = {i % len(args) for i in positions}
    mask: list[bool] = []
    for i, a in enumerate(args):
        mask += [i in chosen] * len(tree.leaves(a, is_leaf=is_quantized))
    return mask


def is_tree(x: Any) -> bool:
    """Whether an argument holds parameters by default: anything but one array."""
    leaves = tree.leaves(x, is_leaf=is_quantized)
    return is_quantized(x) or not (len(leaves) == 1 and leaves[0] is x)


def _has_grid(x: Any) -> TypeGuard[QArray]:
    """Whether an argument is whole numbers times scales; others are the floats that they stand for."""
    return isinstance(x, QArray) and x.least is None
