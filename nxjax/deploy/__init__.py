"""From a function or a file to an artifact for a chip: compile, explain, load, report, measure the deviation."""

from __future__ import annotations

import importlib
from typing import Any

# `nx.compile`, `nx.explain` and `nx.targets` are at the top.
_FILES = {
    "nxjax.deploy.artifact": "Artifact",
    "nxjax.deploy.compile": "explain reference",
    "nxjax.deploy.deviation": "Deviation",
    "nxjax.deploy.loading": "load",
    "nxjax.deploy.report": "Report",
    "nxjax.deploy.targets": "Target Targets",
}
_HOMES = {name: file for file, names in _FILES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'nxjax.deploy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(_HOMES)
