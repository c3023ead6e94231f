"""From a function or a file to an artifact for a chip: compile, explain, load, report, measure the deviation."""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy
from nxjax.trace.lazy import module_of_name as _homes

# `nx.compile`, `nx.explain` and `nx.targets` are at the top.
_FILES = {
    "nxjax.deploy.artifact": "Artifact",
    "nxjax.deploy.compile": "explain reference",
    "nxjax.deploy.deviation": "Deviation",
    "nxjax.deploy.loading": "load",
    "nxjax.deploy.report": "Report",
    "nxjax.deploy.targets": "Target Targets",
    # Above this room, since it reads files of others.
    "nxjax.doctor.examine": "doctor",
    "nxjax.doctor.diagnosis": "Diagnosis",
}
_HOMES = _homes(_FILES)
__getattr__, __dir__ = _lazy(__name__, _HOMES)
