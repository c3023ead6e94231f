"""What the engine of hybrid execution costs: per job, per run, and when a unit fails; threads as they come in Python.

The peer is `concurrent.futures.ThreadPoolExecutor`, which has neither dependencies nor redoing: it runs a chain by
waiting for each result. There is no peer for what a fault costs: the time of a run with one above that without.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.runner import Figure, interleaved
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.jobs import Graph, Job
from nxjax.backends.hybrid.plugin import Remote
from nxjax.backends.hybrid.run import GraphRun, streamed

POOL = "ThreadPoolExecutor"
PLUGIN = Path(__file__).with_name("hybrid_plugin.py")


def step(args: Sequence[Any]) -> list[Any]:
    return [args[0] + 1]


def chain(n: int, units: Sequence[str]) -> Graph:
    runs = dict.fromkeys(units, step)
    return Graph([Job(f"step{i}", units[i % len(units)], runs, ((i - 1, 0),)) for i in range(n)])


def pooled(pools: Sequence[ThreadPoolExecutor], n: int) -> Callable[[], object]:
    def run() -> Any:
        value: list[Any] = [0]
        for i in range(n):
            value = pools[i % len(pools)].submit(step, value).result()
        return value

    return run


def chains() -> Iterator[Figure]:
    units = {"a": LaneOptions(), "b": LaneOptions()}
    with Engine(units) as engine, ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        for name, n, used, pools in (
            ("engine: one job", 1, ["a"], [one]),
            ("engine: chain of 10", 10, ["a"], [one]),
            ("engine: chain of 10, two units", 10, ["a", "b"], [one, two]),
            ("engine: chain of 1,000", 1000, ["a"], [one]),
        ):
            graph = chain(n, used)
            ours, peer = interleaved(
                lambda graph=graph: engine.submit(graph, [0]).result(), pooled(pools, n), calls=max(1, 200 // n)
            )
            yield Figure(name, ours, peer, POOL, None, f"{1e6 * ours / n:.1f} us a job")
        graph = chain(10, ["a", "b"])

        def stream() -> None:
            begin = lambda xs: engine.submit(graph, xs)
            for _ in streamed(begin, GraphRun.result, GraphRun.cancel, ([n] for n in range(200)), lambda: 8):
                pass

        start = time.perf_counter()
        stream()
        took = time.perf_counter() - start
        yield Figure("engine: 200 runs of 10, 8 at once", took, None, "", None, f"{1e6 * took / 2000:.1f} us a job")


def redone() -> Iterator[Figure]:
    """One job that fails on its unit, above one that does not."""
    failing = [False]

    def flaky(args: Sequence[Any]) -> list[Any]:
        if failing[0]:
            raise OSError("device lost")
        return step(args)

    graph = Graph([Job("flaky", "npu", {"npu": flaky, "cpu": step}, ((-1, 0),))])
    with Engine({"npu": LaneOptions(), "cpu": LaneOptions()}, FaultPolicy(backoff=3600, backoff_most=3600)) as engine:
        times: dict[bool, float] = {}
        for fault in (False, True, False, True):
            failing[0] = fault
            for _ in range(200):
                engine.readmit("npu")
                start = time.perf_counter()
                engine.submit(graph, [0]).result()
                times[fault] = min(times.get(fault, 1.0), time.perf_counter() - start)
        yield Figure("engine: a job is redone", times[True] - times[False], None, "", None, "above one without a fault")


def remote() -> Iterator[Figure]:
    """A plug-in in a process of its own, beside the same function here; and being killed."""
    with Remote(str(PLUGIN), name="plug-in") as plugin:
        start = time.perf_counter()
        plugin.child()
        yield Figure("remote: start of a process", time.perf_counter() - start, None, "", None)
        for name, nbytes in (("1 KB", 1 << 10), ("1 MB", 1 << 20), ("64 MB", 1 << 26)):
            x = np.ones(nbytes // 4, np.int32)
            there = plugin.prepare(b"double", "name")
            calls = 1 if nbytes > 1 << 22 else 20
            ours, here = interleaved(lambda x=x, there=there: there([x]), lambda x=x: [x * 2], calls=calls)
            yield Figure(
                f"remote: double {name}", ours, here, "NumPy here", None, f"{2 * nbytes / ours / 1e9:.2f} GB/s"
            )
        runs = {"npu": there, "cpu": lambda args: [args[0] * 2]}
        graph = Graph([Job("double", "npu", runs, ((-1, 0),), exact=True)])
        x = np.ones(256, np.int32)
        npu = LaneOptions(probe=plugin.probe, interrupt=plugin.interrupt)
        with Engine({"npu": npu, "cpu": LaneOptions()}, FaultPolicy(backoff=3600, backoff_most=3600)) as engine:
            engine.submit(graph, [x]).result()
            least = 1.0
            for _ in range(5):
                os.kill(plugin.child().pid, 9)
                start = time.perf_counter()
                engine.submit(graph, [x]).result()
                least = min(least, time.perf_counter() - start)
                engine.readmit("npu")
            yield Figure("remote: a run whose process is dead", least, None, "", None, "redone here, or started again")


def figures() -> Iterator[Figure]:
    yield from chains()
    yield from redone()
    yield from remote()
