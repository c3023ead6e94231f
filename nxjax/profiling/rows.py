"""The rows of a profile: one per kernel call, copy or host step of the program, with what it did and what it took.

Plain data and its tables; knows no executor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from nxjax.display import page
from nxjax.profiling.peaks import Peaks

_HEAD: Final = ("kernel", "calls", "time", "share", "GB/s", "GFLOP/s", "roofline", "where")


@final
@dataclass(slots=True)
class ProfileRow:
    """One step of the program.

    Attributes:
        name: the kernel's short name; ``host <op>`` for what ran by its NumPy meaning.
        key: all of the kernel's name.
        source: the user's line, ``""`` where there is none.
        scope: `nx.named_scope`s around it.
        calls: how often it ran (inside loops more than once).
        seconds: of all calls together, the best of the repeats. For an estimate: the least that the peaks allow.
        flops, read, written: operations and bytes of all calls together.
    """

    name: str
    key: str
    source: str
    scope: str
    calls: int = 0
    seconds: float = 0.0
    flops: float = 0.0
    read: float = 0.0
    written: float = 0.0

    @property
    def nbytes(self) -> float:
        return self.read + self.written

    @property
    def intensity(self) -> float:
        """Operations per byte."""
        return self.flops / self.nbytes if self.nbytes else 0.0

    def roofline(self, peaks: Peaks) -> float:
        """The least time that the machine's peaks allow, as a share of the time taken: 1 is the machine's limit."""
        return peaks.seconds(self.flops, self.nbytes) / self.seconds if self.seconds else 0.0

    def data(self, peaks: Peaks) -> dict[str, Any]:
        return {
            "name": self.name,
            "key": self.key,
            "source": self.source,
            "scope": self.scope,
            "calls": self.calls,
            "seconds": self.seconds,
            "flops": self.flops,
            "read": self.read,
            "written": self.written,
            "roofline": self.roofline(peaks),
        }


@final
@dataclass(slots=True)
class StepSpan:
    """One run of one step: when it began (seconds from the start of the run) and how long it took."""

    row: int
    start: float
    seconds: float


@final
@dataclass(slots=True)
class Profile:
    """What a run of a function took, kernel by kernel; or, ``measured`` False, what it takes at least.

    Attributes:
        name: the function's.
        rows: one per step, in program order.
        spans: every run of every step of the best repeat, in time order; empty for an estimate.
        seconds: the whole run, between the first step and the last; for an estimate the sum of the rows.
        arena: bytes of temporaries.
        arguments, results: bytes of each.
        peaks: the machine's ceilings.
        result: what the function gave; None for an estimate.
        notes: what a reader should know.
        open_loops: lines of loops whose number of turns is not known; an estimate counts each once.
    """

    name: str
    rows: list[ProfileRow]
    spans: list[StepSpan]
    seconds: float
    arena: int
    arguments: int
    results: int
    peaks: Peaks
    measured: bool
    result: Any = None
    notes: list[str] = field(default_factory=list[str])
    open_loops: list[str] = field(default_factory=list[str])

    @property
    def flops(self) -> float:
        """Operations of the whole run."""
        return sum(r.flops for r in self.rows)

    @property
    def bytes_accessed(self) -> float:
        """Bytes that kernels read and write."""
        return sum(r.nbytes for r in self.rows)

    @property
    def peak_bytes(self) -> int:
        """Arguments, results and temporaries together."""
        return self.arena + self.arguments + self.results

    def top(self, count: int = 10) -> list[ProfileRow]:
        """The rows that take longest."""
        return sorted(self.rows, key=lambda r: -r.seconds)[:count]

    def summary(self) -> str:
        """One line."""
        least = self.peaks.seconds(self.flops, self.bytes_accessed)
        what = f"{_time(self.seconds)}" if self.measured else f"at least {_time(self.seconds)}"
        return (
            f"{self.name}: {what}, {self.flops / 1e9:.3g} GFLOP, {self.bytes_accessed / 1e6:.3g} MB moved, "
            f"{self.peak_bytes / 1e6:.3g} MB of memory"
            + (f", {100 * least / self.seconds:.0f} % of the roofline" if self.measured and self.seconds else "")
        )

    def table(self, count: int = 20) -> str:
        """The dearest rows as text."""
        lines = [_HEAD, *(self._cells(r) for r in self.top(count))]
        widths = [max(len(line[i]) for line in lines) for i in range(len(_HEAD))]
        text = [_aligned(line, widths) for line in lines]
        left = len(self.rows) - count
        return "\n".join(
            [
                self.summary(),
                *text,
                *([f"and {left} more"] if left > 0 else []),
                str(self.peaks),
                *(f"note: {n}" for n in self.notes),
            ]
        )

    __str__ = table

    def __repr__(self) -> str:
        return f"<{'profile' if self.measured else 'cost'} of {self.summary()}>"

    def _cells(self, r: ProfileRow) -> tuple[str, ...]:
        share = r.seconds / self.seconds if self.seconds else 0.0
        rate = (lambda x: f"{x / r.seconds / 1e9:.1f}") if r.seconds else (lambda _: "")
        return (
            r.name,
            str(r.calls),
            _time(r.seconds),
            f"{100 * share:.1f} %",
            rate(r.nbytes) if r.nbytes else "",
            rate(r.flops) if r.flops else "",
            f"{100 * r.roofline(self.peaks):.0f} %" if r.nbytes or r.flops else "",
            r.source,
        )

    def _repr_html_(self) -> str:
        return page.page(
            page.heading("Profile" if self.measured else "Cost", ("", self.summary())),
            page.table(_HEAD, map(self._cells, self.top(40))),
            *map(page.paragraph, (str(self.peaks), *self.notes)),
        )

    def data(self) -> dict[str, Any]:
        """All of it as numbers and strings, for JSON."""
        return {
            "name": self.name,
            "measured": self.measured,
            "seconds": self.seconds,
            "flops": self.flops,
            "bytes": self.bytes_accessed,
            "arena": self.arena,
            "arguments": self.arguments,
            "results": self.results,
            "bandwidth": self.peaks.bandwidth,
            "peak_flops": self.peaks.flops,
            "rows": [r.data(self.peaks) for r in self.rows],
            "notes": self.notes,
        }

    def save_trace(self, path: Any = "cpu_trace.json") -> Any:
        """Write the run as Perfetto's JSON (opens in ui.perfetto.dev); gives the path."""
        from nxjax.profiling.perfetto import save

        return save(self, path)

    def roofline(self, ax: Any = None) -> Any:
        """Draw every kernel under the machine's ceilings; gives matplotlib's axes."""
        from nxjax.profiling.figure import roofline

        return roofline(self, ax)


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Names to the left, numbers to the right."""
    pairs = list(zip(cells, widths, strict=True))
    first, last = pairs[0], pairs[-1]
    return "  ".join([first[0].ljust(first[1]), *(c.rjust(w) for c, w in pairs[1:-1]), last[0]]).rstrip()


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1:
            return f"{seconds * scale:.2f} {unit}"
    return f"{seconds * 1e9:.0f} ns"
