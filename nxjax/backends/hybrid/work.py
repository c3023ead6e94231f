"""What is to be done: tasks, what each needs of the others, and what time and energy each takes on each unit.

Plain data. Knows no program, no backend and no schedule. The model, which every algorithm of this folder shares:

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, final

from nxjax.errors import ParameterError

HOST: Final = "host"  # the caller's memory
CALLER: Final = -1  # as the source of an edge: an argument
Cost = Callable[[str, str, int], float]


def _none() -> dict[str, float]:
    return {}


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
    joules: Mapping[str, float] = field(default_factory=_none)
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
                raise ParameterError(
                    f"schedule: {who} needs a value of a task that does not exist",
                    got=e.source,
                    expected=f"below {count}",
                )
            _number(e.nbytes, f"bytes of value {e.value} of task {e.source}")
            if sizes.setdefault((e.source, e.value), e.nbytes) != e.nbytes:
                raise ParameterError(
                    f"schedule: value {e.value} of task {e.source} has two sizes",
                    got=f"{sizes[e.source, e.value]} and {e.nbytes} bytes",
                )
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
            raise ParameterError("schedule: tasks need each other in a circle", got=names)
        raise ParameterError(
            "schedule: a task is before one whose value it needs",
            expected="each task after those that it needs",
        )

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
        raise ParameterError(f"schedule: {what}", got=x, expected="0 or more, and finite")
