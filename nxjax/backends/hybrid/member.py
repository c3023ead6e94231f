"""The engine's book of one unit: its queue, its lanes, its health."""

from __future__ import annotations

from heapq import heappop
from itertools import count
from typing import Any, final

from nxjax.backends.hybrid.health import Health, Thermal
from nxjax.backends.hybrid.lanes import Lane, Thermometer
from nxjax.backends.hybrid.policy import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.run import Attempt


@final
class Member:
    """The engine's book of one unit.

    Attributes:
        queue: what it is to do, by run, then by job.
        idle: its lanes that are parked. lanes: all that are not taken for hung.
        group: the other units of its group, which take work from it and it from them.
        outs: how often it was taken out, so that a blame that is taken back meets the right one.
        lost: how many of its threads do not come back.
        checked: jobs of which an answer was asked of a second unit since it was taken out last.
    """

    __slots__ = (
        "checked", "fine", "group", "health", "idle", "interrupting", "lanes", "lost", "name", "numbers", "options",
        "outs", "probe", "queue", "thermal", "thermometer",
    )  # fmt: skip

    def __init__(self, name: str, options: LaneOptions, policy: FaultPolicy, now: float) -> None:
        self.name = name
        self.options = options
        self.health = Health(policy, now)
        self.thermal = Thermal(options.heat)
        self.thermometer: Thermometer | None = None
        self.queue: list[tuple[int, int, int, Attempt]] = []
        self.idle: list[Lane] = []
        self.lanes: list[Lane] = []
        self.group: tuple[Member, ...] = ()
        self.numbers = count()
        self.outs = 0
        self.checked: set[str] = set()
        self.lost = 0
        self.probe: Any = None
        self.interrupting = 0.0
        self.fine = True

    def assess(self) -> None:
        """Whether it is given work without second thoughts."""
        self.fine = self.health.fine and self.thermal.heat not in ("warm", "hot")

    @property
    def usable(self) -> bool:
        return self.health.fine and self.thermal.heat != "hot"

    def next(self) -> Attempt | None:
        """What a lane of it does next: the first of its queue, else of another's in its group."""
        while self.queue:
            attempt = heappop(self.queue)[-1]
            if attempt.wanted():
                return attempt
        if not self.fine:
            return None
        for other in self.group:
            for place, entry in enumerate(other.queue):
                attempt = entry[-1]
                run, i = attempt.run, attempt.job
                ours = self.name in run.graph.jobs[i].runs and self.name not in run.tried.get(i, ())
                if ours and attempt.check is None and attempt.wanted():
                    other.queue[place] = other.queue[-1]
                    other.queue.pop()
                    other.queue.sort()
                    attempt.unit = self
                    return attempt
        return None
