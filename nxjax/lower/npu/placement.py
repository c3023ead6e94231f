"""Where each node of a graph runs, why, and what it costs: the words of every report.

Knows graphs, no vendor. A target's constraint table gives verdicts; a vendor's own answer is held against them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, final

from nxjax.errors import Source
from nxjax.lower.npu.graph import Node, NpuGraph

# Who says what a figure is: measured here, the vendor's estimate, or our own model.
Basis = Literal["measured", "vendor-estimate", "model"]


@final
@dataclass(frozen=True)
class Verdict:
    """Whether a device takes a node; if not, why not and what the user could write instead."""

    ok: bool
    reason: str = ""
    suggestion: str = ""


YES = Verdict(True)
# A row of a constraint table: the verdict on one node.
Rule = Callable[[Node], Verdict]


@final
@dataclass(frozen=True)
class Placement:
    """One node of the graph, where it runs, and why there.

    Attributes:
        op: the node's op.
        device: the chip, by its kind, or "host".
        source: the user's line it came from.
        reason: why it is on the host; on the chip empty, or what runs it.
        suggestion: what to write instead.
        macs: multiply-accumulates of the node.
        decided_by: "vendor" where the vendor's tool said so, "table" where only its published rules did.
    """

    op: str
    name: str
    device: Literal["npu", "tpu", "ipu", "host"]
    source: Source | None = None
    scope: str = ""
    reason: str = ""
    suggestion: str = ""
    macs: int = 0
    decided_by: Literal["vendor", "table"] = "table"


@final
@dataclass(frozen=True)
class Figure:
    """A quantity, its unit, and who says so."""

    value: float
    unit: str
    basis: Basis


@final
@dataclass
class Cost:
    """What running once takes: named figures such as latency (s), peak memory (bytes), weights (bytes), cycles."""

    figures: dict[str, Figure] = field(default_factory=dict[str, Figure])

    def add(self, name: str, value: float, unit: str, basis: Basis) -> None:
        self.figures[name] = Figure(float(value), unit, basis)

    def __getitem__(self, name: str) -> Figure:
        return self.figures[name]

    def __contains__(self, name: object) -> bool:
        return name in self.figures

    def __str__(self) -> str:
        return "\n".join(f"{name}: {f.value:.6g} {f.unit} ({f.basis})" for name, f in self.figures.items())


def place(graph: NpuGraph, rule: Rule) -> list[Placement]:
    """One placement per node, as a constraint table says."""
    from nxjax.lower.npu.macs import macs

    rows: list[Placement] = []
    for n in graph.nodes:
        v = rule(n)
        device: Literal["npu", "host"] = "npu" if v.ok else "host"
        rows.append(Placement(n.op, n.name, device, n.source, n.scope, v.reason, v.suggestion, macs(n)))
    return rows
