"""One face before the algorithms: which is right for a work and an objective. Knows no program and no backend."""

from __future__ import annotations

import math
from typing import Final

from nxjax.backends.hybrid import chain, exact, heft
from nxjax.backends.hybrid.energy import energy
from nxjax.backends.hybrid.pipeline import throughput
from nxjax.backends.hybrid.placing import Problem, finished, place
from nxjax.backends.hybrid.schedule import OBJECTIVES, Objective, Schedule
from nxjax.backends.hybrid.work import Work
from nxjax.errors import ParameterError

_NODES: Final = 5_000  # steps of the search over everything: a tenth of a second or so
_SMALL: Final = 16


def choose(work: Work, objective: Objective = "latency", *, deadline: float | None = None) -> Schedule:
    """The best schedule that is found in a fraction of a second.

    Args:
        work: tasks, units, and what everything takes.
        objective: "latency": the least seconds of one call. "throughput": the smallest interval between inputs of a
            stream. "energy": the fewest joules.
        deadline: the most seconds of one input, from its arrival to its results.

    Returns:
        A schedule whose ``by`` names the algorithm: dynamic programming on chains ("chain"), search over everything on
        small graphs ("exact"), and HEFT or units that are improved by changes of a few tasks on others ("heft",
        "search"). Where ``exact`` is True, none is better. By latency, never worse than one unit alone.

    Raises:
        ParameterError: unknown objective; a deadline that is not above zero, or that no schedule found meets; a task
            that no unit can run; costs that are negative or not numbers; tasks that need each other in a circle; energy
            that is unknown for a task on every unit, where energy is the objective.

    >>> from nxjax.backends.hybrid.work import CALLER, HOST, Edge, Task
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
    limit = math.inf if deadline is None else float(deadline)
    if objective == "energy":
        return energy(work, deadline=limit)
    found = throughput(work, deadline=limit) if objective == "throughput" else _latency(work)
    if found.makespan > limit:
        fastest = found if objective == "latency" else _latency(work)
        raise ParameterError(
            "schedule: none was found that meets the deadline",
            got=f"{limit:.6g} s",
            expected=f"{fastest.makespan:.6g} s, what the fastest schedule {'' if fastest.exact else 'found '}takes, "
            "or more",
            fix="give a later deadline, or faster units",
        )
    return found


def _latency(work: Work) -> Schedule:
    work.check()
    problem = Problem(work)
    if chain.is_chain(problem):
        return finished(problem, place(problem, chain.best(problem)), "latency", "chain", exact=True)
    if problem.count <= _SMALL:
        # Most small works are searched sooner than HEFT's answer could be improved.
        placed, proved = exact.least_seconds(problem, heft.best(problem, effort=0), _NODES)
        if proved:
            return finished(problem, placed, "latency", "exact", exact=True)
    known = heft.best(problem)
    placed, proved = exact.least_seconds(problem, known, _NODES)
    by = "exact" if proved else "heft" if placed is known else "search"
    return finished(problem, placed, "latency", by, exact=proved)
