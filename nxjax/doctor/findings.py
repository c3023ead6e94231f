"""What the doctor found of one target. Every figure is that of a report or of a record."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, final

from nxjax.deploy.artifact import MetricScores
from nxjax.deploy.deviation import Deviation
from nxjax.deploy.divergence import Divergence
from nxjax.deploy.report import Report
from nxjax.lower.placement import Figure
from nxjax.quant.comparison import LayerDifference

# What a target makes of a model: all of it, a part, nothing of it (all is left to the host), nothing says; no file can
# be written; a tool failed; what ran gave results of another function.
State = Literal["all", "part", "none", "unknown", "refused", "failed", "wrong"]
STATES: Final[dict[State, str]] = {
    "all": "takes it",
    "part": "takes a part",
    "none": "leaves all to the host",
    "unknown": "unknown",
    "refused": "refuses it",
    "failed": "failed",
    "wrong": "wrong results",
}
TAKES: Final[frozenset[State]] = frozenset(("all", "part"))
# Words in the names of figures that are of memory, and not of a file or of traffic.
_MEMORY: Final = ("peak", "arena", "memory", "cache", "weights")
# Below this many decibels, a result is bad enough to say so.
POOR: Final = 10.0


@final
@dataclass
class Fix:
    """A rewrite that was tried.

    Attributes:
        says: what was done.
        kept: whether it helped: more on the chip, or a better result, and nothing worse.
        before, after: in words.
    """

    says: str
    kept: bool
    before: str
    after: str


@final
@dataclass
class TargetDiagnosis:
    """One target.

    Attributes:
        target, title: its name, and the chip.
        state: what it makes of the model, a key of `STATES`; `takes` in short.
        said: why, where it is not all well.
        policy: "int8" and the like; "float32"; "as in the file"; "not quantized", if that was not possible.
        report: placement, cost and evidence; None where none could be made.
        files: bytes of each file that was written.
        runs_on: what ran the files here; empty if nothing did.
        deviation: from the exact reference, on the first sample.
        others: the same of other ways to run the files.
        sqnr: in decibels, of results against the float model (of a quantized file: its own integers) over samples.
        sqnr_of: what gave those results: `runs_on`, or "the exact reference".
        samples: how many samples that is over.
        scores: a metric of the task, of what runs and of the exact reference.
        divergence: the first op at which results leave the reference; None where none does.
        unsought: why it was not looked for; empty where it was.
        rewrites: what could be written otherwise, and what of the chip's suggestions says so.
        fixes: rewrites that were tried.
        edges: from which row of the report to which values go, for the picture.
        activations: bytes of the arena by our own plan; 0 where there is no graph to plan.
        seconds: how long all this took here.
    """

    target: str
    title: str
    state: State = "failed"
    said: str = ""
    policy: str = ""
    report: Report | None = None
    files: dict[str, int] = field(default_factory=dict[str, int])
    runs_on: str = ""
    deviation: Deviation | None = None
    others: list[Deviation] = field(default_factory=list[Deviation])
    sqnr: float | None = None
    sqnr_of: str = ""
    samples: int = 0
    scores: MetricScores | None = None
    divergence: Divergence | None = None
    unsought: str = ""
    rewrites: list[str] = field(default_factory=list[str])
    fixes: list[Fix] = field(default_factory=list[Fix])
    edges: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    activations: int = 0
    seconds: float = 0.0

    @property
    def takes(self) -> bool:
        """Whether its device runs the model, or a part of it."""
        return self.state in TAKES

    @property
    def measured(self) -> bool:
        """Whether `sqnr` is of what ran, not of the exact reference."""
        return bool(self.runs_on) and self.sqnr_of == self.runs_on

    @property
    def verdict(self) -> str:
        """What it makes of the model, in words; a host is no chip that takes something."""
        return "runs on the host" if self.on_host else STATES[self.state]

    @property
    def on_host(self) -> bool:
        """Whether all of it runs, on this machine's processor."""
        return self.state == "all" and self.report is not None and self.report.host

    @property
    def level(self) -> str:
        """`sqnr` for a table: in brackets where it is of the exact reference."""
        return decibels(self.sqnr) if self.measured or self.sqnr is None else f"({decibels(self.sqnr)})"

    @property
    def label(self) -> str:
        """How far it was verified, by the records; empty where nothing was made."""
        return self.report.label if self.report is not None and self.files else ""

    @property
    def memory(self) -> dict[str, Figure]:
        """The figures of its cost that are bytes of memory; the activations by our own plan where nothing says more."""
        figures = {} if self.report is None else self.report.cost.figures
        found = {k: f for k, f in figures.items() if f.unit == "bytes" and any(w in k for w in _MEMORY)}
        plan = {"activations": Figure(self.activations, "bytes", "model")} if self.activations else {}
        return {**plan, **found}

    @property
    def refused(self) -> list[tuple[str, str, str, int]]:
        """What is left to the host: op, why, what to write instead, how often."""
        if self.report is None or (self.report.host and self.state == "all"):
            return []
        # A host leaves nothing to itself: what is in its way, it says how to write.
        left = (r for r in self.report.rows if r.device == "host" and (r.suggestion or not self.report.host))
        rows = Counter((r.op, r.reason, r.suggestion) for r in left)
        return [(*row, count) for row, count in rows.most_common()]

    @property
    def placement(self) -> str:
        """In a few words."""
        if self.report is None or not self.report.rows:
            return ""
        count = len(self.report.rows)
        if self.state == "refused" and not self.report.on_npu:
            return f"{sum(n for *_, n in self.refused) or count} ops refused"
        if self.report.host:
            return f"{count} ops on the host"
        if self.report.unknown == count:
            return f"{count} ops, unknown"
        macs = f", {self.report.mac_share:.0%} of MACs" if any(r.macs for r in self.report.rows) else ""
        return f"{self.report.on_npu} of {count} ops{macs}"

    @property
    def time(self) -> str:
        """The figure that says most of how long a run takes, with its source."""
        found = None if self.report is None else self.report.cost.time
        return f"{seconds(found[1].value)} ({found[0]}, {found[1].basis})" if found is not None else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        plain = lambda d: {"runs_on": d.runs_on, "short": d.short, "max_lsb": d.max_lsb, "exact": d.exact}
        return {
            "target": self.target,
            "title": self.title,
            "state": self.state,
            "takes": self.takes,
            "said": self.said,
            "policy": self.policy,
            "label": self.label,
            "files": self.files,
            "memory": {k: {"value": f.value, "unit": f.unit, "basis": f.basis} for k, f in self.memory.items()},
            "runs_on": self.runs_on,
            "sqnr": number(self.sqnr),
            "sqnr_of": self.sqnr_of,
            "samples": self.samples,
            "deviation": None if self.deviation is None else plain(self.deviation),
            "others": [plain(d) for d in self.others],
            "scores": None if self.scores is None else self.scores._asdict(),
            "divergence": None if self.divergence is None else self.divergence.to_dict(),
            "unsought": self.unsought,
            "refused": [dict(zip(("op", "reason", "suggestion", "count"), r, strict=True)) for r in self.refused],
            "rewrites": self.rewrites,
            "fixes": [vars(f) for f in self.fixes],
            "report": None if self.report is None else self.report.to_dict(),
            "seconds": round(self.seconds, 3),
        }


class PageContent(Protocol):
    """What a page shows: see `nxjax.doctor.diagnosis`."""

    model: str
    inputs: list[str]
    data: str
    targets: list[TargetDiagnosis]
    layers: list[LayerDifference]
    notes: list[str]
    float_score: float | None


def decibels(value: float | None) -> str:
    """Decibels for a table; "exact" where nothing differs."""
    return "" if value is None else "exact" if value == math.inf else f"{value:.1f}" if math.isfinite(value) else "none"


def seconds(value: float) -> str:
    """A time in the unit that fits.

    >>> seconds(0.00123), seconds(2.5e-6), seconds(3)
    ('1.23 ms', '2.5 us', '3 s')
    """
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if value >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value * 1e9:.3g} ns"


def number(value: float | None) -> float | str | None:
    """JSON has no infinities."""
    return value if value is None or math.isfinite(value) else str(value)
