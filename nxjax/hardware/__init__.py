"""Chips as programs that name them see them: what is here, why it is not, and a simulator in its place.

`sensors` is what they measure of themselves, `power` the modes of an NPU; `thermal` and `amd` are imported by name.
"""

from nxjax.hardware import power
from nxjax.hardware.readings import sensors

__all__ = ["power", "sensors"]
