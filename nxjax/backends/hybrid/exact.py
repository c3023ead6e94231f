"""The best there is, exactly: chains by dynamic programming, small graphs by search.

Chains: one thing happens after the other, so seconds and joules are sums over tasks and moves, and what the tasks from
one on add depends only on the unit of the one before. So of all ways to place the tasks up to one that end on the same
unit, only those count that no other one beats in every sum (Bellman's principle, with several sums). Where values go up
on one link and down on another, their span is that of a flow shop of two machines, which Johnson's order makes least
(Johnson 1954).

Search, for small works, and to measure the other algorithms by. For joules within a deadline, units are tried by their
joules; for seconds task by task, with a bound on what the rest must take. Units leave open who goes first where several
want one lane or link. That is settled by branching on conflicts: let everything begin as early as what it needs allows;
where more things meet on a resource than it can do at once, one of them must wait for another, so try each such order;
without a meeting the schedule is the best under the orders made so far. Any schedule keeps one of the orders of every
conflict, so none is missed (branching on minimal forbidden sets, Igelmund and Radermacher 1983).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from math import inf, prod
from typing import Final, final

from nxjax.backends.hybrid.placing import AT_HOST, Assignment, Problem, best, finished, place
from nxjax.backends.hybrid.schedule import CALLER, Schedule, Work
from nxjax.errors import ParameterError

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
    problem: Problem, cost: Cost, fits: Callable[[Sums], bool] = lambda sums: True, states: int = STATES
) -> tuple[list[PartialPlacing], bool]:
    """Units for the tasks of a chain than which no others are better in every sum, by their sums.

    Args:
        cost: what a task adds on a unit, with the moves that it needs there: one sum or two.
        fits: whether sums are worth going on from.
        states: how many ways go on from one task to the next; beyond, some are left out.

    Returns:
        The ways, and whether none was left out.
    """
    level = [PartialPlacing((), -1, None)]
    whole = True
    for i in range(problem.count):
        found: dict[int, list[PartialPlacing]] = {}
        added = {
            (before, u): cost(i, u, _moves(problem, i, before, u))
            for before in {w.unit for w in level}
            for u in problem.able[i]
        }
        for w in level:
            for u in problem.able[i]:
                more = added[w.unit, u]
                sums = tuple(map(sum, zip(w.sums, more, strict=True))) if w.sums else more
                if fits(sums):
                    found.setdefault(u, []).append(PartialPlacing(sums, u, w))
        level = sorted((w for row in found.values() for w in _unbeaten(row)), key=lambda w: w.sums)
        if len(level) > states:
            # From all of their span, the first and the last among them.
            whole = False
            level = [level[round(k * (len(level) - 1) / (states - 1))] for k in range(states)]
    return _unbeaten(level), whole


def _moves(problem: Problem, i: int, before: int, u: int) -> list[Move]:
    """The moves for task i of a chain on unit u, if the one before it was on unit ``before``, or is the caller."""
    home, goal = AT_HOST if before < 0 else problem.memory[before], problem.memory[u]
    moves: list[Move] = []
    for v in problem.needs[i] if home != goal else ():
        moves += [(v, home, AT_HOST)] if home != AT_HOST else []
        moves += [(v, AT_HOST, goal)] if goal != AT_HOST else []
    return moves + [(v, goal, AT_HOST) for v in problem.makes[i] if problem.wanted[v] and goal != AT_HOST]


def _unbeaten(row: list[PartialPlacing]) -> list[PartialPlacing]:
    """Those that no other beats in every sum, by the first."""
    kept: list[PartialPlacing] = []
    for w in sorted(row, key=lambda w: w.sums):
        if not kept or w.sums[-1] < kept[-1].sums[-1]:
            kept.append(w)
    return kept


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


NODES: Final = 2_000_000
_LESS: Final = 1 - 1e-9  # better by more than rounding
_DEEPEST: Final = 64  # tasks, and orders on top of each other: more are beyond any number of steps


class Spent(Exception):
    """The search has taken more steps than it may."""


def exact(work: Work, *, nodes: int = NODES) -> Schedule:
    """The schedule with the shortest makespan.

    Args:
        nodes: steps after which to give up.

    Raises:
        ParameterError: work that is not well formed, or too large for this many steps.

    >>> from nxjax.backends.hybrid.schedule import Task
    >>> times = {"npu": 2.0, "cpu": 3.0}
    >>> work = Work(tuple(Task(name, times) for name in "abcde"), ("npu", "cpu"), lambda a, b, nbytes: 0.0)
    >>> exact(work).makespan
    6.0
    """
    work.check()
    problem = Problem(work)
    found, complete = least_seconds(problem, best(problem), nodes)
    if not complete:
        raise ParameterError(
            "exact: the work is too large for an exhaustive search",
            got=f"{problem.count} tasks on {len(work.units)} units",
            expected=f"what {nodes:,} steps can search, some 10 tasks",
            fix="use choose(work), or give more nodes",
        )
    return finished(problem, found, "latency", "exact", exact=True)


def least_seconds(problem: Problem, known: Assignment, nodes: int = NODES) -> tuple[Assignment, bool]:
    """The placing of least makespan, begun with a known one; and whether all was searched within so many steps."""
    search = _Search(problem, known.makespan, nodes)
    complete = search.run()
    return search.found or known, complete


def least_joules(problem: Problem, deadline: float, nodes: int) -> tuple[Assignment | None, bool]:
    """The placing of least joules among those within a deadline, None where there are none; and whether all were tried
    that could be better, within so many steps."""
    if prod(map(len, problem.able)) > nodes:
        return None, False
    search = _Search(problem, deadline / _LESS, nodes)
    try:
        for units in sorted(product(*problem.able), key=problem.energy):
            search.step()
            placed = place(problem, units)
            if placed.makespan < search.limit:
                return placed, True
            # Another order may meet the deadline.
            Conflicts(problem, units, search).settle()
            if search.found is not None:
                return search.found, True
    except Spent:
        return None, False
    return None, True


@final
class _Search:
    """Units, task by task, and the order on each; what is better than a limit is kept, and is the limit then."""

    def __init__(self, problem: Problem, limit: float, nodes: int) -> None:
        self.problem = problem
        self.found: Assignment | None = None
        self.left = nodes
        self.limit = limit
        self.chosen = [-1] * problem.count
        self.ends = [0.0] * problem.count
        self.fastest = [min(problem.cost[i][u] for u in able) for i, able in enumerate(problem.able)]
        # Seconds from a task's end to the end of all, at least; seconds of all tasks from each on.
        self.tail, self.rest = [0.0] * problem.count, [0.0] * (problem.count + 1)
        for i in reversed(range(problem.count)):
            self.rest[i] = self.rest[i + 1] + self.fastest[i]
            readers = [j for v in problem.makes[i] for j in problem.readers[v]]
            self.tail[i] = max((self.tail[j] + self.fastest[j] for j in readers), default=0.0)

    def run(self) -> bool:
        """Search; False where the steps did not last."""
        if self.problem.count > _DEEPEST:
            return False
        try:
            self._units(0, [0.0] * len(self.problem.lanes))
        except Spent:
            return False
        return True

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Spent

    def keep(self, placed: Assignment) -> None:
        self.found, self.limit = placed, placed.makespan

    def _units(self, i: int, loads: list[float]) -> None:
        """Units for task i and all after it."""
        self.step()
        p = self.problem
        if i == p.count:
            Conflicts(p, self.chosen, self).settle()
            return
        tries: list[tuple[float, int]] = []
        for u in p.able[i]:
            end = self._ready(i, p.memory[u]) + p.cost[i][u]
            up = max((p.up[v][p.memory[u]] for v in p.makes[i] if p.wanted[v]), default=0.0)
            tries.append((end + max(self.tail[i], up), u))
        for bound, u in sorted(tries):
            most = self.limit * _LESS
            r = p.row[u]
            load = loads[r] + p.cost[i][u]
            every = sum(loads) + p.cost[i][u] + self.rest[i + 1]
            if bound >= most or load >= most * p.lanes[r] or every >= most * sum(p.lanes):
                continue
            self.chosen[i], self.ends[i] = u, self._ready(i, p.memory[u]) + p.cost[i][u]
            self._units(i + 1, [*loads[:r], load, *loads[r + 1 :]])
        self.chosen[i] = -1

    def _ready(self, i: int, goal: int) -> float:
        """When task i's values can be in a memory, if nothing else wants the links."""
        p, ready = self.problem, 0.0
        for v in p.needs[i]:
            source = p.source[v]
            home = AT_HOST if source == CALLER else p.memory[self.chosen[source]]
            made = 0.0 if source == CALLER else self.ends[source]
            ready = max(ready, made if home == goal else made + p.up[v][home] + p.down[v][goal])
        return ready


@final
class Conflicts:
    """Tasks on given units: who goes first on lanes and links. Leaves what is better with ``search``."""

    def __init__(self, problem: Problem, units: Sequence[int], search: _Search) -> None:
        self.problem, self.units, self.search = problem, list(units), search
        p = problem
        self.moves = p.moves(units)
        self.seconds = [p.cost[i][u] for i, u in enumerate(units)] + [p.seconds(m) for m in self.moves]
        count = len(self.seconds)
        self.after: list[list[int]] = [[] for _ in range(count)]
        # When each (value, memory) is there: the end of which activity.
        made = {(m[0], m[2]): p.count + k for k, m in enumerate(self.moves)}
        for i in range(p.count):
            for v in p.makes[i]:
                made[v, p.memory[units[i]]] = i
        for i, u in enumerate(units):
            self.after[i] = [made[v, p.memory[u]] for v in p.needs[i] if (v, p.memory[u]) in made]
        for k, (v, a, _) in enumerate(self.moves):
            if (v, a) in made:
                self.after[p.count + k] = [made[v, a]]
        rows: dict[tuple[bool, int], list[int]] = {}
        for i, u in enumerate(units):
            rows.setdefault((True, p.row[u]), []).append(i)
        for k, (_, a, b) in enumerate(self.moves):
            rows.setdefault((False, p.link[a or b]), []).append(p.count + k)
        self.rows = [(row, p.lanes[r] if task else 1) for (task, r), row in rows.items()]
        self.rows = [(timed, n) for row, n in self.rows if len(timed := [x for x in row if self.seconds[x] > 0]) > n]

    def settle(self, orders: int = 0) -> None:
        """Try all orders, on top of so many."""
        self.search.step()
        if orders > _DEEPEST:
            raise Spent
        heads = self._heads()
        most = self.search.limit * _LESS
        if heads is None or max(h + s for h, s in zip(heads, self.seconds, strict=True)) >= most:
            return
        if self._crowded(heads, most):
            return
        meeting = self._meeting(heads)
        if not meeting:
            self._keep(heads)
            return
        # The one that can begin first goes first, before the others are tried.
        for a in sorted(meeting, key=lambda x: heads[x]):
            for b in meeting:
                if a != b:
                    self.after[b].append(a)
                    self.settle(orders + 1)
                    self.after[b].pop()

    def _heads(self) -> list[float] | None:
        """The earliest start of everything; None where the orders make a circle."""
        count = len(self.seconds)
        waiting = [len(before) for before in self.after]
        readers: list[list[int]] = [[] for _ in range(count)]
        for x, before in enumerate(self.after):
            for y in before:
                readers[y].append(x)
        heads = [0.0] * count
        free = [x for x in range(count) if not waiting[x]]
        for x in free:
            end = heads[x] + self.seconds[x]
            for y in readers[x]:
                heads[y] = max(heads[y], end)
                waiting[y] -= 1
                if not waiting[y]:
                    free.append(y)
        return heads if len(free) == count else None

    def _crowded(self, heads: Sequence[float], most: float) -> bool:
        """Whether a resource has more to do from some time on than it can by the end."""
        for row, lanes in self.rows:
            load = 0.0
            for x in sorted(row, key=lambda x: -heads[x]):
                load += self.seconds[x]
                if heads[x] + load / lanes >= most:
                    return True
        return False

    def _meeting(self, heads: Sequence[float]) -> list[int]:
        """The first that meet on one resource, one more than it can do at once."""
        first, found = inf, list[int]()
        for row, lanes in self.rows:
            running: list[int] = []
            for x in sorted(row, key=lambda x: heads[x]):
                if heads[x] >= first:
                    break
                slack = 1e-12 * (heads[x] + self.seconds[x])
                running = [y for y in running if heads[y] + self.seconds[y] > heads[x] + slack]
                running.append(x)
                if len(running) > lanes:
                    first, found = heads[x], running
                    break
        return found

    def _keep(self, heads: list[float]) -> None:
        p = self.problem
        lanes = [0] * p.count
        free: dict[int, list[float]] = {}
        for i in sorted(range(p.count), key=lambda i: heads[i]):
            r = p.row[self.units[i]]
            row = free.setdefault(r, [0.0] * p.lanes[r])
            lanes[i] = min(range(len(row)), key=lambda k: (row[k], k))
            row[lanes[i]] = max(row[lanes[i]], heads[i] + self.seconds[i])
        moves: dict[tuple[int, int, int, int], float] = {}
        for k, (v, a, b) in enumerate(self.moves):
            targets = [j for j in p.readers[v] if p.memory[self.units[j]] == b] or p.readers[v] or [CALLER]
            if b == AT_HOST and not any(p.memory[self.units[j]] != a for j in p.readers[v]):
                targets = [CALLER]
            moves[v, a, b, targets[0]] = heads[p.count + k]
        makespan = max(h + s for h, s in zip(heads, self.seconds, strict=True))
        self.search.keep(Assignment(list(self.units), lanes, heads[: p.count], moves, makespan))
