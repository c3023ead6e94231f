"""The interleaved runner: A B A B ..., medians, the ratio, JSON kept. Knows no benchmark."""

from __future__ import annotations

import json
import os
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True)
class Figure:
    """One comparison. Times are medians; ``bar`` is the largest ratio that is good enough, or None."""

    name: str
    ours: float
    peer: float
    peer_name: str
    bar: float | None
    note: str = ""
    unit: str = "s"

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    def line(self) -> str:
        verdict = "" if self.bar is None else f"  bar {self.bar:.3f} {'met' if self.ratio <= self.bar else 'MISSED'}"
        shown = _time if self.unit == "s" else lambda value: f"{value:,.0f} {self.unit}"
        times = f"{shown(self.ours):>13} : {shown(self.peer):>13}"
        return f"{self.name:<34} {times}  ratio {self.ratio:6.3f} to {self.peer_name}{verdict}  {self.note}".rstrip()


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def interleaved(
    ours: Callable[[], object], peer: Callable[[], object], *, calls: int = 1, rounds: int = 15
) -> tuple[float, float]:
    """Median seconds per call of both, measured in turn; one round of each is not counted."""
    times: tuple[list[float], list[float]] = ([], [])
    for i in range(rounds + 1):
        for kept, function in zip(times, (ours, peer), strict=True):
            start = time.perf_counter()
            for _ in range(calls):
                function()
            if i:
                kept.append((time.perf_counter() - start) / calls)
    return statistics.median(times[0]), statistics.median(times[1])


def keep(figures: list[Figure]) -> Path:
    """Write the figures with what they were measured on; gives the file."""
    RESULTS.mkdir(exist_ok=True)
    stamp = time.strftime("%Y%m%d-%H%M%S")
    record = {
        "when": stamp,
        "machine": f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}",
        "figures": [{**asdict(f), "ratio": f.ratio} for f in figures],
    }
    handle, temporary = tempfile.mkstemp(dir=RESULTS, suffix=".part")
    with os.fdopen(handle, "w") as file:
        json.dump(record, file, indent=1)
    path = RESULTS / f"{stamp}.json"
    os.replace(temporary, path)
    return path
