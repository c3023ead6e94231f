"""Temperatures, powers, loads and clocks of this machine's chips, measured, or the reason why not."""

from nxjax.backends.sensors.reading import Reading, Roots
from nxjax.backends.sensors.table import Sensors, sensors
from nxjax.backends.sensors.ways import KINDS, SensorSampler, read

__all__ = ["KINDS", "Reading", "Roots", "SensorSampler", "Sensors", "read", "sensors"]
