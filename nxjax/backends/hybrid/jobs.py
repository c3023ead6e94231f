"""What the engine is given to do and what comes back: jobs that need one another's results, spans, answers, errors.

A job knows how it runs on every unit that may take it, and on which it should. What is computed, and by what kind of
device, is the business of whoever made it. What a unit gave is looked at: results of the right types, NaNs, the same as
another's; and of an error, whose fault it is, the program's, which every unit would raise, or the unit's.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.errors import (
    ExecutionError,
    InvalidFileError,
    LoweringError,
    MemoryLimitError,
    MissingExtraError,
    NxError,
    ParameterError,
    PlacementError,
)

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
        rough: some unit is not exact: half of the integers that floats decide may differ.
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
    rough: bool = False


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


def host(value: Value) -> Any:
    """A value as a NumPy array."""
    if isinstance(value, np.ndarray):
        return value  # pyright: ignore[reportUnknownVariableType]
    numpy = getattr(value, "numpy", None)
    return np.asarray(numpy() if callable(numpy) else value)


def misfit(values: Any, least: int, gives: tuple[tuple[tuple[int, ...], str], ...] | None) -> str:
    """What is wrong with the results of a job; "" if they are as many, and of such types, as they should be.

    >>> misfit([np.ones(3, np.int32)], 1, (((3,), "int32"),))
    ''
    >>> misfit([np.ones(3, np.int32)], 1, (((3,), "int8"),))
    'result 0 is int32[3], not int8[3]'
    """
    if not isinstance(values, (list, tuple)):
        return f"gave a {type(values).__name__}, not a list of results"
    found: Sequence[Any] = values  # pyright: ignore[reportUnknownVariableType]
    if len(found) < least or (gives is not None and len(found) != len(gives)):
        return f"gave {len(found)} results, not {least if gives is None else len(gives)}"
    for i, ((shape, dtype), value) in enumerate(zip(gives or (), found, strict=False)):
        got_shape, got_dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
        name = getattr(got_dtype, "name", str(got_dtype))
        if got_shape is None or tuple(got_shape) != tuple(shape) or name != dtype:
            got = type(value).__name__ if got_shape is None else f"{name}{list(got_shape)}"
            return f"result {i} is {got}, not {dtype}{list(shape)}"
    return ""


def _is_float(array: Any) -> bool:
    return array.dtype.kind in "fc" or (array.dtype.kind == "V" and "float" in array.dtype.name)


def has_nan(values: Sequence[Value]) -> bool:
    """Whether a floating-point result has a NaN."""
    return any(_is_float(a) and bool(np.isnan(a).any()) for a in map(host, values))


# Of integers that floats decide, so many may differ: those that hang on a rounding, of units that are exact or rough.
_HANG: Final = 1e-3
_ROUGH: Final = 0.5


def agree(
    a: Sequence[Value],
    b: Sequence[Value],
    *,
    exact: bool,
    tolerance: float | None,
    integers: bool = False,
    rough: bool = False,
) -> bool:
    """Whether two units gave the same.

    Args:
        exact: bit for bit (so that 0.0 and -0.0 differ, and equal NaNs do not).
        integers: compare them where not all is exact, too: one in a thousand may differ, since it may hang on how a
            float was rounded. False: they are not compared there.
        rough: half of them may, since a unit is not exact.
        tolerance: how far floats may be apart, as a share of the largest; None: only NaNs must be where the other has
            them.

    >>> agree([np.float32([1, 2])], [np.float32([1, 2.001])], exact=False, tolerance=0.01)
    True
    """
    if len(a) != len(b):
        return False
    for x, y in zip(map(host, a), map(host, b), strict=True):
        if x.shape != y.shape or x.dtype != y.dtype:
            return False
        if exact:
            if not (np.array_equal(x, y) if x.dtype.kind in "biu" else x.tobytes() == y.tobytes()):
                return False
        elif _is_float(x):
            if not _close(x, y, tolerance):
                return False
        elif integers and np.count_nonzero(x != y) > (_ROUGH if rough else _HANG) * x.size:
            return False
    return True


def _close(x: Any, y: Any, tolerance: float | None) -> bool:
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return False
    if tolerance is None:
        return True
    finite = np.isfinite(x)
    if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(x[~finite], y[~finite], equal_nan=True):
        return False
    wide = np.complex128 if x.dtype.kind == "c" else np.float64
    one, other = x[finite].astype(wide), y[finite].astype(wide)
    most = max(np.abs(one).max(initial=0.0), np.abs(other).max(initial=0.0))
    return bool((np.abs(one - other) <= tolerance * most).all())


# Errors of nxjax that say something about a unit. All others are about the program, wherever it runs.
_UNITS: Final = (
    ExecutionError,
    InvalidFileError,
    LoweringError,
    MemoryLimitError,
    MissingExtraError,
    PlacementError,
)
# Of these, those that say nothing about other jobs on the same unit.
_ONE_JOB: Final = (LoweringError, MemoryLimitError, MissingExtraError, PlacementError, MemoryError)

# Functions of the user that a program calls are called from here.
_CALLBACKS: Final = os.path.join("nxjax", "transforms", "callback.py")
# Numbers in messages (addresses, handles, times) differ from unit to unit.
_NUMBERS: Final = re.compile(r"0x[0-9a-fA-F]+|\d+")


def chain(error: BaseException) -> Iterator[BaseException]:
    """An exception, and what it was raised from."""
    seen: set[int] = set()
    at: BaseException | None = error
    while at is not None and id(at) not in seen:
        seen.add(id(at))
        yield at
        at = at.__cause__ or at.__context__


def through_callback(error: BaseException) -> bool:
    """Whether a function of the user that the program calls raised it."""
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename.endswith(_CALLBACKS):
            return True
        trace = trace.tb_next
    return False


def is_programs(error: BaseException) -> bool:
    """Whether any unit would raise it: an error about the program, or of a callback.

    >>> from nxjax.errors import ShapeError
    >>> is_programs(ShapeError("matmul: shapes do not fit")), is_programs(ExecutionError("the device is lost"))
    (True, False)
    """
    return any(getattr(e, "__nxjax_program__", False) or through_callback(e) for e in chain(error)) or (
        isinstance(error, NxError) and not isinstance(error, _UNITS)
    )


def about_one_job(error: BaseException) -> bool:
    """Whether it says that a unit cannot take this job, and nothing about others: no memory, no kernel."""
    return isinstance(error, _ONE_JOB)


def error_line(error: BaseException) -> str:
    """An exception in one line."""
    what = error.what if isinstance(error, NxError) else str(error)
    text = what.strip().splitlines()[0] if what.strip() else ""
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def same_error(a: BaseException, b: BaseException) -> bool:
    """Whether two units failed in the same way: class and message, whatever numbers are in it.

    >>> same_error(ValueError("bad value 3 at 0x7f"), ValueError("bad value 4 at 0x81"))
    True
    """
    return type(a) is type(b) and _NUMBERS.sub("#", str(a)) == _NUMBERS.sub("#", str(b))
