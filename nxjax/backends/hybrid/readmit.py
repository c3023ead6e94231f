"""Units that are out: when they are asked again, by a probe in a thread of its own, and how hot they are.

A probe, an interrupt or a sensor may hang, raise anything or answer nonsense; each costs a thread at most.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final, final

from nxjax.backends.hybrid import blame
from nxjax.backends.hybrid.lanes import Thermometer, aside

if TYPE_CHECKING:
    from nxjax.backends.hybrid.core import EngineCore
    from nxjax.backends.hybrid.member import Member

_clock = time.perf_counter
# How long the first run waits for the first temperatures.
_FIRST: Final = 0.05


@final
class Probe:
    """A probe under way."""

    __slots__ = ("deadline",)

    def __init__(self, deadline: float) -> None:
        self.deadline = deadline


@final
class Ward:
    """Looks after the units that are out. Under the engine's lock, where the name does not say otherwise."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._thermometers: list[Thermometer] = []
        self._make_thermometers()

    # Probes.

    def scheduled(self, unit: Member) -> None:
        """It was taken out; ask again when its back-off is over."""
        unit.probe = None
        if unit.health.retry < math.inf:
            self._core.watch.by(unit.health.retry)

    def hurry(self, unit: Member) -> None:
        """Somebody needs it: ask now."""
        if unit.health.state == "out" and unit.health.retry < math.inf:
            unit.health.retry = _clock()
            self._core.watch.by(unit.health.retry)

    def look(self, now: float, late: float) -> float:
        """Begin the probes that are due, give up those that do not come back; gives when to look again."""
        core, policy = self._core, self._core.policy
        at = math.inf
        for unit in core.units.values():
            probe: Probe | None = unit.probe
            if probe is not None:
                probe.deadline += late
                if probe.deadline <= now:
                    unit.probe = None
                    unit.lost += 1
                    self._failed(unit, f"a probe did not come back within {policy.probe:g} s")
                else:
                    at = min(at, probe.deadline)
            if unit.health.state == "out" and unit.health.retry <= now:
                if unit.interrupting and now < unit.interrupting + policy.probe:
                    at = min(at, unit.interrupting + policy.probe)
                    continue
                self._begin(unit, now)
                if unit.probe is not None:
                    at = min(at, unit.probe.deadline)
            if unit.health.state == "out":
                at = min(at, unit.health.retry)
        return at

    def _begin(self, unit: Member, now: float) -> None:
        policy = self._core.policy
        if unit.lost >= policy.lost:
            self._failed(unit, f"{unit.lost} of its threads have not come back")
            return
        unit.health.probing(now)
        if unit.options.probe is None:
            self._passed(unit)
            return
        probe = unit.probe = Probe(now + policy.probe)
        if not aside(lambda: self._ask(unit, probe), f"nxjax-{unit.name}-probe"):
            unit.probe = None
            self._failed(unit, "the system gives no thread for a probe")

    def _ask(self, unit: Member, probe: Probe) -> None:
        """The probe itself; without the lock."""
        ask = unit.options.probe
        assert ask is not None
        why = "gave a wrong answer to a probe"
        try:
            right = bool(ask())
        except BaseException as error:
            right, why = False, f"raised in a probe: {blame.line(error)}"
        core = self._core
        with core.lock:
            if unit.probe is not probe:  # it was given up, or the unit is back by other means
                if _clock() >= probe.deadline:
                    unit.lost = max(0, unit.lost - 1)
            elif not core.closed:
                unit.probe = None
                if right:
                    self._passed(unit)
                else:
                    self._failed(unit, why)
        core.log.deliver()

    def _passed(self, unit: Member) -> None:
        core = self._core
        if unit.health.probe_passed(_clock()):
            core.log.add(unit.name, "back", "readmitted: it answers again")
            unit.assess()
            core.renew(unit)
            core.unpark()
        else:
            core.watch.by(unit.health.retry)

    def _failed(self, unit: Member, why: str) -> None:
        core = self._core
        unit.health.probe_failed(_clock(), why)
        core.log.add(unit.name, "probe", f"stays out: {why}; asked again in {unit.health.backoff():.3g} s")
        core.watch.by(unit.health.retry)
        core.unpark(unit)

    def back(self, unit: Member) -> None:
        """The user takes it back."""
        unit.probe = None
        unit.health.back(_clock())
        unit.thermal.heat = "unknown"
        unit.assess()
        self._core.renew(unit)
        self._core.log.add(unit.name, "back", "readmitted by the user")
        self._core.unpark()

    def interrupt(self, unit: Member) -> None:
        """End a call that does not come back, if the unit knows how."""
        stop = unit.options.interrupt
        if stop is None:
            return
        began = unit.interrupting = _clock()

        def run() -> None:
            try:
                stop()
            except BaseException as error:
                self._core.log.add(unit.name, "lost", f"could not be interrupted: {blame.line(error)}")
            with self._core.lock:
                if unit.interrupting == began:
                    unit.interrupting = 0.0
                    self._core.watch.by(max(_clock(), unit.health.retry))

        if not aside(run, f"nxjax-{unit.name}-interrupt"):
            unit.interrupting = 0.0

    # Temperatures.

    def _make_thermometers(self) -> None:
        self._thermometers = []
        self._warmed = False
        for unit in self._core.units.values():
            read = unit.options.sensor
            if read is not None:
                unit.thermometer = Thermometer(
                    read,
                    lambda answer, error, unit=unit: self._told(unit, answer, error),
                    lambda unit=unit: not self._core.closed and (bool(self._core.active) or unit.thermal.heat == "hot"),
                    self._core.policy.heat_period,
                    f"nxjax-{unit.name}-sensor",
                )
                self._thermometers.append(unit.thermometer)

    def warm_up(self) -> None:
        """Something is about to run for the first time: know how hot units are. Without the lock."""
        if self._warmed:
            return
        self._warmed = True
        until = _clock() + _FIRST
        self.wake()
        for thermometer in self._thermometers:
            thermometer.first.wait(max(0.0, until - _clock()))

    def wake(self) -> None:
        """Something runs: read temperatures from now on."""
        for thermometer in self._thermometers:
            if thermometer.asleep:
                thermometer.wake()

    def _told(self, unit: Member, answer: Any, error: BaseException | None) -> None:
        """A sensor has answered, or raised; without the lock."""
        celsius: float | None = None
        why = "the sensor gave nothing"
        if error is not None:
            why = f"the sensor raised {blame.line(error)}"
        elif answer is not None:
            try:
                celsius = None if answer.celsius is None else float(answer.celsius)
                why = str(getattr(answer, "why", "")) or "the sensor gave no temperature"
            except Exception as e:
                why = f"the sensor's answer is none: {blame.line(e)}"
        core = self._core
        with core.lock:
            before, was_why = unit.thermal.heat, unit.thermal.why
            heat = unit.thermal.read(_clock(), celsius, why)
            unit.assess()
            limits = unit.options.heat
            if unit.thermal.why and unit.thermal.why != was_why:
                core.log.add(unit.name, "sensor", f"temperature unavailable: {unit.thermal.why}")
            if heat != before and celsius is not None:
                shown = f"{celsius:.0f} degrees C"
                if heat == "hot":
                    reason = f"heat: {shown}, above {limits.maximum:g}"
                    core.log.add(unit.name, "out", f"taken out: {reason}")
                    core.scatter(unit, reason, "spare")
                elif before == "hot":
                    core.log.add(unit.name, "back", f"readmitted: {shown}")
                    core.renew(unit)
                    core.unpark()
                elif heat == "warm":
                    core.log.add(unit.name, "warm", f"{shown}, above {limits.warning:g}: others are preferred")
                elif before == "warm":
                    core.log.add(unit.name, "cool", shown)
        core.log.deliver()

    # Ends.

    def end(self) -> None:
        for thermometer in self._thermometers:
            thermometer.end()

    def forked(self) -> None:
        """The threads of the parent are not here."""
        self._make_thermometers()
