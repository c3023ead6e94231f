"""Digits, learned by several devices that exchange compressed gradients; goes on after a loss, with fewer processes.

python -m nxjax.demo.parallel.compressed int8 --devices 4
python -m nxjax.launch -n 4 --at-least 2 --restarts 3 -m nxjax.demo.parallel.compressed int8 --folder run
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import nxjax as nx
from nxjax.commands.command import command
from nxjax.demo import data, model
from nxjax.demo.train import Adam, adam_init, adam_update
from nxjax.distributed import compress
from nxjax.sharding import NamedSharding
from nxjax.sharding import PartitionSpec as P

WAYS: dict[str, Callable[[str], compress.Compressor]] = {
    "none": compress.none,
    "int8": compress.int8,
    "int8-random": partial(compress.int8, stochastic=True),
    "top-k": partial(compress.top_k, ratio=0.02),
    "power-sgd": partial(compress.power_sgd, rank=2),
}
BATCH = 96  # of two, three, four and six devices
RATE = 2e-3


class CompressedState(NamedTuple):
    """What a step changes; the same on all devices, but for what compressors remember."""

    params: Any
    adam: Adam
    memory: compress.Memory


class CompressedResult(NamedTuple):
    """The last state; losses of the steps made here by number; the share of test images that are recognized."""

    state: CompressedState
    losses: dict[int, float]
    accuracy: float
    stopped: bool


def init(compressor: compress.Compressor, devices: int) -> CompressedState:
    params = model.init(nx.random.key(0))
    return CompressedState(params, adam_init(params), compressor.init(params, devices))


def stepper(compressor: compress.Compressor, mesh: Any) -> tuple[Any, CompressedState, NamedSharding]:
    """A jitted ``(state, images, labels) -> (state, loss)``, where the state lies, and where a batch does."""

    def on_each(state: CompressedState, images: Any, labels: Any) -> tuple[CompressedState, Any]:
        value, grads = nx.value_and_grad(model.loss)(state.params, images, labels)
        mean, memory = compressor(grads, state.memory)
        adam, params = adam_update(state.adam, state.params, mean, RATE)
        return CompressedState(params, adam, memory), nx.lax.pmean(value, "data")

    specs, rows = CompressedState(P(), P(), compressor.specs), P("data")
    # Nothing is checked, so gradients are those of the device's own rows.
    whole = nx.shard_map(on_each, mesh=mesh, in_specs=(specs, rows, rows), out_specs=(specs, P()), check_vma=False)
    devices = mesh.devices.size
    placed = nx.tree.map(lambda _: NamedSharding(mesh, P()), nx.eval_shape(lambda: init(compressor, devices)))
    own = nx.tree.map(lambda _: NamedSharding(mesh, P("data")), placed.memory.own)
    return nx.jit(whole), placed._replace(memory=placed.memory._replace(own=own)), NamedSharding(mesh, rows)


def train(
    way: str,
    steps: int,
    *,
    devices: Any = None,
    folder: Any = None,
    every: int = 10,
    say: Callable[[int, float], None] = lambda step, loss: None,
    stop: Callable[[int], bool] = lambda step: False,
) -> CompressedResult:
    """Train with one of the `WAYS` over ``devices`` (all of them, of all processes).

    With a ``folder`` the state is kept there every ``every`` steps, and when ``stop`` says so; a run goes on from the
    last one, on as many devices as there are now. All processes call this alike.
    """
    found = nx.devices() if devices is None else devices
    compressor = WAYS[way]("data")
    mesh = nx.make_mesh((len(found),), ("data",), devices=found)
    step, placed, rows = stepper(compressor, mesh)
    manager = nx.checkpoints.CheckpointManager(folder, max_to_keep=2) if folder is not None else None
    first = manager.latest_step() if manager is not None else None
    if manager is not None and first is not None:
        before = manager.metadata(first)["devices"]
        state = manager.restore(first, like=nx.eval_shape(lambda: init(compressor, before)))
        if before != len(found):
            state = state._replace(memory=compressor.resize(state.memory, state.params, len(found)))
    else:
        first, state = 0, init(compressor, len(found))
    state = nx.device_put(state, placed)
    images, test = data.load()
    losses: dict[int, float] = {}
    stopped = False
    for n in range(first, steps):
        # What is drawn follows from the number of the step: a run that went on has the batches of one that was whole.
        chosen = np.random.default_rng(n).choice(len(images.images), BATCH, replace=False)
        state, loss = step(state, *nx.device_put((images.images[chosen], images.labels[chosen]), rows))
        losses[n] = float(loss)  # waits for the others, or raises a ProcessLostError
        say(n, losses[n])
        stopped = stop(n + 1)
        if manager is not None and ((n + 1) % every == 0 or n + 1 == steps or stopped):
            manager.save(n + 1, state, {"devices": len(found)})
        if stopped:
            break
    if manager is not None:
        manager.close()
    params = nx.tree.map(lambda x: np.asarray(x.addressable_shards[0].data), state.params)
    guessed = np.asarray(nx.jit(model.predict)(params, test.images)).argmax(1)
    return CompressedResult(state, losses, float((guessed == test.labels).mean()), stopped)


@command
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nxjax.demo.parallel.compressed")
    parser.add_argument("way", choices=list(WAYS))
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--folder", help="of checkpoints; a run goes on from the last one")
    parser.add_argument("--every", type=int, default=10, help="steps between checkpoints")
    parser.add_argument("--devices", type=int, help="CPU devices of each process")
    parser.add_argument("--heartbeat", type=int, default=30, help="seconds after which a silent process is lost")
    given = parser.parse_args()
    if given.devices:
        nx.config.update("num_cpu_devices", given.devices)
    if os.environ.get("NXJAX_NUM_PROCESSES"):
        nx.distributed.initialize(heartbeat_timeout_seconds=given.heartbeat)
    first = nx.process_index() == 0

    def say(step: int, loss: float) -> None:
        if first:
            print(f"step {step} loss {loss!r}", flush=True)

    found = train(
        given.way, given.steps, folder=given.folder, every=given.every, say=say, stop=nx.distributed.preempted
    )
    if first:
        print(f"{'stopped' if found.stopped else 'accuracy'} {found.accuracy:.4f}", flush=True)
    return nx.distributed.PREEMPTED if found.stopped else 0


if __name__ == "__main__":
    sys.exit(main())
