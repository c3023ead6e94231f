"""Ours against every peer that is installed, in one interleaved run, and the ratio of the best peer's time.

A peer is a name and a function that runs the same work and waits for it. Missing packages are left out and said.
"""

from __future__ import annotations

import gc
import importlib
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.runner import Figure

Work = Callable[[], object]


def package(name: str) -> Any:
    """A peer's package, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def compared(name: str, ours: Work, peers: Mapping[str, Work], bar: float = 1.0, note: str = "") -> Figure:
    """Medians of all in turn, for about a second; ``bar`` is the least ratio of the best peer's time to ours.

    The figure's ratio is ours to the best peer's, so its bar is the inverse.
    """
    works: dict[str, Work] = {"nxjax": ours, **peers}
    calls: dict[str, int] = {}
    for who, work in works.items():
        work()
        start = time.perf_counter()
        work()
        calls[who] = max(1, min(1000, int(0.005 / max(time.perf_counter() - start, 1e-7))))
    times: dict[str, list[float]] = {who: [] for who in works}
    begin = time.perf_counter()
    gc.disable()
    try:
        while len(times["nxjax"]) < 5 or (time.perf_counter() - begin < 1.5 and len(times["nxjax"]) < 40):
            for who, work in works.items():
                start = time.perf_counter()
                for _ in range(calls[who]):
                    work()
                times[who].append((time.perf_counter() - start) / calls[who])
    finally:
        gc.enable()
    medians = {who: statistics.median(t) for who, t in times.items()}
    best = min(peers, key=lambda who: medians[who])
    others = ", ".join(
        f"{who} {medians[who] / medians['nxjax']:.2f}x" for who in sorted(peers, key=lambda w: medians[w])
    )
    text = f"{others}; {note}" if note else others
    return Figure(name, medians["nxjax"], medians[best], best, 1 / bar, text)
