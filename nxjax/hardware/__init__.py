"""Chips by the names that guides use: thin classes over `nx.compile`, `nx.quantize`, `nx.Hybrid` and vendors' rooms.

`sensors` is what chips measure of themselves, `power` the modes of an NPU; the others are imported by name.
"""

from nxjax.backends.sensors import sensors
from nxjax.hardware import power

__all__ = ["power", "sensors"]
