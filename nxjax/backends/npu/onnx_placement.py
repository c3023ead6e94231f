"""An ONNX Runtime provider's answer, which operation went where, in terms of the graph's nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from nxjax.lower.npu.formats.onnx_writer import Written
from nxjax.lower.npu.graph import Node, NpuGraph, Tensor
from nxjax.lower.npu.macs import macs
from nxjax.lower.npu.placement import Placement

Device = Literal["npu", "host"]
# What ONNX Runtime adds to names when it splits constants' readers and changes layouts.
_SUFFIX: Final = re.compile(r"(/duplicated)?(_token_\d+)?$")
_EDGES: Final = ("QuantizeLinear", "DequantizeLinear")


def placements(
    graph: NpuGraph,
    written: Written,
    where: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
    provider: str,
    table: Sequence[Placement],
) -> list[Placement]:
    """One row per node of ``graph``.

    A node is on the NPU if every operation written for it is. Quantization steps around it count only where they are
    all there is, since ONNX Runtime moves and splits them. A node that left no operation behind (a transpose that
    only renames dimensions, a constant that was folded) is where its operand is made, and not the vendor's decision.

    Args:
        where: operation name to (provider that runs it, ONNX operator).
        reasons: operation name to why ``provider`` did not take it.
        provider: the one that stands for the NPU.
        table: the published rules' placements, for reasons and suggestions that the provider does not give.
    """
    devices: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for name, (taker, kind) in where.items():
        base = _SUFFIX.sub("", name)
        kinds[base] = kind
        # Split in parts, an operation is on the NPU if all of them are.
        if devices.get(base, provider) == provider:
            devices[base] = taker
    said = {_SUFFIX.sub("", name): reason for name, reason in reasons.items()}
    parts: dict[Node, list[str]] = {}
    for name, owner in written.owners.items():
        if owner is not None and name in devices:
            parts.setdefault(owner, []).append(name)
    made: dict[Tensor, Device] = {}
    rows: list[Placement] = []
    for n, old in zip(graph.nodes, table, strict=True):
        names = parts.get(n, [])
        core = [name for name in names if kinds[name] not in _EDGES] or names
        hosted = [name for name in core if devices[name] != provider]
        there: list[Device] = [made[t] for t in n.operands if t in made]
        device: Device = "host" if hosted else "npu" if core or not there else there[0]
        made.update(dict.fromkeys(n.outputs, device))
        reason = suggestion = ""
        if device == "host":
            reason = next((said[name] for name in hosted if name in said), old.reason) or "placed on the host"
            suggestion = old.suggestion
        by: Literal["vendor", "table"] = "vendor" if core else "table"
        rows.append(Placement(n.op, n.name, device, n.source, n.scope, reason, suggestion, macs(n), by))
    return rows
