"""`nx.hybrid.schedules`: schedules from your own costs.

The same algorithms make the plans of `nx.Hybrid`. Knows no program and no backend.
"""

from __future__ import annotations

from nxjax.backends.hybrid.choose import choose, energy, front, throughput
from nxjax.backends.hybrid.exact import exact
from nxjax.backends.hybrid.placing import heft
from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Schedule, Slot, Task, Transfer, Work
from nxjax.backends.hybrid.timeline import Measured, svg, text

__all__ = [
    "CALLER",
    "HOST",
    "Edge",
    "Measured",
    "Schedule",
    "Slot",
    "Task",
    "Transfer",
    "Work",
    "choose",
    "energy",
    "exact",
    "front",
    "heft",
    "svg",
    "text",
    "throughput",
]
