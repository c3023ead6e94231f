"""What a timeline shows: rows of bars, one per lane and link, of a schedule and of what was measured. Draws nothing."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, final

from nxjax.backends.hybrid.schedule import Schedule
from nxjax.backends.hybrid.work import CALLER, HOST, Work


class Measured(Protocol):
    """What ran, in seconds on one clock. ``moved`` (when its inputs were there), ``outcome`` ("done", or what went
    wrong) and ``item`` (the input of a stream) are looked at where there are such."""

    @property
    def job(self) -> int: ...
    @property
    def unit(self) -> str: ...
    @property
    def lane(self) -> int: ...
    @property
    def start(self) -> float: ...
    @property
    def finish(self) -> float: ...


Kind = Literal["task", "transfer", "ran", "moved", "checked", "wrong"]
_MOST_BARS: Final = 400
_APART: Final = 3.0  # measured and estimated spans that differ by more get an axis each
MOST_ITEMS: Final = 8
UP: Final = "↑"  # to the host's memory
DOWN: Final = "↓"


@final
@dataclass(slots=True)
class Bar:
    start: float
    finish: float
    number: int  # of its task
    name: str
    tip: str
    kind: Kind
    item: int = 0


@final
@dataclass(slots=True)
class LaneRow:
    """A lane or a link. ``unit`` is empty for a link."""

    name: str
    unit: str
    measured: bool = False
    bars: list[Bar] = field(default_factory=list[Bar])

    @property
    def span(self) -> float:
        return max((b.finish for b in self.bars), default=0.0)


def duration(seconds: float) -> str:
    """Seconds with three digits and a unit.

    >>> duration(0.0012345), duration(2e-7), duration(61.0)
    ('1.23 ms', '200 ns', '61 s')
    """
    scale, unit = time_scale(seconds)
    return f"{seconds / scale:.3g} {unit}" if seconds / scale < 1000 else f"{seconds / scale:,.0f} {unit}"


def time_scale(seconds: float) -> tuple[float, str]:
    # What rounds to a thousand of a unit is one of the next.
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= 0.9995 * scale:
            return scale, unit
    return (1e-9, "ns") if seconds > 0 else (1.0, "s")


def _size(nbytes: int) -> str:
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= scale:
            return f"{nbytes / scale:.3g} {unit}"
    return f"{nbytes} B"


def summary(schedule: Schedule, measured: Sequence[Measured] = ()) -> str:
    """A schedule in one line."""
    parts = [f"{duration(schedule.makespan)} from call to result"]
    if schedule.objective == "throughput":
        rate = 1 / schedule.interval if schedule.interval > 0 else math.inf
        flight = f"{schedule.inflight} in flight" if schedule.inflight > 1 else "one at a time"
        parts += [f"an input every {duration(schedule.interval)} ({rate:.3g} per second), {flight}"]
    if schedule.joules is not None:
        parts.append(f"{schedule.joules:.3g} J")
    elif schedule.objective == "energy":
        parts.append("energy unknown")
    if measured:
        took = max(m.finish for m in measured) - min(m.start for m in measured)
        parts.append(f"measured {duration(took)}")
    found = f"{schedule.by}, no schedule is better" if schedule.exact else schedule.by
    return f"{schedule.objective}: {'; '.join(parts)} ({found})"


Panel = tuple[str, list[LaneRow]]  # rows on one axis of time: "estimated", "measured" or, if empty, whatever there is


def panels(work: Work, schedule: Schedule, measured: Sequence[Measured], items: int | None) -> tuple[list[Panel], int]:
    """The rows to show, and of how many inputs of a stream: as many as show how it flows, or as are asked for."""
    if items is None:
        streams = schedule.objective == "throughput" and schedule.inflight > 1
        room = max(1, _MOST_BARS // max(1, len(schedule.slots)))
        items = min(schedule.inflight + 2, MOST_ITEMS, room) if streams else 1
    estimated = _estimated(work, schedule if items == 1 else schedule.unrolled(work, items))
    ran = _measured(work, measured)
    one, other = (max((r.span for r in rows), default=0.0) for rows in (estimated, ran))
    if one and other and not 1 / _APART <= one / other <= _APART:
        return [("estimated", estimated), ("measured", ran)], items
    # What was measured under what was estimated of the same lane, links last.
    left = {r.name: r for r in ran}
    together: list[LaneRow] = []
    for row in (r for r in estimated if r.unit):
        together += [row, *([left.pop(row.name)] if row.name in left else [])]
    return [("", [*together, *left.values(), *(r for r in estimated if not r.unit)])], items


def _estimated(work: Work, schedule: Schedule) -> list[LaneRow]:
    lanes: dict[tuple[str, int], LaneRow] = {}
    for s in schedule.slots:
        task = work.tasks[s.task]
        tip = f"{task.name} on {s.unit}: {duration(s.finish - s.start)} estimated, from {duration(s.start)} on"
        tip += f", {task.joules[s.unit]:.3g} J" if s.unit in task.joules else ""
        bar = Bar(s.start, s.finish, s.task, task.name, tip, "task", s.item)
        _row(lanes, work, s.unit, s.lane, False).bars.append(bar)
    # Links in the order of the units behind them.
    links = {link: LaneRow(f"{link} link", "") for link in (work.link_of(work.memory_of(u)) for u in work.units)}
    for t in schedule.transfers:
        if t.finish == t.start:
            continue  # takes no time, so there is nothing to see
        what = f"argument {t.value}" if t.source == CALLER else f"{work.tasks[t.source].name} (value {t.value})"
        tip = f"{what}, {_size(t.nbytes)} from {t.from_unit} to {t.to_unit}: {duration(t.finish - t.start)} estimated"
        name = f"{UP if t.to_unit == HOST else DOWN} {_size(t.nbytes)}"
        row = links[work.link_of(t.to_unit if t.from_unit == HOST else t.from_unit)]
        row.bars.append(Bar(t.start, t.finish, max(t.source, 0), name, tip, "transfer", t.item))
    return [*_sorted(lanes, work), *(row for row in links.values() if row.bars)]


def _measured(work: Work, measured: Sequence[Measured]) -> list[LaneRow]:
    """From the first start on."""
    lanes: dict[tuple[str, int], LaneRow] = {}
    zero = min((m.start for m in measured), default=0.0)
    for m in measured:
        outcome, item = str(getattr(m, "outcome", "done")), int(getattr(m, "item", 0))
        start, moved, finish = m.start - zero, float(getattr(m, "moved", m.start)) - zero, m.finish - zero
        task = work.tasks[m.job] if m.job < len(work.tasks) else None
        name = task.name if task is not None else str(m.job)
        bars = _row(lanes, work, m.unit, m.lane, True).bars
        if moved > start:
            tip = f"inputs of {name} to {m.unit}: {duration(moved - start)} measured"
            bars.append(Bar(start, moved, m.job, "", tip, "moved", item))
        kind: Kind = "ran" if outcome == "done" else "checked" if outcome == "checked" else "wrong"
        tip = f"{name} on {m.unit}: {duration(finish - moved)} measured, from {duration(moved)} on"
        if task is not None and m.unit in task.seconds:
            tip += f", {duration(task.seconds[m.unit])} estimated"
        tip += "" if outcome == "done" else f" ({outcome})"
        bars.append(Bar(moved, finish, m.job, name if kind == "ran" else f"{name}: {outcome}", tip, kind, item))
    return _sorted(lanes, work)


def _row(lanes: dict[tuple[str, int], LaneRow], work: Work, unit: str, lane: int, measured: bool) -> LaneRow:
    name = unit if work.lanes_of(unit) == 1 and lane == 0 else f"{unit} {lane}"
    return lanes.setdefault((unit, lane), LaneRow(name, unit, measured))


def _sorted(lanes: dict[tuple[str, int], LaneRow], work: Work) -> list[LaneRow]:
    place = {unit: k for k, unit in enumerate(work.units)}
    return [lanes[key] for key in sorted(lanes, key=lambda key: (place.get(key[0], len(place)), key))]
