"""What the engine is told: how patient it is, how hot a unit may get, and what it may ask each unit. Pure data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Final, Protocol, final

from nxjax.backends.hybrid.jobs import Value
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
    """Degrees Celsius.

    Attributes:
        warning: above it, other units are preferred.
        maximum: above it, the unit is taken out.
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
        for name in ("slack", "first", "unknown", "backoff", "backoff_most", "probe", "heat_period"):
            if not getattr(self, name) >= 0:
                raise ParameterError(f"FaultPolicy: {name} is a time", got=getattr(self, name), expected="0 or more")
        for name in ("factor", "last", "tries", "lost", "warm", "regain"):
            if not getattr(self, name) >= 1:
                raise ParameterError(f"FaultPolicy: {name} is too small", got=getattr(self, name), expected="1 or more")
        if self.lie_probes < 0:
            raise ParameterError("FaultPolicy: lie_probes is a number of probes", got=self.lie_probes)


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
        copies: its results are copied, because it writes later ones into the same memory.
    """

    lanes: int = 1
    probe: Callable[[], bool] | None = None
    interrupt: Callable[[], None] | None = None
    sensor: Callable[[], Temperature | None] | None = None
    heat: HeatLimits = HEAT["npu"]
    group: str = ""
    trusted: bool = False
    receive: Callable[[Value, str], Value] | None = None
    copies: bool = False

    def __post_init__(self) -> None:
        if self.lanes < 1:
            raise ParameterError("a unit needs a lane", got=self.lanes, expected="1 or more")
