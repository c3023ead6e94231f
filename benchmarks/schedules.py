"""Schedules of random works: how far from the best, which a search over everything finds, and how long they take.

Chains and small graphs of ``tests/backends/hybrid/works.py``: two to three units, some with two lanes, tasks that some
units cannot run, values that several tasks share, transfers from nothing to three times the tasks' own time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from benchmarks.runner import Figure
from nxjax.backends.hybrid.choose import choose, throughput
from nxjax.backends.hybrid.exact import exact
from nxjax.backends.hybrid.placing import heft
from nxjax.backends.hybrid.schedule import Schedule, Work
from nxjax.errors import ParameterError
from tests.backends.hybrid.works import random_work

_WORKS = 200
_NODES = 300_000  # of the search; a work that needs more is left out, and said so


def _bests(*, chain: bool) -> tuple[list[tuple[Work, float]], int]:
    """Works with their least makespans, and how many were too large to be searched."""
    found: list[tuple[Work, float]] = []
    for seed in range(_WORKS):
        work = random_work(seed, 2 + seed % 9, 2 + seed % 2, chain=chain)
        try:
            found.append((work, exact(work, nodes=_NODES).makespan))
        except ParameterError:
            continue
    return found, _WORKS - len(found)


def _gap(name: str, works: list[tuple[Work, float]], out: int, algorithm: Callable[[Work], Schedule]) -> Figure:
    gaps: list[float] = []
    start = time.process_time()
    for work, best in works:
        found = algorithm(work)
        found.check(work)
        gaps.append(found.makespan / best - 1)
    each = (time.process_time() - start) / len(works)
    optimal = sum(gap < 1e-9 for gap in gaps) / len(gaps)
    note = (
        f"mean gap {sum(gaps) / len(gaps):.3%}, largest {max(gaps):.1%}, {optimal:.0%} of {len(gaps)} are the best"
        + (f" ({out} not searched)" if out else "")
    )
    return Figure(name, each, None, "", None, note)


def _size(name: str, work: Work, algorithm: Callable[[Work], Schedule]) -> Figure:
    start = time.process_time()
    found = algorithm(work)
    each = time.process_time() - start
    found.check(work)
    proved = ", no schedule is better" if found.exact else ""
    return Figure(name, each, None, "", None, f"{found.by}{proved}; {found.inflight} in flight")


def figures() -> Iterator[Figure]:
    chains, left = _bests(chain=True)
    yield _gap("chains of 2 to 10, choose", chains, left, choose)
    yield _gap("chains of 2 to 10, HEFT", chains, left, heft)
    graphs, left = _bests(chain=False)
    yield _gap("graphs of 2 to 10, HEFT alone", graphs, left, lambda work: heft(work, effort=0))
    yield _gap("graphs of 2 to 10, HEFT improved", graphs, left, heft)
    yield _gap("graphs of 2 to 10, choose", graphs, left, choose)
    for count in (30, 100, 1000):
        work = random_work(7, count, 4)
        yield _size(f"graph of {count}, HEFT alone", work, lambda work: heft(work, effort=0))
        yield _size(f"graph of {count}, HEFT improved", work, heft)
    for count in (10, 30, 100):
        yield _size(f"chain of {count}, throughput", random_work(7, count, 3, chain=True), throughput)
        yield _size(f"graph of {count}, throughput", random_work(7, count, 3), throughput)
