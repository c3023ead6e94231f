"""Work and its schedule: tasks and what each takes on each unit; who runs which when, and when which value moves.

Plain data. Knows no program, no backend and no algorithm: `Schedule.check` tests what every schedule must hold, whoever
made it. The model, which every algorithm of this folder shares:

* A unit has lanes, and a lane runs one task at a time, from begin to end. Units that share a processor, such as two
  executors on the host's cores, share its lanes: they take turns.
* Every unit computes in a memory: one of its own, or one that it shares. The caller's values lie in the memory
  ``host``, and so do those of units that compute there, such as a CPU.
* Values move between the host's memory and a device's. From one device to another they go through the host's, in two
  moves, as the runtimes do it. What was moved somewhere once is there for all who need it.
* A device's link moves one value at a time, one way or the other. Devices may share a link (two sticks on one bus).
  A value moves as a whole, after the task that makes it has ended and before the task that needs it begins.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Final, Literal, final

from nxjax.errors import ParameterError

HOST: Final = "host"  # the caller's memory
CALLER: Final = -1  # as the source of an edge: an argument
Cost = Callable[[str, str, int], float]


@final
@dataclass(frozen=True)
class Edge:
    """A value that a task needs, or that the caller gets.

    Attributes:
        source: index of the task that makes it, or `CALLER`.
        nbytes: its size.
        value: the index among its source's results, or among the caller's arguments. Edges with the same source and
            value are the same value.
    """

    source: int
    nbytes: int
    value: int = 0


@final
@dataclass(frozen=True)
class Task:
    """A task that one unit runs without a break.

    Attributes:
        name: for people.
        seconds: per unit; a unit that is missing cannot run it.
        joules: per unit, the energy that the task adds to the machine's; missing if unknown.
        after: the values it needs.
    """

    name: str
    seconds: Mapping[str, float]
    joules: Mapping[str, float] = field(default_factory=dict[str, float])
    after: tuple[Edge, ...] = ()


@final
@dataclass(frozen=True)
class Work:
    """The work of one call.

    Attributes:
        tasks: each after those that it needs.
        units: their names, the preferred first: of two equally good ones the first is taken.
        transfer: seconds for a number of bytes from one memory to another; one of the two is always `HOST`.
        results: the values that the caller gets.
        lanes: how many tasks a unit runs at once, by default 1.
        memory: the memory of a unit, by default its own, with the unit's name.
        links: the link of a memory, by default its own, with the memory's name.
        transfer_joules: energy of a transfer; None if unknown.
        processors: the processor that a unit shares with others; its lanes are those of the unit with the fewest.

    >>> work = Work(
    ...     (Task("conv", {"npu": 1e-3, "cpu": 4e-3}, after=(Edge(CALLER, 1000),)),
    ...      Task("top_k", {"cpu": 1e-4}, after=(Edge(0, 4000),))),
    ...     ("npu", "cpu"), lambda a, b, nbytes: 1e-5 + nbytes / 1e9,
    ...     results=(Edge(1, 40),), memory={"cpu": HOST})
    >>> work.check()
    >>> work.memory_of("npu"), work.memory_of("cpu"), work.lanes_of("npu")
    ('npu', 'host', 1)
    """

    tasks: tuple[Task, ...]
    units: tuple[str, ...]
    transfer: Cost
    results: tuple[Edge, ...] = ()
    lanes: Mapping[str, int] = field(default_factory=dict[str, int])
    memory: Mapping[str, str] = field(default_factory=dict[str, str])
    links: Mapping[str, str] = field(default_factory=dict[str, str])
    transfer_joules: Cost | None = None
    processors: Mapping[str, str] = field(default_factory=dict[str, str])

    def processor_of(self, unit: str) -> str:
        return self.processors.get(unit, unit)

    def lanes_of(self, unit: str) -> int:
        own = self.processor_of(unit)
        return min(self.lanes.get(u, 1) for u in (unit, *self.units) if self.processor_of(u) == own)

    def memory_of(self, unit: str) -> str:
        return self.memory.get(unit, unit)

    def link_of(self, memory: str) -> str:
        """The link of a device's memory. The host's has none."""
        return self.links.get(memory, memory)

    def check(self) -> None:
        """Raise an error if it is not valid.

        Raises:
            ParameterError: no units, a task that no unit can run, a time or size that is negative or not a number,
                lanes below one, tasks in a circle or in the wrong order, contradicting sizes.
        """
        if not self.units:
            raise ParameterError("schedule: there is no unit", expected="one unit or more")
        if len(set(self.units)) != len(self.units):
            raise ParameterError("schedule: a unit is named twice", got=", ".join(self.units))
        if HOST in self.units:
            raise ParameterError(
                f"schedule: a unit is called {HOST!r}, as the caller's memory is",
                fix=f"call it something else, and give memory={{name: {HOST!r}}}",
            )
        for unit, lanes in self.lanes.items():
            if lanes < 1:
                raise ParameterError(f"schedule: lanes of unit {unit!r}", got=lanes, expected="1 or more")
        for i, task in enumerate(self.tasks):
            self._check_task(i, task)
        self._check_edges()
        self._check_transfers()

    def _check_task(self, i: int, task: Task) -> None:
        if not any(unit in task.seconds for unit in self.units):
            known = ", ".join(task.seconds) or "no unit at all"
            raise ParameterError(
                f"schedule: no unit can run task {i}, {task.name!r}",
                got=f"it runs on {known}; the units are {', '.join(self.units)}",
                fix="add a unit that runs everything, such as the CPU",
            )
        for what, costs in (("seconds", task.seconds), ("joules", task.joules)):
            for unit, cost in costs.items():
                _number(cost, f"{what} of task {i}, {task.name!r}, on {unit!r}")

    def _check_edges(self) -> None:
        count = len(self.tasks)
        sizes: dict[tuple[int, int], int] = {}
        wanted = [(i, e) for i, task in enumerate(self.tasks) for e in task.after]
        late = False
        for i, e in [*wanted, *((count, e) for e in self.results)]:
            who = f"task {i}, {self.tasks[i].name!r}," if i < count else "the caller"
            if not (CALLER <= e.source < count) or (i == count and e.source == CALLER):
                raise _wrong(f"{who} needs a value of a task that does not exist", e.source, f"below {count}")
            _number(e.nbytes, f"bytes of value {e.value} of task {e.source}")
            if sizes.setdefault((e.source, e.value), e.nbytes) != e.nbytes:
                found = f"{sizes[e.source, e.value]} and {e.nbytes} bytes"
                raise _wrong(f"value {e.value} of task {e.source} has two sizes", found)
            late |= e.source >= i
        if not late:
            return
        # A circle, or only the wrong order: take away tasks that need nothing that is left, until none is.
        left = {i: {e.source for e in task.after if e.source != CALLER} for i, task in enumerate(self.tasks)}
        while free := [i for i, needs in left.items() if not needs & left.keys()]:
            for i in free:
                del left[i]
        if left:
            names = ", ".join(repr(self.tasks[i].name) for i in left)
            raise _wrong("tasks need each other in a circle", names)
        raise _wrong("a task is before one whose value it needs", expected="each task after those that it needs")

    def _check_transfers(self) -> None:
        memories = {self.memory_of(unit) for unit in self.units} - {HOST}
        values = {e.nbytes for task in self.tasks for e in task.after} | {e.nbytes for e in self.results}
        for nbytes in (min(values), max(values)) if values else ():
            for memory in memories:
                for a, b in ((HOST, memory), (memory, HOST)):
                    _number(self.transfer(a, b, nbytes), f"seconds of a transfer from {a!r} to {b!r}")
                    if self.transfer_joules is not None:
                        _number(self.transfer_joules(a, b, nbytes), f"joules of a transfer from {a!r} to {b!r}")


def _number(x: float, what: str) -> None:
    if not (0 <= x < math.inf):
        raise _wrong(what, x, "0 or more, and finite")


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


def _wrong(what: str, got: object = None, expected: object = None) -> ParameterError:
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
