"""Heat, and what `nxjax.backends.sensors.thermal.policy` decides about it, done: by the power mode of AMD's NPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Final, final

from nxjax.backends.sensors import Reading, SensorSampler
from nxjax.backends.sensors.thermal import STRATEGIES, Action, Decision, State, Thresholds, policy
from nxjax.errors import NxError, ParameterError, Shown
from nxjax.vendors.amd import power

Read = Callable[[], Reading]
# What is done for one unit; it gives a word on what came of it.
Strategy = Callable[[Action], "str | None"]
_UNITS: Final = ("npu", "gpu", "cpu")
_LIMITS: Final = tuple(f.name for f in fields(Thresholds))


@final
class ThermalMonitor(Shown):
    """The chips' temperatures now.

    >>> state = ThermalMonitor().get_state()
    >>> state.keys() == {"npu", "gpu", "cpu"}
    True
    """

    def __init__(self, read: Mapping[str, Read] | None = None) -> None:
        self.read: dict[str, Read] = dict(read) if read is not None else {u: SensorSampler(u) for u in _UNITS}

    def get_state(self) -> dict[str, Reading]:
        """A reading for every unit; ``celsius`` is None, and ``why`` says the reason, where nobody measures."""
        return {unit: read() for unit, read in self.read.items()}


@final
class ThermalAwareOptimizer(Shown):
    """Keeps chips within their temperatures: less power, other chips first, none at all.

    Args:
        thresholds: degrees Celsius by name, as `Thresholds` has them: "warning" (80), "npu_max" (85), "cpu_max" (90),
            "gpu_max" (none), "back" (5).
        read: unit -> what reads it; the machine's NPU, GPU and CPU without it.

    Attributes:
        thermal_thresholds: those in force.
        cooling_strategies: strategy -> what carries it out, to be replaced or added to. "lower-power" takes the NPU's
            power mode a step down and "restore-power" brings it back; the others change `usable` alone.
        log: every action, with what came of it.
    """

    def __init__(
        self, thresholds: Mapping[str, float | None] | None = None, read: Mapping[str, Read] | None = None
    ) -> None:
        given = dict(thresholds or {})
        if unknown := sorted(given.keys() - set(_LIMITS)):
            raise ParameterError("thermal policy: no such threshold", got=unknown, expected=", ".join(_LIMITS))
        self.thermal_thresholds: dict[str, float | None] = asdict(Thresholds(**given))  # pyright: ignore[reportArgumentType]
        self.monitor = ThermalMonitor(read)
        self.cooling_strategies: dict[str, Strategy] = {"lower-power": self._lower, "restore-power": self._restore}
        self.log: list[tuple[Action, str]] = []
        self.readings: dict[str, Reading] = {}
        self.states: dict[str, State] = {}
        self._former: str | None = None

    def usable(self, units: Sequence[str] = _UNITS) -> list[str]:
        """Those of ``units`` that may be given work, the ones that are not warm first."""
        return Decision((), {u: self.states.get(u, "ok") for u in units}).usable

    def monitor_and_adjust(self) -> list[Action]:
        """Look at the temperatures once and do what they ask for; the actions that were taken."""
        self.readings = self.monitor.get_state()
        decision = policy(self.readings, Thresholds(**self.thermal_thresholds), self.states)  # pyright: ignore[reportArgumentType]
        self.states = dict(decision.states)
        for action in decision.actions:
            try:
                said = self.cooling_strategies.get(action.strategy, lambda _: None)(action) or "done"
            except NxError as error:
                # A mode that may not be set is no reason to stop watching.
                said = f"not done: {error.what}" + (f" ({error.got})" if error.got is not None else "")
            self.log.append((action, said))
        return list(decision.actions)

    def _lower(self, action: Action) -> str | None:
        if action.unit != "npu":
            return "the system has this chip's clocks"
        former, mode = power.get(), power.lower()
        self._former = self._former or former
        return f"power mode {mode}"

    def _restore(self, action: Action) -> str | None:
        if action.unit != "npu" or self._former is None:
            return None
        power.set(self._former)
        mode, self._former = self._former, None
        return f"power mode {mode}"


__all__ = ["STRATEGIES", "Action", "Reading", "ThermalAwareOptimizer", "ThermalMonitor"]
