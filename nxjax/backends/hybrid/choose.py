"""The best schedule by an objective: which algorithm is right for a work. Knows no program and no backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from math import inf, prod
from typing import Final

from nxjax.backends.hybrid.exact import chain_seconds, is_chain, least_joules, least_seconds, ways
from nxjax.backends.hybrid.placing import EFFORT, Assignment, Problem, best, finished, improved, periodic, place, starts
from nxjax.backends.hybrid.schedule import OBJECTIVES, Objective, Schedule, Work
from nxjax.errors import ParameterError

NODES: Final = 5_000  # steps of the search over everything: a tenth of a second or so
_SMALL: Final = 16  # tasks of works that are mostly searched sooner than units could be improved
_POLISH: Final = 6_000  # tasks placed while looking for less latency at the same interval
_LESS: Final = 1 - 1e-9
_ROUNDING: Final = 1e-12

Found = tuple[Assignment, str, bool]  # the placing, the algorithm, and whether none is better


def choose(work: Work, objective: Objective = "latency", *, deadline: float | None = None) -> Schedule:
    """The best schedule found in a fraction of a second.

    Args:
        work: tasks, units and costs.
        objective: "latency": the fewest seconds of one call. "throughput": the smallest interval between inputs of a
            stream. "energy": the fewest joules.
        deadline: the most seconds of one input, from its arrival to its results.

    Returns:
        A schedule whose ``by`` names the algorithm: dynamic programming on chains ("chain"), exhaustive search on small
        graphs ("exact"), and HEFT or single units, improved by changes of a few tasks, on others ("heft", "search"). If
        ``exact`` is True, none is better. By latency, it is never worse than one unit alone.

    Raises:
        ParameterError: unknown objective; a deadline that is not above zero, or that no schedule found meets; a task
            that no unit can run; costs that are negative or not numbers; tasks that need each other in a circle; energy
            that is unknown for a task on every unit, if energy is the objective.

    >>> from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task
    >>> work = Work((Task("conv", {"npu": 1.0, "cpu": 4.0}, after=(Edge(CALLER, 8),)),
    ...              Task("sort", {"cpu": 0.5}, after=(Edge(0, 8),))),
    ...             ("npu", "cpu"), lambda a, b, nbytes: 0.25, results=(Edge(1, 8),), memory={"cpu": HOST})
    >>> found = choose(work)
    >>> found.assignment(), found.makespan, found.by, found.exact
    (('npu', 'cpu'), 2.0, 'chain', True)
    """
    if objective not in OBJECTIVES:
        raise ParameterError("schedule: no such objective", got=repr(objective), expected=", ".join(OBJECTIVES))
    if deadline is not None and not deadline > 0:
        raise ParameterError("schedule: the deadline", got=deadline, expected="seconds, more than 0")
    limit = inf if deadline is None else float(deadline)
    if objective == "energy":
        return energy(work, deadline=limit)
    if objective == "throughput":
        found = throughput(work, deadline=limit)
    else:
        work.check()
        problem = Problem(work)
        placed, by, proved = _fastest(problem)
        found = finished(problem, placed, "latency", by, exact=proved)
    if found.makespan > limit:
        raise _late(Problem(work), limit)
    return found


def _late(problem: Problem, deadline: float, notes: Sequence[str] = ()) -> ParameterError:
    placed, _, proved = _fastest(problem)
    return ParameterError(
        "schedule: no schedule meets the deadline",
        got=f"{deadline:.6g} s",
        expected=f"{placed.makespan:.6g} s, what the fastest schedule {'' if proved else 'found '}takes, or more",
        fix="give a later deadline, or faster units",
        more=[("note", note) for note in notes],
    )


def _fastest(problem: Problem) -> Found:
    if is_chain(problem):
        found, _ = ways(problem, lambda i, u, moves: (chain_seconds(problem, i, u, moves),))
        return place(problem, found[0].units()), "chain", True
    if problem.count <= _SMALL:
        placed, proved = least_seconds(problem, best(problem, effort=0), NODES)
        if proved:
            return placed, "exact", True
    known = best(problem)
    placed, proved = least_seconds(problem, known, NODES)
    return placed, "exact" if proved else "heft" if placed is known else "search", proved


# --- streams ---


def throughput(work: Work, *, deadline: float = inf, effort: int = EFFORT) -> Schedule:
    """The schedule of a stream with the smallest interval between inputs, then the lowest latency found.

    Args:
        deadline: the largest number of seconds for one input; the interval grows if needed. Check the result: it may
            still miss the deadline.
        effort: how many tasks may be placed while searching.

    Returns:
        One input's slots and transfers; ``interval``, ``makespan`` (its latency) and ``inflight`` describe the stream,
        and ``unrolled(work, n)`` returns n inputs.

    Raises:
        ParameterError: work that is not well formed.

    >>> from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task
    >>> work = Work((Task("conv", {"npu": 2.0, "cpu": 9.0}, after=(Edge(CALLER, 1),)),
    ...              Task("head", {"npu": 2.0, "cpu": 3.0}, after=(Edge(0, 1),))),
    ...             ("npu", "cpu"), lambda a, b, nbytes: 0.25, results=(Edge(1, 1),), memory={"cpu": HOST})
    >>> found = throughput(work)
    >>> found.interval, found.makespan, found.inflight, found.assignment()
    (3.0, 5.5, 2, ('npu', 'cpu'))
    """
    work.check()
    problem = Problem(work)
    units, by, proved = _least_loads(problem, effort)
    least = problem.interval(units)

    def waits(trial: Sequence[int]) -> tuple[float, float, float]:
        """No larger an interval, then fewer moves, each of which is one more turn to wait for, and less latency."""
        interval = problem.interval(trial)
        if interval > least * (1 + _ROUNDING):
            return interval, inf, inf
        interval = interval if interval < least * (1 - _ROUNDING) else least
        return interval, periodic(problem, trial, interval).makespan, float(len(problem.moves(trial)))

    units, (interval, makespan, _) = improved(problem, units, waits, _POLISH)
    if makespan <= deadline:
        return finished(
            problem, periodic(problem, units, interval), "throughput", by, exact=proved, interval=interval
        )  # fmt: skip
    placed, interval = _within(problem, units, deadline)
    return finished(problem, placed, "throughput", "search", interval=interval)


def _least_loads(problem: Problem, effort: int) -> tuple[list[int], str, bool]:
    """The units of the least interval found, the algorithm, and whether none is smaller."""
    p = problem

    def busy(units: Sequence[int]) -> tuple[float, float]:
        shares = p.loads(units)
        # The squares tell apart changes that leave the busiest as it is.
        return max(shares, default=0.0), sum(x * x for x in shares)

    if prod(map(len, p.able)) <= NODES:
        return list(min(product(*p.able), key=busy)), "exact", True
    begin = starts(p)
    tries = [improved(p, x, busy, effort) for x in begin]
    return min(tries, key=lambda x: x[1])[0], "search", False


def _within(problem: Problem, units: Sequence[int], deadline: float) -> tuple[Assignment, float]:
    """A larger interval, for less latency than a deadline."""

    def late(trial: Sequence[int]) -> tuple[float, float]:
        return max(0.0, place(problem, trial).makespan - deadline), problem.interval(trial)

    # Units that meet the deadline when inputs come one after the other, and of those the ones of least load.
    begin = [list(units), *starts(problem)]
    units = min((improved(problem, x, late, _POLISH) for x in begin), key=lambda x: x[1])[0]
    alone, low = place(problem, units), problem.interval(units)
    for k in range(17):
        interval = low + (alone.makespan - low) * k / 16
        placed = periodic(problem, units, interval)
        if placed.makespan <= deadline:
            return placed, interval
    return alone, alone.makespan


# --- energy ---


def energy(work: Work, *, deadline: float = inf, effort: int = EFFORT, nodes: int = NODES) -> Schedule:
    """The schedule with the fewest joules that meets the deadline.

    A unit with unknown energy for a task does not get that task.

    Args:
        deadline: seconds from the call to the last result.
        effort: how many tasks may be placed while searching.
        nodes: steps of the exhaustive search, which proves that no schedule takes less.

    Raises:
        ParameterError: work that is not well formed; a task whose energy is unknown on every unit that can run it; no
            schedule meets the deadline.

    >>> from nxjax.backends.hybrid.schedule import Task
    >>> task = Task("conv", {"npu": 2.0, "gpu": 1.0}, {"npu": 1.0, "gpu": 20.0})
    >>> work = Work((task,), ("npu", "gpu"), lambda a, b, nbytes: 0.0)
    >>> energy(work).units, energy(work, deadline=1.5).units
    (('npu',), ('gpu',))
    """
    problem, notes = _known(work)
    found = _thriftiest(problem, deadline, effort, nodes)
    if found is None:
        raise _late(problem, deadline, notes)
    placed, by, proved = found
    return finished(problem, placed, "energy", by, exact=proved, notes=notes)


def front(work: Work, *, count: int = 24, effort: int = EFFORT, nodes: int = NODES) -> tuple[Schedule, ...]:
    """The Pareto front of seconds and joules, the fastest first, the one with the fewest joules last.

    Their times are spaced by ``1 / count`` of the whole span; each has the fewest joules for its time.

    Raises:
        ParameterError: as `energy`.

    >>> from nxjax.backends.hybrid.schedule import Task
    >>> task = Task("conv", {"npu": 2.0, "gpu": 1.0, "cpu": 3.0}, {"npu": 1.0, "gpu": 20.0, "cpu": 30.0})
    >>> work = Work((task,), ("npu", "gpu", "cpu"), lambda a, b, nbytes: 0.0)
    >>> [(s.makespan, s.joules) for s in front(work)]
    [(1.0, 20.0), (2.0, 1.0)]
    """
    if count < 2:
        raise ParameterError("energy: schedules of a front", got=count, expected="2 or more")
    problem, notes = _known(work)
    fastest = _fastest(problem)
    found = [fastest]
    way = _thriftiest(problem, inf, effort, nodes)
    step = 0.0 if way is None else (way[0].makespan - fastest[0].makespan) / count
    while way is not None:
        found.append(way)
        deadline = min(way[0].makespan * (1 - 1e-6), way[0].makespan - step)
        late = deadline < fastest[0].makespan * _LESS
        way = None if late else _thriftiest(problem, deadline, effort, nodes)
    ends = [finished(problem, placed, "energy", by, exact=proved, notes=notes) for placed, by, proved in found]
    kept: list[Schedule] = []
    for s in sorted(ends, key=lambda s: (s.makespan, s.joules or 0.0)):
        if not kept or (s.joules or 0.0) < (kept[-1].joules or 0.0) * _LESS:
            kept.append(s)
    return tuple(kept)


def _known(work: Work) -> tuple[Problem, tuple[str, ...]]:
    """The work without units whose energy for a task is unknown, and what is to be said of it."""
    work.check()
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
    return Problem(replace(work, tasks=tasks)), tuple(notes)


def _few(names: Sequence[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def _thriftiest(problem: Problem, deadline: float, effort: int, nodes: int) -> Found | None:
    """The placing of least joules; None where none meets the deadline."""
    p = problem
    if is_chain(p):
        joules = lambda i, u, moves: p.watt[i][u] + sum(map(p.joules, moves))
        if deadline == inf:
            found, whole = ways(p, lambda i, u, moves: (joules(i, u, moves),))
        else:
            both = lambda i, u, moves: (chain_seconds(p, i, u, moves), joules(i, u, moves))
            found, whole = ways(p, both, lambda sums: sums[0] <= deadline)
        return (place(p, found[-1].units()), "chain", whole) if found else None
    placed, proved = least_joules(p, deadline, nodes)
    if proved:
        return None if placed is None else (placed, "exact", True)

    def waste(units: Sequence[int]) -> tuple[float, float, float]:
        makespan = place(p, units).makespan
        return max(0.0, makespan - deadline), p.energy(units), makespan

    thrifty = [min(able, key=lambda u: (p.watt[i][u], u)) for i, able in enumerate(p.able)]
    begin = [thrifty, *starts(p), *([best(p, effort).units] if deadline < inf else [])]
    units, least = min((improved(p, x, waste, effort // len(begin)) for x in begin), key=lambda x: x[1])
    return None if least[0] else (place(p, units), "search", False)
