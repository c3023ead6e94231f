"""Curves: time against the number of elements, threads, equations and processes, beside the peers that are installed.

``python -m benchmarks scale``: it takes minutes, and is asked for by name only. ``--thorough`` goes on to 10^9
elements, which takes 12 GB. What a copy's bandwidth or the peak of multiply-adds allows at least is the roofline of a
curve.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final

import numpy as np

import nxjax as nx
from benchmarks.large_programs import straight
from benchmarks.peers import THREADS, Work, ceilings, ours, package, times, with_jax, with_torch
from benchmarks.runner import Figure

SIZES: Final = tuple(10**k for k in range(2, 9))
EQUATIONS: Final = (10, 100, 1_000, 3_000)
# More equations take JAX minutes.
MOST_IN_JAX: Final = 1_000
PROCESSES: Final = (1, 2, 4, 8)
SECONDS: Final = 0.3
# One function of an array, jitted, in a process of its own.
ALONE: Final = "import {0}; {0}.block_until_ready({0}.jit(lambda x: x * 2 + 1)({0}.numpy.ones(8)))"


@dataclass(frozen=True)
class Curve:
    """A program of every size.

    Attributes:
        f: of the library (NumPy, or one with NumPy's names) and its arrays.
        args: its arrays for n elements.
        least: operations and bytes that n elements take at least.
        most: the largest size.
    """

    f: Callable[..., Any]
    args: Callable[[int], tuple[np.ndarray, ...]]
    least: Callable[[int], tuple[float, float]]
    most: int = 10**9

    def torch(self, torch: Any, *xs: Any) -> Any:
        """The same in PyTorch, whose sort gives indices too."""
        y = self.f(torch, *xs)
        return y[0] if isinstance(y, tuple) else y


def _vector(n: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(n, np.float32)


def _square(n: int) -> np.ndarray:
    side = round(n**0.5)
    return _vector(side * side).reshape(side, side)


CURVES: Final[dict[str, Curve]] = {
    "x * 2 + y": Curve(lambda np, x, y: x * 2 + y, lambda n: (_vector(n), _vector(n)), lambda n: (2 * n, 12 * n)),
    "tanh(x)": Curve(lambda np, x: np.tanh(x), lambda n: (_vector(n),), lambda n: (0, 8 * n)),
    "sum(x)": Curve(lambda np, x: np.sum(x), lambda n: (_vector(n),), lambda n: (n, 4 * n)),
    "sort(x)": Curve(lambda np, x: np.sort(x), lambda n: (_vector(n),), lambda n: (0, 8 * n), 10**7),
    "X @ X": Curve(lambda np, x: x @ x, lambda n: (_square(n),), lambda n: (2 * n**1.5, 8 * n), 10**7),
}


def figures(thorough: bool = False) -> Iterator[Figure]:
    """One figure for each point of each curve."""
    sizes = (*SIZES, 10**9) if thorough else SIZES
    points = ((name, c, n) for name, c in CURVES.items() for n in sizes if n <= c.most)
    return chain((_point(*p) for p in points), _threads(), _equations(), _processes())


def _point(name: str, curve: Curve, n: int) -> Figure:
    xs = curve.args(n)
    works: dict[str, Work] = {
        "nxjax": ours(lambda *xs: curve.f(nx.numpy, *xs), *xs),
        "numpy": lambda: curve.f(np, *xs),
        **with_jax(lambda jax: lambda *xs: curve.f(jax.numpy, *xs), *xs),
        **with_torch(lambda torch: lambda *xs: curve.torch(torch, *xs), *xs, compiled=False),
    }
    flops, nbytes = curve.least(n)
    # The final code, not what runs until it is made.
    with nx.config.using(compile_first=True):
        return _figure(f"{name}, elements {n}", times(works, 3, SECONDS), flops, nbytes)


def _figure(name: str, found: Mapping[str, float], flops: float = 0.0, nbytes: float = 0.0) -> Figure:
    peers = {who: took for who, took in found.items() if who != "nxjax"}
    best = min(peers, key=peers.__getitem__, default="")
    note = f"at least {ceilings().seconds(flops, nbytes):.3g} s" if flops or nbytes else ""
    return Figure(
        name, found["nxjax"], peers.get(best), best, None, note, peers=peers, flops=flops, nbytes=nbytes
    )  # fmt: skip


def _threads() -> Iterator[Figure]:
    """The same on fewer threads; JAX's threads cannot be counted in a running process."""
    n = 10**7
    for name, curve in CURVES.items():
        xs = curve.args(n)
        for count in range(1, THREADS + 1):
            with nx.config.using(num_threads=count, compile_first=True):
                work = ours(lambda *xs, c=curve: c.f(nx.numpy, *xs), *xs)
                yield _figure(f"{name}, threads {count}", times({"nxjax": work}, 3, SECONDS))


def _equations() -> Iterator[Figure]:
    """The first call of straight-line programs: tracing, lowering and machine code."""
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    jax = package("jax")
    for n in EQUATIONS:
        f = straight(n)
        with nx.config.using(cache_dir="", compile_first=True):
            found = {"nxjax": _once(lambda f=f: nx.block_until_ready(nx.jit(f)(x)))}
        if jax is not None and n <= MOST_IN_JAX:
            g = straight(n, jax.numpy)
            found["jax"] = _once(lambda g=g: jax.block_until_ready(jax.jit(g)(x)))
        yield _figure(f"first call, equations {n}", found)


def _processes() -> Iterator[Figure]:
    """How long so many processes, started together, take to their first result."""

    def run(library: str, count: int) -> float:
        code = [sys.executable, "-c", ALONE.format(library)]
        return _once(lambda: [p.wait() for p in [subprocess.Popen(code) for _ in range(count)]])

    libraries = ["nxjax", *(["jax"] if package("jax") is not None else [])]
    for count in PROCESSES:
        yield _figure(f"start, processes {count}", {who: min(run(who, count) for _ in range(3)) for who in libraries})


def _once(work: Work) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
