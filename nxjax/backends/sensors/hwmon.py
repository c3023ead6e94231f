"""Linux's hardware monitors: temperatures, powers and clocks of the chips whose drivers register one.

Units are the kernel's (Documentation/hwmon/sysfs-interface.rst): millidegrees, microwatts, microjoules, hertz. Knows
files, not what a chip is used for.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from nxjax.backends.sensors.reading import Rates, Reading, Roots, number, text

_CHANNEL: Final = re.compile(r"^(temp|power|freq|energy)(\d+)_(input|average)$")
_SCALE: Final = {"temp": 1e-3, "power": 1e-6, "freq": 1e-6, "energy": 1e-6}
_UNIT: Final = {"temp": "°C", "power": "W", "freq": "MHz", "energy": "J"}
# Sensors that stand for the whole chip, in order; a chip with none of them is as hot as its hottest sensor.
_WHOLE: Final = ("Tdie", "Package id", "NPU_temperature")
# A control value of some processors of AMD, above the true temperature by an offset.
_NOT_TRUE: Final = ("Tctl",)


@final
@dataclass(frozen=True)
class SensorChannel:
    """One sensor: ``kind`` is "temp", "power", "freq" or "energy"; ``value`` in °C, W, MHz or J."""

    kind: str
    label: str
    value: float


def folders(roots: Roots, names: Sequence[str], device: Path | None = None) -> list[Path]:
    """The monitors whose driver is called one of ``names``, of ``device`` where that is given."""
    found: list[Path] = []
    for folder in sorted((roots.sys / "class/hwmon").glob("hwmon*")):
        if text(folder / "name") not in names:
            continue
        if device is None or (folder / "device").resolve() == device.resolve():
            found.append(folder)
    return found


def channels(folder: Path) -> list[SensorChannel]:
    """Every sensor of a monitor that answers now; an average stands for a value that is not there."""
    found: dict[tuple[str, int], SensorChannel] = {}
    try:
        files = sorted(folder.iterdir(), key=lambda p: p.name.endswith("average"))
    except OSError:
        # Its driver has gone since it was listed.
        return []
    for path in files:
        matched = _CHANNEL.match(path.name)
        if matched is None:
            continue
        kind, index = matched[1], int(matched[2])
        value = number(path)
        if value is None or (kind, index) in found or number(folder / f"{kind}{index}_fault"):
            continue
        label = text(folder / f"{kind}{index}_label") or f"{kind}{index}"
        found[kind, index] = SensorChannel(kind, label, value * _SCALE[kind])
    return [found[key] for key in sorted(found)]


def hottest(found: Sequence[SensorChannel]) -> float | None:
    """The chip's temperature: that of the sensor for the whole of it, or the highest."""
    temperatures = [c for c in found if c.kind == "temp"]
    for label in _WHOLE:
        whole = [c.value for c in temperatures if c.label.startswith(label)]
        if whole:
            return max(whole)
    true = [c.value for c in temperatures if c.label not in _NOT_TRUE]
    return max(true or [c.value for c in temperatures], default=None)


def reading(roots: Roots, names: Sequence[str], rates: Rates, device: Path | None = None) -> Reading:
    """What the monitors called ``names`` say; several of them are one chip with several dies."""
    where = folders(roots, names, device)
    if not where:
        return Reading(why=f"no hwmon device called {' or '.join(names)}")
    found = [c for folder in where for c in channels(folder)]
    name = text(where[0] / "name") or "hwmon"
    watts = [c.value for c in found if c.kind == "power"]
    if not watts:
        # Some drivers count energy instead; the first counter is the card's.
        for folder in where:
            counted = next((c for c in channels(folder) if c.kind == "energy"), None)
            if counted is not None:
                rate = rates.per_second(f"{folder}/{counted.label}", counted.value)
                watts += [] if rate is None else [rate]
    clocks = [c.value for c in found if c.kind == "freq"]
    parts = tuple((c.label, c.value, _UNIT[c.kind]) for c in found if c.kind != "energy")
    made = Reading(
        celsius=hottest(found),
        watts=sum(watts) if watts else None,
        megahertz=clocks[0] if clocks else None,
        source=f"hwmon {name}",
        parts=parts,
    )
    return made if made.available else Reading(why=f"hwmon {name} answers to nothing")
