"""Small analyses of the programs that ops hold, and lists cut by masks and by groups. Knows no op and no transform."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar, final

from nxjax.trace.core import Array
from nxjax.trace.program import Equation, Program, Var

T = TypeVar("T")
R = TypeVar("R")
Mask = tuple[bool, ...]


def clamped_branch(branches: Sequence[Program], index: int) -> Program:
    """The branch that runs: the last one for an index out of range, as StableHLO has it."""
    return branches[index if 0 <= index < len(branches) else -1]


def select_by_mask(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The entries of ``values`` that ``mask`` marks."""
    return [x for x, m in zip(values, mask, strict=True) if m]


def split_by_mask(values: Sequence[Any], mask: Sequence[bool]) -> tuple[list[Any], list[Any]]:
    """The entries of ``values`` that ``mask`` marks, and the others."""
    return select_by_mask(values, mask), select_by_mask(values, [not m for m in mask])


def expand_by_mask(values: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """The inverse of `select_by_mask`, with None where ``mask`` is False."""
    rest = iter(values)
    return [next(rest) if m else None for m in mask]


def merge_by_mask(yes: Sequence[Any], no: Sequence[Any], mask: Sequence[bool]) -> list[Any]:
    """One list of both: the next of ``yes`` where ``mask`` is True, else the next of ``no``."""
    a, b = iter(yes), iter(no)
    return [next(a) if m else next(b) for m in mask]


def mask_or(a: Sequence[bool], b: Sequence[bool]) -> Mask:
    return tuple(x or y for x, y in zip(a, b, strict=True))


def mask_and(a: Sequence[bool], b: Sequence[bool]) -> Mask:
    return tuple(x and y for x, y in zip(a, b, strict=True))


def not_none_mask(values: Sequence[Any]) -> Mask:
    """Which entries are not None."""
    return tuple(x is not None for x in values)


def fixed_point(start: T, rule: Callable[[T], tuple[R, T]]) -> tuple[R, T]:
    """Call ``rule`` on ``start``, then on what it gives, until it gives back its argument.

    ``rule`` gives a result and the next argument. The last of both are returned.
    """
    while True:
        found, after = rule(start)
        if after == start:
            return found, start
        start = after


def dependent_results(program: Program, inputs: Sequence[bool]) -> Mask:
    """Which results depend on the marked inputs."""
    marked = {v for v, m in zip(program.inputs, inputs, strict=True) if m}
    for e in program.equations:
        if any(isinstance(a, Var) and a in marked for a in e.inputs):
            marked.update(e.outputs)
    return tuple(isinstance(a, Var) and a in marked for a in program.outputs)


def forwarded_inputs(program: Program) -> list[int | None]:
    """Per result the position of the input that it is, also through calls; None for what is computed or a const."""
    place = {v: i for i, v in enumerate(program.inputs)}
    for e in program.equations:
        found = e.op.called(*e.inputs, **e.params) if e.op.plain_call else None
        if found is not None:
            inner, given = found
            for v, i in zip(e.outputs, forwarded_inputs(inner), strict=True):
                source = None if i is None else given[i]
                if isinstance(source, Var) and source in place:
                    place[v] = place[source]
    return [place.get(a) if isinstance(a, Var) else None for a in program.outputs]


def select_inputs_and_results(program: Program, inputs: Sequence[Var], keep: Sequence[bool]) -> Program:
    """``program`` with its inputs in another order, or with more of them, and the results that ``keep`` marks only."""
    outputs = select_by_mask(program.outputs, keep)
    return Program(inputs, program.equations, outputs, program.constvars, program.values, program.name)


def hoist_all_consts(programs: Sequence[Program]) -> tuple[tuple[Program, ...], list[Array]]:
    """The programs with the consts of all of them as leading inputs, and the values of these."""
    consts = [x for p in programs for x in p.values]
    found: list[Program] = []
    before = 0
    for p in programs:
        own = len(p.values)
        program, _ = p.hoist_consts()
        if own < len(consts):
            # Those of others are not read.
            inputs = [Var(x.type) for x in consts]
            inputs[before : before + own] = p.constvars
            program = Program([*inputs, *p.inputs], p.equations, p.outputs, name=p.name)
        found.append(program)
        before += own
    return tuple(found), consts


def required_equations(equations: Sequence[Equation], wanted: set[Var], given: set[Var]) -> list[Equation]:
    """The equations that ``wanted`` takes when ``given`` are known. Grows ``wanted`` by every variable they read."""
    kept: list[Equation] = []
    for e in reversed(equations):
        if any(v in wanted and v not in given for v in e.outputs):
            kept.append(e)
            wanted.update(a for a in e.inputs if isinstance(a, Var))
    return kept[::-1]


@final
class Groups:
    """Cuts a flat argument list into consecutive groups."""

    def __init__(self, values: Sequence[Any]) -> None:
        self._rest = list(values)

    def take(self, n: int) -> list[Any]:
        head, self._rest = self._rest[:n], self._rest[n:]
        return head

    def rest(self) -> list[Any]:
        return self._rest
