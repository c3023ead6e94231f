"""``python -m nxjax.demo.parallel WAY``: train, and say the losses and what a device keeps."""

from __future__ import annotations

import argparse
import os
import sys

import nxjax as nx
from nxjax.commands.command import command
from nxjax.demo.parallel import model
from nxjax.demo.parallel.model import ModelConfig
from nxjax.demo.parallel.train import train
from nxjax.demo.parallel.ways import WAYS, bytes_per_device, mesh_of, spread


@command
def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m nxjax.demo.parallel", description=__doc__)
    parser.add_argument("way", choices=WAYS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--folder", help="of checkpoints; a run goes on from the last one")
    parser.add_argument("--every", type=int, default=5, help="steps between checkpoints")
    parser.add_argument("--devices", type=int, help="CPU devices of each process")
    parser.add_argument("--heartbeat", type=int, default=30, help="seconds after which a silent process is lost")
    parser.add_argument("--dtype", choices=("float32", "float64"), default="float32")
    given = parser.parse_args()
    if given.devices:
        nx.config.update("num_cpu_devices", given.devices)
    if os.environ.get("NXJAX_NUM_PROCESSES"):
        nx.distributed.initialize(heartbeat_timeout_seconds=given.heartbeat)
    first = nx.process_index() == 0

    def say(step: int, loss: float) -> None:
        if first:
            print(f"step {step} loss {loss!r}", flush=True)

    train(given.way, given.steps, dtype=given.dtype, folder=given.folder, every=given.every, say=say)
    if first:
        mesh = mesh_of(given.way, ModelConfig(), nx.devices())
        shapes = nx.eval_shape(lambda: model.init(ModelConfig(), given.dtype))
        kept = bytes_per_device(shapes, spread(given.way, ModelConfig(), mesh, given.dtype).state)
        print(f"{given.way}: {kept} bytes of state on each of {nx.device_count()} devices", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
