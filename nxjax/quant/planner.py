"""Makes the plan of a program: which equations are one group, what is looked into, and what stays float."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, final

from nxjax.ops.composite_attention import dot_product_attention
from nxjax.ops.quant_grid import Grid
from nxjax.quant.groups import FusedGroup
from nxjax.quant.patterns import fuse_patterns
from nxjax.quant.pieces import WIDE, Expanding, in_pieces, name_results
from nxjax.quant.plan import Inner, QuantPlan, named_grid
from nxjax.quant.pointwise import keeps_grid, match_pointwise
from nxjax.quant.products import is_product, match_product, too_deep
from nxjax.quant.scheme import Layered, Policy, Scheme, in_float, resolve_policy
from nxjax.quant.sites import find_sites
from nxjax.quant.spelled import magnitudes
from nxjax.quant.subprograms import CALLS, HOLDING, LOOPS, derives, needed, opened
from nxjax.quant.view import WeightView
from nxjax.quant.weight_groups import match_lookup
from nxjax.trace import dtypes
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.inline import inlined
from nxjax.transforms.slice_updates import use_slice_updates


def make_plan(program: Program, weights: Sequence[bool], policy: Policy) -> QuantPlan:
    """The plan of ``program``, whose inputs marked in ``weights`` hold weights."""
    return _Planner(policy).plan(program, weights, "")


def named_policy(program: Program, weights: Sequence[bool], grids: Mapping[Var, Grid]) -> Policy:
    """The policy that quantizes what reads a value on a named grid, with integers of that grid's size.

    `quantize_dequantize` names grids, and ``grids`` those of inputs.
    """
    plan = make_plan(program, weights, lambda op, scope, types: None)
    answers: dict[str, Scheme | str | None] = {}
    on = {v: grid.dtype for v, grid in grids.items()}
    for e in plan.program.equations:
        read = next((on[a] for a in e.inputs if isinstance(a, Var) and a in on), None)
        grid = named_grid(e)
        if grid is not None:
            on[e.outputs[0]] = grid.dtype
        elif read is not None and e.outputs:
            answers[plan.names[e.outputs[0]]] = Scheme(activations=read, dense_per_channel=True)
            if keeps_grid(e):
                on[e.outputs[0]] = read
    return Layered(lambda op, scope, types: None, answers)


@final
class _Planner:
    def __init__(self, policy: Policy, why: str = "", decides: bool = False) -> None:
        self.policy = policy
        # Why everything is left in float, if all is.
        self.why = why
        # Whether what only chooses between values is.
        self.decides = decides

    def plan(self, program: Program, weights: Sequence[bool], prefix: str) -> QuantPlan:
        program, names = self._prepared(program, weights, prefix)
        program, order = _parted(program)
        view = WeightView(program, weights, {a for e in order if derives(e) for a in e.inputs if isinstance(a, Var)})
        wide = magnitudes(program, view)
        view.alone.update(_excepted(self.policy, program, names))
        masking: set[Equation] = set()
        while True:
            plan = QuantPlan(program, names)
            self._fill(plan, order, view, wide, masking)
            found = find_sites(plan, view)
            if not found:
                return plan
            # What ended a group may have room as one of its own.
            masking |= found.intersection(group.equations[0] for group in plan.groups())
            view.alone |= found

    def _fill(
        self, plan: QuantPlan, order: Sequence[Equation], view: WeightView, wide: set[Equation], masking: set[Equation]
    ) -> None:
        """Write the steps into ``plan``; no group has an equation of ``masking``."""
        taken: set[Equation] = set()
        starts: dict[Equation, FusedGroup] = {}
        choosing = _choosing(plan.program) if self.decides else set[Equation]()
        for e in plan.program.equations:
            if e in choosing or e in masking or e in taken or e.op.nested or all(view.is_weight(a) for a in e.inputs):
                continue
            group = self._group(plan, view, e, e in wide)
            if group is not None and not taken.intersection(group.equations):
                # Computed where its last equation stands, when all its operands are there.
                starts[group.equations[-1]] = group
                taken.update(group.equations)
        self._steps(plan, order, view, starts, taken, masking)

    def _prepared(self, program: Program, weights: Sequence[bool], prefix: str) -> tuple[Program, dict[Var, str]]:
        program = use_slice_updates(opened(program, _computes))
        names = {v: f"{prefix}in_{i}" for i, v in enumerate(program.inputs)}
        names.update((v, f"{prefix}const_{i}") for i, v in enumerate(program.constvars))
        name_results(program.equations, prefix, names)
        if any(map(in_pieces, program.equations)):
            program = Expanding(program, self.policy, names).program()
        program = fuse_patterns(program, weights, self.policy, names)
        if any(e.op in WIDE for e in program.equations):
            program = Expanding(program, self.policy, names).program()
        return _alive(program), names

    def _group(self, plan: QuantPlan, view: WeightView, e: Equation, wide: bool) -> FusedGroup | None:
        scheme = resolve_policy(self.policy, e, plan.names)
        if scheme is None:
            return None
        if wide and scheme.integer:
            scheme = replace(scheme, activations=dtypes.int16)
        return match_product(view, e, scheme) or match_lookup(view, e, scheme) or match_pointwise(view, e, scheme)

    def _steps(
        self,
        plan: QuantPlan,
        order: Sequence[Equation],
        view: WeightView,
        starts: dict[Equation, FusedGroup],
        taken: set[Equation],
        masking: set[Equation],
    ) -> None:
        for e in order:
            if derives(e):
                plan.held.setdefault(plan.steps[-1], []).append(e)
            elif e in starts:
                plan.steps.append(starts[e])
            elif e in taken:
                continue
            elif e.op.name in HOLDING and any(map(_computes, e.programs())):
                name = plan.names[e.outputs[0]].removesuffix(".0")
                masks = _inner_weights(e, [view.is_weight(a) for a in e.inputs])
                programs = list(e.programs())
                within = [f"{name}/" if len(programs) == 1 else f"{name}/{k}/" for k in range(len(programs))]
                makers = [self] * len(programs)
                if e.op.name == "while":
                    # How often a loop runs is no matter of rounding; under `vmap` the body asks again who goes on.
                    makers = [_Planner(in_float, _CONDITION), _Planner(self.policy, self.why, True)]
                rows = zip(makers, programs, masks, within, strict=True)
                inner = tuple(make.plan(p, mask, w) for make, p, mask, w in rows)
                plan.steps.append(Inner(e, inner))
            else:
                plan.steps.append(e)
                if not all(view.is_weight(a) for a in e.inputs) and any(view.is_float(v) for v in e.outputs):
                    scheme = resolve_policy(self.policy, e, plan.names)
                    deep = scheme is not None and too_deep(e, scheme)
                    why = _MASK if e in masking else _TOO_DEEP if deep else _FLOAT
                    plan.left.append((e, self.why or why))


# Why equations stay float.
_FLOAT: Final = "no integer form, or the policy leaves it in float"
_CONDITION: Final = "it decides how often a loop runs, which stays float"
_MASK: Final = "it makes or reads a mask, or whole numbers that are wanted exactly; a grid has neither"
_TOO_DEEP: Final = "sums more elements than integer accumulators hold"


def _excepted(policy: Policy, program: Program, names: Mapping[Var, str]) -> set[Equation]:
    """The equations that a policy leaves in float by name: no group takes them in."""
    named = policy.exceptions if isinstance(policy, Layered) else {}
    floats = {name for name, answer in named.items() if answer is None}
    return {e for e in program.equations if e.outputs and names.get(e.outputs[0]) in floats} if floats else set()


def _alive(program: Program) -> Program:
    """Without what nothing needs, which would count as another user of a value, and want a range."""
    wanted = {a for a in program.outputs if isinstance(a, Var)}
    kept: list[Equation] = []
    for e in reversed(program.equations):
        if e.effect or not wanted.isdisjoint(e.outputs):
            kept.append(needed(e, wanted) if derives(e) else e)
            wanted.update(a for a in kept[-1].inputs if isinstance(a, Var))
    return Program(program.inputs, kept[::-1], program.outputs, program.constvars, program.values, program.name)


def _choosing(program: Program) -> set[Equation]:
    """The equations on which nothing depends but which values are chosen."""
    wanted = {a for a in program.outputs if isinstance(a, Var)}
    found: set[Equation] = set()
    for e in reversed(program.equations):
        if e.effect or not wanted.isdisjoint(e.outputs):
            wanted.update(a for a in e.inputs[e.op.name == "select_n" :] if isinstance(a, Var))
        else:
            found.add(e)
    return found


def _parted(program: Program) -> tuple[Program, list[Equation]]:
    """``program`` without the calls that only `derives`, and all equations in order, with them."""
    env: dict[Var, Atom] = {}
    now = lambda atoms: tuple([env.get(a, a) if isinstance(a, Var) else a for a in atoms])
    order: list[Equation] = []
    for e in program.equations:
        order.append(e if env.keys().isdisjoint(e.inputs) else e.replaced(now(e.inputs), e.outputs))
        if derives(e):
            env.update(zip(e.outputs, order[-1].inputs[-len(e.outputs) :], strict=True))
    if not env:
        return program, order
    kept = [e for e in order if not derives(e)]
    return Program(program.inputs, kept, now(program.outputs), program.constvars, program.values, program.name), order


def _computes(program: Program) -> bool:
    """Whether a program, or one it holds, has a product: what is worth looking into."""
    return any(
        is_product(e) or e.op is dot_product_attention or any(map(_computes, e.programs()))
        for e in inlined(program, 0, CALLS).equations
    )


def _inner_weights(e: Equation, outer: Sequence[bool]) -> list[list[bool]]:
    """Per held program, which of its inputs hold weights, from which operands of the equation do."""
    name, params = e.op.name, e.params
    outer = list(outer)
    if name in LOOPS:
        loop: LoopParams = params["loop"]
        # A carry starts as what it is given and becomes something else.
        x = loop.split(outer)._replace(carry=[False] * loop.num_carry)
        return [list(x.body_inputs)] if loop.cond is None else [list(x.cond_inputs), list(x.body_inputs)]
    return [outer[1:] for _ in params["branches"]]
