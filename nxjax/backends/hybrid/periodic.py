"""Streams: one input's tasks at times that the next input can keep one interval later, and the next after it.

Why there are such times for every interval that holds the loads: let every input do the same as the one before, an
interval later. Then a lane (of L, where inputs take turns) sees its tasks again every L intervals, and what has to be
found are times, modulo L intervals, at which they do not meet. Packed one behind the other they never do, as they are
no longer than L intervals together; each task then begins at its next turn after its values are there. Turns are waited
for at most L intervals each, so the price is latency, not throughput. Filling gaps, first come first served, mostly
waits less, where that fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Final, final

from nxjax.backends.hybrid.placing import AT_HOST, Assignment, Problem, place
from nxjax.backends.hybrid.work import CALLER

_ROUNDING: Final = 1e-12


@final
class _Turns:
    """What a processor or a link does, modulo its lanes times the interval: ``packed``, or in gaps."""

    def __init__(self, lanes: int, interval: float, packed: bool) -> None:
        self.lanes, self.interval, self.span, self.packed = lanes, interval, lanes * interval, packed
        self.busy: list[tuple[float, float]] = []  # (phase, seconds) on lane 0

    def take(self, ready: float, seconds: float) -> tuple[float, int]:
        """The first start from ``ready`` on, and its lane; infinite where no gap is long enough."""
        if seconds <= 0 or ready == inf:
            return ready, 0
        start, lane = min((ready + self._wait(ready - k * self.interval, seconds), k) for k in range(self.lanes))
        self.busy.append(((start - lane * self.interval) % self.span, seconds))
        return start, lane

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
    return min((_turns(problem, units, interval, packed) for packed in (False, True)), key=lambda x: x.makespan)


def _turns(problem: Problem, units: Sequence[int], interval: float, packed: bool) -> Assignment:
    """Its makespan is infinite where gaps were too short."""
    p = problem
    rows = [_Turns(lanes, interval, packed) for lanes in (*p.lanes, *(1 for _ in p.links))]
    there = [[0.0 if source == CALLER and m == AT_HOST else inf for m in range(len(p.memories))] for source in p.source]
    placed = Assignment(list(units), [0] * p.count, [0.0] * p.count, {}, 0.0)

    def move(v: int, goal: int, target: int) -> None:
        home = AT_HOST if p.source[v] == CALLER else p.memory[units[p.source[v]]]
        for a, b in ((home, AT_HOST), (AT_HOST, goal)):
            if there[v][b] == inf:
                seconds = p.seconds((v, a, b))
                start, _ = rows[p.at((v, a, b))].take(there[v][a], seconds)
                placed.moves[v, a, b, target] = start
                there[v][b] = start + seconds
                placed.makespan = max(placed.makespan, start + seconds)

    for i in p.order:
        goal = p.memory[units[i]]
        for v in sorted(p.needs[i], key=lambda v: min(there[v])):
            if there[v][goal] == inf:
                move(v, goal, i)
        ready = max((there[v][goal] for v in p.needs[i]), default=0.0)
        start, placed.lanes[i] = rows[p.row[units[i]]].take(ready, p.cost[i][units[i]])
        placed.starts[i], end = start, start + p.cost[i][units[i]]
        placed.makespan = max(placed.makespan, end)
        for v in p.makes[i]:
            there[v][goal] = end
    for v, wanted in enumerate(p.wanted):
        if wanted and there[v][AT_HOST] == inf:
            move(v, AT_HOST, CALLER)
    return placed
