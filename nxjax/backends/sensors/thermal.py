"""What heat asks for: from readings to actions, by thresholds. A pure decision; it reads no sensor and does nothing.

A unit is a string such as "npu", "gpu" or "cpu:1"; what stands before the colon says whose limit it has. A chip whose
temperature nobody tells is left alone: no figure is no reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, final

from nxjax.backends.sensors.reading import Reading
from nxjax.errors import ParameterError

Strategy = Literal["lower-power", "prefer-others", "take-out", "restore-power", "readmit"]
STRATEGIES: Final[tuple[Strategy, ...]] = ("lower-power", "prefer-others", "take-out", "restore-power", "readmit")
# "ok": as ever; "warm": above the warning, used less; "out": above its limit, not used.
State = Literal["ok", "warm", "out"]


@final
@dataclass(frozen=True)
class Thresholds:
    """Temperature limits, in degrees Celsius.

    Attributes:
        warning: above it a chip is given less power and less work.
        npu_max, cpu_max, gpu_max: above it a chip is given none; None where there is no such limit.
        back: how far it has to cool below a threshold before that is undone, so that nothing flutters.
    """

    warning: float = 80.0
    npu_max: float | None = 85.0
    cpu_max: float | None = 90.0
    gpu_max: float | None = None
    back: float = 5.0

    def __post_init__(self) -> None:
        if not self.back >= 0:
            raise ParameterError("thermal policy: back", got=self.back, expected="degrees, 0 or more")
        for name in ("npu_max", "cpu_max", "gpu_max"):
            limit = getattr(self, name)
            if limit is not None and not limit >= self.warning:
                raise ParameterError(
                    f"thermal policy: {name} below the warning", got=limit, expected=f"{self.warning} or more"
                )

    def limit(self, unit: str) -> float | None:
        """The temperature above which a unit is taken out; None where there is no limit for its kind."""
        return getattr(self, f"{unit.partition(':')[0]}_max", None)


@final
@dataclass(frozen=True)
class Action:
    """One action for one unit, with its reason."""

    unit: str
    strategy: Strategy
    reason: str

    def __str__(self) -> str:
        return f"{self.unit}: {self.strategy} ({self.reason})"


@final
@dataclass(frozen=True)
class Decision:
    """What to do now, and how every unit stands afterwards."""

    actions: tuple[Action, ...]
    states: Mapping[str, State] = field(default_factory=dict[str, State])

    @property
    def usable(self) -> list[str]:
        """The units that may be given work, the ones that are not warm first."""
        order = {"ok": 0, "warm": 1}
        return sorted((u for u, s in self.states.items() if s != "out"), key=lambda u: order[self.states[u]])


DEFAULT: Final = Thresholds()


def above(celsius: float, limit: float, before: bool, back: float) -> bool:
    """Whether a chip counts as above a limit: it is, or it was and has not cooled by ``back`` below it.

    >>> [above(c, 80, before, 5) for c, before in ((80, False), (81, False), (76, True), (75, True))]
    [False, True, True, False]
    """
    return celsius > (limit - back if before else limit)


def policy(
    readings: Mapping[str, Reading], thresholds: Thresholds = DEFAULT, before: Mapping[str, State] | None = None
) -> Decision:
    """Decide what heat asks for.

    Above the warning a unit is to have less power and others are to be preferred; above its limit it is taken out;
    cooled by ``thresholds.back`` below what it had crossed, that is undone. The last unit that is left stays, however
    hot: something has to compute, and the chip protects itself.

    Args:
        readings: unit -> its reading, in the order in which units are preferred.
        before: how units stood after the last decision; all "ok" without it.

    >>> hot, cool = Reading(celsius=86.0, source="hwmon"), Reading(celsius=60.0, source="hwmon")
    >>> for action in policy({"npu": hot, "cpu": cool}).actions:
    ...     print(action)
    npu: take-out (86.0 °C, above 85)
    """
    states: dict[str, State] = {u: (before or {}).get(u, "ok") for u in readings}
    actions: list[Action] = []
    for unit, reading in readings.items():
        if reading.celsius is None:
            continue
        made, states[unit] = _one(unit, reading.celsius, thresholds, states[unit])
        actions += made
    if readings and all(s == "out" for s in states.values()):
        coolest = min(readings, key=lambda u: _beyond(u, readings[u], thresholds))
        was = (before or {}).get(coolest, "ok")
        actions = [a for a in actions if a.unit != coolest]
        if was == "out":
            actions.append(Action(coolest, "readmit", "no other unit is left"))
        elif was == "ok":
            actions.append(Action(coolest, "lower-power", f"{readings[coolest].celsius:.1f} °C, and the last one left"))
        states[coolest] = "warm"
    return Decision(tuple(actions), states)


def _beyond(unit: str, reading: Reading, thresholds: Thresholds) -> float:
    """How far a unit is above its limit; one that nobody measures is as far as can be."""
    limit = thresholds.limit(unit)
    return float("inf") if reading.celsius is None or limit is None else reading.celsius - limit


def _one(unit: str, celsius: float, thresholds: Thresholds, was: State) -> tuple[list[Action], State]:
    limit = thresholds.limit(unit)
    said = f"{celsius:.1f} °C"
    if limit is not None and above(celsius, limit, was == "out", thresholds.back):
        return ([] if was == "out" else [Action(unit, "take-out", f"{said}, above {limit:g}")]), "out"
    actions: list[Action] = []
    if was == "out":
        actions.append(Action(unit, "readmit", f"{said}, {thresholds.back:g} below its limit"))
    if above(celsius, thresholds.warning, was == "warm", thresholds.back):
        if was == "ok":
            why = f"{said}, above {thresholds.warning:g}"
            actions += [Action(unit, "lower-power", why), Action(unit, "prefer-others", why)]
        return actions, "warm"
    if was != "ok":
        actions.append(Action(unit, "restore-power", said))
    return actions, "ok"
