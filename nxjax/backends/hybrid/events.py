"""What happened to units: a list that does not grow without end, for reports and for whoever wants to hear of it."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal, final

Kind = Literal[
    "out", "redone", "late", "probe", "back", "warm", "cool", "lie", "checked", "unchecked", "sensor", "lost"
]  # fmt: skip

KEPT: Final = 1000


@final
@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened.

    Attributes:
        when: `time.time` of it.
        unit: the unit.
        kind: "out" (taken out), "redone", "late" (an answer dropped), "probe" (a probe failed), "back" (readmitted),
            "warm", "cool", "lie", "checked" (two units agree), "unchecked" (there was no second unit), "sensor" (no
            temperature) or "lost" (a thread that does not come back).
        text: for people.
        job: the job's name, if it concerns one.
        run: the run's number, if it concerns one.

    >>> print(Event(0.0, "npu", "out", "deadline of 12 ms passed", job="net:1"))
    npu: deadline of 12 ms passed
    """

    when: float
    unit: str
    kind: Kind
    text: str
    job: str = ""
    run: int | None = None

    def __str__(self) -> str:
        return f"{self.unit}: {self.text}"


@final
class EventLog:
    """The last `KEPT` events, and listeners. A listener is called by the thread that delivers, never under a lock."""

    def __init__(self) -> None:
        self._kept: deque[Event] = deque(maxlen=KEPT)
        self._waiting: deque[Event] = deque()
        self.listeners: list[Callable[[Event], None]] = []

    def add(self, unit: str, kind: Kind, text: str, *, job: str = "", run: int | None = None) -> Event:
        event = Event(time.time(), unit, kind, text, job, run)
        self._kept.append(event)
        if self.listeners:
            self._waiting.append(event)
        return event

    def deliver(self) -> None:
        """Tell the listeners what they have not heard. What one of them raises is reported, and goes no further."""
        while self._waiting:
            try:
                event = self._waiting.popleft()
            except IndexError:  # another thread was quicker
                return
            for listener in tuple(self.listeners):
                try:
                    listener(event)
                except Exception as error:
                    sys.excepthook(type(error), error, error.__traceback__)

    def __iter__(self):
        return iter(tuple(self._kept))

    def __len__(self) -> int:
        return len(self._kept)
