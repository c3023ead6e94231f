"""Threads: lanes, which run what they are given and park when there is nothing, and a watch that wakes at set times.

Nothing here polls: a lane waits on a lock that is released once for every time it is asked for, the watch on an event
with a time limit. All are daemons, so that one which hangs keeps no interpreter from ending. This file knows neither
jobs nor units.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, final

# A watch that wakes this much too late was stopped, as the whole process was: then nobody else could work either.
_STALLED = 0.05


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
        lent: since when it waits for another run inside of its job, and its unit does without; 0 if it does not.
    """

    __slots__ = ("_parked", "abandoned", "deadline", "lent", "number", "unit", "work")

    def __init__(self, unit: Any, number: int) -> None:
        self.unit = unit
        self.number = number
        self.work: Any = None
        self.deadline = math.inf
        self.abandoned = False
        self.lent = 0.0
        self._parked = threading.Lock()
        self._parked.acquire()

    def park(self) -> None:
        """Wait to be woken. Being woken before waiting counts."""
        self._parked.acquire()

    def wake(self) -> None:
        """To be called once for every `park`, by whoever took this lane off the list of idle ones."""
        self._parked.release()

    def start(self, loop: Callable[[Lane], None], name: str) -> None:
        threading.Thread(target=loop, args=(self,), name=name, daemon=True).start()


def aside(function: Callable[[], None], name: str) -> bool:
    """Run ``function`` in a daemon thread of its own; False if the system gives no more threads."""
    try:
        threading.Thread(target=function, name=name, daemon=True).start()
    except RuntimeError:
        return False
    return True


@final
class Watch:
    """Calls ``look(now, lateness)`` when it is time; ``look`` sets ``at``, when it is time again.

    ``lateness`` is how much later it was called than asked for, if that was much.
    """

    def __init__(self, look: Callable[[float, float], None], name: str) -> None:
        self._look = look
        self._name = name
        self._alarm = threading.Event()
        self._running = False
        self._ended = False
        self.at = math.inf

    def by(self, when: float) -> None:
        """Look at ``when`` at the latest. To be called under the owner's lock."""
        if when < self.at and not self._ended:
            self.at = when
            if not self._running:
                self._running = True
                threading.Thread(target=self._watch, name=self._name, daemon=True).start()
            self._alarm.set()

    def end(self) -> None:
        self._ended = True
        self._alarm.set()

    def _watch(self) -> None:
        while not self._ended:
            at = self.at
            left = at - time.perf_counter()
            woken = (
                self._alarm.wait(None if left == math.inf else min(left, threading.TIMEOUT_MAX)) if left > 0 else False
            )
            self._alarm.clear()
            now = time.perf_counter()
            if woken and now < self.at:
                continue
            late = now - at if at < math.inf else 0.0
            try:
                self._look(now, late if late > _STALLED else 0.0)
            except Exception as error:
                # The watch is what everything else is saved by: it goes on.
                self.at = now + 1.0
                sys.excepthook(type(error), error, error.__traceback__)
