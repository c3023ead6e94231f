"""Our own cost model: a roofline per node. For chips whose vendor gives no estimate; every figure says "model".

The time of a node is the greatest of its products at the array's rate, its bytes at the memory's, and its operands and
results at the rate of the chip's own memory (Williams, Waterman and Patterson 2009, "Roofline"), plus what a node and
a run cost whatever they do, and the way of inputs and results. Knows graphs and the figures of chips, no vendor's
tools.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.lower.npu.chips import ChipLimits, chip
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.memory import plan
from nxjax.lower.npu.ops import op_of
from nxjax.lower.placement import Cost, Placement
from nxjax.trace.dtypes import bit_width


@final
@dataclass(frozen=True)
class NodeCost:
    """One node in the model.

    Attributes:
        node: which.
        macs: its multiply-accumulates.
        traffic: bytes between chip and memory: weights that do not stay on the chip, activations that do not fit there.
        compute: seconds of products, or of bytes between the array and the chip's own memory if these take longer.
        memory: seconds of traffic.
    """

    node: Node
    macs: int
    traffic: int
    compute: float
    memory: float

    @property
    def seconds(self) -> float:
        return max(self.compute, self.memory)


def breakdown(graph: NpuGraph, on: ChipLimits | str, placements: Sequence[Placement] | None = None) -> list[NodeCost]:
    """One row per node that runs on the chip: all, or those that ``placements`` (one per node) put on the NPU.

    Raises:
        LoweringError: if a node with products is of a precision that the chip does not compute in.
    """
    on = chip(on) if isinstance(on, str) else on
    fits = plan(graph).peak <= on.on_chip
    room = on.cache
    resident: set[Tensor] = set()
    rows: list[NodeCost] = []
    for i, n in enumerate(graph.nodes):
        if placements is not None and placements[i].device != "npu":
            continue
        traffic = 0
        for t in dict.fromkeys(n.operands):
            if t.constant and t not in resident:
                kept = min(room, t.nbytes)
                room -= kept
                traffic += t.nbytes - kept
                resident.add(t)
        if not fits and not op_of(n).view:
            traffic += sum(t.nbytes for t in dict.fromkeys([*n.operands, *n.outputs]) if not t.constant)
        work = op_of(n).macs(n)
        compute = work / (_rate(n, on) * _filled(n, on)) if work else 0.0
        moved = 0 if op_of(n).view else sum(t.nbytes for t in dict.fromkeys([*n.operands, *n.outputs]))
        rows.append(NodeCost(n, work, traffic, max(compute, moved / on.inside), traffic / on.bandwidth))
    return rows


def estimate(graph: NpuGraph, on: ChipLimits | str, placements: Sequence[Placement] | None = None) -> Cost:
    """What one run of ``graph`` takes on a chip, by our model.

    Args:
        graph: what runs.
        on: a chip or its name in `nxjax.lower.npu.chips`.
        placements: one per node; nodes on the host are left out, and the time is then called "npu latency".

    Returns:
        "latency" or "npu latency" (s), or "chip time" where what a launch takes is unknown; "macs", "weights" (bytes),
        "peak memory" (bytes of the arena of activations), "traffic" (bytes between chip and memory), and
        "parameter cache" (bytes used) where the chip has one. No time where no node is on the chip.

    >>> from nxjax.lower.npu.graph import Tensor
    >>> x, y = Tensor("x", (1, 8, 8, 64), "int8"), Tensor("y", (1, 8, 8, 64), "int8")
    >>> w = Tensor("w", (64, 1, 1, 64), "int8", data=np.ones((64, 1, 1, 64), "int8"))
    >>> g = NpuGraph("g", [x], [y], [Node("conv_2d", (x, w, None), (y,))])
    >>> estimate(g, "edgetpu")["macs"].value
    262144.0
    """
    on = chip(on) if isinstance(on, str) else on
    rows = breakdown(graph, on, placements)
    whole = len(rows) == len(graph.nodes)
    cost = Cost()
    moved = sum(t.nbytes for t in [*graph.inputs, *graph.outputs])
    seconds = sum(r.seconds for r in rows) + on.per_node * len(rows) + moved / min(on.link, on.bandwidth)
    seconds += on.launch or 0.0
    weights = graph.weights
    name = "chip time" if on.launch is None else "latency" if whole else "npu latency"
    if rows:
        cost.add(name, seconds, "s", "model")
    cost.add("macs", sum(r.macs for r in rows), "MAC", "model")
    cost.add("weights", weights, "bytes", "model")
    cost.add("peak memory", plan(graph).peak, "bytes", "model")
    cost.add("traffic", sum(r.traffic for r in rows), "bytes", "model")
    if on.cache:
        cost.add("parameter cache", min(weights, on.cache), "bytes", "model")
    return cost


def _rate(node: Node, on: ChipLimits) -> float:
    """Multiply-accumulates a second of the node's precision."""
    x = node.operands[0]
    kind = "int8" if bit_width(x.dtype) <= 8 else "int16" if np.issubdtype(x.dtype, np.integer) else str(x.dtype)
    # What computes in float16 takes float32 graphs too, rounding them.
    rate = on.macs.get(kind, on.macs.get("float16") if kind in ("float32", "bfloat16") else None)
    if rate is None:
        raise LoweringError(
            f"cost model: {on.title} does not compute in {kind}",
            got=f"{node.op} of {x.dtype}",
            expected=" or ".join(on.macs),
            fix="quantize the function first, or give the placements so that host nodes are left out",
            source=node.source,
        )
    return rate * on.share


def _filled(node: Node, on: ChipLimits) -> float:
    """The share of the array that a node's products fill: blocks of terms by blocks of outputs, the last in part."""
    terms = max(op_of(node).macs(node) // max(node.output.size, 1), 1)
    outputs = node.output.shape[-1] if node.output.shape else 1
    if not op_of(node).shares_terms:
        # An array fills its outputs with channels, and wastes most of its terms.
        return min(terms / on.lanes[0], 1.0)
    outputs //= node.attrs.get("groups", 1)

    def full(n: int, lanes: int) -> float:
        return n / (-(-n // lanes) * lanes)

    return full(terms, on.lanes[0]) * full(max(outputs, 1), on.lanes[1])
