"""Cycles of a program: of each step what its slowest tile takes, what the exchange takes, and how often it runs.

A model: vertices' cycles are their codelets' estimates, phases follow one another, and all tiles wait for the slowest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final, final

import numpy as np

from nxjax.backends.ipu.exchange import Exchange, ExchangeCycles, Traffic
from nxjax.errors import Source
from nxjax.kernels.ipu.chip import IpuChip, IpuSystem
from nxjax.lower.ipu.program import (
    Call,
    Copy,
    Execute,
    Group,
    IpuProgram,
    NDArray,
    Repeat,
    Step,
    Switch,
    While,
)

# Estimates of this model, in cycles of a tile: the supervisor's branch at the end of a loop's round; a call and its
# return; and for a decision that all tiles take alike, the read of the one value that has been sent to them.
LOOP_CYCLES: Final = 20
CALL_CYCLES: Final = 20
DECISION_CYCLES: Final = 40
_NO_EXCHANGE: Final = ExchangeCycles(0, 0, 0, 0)


@final
@dataclass(frozen=True, eq=False)
class StepCycles:
    """One run of one step.

    Attributes:
        step: which.
        name, source, scope: of it.
        compute: cycles of the slowest tile.
        least: of the fastest that has a vertex.
        mean: over all tiles, idle ones included.
        active: tiles that have a vertex.
        exchange: before it.
        control: of loops and branches.
        flops: floating-point operations.
        vertices: how many.
        moved: bytes received by tiles.
    """

    step: Step
    name: str
    source: Source | None
    scope: str
    compute: int
    least: int
    mean: float
    active: int
    exchange: ExchangeCycles
    control: int
    flops: int
    vertices: int
    moved: int

    @property
    def total(self) -> int:
        return self.compute + self.exchange.total + self.control


def vertex_cycles(g: Group, chip: IpuChip) -> NDArray:
    """Cycles of each vertex of a group: int64 [n]."""
    return _each(g, lambda attributes: g.codelet.cycles(g.sizes(), attributes, chip))


def vertex_flops(g: Group) -> int:
    """Floating-point operations of all vertices of a group."""
    return int(_each(g, lambda attributes: g.codelet.flops(g.sizes(), attributes)).sum())


def _each(g: Group, figure: Callable[[Mapping[str, Any]], int]) -> NDArray:
    """A figure that depends on a vertex's attributes: asked once for equal ones."""
    n = len(g.tiles)
    varying = {k: np.asarray(v) for k, v in g.attributes.items() if np.ndim(v)}
    if not varying:
        return np.full(n, figure(g.attributes), np.int64)
    columns = np.stack([v.astype(np.float64) for v in varying.values()], 1)
    rows, first, inverse = np.unique(columns, axis=0, return_index=True, return_inverse=True)
    found = np.empty(len(rows), np.int64)
    for i, at in enumerate(first.tolist()):
        found[i] = figure({**g.attributes, **{k: v[at] for k, v in varying.items()}})
    return found[inverse.reshape(-1)]


def tile_cycles(step: Execute, chip: IpuChip, tiles: int) -> NDArray:
    """Cycles that each tile is busy with a compute set: int64 [tiles].

    Vertices that use all workers, or the supervisor, run one after the other. Vertices of one worker are dealt to the
    workers, the longest first, each to the least busy one; as every worker gets each sixth cycle, the tile is done when
    its busiest worker is.
    """
    busy = np.zeros(tiles, np.int64)
    alone: list[tuple[int, NDArray]] = []
    for g in step.groups:
        cycles = vertex_cycles(g, chip)
        if g.codelet.kind != "worker":
            np.add.at(busy, g.tiles, cycles)
        else:
            for c in np.unique(cycles).tolist():
                alone.append((c, np.bincount(g.tiles[cycles == c], minlength=tiles)))
    if not alone:
        return busy
    used = np.flatnonzero(sum(many for _, many in alone))
    loads = np.zeros((len(used), chip.workers), np.int64)
    for c, many in sorted(alone, key=lambda pair: -pair[0]):
        loads.sort(axis=1)
        left = many[used]
        while c and (uneven := np.flatnonzero((loads[:, -1] - loads[:, 0] > c) & (left > 0))).size:
            # The least busy worker catches up with the next one.
            gap = (loads[uneven, 1] - loads[uneven, 0]) // c
            more = np.minimum(np.maximum(gap, 1), left[uneven])
            loads[uneven, 0] += more * c
            left[uneven] -= more
            loads.sort(axis=1)
        rounds, rest = np.divmod(left, chip.workers)
        loads += rounds[:, None] * c
        loads += (np.arange(chip.workers) < rest[:, None]) * c
    busy[used] += loads.max(axis=1)
    return busy


def named(s: StepCycles, step: Step) -> StepCycles:
    """The cycles of one step as those of another that is like it."""
    source: Source | None = getattr(step, "source", None)
    return replace(s, step=step, name=step_name(step), source=source, scope=getattr(step, "scope", ""))


def step_name(step: Step) -> str:
    """What a report calls a step."""
    return getattr(step, "name", "") or type(step).__name__.lower()


def step_cycles(step: Step, exchange: Exchange, t: Traffic | None) -> StepCycles:
    """What one run of one step takes, given what it moves; bodies of loops are steps of their own."""
    chip = exchange.system.chip
    source: Source | None = getattr(step, "source", None)
    scope: str = getattr(step, "scope", "")
    name = step_name(step)
    if isinstance(step, Execute) and t is not None:
        busy = tile_cycles(step, chip, exchange.tiles)
        some = busy[busy > 0]
        return StepCycles(
            step, name, source, scope, int(busy.max()), int(some.min()) if len(some) else 0, float(busy.mean()),
            len(some), exchange.cycles(t), 0, sum(map(vertex_flops, step.groups)),
            sum(len(g.tiles) for g in step.groups), t.total,
        )  # fmt: skip
    if isinstance(step, Copy) and t is not None:
        return StepCycles(step, name, source, scope, 0, 0, 0.0, 0, exchange.cycles(t), 0, 0, 0, t.total)
    if isinstance(step, (While, Switch)):
        # The value is sent to all tiles: one word in one phase.
        sent = ExchangeCycles(0, chip.sync_cycles, 1, 0)
        return StepCycles(
            step, name, source, scope, 0, 0, 0.0, 0, sent, DECISION_CYCLES, 0, 0, 4 * (exchange.tiles - 1)
        )
    control = LOOP_CYCLES if isinstance(step, Repeat) else CALL_CYCLES if isinstance(step, Call) else 0
    return StepCycles(step, name, source, scope, 0, 0, 0.0, 0, _NO_EXCHANGE, control, 0, 0, 0)


@final
@dataclass(frozen=True, eq=False)
class LineCycles:
    """Steps of one line of the user's program, or of one op, together.

    Attributes:
        name, scope, source: what they come from.
        runs: how many steps were run.
        cycles: in all; compute, exchange (with sync and copies) and control are parts of it.
        flops: floating-point operations.
    """

    name: str
    scope: str
    source: Source | None
    runs: int
    cycles: int
    compute: int
    exchange: int
    control: int
    flops: int


@final
@dataclass(eq=False)
class CycleCount:
    """Cycles of one run of a program.

    Attributes:
        program: which.
        steps: every step that ran, with how often, in program order.
        compute, copying, sync, exchange, links, control: cycles of all steps; they follow one another.
        host: cycles of streaming inputs in and outputs out.
        mean: cycles that a tile computes, on average.
        flops: floating-point operations.
        measured: whether all loops and branches are known, or were counted in a run; else loops of unknown length are
            assumed to go round once, and the longest branch to be taken.
    """

    program: IpuProgram
    steps: list[tuple[StepCycles, int]]
    compute: int
    copying: int
    sync: int
    exchange: int
    links: int
    control: int
    host: int
    mean: float
    flops: int
    measured: bool
    _busy: NDArray | None = field(default=None, repr=False)

    @property
    def system(self) -> IpuSystem:
        return self.program.system

    @property
    def device(self) -> int:
        """Cycles on the chip, without streams to the host."""
        return self.compute + self.copying + self.sync + self.exchange + self.links + self.control

    @property
    def total(self) -> int:
        return self.device + self.host

    @property
    def seconds(self) -> float:
        """At the chip's clock, streams to the host included."""
        return self.total / self.system.chip.clock

    @property
    def utilization(self) -> float:
        """Share of time in which a tile computes, on average over tiles, 0 to 1."""
        return self.mean / self.device if self.device else 0.0

    @property
    def balance(self) -> float:
        """Mean over slowest tile in compute sets, 0 to 1."""
        return self.mean / self.compute if self.compute else 0.0

    def share_of_peak(self, macs: int = 16) -> float:
        """Floating-point operations over what all tiles could do with so many multiply-adds a cycle each, 0 to 1."""
        chips = self.system.chip.tiles * self.system.ipus
        return self.flops / (2 * macs * chips * self.device) if self.device else 0.0

    @property
    def busy(self) -> NDArray:
        """Cycles that each tile computes, int64 [tiles]."""
        if self._busy is None:
            chip, tiles = self.system.chip, self.system.chip.tiles * self.system.ipus
            found = np.zeros(tiles, np.int64)
            for s, times in self.steps:
                if isinstance(s.step, Execute):
                    found += tile_cycles(s.step, chip, tiles) * times
            self._busy = found
        return self._busy

    def rows(self, by: str = "line") -> list[LineCycles]:
        """Steps put together by "line" of the user's program, "op" or "scope", the most expensive first."""
        keys: dict[Any, list[tuple[StepCycles, int]]] = {}
        for s, times in self.steps:
            at = (s.source.file, s.source.line) if s.source is not None else None
            key = {"line": (at, s.scope, s.name), "op": s.name, "scope": s.scope}[by]
            keys.setdefault(key, []).append((s, times))
        found: list[LineCycles] = []
        for group in keys.values():
            s = group[0][0]
            add = partial(_summed, group)
            found.append(
                LineCycles(
                    s.name if by != "scope" else "",
                    s.scope if by != "op" else "",
                    s.source if by == "line" else None,
                    sum(n for _, n in group),
                    add(lambda x: x.total),
                    add(lambda x: x.compute),
                    add(lambda x: x.exchange.total),
                    add(lambda x: x.control),
                    add(lambda x: x.flops),
                )
            )
        return sorted(found, key=lambda r: -r.cycles)

    def lines(self, most: int = 12) -> list[str]:
        """What a report says of it."""
        chip = self.system.chip
        found = [
            f"cycles (model): {self.total:,} = {self.seconds * 1e6:,.1f} us at {chip.clock / 1e9:g} GHz"
            + ("" if self.measured else "; loops of unknown length counted once")
        ]
        parts = ("compute", "exchange", "sync", "copying", "links", "control", "host")
        found += [
            f"  {p:<10} {getattr(self, p):>14,} {getattr(self, p) / max(self.total, 1):>7.1%}"
            for p in parts
            if getattr(self, p)
        ]
        found.append(
            f"  tiles compute {self.utilization:.1%} of the time; mean over slowest tile {self.balance:.1%}; "
            f"{self.flops:,} flop"
        )
        rows = self.rows()
        cells = [("cycles", "compute", "exchange", "runs", "op", "your line")]
        for r in rows[:most]:
            op = f"{r.scope}/{r.name}" if r.scope else r.name
            at = f"{r.source}" if r.source else ""
            cells.append((f"{r.cycles:,}", f"{r.compute:,}", f"{r.exchange:,}", f"{r.runs:,}", op[:40], at))
        widths = [max(len(c[i]) for c in cells) for i in range(5)]
        for c in cells:
            left = [x.rjust(w) for x, w in zip(c[:4], widths, strict=False)]
            found.append("  " + "  ".join([*left, c[4].ljust(widths[4]), c[5]]).rstrip())
        if len(rows) > most:
            found.append(f"  and {len(rows) - most} more: {sum(r.cycles for r in rows[most:]):,} cycles")
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        names = ("total", "compute", "exchange", "sync", "copying", "links", "control", "host", "flops", "seconds",
                 "utilization", "balance", "measured")  # fmt: skip
        return {
            **{n: getattr(self, n) for n in names},
            "rows": [
                {"op": r.name, "scope": r.scope, "at": str(r.source) if r.source else None, "runs": r.runs,
                 "cycles": r.cycles, "compute": r.compute, "exchange": r.exchange, "flops": r.flops}
                for r in self.rows()
            ],
        }  # fmt: skip

    def __str__(self) -> str:
        return "\n".join(self.lines())


def _summed(group: Sequence[tuple[StepCycles, int]], figure: Callable[[StepCycles], int]) -> int:
    return sum(figure(s) * times for s, times in group)


def host_cycles(program: IpuProgram) -> int:
    """Streams between the host and the IPUs: inputs in, then outputs out, at the bandwidth of each IPU's own link.

    What stays on the chip between runs is not streamed.
    """
    chip, ipus = program.system.chip, program.system.ipus
    kept = set(program.aliases.values())
    bytes_in = sum(v.nbytes for i, v in enumerate(program.inputs) if i not in kept and v.role != "state")
    bytes_out = sum(v.nbytes for i, v in enumerate(program.outputs) if i not in program.aliases)
    return int(np.ceil((bytes_in + bytes_out) * chip.clock / (chip.host_bandwidth * ipus)))


def count(
    program: IpuProgram, cost: Callable[[Step], StepCycles], counts: Mapping[int, int] | None = None
) -> CycleCount:
    """Cycles of a run.

    Args:
        program: which.
        cost: of each step.
        counts: how often each body ran, by its identity (`IpuEngine.counts`); None assumes that loops of unknown length
            run once and branches take the longest way.
    """
    known = counts if counts is not None else _assumed(program, cost)
    steps = [(cost(s), n) for s, n in _weighted(program, known) if n]
    total = lambda f: sum(f(s) * n for s, n in steps)
    return CycleCount(
        program,
        steps,
        total(lambda s: s.compute),
        total(lambda s: s.exchange.copying),
        total(lambda s: s.exchange.sync),
        total(lambda s: s.exchange.exchange),
        total(lambda s: s.exchange.links),
        total(lambda s: s.control),
        host_cycles(program),
        float(total(lambda s: s.mean)),
        total(lambda s: s.flops),
        counts is not None or not any(_open(s) for s in program.walk()),
    )


def _open(step: Step) -> bool:
    """Whether only a run shows how often a step's bodies run."""
    return isinstance(step, Switch) or (isinstance(step, While) and step.turns is None)


def _weighted(program: IpuProgram, counts: Mapping[int, int]) -> Iterator[tuple[Step, int]]:
    """Every step with how often it ran; a `Repeat` counts its rounds."""

    def walk(steps: tuple[Step, ...]) -> Iterator[tuple[Step, int]]:
        times = counts.get(id(steps), 0)
        for step in steps:
            match step:
                case Repeat(body=body):
                    yield step, counts.get(id(body), 0)
                    yield from walk(body)
                case While(condition=condition, body=body):
                    yield from walk(condition)
                    yield step, counts.get(id(condition), 0)
                    yield from walk(body)
                case Switch(branches=branches):
                    yield step, times
                    for b in branches:
                        yield from walk(b)
                case _:
                    yield step, times

    yield from walk(program.steps)
    for steps in program.functions.values():
        yield from walk(steps)


def _assumed(program: IpuProgram, cost: Callable[[Step], StepCycles]) -> dict[int, int]:
    counts: dict[int, int] = {}
    costs: dict[int, int] = {}

    def length(steps: Sequence[Step]) -> int:
        """Cycles of a body, to choose between branches."""
        found = costs.get(id(steps))
        if found is None:
            found = 0
            for step in steps:
                found += cost(step).total
                match step:
                    case Repeat(count=n, body=body):
                        found += n * length(body)
                    case While(condition=condition, body=body):
                        n = 1 if step.turns is None else step.turns
                        found += (n + 1) * length(condition) + n * length(body)
                    case Switch(branches=branches):
                        found += max(map(length, branches))
                    case Call(function=name):
                        found += length(program.functions[name])
                    case _:
                        pass
            costs[id(steps)] = found
        return found

    def run(steps: tuple[Step, ...], times: int) -> None:
        counts[id(steps)] = counts.get(id(steps), 0) + times
        for step in steps:
            match step:
                case Repeat(count=n, body=body):
                    run(body, times * n)
                case While(condition=condition, body=body):
                    n = 1 if step.turns is None else step.turns
                    run(condition, (n + 1) * times)
                    run(body, n * times)
                case Switch(branches=branches):
                    longest = max(range(len(branches)), key=lambda i: length(branches[i]))
                    for i, b in enumerate(branches):
                        run(b, times if i == longest else 0)
                case Call(function=name):
                    run(program.functions[name], times)
                case _:
                    pass

    run(program.steps, 1)
    return counts
