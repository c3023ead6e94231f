"""Where each part of a program runs, why, and what it costs: the words of reports. Knows no graph and no vendor."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, final

from nxjax.errors import FigureError, Source

# Who says what a figure is: measured here, the vendor's estimate, or our own model.
Basis = Literal["measured", "vendor-estimate", "model"]
# Where a node runs; "unknown" where nothing here can say.
Device = Literal["npu", "tpu", "ipu", "host", "unknown"]
# On what that rests: the answer of the vendor's own tool, a table of rules, or nothing.
Said = Literal["vendor", "table", "nobody"]
# Figures that say how long a run takes, the one that says most of it first: with launch and transfers; of the chip's
# part of the program with these; or the chip alone.
TIMES: Final = ("latency", "npu latency", "chip time")
UNKNOWN: Final = "no tool of the vendor's is here, and no table of what its chip takes"


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a device takes a node; if not, why not and what the user could write instead."""

    ok: bool
    reason: str = ""
    suggestion: str = ""


YES = Verdict(True)


@final
@dataclass(frozen=True)
class Placement:
    """One node of the graph, where it runs, and why there.

    Attributes:
        op: the node's op.
        device: the chip, by its kind, or "host"; "unknown" where nothing here can say.
        source: the user's line it came from.
        reason: why it is on the host; on the chip empty, or what runs it.
        suggestion: what to write instead.
        macs: multiply-accumulates of the node.
        decided_by: "vendor" where the vendor's tool said so, "table" where only rules did, "nobody" where it is
            unknown.
    """

    op: str
    name: str
    device: Device
    source: Source | None = None
    scope: str = ""
    reason: str = ""
    suggestion: str = ""
    macs: int = 0
    decided_by: Said = "table"

    @property
    def on_chip(self) -> bool:
        """Whether it is known to run on the chip."""
        return self.device not in ("host", "unknown")


@final
@dataclass(frozen=True)
class Figure:
    """A quantity, its unit, and who says so.

    >>> print(Figure(2571404.0, "cycles", "vendor-estimate"))
    2.5714e+06 cycles (vendor-estimate)
    """

    value: float
    unit: str
    basis: Basis

    def __str__(self) -> str:
        return f"{self.value:.6g} {self.unit} ({self.basis})"


@final
@dataclass
class Cost(Mapping[str, Figure]):
    """What running once takes: named figures such as latency (s), peak memory (bytes), weights (bytes), cycles.

    A "latency" has launch and transfers in it. "npu latency" is that of a program's part on the chip. "chip time" is
    the time on the chip alone. ``why`` says why a latency is not among them.

    Raises:
        FigureError: a figure that nobody has said; the message says which are known.
    """

    figures: dict[str, Figure] = field(default_factory=dict[str, Figure])
    why: str = ""

    def add(self, name: str, value: float, unit: str, basis: Basis) -> None:
        # A tool that answers with no number, or with less than nothing, has said nothing.
        if 0 <= value < math.inf:
            self.figures[name] = Figure(float(value), unit, basis)

    def timed(self, wanted: object, seconds: Callable[[], float]) -> None:
        """Measure the latency, where that is wanted; of runs that fail there is none."""
        if not wanted:
            self.why = "no run was timed; the option measure=True does that"
            return
        try:
            self.add("latency", seconds(), "s", "measured")
        except Exception as error:  # vendors' runtimes have no class of errors in common
            self.why = f"what was to be timed failed: {type(error).__name__}: {error}"

    @property
    def time(self) -> tuple[str, Figure] | None:
        """The figure of `TIMES` that says most of how long a run takes, with its name; None where there is none."""
        return next(((name, self.figures[name]) for name in TIMES if name in self.figures), None)

    def __getitem__(self, name: str) -> Figure:
        found = self.figures.get(name)
        if found is None:
            raise FigureError(
                f"cost: {name} is not known here",
                got=self.why if name == "latency" and self.why else None,
                expected=", ".join(self.figures) or "nothing: no figure is known",
                fix=f"{name!r} in cost tells beforehand",
            )
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)

    def __str__(self) -> str:
        return "\n".join(f"{name}: {f}" for name, f in self.figures.items())
