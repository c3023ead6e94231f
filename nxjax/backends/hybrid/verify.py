"""Whether units tell the truth: some of their answers are asked of a second unit, and a third settles a dispute.

The engine goes on with the first answer meanwhile; the run is not delivered before all its checks are done. What a liar
has answered in runs under way is redone, with all that was computed from it.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, final

from nxjax.backends.hybrid import blame
from nxjax.backends.hybrid.answers import agree
from nxjax.backends.hybrid.jobs import Job, Value
from nxjax.backends.hybrid.run import Attempt, GraphRun
from nxjax.errors import ExecutionError

if TYPE_CHECKING:
    from nxjax.backends.hybrid.core import EngineCore
    from nxjax.backends.hybrid.member import Member

# So many times as patient with a third unit that is to settle a dispute, for otherwise the run fails.
_DISPUTE: Final = 4


@final
class AnswerCheck:
    """One job's answers by several units. The first is the one that the run goes on with.

    Attributes:
        asked: how often each unit has been asked, whatever came of it.
        answers: who gave what; equal answers have the same number.
    """

    __slots__ = ("answers", "asked", "exact", "integers", "tolerance")

    def __init__(self, job: Job, unit: Member, values: list[Value], tolerance: float | None) -> None:
        self.asked = {unit.name: 1}
        self.answers: list[tuple[Member, list[Value], int]] = [(unit, values, 0)]
        self.exact, self.tolerance = job.exact, tolerance
        # Only units that round as the language says have a tolerance of the job's own.
        self.integers = job.tolerance is not None

    def compare(self, values: Sequence[Value]) -> int:
        """The number of a new answer. Called without the lock; one answer comes at a time."""
        same = lambda known: agree(known, values, exact=self.exact, tolerance=self.tolerance, integers=self.integers)
        return next((n for _, known, n in self.answers if same(known)), len(self.answers))

    def truth(self) -> int | None:
        """The answer of a unit that is right whatever the others say (the host, which computes the meaning itself),
        else that of two units, if there is one."""
        sure = [n for unit, _, n in self.answers if unit.options.trusted]
        numbers = [n for _, _, n in self.answers]
        return next(iter([*sure, *(n for n in numbers if numbers.count(n) > 1)]), None)


@final
class Verifier:
    """Asks second units, and draws the consequences. Under the engine's lock."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._draw = random.Random(core.policy.seed).random

    def consider(self, run: GraphRun, i: int, unit: Member, values: list[Value], nan: bool) -> None:
        """A job is done: is its answer to be looked at?"""
        job, policy = run.graph.jobs[i], self._core.policy
        if not job.pure or unit.options.trusted or not (policy.verify or nan):
            return
        tolerance = job.tolerance if policy.tolerance is None else policy.tolerance
        if policy.verify and (job.exact or tolerance is not None):
            nan |= job.name not in unit.checked or self._draw() < policy.verify
            unit.checked.add(job.name)
        if nan:
            check = AnswerCheck(job, unit, values, tolerance)
            run.checks[i] = check
            self._settle(run, i, check)

    def _ask(self, run: GraphRun, i: int, check: AnswerCheck) -> bool:
        """One more unit, or wait for one that is out; False if there is none. One that has failed is asked again."""
        core = self._core
        answered = {unit.name for unit, _, _ in check.answers}
        most = core.policy.tries * (_DISPUTE if len(answered) > 1 else 1)
        left = [
            u
            for u in core.candidates(run.graph.jobs[i])
            if u.name not in answered and check.asked.get(u.name, 0) < most
        ]
        able = [u for u in left if u.usable]
        if not able:

            def look(failed: Member | None) -> None:
                if run.checks.get(i) is check and not run.over:
                    if failed is not None:
                        check.asked[failed.name] = check.asked.get(failed.name, 0) + 1
                    self._settle(run, i, check)

            return core.wait([u for u in left if u.health.may_return], look)
        # First whoever is right in any case: two that err alike would agree.
        unit = min(able, key=lambda u: (check.asked.get(u.name, 0), not u.options.trusted, len(u.queue)))
        check.asked[unit.name] = check.asked.get(unit.name, 0) + 1
        core.push(unit, Attempt(run, i, run.epoch[i], unit, check))
        return True

    def answered(self, attempt: Attempt, values: list[Value]) -> None:
        """Another unit's answer is there."""
        check = attempt.check
        assert check is not None
        check.answers.append((attempt.unit, values, attempt.group))
        self._settle(attempt.run, attempt.job, check)

    def failed(self, attempt: Attempt, error: BaseException) -> None:
        """A unit that was asked for a second answer raised."""
        unit, job = attempt.unit, attempt.run.graph.jobs[attempt.job]
        if unit.health.fine and not blame.about_one_job(error) and not blame.is_programs(error):
            self._core.take_out(unit, f"{job.name}: {blame.line(error)}", run=attempt.run, job=job.name)
        if attempt.wanted():
            self.gone(attempt)

    def gone(self, attempt: Attempt, own: bool = True) -> None:
        """A unit that was asked for a second answer will not give one; ``own``: it has tried to."""
        check = attempt.check
        assert check is not None
        if not own:
            check.asked[attempt.unit.name] -= 1
        self._settle(attempt.run, attempt.job, check)

    def _settle(self, run: GraphRun, i: int, check: AnswerCheck) -> None:
        truth = check.truth()
        if truth is None and self._ask(run, i, check):
            return
        del run.checks[i]
        core, job = self._core, run.graph.jobs[i]
        tell = lambda kind, text: core.log.add(check.answers[0][0].name, kind, text, job=job.name, run=run.number)
        right = " and ".join(unit.name for unit, _, n in check.answers if truth in (n, None))
        liars = [unit for unit, _, n in check.answers if truth not in (n, None)]
        if truth is None and len(check.answers) == 1:
            tell("unchecked", f"{job.name}: could not be checked, for no other unit is left")
        elif truth is None:
            error = ExecutionError(
                f"{right} disagree about {job.name}, and there is no third unit to decide",
                fix='add a unit that is always right, such as "cpu"',
                source=run.source,
            )
            core.fail(run, error)
        elif not liars:
            tell("checked", f"{job.name}: {right} agree")
        for unit in liars:
            self._convict(unit, run, job, right)
        core.maybe_end(run)

    def _convict(self, liar: Member, run: GraphRun, job: Job, others: str) -> None:
        """A unit gave wrong results: it goes, and so does all that stands on its answers."""
        core = self._core
        reason = f"wrong results in {job.name}: {others} differ{'' if ' and ' in others else 's'}"
        if not liar.health.lied:
            core.log.add(liar.name, "lie", reason, job=job.name, run=run.number)
            core.take_out(liar, reason, run=run, job=job.name, drop=True, lied=True)
        for other in tuple(core.active.values()):
            for j, check in tuple(other.checks.items()):
                if other.over:
                    break
                unit, values, _ = check.answers[0]
                if unit is not liar and any(one is liar for one, _, _ in check.answers):
                    # Its vote does not count: ask again.
                    new = AnswerCheck(other.graph.jobs[j], unit, values, check.tolerance)
                    other.checks[j] = new
                    self._settle(other, j, new)
            told = [j for j, unit in enumerate(other.by) if unit is liar]
            if told and not other.over:
                self.reset(other, told, liar)

    def reset(self, run: GraphRun, wrong: list[int], liar: Member, begun: int = -1) -> None:
        """Forget what jobs gave, and what was made of it; do it again.

        Args:
            wrong: jobs whose results are wrong, or lost. liar: who gave them.
            begun: a job that was to begin with them, and has not.
        """
        core, jobs = self._core, run.graph.jobs
        touched = set(wrong)
        for j, job in enumerate(jobs):
            if any(source in touched for source, _ in job.inputs):
                touched.add(j)
        seen = [jobs[j].name for j in sorted(touched) if not jobs[j].pure and not run.missing[j] and j != begun]
        if seen:
            how = "gave wrong results" if begun < 0 else "has lost its results"
            what = f"{liar.name} {how}, and {seen[0]}, which cannot be run again, has seen them"
            core.fail(run, ExecutionError(what, source=run.source))
            return
        for j in touched:
            if run.values[j] is not None:
                run.values[j] = run.by[j] = None
                run.left += 1
            run.epoch[j] += 1
            run.checks.pop(j, None)
        for j, job in enumerate(jobs):
            if run.values[j] is None:
                run.missing[j] = sum(run.values[s] is None for s in {s for s, _ in job.inputs if s >= 0})
        names = ", ".join(jobs[j].name for j in sorted(touched))
        core.log.add(liar.name, "redone", f"redone without it: {names}", run=run.number)
        for j in sorted(touched):
            if not run.missing[j] and not run.over:
                core.place(run, j)
