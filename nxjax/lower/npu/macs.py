"""Multiply-accumulates of a graph's nodes: the share of work that a placement report weighs ops by."""

from __future__ import annotations

from nxjax.lower.npu.graph import Node
from nxjax.lower.npu.ops import op_of


def macs(node: Node) -> int:
    """Multiply-accumulates of one run of ``node``; 0 for ops that multiply nothing with weights or each other."""
    return op_of(node).macs(node)
