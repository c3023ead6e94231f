"""One pass of training on the model of an IPU: forward, backward and Adam as one program of tiles."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

import nxjax as nx
from nxjax.demo import model
from nxjax.demo.data import DataSplit
from nxjax.demo.train import adam_init, adam_update

TARGET = "ipu-bow"


@dataclass(frozen=True)
class Trained:
    """What a pass over the training images gave.

    Attributes:
        accuracy: on the test images, with the trained parameters on the CPU.
        images: how many.
        steps, cycles, bytes: steps; cycles of one, without the host's streams; bytes on the fullest tile.
        seconds: of the model's running here; what the chip would take is ``cycles`` over its clock.
    """

    label: str
    accuracy: float
    images: int
    steps: int
    cycles: int
    microseconds: float
    bytes: int
    available: int
    seconds: float

    def __str__(self) -> str:
        return (
            f"{TARGET} ({self.label}): {self.steps} steps, test accuracy {self.accuracy:.2%} of {self.images} images, "
            f"by the CPU; "
            f"{self.cycles:,} cycles = {self.microseconds:.1f} us a step on the chip (model), "
            f"{self.bytes:,} of {self.available:,} bytes on the fullest tile; "
            f"the model took {1000 * self.seconds / self.steps:.1f} ms a step here"
        )


def trained(training: DataSplit, test: DataSplit, seed: int = 0, batch: int = 48, rate: float = 4e-3) -> Trained:
    """A network trained for one epoch on the IPU model, and what it cost."""
    params = model.init(nx.random.key(seed))
    state = adam_init(params)

    def step(params: Any, state: Any, images: Any, labels: Any) -> Any:
        return adam_update(state, params, nx.grad(model.loss)(params, images, labels), rate)

    images, labels = training
    artifact = nx.compile(step, target=TARGET, verify=False)(params, state, images[:batch], labels[:batch])
    order = np.random.default_rng(seed).permutation(len(images))
    steps = len(order) // batch
    start = time.perf_counter()
    for i in range(steps):
        chosen = order[i * batch : (i + 1) * batch]
        state, params = artifact.run(params, state, images[chosen], labels[chosen])
    seconds = time.perf_counter() - start
    predicted = np.asarray(nx.jit(model.predict)(params, test.images)).argmax(-1)
    cycles, memory = artifact.analysis.cycles, artifact.analysis.memory
    return Trained(
        artifact.label,
        float((predicted == test.labels).mean()),
        len(test.labels),
        steps,
        cycles.device,
        1e6 * cycles.device / memory.program.system.chip.clock,
        memory.peak,
        memory.available,
        seconds,
    )
