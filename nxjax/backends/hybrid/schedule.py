"""What was decided: who runs which task when, and when which value moves. Checked against the work it is for.

Plain data. Knows no algorithm: `Schedule.check` tests what every schedule must hold, whoever made it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final, Literal, final

from nxjax.backends.hybrid.work import CALLER, HOST, Edge, Work
from nxjax.errors import ParameterError

Objective = Literal["latency", "throughput", "energy"]
OBJECTIVES: Final[tuple[Objective, ...]] = ("latency", "throughput", "energy")
_SLACK: Final = 1e-9  # rounding, as a share of the longest time


@final
@dataclass(frozen=True)
class Slot:
    """A task on a lane of a unit, in seconds from the call (of input 0). ``item`` is the input of a stream."""

    task: int
    unit: str
    lane: int
    start: float
    finish: float
    item: int = 0


@final
@dataclass(frozen=True)
class Transfer:
    """A value that moves from one memory to another.

    Attributes:
        source, value: the task and the result, as in `Edge`.
        target: the first task that needs it there; `CALLER` if only the caller does.
        from_unit, to_unit: memories; one of the two is `HOST`.
    """

    source: int
    value: int
    target: int
    from_unit: str
    to_unit: str
    nbytes: int
    start: float
    finish: float
    item: int = 0


@final
@dataclass(frozen=True)
class Schedule:
    """Slots and transfers of one call.

    Attributes:
        slots: by task index.
        transfers: by start.
        objective: of the search.
        by: the algorithm that found it.
        exact: no schedule is better by its objective.
        interval: seconds from one input of a stream to the next. In a schedule for throughput, input k does everything
            ``k * interval`` later than input 0, on lane ``(lane + k) % lanes``. Otherwise inputs come one after the
            other, and it is the makespan.
        joules: of all tasks and transfers; None where one of them is unknown.
        notes: for readers, such as a unit that was left out because its energy is unknown.
    """

    slots: tuple[Slot, ...]
    transfers: tuple[Transfer, ...]
    objective: Objective
    by: str
    exact: bool
    interval: float
    joules: float | None = None
    notes: tuple[str, ...] = ()

    @property
    def makespan(self) -> float:
        """Seconds from the call to the last result: the latency of one input, or the span of all inputs."""
        return max((x.finish for x in (*self.slots, *self.transfers)), default=0.0)

    @property
    def inflight(self) -> int:
        """The number of inputs in progress at a time."""
        if self.interval <= 0:
            return 1
        return max(1, math.ceil(self.makespan / self.interval * (1 - _SLACK)))

    @property
    def units(self) -> tuple[str, ...]:
        """The units that have tasks."""
        return tuple(dict.fromkeys(s.unit for s in self.slots))

    def assignment(self) -> tuple[str, ...]:
        """Each task's unit."""
        return tuple(s.unit for s in sorted(self.slots, key=lambda s: (s.item, s.task)) if s.item == 0)

    def unrolled(self, work: Work, count: int) -> Schedule:
        """The first ``count`` inputs of a stream, each an ``interval`` after the previous one."""
        if count < 1:
            raise ParameterError("schedule: inputs to unroll", got=count, expected="1 or more")
        slots: list[Slot] = []
        transfers: list[Transfer] = []
        # Inputs that come one after the other need not change lanes.
        turn = 1 if self.interval < self.makespan * (1 - _SLACK) else 0
        for k in range(count):
            late = k * self.interval
            for s in self.slots:
                lane = (s.lane + turn * k) % work.lanes_of(s.unit)
                slots.append(replace(s, lane=lane, start=s.start + late, finish=s.finish + late, item=k))
            transfers += [replace(t, start=t.start + late, finish=t.finish + late, item=k) for t in self.transfers]
        joules = None if self.joules is None else self.joules * count
        return replace(self, slots=tuple(slots), transfers=tuple(transfers), joules=joules)

    def check(self, work: Work) -> None:
        """Test that this is a schedule of ``work``: every task once, on a unit that can run it, for as long as it
        takes; no lane and no link used twice at one time; every value in place before it is needed, by a transfer if it
        was made elsewhere, and results with the caller. With an interval below the makespan, overlapping inputs are
        checked, too.

        Raises:
            ParameterError: it is not one; the message says why.
        """
        _check(self, work)
        if self.interval < self.makespan * (1 - _SLACK):
            if self.interval <= 0:
                raise ParameterError("schedule: the interval of a stream", got=self.interval, expected="above 0")
            lanes = max((work.lanes_of(unit) for unit in self.units), default=1)
            _apart(self.unrolled(work, self.inflight + lanes + 1), work)


def joules(work: Work, slots: Iterable[Slot], transfers: Iterable[Transfer]) -> tuple[float | None, tuple[str, ...]]:
    """Energy of slots and transfers, and what is to be said of it; None where a task's or a transfer's is unknown."""
    total = 0.0
    unknown = [s for s in slots if s.unit not in work.tasks[s.task].joules]
    if unknown:
        return None, ()
    for s in slots:
        total += work.tasks[s.task].joules[s.unit]
    moved = list(transfers)
    if moved and work.transfer_joules is None:
        return total, ("the energy of transfers is unknown and not counted",)
    for t in moved:
        assert work.transfer_joules is not None
        total += work.transfer_joules(t.from_unit, t.to_unit, t.nbytes)
    return total, ()


def _wrong(what: str, got: object, expected: object = None) -> ParameterError:
    return ParameterError(f"schedule: {what}", got=got, expected=expected)


def _check(schedule: Schedule, work: Work) -> None:
    if [s.task for s in schedule.slots] != list(range(len(work.tasks))):
        raise _wrong("its slots are not the tasks", [s.task for s in schedule.slots], f"0 to {len(work.tasks) - 1}")
    slack = _SLACK * schedule.makespan
    for s in schedule.slots:
        seconds = work.tasks[s.task].seconds.get(s.unit)
        if s.unit not in work.units or seconds is None:
            raise _wrong(f"task {s.task} is on a unit that cannot run it", s.unit)
        if not 0 <= s.lane < work.lanes_of(s.unit):
            raise _wrong(f"task {s.task} is on a lane that there is not", s.lane, f"below {work.lanes_of(s.unit)}")
        if s.start < -slack or abs(s.finish - s.start - seconds) > slack:
            raise _wrong(f"task {s.task} has the wrong length", (s.start, s.finish), f"{seconds} s from 0 on")
    there = _arrivals(schedule, work, slack)
    for i, task in enumerate(work.tasks):
        memory = work.memory_of(schedule.slots[i].unit)
        for e in task.after:
            _needs(there, e, memory, schedule.slots[i].start + slack, f"task {i}")
    for e in work.results:
        _needs(there, e, HOST, math.inf, "the caller")
    _apart(schedule, work)


def _arrivals(schedule: Schedule, work: Work, slack: float) -> dict[tuple[int, int, str], float]:
    """When each (source, value) is in a memory."""
    there: dict[tuple[int, int, str], float] = {}
    for e in _edges(work):
        if e.source == CALLER:
            there[CALLER, e.value, HOST] = 0.0
        else:
            slot = schedule.slots[e.source]
            there[e.source, e.value, work.memory_of(slot.unit)] = slot.finish
    sizes = {(e.source, e.value): e.nbytes for e in _edges(work)}
    for t in sorted(schedule.transfers, key=lambda t: (t.start, t.finish, t.to_unit != HOST)):
        who = f"the transfer of value {t.value} of task {t.source} to {t.to_unit!r}"
        if (t.from_unit == HOST) == (t.to_unit == HOST):
            raise _wrong(f"{who} does not begin or end in the host's memory", t.from_unit)
        if t.nbytes != sizes.get((t.source, t.value)):
            raise _wrong(f"{who} has the wrong size", t.nbytes, sizes.get((t.source, t.value)))
        seconds = work.transfer(t.from_unit, t.to_unit, t.nbytes)
        if abs(t.finish - t.start - seconds) > slack:
            raise _wrong(f"{who} has the wrong length", t.finish - t.start, seconds)
        if (t.source, t.value, t.to_unit) in there:
            raise _wrong(f"{who} is done twice", t.to_unit)
        if there.get((t.source, t.value, t.from_unit), math.inf) > t.start + slack:
            raise _wrong(f"{who} begins before the value is in {t.from_unit!r}", t.start)
        there[t.source, t.value, t.to_unit] = t.finish
    return there


def _edges(work: Work) -> list[Edge]:
    return [e for task in work.tasks for e in task.after] + list(work.results)


def _needs(there: Mapping[tuple[int, int, str], float], e: Edge, memory: str, by: float, who: str) -> None:
    when = there.get((e.source, e.value, memory))
    if when is None or when > by:
        raise _wrong(f"{who} does not have value {e.value} of task {e.source} in {memory!r} when it needs it", when, by)


def _apart(schedule: Schedule, work: Work) -> None:
    """No two things at one time on one lane or one link."""
    slack = _SLACK * schedule.makespan
    rows: dict[tuple[str, str, int], list[tuple[float, float, str]]] = {}
    for s in schedule.slots:
        rows.setdefault(("lane", work.processor_of(s.unit), s.lane), []).append(
            (s.start, s.finish, f"task {s.task} of input {s.item}")
        )
    for t in schedule.transfers:
        link = work.link_of(t.to_unit if t.from_unit == HOST else t.from_unit)
        rows.setdefault(("link", link, 0), []).append((t.start, t.finish, f"value {t.value} of task {t.source}"))
    for (kind, name, lane), row in rows.items():
        _disjoint([x for x in row if x[1] - x[0] > slack], slack, f"{kind} {lane} of {name!r}")


def _disjoint(row: Sequence[tuple[float, float, str]], slack: float, where: str) -> None:
    for a, b in pairwise(sorted(row)):
        if b[0] < a[1] - slack:
            raise _wrong(f"{where} does two things at one time", f"{a[2]} until {a[1]}, {b[2]} from {b[0]}")
