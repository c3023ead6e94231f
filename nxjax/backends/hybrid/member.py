"""The engine's book of one unit: its queue, its lanes, its health, and how long jobs take on it."""

from __future__ import annotations

import threading
from heapq import heappop
from itertools import count
from typing import Final, final

from nxjax.backends.hybrid.health import Health, Thermal
from nxjax.backends.hybrid.jobs import Job
from nxjax.backends.hybrid.lanes import Lane
from nxjax.backends.hybrid.policy import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.run import Attempt

# Weights of the newest time in the mean and in the mean deviation: those of TCP's retransmission timer (RFC 6298).
_MEAN: Final = 1 / 8
_DEVIATION: Final = 1 / 4
# A unit that takes a job over may have to compile it first.
_TAKEN_OVER: Final = 6


@final
class Member:
    """The engine's book of one unit.

    Attributes:
        queue: what it is to do, by run, then by job.
        idle: its lanes that are parked. lanes: all that are not taken for hung.
        group: the other units of its group, which take work from it and it from them.
        lost: how many of its threads do not come back.
        checked: jobs of which an answer was asked of a second unit since it was taken out last.
        probe: the deadline of the probe under way, None if there is none. interrupting: when its interrupt began, or 0.
        read_at: when its sensor is read next; infinite while it is read. told: it has answered once.
    """

    __slots__ = (
        "_times", "checked", "fine", "group", "health", "idle", "interrupting", "lanes", "lost", "name", "numbers",
        "options", "policy", "probe", "queue", "read_at", "thermal", "told",
    )  # fmt: skip

    def __init__(self, name: str, options: LaneOptions, policy: FaultPolicy, now: float) -> None:
        self.name, self.options, self.policy = name, options, policy
        self.health = Health(policy, now)
        self.thermal = Thermal(options.heat)
        self.group: tuple[Member, ...] = ()
        self.numbers = count()
        self.checked: set[str] = set()
        self.fine = True
        # Per job: mean, mean deviation, and whether it was the first time.
        self._times: dict[str, tuple[float, float, bool]] = {}
        self.queue: list[tuple[int, int, int, Attempt]] = []
        self.reset()

    def reset(self) -> None:
        """No thread of it exists (any more)."""
        self.queue.clear()
        self.idle: list[Lane] = []
        self.lanes: list[Lane] = []
        self.lost = 0
        self.probe: float | None = None
        self.interrupting = self.read_at = 0.0
        self.told = threading.Event()

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
                ours = self.name in run.graph.jobs[i].runs and not run.failures(i, self.name)
                if ours and attempt.check is None and attempt.wanted():
                    other.queue[place] = other.queue[-1]
                    other.queue.pop()
                    other.queue.sort()
                    attempt.unit = self
                    return attempt
        return None

    # --- how long jobs take ---

    def expected(self, job: Job) -> float | None:
        """Seconds that a job should take: its mean time and four mean deviations; its estimate before it has run."""
        known = self._times.get(job.name)
        return job.seconds.get(self.name) if known is None else known[0] + 4 * known[1]

    def allowed(self, job: Job) -> float:
        """Seconds after which it is taken for hung."""
        policy, expected = self.policy, self.expected(job)
        first = policy.first if self.name == job.unit else _TAKEN_OVER * policy.first
        more = 0.0 if job.name in self._times else first
        return policy.factor * (policy.unknown if expected is None else expected) + policy.slack + more

    def learn(self, job: str, seconds: float) -> None:
        """A job took so long. The first time, which may have loaded things, counts only until the second."""
        known = self._times.get(job)
        if known is None or known[2]:
            self._times[job] = (seconds, seconds / 2, known is None)
        else:
            mean, deviation, _ = known
            away = seconds - mean
            self._times[job] = (mean + _MEAN * away, deviation + _DEVIATION * (abs(away) - deviation), False)
