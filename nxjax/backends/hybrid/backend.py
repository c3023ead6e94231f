"""The backend behind `nx.Hybrid`: several units behind one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from threading import Lock
from typing import Any, ClassVar, Final, final

from nxjax.backends import sensors
from nxjax.backends.base import Backend, Device, Executable
from nxjax.backends.evidence import LABELS, Label
from nxjax.backends.hybrid.engine import Engine
from nxjax.backends.hybrid.executable import HybridExecutable
from nxjax.backends.hybrid.history import History
from nxjax.backends.hybrid.planner import PlanOptions, PlanSetting
from nxjax.backends.hybrid.policy import HEAT, FaultPolicy, HeatLimits, LaneOptions
from nxjax.backends.hybrid.unit import Unit
from nxjax.backends.hybrid.units import BackendUnit
from nxjax.trace.program import Program

_numbers: Final = count()


@final
class HybridBackend(Backend):
    """Programs planned over units, and one engine for all of them.

    Args:
        units, missing: what is here by the user's priority, and what is not, with the reason.
        options: what plans are made by.
        policy: how patient the engine is.
        heat: limits by unit or by its platform, where they are not the usual ones.
        history: measured times.
    """

    name = "hybrid"
    platform: ClassVar[str] = "hybrid"
    label: ClassVar[Label] = "hardware"

    def __init__(
        self,
        units: Sequence[Unit],
        missing: Sequence[tuple[str, str]],
        options: PlanOptions,
        policy: FaultPolicy | None = None,
        heat: dict[str, HeatLimits] | None = None,
        history: History | None = None,
    ) -> None:
        number = next(_numbers)
        # Executables are found by their backend's name: every `nx.Hybrid` has its own.
        self.name = f"hybrid:{number}"
        # A result through several units says no more of a chip than the one that says the least.
        self.label = max((u.label for u in units), key=LABELS.index)  # pyright: ignore[reportAttributeAccessIssue]
        self.units = tuple(units)
        self.missing = tuple(missing)
        self.options = options
        self.policy = policy or FaultPolicy()
        self.heat = dict(heat or {})
        self.history = history or History()
        self._device = Device("hybrid", number, self)
        self._engine: Engine | None = None
        self._lock = Lock()

    @property
    def listed(self) -> bool:
        return False

    def available(self) -> tuple[bool, str]:
        return True, ", ".join(u.name for u in self.units)

    def devices(self) -> list[Device]:
        return [self._device]

    @property
    def engine(self) -> Engine:
        """What runs; made, and its threads begun, when something has to run on more than the host."""
        with self._lock:
            if self._engine is None:
                self._engine = self.engine_with(self.policy)
            return self._engine

    def engine_with(self, policy: FaultPolicy) -> Engine:
        """Another engine over the same units."""
        return Engine({u.name: self._lanes(u) for u in self.units}, policy)

    @property
    def running(self) -> Engine | None:
        """The engine, if there is one yet."""
        return self._engine

    def _lanes(self, unit: Unit) -> LaneOptions:
        sensor: Callable[[], Any] | None = None
        if unit.label == "hardware" and unit.platform in sensors.KINDS:
            sensor = sensors.SensorSampler(unit.platform)
        usual = HEAT.get(unit.platform, HEAT["npu"])
        return LaneOptions(
            lanes=unit.lanes,
            probe=unit.probe,
            interrupt=unit.interrupt,
            sensor=sensor,
            heat=self.heat.get(unit.name, self.heat.get(unit.platform, usual)),
            group="host" if unit.host and self.options.redo == "any" else "",
            trusted=unit.host,
            receive=lambda value, _: unit.receive(value),
        )

    def compile(self, program: Program, donate: tuple[int, ...] = ()) -> Executable:
        if len(self.units) == 1:
            (only,) = self.units
            if isinstance(only, BackendUnit) and only.host:
                return only.backend.compile(program, donate)
        return self.hybrid(program, donate)

    def hybrid(self, program: Program, donate: tuple[int, ...] = ()) -> HybridExecutable:
        """The executable, also where one unit is all there is."""
        trial = lambda: self.engine_with(replace(self.policy, verify=0.0, nan=False))
        setting = PlanSetting(self.units, self.missing, self.options, self.history)
        return HybridExecutable(program, donate, setting, lambda: self.engine, trial)

    def lower(self, program: Program, donate: tuple[int, ...] = ()) -> str:
        """The program that is planned; a plan needs a call's arguments, see `nx.hybrid.plan`."""
        return str(program)

    def close(self) -> None:
        """End the engine's threads; the next call begins them again."""
        with self._lock:
            if self._engine is not None:
                self._engine.close()
            self._engine = None

    def clear(self) -> None:
        for unit in self.units:
            if isinstance(unit, BackendUnit):
                unit.backend.clear()
