"""Partial evaluation: cut a program into the part that its known inputs determine, and the rest. Names no op.

A `PartialTrace` hands an op to its parent if all operands are known, and stages it otherwise. The known values that the
staged part reads are its residuals. `partial_eval` runs a program in such a trace, so both parts are programs. An op
that holds programs may have the rule `Op.partial_eval`, which cuts these programs; without it, the op is staged whole.
Linearization is forward mode with unknown tangents.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, final

from nxjax.trace.core import Array, Arrays, Op, current_trace, use
from nxjax.trace.program import Atom, Equation, Program, Var
from nxjax.trace.scope import replaying
from nxjax.trace.stage import StageTrace, StageTracer
from nxjax.transforms.inline import Inliner
from nxjax.transforms.subprograms import Mask, merge_by_mask, required_equations, select_by_mask, split_by_mask


class ProgramPolicy(ABC):
    """A policy that looks at a whole program."""

    @abstractmethod
    def kept(self, program: Program, wanted: set[Var]) -> set[Var]:
        """The values of ``program`` that may be kept, of whose values the other half reads those ``wanted``."""


# policy(op, *operand types, **parameters): whether the op's results may be kept.
OpPolicy = Callable[..., bool]
Policy = OpPolicy | ProgramPolicy


@final
class PartialTrace(StageTrace):
    """Stages ops on what is unknown; everything else happens in the parent trace."""

    __slots__ = ()

    def process(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        for x in args:
            if isinstance(x, StageTracer) and x.owner is self:
                if op.has("partial_eval"):
                    return op.partial_eval(self, args, self.known(args), **params)
                return super().process(op, args, params)
        assert self.parent is not None
        with use(self.parent):
            return self.parent.process(op, args, params)

    def process_unknown(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        """Stage one op as it is."""
        return super().process(op, args, params)

    def known(self, xs: Sequence[Any]) -> Mask:
        return tuple([not (isinstance(x, StageTracer) and x.owner is self) for x in xs])

    def process_known(self, op: Op, args: Arrays, params: dict[str, Any]) -> Any:
        """What ``op`` gives for known operands."""
        assert self.parent is not None
        with use(self.parent):
            return op(*args, **params)


@final
class PartialEvalResult(NamedTuple):
    """A program cut in two.

    Attributes:
        known: known inputs to (known results..., residuals that are no inputs...).
        unknown: (residuals..., unknown inputs...) to the unknown results.
        known_out: which results are known.
        sources: per residual, its index among the known inputs, or None if ``known`` computes it.
    """

    known: Program
    unknown: Program
    known_out: Mask
    sources: tuple[int | None, ...]

    @property
    def is_cut(self) -> bool:
        """Whether the unknown half does anything: it has results, or an effect."""
        return bool(self.unknown.outputs) or self.unknown.effect

    def residuals(self, inputs: Sequence[Any], outputs: Sequence[Any]) -> list[Any]:
        """The residuals, from the inputs and the results of the known half."""
        made = iter(outputs[sum(self.known_out) :])
        return [next(made) if i is None else inputs[i] for i in self.sources]


def partial_eval(
    program: Program, known: Mask, policy: Policy | None = None, unknown_out: Mask | None = None
) -> PartialEvalResult:
    """Cut ``program``; the halves are kept with it.

    Args:
        known: which inputs are known.
        policy: which values may be residuals; inputs always may, and everything may without one. What may not is
            computed again in the unknown half. A policy looks into jitted functions; a loop counts as one op.
        unknown_out: results that the unknown half gives even if they are known.
    """
    force_unknown = unknown_out or (False,) * len(program.outputs)
    key = ("partial eval", known, policy, force_unknown)
    return program.derive(key, lambda: _cut(program, known, policy, force_unknown))


def _cut(program: Program, known: Mask, policy: Policy | None, force_unknown: Mask) -> PartialEvalResult:
    """The halves, where the residuals that may not be kept are made again, and the others are given once."""
    whole = program if policy is None else Inliner(program, {}, _plain_call).result()
    names = _names(program.name)
    first, outputs, rest, unknown = whole.derive(("partition", known), lambda: _partition(whole, known))
    ready = tuple(a not in unknown and not f for a, f in zip(outputs, force_unknown, strict=True))
    results, delayed = split_by_mask(outputs, ready)
    read = [*delayed, *(a for e in rest for a in e.inputs)]
    wanted = {a for a in read if isinstance(a, Var) and a not in unknown}
    made = [v for e in first.equations for v in e.outputs]
    keep = policy.kept(first, wanted) if isinstance(policy, ProgramPolicy) else _may_be_kept(first, policy)
    again = required_equations(first.equations, wanted, keep)
    recomputed = {v for e in again for v in e.outputs}
    kept = [v for v in (*first.inputs, *made) if v in wanted and v not in recomputed]
    consts = [(c, x) for c, x in zip(first.constvars, first.values, strict=True) if c in wanted]
    unknown_half = Program(
        [*kept, *select_by_mask(whole.inputs, [not k for k in known])],
        [*again, *rest],
        delayed,
        [c for c, _ in consts],
        [x for _, x in consts],
        names[1],
    )
    place = {v: i for i, v in enumerate(first.inputs)}
    sources = tuple(place.get(v) for v in kept)
    outputs = [*results, *(v for v in kept if v not in place)]
    equations = first.equations if policy is None else _with_effects(first, outputs)
    known_half = Program(first.inputs, equations, outputs, first.constvars, first.values, names[0])
    return PartialEvalResult(known_half, unknown_half, ready, sources)


def _names(name: str) -> tuple[str, str]:
    """What the halves are called: those of ``jvp(f)`` are ``f`` and ``tangent(f)``."""
    f = name[len("jvp(") : -1] if name.startswith("jvp(") else ""
    return (f, f"tangent({f})") if f else (name, name)


def _partition(program: Program, known: Mask) -> tuple[Program, Sequence[Atom], Sequence[Equation], set[Var]]:
    """The equations that known inputs determine, as a program without results; all results, the other equations, and
    the unknown variables.

    An equation is kept whole, unless it holds a program with known and unknown inputs; then its op's rule splits it.
    """
    first = StageTrace(current_trace(), program.name)
    first.inputs += select_by_mask(program.inputs, known)
    first.consts += program.constvars
    first.values += program.values
    rest = PartialTrace(first, program.name)
    unknown = {v for v, k in zip(program.inputs, known, strict=True) if not k}
    # A result of an equation that a rule splits -> what the rule gives for it.
    split: dict[Atom, Atom] = {}

    def tracer(a: Atom) -> Array:
        return StageTracer(rest if a in unknown else first, a) if isinstance(a, Var) else a.value

    for e in program.equations:
        inputs = tuple([split.get(a, a) for a in e.inputs])
        trace = first if unknown.isdisjoint(inputs) else rest
        if trace is first or not e.op.has("partial_eval"):
            trace.equations.append(e if inputs == e.inputs else e.replaced(inputs, e.outputs))
            if trace is rest:
                unknown.update(e.outputs)
            continue
        with use(rest), replaying(e.scope, e.source):
            ys = rest.process(e.op, [tracer(a) for a in inputs], e.params)
        for v, y, k in zip(e.outputs, ys, rest.known(ys), strict=True):
            split[v] = a = (first if k else rest).atom(y)
            if not k:
                assert isinstance(a, Var)
                unknown.add(a)
    outputs = [split.get(a, a) for a in program.outputs]
    # What the rest reads of known values as its consts.
    captured: dict[Atom, Atom] = {c: first.atom(x) for c, x in zip(rest.consts, rest.values, strict=True)}
    delayed = [e.replaced(tuple([captured.get(a, a) for a in e.inputs]), e.outputs) for e in rest.equations]
    unknown.update(v for e in delayed for v in e.outputs)
    return (
        Program(first.inputs, first.equations, (), first.consts, first.values, program.name),
        outputs,
        delayed,
        unknown,
    )


def _may_be_kept(program: Program, policy: OpPolicy | None) -> set[Var]:
    """Inputs, and what ``policy`` names; without one everything but what one op makes of literals."""
    found = set(program.inputs)
    for e in program.equations:
        if (
            policy(e.op, *(a.type for a in e.inputs), **e.params)
            if policy
            else e.op.nested or e.op.effect or e.op.host_only or any(isinstance(a, Var) for a in e.inputs)
        ):
            found.update(e.outputs)
    return found


def _with_effects(program: Program, outputs: Sequence[Atom]) -> list[Equation]:
    """The equations that ``outputs`` take and, in the program's order, all that must run, with what they read."""
    effects = [e for e in program.equations if e.effect]
    wanted = {a for a in (*outputs, *(a for e in effects for a in e.inputs)) if isinstance(a, Var)}
    chosen = {id(e) for e in (*effects, *required_equations(program.equations, wanted, set(program.inputs)))}
    return [e for e in program.equations if id(e) in chosen]


def _plain_call(flat: Inliner, e: Equation) -> Sequence[Atom] | None:
    """A policy sees the ops of jitted functions."""
    return flat.call(e) if e.op.plain_call else None


def partial_eval_call(
    op: Op, trace: PartialTrace, args: Arrays, known: Mask, params: dict[str, Any]
) -> tuple[Array, ...]:
    """`Op.partial_eval` of a call of ``program`` that takes its operands as they are: a call of each half."""
    halves = partial_eval(params["program"], known)
    inputs = select_by_mask(args, known)
    names = _names(params["name"])
    first, consts = halves.known.hoist_consts()
    out: Arrays = ()
    if first.outputs or first.effect:
        out = trace.process_known(op, [*consts, *inputs], {**params, "program": first, "name": names[0]})
    rest, consts = halves.unknown.hoist_consts()
    operands = [*consts, *halves.residuals(inputs, out), *select_by_mask(args, [not k for k in known])]
    late: Arrays = ()
    if halves.is_cut:
        late = trace.process_unknown(op, operands, {**params, "program": rest, "name": names[1]})
    return tuple(merge_by_mask(out, late, halves.known_out))
