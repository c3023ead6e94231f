"""The report of a compilation: op by op, where it runs, why, and what to write instead. Text, HTML and plain data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, final

from nxjax.backends.base import Label
from nxjax.backends.target import Analysis
from nxjax.display import page
from nxjax.errors import ParameterError
from nxjax.lower.npu.placement import Cost, Placement


@final
@dataclass
class Report:
    """Where each op of a program runs on a target.

    Attributes:
        target: the target's name.
        label: how far towards silicon the result went.
        rows: one per node, in program order.
        cost: what one run takes; each figure says who says so.
        notes: what else a user should know.
        analysis: the compiler's own answer about the whole program, where a target gives one.

    >>> import nxjax as nx
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

    @property
    def on_npu(self) -> int:
        """Ops on the NPU."""
        return sum(r.device != "host" for r in self.rows)

    @property
    def share(self) -> float:
        """Share of ops on the NPU, 0 to 1."""
        return self.on_npu / len(self.rows) if self.rows else 0.0

    @property
    def mac_share(self) -> float:
        """Share of multiply-accumulates on the NPU, 0 to 1; of ops where nothing multiplies."""
        total = sum(r.macs for r in self.rows)
        return sum(r.macs for r in self.rows if r.device != "host") / total if total else self.share

    @property
    def host_rows(self) -> list[Placement]:
        """The ops that do not run on the NPU."""
        return [r for r in self.rows if r.device == "host"]

    def summary(self) -> str:
        """One line."""
        return (
            f"{self.target} ({self.label}): {self.on_npu} of {len(self.rows)} ops and "
            f"{self.mac_share:.1%} of multiply-accumulates on the {self._chip}"
        )

    @property
    def _chip(self) -> str:
        return next((r.device.upper() for r in self.rows if r.device != "host"), "NPU")

    def svg(self) -> str:
        """A picture of what the compiler made of the program: SVG text.

        Raises:
            ParameterError: the target's compiler tells nothing that could be drawn.
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
            "rows": [
                {
                    "op": r.op, "name": r.name, "device": r.device, "at": str(r.source) if r.source else None,
                    "scope": r.scope, "reason": r.reason, "suggestion": r.suggestion, "macs": r.macs,
                    "decided_by": r.decided_by,
                }
                for r in self.rows
            ],
            "cost": {k: {"value": f.value, "unit": f.unit, "basis": f.basis} for k, f in self.cost.figures.items()},
            "notes": list(self.notes),
            **({"analysis": self.analysis.to_dict()} if self.analysis is not None else {}),
        }  # fmt: skip

    def _table(self) -> Iterator[tuple[str, ...]]:
        for r in self.rows:
            at = str(r.source) if r.source else ""
            why = r.reason + (f" -> {r.suggestion}" if r.suggestion else "")
            yield r.device, r.op, r.name, r.scope, at, why, r.decided_by

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
        return "\n".join([*parts, *(f"note: {n}" for n in self.notes)])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        names, body = self._columns()
        cost = [(k, f"{f.value:,.6g}", f.unit, f.basis) for k, f in self.cost.figures.items()]
        return page.page(
            page.heading(self.title, ("", self.summary())),
            page.table(names, body, classes=["bad" if row[0] == "host" else "good" for row in body]),
            page.table(("cost", "", "", "basis"), cost) if cost else "",
            page.text("\n".join(self.analysis.lines())) if self.analysis is not None else "",
            *map(page.paragraph, self.notes),
        )


_HEAD: Final = ("runs on", "op", "name", "scope", "your line", "why", "says")
_SCOPE: Final = _HEAD.index("scope")
