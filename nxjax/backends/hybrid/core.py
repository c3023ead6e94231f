"""The engine's inside: which job goes to which unit, and what follows when it comes back, late, wrong or not at all.

One lock guards all of it. `submit`, `cancel`, `close`, `lent` and `loop` take it; all else is called by who holds it.
Functions of jobs, probes, sensors and listeners are called without it, for they may never return.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from bisect import insort
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import CancelledError
from contextlib import contextmanager
from itertools import count
from typing import Any, Final, Literal, final

from nxjax.backends.hybrid.health import EventLog, FaultPolicy, LaneOptions
from nxjax.backends.hybrid.jobs import Graph, Job, Value, about_one_job, error_line, is_programs, same_error
from nxjax.backends.hybrid.run import Attempt, GraphRun, JobRun, Lane, Member, NotMoved, aside, current, frozen
from nxjax.backends.hybrid.verify import Verifier, Ward
from nxjax.config import config
from nxjax.errors import ExecutionError

_FOREVER: Final = math.inf
# Seconds that a cooler unit may always take longer than a warm one.
_WORTH: Final = 1e-3
# A watch that wakes this much too late was stopped, as the whole process was: then nobody else could work either. Where
# it is late by this share of what a job is allowed, nobody knows for how long.
_STALLED: Final = 0.05
_STOOD: Final = 0.25
_clock = time.perf_counter


@final
class EngineCore:
    """See the module. Made by `Engine`, which is what users hold; the threads hold this."""

    def __init__(self, units: Mapping[str, LaneOptions], policy: FaultPolicy) -> None:
        now = _clock()
        self.policy = policy
        self.log = EventLog()
        self.units = {name: Member(name, options, policy, now) for name, options in units.items()}
        self.active: dict[int, GraphRun] = {}
        # What waits for a unit to come back: told which unit is out for longer, or None if one is back.
        self.waiting: list[Callable[[Member | None], None]] = []
        self.verifier = Verifier(self)
        self.ward = Ward(self)
        self.closed = False
        self._numbers = count()
        self._tickets = count()
        self._begin_without_threads()

    def _begin_without_threads(self) -> None:
        """Locks, and what tells of threads, as if there were none."""
        self.lock = threading.Lock()
        self.ended = threading.Event()
        # When the watch has to look again; told if that is sooner than it thinks.
        self._due, self._sooner, self._watched = _FOREVER, threading.Condition(self.lock), False
        for unit in self.units.values():
            of = unit.options.group
            group = [o for o in self.units.values() if of and o.options.group == of] or [unit]
            first = group[0] is unit
            queue, ready = ([], threading.Condition(self.lock)) if first else (group[0].queue, group[0].ready)
            unit.begin(group, queue, ready)

    # In and out.

    def submit(self, engine: Any, graph: Graph, inputs: list[Value]) -> GraphRun:
        unknown = {job.unit for job in graph.jobs if not any(u in self.units for u in job.runs)}
        if unknown:
            raise ExecutionError("no unit of this engine runs a job", got=", ".join(sorted(unknown)))
        given = [frozen(v) for v in inputs]
        self.ward.warm_up()
        with self.lock:
            if self.closed:
                raise ExecutionError("the engine is closed", fix="make a new one")
            run = GraphRun(self, engine, graph, given, next(self._numbers), _clock())
            self.active[run.number] = run
            for i in graph.first:
                self.place(run.jobs[i])
            if not run.left:
                self.maybe_end(run)
        self.log.deliver()
        return run

    def cancel(self, run: GraphRun, error: BaseException) -> bool:
        with self.lock:
            if run.over:
                return False
            self.fail(run, error)
        return True

    def close(self) -> None:
        with self.lock:
            if self.closed:
                return
            self.closed = True
            for run in tuple(self.active.values()):
                self.fail(run, CancelledError("the engine was closed"))
            for unit in self.units.values():
                unit.ready.notify_all()
                unit.hurried.set()
            self._sooner.notify()
            self.ended.set()
        self.log.deliver()

    def forked(self) -> None:
        """In a child process none of the threads exist: what ran is lost, what is known stays."""
        self._begin_without_threads()
        self.waiting.clear()
        for unit in self.units.values():
            if unit.health.state == "probing":
                unit.health.probe_failed(_clock(), unit.health.reason)
            self.ward.tend(unit)
        for run in tuple(self.active.values()):
            self.fail(run, ExecutionError("the process was forked during this run", source=run.source))

    # Placing.

    def place(self, task: JobRun) -> Member | None:
        """Give a job whose inputs are there to a unit: that unit, or None if it waits for one or has failed."""
        unit = self.units.get(task.job.unit)
        if unit is None or not unit.fine or task.tried:
            unit = self._choose(task)
            if unit is None:
                return None
        task.attempt = Attempt(task, unit)
        self.push(unit, task.attempt)
        return unit

    def candidates(self, job: Job) -> list[Member]:
        """The units that a job can run on, the planned one first."""
        names = [job.unit, *(name for name in job.runs if name != job.unit)]
        return [self.units[name] for name in names if name in self.units]

    def _choose(self, task: JobRun) -> Member | None:
        """The best unit that is left for a job; else it waits until one is back, or the run fails."""
        order = self.candidates(task.job)
        fresh = [u for u in order if not task.failures(u.name)]
        again = [u for u in order if 0 < task.failures(u.name) < self.policy.tries]
        for left in (fresh, again):
            if usable := [u for u in left if u.usable]:
                return self._coolest(usable, task.job)
            # A hot unit is better than none: the processor of a laptop is hot all day.
            if hot := [u for u in left if u.health.fine]:
                return hot[0]
            if self._wait_for(task, [u for u in left if u.health.may_return]):
                return None
            raised = [(name, e) for name, _, e in task.tried if e is not None]
            alike = len(raised) > 1 and all(same_error(raised[0][1], e) for _, e in raised[1:])
            if alike and (len(order) == 1 or len({name for name, _ in raised}) > 1):
                self.fail(task.run, raised[0][1])  # the program's own: no unit is at fault
                return None
        self._blame(task)
        self.fail(task.run, self._nobody(task))
        return None

    def _coolest(self, usable: list[Member], job: Job) -> Member:
        """The first that is not warm, unless it would take too long."""
        first = usable[0]
        if first.thermal.heat != "warm":
            return first
        limit = first.expected(job)
        for other in usable[1:]:
            expected = other.expected(job)
            slow = limit is not None and expected is not None and expected > self.policy.warm * limit + _WORTH
            if other.thermal.heat != "warm" and not slow:
                return other
        return first

    def _wait_for(self, task: JobRun, units: list[Member]) -> bool:
        """Keep a job until one of ``units`` is back, which is asked at once; False if there are none."""

        def look(failed: Member | None) -> None:
            if not task.run.over and task.parked is look:
                if failed is not None and failed.name in task.job.runs:
                    task.tried.append((failed.name, failed.health.reason, None))
                self.place(task)

        task.attempt, task.parked = None, look
        return self.wait(units, look)

    def wait(self, units: list[Member], look: Callable[[Member | None], None]) -> bool:
        """Have units asked now, and ``look`` called when one is back or not; False if there are none."""
        if units:
            self.waiting.append(look)
        for unit in units:
            self.ward.hurry(unit)
        return bool(units)

    def answers_again(self, failed: Member | None = None) -> None:
        """A unit is back, or has failed its probe: look again at what waits."""
        waiting, self.waiting = self.waiting, []
        for look in waiting:
            look(failed)

    def push(self, unit: Member, attempt: Attempt) -> None:
        """Queue an attempt, and see to it that a lane comes for it."""
        insort(unit.queue, (attempt.task.run.number, attempt.task.number, next(self._tickets), attempt))
        self._staff(unit)

    def _staff(self, unit: Member) -> None:
        """Wake an idle lane for what waits, or begin one more."""
        if len(unit.group) > 1:
            unit.ready.notify_all()
        else:
            unit.ready.notify()
        for member in unit.group:
            if len(member.lanes) < member.options.lanes:
                free = sum(lane.work is None for lane in member.lanes)
                if sum(member.takes(entry[-1]) for entry in unit.queue) > free:
                    self._hire(member)
                    return

    def _hire(self, unit: Member) -> None:
        """One more thread for a unit."""
        lane = Lane(unit, next(unit.numbers))
        unit.lanes.append(lane)
        if not aside(lambda: self.loop(lane), f"nxjax-{unit.name}-{lane.number}"):
            unit.lanes.remove(lane)
            if not unit.lanes:
                self.take_out(unit, "the system gives it no thread")

    # Lanes.

    def loop(self, lane: Lane) -> None:
        """What a lane does all its life."""
        current.lane = lane
        values: list[Value] | None = None
        error: BaseException | None = None
        while True:
            with self.lock:
                attempt = lane.work
                if attempt is not None:
                    try:
                        self._ended(lane, attempt, values, error)
                    except Exception as bug:
                        # An answer that cannot even be looked at must not leave its run waiting for ever.
                        self.fail(attempt.task.run, bug)
                attempt = None if self._ends(lane) else lane.unit.next()
                given = [] if attempt is None else self._begin(lane, attempt)
            values = error = None
            self.log.deliver()
            if attempt is None:
                with self.lock:
                    if self._ends(lane):
                        if not lane.abandoned:
                            lane.unit.lanes.remove(lane)
                        return
                    if not any(lane.unit.takes(entry[-1]) for entry in lane.unit.queue):
                        lane.unit.ready.wait()
            else:
                config.here.set(attempt.task.run.settings)
                values, error = attempt.carry_out(given, self.policy.nan)
                config.here.set(config.process)
                given = []

    def _ends(self, lane: Lane) -> bool:
        """Whether a lane takes no more work. Of those that were lent and are back, one is too many."""
        return self.closed or lane.abandoned or len(lane.unit.lanes) > lane.unit.options.lanes

    @contextmanager
    def lent(self, lane: Lane) -> Generator[None]:
        """A lane, of this engine or another, waits for a run inside of its job: its unit has another one meanwhile.

        Takes the lock.
        """
        unit, since = lane.unit, _clock()
        with self.lock:
            ours = self.units.get(unit.name) is unit and not lane.abandoned
            if ours:
                unit.lanes.remove(lane)
                self._staff(unit)
        try:
            yield
        finally:
            if ours:
                with self.lock:
                    lane.deadline += _clock() - since
                    unit.lanes.append(lane)
                    self._look_by(lane.deadline)

    def _begin(self, lane: Lane, attempt: Attempt) -> list[tuple[Value, Member | None]]:
        lane.work = attempt
        attempt.start = attempt.moved = now = _clock()
        if self.policy.deadlines:
            lane.deadline = now + lane.unit.allowed(attempt.task.job)
            self._look_by(lane.deadline)
        return attempt.task.inputs()

    def _ended(self, lane: Lane, attempt: Attempt, values: list[Value] | None, error: BaseException | None) -> None:
        """An attempt is over."""
        now = _clock()
        lane.work, lane.deadline = None, _FOREVER
        task, unit = attempt.task, lane.unit
        run, name = task.run, task.job.name
        if lane.abandoned:
            unit.lost -= 1
        if attempt.dropped:
            run.span(attempt, lane, now, "late")
            after = f"{attempt.dropped}: came back after {now - attempt.start:.3g} s, its answer is dropped"
            self.log.add(unit.name, "late", f"{name}: {after}", **about(task))
        elif not attempt.wanted():
            run.span(attempt, lane, now, "cancelled")
        elif error is not None:
            run.span(attempt, lane, now, "failed")
            (self._failed if attempt.check is None else self.verifier.failed)(attempt, error)
        elif attempt.check is not None:
            run.span(attempt, lane, now, "checked")
            self.verifier.answered(attempt, values or [])
        else:
            run.span(attempt, lane, now, "done")
            unit.learn(name, now - attempt.moved)
            unit.health.worked()
            task.values, task.by = values or [], unit
            self._done(task, unit, attempt.nan)

    def _done(self, task: JobRun, unit: Member, nan: bool) -> None:
        """A job has its results: give those to jobs that waited for them."""
        run = task.run
        run.left -= 1
        self._blame(task, unit)
        self.verifier.consider(task, unit, nan)
        for i in run.graph.users[task.number]:
            if run.over:
                return
            user = run.jobs[i]
            user.missing -= 1
            if not user.missing:
                self.place(user)
        if not run.left:
            self.maybe_end(run)

    def maybe_end(self, run: GraphRun) -> None:
        """Deliver, if all is done and nothing is in doubt."""
        if run.left or run.checks or run.over:
            return
        wanted = run.graph.outputs
        if wanted is None:
            run.outputs = list(run.jobs[-1].values or []) if run.jobs else []
        else:
            run.outputs = [run.inputs[n] if s < 0 else (run.jobs[s].values or [])[n] for s, n in wanted]
        del self.active[run.number]
        run.end()

    # Faults.

    def _failed(self, attempt: Attempt, error: BaseException) -> None:
        """A job raised on a unit: the program's fault, or the job is redone; whose fault it was then shows."""
        task, unit = attempt.task, attempt.unit
        if isinstance(error, NotMoved):
            cause = self._not_moved(unit, task, error)
            if cause is None:
                return
            error = cause
        if not task.job.pure or is_programs(error):
            self.fail(task.run, error)
            return
        task.tried.append((unit.name, error_line(error), error))
        self._redo(task, unit)

    def _blame(self, task: JobRun, done: Member | None = None) -> None:
        """A job was done by a unit, or by none: others that raised are at fault, unless it was only about this job."""
        for name, what, error in task.tried:
            unit = self.units[name]
            if error is not None and unit is not done and unit.health.fine and not about_one_job(error):
                self.take_out(unit, f"{task.job.name}: {what}", task)

    def _not_moved(self, unit: Member, task: JobRun, error: NotMoved) -> BaseException | None:
        """An input did not come: it is lost with the unit that made it, and made again elsewhere.

        The second time, and where it lay in the host's memory, it is the fault of the unit that fetches it.
        """
        source, cause = error.source, error.__cause__ or error
        if source.options.trusted or unit.name in task.unmoved:
            return cause
        task.unmoved.add(unit.name)
        if source.health.fine:
            reason = f"its results do not come to {unit.name} for {task.job.name}: {error_line(cause)}"
            self.take_out(source, reason, task)
        self.verifier.reset(task.run, source, begun=task)
        return None

    def _redo(self, task: JobRun, away: Member, said: bool = True) -> None:
        """Place a job again, which ``away`` had; an answer to it that is under way is not waited for."""
        unit = self.place(task)
        if said and not task.run.over:
            name = task.job.name
            where = "waits for a unit to come back" if unit is None else f"is redone on {unit.name}"
            self.log.add(away.name, "redone", f"{name} {where}", **about(task))

    def take_out(
        self,
        unit: Member,
        reason: str,
        task: JobRun | None = None,
        *,
        drop: bool = False,
        lied: bool = False,
        by_user: bool = False,
    ) -> None:
        """A unit is not used until it is readmitted; what it was to do goes to others, with ``drop`` what it does."""
        fine = unit.health.fine
        unit.health.take_out(_clock(), reason, lied=lied, by_user=by_user)
        unit.checked.clear()
        unit.assess()
        if fine:
            self.log.add(unit.name, "out", f"taken out: {reason}", **about(task))
        self.ward.tend(unit)
        self.scatter(unit, reason, "all" if drop else "none")

    def scatter(self, unit: Member, reason: str, drop: Literal["none", "spare", "all"]) -> None:
        """Give what waits for a unit to others; of what it is doing none, what others can do, or all."""
        homeless = [entry[-1] for entry in unit.queue if entry[-1].unit is unit]
        unit.queue[:] = [entry for entry in unit.queue if entry[-1].unit is not unit]
        for lane in unit.lanes if drop != "none" else ():
            attempt = lane.work
            if attempt is None or not attempt.wanted() or attempt.dropped:
                continue
            task = attempt.task
            others = (u for u in self.candidates(task.job) if u.usable and not task.failures(u.name))
            spare = drop == "all" or any(others)
            if (task.job.pure and spare) or attempt.check is not None:
                attempt.dropped = reason
                homeless.append(attempt)
        for attempt in homeless:
            if attempt.wanted():
                if attempt.check is not None:
                    self.verifier.gone(attempt, own=False)
                else:
                    self._redo(attempt.task, unit, bool(attempt.dropped))

    def _nobody(self, task: JobRun) -> ExecutionError:
        """The error of a job that no unit is left for, with why each of them does not run it."""
        rows: list[tuple[str, str]] = []
        for name in dict.fromkeys((task.job.unit, *task.job.runs)):
            unit = self.units.get(name)
            why = "is no unit of this engine" if unit is None else unit.health.reason or "not asked"
            rows.append((name, "; then ".join(dict.fromkeys(what for by, what, _ in task.tried if by == name)) or why))
        error = ExecutionError(
            f"no unit is left that can run {task.job.name}",
            got=f"{len(rows)} unit{'s' if len(rows) > 1 else ''}, each of which failed or is out",
            more=rows,
            fix="see the reasons; Engine.readmit(unit) takes a unit back at once",
            source=task.run.source,
        )
        error.__cause__ = next((e for _, _, e in task.tried if e is not None), None)
        return error

    def fail(self, run: GraphRun, error: BaseException) -> None:
        """The run ends with an error."""
        if run.over:
            return
        run.error = error
        self.active.pop(run.number, None)
        run.end()

    # Time.

    def _look_by(self, when: float) -> None:
        """Have the watch look at lanes at ``when`` at the latest."""
        if when < self._due:
            self._due = when
            self._sooner.notify()
            if not self._watched:
                self._watched = aside(self._watch, "nxjax-watch")

    def _watch(self) -> None:
        """A thread: looks whenever the first lane is due."""
        while not self.closed:
            with self.lock:
                left = self._due - _clock()
                if left > 0:
                    self._sooner.wait(min(left, threading.TIMEOUT_MAX))
                now = _clock()
                late = now - self._due
                try:
                    if late >= 0:
                        self._look(now, late if late > _STALLED else 0.0)
                except Exception as error:
                    # The watch is what everything else is saved by: it goes on.
                    self._due = now + 1.0
                    sys.excepthook(type(error), error, error.__traceback__)
            self.log.deliver()

    def _look(self, now: float, late: float) -> None:
        """Who is overdue; ``late`` is how long the process stood still."""
        self._due = _FOREVER
        for unit in self.units.values():
            for lane in tuple(unit.lanes):
                if lane.work is None or lane.deadline == _FOREVER:
                    continue
                if late:
                    # For longer than the watch can know: what is left is given anew.
                    allowed = unit.allowed(lane.work.task.job)
                    lane.deadline = now + allowed if late > _STOOD * allowed else lane.deadline + late
                if lane.deadline <= now:
                    self._overdue(unit, lane, lane.work, now)
                self._due = min(self._due, lane.deadline)

    def _abandon(self, unit: Member, lane: Lane) -> None:
        """Do without a lane that is not back; what waits for it gets another."""
        lane.abandoned = True
        lane.deadline = _FOREVER
        unit.lanes.remove(lane)
        unit.lost += 1
        self._staff(unit)

    def renew(self, unit: Member) -> None:
        """A unit is about to be used again: not by lanes that still hang in what was taken from them."""
        for lane in tuple(unit.lanes):
            if lane.work is not None and lane.work.dropped:
                self._abandon(unit, lane)

    def _overdue(self, unit: Member, lane: Lane, attempt: Attempt, now: float) -> None:
        """A lane has not come back in time. Where nobody else could do it, it has longer."""
        task, job = attempt.task, attempt.task.job
        allowed = unit.allowed(job)
        if attempt.wanted() and attempt.check is None and not attempt.dropped:
            others = [u for u in self.candidates(job) if u is not unit and not task.failures(u.name)]
            alone = not any(u.health.fine or u.health.may_return for u in others)
            if alone and now < attempt.start + allowed * self.policy.last:
                lane.deadline = attempt.start + allowed * self.policy.last
                return
        self._abandon(unit, lane)
        self.log.add(unit.name, "lost", f"lane {lane.number} does not come back from {job.name}", job=job.name)
        if attempt.dropped:  # it was taken out for something else before
            return
        reason = f"deadline: {job.name} was not done after {now - attempt.start:.3g} s"
        wanted = attempt.wanted()
        attempt.dropped = reason
        if wanted and attempt.check is None:
            task.tried.append((unit.name, reason, None))
        unit.interrupting = unit.options.interrupt is not None
        self.take_out(unit, reason, task, drop=True)
        if not wanted or task.run.over:
            return
        if attempt.check is not None:
            self.verifier.gone(attempt)
        elif not job.pure:
            self.fail(task.run, self._nobody(task))
        else:
            self._redo(task, unit)


def about(task: JobRun | None) -> dict[str, Any]:
    """What an event is about."""
    return {} if task is None else {"job": task.job.name, "run": task.run.number}
