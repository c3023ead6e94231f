"""Multiply-accumulates of a graph's nodes: the share of work that a placement report weighs ops by."""

from __future__ import annotations

import math

from nxjax.lower.npu.graph import Node


def macs(node: Node) -> int:
    """Multiply-accumulates of one run of ``node``; 0 for ops that multiply nothing with weights or each other."""
    out = node.output.size
    if node.op in ("conv_2d", "fully_connected"):
        return out * math.prod(node.operand(1).shape[1:])
    if node.op == "depthwise_conv_2d":
        _, height, width, *_ = node.operand(1).shape
        return out * height * width
    if node.op == "transpose_conv":
        return node.operand(0).size * math.prod(node.operand(1).shape[:3])
    if node.op == "batch_matmul":
        shape = node.operand(0).shape
        return out * (shape[-2] if node.attrs.get("adj_x") else shape[-1])
    return 0
