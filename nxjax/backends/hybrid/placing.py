"""Tasks put on units, lanes and links: the arithmetic that the algorithms share, HEFT, and changes of a few tasks.

`Problem` is a `Work` in index form. `place` is serial schedule generation with insertion: by falling rank, each task
first has the values that it lacks moved to it, each in the first gap of its link that is long enough, and then takes
the first gap of a lane of its unit.

HEFT's source: Topcuoglu, Hariri, Wu, Performance-effective and low-complexity task scheduling for heterogeneous
computing (IEEE TPDS 13(3), 2002): tasks by falling upward rank, each on the unit where it ends first, in the first gap
that holds it. Here a transfer takes its link's time as a task takes a lane's, and a value moves somewhere once. No
clock and no chance: the same work gives the same answer on every machine.

Streams (`periodic`): every input does the same as the one before, an interval later. Then a lane (of L, where inputs
take turns) sees its tasks again every L intervals, and what has to be found are times, modulo L intervals, at which
they do not meet. Packed one behind the other they never do, as they are no longer than L intervals together; each task
then begins at its next turn after its values are there. Turns are waited for at most L intervals each, so the price is
latency, not throughput. Filling gaps, first come first served, mostly waits less, where that fits.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
from math import inf, isinf
from typing import Final, TypeVar, final

from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Objective, Schedule, Slot, Transfer, Work
from nxjax.config.forks import cached_property

AT_HOST: Final = 0  # index of the host's memory


@final
class Problem:
    """A work's numbers by index of task, unit, memory, link and value. Memory 0 is the host's.

    Attributes:
        cost, watt: seconds and joules per task and unit; infinite where a unit cannot run the task, or where its energy
            is unknown.
        able: per task, its units.
        row, lanes: per unit its processor, per processor its lanes.
        needs, makes: per task, values; those it makes that somebody wants.
        source, readers, wanted: per value, the task that makes it or `CALLER`, the tasks that need it, and whether the
            caller gets it.
        up, down: per value and memory, seconds from there to the host and from the host there.
        up_joules, down_joules: the same in joules; zero where unknown.
        link: per memory; -1 for the host's.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.count = len(work.tasks)
        self.units = range(len(work.units))
        rows = list(dict.fromkeys(map(work.processor_of, work.units)))
        self.row = [rows.index(work.processor_of(u)) for u in work.units]
        self.lanes = [next(work.lanes_of(u) for u in work.units if work.processor_of(u) == r) for r in rows]
        names = list(dict.fromkeys([HOST, *(work.memory_of(u) for u in work.units)]))
        self.memories = names
        self.memory = [names.index(work.memory_of(u)) for u in work.units]
        self.links = list(dict.fromkeys(work.link_of(m) for m in names[1:]))
        self.link = [-1, *(self.links.index(work.link_of(m)) for m in names[1:])]
        self.cost = [[task.seconds.get(u, inf) for u in work.units] for task in work.tasks]
        self.watt = [[task.joules.get(u, inf) for u in work.units] for task in work.tasks]
        self.able = [[u for u in self.units if not isinf(row[u])] for row in self.cost]
        self._values()

    def _values(self) -> None:
        work, edges = self.work, dict[tuple[int, int], Edge]()
        for e in (*(e for task in work.tasks for e in task.after), *work.results):
            edges.setdefault((e.source, e.value), e)
        index = {key: v for v, key in enumerate(edges)}
        self.edges = list(edges.values())
        self.source = [e.source for e in self.edges]
        self.needs = [list(dict.fromkeys(index[e.source, e.value] for e in task.after)) for task in work.tasks]
        self.readers: list[list[int]] = [[] for _ in self.edges]
        for i, values in enumerate(self.needs):
            for v in values:
                self.readers[v].append(i)
        self.makes: list[list[int]] = [[] for _ in work.tasks]
        for v, source in enumerate(self.source):
            if source != CALLER:
                self.makes[source].append(v)
        self.wanted = [False] * len(self.edges)
        for e in work.results:
            self.wanted[index[e.source, e.value]] = True
        devices, moves = self.memories[1:], work.transfer
        self.up = [[0.0, *(moves(m, HOST, e.nbytes) for m in devices)] for e in self.edges]
        self.down = [[0.0, *(moves(HOST, m, e.nbytes) for m in devices)] for e in self.edges]
        power = work.transfer_joules or (lambda a, b, nbytes: 0.0)
        self.up_joules = [[0.0, *(power(m, HOST, e.nbytes) for m in devices)] for e in self.edges]
        self.down_joules = [[0.0, *(power(HOST, m, e.nbytes) for m in devices)] for e in self.edges]

    def moves(self, units: Sequence[int]) -> list[tuple[int, int, int]]:
        """The moves that tasks on these units need: (value, from memory, to memory), a value's way up before its ways
        down. Does not depend on the order of anything."""
        found: list[tuple[int, int, int]] = []
        memory = self.memory
        for v, source in enumerate(self.source):
            home = AT_HOST if source == CALLER else memory[units[source]]
            goals = dict.fromkeys(memory[units[i]] for i in self.readers[v])
            goals.pop(home, None)
            if home != AT_HOST and (goals or self.wanted[v]):
                found.append((v, home, AT_HOST))
            found += [(v, AT_HOST, m) for m in goals if m != AT_HOST]
        return found

    def seconds(self, move: tuple[int, int, int]) -> float:
        v, a, b = move
        return self.up[v][a] if b == AT_HOST else self.down[v][b]

    def loads(self, units: Sequence[int]) -> list[float]:
        """Seconds of work per lane that one input is for each processor, and for each link."""
        found = [0.0] * (len(self.lanes) + len(self.links))
        for i, u in enumerate(units):
            found[self.row[u]] += self.cost[i][u] / self.lanes[self.row[u]]
        for move in self.moves(units):
            found[self.at(move)] += self.seconds(move)
        return found

    def at(self, move: tuple[int, int, int]) -> int:
        """Where a move's link stands among `loads`."""
        return len(self.lanes) + self.link[move[1] or move[2]]

    def interval(self, units: Sequence[int]) -> float:
        """The least seconds between inputs of a stream: those of what is busiest."""
        return max(self.loads(units), default=0.0)

    def joules(self, move: tuple[int, int, int]) -> float:
        v, a, b = move
        return self.up_joules[v][a] if b == AT_HOST else self.down_joules[v][b]

    def energy(self, units: Sequence[int]) -> float:
        """Joules of one input; infinite where a task's is unknown."""
        return sum(self.watt[i][u] for i, u in enumerate(units)) + sum(map(self.joules, self.moves(units)))

    @cached_property
    def ranks(self) -> list[float]:
        """Seconds from each task's start to the end of all, at best: upward ranks (Topcuoglu et al. 2002)."""
        mean = lambda row: sum(row) / len(row)
        ranks = [0.0] * self.count
        for i in reversed(range(self.count)):
            after = [0.0]
            for v in self.makes[i]:
                after += [ranks[j] + self._mean(v, i, j) for j in self.readers[v]]
                after += [mean([self.up[v][self.memory[u]] for u in self.able[i]])] if self.wanted[v] else []
            ranks[i] = mean([self.cost[i][u] for u in self.able[i]]) + max(after)
        return ranks

    def _mean(self, v: int, i: int, j: int) -> float:
        """Mean seconds of a value's way, over all pairs of units of its maker and its reader between which it moves."""
        homes, goals = [self.memory[u] for u in self.able[i]], [self.memory[u] for u in self.able[j]]
        ways = [self.up[v][a] + self.down[v][b] for a in homes for b in goals if a != b]
        return sum(ways) / len(ways) if ways else 0.0

    @cached_property
    def order(self) -> list[int]:
        """Tasks by falling rank, each after those that it needs."""
        # Ranks fall along every edge but where times are zero; there, the given order decides, which is topological.
        return sorted(range(self.count), key=lambda i: (-self.ranks[i], i))


class Lanes:
    """What the lanes of a processor, or a link, do when; what comes takes the first gap that holds it."""

    def __init__(self, count: int) -> None:
        self.rows = [(list[float](), list[float]()) for _ in range(count)]  # starts and ends

    def first(self, ready: float, seconds: float) -> tuple[float, int]:
        """The first start from ``ready`` on, and its lane."""
        start, lane = inf, 0
        for k, (starts, ends) in enumerate(self.rows):
            at = ready
            if seconds > 0 and ends and ends[-1] > ready:
                for n in range(bisect_right(ends, ready), len(ends)):
                    if starts[n] - at >= seconds:
                        break
                    at = ends[n] if ends[n] > at else at
            if at < start:
                start, lane = at, k
                if at <= ready:
                    break
        return start, lane

    def take(self, start: float, lane: int, seconds: float) -> None:
        if seconds > 0:
            starts, ends = self.rows[lane]
            k = bisect_left(starts, start)
            starts.insert(k, start)
            ends.insert(k, start + seconds)

    def give(self, start: float, seconds: float) -> None:
        """Undo `take` of a link."""
        if seconds > 0:
            starts, ends = self.rows[0]
            k = bisect_left(starts, start)
            del starts[k], ends[k]


@final
@dataclass(slots=True)
class Assignment:
    """Per task its unit, lane and start; per move (value, from memory, to memory, target) its start; the last end."""

    units: list[int]
    lanes: list[int]
    starts: list[float]
    moves: dict[tuple[int, int, int, int], float]
    makespan: float


@final
class Board:
    """A schedule that is being put together, task by task."""

    def __init__(self, problem: Problem, lanes: Callable[[int], Lanes] = Lanes) -> None:
        self.problem = problem
        self.rows = [lanes(n) for n in (*problem.lanes, *(1 for _ in problem.links))]
        # When a value is in a memory; infinite while it is not.
        self.there = [[inf] * len(problem.memories) for _ in problem.edges]
        for v, source in enumerate(problem.source):
            if source == CALLER:
                self.there[v][AT_HOST] = 0.0
        self.home = [AT_HOST] * len(problem.edges)
        count = problem.count
        self.placed = Assignment([-1] * count, [0] * count, [0.0] * count, {}, 0.0)

    def _move(self, v: int, a: int, b: int, target: int) -> tuple[int, int, int, int]:
        move = (v, a, b)
        seconds, row = self.problem.seconds(move), self.rows[self.problem.at(move)]
        start, _ = row.first(self.there[v][a], seconds)
        row.take(start, 0, seconds)
        self.there[v][b] = start + seconds
        key = (v, a, b, target)
        self.placed.moves[key] = start
        return key

    def _undo(self, keys: Iterable[tuple[int, int, int, int]]) -> None:
        p = self.problem
        for key in keys:
            v, a, b, _ = key
            start = self.placed.moves.pop(key)
            self.rows[p.at((v, a, b))].give(start, p.seconds((v, a, b)))
            self.there[v][b] = inf

    def bring(self, i: int, memory: int) -> tuple[float, list[tuple[int, int, int, int]]]:
        """Move what task i lacks in a memory there; gives when all of it is there, and the moves."""
        ready, lacking = 0.0, list[int]()
        for v in self.problem.needs[i]:
            when = self.there[v][memory]
            if when == inf:
                lacking.append(v)
            elif when > ready:
                ready = when
        done: list[tuple[int, int, int, int]] = []
        if len(lacking) > 1:
            lacking.sort(key=lambda v: self._first(v, memory))
        for v in lacking:
            home = self.home[v]
            if self.there[v][AT_HOST] == inf:
                done.append(self._move(v, home, AT_HOST, i))
            if memory != AT_HOST:
                done.append(self._move(v, AT_HOST, memory, i))
            ready = max(ready, self.there[v][memory])
        return ready, done

    def _first(self, v: int, memory: int) -> tuple[float, bool, float]:
        """What was made first moves first. Of values made at one time, Johnson's order, which is best for two moves
        each: those whose first move is the shorter one by that, and then the others by their second, the longest
        first (Johnson 1954)."""
        home = self.home[v]
        up = self.problem.up[v][home] if self.there[v][AT_HOST] == inf else 0.0
        down = self.problem.down[v][memory]
        return (self.there[v][home], up > down, -down if up > down else up)

    def ends(self, i: int, u: int) -> float:
        """When task i would end on unit u. Changes nothing."""
        p = self.problem
        ready, done = self.bring(i, p.memory[u])
        self._undo(done)
        return self.rows[p.row[u]].first(ready, p.cost[i][u])[0] + p.cost[i][u]

    def put(self, i: int, u: int) -> None:
        """Put task i on unit u."""
        p, placed = self.problem, self.placed
        ready, _ = self.bring(i, p.memory[u])
        row = self.rows[p.row[u]]
        start, lane = row.first(ready, p.cost[i][u])
        row.take(start, lane, p.cost[i][u])
        placed.units[i], placed.lanes[i], placed.starts[i] = u, lane, start
        end = start + p.cost[i][u]
        placed.makespan = max(placed.makespan, end)
        for v in p.makes[i]:
            self.home[v] = p.memory[u]
            self.there[v][p.memory[u]] = end

    def finish(self) -> Assignment:
        """Move the caller's results that are elsewhere, in the gaps that the links have left."""
        for v, wanted in enumerate(self.problem.wanted):
            if wanted:
                if self.there[v][AT_HOST] == inf:
                    self._move(v, self.home[v], AT_HOST, CALLER)
                self.placed.makespan = max(self.placed.makespan, self.there[v][AT_HOST])
        return self.placed


def place(problem: Problem, units: Sequence[int], lanes: Callable[[int], Lanes] = Lanes) -> Assignment:
    """Tasks on their units, by falling rank."""
    board = Board(problem, lanes)
    for i in problem.order:
        board.put(i, units[i])
    return board.finish()


def finished(
    problem: Problem,
    placed: Assignment,
    objective: Objective,
    by: str,
    *,
    exact: bool = False,
    interval: float | None = None,
    notes: tuple[str, ...] = (),
) -> Schedule:
    """What was placed, as a `Schedule`."""
    work = problem.work
    slots = tuple(
        Slot(i, work.units[u], placed.lanes[i], placed.starts[i], placed.starts[i] + problem.cost[i][u])
        for i, u in enumerate(placed.units)
    )
    moved: list[Transfer] = []
    for (v, a, b, target), start in placed.moves.items():
        e, end = problem.edges[v], start + problem.seconds((v, a, b))
        moved.append(
            Transfer(e.source, e.value, target, problem.memories[a], problem.memories[b], e.nbytes, start, end)
        )
    moved.sort(key=lambda t: (t.start, t.finish))
    energy = problem.energy(placed.units)
    if moved and work.transfer_joules is None and energy < inf:
        notes = (*notes, "the energy of transfers is unknown and not counted")
    period = placed.makespan if interval is None else interval
    return Schedule(slots, tuple(moved), objective, by, exact, period, energy if energy < inf else None, notes)


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

    >>> from nxjax.backends.hybrid.schedule import Edge, Task
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
            board.ends(i, u) + sum(problem.up[v][problem.memory[u]] for v in problem.makes[i] if problem.wanted[v])
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
    """Changes to try: tasks with their new units. One task; two that change places, or of which one needs the other; a
    run of some."""
    count = problem.count
    for i in range(count):
        for u in problem.able[i]:
            if u != units[i]:
                yield ((i, u),)
    for i, j in combinations(range(count), 2) if count <= _EVERY_RUN else ():
        if units[i] != units[j] and units[j] in problem.able[i] and units[i] in problem.able[j]:
            yield ((i, units[j]), (j, units[i]))
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


_ROUNDING: Final = 1e-12


@final
class _Turns(Lanes):
    """What a processor or a link does, modulo its lanes times the interval: ``packed``, or in gaps."""

    def __init__(self, lanes: int, interval: float, packed: bool) -> None:
        self.lanes, self.interval, self.span, self.packed = lanes, interval, lanes * interval, packed
        self.busy: list[tuple[float, float]] = []  # (phase, seconds) on lane 0

    def first(self, ready: float, seconds: float) -> tuple[float, int]:
        """Infinite where no gap is long enough."""
        if seconds <= 0 or ready == inf:
            return ready, 0
        return min((ready + self._wait(ready - k * self.interval, seconds), k) for k in range(self.lanes))

    def take(self, start: float, lane: int, seconds: float) -> None:
        if seconds > 0 and start < inf:
            self.busy.append(((start - lane * self.interval) % self.span, seconds))

    def _wait(self, phase: float, seconds: float) -> float:
        ends = [at + length for at, length in self.busy]
        if self.packed:
            return self._ahead(ends[-1] - phase) if ends else 0.0
        waits = sorted([0.0, *(self._ahead(end - phase) for end in ends)])
        return next((wait for wait in waits if self._free(phase + wait, seconds)), inf)

    def _free(self, start: float, seconds: float) -> bool:
        """Whether a start meets nothing that is done, before or after it on the circle."""
        slack = _ROUNDING * self.span
        behind = [(self._ahead(start - at), length) for at, length in self.busy]
        return all(since >= length - slack and since + seconds <= self.span + slack for since, length in behind)

    def _ahead(self, seconds: float) -> float:
        """Seconds modulo the span; a whole turn less rounding is none."""
        left = seconds % self.span
        return 0.0 if self.span - left <= _ROUNDING * self.span else left


def periodic(problem: Problem, units: Sequence[int], interval: float) -> Assignment:
    """One input's tasks on their units, so that inputs an interval apart do not meet, which must hold the loads."""
    if interval <= 0:
        return place(problem, units)
    # The makespan is infinite where gaps were too short.
    tries = (place(problem, units, partial(_Turns, interval=interval, packed=packed)) for packed in (False, True))
    return min(tries, key=lambda x: x.makespan)
