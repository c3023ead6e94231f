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
    last = {x: e for e in program.equations if (x := _updated(e)) is not None}  # others leave the array to the last one
    before: dict[Equation, list[Equation]] = {}
    moved: set[Equation] = set()
    for update in program.equations:
        x = _updated(update)
        if x is None or last[x] is not update:
            continue
        found: list[Equation] = []
        for reader in readers[x]:
            if at[reader] <= at[update] or reader in moved:
                continue
            needed = _needed(reader, update, x, at, makers, moved)
            if not needed:  # the array has to stay for one reader as for several
                moved.difference_update(found)
                found.clear()
                break
            found += needed
            moved.update(needed)
        before[update] = found
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
    reader: Equation,
    update: Equation,
    x: Var,
    at: dict[Equation, int],
    makers: dict[Var, Equation],
    moved: set[Equation],
) -> list[Equation]:
    """``reader`` with all between ``update`` and it that it is made of, in order; none if it cannot be put before."""
    found: set[Equation] = set()
    todo = [reader]
    while todo:
        e = todo.pop()
        if e in found:
            continue
        if e is update or len(found) >= _MOST or not _is_small(e, x):
            return []
        found.add(e)
        made = (makers.get(a) for a in e.inputs if isinstance(a, Var))
        todo += (m for m in made if m is not None and at[m] >= at[update] and m not in moved)
    return sorted(found, key=lambda e: at[e])


def _is_small(e: Equation, x: Var) -> bool:
    """Whether ``e`` may wait in memory while ``x`` is updated."""
    nested = any(True for _ in e.programs())
    return not e.effect and not nested and 8 * sum(v.type.size for v in e.outputs) <= x.type.size
