"""Training: Adam as a pure function over trees, one jitted step, a progress bar."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np

import nxjax as nx
from nxjax.demo import model
from nxjax.demo.data import DataSplit


class Adam(NamedTuple):
    """State of Adam (Kingma and Ba, 2015, algorithm 1)."""

    step: Any
    mean: Any
    square: Any


def adam_init(params: Any) -> Adam:
    zeros = nx.tree.map(nx.zeros_like, params)
    return Adam(nx.zeros((), nx.int32), zeros, zeros)


def adam_update(
    state: Adam, params: Any, gradient: Any, rate: float, b1: float = 0.9, b2: float = 0.999
) -> tuple[Adam, Any]:
    """The next state and the next parameters."""
    step = state.step + 1
    mean = nx.tree.map(lambda m, g: b1 * m + (1 - b1) * g, state.mean, gradient)
    square = nx.tree.map(lambda s, g: b2 * s + (1 - b2) * g * g, state.square, gradient)
    count = step.astype(nx.float32)
    c1, c2 = 1 - b1**count, 1 - b2**count
    new = nx.tree.map(lambda p, m, s: p - rate * (m / c1) / (nx.sqrt(s / c2) + 1e-8), params, mean, square)
    return Adam(step, mean, square), new


@nx.jit
def train_step(params: Any, state: Adam, images: Any, labels: Any) -> tuple[Any, Adam, Any]:
    value, gradient = nx.value_and_grad(model.loss)(params, images, labels)
    state, params = adam_update(state, params, gradient, 2e-3)
    return params, state, value


class TrainResult(NamedTuple):
    """Trained parameters, the loss after every step, and the wall time in seconds."""

    params: Any
    losses: list[float]
    seconds: float


def train(data: DataSplit, epochs: int = 12, batch: int = 64, seed: int = 0, progress: bool = True) -> TrainResult:
    """Train from scratch; deterministic for a seed."""
    from tqdm import tqdm  # type: ignore[import-untyped]

    params = model.init(nx.random.key(seed))
    state = adam_init(params)
    steps = len(data.images) // batch
    order = np.random.default_rng(seed)
    losses: list[float] = []
    start = time.perf_counter()
    with tqdm(total=epochs * steps, desc="training", unit="step", disable=not progress) as bar:
        for _ in range(epochs):
            shuffled = order.permutation(len(data.images))
            for i in range(steps):
                rows = shuffled[i * batch : (i + 1) * batch]
                params, state, value = train_step(params, state, data.images[rows], data.labels[rows])
                losses.append(float(value))
                bar.update()
                bar.set_postfix(loss=f"{losses[-1]:.3f}", refresh=False)
    return TrainResult(params, losses, time.perf_counter() - start)
