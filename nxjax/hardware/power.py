"""`nxjax.hardware.power`: the power modes of this machine's NPU.

AMD's NPU has one mode for the whole machine, set by its driver or by ``xrt-smi``; it needs privilege, and it has to be
turbo before the NPU is opened. An Intel NPU takes its mode with each model: ``nx.compile(..., power="turbo")``. There
are no other settings: clocks and memory bandwidth follow the mode.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Final

from nxjax.backends.sensors import read
from nxjax.backends.sensors.reading import Roots
from nxjax.backends.sensors.thermal import DEFAULT
from nxjax.errors import ExecutionError, NxError, ParameterError, Shown
from nxjax.vendors.amd import xrt_power

MODES: Final = xrt_power.MODES
# What programs call a profile -> the mode that it is.
PROFILES: Final[Mapping[str, str]] = {
    "power-save": "powersaver",
    "balanced": "balanced",
    "performance": "performance",
    **{mode: mode for mode in MODES},
}
# A kind of work -> the mode that suits it: turbo where tokens are waited for, a middle clock for what runs all day.
WORKLOADS: Final[Mapping[str, str]] = {
    "llm_inference": "turbo",
    "batch_inference": "performance",
    "interactive": "default",
    "continuous_audio": "balanced",
    "continuous_video": "balanced",
    "background": "powersaver",
}
_HERE: Final = Roots()


def get(device: str = "", *, roots: Roots = _HERE) -> str:
    """The mode that holds: one of `MODES`.

    Args:
        device: the PCI address of the NPU, such as "0000:c5:00.1"; the first one without it.

    Raises:
        ExecutionError: this machine has no NPU of AMD, or nobody answers; the message says why.

    >>> MODES
    ('default', 'powersaver', 'balanced', 'performance', 'turbo')
    """
    return xrt_power.current(roots, device)


def set(mode: str, device: str = "", *, roots: Roots = _HERE) -> None:
    """Set the mode; it holds for the whole machine until it is changed.

    Raises:
        ParameterError: no such mode, or no NPU at that address.
        ExecutionError: no NPU of AMD; no privilege (the message has the command for it); turbo while hardware contexts
            are open, of this process or of another.
    """
    xrt_power.tell(mode, roots, device)


@contextmanager
def using(mode: str, device: str = "", *, roots: Roots = _HERE) -> Generator[str]:
    """The mode within a ``with`` statement, and the former one behind it; gives the former one.

    Open the NPU inside, so that turbo is set before its contexts are. Errors are those of `get` and `set`.
    """
    former = get(device, roots=roots)
    if former != xrt_power.checked(mode):
        set(mode, device, roots=roots)
    try:
        yield former
    finally:
        if get(device, roots=roots) != former:
            set(former, device, roots=roots)


def for_workload(workload: str) -> str:
    """The mode that suits a kind of work.

    >>> for_workload("llm_inference"), for_workload("continuous_audio")
    ('turbo', 'balanced')
    """
    if workload not in WORKLOADS:
        raise ParameterError("power: no such workload", got=repr(workload), expected=", ".join(WORKLOADS))
    return WORKLOADS[workload]


def lower(device: str = "", *, roots: Roots = _HERE) -> str:
    """One step down, from turbo to performance, to balanced, to powersaver; gives the mode that holds then."""
    mode = get(device, roots=roots)
    # What "default" does is the driver's choice: a step down from it is a mode that is surely lower.
    steps = {"turbo": "performance", "performance": "balanced", "balanced": "powersaver", "default": "powersaver"}
    if mode in steps:
        set(steps[mode], device, roots=roots)
    return steps.get(mode, mode)


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
        self.turbo_enabled = True

    def set_performance_profile(self, profile: str = "performance") -> None:
        """One of `PROFILES`: "performance", "balanced", "power-save", or a mode's own name."""
        if profile not in PROFILES:
            raise ParameterError("power: no such profile", got=repr(profile), expected=", ".join(PROFILES))
        self._set(PROFILES[profile])
        self.performance_profile = profile
        self.turbo_enabled = PROFILES[profile] == "turbo"

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

    def status(self) -> dict[str, str]:
        """The mode that holds and the NPU's sensors, as text; "unavailable" and why where nobody says."""
        try:
            mode = get(self.device, roots=self._roots)
        except NxError as error:
            mode = f"unavailable: {error.got or error.what}"
        return {"power mode": mode, "sensors": str(read("npu", roots=self._roots))}


__all__ = [
    "MODES",
    "PROFILES",
    "WORKLOADS",
    "AdvancedNPUOptimizer",
    "for_workload",
    "get",
    "lower",
    "set",
    "using",
]
