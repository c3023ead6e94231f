"""Ours against every peer that is installed, in one interleaved run, and the ratio of the best peer's time.

A peer is a name and a function that runs the same work and waits for it. Missing packages are left out and said.
"""

from __future__ import annotations

import gc
import importlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from benchmarks.runner import Figure
from nxjax.kernels.cpu import isa
from nxjax.profiling.peaks import Peaks, peaks

Work = Callable[[], object]
THREADS = len(os.sched_getaffinity(0))
# The packages that are compared with: how they are imported, what they are called.
PACKAGES = {
    "jax": "jax",
    "torch": "PyTorch",
    "numexpr": "numexpr",
    "onnxruntime": "ONNX Runtime",
    "openvino": "OpenVINO",
}


def package(name: str) -> Any:
    """A peer's package, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def missing() -> list[str]:
    """The peers that are not installed here."""
    return [called for name, called in PACKAGES.items() if package(name) is None]


_ASLEEP = 0.15  # seconds after which nobody's threads spin any more
_AWAKE = 0.02  # seconds in which a work's own threads and memory are at their best
_most: list[Peaks] = []


def ceilings() -> Peaks:
    """What the machine does at most: the best that was measured yet, since others on it may have been busy before."""
    peaks.cache_clear()
    time.sleep(_ASLEEP)
    _most.append(peaks(THREADS))
    best = Peaks(max(p.bandwidth for p in _most), max(p.flops for p in _most), THREADS, _most[0].isa)
    _most[:] = [best]
    return best


def isas() -> tuple[str, ...]:
    """The instruction sets that kernels can be made for here."""
    return (*isa.possible(), *(["avx512-base"] if "avx512" in isa.possible() else []))


def without_vnni() -> str:
    """The best instruction set here without sums of four products of bytes; empty where the best has them not."""
    return next((name for name in ("avx512-base", "avx2") if name in isas() and not isa.named(name).vnni), "")


@dataclass(frozen=True)
class Row:
    """One work, not yet made: ``works()`` gives ours and the peers'.

    Attributes:
        bar: the least ratio of the best peer's time to ours, or None.
        against: further bars, each for one peer.
        flops, nbytes: operations, and bytes read and written at least; 0 where neither is the limit.
        share: the least share of a tuned copy's bandwidth.
        isa: the instruction set that ours is made for; empty: the best here.
        cold: the on-disk cache is off.
        rounds: how often all are measured at least; those that take longer than a second, no more often.
    """

    name: str
    works: Callable[[], tuple[Work, dict[str, Work]]]
    bar: float | None = 1.0
    against: Mapping[str, float] = field(default_factory=dict[str, float])
    flops: float = 0.0
    nbytes: float = 0.0
    share: float | None = None
    isa: str = ""
    cold: bool = False
    rounds: int = 5


def measured(row: Row) -> Figure:
    """The smallest times of all in turn, for about four seconds: others on the machine only ever add to a time.

    The figure's ratio is ours to the best peer's, so its bar is the inverse.
    """
    cache = "" if row.cold else nx.config.cache_dir
    with nx.config.using(cpu_isa=row.isa or nx.config.cpu_isa, cache_dir=cache):
        ours, peers = row.works()
        found = times({"nxjax": ours, **peers}, row.rounds)
    mine = found.pop("nxjax")
    order = sorted(found, key=lambda who: found[who])
    parts: list[str] = []
    most = ceilings()
    if row.flops:
        parts.append(f"{row.flops / mine / 1e9:.0f} GFLOP/s, {row.flops / mine / most.flops:.0%} of peak")
    if row.nbytes:
        parts.append(f"{row.nbytes / mine / 1e9:.1f} GB/s, {row.nbytes / mine / most.bandwidth:.0%} of a copy")
    parts.append(", ".join(f"{who} {found[who] / mine:.2f}x" for who in order) or "no peer is installed")
    return Figure(
        row.name,
        mine,
        found[order[0]] if order else None,
        order[0] if order else "",
        row.bar and 1 / row.bar,
        "; ".join(parts),
        peers=found,
        against=dict(row.against),
        flops=row.flops,
        nbytes=row.nbytes,
        share=row.share,
    )


def all_measured(rows: Iterator[Row]) -> Iterator[Figure]:
    return map(measured, rows)


def times(works: Mapping[str, Work], rounds: int, seconds: float = 4.0, pause: float = _ASLEEP) -> dict[str, float]:
    """The least seconds of a call of each, in at least ``rounds`` rounds and about ``seconds`` of them.

    A short ``pause`` before each is for quick looks: only NumPy's threads are waited for then.

    Libraries' threads go on spinning after their work (OpenBLAS's for 0.12 s, as measured), on a processor that the
    next one's threads need: each begins when those of the last have gone to sleep, and is awake when it is timed.
    """
    calls: dict[str, int] = {}
    for who, work in works.items():
        # The first calls compile, and some find a shorter way for the next.
        took, spent, done = float("inf"), 0.0, 0
        while done < 2 or spent < 0.05 * seconds or (done < 10 and spent < 0.5 * seconds):
            start = time.perf_counter()
            work()
            last = time.perf_counter() - start
            took, spent, done = min(took, last), spent + last, done + 1
        calls[who] = max(1, min(20000, int(0.01 * min(1.0, seconds) / took)))
    least = dict.fromkeys(works, float("inf"))
    begin, done = time.perf_counter(), 0
    gc.disable()
    try:
        before = ""
        while done < rounds or (time.perf_counter() - begin < seconds and done < 60):
            for who, work in works.items():
                time.sleep(_ASLEEP if before == "numpy" else pause)
                before, awake = who, time.perf_counter() + min(_AWAKE, pause)
                while least[who] < _AWAKE and time.perf_counter() < awake:
                    work()
                start = time.perf_counter()
                for _ in range(calls[who]):
                    work()
                least[who] = min(least[who], (time.perf_counter() - start) / calls[who])
            done += 1
    finally:
        gc.enable()
    return least


def ours(f: Callable[..., Any], *xs: Any) -> Work:
    """The jitted function; arguments are trees of arrays."""
    g = nx.jit(f)
    values = nx.tree.map(jnp.asarray, xs)
    return lambda: nx.block_until_ready(g(*values))


def with_jax(f: Callable[[Any], Callable[..., Any]], *xs: Any) -> dict[str, Work]:
    """``f(jax)`` jitted; nothing where JAX is missing."""
    jax = package("jax")
    if jax is None:
        return {}
    g = jax.jit(f(jax))
    values = jax.tree.map(jax.numpy.asarray, xs)
    return {"jax": lambda: jax.block_until_ready(g(*values))}


def with_torch(f: Callable[[Any], Callable[..., Any]], *xs: Any, compiled: bool = True) -> dict[str, Work]:
    """``f(torch)`` as it is, and by `torch.compile`, where that works."""
    torch = package("torch")
    if torch is None:
        return {}
    torch.set_num_threads(THREADS)
    values = [torch.from_numpy(np.array(x)) for x in xs]
    g = f(torch)

    def quiet(h: Callable[..., Any]) -> Work:
        def run() -> object:
            with torch.no_grad():
                return h(*values)

        return run

    found: dict[str, Work] = {"torch": quiet(g)}
    if compiled:
        try:
            work = quiet(torch.compile(g))
            work()
            found["torch.compile"] = work
        except Exception:
            pass
    return found


def with_numexpr(text: str, **xs: Any) -> dict[str, Work]:
    numexpr = package("numexpr")
    if numexpr is None:
        return {}
    numexpr.set_num_threads(THREADS)
    return {"numexpr": lambda: numexpr.evaluate(text, local_dict=xs)}
