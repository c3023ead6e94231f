"""Graphs: heterogeneous earliest finish time with insertion, and better units by changing little at a time.

Source: Topcuoglu, Hariri, Wu, Performance-effective and low-complexity task scheduling for heterogeneous computing
(IEEE TPDS 13(3), 2002): tasks by falling upward rank, each on the unit where it ends first, in the first gap that holds
it. Here a transfer takes its link's time as a task takes a lane's, and a value moves somewhere once. No clock and no
chance: the same work gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product
from typing import Final, TypeVar

from nxjax.backends.hybrid.placing import Assignment, Board, Problem, finished, place
from nxjax.backends.hybrid.schedule import Schedule
from nxjax.backends.hybrid.work import Work

Score = TypeVar("Score", float, tuple[float, ...])
EFFORT: Final = 40_000  # tasks placed, over all tries
_EVERY_RUN: Final = 40  # tasks up to which any that stand behind one another may move together


def heft(work: Work, *, effort: int = EFFORT) -> Schedule:
    """A schedule with a short makespan, by HEFT and changes of a few tasks.

    Never worse than everything on one unit (with tasks that it cannot run on the fastest other one).

    Args:
        effort: how many tasks may be placed while improving; 0 for HEFT or a single unit only, as also for several
            hundred tasks.

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
    span = lambda units: place(problem, units).makespan
    better = [improved(problem, x.units, span, effort // len(tries))[0] for x in tries]
    # HEFT's own order may have been the best one.
    return min([*tries, *(place(problem, units) for units in better)], key=lambda x: x.makespan)


def ranked_placing(problem: Problem) -> Assignment:
    """HEFT as it was published."""
    board = Board(problem)
    for i in problem.order:
        # When it ends, and the caller has those of its results that he wants.
        ends = lambda u, i=i: (
            board.ends(i, u)[0] + sum(problem.up[v][problem.memory[u]] for v in problem.makes[i] if problem.wanted[v])
        )
        board.put(i, min(problem.able[i], key=ends))
    return board.finish()


def starts(problem: Problem) -> list[list[int]]:
    """Units to begin from: everything on one unit, as far as it can; and each task where it is fastest."""
    fastest = [min(able, key=lambda u: problem.cost[i][u]) for i, able in enumerate(problem.able)]
    found = [[u if u in able else fastest[i] for i, able in enumerate(problem.able)] for u in problem.units]
    return [list(x) for x in dict.fromkeys(map(tuple, [*found, fastest]))]


def improved(
    problem: Problem, units: Sequence[int], score: Callable[[Sequence[int]], Score], effort: int = EFFORT
) -> tuple[list[int], Score]:
    """Units from which no change of one task, of two neighbours, or of a run of tasks to one unit gains.

    Args:
        score: what is to be small.
        effort: how many tasks may be placed in all; a try places every task.

    Returns:
        The units, and their score.
    """
    best = list(units)
    least = score(best)
    left = max(1, effort // max(1, problem.count))
    gained = True
    while gained and left:
        gained = False
        for change in _changes(problem, best):
            left -= 1
            trial = list(best)
            for i, u in change:
                trial[i] = u
            now = score(trial)
            if now < least:
                best, least, gained = trial, now, True
            if not left:
                break
    return best, least


def _changes(problem: Problem, units: list[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Changes to try: tasks with their new units. One task; two of which one needs the other; a run of some."""
    count = problem.count
    for i in range(count):
        for u in problem.able[i]:
            if u != units[i]:
                yield ((i, u),)
    near = {(problem.source[v], i) for i, values in enumerate(problem.needs) for v in values if problem.source[v] >= 0}
    for i, j in sorted(near):
        for a, b in product(problem.able[i], problem.able[j]):
            if a != units[i] and b != units[j]:
                yield ((i, a), (j, b))
    if count <= _EVERY_RUN:
        for i, j, u in product(range(count), range(count), problem.units):
            run = tuple((k, u) for k in range(i, j + 1) if u in problem.able[k] and u != units[k])
            if len(run) > 1:
                yield run
