"""GPipe: each device has some layers, and small parts of the batch go through them one behind the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.demo.parallel import model
from nxjax.demo.parallel.model import ModelConfig
from nxjax.sharding import PartitionSpec as P


def pipelined(size: ModelConfig, mesh: Any, parts: int = 4) -> Callable[[Any, Any], Any]:
    """The loss as `model.loss` has it, with the layers along "stage" and the batch along "data" of ``mesh``.

    Of ``parts + stages - 1`` ticks each stage works in ``parts``; its gradient goes the same way back.
    """
    stages = mesh.shape["stage"]
    following = [(i, (i + 1) % stages) for i in range(stages)]

    def local(layers: Any, embed: Any, head: Any, words: Any) -> Any:
        stage = nx.lax.axis_index("stage")
        words = words.reshape(parts, -1, words.shape[1])

        def tick(x: Any, t: Any) -> tuple[Any, Any]:
            # The first stage takes the next part of the batch, the others what the stage before has sent.
            enters = embed[words[jnp.minimum(t, parts - 1), :, :-1]]
            y = model.blocks(layers, jnp.where(stage == 0, enters, x))
            return nx.lax.ppermute(y, "stage", following), y

        nothing = jnp.zeros((words.shape[1], size.length, size.width), embed.dtype)
        nothing = nx.lax.pcast(nothing, ("data", "stage"), to="varying")
        _, ys = nx.lax.scan(tick, nothing, jnp.arange(parts + stages - 1))
        # What leaves the last stage, from the tick on at which the first part has come there.
        found = model.cross_entropy(head, ys[stages - 1 :], words[:, :, 1:])
        return nx.lax.pmean(nx.lax.psum(jnp.where(stage == stages - 1, found, 0), "stage"), "data")

    inside = nx.shard_map(local, mesh=mesh, in_specs=(P("stage"), P(), P(), P("data")), out_specs=P())
    return lambda params, words: inside(params["blocks"], params["embed"], params["head"], words)
