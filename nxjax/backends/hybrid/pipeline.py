"""Streams: several inputs on their way at one time, as a software pipeline with the smallest interval.

What bounds the interval. Each input takes its load of seconds from every unit (over its lanes) and from every link, so
inputs cannot come faster than the busiest of them does its share. And they can come as fast: let every input do the
same as the one before, one interval later. Then a lane (of L, where inputs take turns) sees its tasks again every L
intervals, and all that must be found are times, modulo L intervals, at which they do not meet. Packed one behind the
other they never meet, as they are no longer than L intervals together; each task then begins at its next turn after
its values are there. Turns are waited for at most an interval each, so the price is latency, not throughput; gaps are
filled first come first served where that fits, as it mostly waits less.

So units are sought for the least load: on chains by a sum over the way for each unit and link at once, of which all
are kept that no other beats in every part; on graphs by search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Final, final

import numpy as np

from nxjax.backends.hybrid import chain, exact
from nxjax.backends.hybrid.placing import AT_HOST, Assignment, Problem, finished, place
from nxjax.backends.hybrid.schedule import Schedule
from nxjax.backends.hybrid.search import EFFORT, improved, starts
from nxjax.backends.hybrid.work import CALLER, Work

NODES: Final = 20_000  # steps of the search over everything
_WAYS: Final = 60_000  # steps from task to task of a chain that are looked at
_ROUNDING: Final = 1e-12
_SMALL: Final = 16
_POLISH: Final = 6_000  # tasks placed while looking for less latency at the same interval


def throughput(work: Work, *, deadline: float = inf, effort: int = EFFORT, nodes: int = NODES) -> Schedule:
    """The schedule of a stream with the smallest interval from input to input, and then the least latency found.

    Args:
        deadline: the most seconds that one input may take; the interval grows where that needs it. What it meets is
            for the caller to see.
        effort: how many tasks may be placed while searching.
        nodes: steps of the search over everything, which proves that no interval is smaller.

    Returns:
        One input's slots and transfers; ``interval``, ``makespan`` (its latency) and ``inflight`` say how the stream
        flows, and ``unrolled(work, n)`` gives n inputs.

    Raises:
        ParameterError: work that is not well formed.

    >>> from nxjax.backends.hybrid.work import CALLER, HOST, Edge, Task
    >>> work = Work((Task("conv", {"npu": 2.0, "cpu": 9.0}, after=(Edge(CALLER, 1),)),
    ...              Task("head", {"npu": 2.0, "cpu": 3.0}, after=(Edge(0, 1),))),
    ...             ("npu", "cpu"), lambda a, b, nbytes: 0.25, results=(Edge(1, 1),), memory={"cpu": HOST})
    >>> found = throughput(work)
    >>> found.interval, found.makespan, found.inflight, found.assignment()
    (3.0, 5.5, 2, ('npu', 'cpu'))
    """
    work.check()
    problem = Problem(work)
    units, by, proved = best(problem, effort, nodes)
    least = problem.interval(units)

    def waits(trial: Sequence[int]) -> tuple[float, float]:
        """No larger an interval, and then less latency."""
        interval = problem.interval(trial)
        if interval > least * (1 + _ROUNDING):
            return interval, inf
        interval = interval if interval < least * (1 - _ROUNDING) else least
        return interval, periodic(problem, trial, interval).makespan

    def moves(trial: Sequence[int]) -> tuple[float, float]:
        """No larger an interval, and then fewer moves: each is one more turn to wait for."""
        interval = problem.interval(trial)
        return interval if interval > least * (1 + _ROUNDING) else least, float(len(problem.moves(trial)))

    units, _ = improved(problem, units, moves, effort // 4)
    units, (least, makespan) = improved(problem, units, waits, _POLISH)
    if makespan <= deadline:
        placed, interval = periodic(problem, units, least), least
    else:
        placed, interval = _within(problem, units, deadline)
        by, proved = "search", False
    return finished(problem, placed, "throughput", by, exact=proved, interval=interval)


def _within(problem: Problem, units: Sequence[int], deadline: float) -> tuple[Assignment, float]:
    """A larger interval, for less latency than a deadline."""

    def late(trial: Sequence[int]) -> tuple[float, float]:
        return max(0.0, place(problem, trial).makespan - deadline), problem.interval(trial)

    # Units that meet the deadline when inputs come one after the other, and of those the ones of least load.
    begin = [list(units), *starts(problem)]
    units = min((improved(problem, x, late, _POLISH) for x in begin), key=lambda x: x[1])[0]
    alone = place(problem, units)
    low, high = problem.interval(units), alone.makespan
    found, interval = alone, high
    for k in range(17):
        trial = low + (high - low) * k / 16
        placed = periodic(problem, units, trial)
        if placed.makespan <= deadline:
            found, interval = placed, trial
            break
    return found, interval


def best(problem: Problem, effort: int = EFFORT, nodes: int = NODES) -> tuple[list[int], str, bool]:
    """The units of the least interval found, the algorithm, and whether none is smaller."""
    if not problem.count:
        return [], "exact", True

    def loads(units: Sequence[int]) -> tuple[float, float]:
        of_units, of_links = problem.loads(units)
        shares = [*(load / problem.lanes[u] for u, load in enumerate(of_units)), *of_links]
        # The squares tell apart changes that leave the busiest as it is.
        return max(shares), sum(x * x for x in shares)

    begin = starts(problem)
    if problem.count <= _SMALL:
        # Most small works are searched sooner than units could be improved.
        units, proved = exact.least_interval(problem, min(begin, key=loads), nodes // 4)
        if proved:
            return units, "exact", True
        begin.append(units)
    found = min((improved(problem, x, loads, effort // len(begin)) for x in begin), key=lambda x: x[1])
    units = found[0]
    if chain.is_chain(problem):
        units, proved = _chain(problem, units)
        return units, "chain", proved
    units, proved = exact.least_interval(problem, units, nodes)
    return units, "exact" if proved else "search", proved


@final
@dataclass(frozen=True, slots=True)
class _State:
    """Loads of every unit (per lane) and every link, on a way to a task; its unit, and the way before."""

    loads: tuple[float, ...]
    unit: int
    before: _State | None


def _chain(problem: Problem, known: list[int]) -> tuple[list[int], bool]:
    p, units = problem, len(problem.units)
    most = p.interval(known)
    rest = [0.0] * (p.count + 1)
    for i in reversed(range(p.count)):
        rest[i] = rest[i + 1] + min(p.cost[i][u] for u in p.able[i])
    lanes, states = sum(p.lanes), max(16, _WAYS // (p.count * units * units))

    def add(loads: tuple[float, ...], i: int, a: int, u: int) -> tuple[float, ...]:
        """Task i on unit u, its values from memory a."""
        new = list(loads)
        new[u] += p.cost[i][u] / p.lanes[u]
        b = p.memory[u]
        if a != b:
            for v in p.needs[i]:
                if a != AT_HOST:
                    new[units + p.link[a]] += p.up[v][a]
                if b != AT_HOST:
                    new[units + p.link[b]] += p.down[v][b]
        return tuple(new)

    def fits(loads: tuple[float, ...], i: int) -> bool:
        spent = sum(x * n for x, n in zip(loads[:units], p.lanes, strict=True))
        return max(loads) < most * (1 - _ROUNDING) and spent + rest[i + 1] < most * lanes * (1 - _ROUNDING)

    zero = (0.0,) * (units + len(p.links))
    ways: list[_State] = []
    whole = True
    for i in range(p.count):
        now: list[_State] = []
        for u in p.able[i]:
            if i == 0:
                found = [_State(add(zero, 0, AT_HOST, u), u, None)]
            else:
                found = [_State(add(x.loads, i, p.memory[x.unit], u), u, x) for x in ways]
            kept = _unbeaten([x for x in found if fits(x.loads, i)], states)
            whole &= len(kept) <= states
            now += kept[:states]
        ways = now
    for x in ways:
        loads = list(x.loads)
        home = p.memory[x.unit]
        if home != AT_HOST:
            loads[units + p.link[home]] += sum(p.up[v][home] for v, wanted in enumerate(p.wanted) if wanted)
        if max(loads) < most * (1 - _ROUNDING):
            most = max(loads)
            known = _way(x)
    return known, whole


def _way(state: _State | None) -> list[int]:
    found: list[int] = []
    while state is not None:
        found.append(state.unit)
        state = state.before
    return found[::-1]


def _unbeaten(states: list[_State], most: int) -> list[_State]:
    """Those that no other beats in every load, the least loaded first; no more than one beyond ``most``."""
    kept: list[_State] = []
    if not states:
        return kept
    rows = np.empty((most + 1, len(states[0].loads)))
    for x in sorted(states, key=lambda x: (max(x.loads), sum(x.loads))):
        if not (rows[: len(kept)] <= x.loads).all(1).any():
            rows[len(kept)] = x.loads
            kept.append(x)
            if len(kept) > most:
                break
    return kept


@final
class _Turns:
    """What a unit or a link does, modulo its lanes times the interval."""

    def __init__(self, lanes: int, interval: float, packed: bool) -> None:
        self.lanes, self.interval, self.packed = lanes, interval, packed
        self.span = lanes * interval
        self.busy: list[tuple[float, float]] = []  # (phase, seconds) on lane 0
        self.next: float | None = None

    def take(self, ready: float, seconds: float) -> tuple[float, int] | None:
        """The first start from ``ready`` on, and its lane; None where no gap is long enough."""
        if seconds <= 0:
            return ready, 0
        found: tuple[float, int] | None = None
        for lane in range(self.lanes):
            phase = (ready - lane * self.interval) % self.span
            wait = self._wait(phase, seconds)
            if wait is not None and (found is None or ready + wait < found[0]):
                found = ready + wait, lane
        if found is not None:
            phase = (found[0] - found[1] * self.interval) % self.span
            self.busy.append((phase, seconds))
            self.next = (phase + seconds) % self.span
        return found

    def _wait(self, phase: float, seconds: float) -> float | None:
        if not self.busy:
            return 0.0
        if self.packed:
            assert self.next is not None
            wait = (self.next - phase) % self.span
            # A whole turn less rounding is none.
            return 0.0 if self.span - wait <= _ROUNDING * self.span else wait
        waits = sorted([0.0, *((at + length - phase) % self.span for at, length in self.busy)])
        slack = _ROUNDING * self.span
        for wait in waits:
            begin = phase + wait
            if all(self._free(begin, seconds, at, length, slack) for at, length in self.busy):
                return wait
        return None

    def _free(self, begin: float, seconds: float, at: float, length: float, slack: float) -> bool:
        """Whether a start does not meet what is done at a phase, before or after it on the circle."""
        behind = (begin - at) % self.span  # since that began
        if self.span - behind <= slack:
            behind = 0.0
        return behind >= length - slack and behind + seconds <= self.span + slack


def periodic(problem: Problem, units: Sequence[int], interval: float) -> Assignment:
    """One input's tasks on their units, so that inputs an interval apart do not meet; the interval must hold the loads.

    Of gaps filled and of everything packed, what has less latency.
    """
    if interval <= 0:
        return place(problem, units)
    order = problem.order(problem.ranks(units))
    packed: set[tuple[bool, int]] = set()
    while True:
        found = _turns(problem, units, order, interval, packed)
        if isinstance(found, Assignment):
            break
        # Its gaps were too short: one behind the other, this one.
        packed.add(found)
    every = {(True, u) for u in problem.units} | {(False, k) for k in range(len(problem.links))}
    other = _turns(problem, units, order, interval, every)
    assert isinstance(other, Assignment)
    return min(found, other, key=lambda x: x.makespan)


def _turns(
    problem: Problem, units: Sequence[int], order: Sequence[int], interval: float, packed: set[tuple[bool, int]]
) -> Assignment | tuple[bool, int]:
    p = problem
    rows = [_Turns(n, interval, (True, u) in packed) for u, n in enumerate(p.lanes)]
    links = [_Turns(1, interval, (False, k) in packed) for k in range(len(p.links))]
    there = [[inf] * len(p.memories) for _ in p.edges]
    placed = Assignment(list(units), [0] * p.count, [0.0] * p.count, {}, 0.0)
    for v, source in enumerate(p.source):
        if source == CALLER:
            there[v][AT_HOST] = 0.0

    def move(v: int, a: int, b: int, target: int) -> int | None:
        """Move a value; gives the link that has no gap for it."""
        seconds = p.seconds((v, a, b))
        link = p.link[a or b]
        at = links[link].take(there[v][a], seconds)
        if at is None:
            return link
        placed.moves[v, a, b, target] = at[0]
        there[v][b] = at[0] + seconds
        placed.makespan = max(placed.makespan, there[v][b])
        return None

    for i in order:
        goal = p.memory[units[i]]
        for v in sorted(p.needs[i], key=lambda v: min(there[v])):
            if there[v][goal] < inf:
                continue
            ways = [] if there[v][AT_HOST] < inf else [(p.memory[units[p.source[v]]], AT_HOST)]
            ways += [(AT_HOST, goal)] if goal != AT_HOST else []
            for a, b in ways:
                full = move(v, a, b, i)
                if full is not None:
                    return False, full
        ready = max((there[v][goal] for v in p.needs[i]), default=0.0)
        at = rows[units[i]].take(ready, p.cost[i][units[i]])
        if at is None:
            return True, units[i]
        placed.starts[i], placed.lanes[i] = at
        end = at[0] + p.cost[i][units[i]]
        placed.makespan = max(placed.makespan, end)
        for v in p.makes[i]:
            there[v][goal] = end
    for v, wanted in enumerate(p.wanted):
        if wanted and there[v][AT_HOST] == inf:
            full = move(v, p.memory[units[p.source[v]]], AT_HOST, CALLER)
            if full is not None:
                return False, full
    return placed
