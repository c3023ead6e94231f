"""`nx.distributed`: several processes as one; compressed gradients; the traffic of a program.

nx.distributed.initialize()                                    # in each process, first of all
compressor = nx.distributed.compress.int8("data")              # gradients of several devices, a quarter of the bytes
nx.distributed.communication(step.lower(state, x).compile())   # what each device sends
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from nxjax.distributed.joining import barrier, check_peers, initialize, is_initialized, shutdown
from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

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
_FILES = {
    "traffic": "Collective Communication communication",
    "preemption": "PREEMPTED preempted",
    "quantized": "quantized_pmean quantized_psum",
}
_HOMES = _homes(_FILES)

__all__ = ["barrier", "check_peers", "initialize", "is_initialized", "shutdown", *_HOMES]
__getattr__, _ = _lazy(__name__, _HOMES, ("compress",))


def __dir__() -> list[str]:
    return sorted((*__all__, "compress"))
