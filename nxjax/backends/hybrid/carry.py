"""Carrying out one attempt, without a lock: inputs are moved, the function is called, its results are looked at."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, final

import numpy as np

from nxjax.backends.hybrid.answers import has_nan, misfit
from nxjax.backends.hybrid.jobs import Value
from nxjax.backends.hybrid.member import Member
from nxjax.backends.hybrid.run import Attempt
from nxjax.errors import ExecutionError

_clock = time.perf_counter


def carry_out(
    attempt: Attempt, given: list[tuple[Value, Any]], look_for_nan: bool
) -> tuple[list[Value] | None, BaseException | None]:
    """Run an attempt, without the lock: its results, or what was raised or is wrong with them."""
    unit: Member = attempt.unit
    graph = attempt.run.graph
    job = graph.jobs[attempt.job]
    receive = unit.options.receive
    try:
        if receive is None:
            args = [v for v, _ in given]
        else:
            args = [v if by is None or by is unit else _moved(receive, v, by) for v, by in given]
        attempt.moved = _clock()
        found = job.runs[unit.name](args)
        problem = misfit(found, graph.least[attempt.job], job.gives)
        if problem:
            return None, ExecutionError(f"{unit.name}: {job.name} {problem}", source=attempt.run.source)
        kept = unit.options.copies
        values = [frozen(np.array(v) if kept and isinstance(v, np.ndarray) else v) for v in found]
        if attempt.check is not None:
            attempt.group = attempt.check.compare(values)
        elif look_for_nan:
            attempt.nan = has_nan(values)
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
