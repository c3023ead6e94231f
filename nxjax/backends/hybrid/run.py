"""What the engine holds: lanes (threads), the book of each unit, and passes through a graph with their attempts.

All threads are daemons, so that one which hangs keeps no interpreter from ending.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import nullcontext
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

import numpy as np

from nxjax.backends.hybrid.health import FaultPolicy, Health, LaneOptions, Thermal
from nxjax.backends.hybrid.jobs import CALLER, AttemptSpan, Graph, Job, Outcome, Value, has_nan, misfit
from nxjax.config import config, current_settings
from nxjax.errors import ExecutionError, user_source

if TYPE_CHECKING:
    from nxjax.backends.hybrid.core import EngineCore
    from nxjax.backends.hybrid.verify import AnswerCheck


# The lane that this thread is, if it is one: ``current.lane``.
current = threading.local()


@final
class Lane:
    """One thread of a unit.

    Attributes:
        number: unique within its unit.
        work: what it is doing now; the engine's.
        deadline: when that is overdue; infinite if never.
        abandoned: it is taken for hung: when it comes back, it ends.
    """

    __slots__ = ("abandoned", "deadline", "number", "unit", "work")

    def __init__(self, unit: Member, number: int) -> None:
        self.unit = unit
        self.number = number
        self.work: Attempt | None = None
        self.deadline = math.inf
        self.abandoned = False


def aside(function: Callable[[], None], name: str) -> bool:
    """Run ``function`` in a daemon thread of its own; False if the system gives no more threads."""
    try:
        threading.Thread(target=function, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


@final
class JobRun:
    """One job of one run.

    Attributes:
        number: of the job in the graph.
        values, by: its results and the unit that gave them, once it is done.
        missing: how many of the jobs that it needs are not done.
        attempt: the one whose answer is waited for, or was taken.
        parked: what is called when a unit is back, while it waits for one.
        tried: what went wrong: on which unit, in words, and what it raised, if it did.
        unmoved: units to which its inputs did not come.
        check: of its results, until it is settled.
    """

    __slots__ = ("attempt", "by", "check", "job", "missing", "number", "parked", "run", "tried", "unmoved", "values")

    def __init__(self, run: GraphRun, number: int, job: Job, missing: int) -> None:
        self.run, self.number, self.job, self.missing = run, number, job, missing
        self.values: list[Value] | None = None
        self.by: Member | None = None
        self.attempt: Attempt | None = None
        self.parked: object = None
        self.tried: list[tuple[str, str, BaseException | None]] = []
        self.unmoved: set[str] = set()
        self.check: AnswerCheck | None = None

    def failures(self, unit: str) -> int:
        """How often it has failed on a unit."""
        return sum(name == unit for name, _, _ in self.tried)

    def inputs(self) -> list[tuple[Value, Member | None]]:
        """Its inputs, and by which unit each was made (None: the caller)."""
        found: list[tuple[Value, Member | None]] = []
        for source, n in self.job.inputs:
            if source == CALLER:
                found.append((self.run.inputs[n], None))
            else:
                maker = self.run.jobs[source]
                assert maker.values is not None, "a job was begun before what it needs"
                found.append((maker.values[n], maker.by))
        return found

    def checked(self, check: AnswerCheck | None) -> None:
        """A check of it begins, or is over."""
        self.check = check
        if check is None:
            self.run.checks.discard(self)
        else:
            self.run.checks.add(self)


@final
class Attempt:
    """One job of one run, given to one unit.

    Attributes:
        check: set if it is run to look at another unit's answer.
        dropped: why nobody waits for it any more; empty while somebody does.
        nan, group: what looking at its results has found: a NaN, or which other answers they are equal to.
    """

    __slots__ = ("check", "dropped", "group", "moved", "nan", "start", "task", "unit")

    def __init__(self, task: JobRun, unit: Member, check: AnswerCheck | None = None) -> None:
        self.task = task
        self.unit = unit
        self.check = check
        self.dropped = ""
        self.start = self.moved = 0.0
        self.nan = False
        self.group = 0

    def wanted(self) -> bool:
        """Whether somebody waits for the answer."""
        task = self.task
        return not task.run.over and (task.attempt is self if self.check is None else task.check is self.check)

    def carry_out(
        self, given: list[tuple[Value, Member | None]], nan: bool
    ) -> tuple[list[Value] | None, BaseException | None]:
        """Move the inputs, call the function, look at what it gives: the results, or what was raised or is wrong.

        Without the engine's lock. ``given``: inputs, and by whom each was made. ``nan``: whether to look for one.
        """
        unit, run, job = self.unit, self.task.run, self.task.job
        receive = unit.options.receive
        try:
            args = [v if by is None or by is unit or receive is None else _moved(receive, v, by) for v, by in given]
            self.moved = time.perf_counter()
            found = job.runs[unit.name](args)
            problem = misfit(found, run.graph.least[self.task.number], job.gives)
            if problem:
                return None, ExecutionError(f"{unit.name}: {job.name} {problem}", source=run.source)
            values = [frozen(v) for v in found]
            if self.check is not None:
                self.group = self.check.compare(values)
            elif nan:
                self.nan = has_nan(values)
            return values, None
        except BaseException as error:
            return None, error


@final
class NotMoved(Exception):
    """Another unit's result did not come."""

    def __init__(self, source: Member) -> None:
        super().__init__(source.name)
        self.source = source


def _moved(receive: Callable[[Value, str], Value], value: Value, source: Member) -> Value:
    try:
        return receive(value, source.name)
    except BaseException as error:
        raise NotMoved(source) from error


def frozen(value: Value) -> Value:
    """An array that nobody can write into by accident: it may be needed again."""
    if isinstance(value, np.ndarray) and value.flags.writeable:  # pyright: ignore[reportUnknownMemberType]
        value = value.view()
        value.flags.writeable = False
    return value  # pyright: ignore[reportUnknownVariableType]


@final
class GraphRun:
    """A graph under way: a future.

    Attributes:
        number: of the run among its engine's; earlier ones go first.
        graph: what is run.
    """

    __slots__ = (
        "__weakref__", "_core", "_engine", "_gate", "checks", "error", "graph", "inputs", "jobs", "left", "number",
        "outputs", "over", "settings", "source", "started", "taken",
    )  # fmt: skip

    def __init__(
        self, core: EngineCore, engine: Any, graph: Graph, inputs: list[Value], number: int, started: float
    ) -> None:
        self._core = core
        # Whoever waits for a run keeps its engine alive.
        self._engine = engine
        self._gate = threading.Lock()
        self._gate.acquire()
        self.graph = graph
        self.inputs = inputs
        self.number = number
        self.started = started
        self.source = user_source()
        self.settings = current_settings()  # for the threads that work for it
        self.jobs = [JobRun(self, i, job, graph.needs[i]) for i, job in enumerate(graph.jobs)]
        self.left = len(self.jobs)
        self.checks: set[JobRun] = set()  # whose results are in doubt
        self.taken: list[AttemptSpan] = []
        self.over = False
        self.error: BaseException | None = None
        self.outputs: list[Value] = []

    def end(self) -> None:
        """Let those go on who wait. Under the engine's lock, once."""
        self.over = True
        for task in self.jobs:
            task.values = task.check = None
        self.inputs = []
        self.settings = config.process
        self.checks.clear()
        self._engine = None
        self._gate.release()

    def _wait(self, timeout: float | None) -> None:
        if not self.over:
            lane: Lane | None = getattr(current, "lane", None)
            try:
                with nullcontext() if lane is None else self._core.lent(lane):
                    there = self._gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
            except BaseException:
                # Ctrl-C: nobody will ask for the results.
                self.cancel()
                raise
            if not there:
                raise TimeoutError(f"the run is not done after {timeout:g} s")
            self._gate.release()

    def result(self, timeout: float | None = None) -> list[Value]:
        """The outputs of the graph, once they are there. An interrupt while waiting cancels the run.

        Raises:
            TimeoutError: not within ``timeout`` seconds; the run goes on.
            CancelledError: it was cancelled.
            ExecutionError: a job failed on every unit that can run it.
            BaseException: what the program itself raised.
        """
        self._wait(timeout)
        if self.error is not None:
            try:
                raise self.error
            finally:
                # Otherwise the error holds this frame, the frame the run, and the run the error.
                del self
        return list(self.outputs)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What `result` would raise, or None."""
        self._wait(timeout)
        return self.error

    def done(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.over

    def cancel(self) -> bool:
        """Begin no more of its jobs, and drop the answers of those that run; False if it has ended already."""
        return self._core.cancel(self, CancelledError("the run was cancelled"))

    @property
    def spans(self) -> list[AttemptSpan]:
        """All attempts that have ended so far, by their ends."""
        return list(self.taken)

    def span(self, attempt: Attempt, lane: Lane, finish: float, outcome: Outcome) -> None:
        """An attempt has ended."""
        t, task = self.started, attempt.task
        begun, moved = attempt.start - t, attempt.moved - t
        place = task.number, task.job.name, lane.unit.name, lane.number
        self.taken.append(AttemptSpan(*place, begun, moved, finish - t, outcome))

    def __repr__(self) -> str:
        state = "running" if not self.over else "done" if self.error is None else type(self.error).__name__
        return f"<run {self.number}: {state}, {len(self.graph.jobs) - self.left} of {len(self.graph.jobs)} jobs done>"


Call = TypeVar("Call")
Result = TypeVar("Result")


def streamed(
    begin: Callable[[Any], Call],
    finish: Callable[[Call], Result],
    cancel: Callable[[Call], object],
    inputs: Iterable[Any],
    ahead: Callable[[], int],
) -> Iterator[Result]:
    """Results in the order of ``inputs``, with up to ``ahead()`` calls under way.

    An error says which input it was; whoever stops early leaves nothing running.
    """
    begun: deque[tuple[int, Call]] = deque()
    try:
        for number, given in enumerate(inputs):
            begun.append((number, _at(number, begin, given)))
            while len(begun) >= ahead():
                first, call = begun.popleft()
                yield _at(first, finish, call)
        while begun:
            first, call = begun.popleft()
            yield _at(first, finish, call)
    finally:
        for _, call in begun:
            cancel(call)


def _at(number: int, do: Callable[[Any], Result], given: Any) -> Result:
    try:
        return do(given)
    except Exception as error:
        error.add_note(f"in input {number} of the stream")
        raise


# Weights of the newest time in the mean and in the mean deviation: those of TCP's retransmission timer (RFC 6298).
_MEAN: Final = 1 / 8
_DEVIATION: Final = 1 / 4
# A unit that takes a job over may have to compile it first.
_TAKEN_OVER: Final = 6
# Numbers of the run and of the job, and of the entry itself.
QueueEntry = tuple[int, int, int, Attempt]


@final
class Member:
    """The engine's book of one unit.

    Attributes:
        group: the units that share its queue, itself first: they take work from one another.
        queue: what they are to do, by run, then by job. ready: tells idle lanes that there is more.
        lanes: all that are not taken for hung. lost: how many of its threads do not come back.
        checked: jobs of which an answer was asked of a second unit since it was taken out last.
        tended: a thread asks it until it is back, at once if ``hurried``, and ends what hangs if ``interrupting``.
        sensing: a thread reads its sensor. told: it has answered once.
    """

    __slots__ = (
        "_times", "checked", "fine", "group", "health", "hurried", "interrupting", "lanes", "lost", "name", "numbers",
        "options", "policy", "queue", "ready", "sensing", "tended", "thermal", "told",
    )  # fmt: skip

    def __init__(self, name: str, options: LaneOptions, policy: FaultPolicy, now: float) -> None:
        self.name, self.options, self.policy = name, options, policy
        self.health = Health(policy, now)
        self.thermal = Thermal(options.heat)
        self.numbers = count()
        self.checked: set[str] = set()
        self.fine = True
        # Per job: mean, mean deviation, and whether it was the first time.
        self._times: dict[str, tuple[float, float, bool]] = {}

    def begin(self, group: Sequence[Member], queue: list[QueueEntry], ready: threading.Condition) -> None:
        """No thread of it exists (any more)."""
        self.group, self.queue, self.ready = (self, *(o for o in group if o is not self)), queue, ready
        self.lanes: list[Lane] = []
        self.lost = 0
        self.tended = self.interrupting = self.sensing = False
        self.hurried, self.told = threading.Event(), threading.Event()

    def assess(self) -> None:
        """Whether it is given work without second thoughts."""
        self.fine = self.health.fine and self.thermal.heat not in ("warm", "hot")

    @property
    def usable(self) -> bool:
        return self.health.fine and self.thermal.heat != "hot"

    def takes(self, attempt: Attempt) -> bool:
        """Whether it may do what is in its group's queue."""
        if attempt.unit is self:
            return True
        able = self.name in attempt.task.job.runs and not attempt.task.failures(self.name)
        return able and self.fine and attempt.check is None

    def next(self) -> Attempt | None:
        """What a lane of it does next."""
        place = 0
        while place < len(self.queue):
            attempt = self.queue[place][-1]
            if attempt.wanted() and not self.takes(attempt):
                place += 1
                continue
            del self.queue[place]
            if attempt.wanted():
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
