"""Whether a unit may be given work: taken out, back-off, probes, heat. Times are handed in; no clock, no lock."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, final

from nxjax.backends.hybrid.policy import FaultPolicy, HeatLimits
from nxjax.backends.sensors.thermal import above

State = Literal["ok", "suspect", "out", "probing"]
Heat = Literal["unknown", "cool", "warm", "hot"]
NO_SENSOR: Final = "no sensor"


@final
@dataclass(frozen=True)
class UnitHealth:
    """The engine's view of a unit.

    Attributes:
        state: "ok"; "suspect" (readmitted, no answer since); "out"; "probing" (out, probe in progress).
        reason: why it is out; empty if it is not.
        since: seconds in this state.
        retry_in: seconds to the next probe; None if there is none.
        heat: "cool", "warm" (others are preferred), "hot" (out), or "unknown".
        celsius: the last temperature, or None, with the reason in ``heat_source``.
        answers: the number of finished jobs. failures: how often it was taken out.
        lost: the number of its hung threads.

    >>> device = nx.Hybrid("reference", "cpu")
    >>> device.take_out("reference", "not needed")
    >>> device.health()["reference"].state
    'out'
    """

    name: str
    state: State
    reason: str
    since: float
    retry_in: float | None
    heat: Heat
    celsius: float | None
    heat_source: str
    answers: int
    failures: int
    lost: int

    def __str__(self) -> str:
        text = f"{self.name}: {self.state}"
        if self.reason:
            text += f" ({self.reason})"
        if self.celsius is not None:
            text += f", {self.celsius:.0f} degrees C"
        elif self.heat_source not in ("", NO_SENSOR):
            text += f", temperature unavailable: {self.heat_source}"
        return text


@final
class Health:
    """The state of one unit.

    Attributes:
        level: how often it was taken out without `FaultPolicy.regain` good jobs in between.
        retry: when it may be probed; infinite if never.
        lied: it gave wrong answers and has not yet passed enough probes.
        by_user: it was taken out by hand, and comes back by hand.
    """

    __slots__ = (
        "_policy", "answers", "by_user", "failures", "good", "level", "lied", "passes", "reason", "retry",
        "since", "state",
    )  # fmt: skip

    def __init__(self, policy: FaultPolicy, now: float) -> None:
        self._policy = policy
        self.state: State = "ok"
        self.reason = ""
        self.since = now
        self.retry = math.inf
        self.level = self.failures = self.answers = self.good = self.passes = 0
        self.lied = self.by_user = False

    @property
    def fine(self) -> bool:
        """Whether it may be given work."""
        return self.state == "ok" or self.state == "suspect"

    @property
    def may_return(self) -> bool:
        """Whether it is out, and may soon be back if somebody needs it."""
        return (
            not self.fine and not self.lied and not self.by_user and (self.retry < math.inf or self.state == "probing")
        )

    def backoff(self) -> float:
        """How long it stays out at its present level."""
        return min(self._policy.backoff * 2.0 ** min(self.level - 1, 60), self._policy.backoff_most)

    def take_out(self, now: float, reason: str, *, lied: bool = False, by_user: bool = False) -> None:
        """It has failed."""
        if self.fine:
            self.level += 1
            self.failures += 1
        self.state, self.reason, self.since = "out", reason, now
        self.good = self.passes = 0
        self.lied |= lied
        self.by_user |= by_user
        never = self.by_user or (self.lied and not self._policy.lie_probes)
        self.retry = math.inf if never else now + self.backoff()

    def probing(self, now: float) -> None:
        self.state = "probing"
        self.retry = math.inf

    def probe_failed(self, now: float, reason: str) -> None:
        """It stays out, for longer."""
        self.level += 1
        self.state, self.reason, self.passes = "out", reason, 0
        self.retry = now + self.backoff()

    def probe_passed(self, now: float) -> bool:
        """Whether it is back: a unit that lied must pass several in a row."""
        self.passes += 1
        if self.lied and self.passes < self._policy.lie_probes:
            self.state = "out"
            self.retry = now + self.backoff()
            return False
        self.back(now)
        return True

    def back(self, now: float) -> None:
        """It is used again; the next failure still counts as a further one."""
        self.state, self.reason, self.since, self.retry = "suspect", "", now, math.inf
        self.lied = self.by_user = False
        self.passes = self.good = 0

    def worked(self) -> None:
        """It has done a job."""
        self.answers += 1
        if self.level or self.state == "suspect":
            self.good += 1
            if self.state == "suspect":
                self.state = "ok"
            if self.good >= self._policy.regain:
                self.level = 0


@final
class Thermal:
    """What the temperatures of one unit say: cool, warm or hot, with hysteresis."""

    __slots__ = ("_limits", "celsius", "heat", "when", "why")

    def __init__(self, limits: HeatLimits) -> None:
        self._limits = limits
        self.heat: Heat = "unknown"
        self.celsius: float | None = None
        self.why = ""
        self.when = -math.inf

    def read(self, now: float, celsius: float | None, why: str = "") -> Heat:
        """A reading has come; one that is unavailable (or no number) changes nothing.

        >>> thermal = Thermal(HeatLimits(80, 85, 5))
        >>> [thermal.read(0, c) for c in (70, 81, 86, 81, None, 79, 74)]
        ['cool', 'warm', 'hot', 'hot', 'hot', 'warm', 'cool']
        """
        if celsius is None or not math.isfinite(celsius):
            self.celsius = None
            self.why = why or "the sensor gave no temperature"
            return self.heat
        limits = self._limits
        self.celsius, self.why, self.when = celsius, "", now
        if above(celsius, limits.maximum, self.heat == "hot", limits.hysteresis):
            self.heat = "hot"
        elif above(celsius, limits.warning, self.heat in ("warm", "hot"), limits.hysteresis):
            self.heat = "warm"
        else:
            self.heat = "cool"
        return self.heat
