"""Random graphs of integer jobs over three units that fail at random, several runs at once: always the same numbers."""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.health import FaultPolicy, LaneOptions
from nxjax.backends.hybrid.jobs import Graph, Job

Function = Callable[[Sequence[Any]], list[Any]]
FUNCTIONS: list[tuple[Function, int]] = [
    (lambda xs: [sum(xs)], 1),
    (lambda xs: [xs[0] * 3 - 1], 1),
    (lambda xs: [np.bitwise_xor.reduce(xs)], 1),
    (lambda xs: [np.roll(xs[-1], 1) + 7, xs[0] >> 1], 2),
]
UNITS = {"a": 1, "b": 2, "c": 2}


class Faulty:
    """A unit that goes wrong in one call of eight, and in one probe of five."""

    def __init__(self, name: str, seed: int, kinds: Sequence[str]) -> None:
        self.name, self.kinds = name, kinds
        self.random = random.Random(f"{name} {seed}")
        self.lock = threading.Lock()
        self.dead = False

    def draw(self, part: float) -> str:
        with self.lock:
            kind = self.random.choice(self.kinds) if self.random.random() < part else ""
            self.dead |= kind == "die"
            return "die" if self.dead else kind

    def runs(self, function: Function) -> Function:
        def run(xs: Sequence[Any]) -> Any:
            kind = self.draw(1 / 8)
            if kind == "die":
                raise OSError(f"{self.name} is lost")
            if kind == "raise":
                with self.lock:
                    raise self.random.choice([RuntimeError, KeyError, MemoryError, SystemExit])(f"{self.name} failed")
            if kind == "hang":
                time.sleep(0.12)
            y = function(xs)
            if kind == "lie":
                with self.lock:
                    y = [v ^ self.random.randrange(1, 1 << 30) for v in y]
            return {"shape": [v[:-1] for v in y], "dtype": [v.astype(np.int32) for v in y], "none": None}.get(kind, y)

        return run

    def probe(self) -> bool:
        kind = self.draw(1 / 5)
        if kind == "raise":
            raise OSError("still lost")
        if kind == "hang":
            time.sleep(0.06)
        self.dead = False
        return kind != "lie"


def campaign(seed: int, kinds: dict[str, Sequence[str]], verify: float) -> None:
    rng = random.Random(seed)
    units = {name: Faulty(name, seed, kinds[name]) for name in UNITS}
    jobs: list[Job] = []
    meaning: list[tuple[Function, int]] = []
    for i in range(rng.randint(1, 12)):
        function, outputs = rng.choice(FUNCTIONS)
        sources = [rng.randint(-1, i - 1) for _ in range(rng.randint(1, 3))]
        inputs = tuple((s, rng.randrange(2 if s < 0 else meaning[s][1])) for s in sources)
        order = rng.sample(list(UNITS), 3)
        meaning.append((function, outputs))
        runs = {name: units[name].runs(function) for name in order}
        jobs.append(Job(f"j{i}", order[0], runs, inputs, gives=(((4,), "int64"),) * outputs, exact=True))
    graph = Graph(jobs, [(rng.randrange(len(jobs)), 0) for _ in range(3)])

    def right(xs: Sequence[Any]) -> list[list[int]]:
        values: list[list[Any]] = []
        for job, (function, _) in zip(jobs, meaning, strict=True):
            values.append(function([xs[n] if s < 0 else values[s][n] for s, n in job.inputs]))
        return [values[s][n].tolist() for s, n in graph.outputs or ()]

    policy = FaultPolicy(
        factor=1, slack=0.04, first=0, unknown=0, tries=8, backoff=0.002, backoff_most=0.02, probe=0.03,
        verify=verify, seed=seed, lie_probes=1, lost=1000,
    )  # fmt: skip
    options = {name: LaneOptions(n, units[name].probe, group="host" if n > 1 else "") for name, n in UNITS.items()}
    with Engine(options, policy) as engine:
        inputs = [[np.array([rng.randrange(1000) for _ in range(4)]) for _ in range(2)] for _ in range(4)]
        runs = [engine.submit(graph, xs) for xs in inputs]
        for run, xs in zip(runs, inputs, strict=True):
            assert [y.tolist() for y in run.result(60)] == right(xs)
            done = Counter(s.job for s in run.spans if s.outcome == "done")
            assert set(done) == set(range(len(jobs)))
            # Nothing is computed twice, unless somebody was found lying.
            assert verify or set(done.values()) == {1}
        out: dict[str, bool] = {}
        for event in engine.events:
            if event.kind in ("out", "back"):
                assert out.get(event.unit, False) == (event.kind != "out")
                out[event.unit] = event.kind == "out"


@pytest.mark.parametrize("seed", range(12))
def test_units_that_fail_at_random(seed: int):
    campaign(seed, dict.fromkeys(UNITS, ("raise", "raise", "hang", "die", "shape", "dtype", "none")), 0.0)


@pytest.mark.parametrize("seed", range(6))
def test_a_unit_that_lies_while_the_others_fail(seed: int):
    liar = list(UNITS)[seed % 3]
    campaign(seed, {name: ["lie"] if name == liar else ["raise", "raise", "hang"] for name in UNITS}, 1.0)
