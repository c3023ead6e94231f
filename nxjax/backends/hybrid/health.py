"""How units are and what the engine is told of them: patience, limits of heat, state, and what has happened.

Times are handed in; no clock but an event's, no lock.
"""

from __future__ import annotations

import math
import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, Literal, Protocol, final

from nxjax.backends.hybrid.jobs import Value
from nxjax.backends.sensors.thermal import above
from nxjax.errors import ParameterError
from nxjax.trace.boundary import entry


class Temperature(Protocol):
    """What a sensor answers; `nxjax.backends.sensors.Reading` is one."""

    @property
    def celsius(self) -> float | None: ...
    @property
    def why(self) -> str: ...


@final
@dataclass(frozen=True)
class HeatLimits:
    """Temperature limits of a unit, in degrees Celsius.

    Attributes:
        warning: above it, other units are preferred.
        maximum: above it, the unit is not used.
        hysteresis: how far it must fall below a limit before the limit no longer applies.

    >>> HeatLimits(maximum=95.0).warning
    80.0
    """

    warning: float = 80.0
    maximum: float = 85.0
    hysteresis: float = 5.0

    @entry
    def __post_init__(self) -> None:
        if not (self.warning <= self.maximum and self.hysteresis >= 0):
            raise ParameterError(
                "heat limits: the warning must not be above the maximum, the hysteresis not negative", got=self
            )


# Defaults per kind of unit, which a user may set otherwise.
HEAT: Final = {"npu": HeatLimits(80.0, 85.0), "gpu": HeatLimits(80.0, 85.0), "cpu": HeatLimits(80.0, 90.0)}


@final
@dataclass(frozen=True)
class FaultPolicy:
    """Deadlines, retries and checks of the engine. Times are seconds.

    A job with expected time *e* on a unit may take ``factor`` x *e* + ``slack`` before the unit counts as hung,
    ``first`` more the first time it runs there (six times as much on a unit that takes it over), and ``last`` times all
    of that if no other unit supports it.

    Attributes:
        factor, slack, first, last: as above.
        unknown: *e* without an estimate or measurement.
        deadlines: whether there are deadlines at all.
        tries: how often one unit may fail at one job before it no longer gets it.
        backoff, backoff_most: how long a unit stays out the first time; each further time doubles it, up to the most.
        regain: after this many jobs without a fault, the next failure counts as the first.
        probe: how long a probe may take.
        lie_probes: how many probes in a row a unit with wrong answers must pass; 0: only the user readmits it.
        lost: how many threads of a unit may hang at once before it is no longer probed.
        verify: the fraction of a unit's answers that a second unit checks, and always the first one to each job; 0:
            none. Exact jobs are compared bit for bit, others by their tolerance.
        tolerance: the largest difference of floats, as a share of the largest one in the result; None: the tolerance of
            each job.
        nan: whether a float result with a NaN is always run on a second unit.
        seed: for the choice of jobs to verify.
        warm: factor on a warm unit's estimates, if another unit supports the job.
        heat_period: time between readings of temperatures during runs.

    >>> careful = FaultPolicy(verify=0.05, factor=4.0)
    >>> careful.verify, careful.tries
    (0.05, 2)
    >>> round(careful.detection(1000, 0.02), 2), round(FaultPolicy().detection(1000, 0.02), 2)
    (0.64, 0.2)
    """

    factor: float = 10.0
    slack: float = 1.0
    first: float = 5.0
    last: float = 10.0
    unknown: float = 3.0
    deadlines: bool = True
    tries: int = 2
    backoff: float = 0.5
    backoff_most: float = 60.0
    regain: int = 100
    probe: float = 5.0
    lie_probes: int = 3
    lost: int = 8
    verify: float = 0.01
    tolerance: float | None = None
    nan: bool = False
    seed: int = 0
    warm: float = 2.0
    heat_period: float = 1.0

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if not isinstance(value, (int, float)) and not (f.name == "tolerance" and value is None):
                raise ParameterError(f"FaultPolicy: {f.name} is a number", got=repr(value), expected=repr(f.default))
        if not 0 <= self.verify <= 1:
            raise ParameterError("FaultPolicy: verify is a fraction", got=self.verify, expected="0 to 1")
        rows = (
            ("slack first unknown backoff backoff_most probe heat_period", 0, "is a time"),
            ("factor last tries lost warm regain", 1, "is too small"),
            ("lie_probes", 0, "is a number of probes"),
        )
        for names, least, what in rows:
            for name in names.split():
                if not getattr(self, name) >= least:
                    expected = f"{least} or more"
                    raise ParameterError(f"FaultPolicy: {name} {what}", got=getattr(self, name), expected=expected)

    def detection(self, calls: int, rate: float) -> float:
        """The probability that a unit which gives wrong answers is found within so many answers to one job.

        ``1 - (1 - q) (1 - p q)**(n - 1)`` for *n* answers, the fraction *p* that is checked and the rate *q* of
        independent faults: the first answer is always checked. It holds where a second unit can do the job.

        Args:
            calls: the number of answers, 0 or more.
            rate: the share of answers that are wrong, 0 to 1.

        Raises:
            ParameterError: no such number.
        """
        if calls < 0 or not 0 <= rate <= 1:
            raise ParameterError("detection", got=(calls, rate), expected="a number of calls and a rate of 0 to 1")
        if not calls or not self.verify:
            return 0.0
        return 1 - (1 - rate) * (1 - self.verify * rate) ** (calls - 1)


@final
@dataclass(frozen=True)
class LaneOptions:
    """One unit, as the engine sees it. Every callable may fail or never come back; the engine bears it.

    Attributes:
        lanes: how many jobs it runs at once (its concurrent sessions).
        probe: asks it something with a known answer; True if the answer is right. None: it needs none.
        interrupt: called in a thread of its own when the unit is taken out with work on it, so that a call which does
            not come back ends (a child process is killed).
        sensor: its temperature now; None, or a reading without one, where it cannot be read.
        heat: what it may have.
        group: units of one group (host workers) take ready work from one another.
        trusted: what it answers is right, and needs no check: the host, which computes the meaning itself.
        receive: ``receive(value, unit)`` makes another unit's result usable here (a transfer, on this unit's lane).
            None: results are usable everywhere.
    """

    lanes: int = 1
    probe: Callable[[], bool] | None = None
    interrupt: Callable[[], None] | None = None
    sensor: Callable[[], Temperature | None] | None = None
    heat: HeatLimits = HEAT["npu"]
    group: str = ""
    trusted: bool = False
    receive: Callable[[Value, str], Value] | None = None

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ParameterError("a unit needs a lane", got=self.lanes, expected="1 or more")


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
        checked: how many of its answers a second unit has confirmed.
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
    checked: int
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
        "_policy", "answers", "by_user", "checked", "failures", "good", "level", "lied", "passes", "reason", "retry",
        "since", "state",
    )  # fmt: skip

    def __init__(self, policy: FaultPolicy, now: float) -> None:
        self._policy = policy
        self.state: State = "ok"
        self.reason = ""
        self.since = now
        self.retry = math.inf
        self.level = self.failures = self.answers = self.checked = self.good = self.passes = 0
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


Kind = Literal[
    "out", "redone", "late", "probe", "back", "warm", "cool", "lie", "checked", "unchecked", "sensor", "lost"
]  # fmt: skip

KEPT: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        when: `time.time` of it.
        unit: the unit.
        kind: "out" (taken out), "redone", "late" (an answer dropped), "probe" (a probe failed), "back" (readmitted),
            "warm", "cool", "lie", "checked" (two units agree), "unchecked" (there was no second unit), "sensor" (no
            temperature) or "lost" (a thread that does not come back).
        text: for people.
        job: the job's name, if it concerns one.
        run: the run's number, if it concerns one.

    >>> print(Event(0.0, "npu", "out", "deadline of 12 ms passed", job="net:1"))
    npu: deadline of 12 ms passed
    """

    when: float
    unit: str
    kind: Kind
    text: str
    job: str = ""
    run: int | None = None

    def __str__(self) -> str:
        return f"{self.unit}: {self.text}"


@final
class EventLog:
    """The last `KEPT` events, and listeners. A listener is called by the thread that delivers, never under a lock."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._waiting: deque[Event] = deque()
        self.listeners: list[Callable[[Event], None]] = []

    def add(self, unit: str, kind: Kind, text: str, *, job: str = "", run: int | None = None) -> Event:
        event = Event(time.time(), unit, kind, text, job, run)
        self._kept.append(event)
        if self.listeners:
            self._waiting.append(event)
        return event

    def deliver(self) -> None:
        """Tell the listeners what they have not heard. What one of them raises is reported, and goes no further."""
        while self._waiting:
            try:
                event = self._waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            for listener in tuple(self.listeners):
                try:
                    listener(event)
                except Exception as error:
                    sys.excepthook(type(error), error, error.__traceback__)

    def __iter__(self):
        return iter(tuple(self._kept))
