"""The interleaved runner: A B A B ..., the smallest times, the ratio, JSON kept. Knows no benchmark."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One comparison. Times are the smallest of many.

    Attributes:
        peer: the best peer's figure, or None where no peer is installed.
        bar: the largest ratio of ours to the best peer's that is good enough, or None.
        peers: every peer's figure.
        against: the least ratio of some peers' figure to ours.
        flops, nbytes: what the work takes at least, where one of them is its limit.
        share: the least share of a tuned copy's bandwidth.
        most: the largest figure that is good enough, peers or not.
    """

    name: str
    ours: float
    peer: float | None
    peer_name: str
    bar: float | None
    note: str = ""
    unit: str = "s"
    peers: dict[str, float] = field(default_factory=dict[str, float])
    against: dict[str, float] = field(default_factory=dict[str, float])
    flops: float = 0.0
    nbytes: float = 0.0
    share: float | None = None
    most: float | None = None

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.ours / max(self.peer, 1e-12)

    def shown(self, value: float | None) -> str:
        """``value`` in this figure's unit."""
        if value is None:
            return "-"
        return _time(value) if self.unit == "s" else f"{value:,.0f} {self.unit}"

    def line(self) -> str:
        times = f"{self.shown(self.ours):>13} : {self.shown(self.peer):>13}"
        if self.ratio is None:
            return f"{self.name:<34} {times}  {self.note}".rstrip()
        verdict = "" if self.bar is None else f"  bar {self.bar:.3f} {'met' if self.ratio <= self.bar else 'MISSED'}"
        return f"{self.name:<34} {times}  ratio {self.ratio:6.3f} to {self.peer_name}{verdict}  {self.note}".rstrip()


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def interleaved(
    ours: Callable[[], object], peer: Callable[[], object], *, calls: int = 1, rounds: int = 15
) -> tuple[float, float]:
    """Least seconds per call of both, measured in turn; one round of each is not counted."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds + 1):
        for kept, function in zip(times, (ours, peer), strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            if i:
                kept.append((time.perf_counter() - start) / calls)
    return min(times[0]), min(times[1])


def processor() -> str:
    """The processor's name, where the system says it."""
    with suppress(OSError, StopIteration):
        text = Path("/proc/cpuinfo").read_text()
        return next(line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return platform.processor() or platform.machine()


def keep(figures: list[Figure]) -> Path:
    """Write the figures with what they were measured on; gives the file."""
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    record = {
        "when": stamp,
        "processor": processor(),
        "machine": f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "figures": [{**asdict(f), "ratio": f.ratio} for f in figures],
    }
    handle, temporary = tempfile.mkstemp(dir=RESULTS, suffix=".part")
    with os.fdopen(handle, "w") as file:
        json.dump(record, file, indent=1)
    path = RESULTS / f"{stamp}.json"
    os.replace(temporary, path)
    return path
