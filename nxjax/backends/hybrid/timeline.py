"""A schedule as text and as a picture: a row per lane and per link, what was measured beside what was estimated.

Draws; decides and measures nothing. SVG without scripts, files or ids, in the colours of the page around it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, final

from nxjax.backends.hybrid.schedule import CALLER, HOST, Schedule, Work
from nxjax.display.columns import columns
from nxjax.display.page import escape


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


_COLOURS: Final = ("#3a7ca5", "#e08e2b", "#2a9d8f", "#8a63c9", "#b8860b", "#5b8c5a")
_GREY: Final = "#7d8597"
_RED: Final = "#d1495b"
_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


# --- text ---


def text(
    work: Work,
    schedule: Schedule,
    measured: Sequence[Measured] = (),
    *,
    width: int = 64,
    items: int | None = None,
) -> str:
    """The schedule as a table and as bars of characters, for a terminal.

    Args:
        work: of the schedule.
        measured: measured spans, if any.
        width: characters of the bars.
        items: inputs of a stream to show; by default enough to show the pattern.

    >>> from nxjax.backends.hybrid.choose import choose
    >>> from nxjax.backends.hybrid.schedule import CALLER, HOST, Edge, Task
    >>> work = Work((Task("conv", {"npu": 1.0, "cpu": 4.0}, after=(Edge(CALLER, 8),)),
    ...              Task("sort", {"cpu": 0.5}, after=(Edge(0, 8),))),
    ...             ("npu", "cpu"), lambda a, b, nbytes: 0.25, results=(Edge(1, 8),), memory={"cpu": HOST})
    >>> print(text(work, choose(work), width=16))
    latency: 2 s from call to result (chain, no schedule is better)
         task  unit   start  estimate
      0  conv  npu   250 ms       1 s
      1  sort  cpu    1.5 s    500 ms
    estimate: 0 to 2 s
      npu      |..00000000......|
      cpu      |............1111|
      npu link |>>........<<....|
    """
    shown, count = panels(work, schedule, measured, items)
    lines = [summary(schedule, measured), *_table(work, schedule, measured)]
    lines += [f"note: {note}" for note in schedule.notes]
    for title, rows in shown:
        span = max((r.span for r in rows), default=0.0)
        mixed = any(r.measured for r in rows) and not all(r.measured for r in rows)
        said = "measured" if title == "measured" else "estimate (=) and measured (~)" if mixed else "estimate"
        what = f", {count} inputs" if count > 1 and title != "measured" else ""
        lines.append(f"{said}: 0 to {duration(span)}{what}")
        wide = max((len(r.name) for r in rows), default=0)
        for r in rows:
            mark = "" if not mixed else "~" if r.measured else "=" if r.unit else " "
            lines.append(f"  {r.name:<{wide}} {mark}|{_characters(r, span, width, count > 1)}|")
    return "\n".join(lines)


def _characters(row: LaneRow, span: float, width: int, items: bool) -> str:
    cells = ["."] * width
    for b in row.bars:
        if b.finish <= b.start or span <= 0:
            continue
        first = min(width - 1, round(b.start / span * width))
        last = max(first + 1, round(b.finish / span * width))
        if b.kind == "transfer":
            sign = "<" if b.name.startswith(UP) else ">"
        else:
            letter = _LETTERS[(b.item if items else b.number) % len(_LETTERS)]
            sign = {"moved": ">", "wrong": "!", "checked": "?"}.get(b.kind, letter)
        cells[first:last] = sign * (min(last, width) - first)
    return "".join(cells)


def _table(work: Work, schedule: Schedule, measured: Sequence[Measured]) -> list[str]:
    took: dict[int, list[float]] = {}
    where: dict[int, list[str]] = {}
    for m in measured:
        if getattr(m, "outcome", "done") == "done":
            took.setdefault(m.job, []).append(m.finish - float(getattr(m, "moved", m.start)))
            where.setdefault(m.job, []).append(m.unit)
    head = ("", "task", "unit", "start", "estimate", *(("measured",) if measured else ()))
    rows: list[tuple[str, ...]] = [head]
    for s in schedule.slots:
        times = duration(s.start), duration(s.finish - s.start)
        row = (_LETTERS[s.task % len(_LETTERS)], work.tasks[s.task].name, s.unit, *times)
        if measured:
            found = took.get(s.task)
            other = ", ".join(dict.fromkeys(u for u in where.get(s.task, ()) if u != s.unit))
            mean = duration(sum(found) / len(found)) if found else "did not end"
            row = (*row, f"{mean} on {other}" if other else mean)
        rows.append(row)
    return columns(rows, right=(3, 4), indent="  ")


# --- picture ---

_TALL: Final = 28.0  # a lane
_LOW: Final = 20.0  # a link, or what was measured
_GAP: Final = 9.0
_TOP: Final = 30.0
_AXIS: Final = 26.0
_CHARACTER: Final = 6.3  # width of one at 10.5 px
_STYLE: Final = (
    "<style>.nxt text{font-family:ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:currentColor}"
    ".nxt .h{font-size:12px;font-weight:600}.nxt .u{font-size:12px;font-weight:600;text-anchor:end}"
    ".nxt .m{font-size:10px;opacity:.7;text-anchor:end}.nxt .b{font-size:10.5px;pointer-events:none}"
    ".nxt .a{font-size:10.5px;opacity:.75;text-anchor:middle}.nxt .l{font-size:10.5px;opacity:.85}"
    ".nxt .g{stroke:currentColor;stroke-opacity:.13}.nxt .z{stroke:currentColor;stroke-opacity:.45}"
    ".nxt .i{stroke:currentColor;stroke-opacity:.5;stroke-dasharray:3 3}"
    ".nxt .s{fill:currentColor;fill-opacity:.045}</style>"
)
# A file of its own has no page to take its colours from.
_ALONE: Final = "<style>.nxt{color:#1f2328}@media (prefers-color-scheme:dark){.nxt{color:#e6edf3}}</style>"
# What a bar means, the opacity of its fill, and how its edge is drawn.
_LOOKS: Final[Mapping[Kind, tuple[str, float, str]]] = {
    "task": ("estimate", 0.30, ""),
    "ran": ("measured", 0.62, ""),
    "transfer": ("transfer", 0.30, ""),
    "moved": ("moving inputs", 0.25, ' stroke-dasharray="2 2"'),
    "checked": ("checking another unit", 0.10, ' stroke-dasharray="4 2"'),
    "wrong": ("failed, late or given up", 0.25, ' stroke-dasharray="4 2"'),
}


def svg(
    work: Work,
    schedule: Schedule,
    measured: Sequence[Measured] = (),
    *,
    width: int = 960,
    items: int | None = None,
    alone: bool = False,
) -> str:
    """The schedule as one ``<svg>``: a row per lane and per link, with measured spans under each lane.

    If measured and estimated spans differ by more than a factor of three, each has its own time axis. Hover over a bar
    to see the task, its time and its energy.

    Args:
        work: of the schedule.
        measured: measured spans, if any.
        width: in pixels; the height follows from the rows.
        items: inputs of a stream to show; by default enough to show the pattern.
        alone: for a separate file, without a page's colours.
    """
    shown, count = panels(work, schedule, measured, items)
    picture = _Picture(work, schedule, shown, count, float(width))
    head = _fitted(summary(schedule, measured), (width - 16) / 7.4)
    picture.out.append(f'<text class="h" x="8" y="18">{escape(head)}</text>')
    for title, rows in shown:
        picture.panel(title, rows)
    picture.legend()
    high = f"{picture.y:.0f}"
    size = f'width="{width}" height="{high}" viewBox="0 0 {width} {high}" style="max-width:100%;height:auto"'
    tip = f"<title>{escape(summary(schedule, measured))}</title>"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="nxt" {size} role="img">{tip}{_ALONE if alone else ""}{_STYLE}'
        f"{''.join(picture.out)}</svg>"
    )


@final
class _Picture:
    """What is drawn, from the top down to ``y``."""

    def __init__(self, work: Work, schedule: Schedule, shown: Sequence[Panel], count: int, width: float) -> None:
        rows = [r for _, rows in shown for r in rows]
        self.work, self.schedule, self.count, self.width = work, schedule, count, width
        self.bars = [b for r in rows for b in r.bars]
        self.several = count > 1 or any(b.item for b in self.bars)
        self.left = max(60.0, 7.4 * max((len(r.name) for r in rows), default=0) + 22)
        self.out: list[str] = []
        self.y = _TOP

    def panel(self, title: str, rows: Sequence[LaneRow]) -> None:
        """Rows on one axis of time."""
        span = max((r.span for r in rows), default=0.0) or 1.0
        left, right, out = self.left, self.width - 16.0, self.out
        scale = (right - left) / span
        if title:
            out.append(f'<text class="l" x="8" y="{self.y + 12:.1f}">{title}</text>')
            self.y += 20
        top, drawn = self.y, list[str]()
        for k, r in enumerate(rows):
            follows = k > 0 and r.measured and rows[k - 1].name == r.name
            self.y += 2 if follows else _GAP if k else 0
            high = _LOW if follows or not r.unit else _TALL
            out.append(f'<rect class="s" x="{left:.1f}" y="{self.y:.1f}" width="{right - left:.1f}" height="{high}"/>')
            name, look = ("measured" if r.measured and high == _LOW else r.name), "m" if high == _LOW else "u"
            at = self.y + high / 2 + 4
            drawn.append(f'<text class="{look}" x="{left - 8:.1f}" y="{at:.1f}">{escape(name)}</text>')
            drawn += [self._bar(b, r, left + b.start * scale, (b.finish - b.start) * scale, high) for b in r.bars]
            self.y += high
        bottom = self.y + 4
        (unit, unit_name), ticks = _ticks(span)
        for t in ticks:
            x, last = left + t * scale, f" {unit_name}" if t == ticks[-1] else ""
            out.append(f'<path class="{"g" if t else "z"}" d="M{x:.1f} {top:.1f}V{bottom:.1f}"/>')
            out.append(f'<text class="a" x="{x:.1f}" y="{bottom + 13:.1f}">{t / unit:.6g}{last}</text>')
        for k in range(1, self.count if title != "measured" else 0):
            x = left + k * self.schedule.interval * scale
            out.append(f'<path class="i" d="M{x:.1f} {top - 3:.1f}V{bottom:.1f}"/>')
        out += drawn
        self.y = bottom + _AXIS

    def _bar(self, b: Bar, row: LaneRow, x: float, w: float, h: float) -> str:
        _, fill, edge = _LOOKS[b.kind]
        colour, w, y = self._colour(b, row), max(w, 0.8), self.y
        # An edge on a bar of a few pixels would be all there is of it.
        stroke, fill = (f' stroke="{colour}"{edge}', fill) if w > 3 else ("", max(fill, 0.7))
        if b.kind in ("transfer", "moved"):
            y, h = y + h * 0.15, h * 0.7
        label = _label(b, w)
        said = f'<text class="b" x="{x + 4:.1f}" y="{y + h / 2 + 3.7:.1f}">{escape(label)}</text>' if label else ""
        tip = b.tip + (f" (input {b.item})" if self.several else "")
        return (
            f'<g><title>{escape(tip)}</title><rect x="{x:.2f}" y="{y:.1f}" width="{w:.2f}" height="{h:.1f}" '
            f'rx="{min(3.0, w / 3):.1f}" fill="{colour}" fill-opacity="{fill}"{stroke}/>{said}</g>'
        )

    def _colour(self, b: Bar, row: LaneRow) -> str:
        if b.kind == "wrong":
            return _RED
        if not self.several and not row.unit:
            return _GREY
        units = self.work.units
        number = b.item if self.several else units.index(row.unit) if row.unit in units else len(units)
        return _COLOURS[number % len(_COLOURS)]

    def legend(self) -> None:
        """What the colours and looks mean, of those that occur."""
        kinds = {b.kind for b in self.bars}
        items = sorted({b.item for b in self.bars})[:MOST_ITEMS] if self.several else []
        entries: list[tuple[str, Kind, str]] = []
        for k in items:
            entries.append((_COLOURS[k % len(_COLOURS)], "task", f"input {k}"))
        if len(kinds) > 1 and (kinds - {"task", "transfer"} or not self.several):
            main = _GREY if self.several else _COLOURS[0]
            colours = {"transfer": _GREY, "wrong": _RED}
            for kind, (said, _, _) in _LOOKS.items():
                if kind in kinds:
                    entries.append((colours.get(kind, main), kind, said))
        if "transfer" in kinds:
            entries.append(("", "transfer", f"{UP} to the host's memory, {DOWN} from it"))
        x = self.left
        for colour, kind, what in entries:
            wide = 22 + _CHARACTER * len(what) + 16
            if x + wide > self.width and x > self.left:
                x, self.y = self.left, self.y + 18
            _, fill, edge = _LOOKS[kind]
            if colour:
                self.out.append(
                    f'<rect x="{x:.1f}" y="{self.y:.1f}" width="14" height="11" rx="2" fill="{colour}" '
                    f'fill-opacity="{fill}" stroke="{colour}"{edge}/>'
                )
            self.out.append(f'<text class="l" x="{x + (20 if colour else 0):.1f}" y="{self.y + 9.5:.1f}">{what}</text>')
            x += wide if colour else 0
        self.y += 22 if entries else 0


def _label(b: Bar, w: float) -> str:
    """As much of the name as the bar holds, else the task's number, else nothing; of a transfer, at least its way."""
    most = (w - 7) / _CHARACTER
    if len(b.name) <= most:
        return b.name
    if b.kind == "transfer":
        return b.name[0] if most >= 1 else ""
    number = str(b.number) if b.kind in ("task", "ran") else ""
    return _fitted(b.name, most) if most >= 5 else number if len(number) <= most else ""


def _fitted(name: str, most: float) -> str:
    return name if len(name) <= most else name[: max(0, int(most) - 1)] + "…"


def _ticks(span: float) -> tuple[tuple[float, str], list[float]]:
    """The axis's unit, and round times on it."""
    scale = time_scale(span)
    rough = span / 7
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * (1 - 1e-9))
    return scale, [k * step for k in range(int(span / step * (1 + 1e-9)) + 1)]
