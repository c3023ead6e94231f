"""The best schedule there is, by search over everything: for small works, and to measure the other algorithms by.

Sums need no such search: see `sums`.

Units are tried task by task, with a bound on what the rest must take. For latency, units leave open who goes first
where several want one lane or link. That is settled by branching on conflicts: let everything begin as early as what it
needs allows; where more things meet on a resource than it can do at once, one of them must wait for another, so try
each such order; without a meeting the schedule is the best under the orders made so far. Any schedule keeps one of the
orders of every conflict, so none is missed (branching on minimal forbidden sets, Igelmund and Radermacher 1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, final

from nxjax.backends.hybrid import search
from nxjax.backends.hybrid.placing import AT_HOST, Assignment, Problem, finished, place
from nxjax.backends.hybrid.schedule import Schedule
from nxjax.backends.hybrid.work import CALLER, Work
from nxjax.errors import ParameterError

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

    >>> from nxjax.backends.hybrid.work import Task
    >>> times = {"npu": 2.0, "cpu": 3.0}
    >>> work = Work(tuple(Task(name, times) for name in "abcde"), ("npu", "cpu"), lambda a, b, nbytes: 0.0)
    >>> exact(work).makespan
    6.0
    """
    work.check()
    problem = Problem(work)
    found, complete = least_seconds(problem, search.best(problem), nodes)
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
    search = _Search(problem, known, nodes)
    complete = search.run()
    return search.found or known, complete


def least_joules(
    problem: Problem, known: Assignment | None, deadline: float = inf, nodes: int = NODES
) -> tuple[Assignment | None, bool]:
    """As `least_seconds`, of least joules among those within the deadline; None where there are none."""
    search = _Search(problem, known, nodes, deadline)
    complete = search.run()
    return search.found, complete


@final
class _Search:
    """Units, task by task. Without a deadline (which may be infinite) for seconds, with one for joules."""

    def __init__(self, problem: Problem, known: Assignment | None, nodes: int, deadline: float | None = None) -> None:
        self.problem = problem
        self.found = known
        self.left = nodes
        self.deadline = deadline
        self.joules = inf if known is None else problem.energy(known.units)
        self.limit = inf if known is None else known.makespan
        if deadline is not None:
            self.limit = deadline / _LESS
        self.chosen = [-1] * problem.count
        self.ends = [0.0] * problem.count
        self.fastest = [min(problem.cost[i][u] for u in able) for i, able in enumerate(problem.able)]
        # Seconds from a task's end to the end of all, at least; seconds and joules of all tasks from each on.
        self.tail, self.rest = [0.0] * problem.count, [0.0] * (problem.count + 1)
        self.rest_joules = [0.0] * (problem.count + 1)
        for i in reversed(range(problem.count)):
            self.rest[i] = self.rest[i + 1] + self.fastest[i]
            self.rest_joules[i] = self.rest_joules[i + 1] + min(problem.watt[i][u] for u in problem.able[i])
            readers = [j for v in problem.makes[i] for j in problem.readers[v]]
            self.tail[i] = max((self.tail[j] + self.fastest[j] for j in readers), default=0.0)

    def run(self) -> bool:
        """Search; False where the steps did not last."""
        if self.problem.count > _DEEPEST:
            return False
        try:
            self._units(0, [0.0] * len(self.problem.lanes), 0.0)
        except Spent:
            return False
        return True

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Spent

    def keep(self, placed: Assignment) -> None:
        self.found = placed
        if self.deadline is None:
            self.limit = placed.makespan

    def _units(self, i: int, loads: list[float], joules: float) -> None:
        """Units for task i and all after it."""
        self.step()
        p = self.problem
        if i == p.count:
            self._leaf()
            return
        tries: list[tuple[float, float, int]] = []
        for u in p.able[i]:
            end = self._ready(i, p.memory[u]) + p.cost[i][u]
            up = max((p.up[v][p.memory[u]] for v in p.makes[i] if p.wanted[v]), default=0.0)
            bound = end + max(self.tail[i], up)
            tries.append((bound if self.deadline is None else p.watt[i][u], bound, u))
        for _, bound, u in sorted(tries):
            most = self.limit * _LESS
            r = p.row[u]
            load = loads[r] + p.cost[i][u]
            every = sum(loads) + p.cost[i][u] + self.rest[i + 1]
            if bound >= most or load >= most * p.lanes[r] or every >= most * sum(p.lanes):
                continue
            energy = joules + p.watt[i][u]
            if self.deadline is not None and energy + self.rest_joules[i + 1] >= self.joules * _LESS:
                continue
            self.chosen[i], self.ends[i] = u, self._ready(i, p.memory[u]) + p.cost[i][u]
            self._units(i + 1, [*loads[:r], load, *loads[r + 1 :]], energy)
        self.chosen[i] = -1

    def _leaf(self) -> None:
        if self.deadline is None:
            Conflicts(self.problem, self.chosen, self).settle()
            return
        joules = self.problem.energy(self.chosen)
        if joules >= self.joules * _LESS:
            return
        placed = place(self.problem, self.chosen)
        if placed.makespan < self.limit:
            self.keep(placed)
            self.joules = joules
            return
        # Another order may meet the deadline.
        inner = _Search(self.problem, None, self.left)
        inner.limit = self.limit
        Conflicts(self.problem, self.chosen, inner).settle()
        self.left = inner.left
        if inner.found is not None:
            self.keep(inner.found)
            self.joules = joules

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
