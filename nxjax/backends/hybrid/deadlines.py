"""How long a job may take on a unit before the unit is taken for hung. Estimates count until something is measured."""

from __future__ import annotations

from typing import Final, final

from nxjax.backends.hybrid.jobs import Job
from nxjax.backends.hybrid.policy import FaultPolicy

# Weights of the newest time in the mean and in the mean deviation: those of TCP's retransmission timer (RFC 6298).
_MEAN: Final = 1 / 8
_DEVIATION: Final = 1 / 4

# A unit that takes a job over may have to compile it first.
_TAKEN_OVER: Final = 6


@final
class Deadlines:
    """Measured times by job name and unit, and what follows from them.

    What a job should take is its mean time and four mean deviations, as in RFC 6298; before it has run, its estimate.
    """

    __slots__ = ("_known", "_policy")

    def __init__(self, policy: FaultPolicy) -> None:
        self._policy = policy
        # mean, mean deviation, and whether it was the first time
        self._known: dict[tuple[str, str], tuple[float, float, bool]] = {}

    def expected(self, job: Job, unit: str) -> float | None:
        """Seconds that ``job`` should take on ``unit``; None where nobody knows."""
        known = self._known.get((job.name, unit))
        return job.seconds.get(unit) if known is None else known[0] + 4 * known[1]

    def allowed(self, job: Job, unit: str) -> float:
        """Seconds after which ``unit`` is taken for hung.

        >>> deadlines = Deadlines(FaultPolicy(factor=10, slack=1, first=5))
        >>> job = Job("a", "npu", {"npu": list}, seconds={"npu": 0.1})
        >>> deadlines.allowed(job, "npu")
        7.0
        >>> deadlines.learn("a", "npu", 0.25)
        >>> deadlines.allowed(job, "npu")
        8.5
        """
        policy = self._policy
        known = self._known.get((job.name, unit))
        if known is not None:
            return policy.factor * (known[0] + 4 * known[1]) + policy.slack
        expected = job.seconds.get(unit)
        first = policy.first if unit == job.unit else _TAKEN_OVER * policy.first
        return policy.factor * (policy.unknown if expected is None else expected) + policy.slack + first

    def learn(self, name: str, unit: str, seconds: float) -> None:
        """A job took so long. The first time, which may have loaded things, counts only until the second."""
        key = (name, unit)
        known = self._known.get(key)
        if known is None or known[2]:
            self._known[key] = (seconds, seconds / 2, known is None)
        else:
            mean, deviation, _ = known
            away = seconds - mean
            self._known[key] = (mean + _MEAN * away, deviation + _DEVIATION * (abs(away) - deviation), False)
