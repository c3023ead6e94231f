"""The IPU model: a training step of an MLP on 1,472 modelled tiles, beside its bar; compiling it, beside plain jit."""

from __future__ import annotations

import itertools
import statistics
import time
from typing import Any

import numpy as np

from benchmarks.runner import Figure

# Seconds that one training step on modelled tiles may take, on two cores.
STEP_BAR = 0.1
SIZES = {"784-128-10": (784, 128, 10), "784-512-256-10": (784, 512, 256, 10)}
BATCH = 64


def figures() -> list[Figure]:
    return [f for name, sizes in SIZES.items() for f in training(name, sizes)]


def training(name: str, sizes: tuple[int, ...]) -> list[Figure]:
    """A step of gradient descent by ``nx.jit(device="ipu")``, and the first call of it."""
    import nxjax as nx
    import nxjax.numpy as jnp

    rng = np.random.default_rng(0)
    pairs = list(itertools.pairwise(sizes))
    params: Any = [(nx.array(rng.normal(size=p).astype(np.float32) * 0.05), jnp.zeros(p[1])) for p in pairs]
    x = nx.array(rng.normal(size=(BATCH, sizes[0])).astype(np.float32))
    y = nx.array(np.eye(sizes[-1], dtype=np.float32)[np.arange(BATCH) % sizes[-1]])

    def loss(params: Any, x: Any, y: Any) -> Any:
        for w, b in params[:-1]:
            x = nx.nn.relu(x @ w + b)
        w, b = params[-1]
        return -jnp.mean(jnp.sum(nx.nn.log_softmax(x @ w + b) * y, -1))

    def step(params: Any, x: Any, y: Any) -> Any:
        value, grads = nx.value_and_grad(loss)(params, x, y)
        return nx.tree.map(lambda p, g: p - 0.1 * g, params, grads), value

    def first(device: str | None) -> tuple[Any, float]:
        jitted = nx.jit(step, device=device)
        start = time.perf_counter()
        nx.block_until_ready(jitted(params, x, y))
        return jitted, time.perf_counter() - start

    modelled, here = first("ipu")
    _, there = first(None)
    times: list[float] = []
    for _ in range(15):
        start = time.perf_counter()
        nx.block_until_ready(modelled(params, x, y))
        times.append(time.perf_counter() - start)
    note = f"batch {BATCH}, 1,472 tiles"
    return [
        Figure(f"IPU model, step of {name}", statistics.median(times), STEP_BAR, "the bar", 1.0, note),
        Figure(f"IPU model, first call of {name}", here, there, "plain jit", None, "codelets' libraries kept on disk"),
    ]
