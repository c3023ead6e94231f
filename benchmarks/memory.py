"""Memory over many calls and many retraces: bytes that Python holds afterwards, beside before."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable

from benchmarks.runner import Figure


def growth(work: Callable[[], object], times: int) -> tuple[float, float]:
    """Bytes held after ``times`` runs, and after the first tenth of them (what caches settle at)."""
    for _ in range(times // 10):
        work()
    gc.collect()
    tracemalloc.start()
    work()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    for _ in range(times):
        work()
    gc.collect()
    after = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return float(after), float(before)


def figures() -> list[Figure]:
    import nxjax as nx

    x = nx.arange(4.0)
    step = nx.jit(lambda v: v * 2)

    def retrace() -> None:
        nx.jit(lambda v: v * 2)(x)

    found: list[Figure] = []
    for name, work, times in (("10,000 jit calls", lambda: step(x), 10_000), ("1,000 retraces", retrace, 1_000)):
        after, before = growth(work, times)
        note = f"{(after - before) / times:.1f} bytes a call"
        found.append(Figure(f"held after {name}", after, max(before, 1.0), "before", None, note, "B"))
    return found
