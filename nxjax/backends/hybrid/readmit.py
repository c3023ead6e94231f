"""Units that are out, and how hot units are: what is asked of them, each time in a thread of its own.

A probe, an interrupt or a sensor may hang, raise anything or answer nonsense; each costs a thread at most.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any, Final, final

from nxjax.backends.hybrid import blame
from nxjax.backends.hybrid.lanes import aside

if TYPE_CHECKING:
    from nxjax.backends.hybrid.core import EngineCore
    from nxjax.backends.hybrid.member import Member

_clock = time.perf_counter
# How long a run waits for the first temperatures.
_FIRST: Final = 0.05


@final
class Ward:
    """Looks after units. Under the engine's lock, where the name does not say otherwise."""

    def __init__(self, core: EngineCore) -> None:
        self._core = core
        self._sensed = [unit for unit in core.units.values() if unit.options.sensor is not None]

    # Probes.

    def hurry(self, unit: Member) -> None:
        """Somebody needs it: ask now."""
        if unit.health.state == "out" and unit.health.retry < math.inf:
            unit.health.retry = _clock()
            self._core.watch.by(unit.health.retry)

    def look(self, now: float, late: float) -> float:
        """Ask what is due, give up probes that do not come back; gives when to look again."""
        core, policy = self._core, self._core.policy
        at = math.inf
        for unit in core.units.values():
            if unit.probe is not None:
                unit.probe += late
                if unit.probe <= now:
                    unit.lost += 1
                    self._failed(unit, f"a probe did not come back within {policy.probe:g} s")
            if unit.health.state == "out" and unit.health.retry <= now:
                stopping = unit.interrupting + policy.probe
                if unit.interrupting and now < stopping:
                    at = min(at, stopping)
                    continue
                self._begin(unit, now)
            out = unit.health.state == "out"
            at = min(at, unit.health.retry if out else math.inf, math.inf if unit.probe is None else unit.probe)
        return min(at, self._read(now))

    def _begin(self, unit: Member, now: float) -> None:
        policy, ask = self._core.policy, unit.options.probe
        if unit.lost >= policy.lost:
            self._failed(unit, f"{unit.lost} of its threads have not come back")
            return
        unit.health.probing(now)
        if ask is None:
            self._passed(unit)
            return
        probe = unit.probe = now + policy.probe

        def run() -> None:
            why = "gave a wrong answer to a probe"
            try:
                right = bool(ask())
            except BaseException as error:
                right, why = False, f"raised in a probe: {blame.line(error)}"
            with self._core.lock:
                if unit.probe != probe:  # it was given up, or the unit is back by other means
                    unit.lost = max(0, unit.lost - (_clock() >= probe))
                elif right:
                    self._passed(unit)
                else:
                    self._failed(unit, why)
            self._core.log.deliver()

        if not aside(run, f"nxjax-{unit.name}-probe"):
            self._failed(unit, "the system gives no thread for a probe")

    def _passed(self, unit: Member) -> None:
        unit.probe = None
        if unit.health.probe_passed(_clock()):
            self._returns(unit, "readmitted: it answers again")
        else:
            self._core.watch.by(unit.health.retry)

    def _failed(self, unit: Member, why: str) -> None:
        core = self._core
        unit.probe = None
        unit.health.probe_failed(_clock(), why)
        core.log.add(unit.name, "probe", f"stays out: {why}; asked again in {unit.health.backoff():.3g} s")
        core.watch.by(unit.health.retry)
        core.answers_again(unit)

    def back(self, unit: Member) -> None:
        """The user takes it back."""
        unit.probe = None
        unit.health.back(_clock())
        unit.thermal.heat = "unknown"
        self._returns(unit, "readmitted by the user")

    def _returns(self, unit: Member, why: str) -> None:
        self._core.log.add(unit.name, "back", why)
        unit.assess()
        self._core.renew(unit)
        self._core.answers_again()

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

    def warm_up(self) -> None:
        """Something is about to run: know how hot units are. Without the lock."""
        if self._sensed and not all(unit.told.is_set() for unit in self._sensed):
            with self._core.lock:
                self._read(_clock(), needed=True)
            until = _clock() + _FIRST
            for unit in self._sensed:
                unit.told.wait(max(0.0, until - _clock()))

    def wake(self) -> None:
        """Something runs: read temperatures from now on."""
        for unit in self._sensed:
            self._core.watch.by(unit.read_at)

    def _read(self, now: float, needed: bool = False) -> float:
        """Ask the sensors that are due, as long as something runs or a unit is hot; gives when the next is."""
        core = self._core
        at = math.inf
        for unit in self._sensed:
            if needed or core.active or unit.thermal.heat == "hot":
                if unit.read_at <= now:
                    unit.read_at = math.inf
                    aside(lambda unit=unit: self._ask(unit), f"nxjax-{unit.name}-sensor")
                at = min(at, unit.read_at)
        return at

    def _ask(self, unit: Member) -> None:
        """Read a sensor, without the lock."""
        read, celsius, why = unit.options.sensor, None, "the sensor gave nothing"
        assert read is not None
        try:
            answer: Any = read()
            if answer is not None:
                celsius = None if answer.celsius is None else float(answer.celsius)
                why = str(getattr(answer, "why", "")) or "the sensor gave no temperature"
        except BaseException as error:
            why = f"the sensor raised {blame.line(error)}"
        core = self._core
        with core.lock:
            self._told(unit, celsius, why)
            unit.read_at = _clock() + core.policy.heat_period
            if core.active or unit.thermal.heat == "hot":
                core.watch.by(unit.read_at)
        unit.told.set()
        core.log.deliver()

    def _told(self, unit: Member, celsius: float | None, why: str) -> None:
        core, limits = self._core, unit.options.heat
        before, was_why = unit.thermal.heat, unit.thermal.why
        heat = unit.thermal.read(_clock(), celsius, why)
        unit.assess()
        if unit.thermal.why and unit.thermal.why != was_why:
            core.log.add(unit.name, "sensor", f"temperature unavailable: {unit.thermal.why}")
        if heat == before or celsius is None:
            return
        shown = f"{celsius:.0f} degrees C"
        if heat == "hot":
            reason = f"heat: {shown}, above {limits.maximum:g}"
            core.log.add(unit.name, "out", f"taken out: {reason}")
            core.scatter(unit, reason, "spare")
        elif before == "hot":
            self._returns(unit, f"readmitted: {shown}")
        elif heat == "warm":
            core.log.add(unit.name, "warm", f"{shown}, above {limits.warning:g}: others are preferred")
        elif before == "warm":
            core.log.add(unit.name, "cool", shown)
