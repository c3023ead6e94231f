"""`nx.checkpoints`: the state of a training run on disk: sharded, atomic, read onto any devices. Names as in Orbax.

nx.checkpoints.save("runs/a", {"params": params, "opt": state}, step=100)
state = nx.checkpoints.restore("runs/a", like=state)

`nx.checkpoint` is JAX's rematerialization, which is another thing.
"""

from __future__ import annotations

from nxjax.checkpoints.manager import CheckpointManager
from nxjax.checkpoints.restoring import metadata, restore
from nxjax.checkpoints.saving import save
from nxjax.checkpoints.steps import all_steps, latest_step

__all__ = ["CheckpointManager", "all_steps", "latest_step", "metadata", "restore", "save"]
