"""The least energy, with or without a deadline, and the whole front of seconds against joules.

Joules are sums over tasks and moves, so the order of things does not matter to them; a deadline makes it matter.
Chains are settled exactly by dynamic programming, small graphs by search over everything, large ones by changes of a
few tasks. A unit whose energy for a task is unknown is not given that task: a sum with an unknown part is no sum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from nxjax.backends.hybrid import chain, exact, heft
from nxjax.backends.hybrid.placing import Assignment, Problem, finished, place
from nxjax.backends.hybrid.schedule import Schedule
from nxjax.backends.hybrid.search import EFFORT, improved, starts
from nxjax.backends.hybrid.work import Work
from nxjax.errors import ParameterError

NODES: Final = 5_000  # steps of the search over everything
_LESS: Final = 1 - 1e-9
_SMALL: Final = 12  # tasks of works that are mostly searched sooner than units could be improved


def energy(work: Work, *, deadline: float = inf, effort: int = EFFORT, nodes: int = NODES) -> Schedule:
    """The schedule of least joules that ends by the deadline.

    Args:
        deadline: seconds from the call to the last result.
        effort: how many tasks may be placed while searching.
        nodes: steps of the search over everything, which proves that no schedule takes less.

    Raises:
        ParameterError: work that is not well formed; a task whose energy is unknown on every unit that can run it; no
            schedule meets the deadline.

    >>> from nxjax.backends.hybrid.work import Task
    >>> task = Task("conv", {"npu": 2.0, "gpu": 1.0}, {"npu": 1.0, "gpu": 20.0})
    >>> work = Work((task,), ("npu", "gpu"), lambda a, b, nbytes: 0.0)
    >>> energy(work).units, energy(work, deadline=1.5).units
    (('npu',), ('gpu',))
    """
    work.check()
    known, notes = _known(work)
    problem = Problem(known)
    placed, by, proved = _least(problem, deadline, effort, nodes)
    if placed is None:
        fastest = heft.best(problem, effort).makespan
        raise ParameterError(
            "energy: no schedule was found that meets the deadline",
            got=f"{deadline:.6g} s",
            expected=f"{fastest:.6g} s, what the fastest schedule found takes, or more",
            fix="give a later deadline, or faster units",
            more=[("note", note) for note in notes],
        )
    return finished(problem, placed, "energy", by, exact=proved, notes=notes)


def front(work: Work, *, count: int = 24, effort: int = EFFORT, nodes: int = NODES) -> tuple[Schedule, ...]:
    """Schedules of which none takes both more seconds and more joules than another: the fastest first, the thriftiest
    last.

    Each is the thriftiest that ends before the next one does. Where there are more than ``count``, deadlines are spread
    evenly over their span.

    Raises:
        ParameterError: as `energy`.

    >>> from nxjax.backends.hybrid.work import Task
    >>> task = Task("conv", {"npu": 2.0, "gpu": 1.0, "cpu": 3.0}, {"npu": 1.0, "gpu": 20.0, "cpu": 30.0})
    >>> work = Work((task,), ("npu", "gpu", "cpu"), lambda a, b, nbytes: 0.0)
    >>> [(s.makespan, s.joules) for s in front(work)]
    [(1.0, 20.0), (2.0, 1.0)]
    """
    if count < 2:
        raise ParameterError("energy: schedules of a front", got=count, expected="2 or more")
    work.check()
    known, notes = _known(work)
    problem = Problem(known)
    found: list[tuple[Assignment, str, bool]] = []
    if chain.is_chain(problem):
        ways, whole = chain.front(problem)
        picked = _spread(ways, count)
        found = [(place(problem, units), "chain", whole) for _, _, units in picked]
    else:
        found = _by_deadlines(problem, count, effort, nodes)
    ends = [finished(problem, placed, "energy", by, exact=proved, notes=notes) for placed, by, proved in found]
    kept: list[Schedule] = []
    for s in sorted(ends, key=lambda s: (s.makespan, s.joules or 0.0)):
        if not kept or (s.joules or 0.0) < (kept[-1].joules or 0.0) * _LESS:
            kept.append(s)
    return tuple(kept)


def _by_deadlines(problem: Problem, count: int, effort: int, nodes: int) -> list[tuple[Assignment, str, bool]]:
    found: list[tuple[Assignment, str, bool]] = []
    fastest = heft.best(problem, effort)
    placed, by, proved = _least(problem, inf, effort, nodes)
    step = 0.0 if placed is None else (placed.makespan - fastest.makespan) / count
    while placed is not None and len(found) <= count:
        found.append((placed, by, proved))
        deadline = min(placed.makespan * (1 - 1e-6), placed.makespan - step)
        if deadline < fastest.makespan * _LESS:
            break
        placed, by, proved = _least(problem, deadline, effort, nodes)
    return [*found, (fastest, "heft", False)]


def _spread(ways: Sequence[tuple[float, float, list[int]]], count: int) -> list[tuple[float, float, list[int]]]:
    if len(ways) <= count:
        return list(ways)
    low, high = ways[0][0], ways[-1][0]
    goals = [low + (high - low) * k / (count - 1) for k in range(count)]
    # Of each part of the span the thriftiest, which is the last within it.
    picked = [max(x for x in range(len(ways)) if ways[x][0] <= goal or x == 0) for goal in goals[:-1]]
    return [ways[x] for x in dict.fromkeys([*picked, len(ways) - 1])]


def _known(work: Work) -> tuple[Work, tuple[str, ...]]:
    """The work without units whose energy for a task is unknown, and what is to be said of it."""
    blind = [task.name for task in work.tasks if not any(u in task.joules and u in task.seconds for u in work.units)]
    if blind:
        raise ParameterError(
            "energy: the energy of some tasks is unknown on every unit",
            got=_few(blind),
            expected="joules of each task on one of its units or more",
            fix="measure them where the machine has a power sensor, or schedule for latency",
        )
    tasks = tuple(replace(t, seconds={u: s for u, s in t.seconds.items() if u in t.joules}) for t in work.tasks)
    notes: list[str] = []
    for u in work.units:
        left = [t.name for t in work.tasks if u in t.seconds and u not in t.joules]
        if left:
            notes.append(f"{u} was not considered for {_few(left)}: its energy is unknown")
    return replace(work, tasks=tasks), tuple(notes)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _least(problem: Problem, deadline: float, effort: int, nodes: int) -> tuple[Assignment | None, str, bool]:
    """The placing of least joules, the algorithm, and whether it is proved; None where none meets the deadline."""
    if chain.is_chain(problem):
        if deadline == inf:
            return place(problem, chain.best(problem, energy=True)), "chain", True
        ways, whole = chain.front(problem, deadline)
        return (place(problem, ways[-1][2]) if ways else None), "chain", whole

    def waste(units: Sequence[int]) -> tuple[float, float, float]:
        makespan = place(problem, units).makespan
        return max(0.0, makespan - deadline), problem.energy(units), makespan

    if problem.count <= _SMALL:
        found, proved = exact.least_joules(problem, None, deadline, nodes)
        if proved:
            return found, "exact", True
    thrifty = [min(able, key=lambda u: (problem.watt[i][u], u)) for i, able in enumerate(problem.able)]
    begin = [thrifty, *starts(problem)]
    if deadline < inf:
        begin.append(heft.best(problem, effort).units)
    tries = [improved(problem, units, waste, effort // len(begin)) for units in begin]
    units, least = min(tries, key=lambda x: x[1])
    known = place(problem, units) if not least[0] else None
    found, proved = exact.least_joules(problem, known, deadline, nodes)
    return found, "exact" if proved else "search", proved
