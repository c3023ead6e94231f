"""A plan: the regions of a program, where each runs and why, what it would take elsewhere; as text and as a page.

Made by `planner`; it runs nothing itself.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, final

from nxjax.backends.hybrid import timeline
from nxjax.backends.hybrid.schedule import Schedule, Work
from nxjax.backends.hybrid.timeline import duration
from nxjax.backends.hybrid.unit import Estimate, RegionRefused, Step, Unit
from nxjax.display.columns import columns
from nxjax.errors import LoweringError
from nxjax.files.safe_io import write
from nxjax.lower.partition.regions import Partition, Region
from nxjax.trace.program import Program

if TYPE_CHECKING:
    from nxjax.backends.hybrid.jobs import AttemptSpan

# Why a unit does not take what the user has put elsewhere.
PINNED: Final = "pinned elsewhere"
_LONGEST: Final = 36


@final
class Ready:
    """A region on one unit, prepared when it is first wanted.

    Attributes:
        why: why it is not possible; empty where it is.
        cost: what it takes there, or None where nobody knows.
    """

    def __init__(self, unit: Unit, program: Program, why: str = "") -> None:
        self.unit = unit
        self.program = program
        self.why = why
        self.cost: Estimate | None = None
        self._step: Step | None = None
        self._refused: RegionRefused | None = None
        self._lock = Lock()

    @property
    def prepared(self) -> Step | None:
        """The step, if somebody has wanted it."""
        return self._step

    def step(self) -> Step:
        """The step; made at the first call.

        Raises:
            RegionRefused: the unit does not take it after all.
        """
        with self._lock:
            if self._refused is not None:
                raise self._refused
            if self._step is None:
                try:
                    self._step = self.unit.prepare(self.program)
                except RegionRefused as why:
                    # What a compiler cannot do it will not do the next time either; others may have had a bad moment.
                    self._refused = why if isinstance(why.__cause__, LoweringError) else None
                    raise
            return self._step

    def close(self) -> None:
        """Give back what was prepared."""
        with self._lock:
            if self._step is not None:
                self._step.close()
            self._step = None


@final
@dataclass(frozen=True, eq=False)
class Place:
    """One region of a plan.

    Attributes:
        region: the region.
        unit: its unit.
        on: the region on every candidate unit, in the user's order; those with a ``why`` are not possible.
        takers: units that may redo it, the planned one first.
        exact: all takers give the same bits.
        tolerance: otherwise the largest difference of their floats; None if there is one taker.
        rough: whether some taker is not exact, so that integers which floats decide may differ more often.

    >>> place = nx.Hybrid("cpu").plan(lambda x: x + 1)(nx.numpy.ones(3)).places[0]
    >>> place.unit, place.takers, place.nbytes
    ('cpu', ('cpu',), (12, 12))
    """

    region: Region
    unit: str
    on: Mapping[str, Ready]
    takers: tuple[str, ...]
    exact: bool
    tolerance: float | None = None
    rough: bool = False

    @property
    def cost(self) -> Estimate | None:
        return self.on[self.unit].cost

    @property
    def nbytes(self) -> tuple[int, int]:
        """Bytes of its inputs and results."""
        size = lambda vs: sum(v.type.size * v.type.dtype.itemsize for v in vs)
        return size(self.region.inputs), size(self.region.outputs)

    @property
    def reason(self) -> str:
        """Why it runs there, in a few words."""
        possible = [n for n, r in self.on.items() if not r.why]
        if any(r.why == PINNED for r in self.on.values()):
            return "pinned"
        if len(possible) == 1:
            return "nothing else takes it"
        costs = {n: c.seconds for n in possible if (c := self.on[n].cost) is not None}
        least = min(costs, key=lambda n: costs[n], default=self.unit)
        return "fastest here" if least == self.unit else "the schedule is better so"


@final
@dataclass(eq=False)
class Plan:
    """Where the regions of a program run.

    Attributes:
        name: the function's.
        partition: the regions.
        places: one per region.
        units: the available units, by the user's priority.
        missing: (name, why) of the others.
        work, schedule: the input and result of scheduling.
        notes: what the user should know.
        spans: of the last run, measured; empty before one.
        constants: positions of flat arguments whose values are part of the plan.

    >>> plan = nx.Hybrid("npu", "cpu").plan(lambda x: nx.sin(x) * 2)(nx.numpy.ones(3))
    >>> plan.assignment, [name for name, why in plan.missing]
    (('cpu',), ['npu'])
    """

    name: str
    partition: Partition
    places: tuple[Place, ...]
    units: tuple[Unit, ...]
    missing: tuple[tuple[str, str], ...]
    work: Work
    schedule: Schedule
    notes: tuple[str, ...] = ()
    spans: Sequence[AttemptSpan] = field(default_factory=tuple)
    constants: tuple[int, ...] = ()

    @property
    def assignment(self) -> tuple[str, ...]:
        """The unit of each region."""
        return tuple(p.unit for p in self.places)

    def __str__(self) -> str:
        many = lambda n, what: f"{n} {what}" if n == 1 else f"{n} {what}s"
        on = ", ".join(dict.fromkeys(self.assignment)) or "nothing"
        lines = [f"plan of {self.name}: {many(len(self.places), 'region')} on {on}"]
        table = [
            ("region", "unit", "label", "time", "basis", "in", "out", "why", "elsewhere"),
            *map(self._row, self.places),
        ]
        lines += columns(table, right=(3, 5, 6), indent="  ")
        for t in self.schedule.transfers:
            took = duration(t.finish - t.start)
            lines.append(f"  transfer {t.from_unit} -> {t.to_unit}: {_bytes(t.nbytes)} in {took}")
        refused = {(n, r.why) for p in self.places for n, r in p.on.items() if r.why not in ("", PINNED)}
        lines += [f"  {name} does not take some regions: {why}" for name, why in sorted(refused)]
        lines += self._checked()
        lines += [f"  {name} is missing: {why}" for name, why in self.missing]
        lines += [f"  {note}" for note in self.notes]
        lines += timeline.text(self.work, self.schedule, self._ran()).splitlines()
        return "\n".join(lines)

    __repr__ = __str__

    def _checked(self) -> list[str]:
        """Which regions were compared with a reference when they were made ready, and which were not."""
        found: dict[tuple[str, str], list[str]] = {}
        for i, p in enumerate(self.places):
            step = p.on[p.unit].prepared
            if step is not None and step.checked:
                found.setdefault((p.unit, step.checked), []).append(str(i))
        return [
            f"  region{'s' * (len(at) > 1)} {', '.join(at)} on {unit}: {said}" for (unit, said), at in found.items()
        ]

    def _row(self, p: Place) -> tuple[str, ...]:
        there = p.on[p.unit]
        step, cost = there.prepared, there.cost
        others = [
            f"{n} {duration(r.cost.seconds) if r.cost is not None else '?'}"
            for n, r in p.on.items()
            if n != p.unit and not r.why
        ]
        name = p.region.name
        name = name if len(name) <= _LONGEST else name[: _LONGEST - 3] + "..."
        into, out = p.nbytes
        return (
            f"{p.region.number} {name}", p.unit, step.label if step is not None else there.unit.label,
            duration(cost.seconds) if cost is not None else "?", cost.basis if cost is not None else "unknown",
            _bytes(into), _bytes(out), p.reason, ", ".join(others),
        )  # fmt: skip

    def timeline(self) -> str:
        """The schedule as a picture, with measured spans and estimates: one self-contained ``<svg>``."""
        return timeline.svg(self.work, self.schedule, self._ran())

    def to_svg(self) -> str:
        return self.timeline()

    def _ran(self) -> list[AttemptSpan]:
        return [s for s in self.spans if s.job < len(self.places)]  # behind the regions stand constants

    def _repr_html_(self) -> str:
        return f"{self.timeline()}<pre>{html.escape(str(self))}</pre>"

    def save(self, path: str | Path) -> None:
        """Write the timeline (``.svg``), both (``.html``) or, under any other name, the text; completely or not at
        all."""
        file = Path(path)
        picture = lambda: timeline.svg(self.work, self.schedule, self._ran(), alone=True)
        page = lambda: f'<!doctype html><meta charset="utf-8">{self._repr_html_()}'
        made = {".svg": picture, ".html": page}.get(file.suffix, lambda: f"{self}\n")()
        write(file, made.encode())

    def close(self, but: Plan | None = None) -> None:
        """Free the resources of its regions on their units, except those shared with another plan."""
        held = {id(ready) for p in (but.places if but is not None else ()) for ready in p.on.values()}
        for ready in (ready for p in self.places for ready in p.on.values()):
            if id(ready) not in held:
                ready.close()


def _bytes(n: int) -> str:
    return f"{n} B" if n < 10_000 else f"{n / 1024:.0f} KiB" if n < 10_000 * 1024 else f"{n / 2**20:.0f} MiB"
