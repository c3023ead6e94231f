"""What checkpoints ask about the processes that run together: how many, which this is, and waiting for all."""

from __future__ import annotations

from typing import Any


def index() -> int:
    """This process's number."""
    from nxjax.trace.mesh import process_index

    return process_index()


def count() -> int:
    """How many processes run together."""
    from nxjax.runtime import process_count

    return process_count()


def barrier(name: str) -> None:
    """Until every process is here. Nothing where this one is alone."""
    if count() > 1:
        from nxjax.experimental import multihost_utils

        sync: Any = multihost_utils.sync_global_devices
        sync(f"nxjax.checkpoints: {name}")
