"""`sensors`: what this machine's chips measure of themselves, as a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from nxjax.backends.sensors.reading import FIGURES, Rates, Reading, Roots
from nxjax.backends.sensors.ways import KINDS, read
from nxjax.display import page
from nxjax.display.columns import columns
from nxjax.trace.boundary import entry

_HERE: Final = Roots()
_HEAD: Final = ("chip", *FIGURES.values(), "source", "missing because")


@final
@dataclass(frozen=True)
class Sensors:
    """Readings by kind of chip: `sensors()["npu"].celsius`; prints as a table, in notebooks as HTML."""

    readings: dict[str, Reading]

    def __getitem__(self, kind: str) -> Reading:
        return self.readings[kind]

    def __iter__(self) -> Iterator[str]:
        return iter(self.readings)

    def __len__(self) -> int:
        return len(self.readings)

    def _rows(self) -> list[tuple[str, ...]]:
        return [(kind, *r.shown().values(), r.source or "-", r.why or "-") for kind, r in self.readings.items()]

    def __repr__(self) -> str:
        return "\n".join(columns([_HEAD, *self._rows()]))

    def _repr_html_(self) -> str:
        marks = ["good" if r.available else "bad" for r in self.readings.values()]
        parts = [page.table(_HEAD, self._rows(), classes=marks)]
        for kind, r in self.readings.items():
            if r.parts:
                rows = [(what, f"{value:g}", unit) for what, value, unit in r.parts]
                parts.append(page.details(f"{kind}: all figures", page.table(("what", "value", "unit"), rows)))
        return page.page(*parts)


@entry
def sensors(over: float = 0.0, *, roots: Roots = _HERE) -> Sensors:
    """Temperature, power, load and clock of the NPU, the CPU and the GPU of this machine.

    Figures only come from sensors: hwmon, the drivers, powercap, ``xrt-smi``, ``nvidia-smi``. Others are "unavailable",
    with the reason.

    Args:
        over: seconds to measure counters; needed for load, and for power if energy is counted.

    >>> found = sensors()
    >>> list(found), len(found["npu"].why) > 0 or found["npu"].available
    (['npu', 'cpu', 'gpu'], True)
    """
    rates = Rates(roots.clock)
    if over > 0:
        for kind in KINDS:
            read(kind, roots=roots, rates=rates)
        roots.sleep(over)
    return Sensors({kind: read(kind, roots=roots, rates=rates) for kind in KINDS})
