"""What a sensor says, where it is looked for, and what makes a rate of a counter. Knows no chip and no vendor."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, final

# A figure of a reading -> what it is called for people.
FIGURES: Final[dict[str, str]] = {
    "celsius": "temperature",
    "watts": "power",
    "busy": "busy",
    "megahertz": "clock",
}


@final
@dataclass(frozen=True)
class Reading:
    """The current readings of a chip; None for missing ones.

    Attributes:
        celsius: the highest temperature of the chip's sensors, in degrees.
        watts: its power.
        busy: its load, 0 to 1.
        megahertz: its clock.
        source: of the readings, such as "hwmon amdxdna"; empty if there is none.
        why: why figures are missing; empty if none is.
        parts: more figures, (what, value, unit): each temperature, each clock.

    >>> Reading(celsius=61.0, source="hwmon k10temp", why="power: no sensor").available
    True
    >>> print(Reading(why="no NPU on this machine"))
    unavailable: no NPU on this machine
    """

    celsius: float | None = None
    watts: float | None = None
    busy: float | None = None
    megahertz: float | None = None
    source: str = ""
    why: str = ""
    parts: tuple[tuple[str, float, str], ...] = ()

    @property
    def available(self) -> bool:
        """Whether there is any figure at all."""
        return any(getattr(self, name) is not None for name in FIGURES)

    @property
    def missing(self) -> list[str]:
        """The names of the missing figures."""
        return [name for name in FIGURES if getattr(self, name) is None]

    def shown(self) -> dict[str, str]:
        """Each figure as text with its unit, or "unavailable"."""
        texts = {
            "celsius": None if self.celsius is None else f"{self.celsius:.1f} °C",
            "watts": None if self.watts is None else f"{self.watts:.2f} W",
            "busy": None if self.busy is None else f"{100 * self.busy:.0f} %",
            "megahertz": None if self.megahertz is None else f"{self.megahertz:.0f} MHz",
        }
        return {name: text or "unavailable" for name, text in texts.items()}

    def __str__(self) -> str:
        if not self.available:
            return f"unavailable: {self.why}"
        figures = ", ".join(t for t in self.shown().values() if t != "unavailable")
        return f"{figures} ({self.source}{'; ' + self.why if self.why else ''})"


def joined(readings: Sequence[Reading]) -> Reading:
    """One reading of several: each figure from the first that has it, and why the rest is missing.

    >>> print(joined([Reading(celsius=50.0, source="a", why="power: no file"), Reading(watts=3.0, source="b")]))
    50.0 °C, 3.00 W (a, b; power: no file)
    """
    made, sources, reasons = Reading(), [], []
    for r in readings:
        new = {name: getattr(r, name) for name in made.missing if getattr(r, name) is not None}
        if new or r.parts:
            made = replace(made, **new, parts=(*made.parts, *r.parts))
        if new and r.source and r.source not in sources:
            sources.append(r.source)
        if r.why and r.why not in reasons:
            reasons.append(r.why)
    why = "; ".join(reasons) if made.missing else ""
    return replace(made, source=", ".join(sources), why=why)


def complete(reading: Reading) -> Reading:
    """A reading that says of each figure that it lacks why.

    >>> complete(Reading(celsius=50.0, why="power: no file")).why
    'power: no file; busy, clock: no sensor tells'
    """
    silent = [FIGURES[name] for name in reading.missing if f"{FIGURES[name]}:" not in reading.why]
    if not reading.available or not silent:
        return reading
    return replace(reading, why="; ".join(filter(None, (reading.why, f"{', '.join(silent)}: no sensor tells"))))


def _ioctl(handle: int, request: int, argument: Any) -> int:
    # fcntl is not there on Windows, where no driver is asked this way.
    import fcntl

    return fcntl.ioctl(handle, request, argument)


def _run(command: Sequence[str], seconds: float) -> tuple[int, str]:
    """Exit status and what was printed; OSError where the program cannot be started or does not end in time."""
    try:
        done = subprocess.run(
            list(command), capture_output=True, text=True, errors="replace", check=False, timeout=seconds
        )
    except subprocess.TimeoutExpired as error:
        raise TimeoutError(f"{command[0]} did not end in {seconds:g} s") from error
    return done.returncode, done.stdout + done.stderr


@final
@dataclass(frozen=True)
class Roots:
    """Where sensors are looked for: the file systems' roots, and how drivers and programs are asked.

    Attributes:
        sys, dev, proc: the mounted file systems.
        ioctl: like ``fcntl.ioctl``, with a structure as argument.
        which: a program's path by its name, or None.
        run: a command and its longest time in seconds, to its exit status and its output.
        clock, sleep: seconds that only grow, and waiting for some.
    """

    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    proc: Path = Path("/proc")
    ioctl: Callable[[int, int, Any], int] = field(default=_ioctl, repr=False)
    which: Callable[[str], str | None] = field(default=shutil.which, repr=False)
    run: Callable[[Sequence[str], float], tuple[int, str]] = field(default=_run, repr=False)
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    sleep: Callable[[float], None] = field(default=time.sleep, repr=False)


@final
@dataclass
class Rates:
    """What counters had counted when they were last looked at, so that the next look gives a rate.

    >>> now = iter([0.0, 2.0])
    >>> rates = Rates(lambda: next(now))
    >>> rates.per_second("energy", 5.0), rates.per_second("energy", 11.0)
    (None, 3.0)
    """

    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    seen: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    last: dict[str, float] = field(default_factory=dict[str, float])
    kept: dict[str, tuple[float, Reading]] = field(default_factory=dict[str, "tuple[float, Reading]"])

    def held(self, key: str, least: float, make: Callable[[], Reading]) -> Reading:
        """A reading that is too dear to be made more often than every ``least`` seconds: a program has to be run."""
        now = self.clock()
        if key not in self.kept or now - self.kept[key][0] >= least:
            self.kept[key] = (now, make())
        return self.kept[key][1]

    def per_second(self, key: str, value: float, wraps: float = 0.0, least: float = 0.0) -> float | None:
        """How fast a counter grows; None at the first look, and the rate before until ``least`` seconds are over.

        ``wraps`` is where the counter starts again from nothing; a counter that shrank without it starts anew.
        """
        now = self.clock()
        if key not in self.seen:
            self.seen[key] = (now, value)
            return None
        then, before = self.seen[key]
        grown = value - before + (wraps if value < before else 0.0)
        if now - then < least or now <= then:
            return self.last.get(key)
        self.seen[key] = (now, value)
        if grown < 0:
            self.last.pop(key, None)
            return None
        self.last[key] = grown / (now - then)
        return self.last[key]


def text(path: Path) -> str | None:
    """A file's text without its line end; None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def figure(content: object) -> float | None:
    """A number in a text; None for anything else, such as "N/A" or "nan".

    >>> figure("62.5"), figure("N/A"), figure("nan"), figure(None)
    (62.5, None, None, None)
    """
    try:
        found = float(str(content))
    except ValueError:
        return None
    return found if math.isfinite(found) else None


def number(path: Path) -> float | None:
    """A file's one number; None where it cannot be read or holds none."""
    return figure(text(path))


def denied(path: Path) -> bool:
    """Whether a file is there that this user may not read."""
    return path.exists() and not os.access(path, os.R_OK)
