"""An ONNX Runtime provider's answer, which operation went where, in terms of the graph's nodes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from nxjax.lower.npu.formats.onnx_writer import OnnxModel
from nxjax.lower.npu.graph import Node, NpuGraph
from nxjax.lower.npu.ops import op_of
from nxjax.lower.npu.placement import placed, unknown
from nxjax.lower.placement import Device, Placement

# What ONNX Runtime adds to names when it splits constants' readers and changes layouts.
_SUFFIX: Final = re.compile(r"(/duplicated)?(_token_\d+)?$")
_EDGES: Final = ("QuantizeLinear", "DequantizeLinear")


def placements(
    graph: NpuGraph,
    written: OnnxModel,
    where: Mapping[str, Sequence[str]],
    reasons: Mapping[str, str],
    provider: str,
    table: Sequence[Placement],
) -> list[Placement]:
    """One row per node of ``graph``.

    A node is on the NPU if every operation written for it is. Quantization steps around it count only where they are
    all there is, since ONNX Runtime moves and splits them. A node that left no operation behind (a transpose that
    only renames dimensions, a constant that was folded) is where its operand is made, else where its result is used.
    Products do not vanish: of one that the provider does not name, and of all that hang on nothing that it names, the
    place is unknown.

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
    named: dict[Node, list[str]] = {}
    places: dict[Node, Device] = {}
    for n in graph.nodes:
        names = parts.get(n, [])
        named[n] = [name for name in names if kinds[name] not in _EDGES] or names
        if named[n]:
            places[n] = "host" if any(devices[name] != provider for name in named[n]) else "npu"
    maker, readers = graph.producers(), graph.uses()
    for n in graph.nodes:
        if n not in places and not op_of(n).macs(n):
            there: list[Device] = [places[maker[t]] for t in n.operands if t in maker and maker[t] in places]
            if there:
                places[n] = there[0]
    for n in reversed(graph.nodes):
        if n not in places and not op_of(n).macs(n):
            users: set[Device] = {places.get(user, "unknown") for t in n.outputs for user in readers.get(t, ())}
            if len(users) == 1:
                places[n] = users.pop()
    rows: list[Placement] = []
    for n, old in zip(graph.nodes, table, strict=True):
        device = places.get(n, "unknown")
        if device == "unknown":
            rows.append(unknown(n, f"{provider} did not say where it runs"))
            continue
        reason = suggestion = ""
        if device == "host":
            reason = next((said[name] for name in named[n] if name in said), old.reason) or "placed on the host"
            suggestion = old.suggestion
        rows.append(placed(n, device, reason, suggestion))
    return rows
