"""Chips by the names that guides use: thin classes over `nx.compile`, `nx.quantize`, `nx.Hybrid` and the vendors' code.

`sensors` reads the sensors of chips, and `power` sets the modes of an NPU. Import the other modules by name.
"""

from nxjax.backends.sensors import sensors
from nxjax.hardware import power

__all__ = ["power", "sensors"]
