"""Multiply-accumulates of a graph's nodes: the share of work that a placement report weighs ops by."""

from __future__ import annotations

import math

from nxjax.lower.npu.graph import Node


def macs(node: Node) -> int:
    """Multiply-accumulates of one run of ``node``; 0 for ops that multiply nothing with weights or each other."""
    out = node.output.size
    if node.op in ("conv_2d", "fully_connected"):
        weights = node.inputs[1]
        assert weights is not None
        return out * math.prod(weights.shape[1:])
    if node.op == "depthwise_conv_2d":
        weights = node.inputs[1]
        assert weights is not None
        return out * weights.shape[1] * weights.shape[2]
    if node.op == "transpose_conv":
        x, weights = node.inputs[0], node.inputs[1]
        assert x is not None and weights is not None
        return x.size * math.prod(weights.shape[:3])
    if node.op == "batch_matmul":
        x = node.inputs[0]
        assert x is not None
        return out * (x.shape[-2] if node.attrs.get("adj_x") else x.shape[-1])
    return 0
