"""Better units for tasks, and a better order, by changing little at a time until nothing gains or the effort is spent.

Knows a score and who is next to whom; no clock, no chance: the same work gives the same answer on every machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Final, TypeVar

from nxjax.backends.hybrid.placing import Problem, place

Score = TypeVar("Score", float, tuple[float, ...])
EFFORT: Final = 40_000  # tasks placed, over all tries
_EVERY_PAIR: Final = 16  # tasks up to which any two may move together, neighbours or not
_EVERY_RUN: Final = 40


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


def reordered(
    problem: Problem, units: Sequence[int], order: Sequence[int], effort: int = EFFORT
) -> tuple[list[int], float]:
    """An order from which no task that goes earlier gains, and its makespan."""
    best = list(order)
    least = place(problem, units, best).makespan
    left = effort // max(1, problem.count)
    needs = [{problem.source[v] for v in values} for values in problem.needs]
    gained = True
    while gained and left > 0:
        gained = False
        for i in range(problem.count):
            at = to = best.index(i)
            while to and left > 0 and best[to - 1] not in needs[i]:
                to -= 1
                left -= 1
                trial = [*best[:to], i, *best[to:at], *best[at + 1 :]]
                now = place(problem, units, trial).makespan
                if now < least:
                    best, least, gained, at = trial, now, True, to
    return best, least


def _changes(problem: Problem, units: list[int]) -> Iterator[tuple[tuple[int, int], ...]]:
    """Changes to try: tasks with their new units."""
    count = problem.count
    for i in range(count):
        for u in problem.able[i]:
            if u != units[i]:
                yield ((i, u),)
    for i, j in _pairs(problem):
        for a in problem.able[i]:
            for b in problem.able[j]:
                if a != units[i] and b != units[j]:
                    yield ((i, a), (j, b))
    if count <= _EVERY_RUN:
        for i in range(count):
            for j in range(i + 2, count):
                for u in problem.units:
                    run = tuple((k, u) for k in range(i, j + 1) if u in problem.able[k])
                    if sum(units[k] != u for k, _ in run) > 2:
                        yield run


def _pairs(problem: Problem) -> list[tuple[int, int]]:
    """Tasks that may move together: one needs the other, or both need one value; in small works any two."""
    if problem.count <= _EVERY_PAIR:
        return [(i, j) for i in range(problem.count) for j in range(i + 1, problem.count)]
    found: dict[tuple[int, int], None] = {}
    for v, readers in enumerate(problem.readers):
        near = readers if problem.source[v] < 0 else [problem.source[v], *readers]
        # Of a value that everybody reads, only neighbours in the given order.
        for a, b in pairwise(near):
            found[a, b] = None
        if problem.source[v] >= 0:
            found.update(dict.fromkeys((problem.source[v], j) for j in readers))
    return list(found)
