"""What regions took on this machine, kept across processes: a few times per region and unit, as text.

Times are of a region's form (its ops and types, not the values of its weights). Knows no plan.
"""

from __future__ import annotations

import json
import math
import os
import platform
import statistics
import threading
from collections import deque
from functools import lru_cache
from pathlib import Path
from typing import Final, final

from nxjax.backends import cache
from nxjax.config import config
from nxjax.errors import Shown
from nxjax.trace.program import Program

# Times that are kept per region and unit; the oldest go.
KEPT: Final = 33
_FORMAT: Final = "nxjax hybrid history 1"


@lru_cache(1)
def machine() -> str:
    """What tells this machine from others whose cache folder it may share: its processor and how many there are."""
    name = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    except OSError:
        pass
    return f"{platform.system()} {platform.machine()} {name} x{os.cpu_count()}"


def form(program: Program) -> str:
    """What a region is apart from the values of its consts: the name that its times are kept under."""
    return program.hoist_consts()[0].fingerprint


@final
class History(Shown):
    """Measured times by region and unit. The median is used, so one slow run changes little.

    Args:
        kept: whether times are read from and written to the cache folder.

    >>> history = History(kept=False)
    >>> for seconds in (1.0, 9.0, 1.5):
    ...     history.add("region", "npu", seconds)
    >>> history.seconds("region", "npu"), history.count("region", "npu"), history.seconds("region", "cpu")
    (1.5, 3, None)
    """

    def __init__(self, *, kept: bool = True) -> None:
        self._kept = kept
        self._times: dict[tuple[str, str], deque[float]] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._lock = threading.Lock()

    def add(self, region: str, unit: str, seconds: float) -> None:
        """Add a time. It is saved after each of the first four of a process, then less and less often."""
        if not 0 <= seconds < math.inf:
            return
        with self._lock:
            times = self._of(region, unit)
            times.append(seconds)
            count = self._counts[region, unit] = self._counts[region, unit] + 1
            data = json.dumps({"format": _FORMAT, "unit": unit, "times": list(times)})
        if self._kept and (count <= 4 or not count & (count - 1)):
            cache.store(_key(region, unit), data.encode())

    def seconds(self, region: str, unit: str) -> float | None:
        """The median of the measured times, or None."""
        with self._lock:
            times = self._of(region, unit)
            return statistics.median(times) if times else None

    def count(self, region: str, unit: str) -> int:
        """The number of known times, at most `KEPT`."""
        with self._lock:
            return len(self._of(region, unit))

    def forget(self, region: str, unit: str) -> None:
        """Delete the times, here and in the cache folder."""
        with self._lock:
            self._times[region, unit] = deque(maxlen=KEPT)
            self._counts[region, unit] = 0
        if self._kept:
            cache.discard(_key(region, unit))

    def _of(self, region: str, unit: str) -> deque[float]:
        found = self._times.get((region, unit))
        if found is None:
            found = self._times[region, unit] = deque(_loaded(region, unit) if self._kept else (), maxlen=KEPT)
            self._counts[region, unit] = 0
        return found


def _key(region: str, unit: str) -> str:
    return cache.key_of("hybrid history", machine(), config.cpu_isa or "", unit, region)


def _loaded(region: str, unit: str) -> list[float]:
    """What other processes have left; nothing where it cannot be read."""
    data = cache.load(_key(region, unit))
    try:
        found = json.loads(data) if data is not None else {}
        times = found["times"] if found.get("format") == _FORMAT and found.get("unit") == unit else []
        return [float(t) for t in times if 0 <= float(t) < math.inf]
    except (ValueError, TypeError, AttributeError, KeyError, OverflowError):
        return []
