"""What this machine can do at most: copy bandwidth and multiply-add rate, measured once per process.

The ceilings of a roofline (Williams, Waterman, Patterson, CACM 52(4), 2009).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, final

import numpy as np

from nxjax.backends.cpu.engine import engine
from nxjax.backends.cpu.interpret import empty, run_kernel
from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.base import Kernel
from nxjax.kernels.cpu.probe import PeakFma, StreamCopy

_BYTES: Final = 64 * 2**20  # more than the caches hold
_ADDED: Final = 6000  # items of multiply-adds: milliseconds, beside which threads start in no time
_ROUNDS: Final = 5


@final
@dataclass(frozen=True, slots=True)
class Peaks:
    """The ceilings for ``threads`` threads.

    Attributes:
        bandwidth: bytes read plus bytes written per second by a tuned copy of 64 MiB.
        flops: float32 additions and multiplications per second; float64 has half of them.
        threads: how many ran at once.
        isa: the instruction set that was measured.
    """

    bandwidth: float
    flops: float
    threads: int
    isa: str

    def __str__(self) -> str:
        many = "thread" if self.threads == 1 else "threads"
        return f"{self.isa}, {self.threads} {many}: {self.bandwidth / 1e9:.1f} GB/s, {self.flops / 1e9:.0f} GFLOP/s"

    def seconds(self, flops: float, nbytes: float) -> float:
        """The least time for so many operations and bytes."""
        return max(flops / self.flops, nbytes / self.bandwidth)


@lru_cache(None)
def peaks(threads: int) -> Peaks:
    """Measure; takes about 0.2 s, once."""
    i = isa.current()
    copy, fma = StreamCopy(_BYTES // 4096), PeakFma(_ADDED, np.dtype(np.float32))
    source, target = empty(_BYTES), empty(_BYTES)
    source[:] = 1
    target[:] = 0  # pages are there
    zero, out = np.zeros(1, np.float32), np.zeros(1, np.float32)
    (copying, adding) = engine(i).addresses([copy, fma])
    words = [source.ctypes.data, target.ctypes.data]
    bandwidth = 2 * _BYTES / _best(_shared(copying, copy, words, threads))
    numbers = [zero.ctypes.data, out.ctypes.data]
    rate = fma.operations(i) / _best(_shared(adding, fma, numbers, threads))
    return Peaks(bandwidth, rate, threads, i.name)


def _best(run: Callable[[], None]) -> float:
    found = float("inf")
    for _ in range(_ROUNDS):
        start = time.perf_counter()
        run()
        found = min(found, time.perf_counter() - start)
    return found


def _shared(address: int, kernel: Kernel, words: list[int], threads: int) -> Callable[[], None]:
    """``kernel`` cut into ``threads`` equal parts."""
    cuts = [kernel.items * i // threads for i in range(threads + 1)]

    def run() -> None:
        others = [
            threading.Thread(target=run_kernel, args=(address, kernel, words, cuts[i], cuts[i + 1]))
            for i in range(1, threads)
        ]
        for t in others:
            t.start()
        run_kernel(address, kernel, words, cuts[0], cuts[1])
        for t in others:
            t.join()

    return run
