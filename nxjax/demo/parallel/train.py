"""The training loop: any way, any number of devices and processes, from the last checkpoint on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import nxjax as nx
from nxjax.demo.parallel import model
from nxjax.demo.parallel.model import ModelConfig, TrainState
from nxjax.demo.parallel.ways import mesh_of, spread


class ParallelResult(NamedTuple):
    """The last state, and the losses of the steps made here by their numbers."""

    state: TrainState
    losses: dict[int, float]


def train(
    way: str,
    steps: int,
    size: ModelConfig = ModelConfig(),
    *,
    devices: Any = None,
    dtype: Any = np.float32,
    folder: Any = None,
    every: int = 5,
    say: Callable[[int, float], None] = lambda step, loss: None,
) -> ParallelResult:
    """Train in one of the `WAYS` over ``devices`` (all of them, of all processes).

    With a ``folder``, the state is kept there after every ``every`` steps, and a run that was killed goes on from the
    last one, on as many devices as there are now. All processes call this alike.
    """
    found = nx.devices() if devices is None else devices
    step, placed, rows = spread(way, size, mesh_of(way, size, found), dtype)
    manager = nx.checkpoints.CheckpointManager(folder, max_to_keep=2) if folder is not None else None
    last = manager.latest_step() if manager is not None else None
    if manager is not None and last is not None:
        like = nx.eval_shape(lambda: model.init(size, dtype))
        state = manager.restore(last, like=like, shardings=placed)
    else:
        last, state = 0, nx.device_put(model.init(size, dtype), placed)
    losses: dict[int, float] = {}
    for n in range(last, steps):
        state, loss = step(state, nx.device_put(model.batch(size, n), rows))
        losses[n] = float(loss)  # waits for the others, or raises a ProcessLostError
        say(n, losses[n])
        if manager is not None and ((n + 1) % every == 0 or n + 1 == steps):
            manager.save(n + 1, state)
    if manager is not None:
        manager.close()
    return ParallelResult(state, losses)
