"""A measured profile as Perfetto's JSON: one span per run of a step. Opens in ui.perfetto.dev."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nxjax.errors import ParameterError
from nxjax.files import safe_io
from nxjax.profiling.rows import Profile


def events(profile: Profile) -> list[dict[str, Any]]:
    """Chrome's trace events: microseconds from the start of the run."""
    found: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 0, "args": {"name": f"nxjax cpu: {profile.name}"}},
        {"name": "thread_name", "ph": "M", "pid": 0, "tid": 0, "args": {"name": "steps"}},
    ]
    for s in profile.spans:
        row = profile.rows[s.row]
        found.append(
            {
                "name": row.name,
                "cat": row.scope or "kernel",
                "ph": "X",
                "pid": 0,
                "tid": 0,
                "ts": 1e6 * s.start,
                "dur": 1e6 * s.seconds,
                "args": {
                    "source": row.source,
                    "kernel": row.key[:2000],
                    "flops": row.flops / max(row.calls, 1),
                    "bytes": row.nbytes / max(row.calls, 1),
                },
            }
        )
    return found


def save(profile: Profile, path: str | os.PathLike[str]) -> Path:
    """Write the trace atomically; gives the path.

    Raises:
        ParameterError: nothing was measured.
    """
    if not profile.measured:
        raise ParameterError(
            "profile: an estimate has no timeline", got="nx.cost", expected="a measured run", fix="nx.profile(f)(*args)"
        )
    trace = {"traceEvents": events(profile), "displayTimeUnit": "ns", "otherData": {"peaks": str(profile.peaks)}}
    target = Path(path)
    safe_io.write(target, json.dumps(trace).encode())
    return target
