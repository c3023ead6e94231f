"""What checkpoints ask about the processes that run together: how many, which this is, and waiting for all."""

from __future__ import annotations

import re

from nxjax.trace.mesh import process_index


def index() -> int:
    """This process's number."""
    return process_index()


def count() -> int:
    """How many processes run together."""
    from nxjax.runtime import process_count

    return process_count()


def barrier(name: str, line: str) -> None:
    """Until every process is here. Nothing where this one is alone.

    Args:
        name: of the place, the same in all.
        line: barriers of one line come in one order; another thread has another one.

    Raises:
        ProcessLostError: another process is gone.
    """
    if count() > 1:
        from nxjax.backends.xla import distributed

        group = distributed.group()
        if group is not None:
            group.barrier(f"nxjax.checkpoints: {name}", None, re.sub(r"\W", "_", line))
