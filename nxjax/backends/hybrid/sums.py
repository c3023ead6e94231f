"""Units whose sums are the least, exactly: dynamic programming over the tasks in their order.

What an input takes of each processor and link, and in joules, is a sum over tasks and moves, whatever the order of
things. What the tasks from one on add depends only on where the values are that they still need. So of all ways to
place the tasks before it that leave those values in the same memories, only those count that no other one beats in
every sum (Bellman's principle, with several sums). In a chain, where one thing happens after the other, seconds are
such a sum too, with the span of a flow shop of two machines where values go up on one link and down on another, which
Johnson's order makes least (Johnson 1954).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.backends.hybrid.placing import AT_HOST, Problem
from nxjax.backends.hybrid.work import CALLER

Move = tuple[int, int, int]  # value, from memory, to memory
Sums = tuple[float, ...]
Cost = Callable[[int, int, Sequence[Move]], Sums]
STATES: Final = 2_000  # ways that are looked at from one task to the next


@final
@dataclass(frozen=True, slots=True)
class PartialPlacing:
    """Units for the tasks up to one: what they sum up to, the last unit, and the way before."""

    sums: Sums
    unit: int
    before: PartialPlacing | None

    def units(self) -> list[int]:
        found, way = list[int](), self
        while way.before is not None:
            found.append(way.unit)
            way = way.before
        return found[::-1]


def ways(
    problem: Problem, cost: Cost, fits: Callable[[Sums, int], bool] = lambda sums, i: True, states: int = STATES
) -> tuple[list[PartialPlacing], bool]:
    """Units for all tasks than which no others are better in every sum, by their sums.

    Args:
        cost: what a task adds on a unit, with the moves that it needs there.
        fits: whether sums up to a task are worth going on from.
        states: how many ways go on from one task to the next; beyond, some are left out.

    Returns:
        The ways, and whether none was left out.
    """
    last = [max(readers, default=-1) for readers in problem.readers]
    level: dict[tuple[tuple[int, int], ...], list[PartialPlacing]] = {(): [PartialPlacing((), -1, None)]}
    whole = True
    for i in range(problem.count):
        found: dict[tuple[tuple[int, int], ...], list[PartialPlacing]] = {}
        for there, row in level.items():
            for u in problem.able[i]:
                moves, after = _moved(problem, i, u, dict(there))
                added = cost(i, u, moves)
                more = (tuple(map(sum, zip(w.sums, added, strict=True))) if w.sums else added for w in row)
                key = tuple(sorted((v, mask) for v, mask in after.items() if last[v] > i))
                found.setdefault(key, []).extend(
                    PartialPlacing(sums, u, w) for sums, w in zip(more, row, strict=True) if fits(sums, i)
                )
        level = {key: _unbeaten(row, states) for key, row in found.items() if row}
        many = sum(map(len, level.values()))
        if many > states or any(len(row) > states for row in level.values()):
            whole = False
            level = _thinned(level, states)
    return sorted((w for row in level.values() for w in row), key=lambda w: w.sums), whole


def _moved(problem: Problem, i: int, u: int, there: dict[int, int]) -> tuple[list[Move], dict[int, int]]:
    """The moves for task i on unit u, and where values are then: a bit per memory, the first is the host's."""
    goal, moves = problem.memory[u], list[Move]()
    for v in problem.needs[i]:
        mask = there.get(v, 1)
        if mask >> goal & 1:
            continue
        if not mask & 1:
            moves.append((v, mask.bit_length() - 1, AT_HOST))
        if goal != AT_HOST:
            moves.append((v, AT_HOST, goal))
        there[v] = mask | 1 | 1 << goal
    for v in problem.makes[i]:
        there[v] = 1 << goal
        if problem.wanted[v] and goal != AT_HOST:
            moves.append((v, goal, AT_HOST))
            there[v] |= 1
    return moves, there


def _unbeaten(row: list[PartialPlacing], most: int) -> list[PartialPlacing]:
    """Those that no other beats in every sum; no more than one beyond ``most``."""
    row.sort(key=lambda w: w.sums)
    if len(row[0].sums) == 1:
        return row[:1]
    kept: list[PartialPlacing] = []
    if len(row[0].sums) == 2:
        for w in row:
            if not kept or w.sums[1] < kept[-1].sums[1]:
                kept.append(w)
        return kept
    sums = np.empty((most + 1, len(row[0].sums)))
    for w in sorted(row, key=lambda w: (max(w.sums), sum(w.sums))):
        if not (sums[: len(kept)] <= w.sums).all(1).any():
            sums[len(kept)] = w.sums
            kept.append(w)
            if len(kept) > most:
                break
    return kept


def _thinned(
    level: dict[tuple[tuple[int, int], ...], list[PartialPlacing]], most: int
) -> dict[tuple[tuple[int, int], ...], list[PartialPlacing]]:
    """As many ways: of two sums some from all of their span, the first and the last among them, else the least."""
    every = [(key, w) for key, row in level.items() for w in row]
    if len(every[0][1].sums) == 2:
        every.sort(key=lambda x: x[1].sums)
        every = [every[round(k * (len(every) - 1) / (most - 1))] for k in range(most)]
    else:
        every = sorted(every, key=lambda x: (max(x[1].sums), sum(x[1].sums)))[:most]
    kept: dict[tuple[tuple[int, int], ...], list[PartialPlacing]] = {}
    for key, w in every:
        kept.setdefault(key, []).append(w)
    return kept


# --- chains ---


def is_chain(problem: Problem) -> bool:
    """Whether each task needs values of the one before only, the first those of the caller, who gets the last one's."""
    sources = [{problem.source[v] for v in values} for values in problem.needs]
    ends = {source for v, source in enumerate(problem.source) if problem.wanted[v]}
    follow = all(found == {i} for i, found in enumerate(sources[1:]))
    return follow and all(found <= {CALLER} for found in sources[:1]) and ends <= {problem.count - 1}


def chain_seconds(problem: Problem, i: int, u: int, moves: Sequence[Move]) -> float:
    """What a task of a chain adds to the seconds of one input."""
    p = problem
    ups = [m for m in moves if p.source[m[0]] != i and m[2] == AT_HOST]
    downs = [m for m in moves if m[2] != AT_HOST]
    if ups and downs and p.at(ups[0]) != p.at(downs[0]):
        into = flow_shop([(p.seconds(a), p.seconds(b)) for a, b in zip(ups, downs, strict=True)])
    else:
        into = sum(map(p.seconds, (*ups, *downs)))
    return into + p.cost[i][u] + sum(p.seconds(m) for m in moves if p.source[m[0]] == i)


def flow_shop(jobs: Sequence[tuple[float, float]]) -> float:
    """The least span of jobs that each pass two machines in turn.

    >>> flow_shop([(3.0, 1.0), (1.0, 2.0)])  # the second one first
    5.0
    """
    early = sorted(job for job in jobs if job[0] <= job[1])
    late = sorted((job for job in jobs if job[0] > job[1]), key=lambda job: -job[1])
    first = second = 0.0
    for a, b in (*early, *late):
        first += a
        second = max(first, second) + b
    return second
