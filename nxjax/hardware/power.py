"""`nxjax.hardware.power`: the power modes of an NPU, which `nxjax.vendors.amd.power` sets, and an object for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from nxjax.backends.sensors import Roots, read
from nxjax.backends.sensors.thermal import DEFAULT
from nxjax.errors import ExecutionError, NxError, ParameterError, Shown
from nxjax.vendors.amd.power import MODES, WORKLOADS, for_workload, get, lower, set, using

# What programs call a profile -> the mode that it is.
PROFILES: Final[Mapping[str, str]] = {"power-save": "powersaver", **{mode: mode for mode in MODES}}
_HERE: Final = Roots()


class AdvancedNPUOptimizer(Shown):
    """The power settings of an NPU as an object.

    Attributes:
        turbo_enabled: whether turbo was set through this object and nothing else since.
        performance_profile: the profile that was set last, "balanced" at first, which sets nothing.
        thermal_monitoring: whether a step up is refused while the NPU is above its warning temperature.
    """

    def __init__(self, device: str = "", *, roots: Roots = _HERE) -> None:
        self.device = device
        self.turbo_enabled = False
        self.performance_profile = "balanced"
        self.thermal_monitoring = True
        self._roots = roots

    def enable_turbo_mode(self) -> None:
        """Turbo: the highest clocks, never gated. Errors are those of `set`; too hot is an `ExecutionError` too."""
        self._set("turbo")

    def set_performance_profile(self, profile: str = "performance") -> None:
        """One of `PROFILES`: "performance", "balanced", "power-save", or a mode's own name."""
        if profile not in PROFILES:
            raise ParameterError("power: no such profile", got=repr(profile), expected=", ".join(PROFILES))
        self._set(PROFILES[profile])
        self.performance_profile = profile

    def optimize_for_workload(self, workload_type: str) -> str:
        """The mode that suits a kind of work, one of `WORKLOADS`; gives its name. There is one mode at a time."""
        mode = for_workload(workload_type)
        self.set_performance_profile(mode)
        return mode

    def _set(self, mode: str) -> None:
        if self.thermal_monitoring and mode in ("performance", "turbo"):
            reading = read("npu", "amd", self._roots)
            if reading.celsius is not None and reading.celsius > DEFAULT.warning:
                raise ExecutionError(
                    f"power: too hot for {mode}",
                    got=str(reading),
                    expected=f"at most {DEFAULT.warning:g} °C",
                    fix="wait, or set thermal_monitoring = False",
                )
        set(mode, self.device, roots=self._roots)
        self.turbo_enabled = mode == "turbo"

    def status(self) -> dict[str, str]:
        """The mode that holds and the NPU's sensors, as text; "unavailable" and why where nobody says."""
        try:
            mode = get(self.device, roots=self._roots)
        except NxError as error:
            mode = f"unavailable: {error.got or error.what}"
        return {"power mode": mode, "sensors": str(read("npu", roots=self._roots))}


__all__ = ["MODES", "PROFILES", "WORKLOADS", "AdvancedNPUOptimizer", "for_workload", "get", "lower", "set", "using"]
