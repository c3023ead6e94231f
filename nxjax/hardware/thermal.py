"""`nxjax.hardware.thermal`: temperatures, and actions on them."""

from nxjax.vendors.amd.thermal import STRATEGIES, Action, Reading, ThermalAwareOptimizer, ThermalMonitor

__all__ = ["STRATEGIES", "Action", "Reading", "ThermalAwareOptimizer", "ThermalMonitor"]
