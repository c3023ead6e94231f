"""What the engine asks of units beside their work: second answers, probes, interrupts, temperatures.

Some of a unit's answers are asked of a second unit, and a third settles a dispute. The engine goes on with the first
answer meanwhile; the run is not delivered before all its checks are done. What a liar has answered in runs under way is
redone, with all that was computed from it. A probe, an interrupt or a sensor may hang, raise anything or answer
nonsense; each costs a thread at most.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from nxjax.backends.hybrid.jobs import Job, Value, about_one_job, agree, error_line, is_programs
from nxjax.backends.hybrid.run import Attempt, GraphRun, JobRun, Member, aside
from nxjax.errors import ExecutionError

if TYPE_CHECKING:
    from nxjax.backends.hybrid.core import EngineCore


# So many times as patient with a third unit that is to settle a dispute, for otherwise the run fails.
_DISPUTE: Final = 4


@final
class AnswerCheck:
    """One job's answers by several units. The first is the one that the run goes on with.

    Attributes:
        failed: units that were asked and gave no answer, once for each time.
        answers: who gave what; equal answers have the same number.
    """

    __slots__ = ("answers", "failed", "how", "tolerance")

    def __init__(self, job: Job, unit: Member, values: list[Value], tolerance: float | None) -> None:
        self.failed: list[str] = []
        self.answers: list[tuple[Member, list[Value], int]] = [(unit, values, 0)]
        self.tolerance = tolerance
        # Where the job has no tolerance of its own, integers that are not exact promise nothing.
        self.how = {"exact": job.exact, "integers": job.tolerance is not None, "rough": job.rough}

    def compare(self, values: Sequence[Value]) -> int:
        """The number of a new answer. Called without the lock; one answer comes at a time."""
        same = lambda known: agree(known, values, tolerance=self.tolerance, **self.how)
        return next((n for _, known, n in self.answers if same(known)), len(self.answers))

    def truth(self) -> int | None:
        """The answer of a unit that is right whatever the others say (the host, which computes the meaning itself),
        else that of two units, if there is one."""
        # The vote of who has lied elsewhere meanwhile does not count.
        sure = [n for unit, _, n in self.answers if unit.options.trusted]
        numbers = [n for unit, _, n in self.answers if not unit.health.lied]
        return next(iter([*sure, *(n for n in numbers if numbers.count(n) > 1)]), None)


@final
class Verifier:
    """Asks second units, and draws the consequences. Under the engine's lock."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._draw = random.Random(core.policy.seed).random

    def consider(self, task: JobRun, unit: Member, nan: bool) -> None:
        """A job is done: is its answer to be looked at?"""
        job, policy = task.job, self._core.policy
        if not job.pure or unit.options.trusted or not (policy.verify or nan):
            return
        tolerance = job.tolerance if policy.tolerance is None else policy.tolerance
        if policy.verify and (job.exact or tolerance is not None):
            nan |= job.name not in unit.checked or self._draw() < policy.verify
            unit.checked.add(job.name)
        if nan:
            check = AnswerCheck(job, unit, task.values or [], tolerance)
            task.checked(check)
            self._settle(task, check)

    def _ask(self, task: JobRun, check: AnswerCheck) -> bool:
        """One more unit, or wait for one that is out; False if there is none. One that has failed is asked again."""
        core = self._core
        answered = {unit.name for unit, _, _ in check.answers}
        most = core.policy.tries * (_DISPUTE if len(answered) > 1 else 1)
        failed = lambda u: check.failed.count(u.name)
        left = [u for u in core.candidates(task.job) if u.name not in answered and failed(u) < most]
        able = [u for u in left if u.usable]
        if not able:

            def look(out: Member | None) -> None:
                if task.check is check and not task.run.over:
                    check.failed += [] if out is None else [out.name]
                    self._settle(task, check)

            return core.wait([u for u in left if u.health.may_return], look)
        # First whoever is right in any case: two that err alike would agree.
        unit = min(able, key=lambda u: (failed(u), not u.options.trusted, len(u.queue)))
        core.push(unit, Attempt(task, unit, check))
        return True

    def answered(self, attempt: Attempt, values: list[Value]) -> None:
        """Another unit's answer is there."""
        check = attempt.check
        assert check is not None
        check.answers.append((attempt.unit, values, attempt.group))
        self._settle(attempt.task, check)

    def failed(self, attempt: Attempt, error: BaseException) -> None:
        """A unit that was asked for a second answer raised."""
        unit, task = attempt.unit, attempt.task
        if unit.health.fine and not about_one_job(error) and not is_programs(error):
            self._core.take_out(unit, f"{task.job.name}: {error_line(error)}", task)
        if attempt.wanted():
            self.gone(attempt)

    def gone(self, attempt: Attempt, own: bool = True) -> None:
        """A unit that was asked for a second answer will not give one; ``own``: it has tried to."""
        check = attempt.check
        assert check is not None
        check.failed += [attempt.unit.name] if own else []
        self._settle(attempt.task, check)

    def _settle(self, task: JobRun, check: AnswerCheck) -> None:
        truth = check.truth()
        if truth is None and self._ask(task, check):
            return
        task.checked(None)
        core, name = self._core, task.job.name
        tell = lambda kind, text: core.log.add(check.answers[0][0].name, kind, text, job=name, run=task.run.number)
        right = " and ".join(unit.name for unit, _, n in check.answers if truth in (n, None))
        liars = [unit for unit, _, n in check.answers if truth not in (n, None)]
        if truth is None and len(check.answers) == 1:
            tell("unchecked", f"{name}: could not be checked, since no other unit is left")
        elif truth is None:
            error = ExecutionError(
                f"{right} disagree about {name}, and there is no third unit to decide",
                fix='add a unit that is always right, such as "cpu"',
                source=task.run.source,
            )
            core.fail(task.run, error)
        elif not liars:
            check.answers[0][0].health.checked += 1
            tell("checked", f"{name}: {right} agree")
        for unit in liars:
            self._convict(unit, task, right)
        core.maybe_end(task.run)

    def _convict(self, liar: Member, task: JobRun, others: str) -> None:
        """A unit gave wrong results: it goes, and so does all that stands on its answers."""
        core, name = self._core, task.job.name
        reason = f"wrong results in {name}: {others} differ{'' if ' and ' in others else 's'}"
        if not liar.health.lied:
            core.log.add(liar.name, "lie", reason, job=name, run=task.run.number)
            core.take_out(liar, reason, task, drop=True, lied=True)
        for run in tuple(core.active.values()):
            if not run.over and any(t.by is liar for t in run.jobs):
                self.reset(run, liar)

    def reset(self, run: GraphRun, away: Member, begun: JobRun | None = None) -> None:
        """Forget what a unit gave in a run, and what was made of it; do it again.

        Args:
            away: its results are wrong, or lost.
            begun: a job that was to begin with them, and has not.
        """
        core = self._core
        touched: set[int] = set()
        for task in run.jobs:
            if task.by is away or any(source in touched for source, _ in task.job.inputs):
                touched.add(task.number)
        again = [run.jobs[i] for i in sorted(touched)]
        seen = [t.job.name for t in again if not t.job.pure and not t.missing and t is not begun]
        if seen:
            how = "gave wrong results" if begun is None else "has lost its results"
            what = f"{away.name} {how}, and {seen[0]}, which cannot be run again, has seen them"
            core.fail(run, ExecutionError(what, source=run.source))
            return
        for task in again:
            run.left += task.values is not None
            task.values = task.by = task.attempt = task.parked = None
            task.checked(None)
        for task in run.jobs:
            if task.values is None:
                needs = {source for source, _ in task.job.inputs if source >= 0}
                task.missing = sum(run.jobs[source].values is None for source in needs)
        names = ", ".join(task.job.name for task in again)
        core.log.add(away.name, "redone", f"redone without it: {names}", run=run.number)
        for task in again:
            if not task.missing and not run.over:
                core.place(task)


_clock = time.perf_counter
# How long a run waits for the first temperatures.
_FIRST: Final = 0.05


@final
class Ward:
    """Looks after units: asks those that are out until they are back, and reads temperatures while something runs.

    A thread for each such unit. Under the engine's lock, where the name does not say otherwise.
    """

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._sensed = [unit for unit in core.units.values() if unit.options.sensor is not None]

    # Probes.

    def tend(self, unit: Member) -> None:
        """It was taken out, or somebody needs it."""
        unit.hurried.set()
        if not unit.tended and (unit.interrupting or unit.health.retry < math.inf):
            unit.tended = aside(lambda: self._tend(unit), f"nxjax-{unit.name}-probe")

    def hurry(self, unit: Member) -> None:
        """Somebody needs it: ask now."""
        if unit.health.state == "out" and unit.health.retry < math.inf:
            unit.health.retry = _clock()
            self.tend(unit)

    def _tend(self, unit: Member) -> None:
        """A thread: ends what hangs in a unit, and asks it, with longer and longer pauses, until it is used again."""
        core, options = self._core, unit.options
        while True:
            with core.lock:
                interrupting, unit.interrupting = unit.interrupting, False
                left = unit.health.retry - _clock()
                if core.closed or (left == math.inf and not interrupting):
                    unit.tended = False
                    return
                unit.hurried.clear()
                lost = unit.lost
                if left <= 0 and not interrupting:
                    unit.health.probing(_clock())
            if interrupting and options.interrupt is not None:
                self._limited(unit, options.interrupt)
            elif left > 0:
                unit.hurried.wait(min(left, threading.TIMEOUT_MAX))
            elif lost >= core.policy.lost:
                self._asked(unit, f"{lost} of its threads have not come back")
            else:
                right, why = (True, "") if options.probe is None else self._limited(unit, options.probe)
                self._asked(unit, why or ("" if right else "gave a wrong answer to a probe"))

    def _limited(self, unit: Member, ask: Callable[[], Any]) -> tuple[Any, str]:
        """What ``ask`` gives, or why nothing. What does not come back in a probe's time costs the unit a thread."""
        core, over = self._core, threading.Event()
        gave: list[tuple[Any, str]] = []

        def run() -> None:
            try:
                gave.append((ask(), ""))
            except BaseException as error:
                gave.append((None, f"raised in a probe: {error_line(error)}"))
            with core.lock:
                unit.lost -= 1
            over.set()

        with core.lock:
            unit.lost += 1
        if not aside(run, f"nxjax-{unit.name}-asked"):
            unit.lost -= 1
            return None, "the system gives no thread for a probe"
        over.wait(core.policy.probe)
        return gave[0] if gave else (None, f"a probe did not come back within {core.policy.probe:g} s")

    def _asked(self, unit: Member, wrong: str) -> None:
        """A unit has answered a probe, or not. Without the lock."""
        core, health = self._core, unit.health
        with core.lock:
            if health.state != "probing":
                return  # the user was quicker
            if wrong:
                health.probe_failed(_clock(), wrong)
                core.log.add(unit.name, "probe", f"stays out: {wrong}; asked again in {health.backoff():.3g} s")
                core.answers_again(unit)
            elif health.probe_passed(_clock()):
                self._returns(unit, "readmitted: it answers again")
        core.log.deliver()

    def back(self, unit: Member) -> None:
        """The user takes it back."""
        unit.health.back(_clock())
        unit.thermal.heat = "unknown"
        self._returns(unit, "readmitted by the user")

    def _returns(self, unit: Member, why: str) -> None:
        self._core.log.add(unit.name, "back", why)
        unit.assess()
        self._core.renew(unit)
        self._core.answers_again()

    # Temperatures.

    def warm_up(self) -> None:
        """Something is about to run: know how hot units are, and read it from now on. Without the lock."""
        if all(unit.sensing for unit in self._sensed):
            return
        with self._core.lock:
            new = [unit for unit in self._sensed if not unit.sensing]
            for unit in new:
                unit.sensing = aside(lambda unit=unit: self._sense(unit), f"nxjax-{unit.name}-sensor")
        until = _clock() + _FIRST
        for unit in new:
            unit.told.wait(max(0.0, until - _clock()))

    def _sense(self, unit: Member) -> None:
        """A thread: reads a sensor as long as something runs or the unit is hot."""
        core = self._core
        while True:
            celsius, why = _reading(unit)
            with core.lock:
                self._told(unit, celsius, why)
            unit.told.set()
            core.log.deliver()
            core.ended.wait(core.policy.heat_period)
            with core.lock:
                if core.closed or not (core.active or unit.thermal.heat == "hot"):
                    unit.sensing = False
                    return

    def _told(self, unit: Member, celsius: float | None, why: str) -> None:
        core, limits = self._core, unit.options.heat
        before, was_why = unit.thermal.heat, unit.thermal.why
        heat = unit.thermal.read(_clock(), celsius, why)
        unit.assess()
        if unit.thermal.why and unit.thermal.why != was_why:
            core.log.add(unit.name, "sensor", f"temperature unavailable: {unit.thermal.why}")
        if heat == before or celsius is None:
            return
        shown = f"{celsius:.0f} degrees C"
        if heat == "hot":
            reason = f"heat: {shown}, above {limits.maximum:g}"
            core.log.add(unit.name, "out", f"taken out: {reason}")
            core.scatter(unit, reason, "spare")
        elif before == "hot":
            self._returns(unit, f"readmitted: {shown}")
        elif heat == "warm":
            core.log.add(unit.name, "warm", f"{shown}, above {limits.warning:g}: others are preferred")
        elif before == "warm":
            core.log.add(unit.name, "cool", shown)


def _reading(unit: Member) -> tuple[float | None, str]:
    """What a sensor says: degrees, or why there are none."""
    read = unit.options.sensor
    assert read is not None
    try:
        answer: Any = read()
        if answer is None:
            return None, "the sensor gave nothing"
        celsius = None if answer.celsius is None else float(answer.celsius)
        return celsius, str(getattr(answer, "why", "")) or "the sensor gave no temperature"
    except BaseException as error:
        return None, f"the sensor raised {error_line(error)}"
