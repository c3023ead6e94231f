"""A compiled program as Perfetto's JSON: instructions as long as the compiler's estimate. Opens in ui.perfetto.dev."""

from __future__ import annotations

import json
from typing import Any

from nxjax.backends.tpu.chips import Topology
from nxjax.backends.tpu.hlo import HloModule


def trace(module: HloModule, topology: Topology) -> str:
    """The instructions one after another, one cycle drawn as one nanosecond; loops are drawn once."""
    events: list[dict[str, Any]] = []
    at = 0.0
    for i in module.scheduled():
        if not i.cycles:
            continue
        args = {
            "opcode": i.opcode, "at": f"{i.at[0]}:{i.at[1]}" if i.at else "", "scope": i.scope, "cycles": i.cycles,
            "bytes": i.bytes, "basis": "the compiler's static estimate",
        }  # fmt: skip
        events.append({"name": i.name, "ph": "X", "pid": 0, "tid": 0, "ts": at, "dur": i.cycles / 1e3, "args": args})
        at += i.cycles / 1e3
    about = {"label": "vendor-compiled", "target": str(topology)}
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})
