"""`nx.checkpoints`: the state of a training run on disk: sharded, atomic, restored onto any devices. Names as in Orbax.

nx.checkpoints.save("runs/a", {"params": params, "opt": state}, step=100)
state = nx.checkpoints.restore("runs/a", like=state)

Not `nx.checkpoint`, which is JAX's rematerialization.
"""

from __future__ import annotations

from nxjax.checkpoints.manager import CheckpointManager
from nxjax.checkpoints.restoring import metadata, restore
from nxjax.checkpoints.saving import save
from nxjax.checkpoints.steps import all_steps, latest_step
from nxjax.trace.lazy import getattr_with_hints as _refusing

__all__ = ["CheckpointManager", "all_steps", "latest_step", "metadata", "restore", "save"]

__getattr__ = _refusing(__name__)
