"""Who does what when: GPipe and 1F1B over stages and micro-batches, their timeline, bubble and memory in flight.

Sources: Huang et al., GPipe (arXiv:1811.06965); Narayanan et al., PipeDream (arXiv:1806.03377) for one forward, one
backward. Knows stages by their times only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Literal, final

from nxjax.errors import ParameterError

Kind = Literal["gpipe", "1f1b"]
Direction = Literal["forward", "backward"]
KINDS: Final[tuple[Kind, ...]] = ("gpipe", "1f1b")


@final
@dataclass(frozen=True)
class StageTask:
    """One direction of one stage for one micro-batch."""

    stage: int
    micro: int
    direction: Direction


@final
@dataclass(frozen=True)
class StageSlot:
    """A task with its begin and end, in the unit of the times that were given."""

    task: StageTask
    begin: float
    end: float


@final
@dataclass(frozen=True)
class Timeline:
    """A schedule with times.

    Attributes:
        slots: per stage, in order.
        span: from the first begin to the last end.
    """

    slots: tuple[tuple[StageSlot, ...], ...]

    @property
    def span(self) -> float:
        return max((s.end for row in self.slots for s in row), default=0.0)

    @property
    def busy(self) -> float:
        return sum(s.end - s.begin for row in self.slots for s in row)

    @property
    def bubble(self) -> float:
        """The share of all stages' time in which they wait."""
        whole = self.span * len(self.slots)
        return 1 - self.busy / whole if whole else 0.0

    def in_flight(self, stage: int) -> int:
        """The most micro-batches of which a stage holds the forward's results at one time."""
        held = most = 0
        for s in self.slots[stage]:
            held += 1 if s.task.direction == "forward" else -1
            most = max(most, held)
        return most

    def svg(self, width: int = 900, row: int = 28) -> str:
        """The timeline drawn: a row per stage, forward in blue, backward in green, the micro-batch's number inside."""
        scale = (width - 90) / (self.span or 1)
        height = row * len(self.slots) + 24
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
            'font-family="sans-serif" font-size="11">'
        ]
        for k, slots in enumerate(self.slots):
            y = k * row
            parts.append(f'<text x="4" y="{y + row * 0.65:.0f}">stage {k}</text>')
            for s in slots:
                colour = "#7aa6d8" if s.task.direction == "forward" else "#7fc492"
                x, w = 80 + s.begin * scale, max((s.end - s.begin) * scale, 0.5)
                title = escape(f"{s.task.direction} of micro-batch {s.task.micro}: {s.begin:.0f} to {s.end:.0f}")
                parts.append(
                    f'<rect x="{x:.1f}" y="{y + 2}" width="{w:.1f}" height="{row - 4}" fill="{colour}" '
                    f'stroke="#fff"><title>{title}</title></rect>'
                )
                if w > 12:
                    parts.append(f'<text x="{x + w / 2 - 3:.1f}" y="{y + row * 0.65:.0f}">{s.task.micro}</text>')
        bubble = f"bubble {self.bubble:.1%} of {len(self.slots)} stages"
        parts.append(f'<text x="80" y="{height - 6}">{bubble}</text></svg>')
        return "".join(parts)


def order(kind: Kind, stages: int, micros: int, backward: bool = True) -> list[list[StageTask]]:
    """Each stage's tasks, in the order in which it does them.

    Args:
        kind: "gpipe": all forwards, then all backwards; "1f1b": after a warm-up, one forward and one backward in turn,
            so that stage s holds at most ``stages - s`` micro-batches.
        stages, micros: how many; at least 1.
        backward: False for inference, where every schedule is the same.

    Raises:
        ParameterError: unknown kind, or no stages or micro-batches.

    >>> [f"{t.direction[0]}{t.micro}" for t in order("1f1b", 2, 3)[0]]
    ['f0', 'f1', 'b0', 'f2', 'b1', 'b2']
    """
    if kind not in KINDS:
        raise ParameterError("pipeline: no such schedule", got=repr(kind), expected=", ".join(KINDS))
    if stages < 1 or micros < 1:
        raise ParameterError("pipeline: needs stages and micro-batches", got=f"{stages} stages, {micros} micro-batches")
    found: list[list[StageTask]] = []
    for s in range(stages):
        forwards = [StageTask(s, m, "forward") for m in range(micros)]
        backwards = [StageTask(s, m, "backward") for m in range(micros)] if backward else []
        if kind == "gpipe" or not backward:
            found.append(forwards + backwards)
            continue
        ahead = min(stages - s, micros)
        tasks = forwards[:ahead]
        for m in range(micros):
            tasks.append(backwards[m])
            tasks += forwards[ahead + m : ahead + m + 1]
        found.append(tasks)
    return found


def timed(
    tasks: Sequence[Sequence[StageTask]],
    forward: Sequence[float],
    backward: Sequence[float],
    transfer: Sequence[float] = (),
) -> Timeline:
    """When each task runs, if it begins as soon as its stage is free and what it needs is there.

    Args:
        tasks: per stage, as `order` gives.
        forward, backward: the time of one task of each stage.
        transfer: the time from stage s to s + 1, and back; zero where left out.
    """
    stages = len(tasks)
    moves = list(transfer) or [0.0] * max(stages - 1, 0)
    ended: dict[StageTask, float] = {}
    free = [0.0] * stages
    at = [0] * stages
    rows: list[list[StageSlot]] = [[] for _ in range(stages)]
    left = sum(map(len, tasks))
    while left:
        moved = False
        for s in range(stages):
            while at[s] < len(tasks[s]):
                task = tasks[s][at[s]]
                ready = _ready(task, ended, moves, stages)
                if ready is None:
                    break
                begin = max(free[s], ready)
                end = begin + (forward if task.direction == "forward" else backward)[s]
                rows[s].append(StageSlot(task, begin, end))
                ended[task] = free[s] = end
                at[s] += 1
                left -= 1
                moved = True
        if not moved:
            raise ParameterError(
                "pipeline: the schedule waits for itself",
                got=[t[i] for t, i in zip(tasks, at, strict=True) if i < len(t)],
            )
    return Timeline(tuple(map(tuple, rows)))


def _ready(task: StageTask, ended: dict[StageTask, float], moves: Sequence[float], stages: int) -> float | None:
    """When everything that a task needs is with its stage; None while something has not been computed."""
    s, m = task.stage, task.micro
    needs: list[tuple[StageTask, float]] = []
    if task.direction == "forward":
        if s:
            needs.append((StageTask(s - 1, m, "forward"), moves[s - 1]))
    else:
        needs.append((StageTask(s, m, "forward"), 0.0))
        if s + 1 < stages:
            needs.append((StageTask(s + 1, m, "backward"), moves[s]))
    if any(t not in ended for t, _ in needs):
        return None
    return max((ended[t] + move for t, move in needs), default=0.0)
