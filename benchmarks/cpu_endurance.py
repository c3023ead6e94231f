"""Many compiled programs in one process: mappings and memory while they are kept, and after they were dropped.

    python -m benchmarks.cpu_endurance [programs] [kept] [dropped]

`kept` holds all of them until the end and calls each again; `dropped` lets each go before the next is made. Linux gives
a process some 65,000 mappings; 40,000 programs (the default) are more than it would hold with two for each.
"""

import gc
import sys
import time
from pathlib import Path

import numpy as np

import nxjax as nx

X = np.arange(8, dtype=np.float32)
STEPS = 10  # lines that are printed


def mappings() -> int:
    return len(Path("/proc/self/maps").read_text().splitlines())


def memory() -> int:
    """Bytes of this process that are in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def program(i: int):
    """A program like no other: every hundredth is traced and called as users do, the others compiled ahead."""
    number = float(i) + 0.5
    f = nx.jit(lambda x: x * number)
    if i % 100:
        return f.lower(X).compile()
    for _ in range(3):
        f(X)
    return f


def check(f, i: int) -> None:
    np.testing.assert_array_equal(f(X), X * np.float32(i + 0.5))


def run(count: int, keep: bool) -> None:
    kept = []
    start = time.time()
    print("kept" if keep else "dropped", flush=True)
    for i in range(count):
        f = program(i)
        check(f, i)
        if keep:
            kept.append(f)
        if not (i + 1) % max(1, count // STEPS):
            seconds = time.time() - start
            print(
                f"{i + 1:>8,} programs {mappings():>7,} mappings {memory() >> 20:>6,} MiB {seconds:8.0f} s", flush=True
            )
    for i, f in enumerate(kept):
        check(f, i)
    kept.clear()
    del f
    nx.clear_caches()
    gc.collect()
    print(f"{'after':>17} {mappings():>7,} mappings {memory() >> 20:>6,} MiB", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    total = next((int(w) for w in words if w.isdigit()), 40_000)
    modes = [w for w in words if w in ("kept", "dropped")] or ["kept", "dropped"]
    nx.config.update("compile_first", True)
    for mode in modes:
        run(total, mode == "kept")
