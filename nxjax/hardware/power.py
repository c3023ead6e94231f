"""`nxjax.hardware.power`: the power modes of an NPU, and an object for them."""

from nxjax.vendors.amd.power import (
    MODES,
    PROFILES,
    WORKLOADS,
    AdvancedNPUOptimizer,
    for_workload,
    get,
    lower,
    set,
    using,
)  # fmt: skip

__all__ = ["MODES", "PROFILES", "WORKLOADS", "AdvancedNPUOptimizer", "for_workload", "get", "lower", "set", "using"]
