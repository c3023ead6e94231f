"""Chains, exactly: tasks of which each needs values of the one before only, by dynamic programming over its unit.

Why it is exact. In a chain one thing happens after the other: a task, the moves of its values, the next task. Nothing
meets anything else on a lane or a link, but for the values of one cut. So seconds and joules are sums over the way

    enter(u_0) + cost(0, u_0) + cross(1, u_0, u_1) + cost(1, u_1) + ... + leave(u_L)

and the best way to task i on unit u needs the best ways to task i - 1 alone (Bellman's principle):

    best(i, u) = cost(i, u) + min over p of best(i - 1, p) + cross(i, p, u)

which is O(L D^2) for L tasks and D units. ``cross`` is 0 within one memory, the sum of the values' seconds where one
end is the host's memory, and from device to device, where each value goes up on one link and down on another, the span
of a flow shop of two machines, which Johnson's order makes least (Johnson 1954). Joules are sums in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import inf, isinf
from typing import Final, final

from nxjax.backends.hybrid.placing import AT_HOST, Problem
from nxjax.backends.hybrid.work import CALLER

Sum = tuple[float, float]  # (seconds, joules), or the other way round where joules come first
_STATES: Final = 2_000  # of (seconds, joules) per task and unit


def is_chain(problem: Problem) -> bool:
    """Whether each task needs values of the one before only, the first those of the caller, who gets the last one's."""
    for i, values in enumerate(problem.needs):
        if i and not values:
            return False
        if any(problem.source[v] != (i - 1 if i else CALLER) for v in values):
            return False
    last = problem.count - 1
    return all(source == last for v, source in enumerate(problem.source) if problem.wanted[v])


@final
class Cuts:
    """Sums of a chain: of entering it, of each task, of each cut and of leaving it."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        p, memories = problem, range(len(problem.memories))
        first = p.needs[0] if p.count else []
        self.enter = [_total((p.down[v][m], p.down_joules[v][m]) for v in first) for m in memories]
        out = [v for v, wanted in enumerate(p.wanted) if wanted]
        self.leave = [_total((p.up[v][m], p.up_joules[v][m]) for v in out) for m in memories]
        self.cross = [[[self._cross(i, a, b) for b in memories] for a in memories] for i in range(p.count)]

    def _cross(self, i: int, a: int, b: int) -> Sum:
        p, values = self.problem, self.problem.needs[i]
        if a == b or i == 0:
            return (0.0, 0.0)
        joules = sum(p.up_joules[v][a] + p.down_joules[v][b] for v in values)
        if AT_HOST in (a, b) or p.link[a] == p.link[b]:
            return (sum(p.up[v][a] + p.down[v][b] for v in values), joules)
        return (flow_shop([(p.up[v][a], p.down[v][b]) for v in values]), joules)


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


def _total(parts: Iterable[Sum]) -> Sum:
    both = list(parts)
    return sum(s for s, _ in both), sum(j for _, j in both)


def best(problem: Problem, *, energy: bool = False) -> list[int]:
    """The units of the least seconds; with ``energy``, of the least joules, and of those with as few the least seconds.

    Of a work that is no chain, as if it were one: what jumps over a task costs nothing.
    """
    cuts, memory = Cuts(problem), problem.memory
    least: dict[int, Sum] = {}
    back: list[dict[int, int]] = []
    for i in range(problem.count):
        now: dict[int, Sum] = {}
        come: dict[int, int] = {}
        for u in problem.able[i]:
            own = (problem.cost[i][u], problem.watt[i][u])
            if i == 0:
                now[u] = _sum(cuts.enter[memory[u]], own, energy)
                continue
            ways = [(_add(least[p], _sum(cuts.cross[i][memory[p]][memory[u]], own, energy)), p) for p in least]
            now[u], come[u] = min(ways)
        least = now
        back.append(come)
    if not least:
        return []
    u = min(least, key=lambda u: (_add(least[u], _sum(cuts.leave[memory[u]], (0.0, 0.0), energy)), u))
    return _way(back, u)


def _sum(a: Sum, b: Sum, energy: bool) -> Sum:
    seconds, joules = a[0] + b[0], a[1] + b[1]
    return (joules, seconds) if energy else (seconds, 0.0)


def _add(a: Sum, b: Sum) -> Sum:
    return (a[0] + b[0], a[1] + b[1])


def _way(back: Sequence[Mapping[int, int]], u: int) -> list[int]:
    units = [u]
    for come in reversed(back[1:]):
        units.append(come[units[-1]])
    return units[::-1]


@final
@dataclass(frozen=True, slots=True)
class _State:
    """A way to a task: what it takes, its last unit, and the way before."""

    seconds: float
    joules: float
    unit: int
    before: _State | None

    def units(self) -> list[int]:
        found, state = list[int](), self
        while state is not None:
            found.append(state.unit)
            state = state.before
        return found[::-1]


def front(problem: Problem, deadline: float = inf) -> tuple[list[tuple[float, float, list[int]]], bool]:
    """All (seconds, joules, units) within the deadline than which no other units take both less, by rising seconds.

    As `best`, with all ways to a task kept that another does not beat in both sums. Units whose energy is unknown are
    left out. Beyond some thousand ways to one task, those are thinned.

    Returns:
        The front, and whether it is whole: False where it was thinned.
    """
    cuts, memory = Cuts(problem), problem.memory
    rest = _rest(problem)
    whole = True
    ways: dict[int, list[_State]] = {}
    for i in range(problem.count):
        now: dict[int, list[_State]] = {}
        for u in problem.able[i]:
            seconds, joules = problem.cost[i][u], problem.watt[i][u]
            if isinf(joules):
                continue
            if i == 0:
                s, j = cuts.enter[memory[u]]
                found = [_State(s + seconds, j + joules, u, None)]
            else:
                found = list[_State]()
                for p, states in ways.items():
                    s, j = cuts.cross[i][memory[p]][memory[u]]
                    found += [_State(x.seconds + s + seconds, x.joules + j + joules, u, x) for x in states]
            kept = _unbeaten([x for x in found if x.seconds + rest[i] <= deadline])
            if len(kept) > _STATES:
                kept, whole = _thinned(kept), False
            now[u] = kept
        ways = now
    ends = [
        _State(x.seconds + cuts.leave[memory[u]][0], x.joules + cuts.leave[memory[u]][1], u, x)
        for u, states in ways.items()
        for x in states
    ]
    found = _unbeaten([x for x in ends if x.seconds <= deadline])
    return [(x.seconds, x.joules, x.units()[:-1]) for x in found], whole


def _rest(problem: Problem) -> list[float]:
    """Seconds that the tasks after each take at least."""
    rest = [0.0] * problem.count
    for i in reversed(range(problem.count - 1)):
        rest[i] = rest[i + 1] + min(problem.cost[i + 1][u] for u in problem.able[i + 1])
    return rest


def _unbeaten(states: list[_State]) -> list[_State]:
    """By rising seconds, those that take fewer joules than all before."""
    kept: list[_State] = []
    for x in sorted(states, key=lambda x: (x.seconds, x.joules)):
        if not kept or x.joules < kept[-1].joules:
            kept.append(x)
    return kept


def _thinned(states: list[_State]) -> list[_State]:
    """Of states by rising seconds, one in each of many equal parts of their span: the first and the last stay."""
    low, high = states[0].seconds, states[-1].seconds
    parts = {int((x.seconds - low) / (high - low) * (_STATES // 2)): x for x in reversed(states)}
    return sorted({id(x): x for x in (*parts.values(), states[-1])}.values(), key=lambda x: x.seconds)
