"""What reads an array is put before what updates a part of it: then the update needs no copy of the array.

    a = gather x i            a = gather x i
    y = scatter x j a    ->   b = gather x j
    b = gather x j            y = scatter x j a

Only small results move, with what they are made of; effects stay where they are. Knows no memory: whether an update is
done in place is found later.
"""

from __future__ import annotations

from typing import Final

from nxjax.trace.program import Equation, Program, Var

_MOST: Final = 32  # equations that move together


def reads_first(program: Program) -> Program:
    """``program`` in another order of its equations, if it has updates of arrays that are read afterwards."""
    at = {e: i for i, e in enumerate(program.equations)}
    makers = {v: e for e in program.equations for v in e.outputs}
    readers: dict[Var, list[Equation]] = {}
    for e in program.equations:
        for a in e.inputs:
            if isinstance(a, Var):
                readers.setdefault(a, []).append(e)
    before: dict[Equation, list[Equation]] = {}
    moved: set[Equation] = set()
    for update in program.equations:
        x = _updated(update)
        if x is None:
            continue
        for reader in readers[x]:
            if at[reader] <= at[update] or reader in moved or _updated(reader) is x:
                continue
            needed = _needed(reader, update, at, makers, moved)
            if needed and all(_is_small(e, x) for e in needed):
                before.setdefault(update, []).extend(needed)
                moved.update(needed)
    if not moved:
        return program
    equations: list[Equation] = []
    for e in program.equations:
        equations += before.get(e, ())
        if e not in moved:
            equations.append(e)
    return Program(program.inputs, equations, program.outputs, program.constvars, program.values, program.name)


def _updated(e: Equation) -> Var | None:
    """The array of which ``e`` gives a changed one, if it does."""
    first = e.inputs[0] if e.op.updates else None
    return first if isinstance(first, Var) else None


def _needed(
    reader: Equation, update: Equation, at: dict[Equation, int], makers: dict[Var, Equation], moved: set[Equation]
) -> list[Equation]:
    """``reader`` with all between ``update`` and it that it is made of, in order; none if it cannot be put before."""
    found = {reader}
    todo = [reader]
    while todo:
        for a in todo.pop().inputs:
            e = makers.get(a) if isinstance(a, Var) else None
            if e is update or len(found) > _MOST:
                return []
            if e is not None and at[e] > at[update] and e not in found and e not in moved:
                found.add(e)
                todo.append(e)
    return sorted(found, key=lambda e: at[e])


def _is_small(e: Equation, x: Var) -> bool:
    """Whether ``e`` may wait in memory while ``x`` is updated."""
    nested = any(True for _ in e.programs())
    return not e.effect and not nested and 8 * sum(v.type.size for v in e.outputs) <= x.type.size
