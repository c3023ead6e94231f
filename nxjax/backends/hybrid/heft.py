"""Graphs: heterogeneous earliest finish time with insertion, and better units afterwards.

Source: Topcuoglu, Hariri, Wu, Performance-effective and low-complexity task scheduling for heterogeneous computing
(IEEE TPDS 13(3), 2002): tasks by falling upward rank, each on the unit where it ends first, in the first gap that holds
it. Here a transfer takes its link's time as a task takes a lane's, and a value moves somewhere once. What HEFT and each
unit alone give is then improved by changes of units and of the order in which tasks are put on their lanes.
"""

from __future__ import annotations

from nxjax.backends.hybrid.placing import Assignment, Board, Problem, finished, place
from nxjax.backends.hybrid.schedule import Schedule
from nxjax.backends.hybrid.search import EFFORT, improved, reordered, starts
from nxjax.backends.hybrid.work import Work


def heft(work: Work, *, effort: int = EFFORT) -> Schedule:
    """A schedule of least makespan, as near as HEFT and changes of a few tasks come.

    Never worse than everything on one unit (what it cannot run where that is fastest).

    Args:
        effort: how many tasks may be placed while improving; 0 for HEFT alone, or what is better of one unit, which is
            also what several hundred tasks get.

    Raises:
        ParameterError: work that is not well formed.

    >>> from nxjax.backends.hybrid.work import Edge, Task
    >>> both = {"npu": 2.0, "gpu": 3.0}
    >>> work = Work((Task("a", both), Task("b", both), Task("c", both)), ("npu", "gpu"), lambda a, b, nbytes: 0.1)
    >>> found = heft(work)
    >>> found.makespan, found.assignment()
    (4.0, ('npu', 'gpu', 'npu'))
    """
    work.check()
    problem = Problem(work)
    return finished(problem, best(problem, effort), "latency", "heft")


def best(problem: Problem, effort: int = EFFORT) -> Assignment:
    """As `heft`, placed."""
    tries = [ranked_placing(problem), *(place(problem, units) for units in starts(problem))]
    tries.sort(key=lambda x: x.makespan)
    # Fewer changes than one of ten tasks are not worth their time.
    if not problem.count or effort * 10 < problem.count**2:
        return tries[0]
    # As many beginnings as the effort can try all changes of one task of.
    tries = tries[: max(1, effort // (problem.count**2 * len(problem.units)))]
    return min((_improved(problem, x, effort // len(tries)) for x in tries), key=lambda x: x.makespan)


def _improved(problem: Problem, found: Assignment, effort: int) -> Assignment:
    """Better units, then a better order for them, then better units in that order, each with a third of the effort."""
    share = effort // 3
    units, _ = improved(problem, found.units, lambda units: place(problem, units).makespan, share)
    order, _ = reordered(problem, units, problem.order(problem.ranks(units)), share)
    units, _ = improved(problem, units, lambda units: place(problem, units, order).makespan, share)
    # HEFT's own order may have been the best one.
    return min(found, place(problem, units, order), key=lambda x: x.makespan)


def ranked_placing(problem: Problem) -> Assignment:
    """HEFT as it was published."""
    board = Board(problem)
    for i in problem.order(problem.ranks()):
        u = min(problem.able[i], key=lambda u: board.ends(i, u)[0] + _leaves(problem, i, u))
        board.put(i, u)
    return board.finish()


def _leaves(problem: Problem, i: int, u: int) -> float:
    """Seconds until the caller has task i's results, after its end."""
    memory = problem.memory[u]
    return sum(problem.up[v][memory] for v in problem.makes[i] if problem.wanted[v])
