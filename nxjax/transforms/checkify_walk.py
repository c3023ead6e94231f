"""`checkify`: a function that returns the first failed check as a value.

The function is staged and its program walked. At each requested check, division, index or op that may make a NaN, the
walk records whether it failed, and threads the records through calls, loops and branches. The walk runs under the
current trace, so its results can be jitted, batched and differentiated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, final

from nxjax.errors import ParameterError
from nxjax.ops import vocabulary as ops
from nxjax.ops.collectives import as_varying
from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.boundary import api_boundary
from nxjax.trace.core import Array, Arrays, Op
from nxjax.trace.partition import PartitionSpec
from nxjax.trace.program import Equation, Program, Var, map_programs, subprograms
from nxjax.trace.scope import replaying
from nxjax.trace.stage import stage
from nxjax.trace.wrapping import name_of
from nxjax.transforms.call import jit_call
from nxjax.transforms.checkify import (
    Categories,
    CheckSite,
    CheckState,
    FailedCheckError,
    check_op,
    first_failed_rows,
    initial_state,
)
from nxjax.transforms.checkify_checks import Check, checks_for
from nxjax.transforms.checkpoint import checkpoint_op
from nxjax.transforms.control.cond import switch
from nxjax.transforms.control.cond_branches import choose
from nxjax.transforms.control.cond_op import cond_op
from nxjax.transforms.control.loop_params import LoopParams
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.scan_op import scan_op
from nxjax.transforms.control.while_loop import while_loop, while_op
from nxjax.transforms.has_aux import FlatFunction
from nxjax.transforms.shard_map_op import manual_axes_context, shard_map_op


@final
class CheckStep(NamedTuple):
    """An equation: where its sites begin among the program's, its checks, the plans of what it holds."""

    equation: Equation
    start: int
    checks: tuple[tuple[CheckSite, Check], ...]
    inner: tuple[CheckPlan, ...]

    def walk(self, i: int, args: Arrays, state: CheckState, base: int) -> tuple[list[Array], CheckState]:
        """`walk` of the plan ``i``, in a state of all sites of the equation, whose first has the code ``base``."""
        start, plan = sum(len(p.sites) for p in self.inner[:i]), self.inner[i]
        ys, part = walk(plan, args, state.of_sites(start, len(plan.sites)), base + start)
        return ys, state.joined(start, part)


@final
class CheckPlan(NamedTuple):
    program: Program
    steps: tuple[CheckStep, ...]
    sites: tuple[CheckSite, ...]


def plan_checks(program: Program, wanted: Categories) -> CheckPlan:
    """All checks of ``program``."""
    return program.derive(("checkify", wanted), lambda: _planned(program, wanted))


def _planned(program: Program, wanted: Categories) -> CheckPlan:
    sites: list[CheckSite] = []
    steps: list[CheckStep] = []
    for e in program.equations:
        start = len(sites)
        checks: list[tuple[CheckSite, Check]] = []
        inner: tuple[CheckPlan, ...] = ()
        if _is_check(e):
            site: CheckSite = e.params["callback"]
            if site.kinds() & wanted:
                sites.append(site)
            else:
                start = -1
        elif e.op.nested:
            inner = tuple([plan_checks(p, wanted) for p in subprograms_to_check(e, wanted)])
            sites += [s for p in inner for s in p.sites]
            e = e.replaced(e.inputs, e.outputs, _without_checks(e.params))
        else:
            checks = checks_for(e, wanted)
            sites += [s for s, _ in checks]
        steps.append(CheckStep(e, start, tuple(checks), inner if len(sites) > start else ()))
    return CheckPlan(program, tuple(steps), tuple(sites))


def subprograms_to_check(e: Equation, wanted: Categories) -> Sequence[Program]:
    """The programs whose sites are those of an equation."""
    if e.op in _SEVERAL:
        return tuple(e.programs())
    found = e.op.called(*e.inputs, **e.params) if e.op.has("called") else None
    of_floats = wanted - {FailedCheckError}
    if found is not None and (not e.op.runs_on_padding or not plan_checks(found[0], of_floats).sites):
        return (found[0],)
    if any(plan_checks(p, wanted).sites for p in e.programs()):
        raise ParameterError(
            f"checkify: cannot look into {e.op.name}",
            got=", ".join(sorted(kind.__name__ for kind in wanted)),
            expected="errors=checkify.user_checks, as padding is no error" if found is not None else None,
            fix="checkify the function inside, and return what it says",
        )
    return ()


def _is_check(e: Equation) -> bool:
    return e.op is check_op


def _without_checks(params: dict[str, Any]) -> dict[str, Any]:
    """Parameters whose programs check nothing."""

    def stripped(p: Program) -> Program:
        if not p.effect:
            return p
        equations = [
            e.replaced(e.inputs, e.outputs, _without_checks(e.params)) if e.op.nested else e
            for e in p.equations
            if not _is_check(e)
        ]
        return Program(p.inputs, equations, p.outputs, p.constvars, p.values, p.name)

    return map_programs(params, stripped) if any(p.effect for p in subprograms(params)) else params


def walk(plan: CheckPlan, args: Arrays, state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    """The results of the plan's program, and the new state; its first site has the code ``base``."""
    program = plan.program
    env: dict[Var, Array] = dict(zip(program.inputs, args, strict=True))
    env.update(zip(program.constvars, program.values, strict=True))
    for step in plan.steps:
        e = step.equation
        xs = [env[v] if isinstance(v, Var) else v.value for v in e.inputs]
        with replaying(e.scope, e.source):
            if _is_check(e):
                if step.start >= 0:
                    state = state.noted(step.start, base + step.start, ops.not_(xs[0]), xs[1:])
                continue
            if step.inner:
                count = sum(len(p.sites) for p in step.inner)
                inside = state.of_sites(step.start, count)
                ys, part = _RULES.get(e.op, _check_called)(step, xs, inside, base + step.start)
                state = state.joined(step.start, part)
            else:
                y = e.op(*xs, **e.params)
                ys = list(y) if e.op.multi else [y]
            for i, (_, check) in enumerate(step.checks, step.start):
                state = state.noted(i, base + i, *check(xs, ys))
        env.update(zip(e.outputs, ys, strict=True))
    return [env[v] if isinstance(v, Var) else v.value for v in program.outputs], state


def _call(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    return walk(step.inner[0], xs, state, base)


def _check_called(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    # Its results are its own, with its own rules; the program that it runs is looked into beside it.
    e = step.equation
    found = e.op.called(*map(ops.stop_gradient, xs), **e.params)
    assert found is not None
    _, state = walk(step.inner[0], found[1], state, base)
    return list(e.op(*xs, **e.params)), state


def _jit(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    (plan,) = step.inner
    leaves, structure = tree.flatten(state)

    def flat(*given: Array) -> Arrays:
        ys, after = walk(plan, given[len(leaves) :], tree.unflatten(structure, given[: len(leaves)]), base)
        return [*tree.leaves(after), *ys]

    name = f"checkify({step.equation.params['name']})"
    opened, consts = stage(flat, [x.type for x in (*leaves, *xs)], name).hoist_consts()
    out = jit_call(*consts, *leaves, *xs, program=opened, name=name)
    return list(out[len(leaves) :]), tree.unflatten(structure, out[: len(leaves)])


def _scan(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    (plan,) = step.inner
    loop: LoopParams = step.equation.params["loop"]
    _, consts, carry, sequences = loop.split(xs)

    def body(held: Any, rows: Arrays) -> tuple[Any, Any]:
        before, old = held
        out, after = walk(plan, [*consts, *old, *rows], before, base)
        new, ys = loop.results(tuple(out))
        return (after, new), ys

    (after, last), ys = scan(
        body,
        (state, tuple(carry)),
        tuple(sequences),
        length=loop.length,
        reverse=loop.reverse,
        unroll=loop.unroll,
    )
    return [*last, *ys], after


def _while(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    loop: LoopParams = step.equation.params["loop"]
    operands = loop.split(xs)

    def holds(before: CheckState, values: Arrays) -> tuple[Array, CheckState]:
        (keep,), after = step.walk(0, operands._replace(carry=values).cond_inputs, before, base)
        return keep, after

    def next_step(held: Any) -> Any:
        _, before, old = held
        ys, after = step.walk(1, operands._replace(carry=old).body_inputs, before, base)
        keep, after = holds(after, ys)
        return keep, after, tuple(ys)

    keep, state = holds(state, operands.carry)
    _, state, last = while_loop(lambda held: held[0], next_step, (keep, state, tuple(operands.carry)))
    return list(last), state


def _cond(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    index, operands = xs[0], xs[1:]

    def branch(i: int, before: CheckState) -> tuple[list[Array], CheckState]:
        return step.walk(i, operands, before, base)

    if index.ndim:
        # One choice per element of a batch: every branch runs, and what is chosen is not known of a check.
        columns: list[list[Array]] = []
        for i in range(len(step.inner)):
            ys, state = branch(i, state)
            columns.append(ys)
        return [choose(index, column) for column in zip(*columns, strict=True)], state
    ys, state = switch(index, [functools.partial(branch, i) for i in range(len(step.inner))], state)
    return list(ys), state


def _shard_map(step: CheckStep, xs: list[Array], state: CheckState, base: int) -> tuple[list[Array], CheckState]:
    # Every device has a state of its own; afterwards the first of them that failed counts.
    p, (plan,) = step.equation.params, step.inner
    axes: tuple[Any, ...] = p["manual_axes"]
    leaves, structure = tree.flatten(initial_state(plan.sites))

    def flat(*parts: Array) -> Arrays:
        own = [as_varying(x, axes) for x in leaves] if p["checked"] else leaves
        ys, after = walk(plan, parts, tree.unflatten(structure, own), base)
        return [*ys, *(ops.reshape(x, shape=(1, *x.shape)) for x in tree.leaves(after))]

    with manual_axes_context(p["mesh"], axes, p["checked"]):
        opened, consts = stage(flat, plan.program.in_types, plan.program.name).hoist_consts()
    count = len(plan.program.outputs)
    out = shard_map_op(
        *consts,
        *xs,
        **{
            **p,
            "program": opened,
            "in_specs": (*(PartitionSpec(),) * len(consts), *p["in_specs"]),
            "out_specs": (*p["out_specs"], *(PartitionSpec(axes),) * len(leaves)),
        },
    )
    return list(out[:count]), state.then(tree.unflatten(structure, first_failed_rows(out[count:])))


_Rule = Callable[[CheckStep, list[Array], CheckState, int], tuple[list[Array], CheckState]]
# Of ops that hold programs and run none of them as it stands.
_SEVERAL: Final[dict[Op, _Rule]] = {scan_op: _scan, while_op: _while, cond_op: _cond, shard_map_op: _shard_map}
_RULES: Final[dict[Op, _Rule]] = {**_SEVERAL, jit_call: _jit, checkpoint_op: _call}


@api_boundary
def checked(
    fun: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], wanted: Categories
) -> tuple[tuple[CheckSite, ...], CheckState, Any]:
    """``fun``'s result, and the state of its sites."""
    leaves, in_def = tree.flatten((args, kwargs))
    values = [as_value(x, "checkify") for x in leaves]
    flat = FlatFunction(lambda args, kwargs: fun(*args, **kwargs), in_def)
    program = stage(flat, [x.type for x in values], name_of(fun, ""))
    plan = plan_checks(program, wanted)
    ys, state = walk(plan, values, initial_state(plan.sites), 0)
    return plan.sites, state, tree.unflatten(flat.out_def, ys)
