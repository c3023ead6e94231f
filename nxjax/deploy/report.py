"""The report of a compilation: op by op, where it runs, why, and what to write instead. Text, HTML and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

from nxjax.backends.evidence import Label, Record, plain
from nxjax.backends.target import Analysis
from nxjax.display import page
from nxjax.errors import ParameterError
from nxjax.lower.placement import Cost, Placement

Status = Literal["placed", "refused", "by published rules", "unknown"]


@final
@dataclass
class Report:
    """Where each op of a program runs on a target.

    Attributes:
        target: the target's name.
        label: how far the result was verified.
        rows: one per node, in program order; `Placement.decided_by` has the source of each.
        cost: of one run; each figure has its source.
        notes: other facts for the user.
        analysis: the compiler's report on the whole program, if any.
        rules: the table that placed ops that no vendor tool placed.
        evidence: what tools did with the files, and their answers; the basis of label and placement.
        host: whether the target's device is this machine's processor.

    >>> report = nx.explain(lambda x: nx.nn.relu(x * 2), target="tflite")(nx.ones((1, 3)))
    >>> report.target, [row.op for row in report.rows]
    ('tflite', ['mul'])
    """

    target: str
    title: str
    label: Label
    rows: list[Placement]
    cost: Cost = field(default_factory=Cost)
    notes: list[str] = field(default_factory=list[str])
    analysis: Analysis | None = None
    rules: str = ""
    evidence: list[Record] = field(default_factory=list[Record])
    host: bool = False

    def __post_init__(self) -> None:
        if not self.cost.why and "latency" not in self.cost:
            self.cost.why = self._untimed()

    def _untimed(self) -> str:
        """Why nobody says how long a run takes, from what the report holds; targets that know more say it."""
        if "chip time" in self.cost and "npu latency" not in self.cost:
            return "how long launch and transfers take is not published; see 'chip time'"
        left = [r for r in self.rows if not r.on_chip]
        if "npu latency" in self.cost:
            where = "run on the host" if all(r.device == "host" for r in left) else "may not run on the chip"
            return f"{len(left)} of {len(self.rows)} ops {where}, whose time nobody knows; see 'npu latency'"
        if self.unknown:
            return f"nothing here says where {self.unknown} of {len(self.rows)} ops run: measure on the chip"
        if len(left) == len(self.rows):
            return "no op runs on the chip, and nothing here says how long the host takes"
        return f"nothing that was asked here says how long {self.title} takes: measure on the chip"

    @property
    def on_npu(self) -> int:
        """Ops that the vendor's tool or a table puts on the NPU."""
        return sum(r.on_chip for r in self.rows)

    @property
    def unknown(self) -> int:
        """Ops whose place is unknown."""
        return sum(r.device == "unknown" for r in self.rows)

    @property
    def share(self) -> float:
        """Share of ops on the NPU, 0 to 1; those whose place is `unknown` do not count."""
        return self.on_npu / len(self.rows) if self.rows else 0.0

    @property
    def mac_share(self) -> float:
        """Share of multiply-accumulates on the NPU, 0 to 1; of ops where nothing multiplies."""
        total = sum(r.macs for r in self.rows)
        return sum(r.macs for r in self.rows if r.on_chip) / total if total else self.share

    @property
    def rests_on(self) -> str:
        """The source of the placement: the vendor's tool, a table (which one), or nothing."""
        table = self.rules or "the target's rules"
        words = {"vendor": "the vendor's own tool", "table": f"{table}, no tool was asked", "nobody": "nothing"}
        return "; ".join(text for said, text in words.items() if any(r.decided_by == said for r in self.rows))

    def status(self, row: Placement) -> Status:
        """The status of one row: the vendor's tool "placed" it on the chip or "refused" it, it was placed "by published
        rules", or it is "unknown"."""
        if row.decided_by == "vendor":
            return "placed" if row.on_chip or self.host else "refused"
        return "by published rules" if row.decided_by == "table" else "unknown"

    @property
    def host_rows(self) -> list[Placement]:
        """The ops that run on the host and not on the NPU."""
        return [r for r in self.rows if r.device == "host"]

    def summary(self) -> str:
        """One line."""
        head = f"{self.target} ({self.label})"
        if self.rows and self.unknown == len(self.rows):
            return f"{head}: nothing here says where its {len(self.rows)} ops run"
        said = f"{self.on_npu} of {len(self.rows)} ops and {self.mac_share:.1%} of multiply-accumulates"
        rest = f"; where {self.unknown} ops run is unknown" if self.unknown else ""
        by = f" (says {self.rests_on})" if self.on_npu else ""
        return f"{head}: {said} on the {self._chip}{by}{rest}"

    @property
    def _chip(self) -> str:
        return next((r.device.upper() for r in self.rows if r.on_chip), "NPU")

    def svg(self) -> str:
        """A picture of the compiled program: SVG text.

        Raises:
            ParameterError: the target's compiler provides nothing to draw.
        """
        if self.analysis is None:
            raise ParameterError(f"report: {self.target} has no picture", expected="a target whose compiler tells more")
        return self.analysis.svg()

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        return {
            "target": self.target,
            "title": self.title,
            "label": self.label,
            "rests_on": self.rests_on,
            "rows": [
                {
                    "op": r.op, "name": r.name, "device": r.device, "at": str(r.source) if r.source else None,
                    "scope": r.scope, "reason": r.reason, "suggestion": r.suggestion, "macs": r.macs,
                    "decided_by": r.decided_by, "status": self.status(r),
                }
                for r in self.rows
            ],
            "cost": {k: {"value": f.value, "unit": f.unit, "basis": f.basis} for k, f in self.cost.figures.items()},
            "notes": list(self.notes),
            "evidence": [r.to_dict() for r in self.evidence],
            **({"analysis": self.analysis.to_dict()} if self.analysis is not None else {}),
        }  # fmt: skip

    def _table(self) -> Iterator[tuple[str, ...]]:
        for r in self.rows:
            at = str(r.source) if r.source else ""
            why = r.reason + (f" -> {r.suggestion}" if r.suggestion else "")
            yield r.device, r.op, plain(r.name, _LONGEST), r.scope, at, plain(why, _LONGEST), self.status(r)

    def _notes(self) -> list[str]:
        return [plain(n, _LONGEST) for n in self.notes]

    def _columns(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        """Head and rows; without the scopes where there are none."""
        rows = list(self._table())
        if any(r.scope for r in self.rows):
            return _HEAD, list(rows)
        cut = lambda row: (*row[:_SCOPE], *row[_SCOPE + 1 :])
        return cut(_HEAD), [cut(row) for row in rows]

    def __str__(self) -> str:
        head, body = self._columns()
        widths = [min(max(map(len, column)), 60) for column in zip(head, *body, strict=True)]
        line = lambda row: "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        parts = [self.summary(), "", line(head), *map(line, body)]
        if self.cost.figures:
            parts += ["", *str(self.cost).splitlines()]
        if self.analysis is not None:
            parts += ["", *self.analysis.lines()]
        parts += [f"evidence: {r}" for r in self.evidence]
        return "\n".join([*parts, *(f"note: {n}" for n in self._notes())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names, body = self._columns()
        cost = [(k, f"{f.value:,.6g}", f.unit, f.basis) for k, f in self.cost.figures.items()]
        return page.page(
            page.heading(self.title, ("", self.summary())),
            page.table(names, body, classes=[_CLASSES.get(row[0], "good") for row in body]),
            page.table(("cost", "", "", "basis"), cost) if cost else "",
            page.text("\n".join(self.analysis.lines())) if self.analysis is not None else "",
            *map(page.paragraph, self._notes()),
            page.details("evidence", page.table(_RECORD, [_cells(r) for r in self.evidence])) if self.evidence else "",
        )


_RECORD: Final = ("tool", "what it did", "status", "sha256 of what it was given", "when", "answer")


def _cells(r: Record) -> tuple[str, ...]:
    took = " ".join(d[:12] for d in r.took)
    return r.tool, r.act, "" if r.status is None else str(r.status), took, r.when, r.answer


# Characters of a note or a reason: tools say what they like, and names come from files.
_LONGEST: Final = 4000
_CLASSES: Final = {"host": "bad", "unknown": ""}
_HEAD: Final = ("runs on", "op", "name", "scope", "your line", "why", "status")
_SCOPE: Final = _HEAD.index("scope")
