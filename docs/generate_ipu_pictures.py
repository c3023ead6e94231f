"""Draws the pictures of docs/ipu.md: the tile memory and the timeline of a training step on one modelled Bow IPU."""

import itertools
from pathlib import Path

import numpy as np

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.backends.ipu.pictures import tile_map, timeline

SIZES = (784, 512, 256, 10)
BATCH = 64
IMAGES = Path(__file__).parent / "images"


def loss(params, x, y):
    for w, b in params[:-1]:
        x = nx.nn.relu(x @ w + b)
    w, b = params[-1]
    return -jnp.mean(jnp.sum(nx.nn.log_softmax(x @ w + b) * y, axis=-1))


def step(params, x, y):
    value, grads = nx.value_and_grad(loss)(params, x, y)
    return nx.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def main() -> None:
    params = [(np.zeros(s, np.float32), np.zeros(s[1], np.float32)) for s in itertools.pairwise(SIZES)]
    types = (nx.ShapeDtypeStruct((BATCH, SIZES[0]), jnp.float32), nx.ShapeDtypeStruct((BATCH, SIZES[-1]), jnp.float32))
    compiled = nx.compile(step, target="ipu-bow", compile_only=True, donate=range(2 * len(params)))
    model = compiled(params, *types).report.analysis
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / "ipu_memory.svg").write_text(tile_map(model.memory))
    (IMAGES / "ipu_timeline.svg").write_text(timeline(model.cycles))


if __name__ == "__main__":
    main()
