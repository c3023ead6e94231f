"""`preempted`: a machine that is to be given back asks its processes to end (SIGTERM); they save and go together."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Any, Final

from nxjax.errors import ExecutionError, ParameterError

PREEMPTED: Final = 75
"""The exit code that says: all is saved, start me again (EX_TEMPFAIL of sysexits.h). `nxjax.launch` does."""

_asked: Final[list[bool]] = []
_before: Final[list[Any]] = []


def _ask(number: int, frame: FrameType | None) -> None:
    """The first signal asks; with the second one whoever had the signal before has it again."""
    if _asked:
        signal.signal(signal.SIGTERM, _before[0] if _before[0] is not None else signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)
        return
    _asked.append(True)


def _listen() -> None:
    if _before:
        return
    if threading.current_thread() is not threading.main_thread():
        raise ExecutionError(
            "distributed.preempted: called first in a thread", fix="call it once in the main thread, which gets signals"
        )
    _before.append(signal.signal(signal.SIGTERM, _ask))


def preempted(step: int) -> bool:
    """Whether the program should save its state and end after this step, because a process got SIGTERM.

    From the first call on, SIGTERM does not end the process but makes this true. A second one ends it. All processes
    must call it with the same steps in the same order. All get True at the same step, some steps after the signal.

    Args:
        step: the number of finished steps; never decreasing.

    Raises:
        ProcessLostError: another process is gone before all could agree.
        ParameterError: ``step`` is not a whole number from 0.
        ExecutionError: the first call is not in the main thread.

    >>> for step in range(3):
    ...     if nx.distributed.preempted(step + 1):        # save, then sys.exit(nx.distributed.PREEMPTED)
    ...         break
    >>> step
    2
    """
    if isinstance(step, bool) or not isinstance(step, int) or step < 0:
        raise ParameterError("distributed.preempted: step", got=repr(step), expected="a whole number from 0")
    _listen()
    from nxjax.backends.xla import distributed

    group = distributed.group()
    if group is None or group.processes == 1:
        return bool(_asked)
    if _asked:
        group.stop.wanted = True
    return group.stops(step)
