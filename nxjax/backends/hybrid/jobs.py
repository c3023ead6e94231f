"""What the engine is given to do: jobs that need one another's results; and what it says it did: spans.

A job knows how it runs on every unit that may take it, and on which it should. What is computed, and by what kind of
device, is the business of whoever made it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

from nxjax.errors import ParameterError

# What goes from job to job: a NumPy array, or anything that the functions of the jobs agree on.
Value = Any
Runs = Callable[[list[Value]], Sequence[Value]]

# What became of one attempt at a job. "late": it came back after somebody else had been asked. "checked": it was run
# to see whether another unit's answer is true.
Outcome = Literal["done", "failed", "late", "cancelled", "checked"]

CALLER: Final = -1


@final
@dataclass(frozen=True)
class Job:
    """One piece of work: a function of the results of other jobs.

    Every function in ``runs`` must mean the same, give its results only when they are computed, and leave its
    arguments as they are: a job may be begun on one unit and ended on another.

    Attributes:
        name: for reports; also what measured times are kept by.
        unit: where it is to run.
        runs: unit -> how it runs there. All that may take it over, in the order in which they are asked.
        inputs: (job, output) pairs; job ``CALLER`` (-1) is what `Engine.submit` is given.
        seconds: unit -> what it should take there; a deadline is made of it. What has been measured goes before.
        gives: (shape, dtype name) of each result; results of other types are a fault. None: not looked at.
        exact: all units give the same bits (integers): answers may be compared bit for bit.
        tolerance: where they do not, how far their floats may be apart at most, as a share of the largest in a result;
            None: they are not compared.
        pure: may be run again. An impure job (a callback that prints) is begun once; if it fails, the run fails.
    """

    name: str
    unit: str
    runs: Mapping[str, Runs]
    inputs: tuple[tuple[int, int], ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict[str, float])
    gives: tuple[tuple[tuple[int, ...], str], ...] | None = None
    exact: bool = False
    tolerance: float | None = None
    pure: bool = True


@final
class Graph:
    """Jobs in an order in which each stands behind what it needs, and which results the caller gets.

    Made once, run often.

    Args:
        jobs: earlier jobs go first where a unit has several ready.
        outputs: (job, output) pairs, or (-1, n) for an input handed through; all results of the last job by default.
        name: for reports.

    Raises:
        ParameterError: a job needs a later one, or its unit is not among those it can run on.
    """

    __slots__ = ("arity", "first", "jobs", "least", "name", "needs", "outputs", "users")

    def __init__(self, jobs: Sequence[Job], outputs: Sequence[tuple[int, int]] | None = None, name: str = "") -> None:
        self.jobs = tuple(jobs)
        self.name = name
        self.outputs = None if outputs is None else tuple(outputs)
        # How many different jobs each needs, who needs it, and which need none.
        self.needs: list[int] = []
        self.users: list[list[int]] = [[] for _ in self.jobs]
        for i, job in enumerate(self.jobs):
            if job.unit not in job.runs:
                raise ParameterError(
                    f"job {job.name}: planned for a unit that it cannot run on",
                    got=job.unit,
                    expected=f"one of {', '.join(job.runs) or 'none'}",
                )
            before = {source for source, _ in job.inputs if source != CALLER}
            if bad := sorted(s for s in before if not 0 <= s < i):
                raise ParameterError(f"job {job.name}: needs a job that is not before it", got=bad[0])
            self.needs.append(len(before))
            for source in before:
                self.users[source].append(i)
        for source, _ in self.outputs or ():
            if not CALLER <= source < len(self.jobs):
                raise ParameterError("an output of a graph names no job", got=source, expected=f"-1 to {len(jobs) - 1}")
        # How many inputs there must be, and how many results of each job.
        asked = [pair for job in self.jobs for pair in job.inputs] + list(self.outputs or ())
        self.arity = max((n + 1 for source, n in asked if source == CALLER), default=0)
        self.least = [0] * len(self.jobs)
        for source, n in asked:
            if source != CALLER:
                self.least[source] = max(self.least[source], n + 1)
        self.first = tuple(i for i, n in enumerate(self.needs) if n == 0)

    def __repr__(self) -> str:
        return f"<graph {self.name or 'of jobs'}: {len(self.jobs)} jobs>"


@final
@dataclass(frozen=True, slots=True)
class AttemptSpan:
    """One attempt at a job. Times are seconds since the run was submitted.

    Attributes:
        job: its number in the graph.
        moved: when its inputs were there: from ``start`` to ``moved`` they came from other units.
        outcome: "done", "failed", "late", "cancelled" or "checked".
    """

    job: int
    name: str
    unit: str
    lane: int
    start: float
    moved: float
    finish: float
    outcome: Outcome

    @property
    def seconds(self) -> float:
        """What the job itself took, without moving its inputs."""
        return self.finish - self.moved
