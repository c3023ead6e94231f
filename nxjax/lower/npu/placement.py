"""The placement of a graph by a constraint table, one row per node. Knows graphs, no vendor."""

from __future__ import annotations

from collections.abc import Callable

from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.ops import op_of
from nxjax.lower.placement import UNKNOWN, Device, Placement, Said, Verdict

# A row of a constraint table: the verdict on one node.
Rule = Callable[[Node], Verdict]


def place(graph: NpuGraph, rule: Rule, published: bool = True) -> list[Placement]:
    """One placement per node, as a constraint table says.

    Args:
        graph: what is placed.
        rule: the table.
        published: whether the table says what the chip takes. If not, it is one of the file format: what has no form
            in it is left to the host, and where the rest runs is unknown.
    """
    rows: list[Placement] = []
    for n in graph.nodes:
        v = rule(n)
        if v.ok and not published:
            rows.append(unknown(n))
            continue
        rows.append(placed(n, "npu" if v.ok else "host", v.reason, v.suggestion, "table"))
    return rows


def placed(n: Node, device: Device, reason: str = "", suggestion: str = "", decided_by: Said = "vendor") -> Placement:
    """The row of a node; by default the vendor's tool says so."""
    return Placement(n.op, n.name, device, n.source, n.scope, reason, suggestion, op_of(n).macs(n), decided_by)


def unknown(n: Node, why: str = UNKNOWN) -> Placement:
    """The row of a node that nothing here can place."""
    return placed(n, "unknown", why, decided_by="nobody")
