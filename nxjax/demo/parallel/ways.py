"""How the training step is spread over devices. Each way is shardings; a pipeline is also a function of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import nxjax as nx
from nxjax.demo.parallel import model
from nxjax.demo.parallel.model import ModelConfig, TrainState
from nxjax.demo.parallel.pipeline import pipelined
from nxjax.sharding import NamedSharding
from nxjax.sharding import PartitionSpec as P

WAYS = ("data", "tensor", "zero1", "zero2", "zero3", "pipeline")

# Megatron: the first matrix of attention and of the MLP is cut by columns (heads, hidden units), the second by rows, so
# that each of the two costs one sum over the devices, and another one backwards. The words' scores are cut, too.
TENSOR = {
    "embed": P(),
    "blocks": {
        "qkv": P(None, None, None, "model"),
        "out": P(None, "model"),
        "up": P(None, None, "model"),
        "down": P(None, "model"),
    },
    "head": P(None, "model"),
}
# A pipeline: each stage has some of the layers.
STAGES = {
    "embed": P(),
    "blocks": {"qkv": P("stage"), "out": P("stage"), "up": P("stage"), "down": P("stage")},
    "head": P(),
}


class Spread(NamedTuple):
    """One way to train.

    Attributes:
        step: ``(state, words) -> (state, loss)``, jitted. The state that goes in is given up.
        state: where each leaf of the state lies.
        words: where a batch lies.
    """

    step: Any
    state: TrainState
    words: NamedSharding


def mesh_of(way: str, size: ModelConfig, devices: Any) -> Any:
    """A line of devices for most; the rest of them are for the batch where a way can use only so many."""
    count = len(devices)
    if way == "tensor":
        most = math.gcd(count, size.heads)
        return nx.make_mesh((count // most, most), ("data", "model"), devices=devices)
    if way == "pipeline":
        most = math.gcd(count, size.layers)
        return nx.make_mesh((count // most, most), ("data", "stage"), devices=devices)
    return nx.make_mesh((count,), ("data",), devices=devices)


def cut(mesh: Any, tree: Any) -> Any:
    """Every leaf cut along "data" in the first dimension that divides: each device keeps a part (ZeRO)."""

    def sharding(x: Any) -> NamedSharding:
        count = mesh.shape["data"]
        at = next((i for i, n in enumerate(x.shape) if n % count == 0), None)
        return NamedSharding(mesh, P() if at is None else P(*[None] * at, "data"))

    return nx.tree.map(sharding, tree)


def spread(way: str, size: ModelConfig, mesh: Any, dtype: Any = nx.numpy.float32) -> Spread:
    """The training step in one of the `WAYS`.

    ``data``: every device has all parameters, and a part of the batch. ``zero1`` cuts the optimizer's state besides,
    ``zero2`` the gradients as well, ``zero3`` everything (Rajbhandari et al., 2020). ``tensor`` cuts each layer
    (Shoeybi et al., 2019), ``pipeline`` gives layers to devices (Huang et al., 2019).
    """
    if way not in WAYS:
        raise ValueError(f"no way {way!r}; there are {', '.join(WAYS)}")
    shapes = nx.eval_shape(lambda: model.init(size, dtype))
    specs = {"tensor": TENSOR, "pipeline": STAGES}.get(way)
    whole = nx.tree.map(lambda _: NamedSharding(mesh, P()), shapes.params)
    parts = cut(mesh, shapes.params)
    if specs is not None:
        params = moments = nx.tree.map(lambda s: NamedSharding(mesh, s), specs, is_leaf=lambda s: isinstance(s, P))
    else:
        params = parts if way == "zero3" else whole
        moments = whole if way == "data" else parts
    grads = moments if way != "zero1" else whole
    objective: Callable[[Any, Any], Any] = pipelined(size, mesh) if way == "pipeline" else model.loss

    def step(state: TrainState, words: Any) -> tuple[TrainState, Any]:
        value, found = nx.value_and_grad(objective)(state.params, words)
        # Where gradients are cut, the devices' sums come in parts (reduce-scatter).
        return model.adam(state, nx.lax.with_sharding_constraint(found, grads)), value

    lone = NamedSharding(mesh, P())
    placed, words = TrainState(params, moments, moments, lone), NamedSharding(mesh, P("data"))
    jitted = nx.jit(step, in_shardings=(placed, words), out_shardings=(placed, lone), donate_argnums=0)
    return Spread(jitted, placed, words)


def bytes_per_device(tree: Any, shardings: Any) -> int:
    """What one device keeps of a tree of arrays."""
    sizes = nx.tree.map(lambda x, s: math.prod(s.shard_shape(x.shape)) * x.dtype.itemsize, tree, shardings)
    return sum(nx.tree.leaves(sizes))
