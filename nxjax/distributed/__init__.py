"""`nx.distributed`: several processes as one; gradients in fewer bytes; what a program sends.

nx.distributed.initialize()                                    # in each process, first of all
compressor = nx.distributed.compress.int8("data")              # gradients of several devices, a quarter of the bytes
nx.distributed.communication(step.lower(state, x).compile())   # what each device sends
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from nxjax.distributed.joining import barrier, check_peers, initialize, is_initialized, shutdown

if TYPE_CHECKING:
    from nxjax.distributed import compress as compress
    from nxjax.distributed.preemption import PREEMPTED as PREEMPTED
    from nxjax.distributed.preemption import preempted as preempted
    from nxjax.distributed.quantized import quantized_pmean as quantized_pmean
    from nxjax.distributed.quantized import quantized_psum as quantized_psum
    from nxjax.distributed.traffic import Collective as Collective
    from nxjax.distributed.traffic import Communication as Communication
    from nxjax.distributed.traffic import communication as communication

# Loaded when they are asked for: joining others needs none of them.
_HOMES = {
    "Collective": "traffic",
    "Communication": "traffic",
    "communication": "traffic",
    "PREEMPTED": "preemption",
    "preempted": "preemption",
    "quantized_pmean": "quantized",
    "quantized_psum": "quantized",
}

__all__ = ["barrier", "check_peers", "initialize", "is_initialized", "shutdown", *_HOMES]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        found = globals()[name] = getattr(importlib.import_module(f"nxjax.distributed.{_HOMES[name]}"), name)
        return found
    if name == "compress":
        return importlib.import_module("nxjax.distributed.compress")
    raise AttributeError(f"module 'nxjax.distributed' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted((*__all__, "compress"))
