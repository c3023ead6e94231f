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


def inputs_shown(work: Work, schedule: Schedule, items: int | None) -> tuple[Schedule, int]:
    """As many inputs of a stream as show how it flows, or as are asked for; and how many those are."""
    if items is None:
        streams = schedule.objective == "throughput" and schedule.inflight > 1
        room = max(1, _MOST_BARS // max(1, len(schedule.slots)))
        items = min(schedule.inflight + 2, MOST_ITEMS, room) if streams else 1
    return (schedule if items == 1 else schedule.unrolled(work, items)), items


def schedule_rows(work: Work, schedule: Schedule) -> list[LaneRow]:
    lanes: dict[tuple[str, int], LaneRow] = {}
    for s in schedule.slots:
        name = work.tasks[s.task].name
        energy = work.tasks[s.task].joules.get(s.unit)
        tip = f"{name} on {s.unit}: {duration(s.finish - s.start)} estimated, from {duration(s.start)} on"
        tip += f", {energy:.3g} J" if energy is not None else ""
        row = lanes.setdefault((s.unit, s.lane), LaneRow(_lane(work, s.unit, s.lane), s.unit))
        row.bars.append(Bar(s.start, s.finish, s.task, name, tip, "task", s.item))
    links: dict[str, LaneRow] = {}
    for t in schedule.transfers:
        if t.finish == t.start:
            continue  # takes no time, so there is nothing to see
        device = t.to_unit if t.from_unit == HOST else t.from_unit
        link = work.link_of(device)
        what = f"argument {t.value}" if t.source == CALLER else f"{work.tasks[t.source].name} (value {t.value})"
        tip = f"{what}, {_size(t.nbytes)} from {t.from_unit} to {t.to_unit}: {duration(t.finish - t.start)} estimated"
        name = f"{UP if t.to_unit == HOST else DOWN} {_size(t.nbytes)}"
        row = links.setdefault(link, LaneRow(f"{link} link", ""))
        row.bars.append(Bar(t.start, t.finish, max(t.source, 0), name, tip, "transfer", t.item))
    memories = [work.memory_of(u) for u in work.units]
    # Links in the order of the units behind them.
    order = dict.fromkeys(work.link_of(m) for m in memories)
    ordered = sorted(lanes, key=lambda key: _place(work, *key))
    return [*(lanes[key] for key in ordered), *(links[link] for link in order if link in links)]


def measured_rows(work: Work, measured: Sequence[Measured]) -> list[LaneRow]:
    """Rows of what was measured, from the first start on."""
    lanes: dict[tuple[str, int], LaneRow] = {}
    zero = min((m.start for m in measured), default=0.0)
    for m in measured:
        outcome, item = str(getattr(m, "outcome", "done")), int(getattr(m, "item", 0))
        start, moved, finish = m.start - zero, float(getattr(m, "moved", m.start)) - zero, m.finish - zero
        name = work.tasks[m.job].name if m.job < len(work.tasks) else str(m.job)
        row = lanes.setdefault((m.unit, m.lane), LaneRow(_lane(work, m.unit, m.lane), m.unit, measured=True))
        if moved > start:
            tip = f"inputs of {name} to {m.unit}: {duration(moved - start)} measured"
            row.bars.append(Bar(start, moved, m.job, "", tip, "moved", item))
        kind: Kind = "ran" if outcome == "done" else "checked" if outcome == "checked" else "wrong"
        tip = f"{name} on {m.unit}: {duration(finish - moved)} measured, from {duration(moved)} on"
        expected = work.tasks[m.job].seconds.get(m.unit) if m.job < len(work.tasks) else None
        tip += f", {duration(expected)} estimated" if expected is not None else ""
        tip += "" if outcome == "done" else f" ({outcome})"
        row.bars.append(Bar(moved, finish, m.job, name if kind == "ran" else f"{name}: {outcome}", tip, kind, item))
    return [lanes[key] for key in sorted(lanes, key=lambda key: _place(work, *key))]


def _lane(work: Work, unit: str, lane: int) -> str:
    return unit if work.lanes_of(unit) == 1 and lane == 0 else f"{unit} {lane}"


def _place(work: Work, unit: str, lane: int) -> tuple[int, str, int]:
    return (work.units.index(unit) if unit in work.units else len(work.units)), unit, lane


def interleaved(estimated: Sequence[LaneRow], ran: Sequence[LaneRow]) -> list[LaneRow]:
    """Rows of one picture: what was measured under what was estimated of the same lane, links last."""
    found: list[LaneRow] = []
    left = {r.name: r for r in ran}
    lanes = [r for r in estimated if r.unit]
    for row in lanes:
        found.append(row)
        if row.name in left:
            found.append(left.pop(row.name))
    return [*found, *left.values(), *(r for r in estimated if not r.unit)]


def differ(estimated: Sequence[LaneRow], ran: Sequence[LaneRow]) -> bool:
    one, other = max((r.span for r in estimated), default=0.0), max((r.span for r in ran), default=0.0)
    return bool(one and other) and not 1 / _APART <= one / other <= _APART
