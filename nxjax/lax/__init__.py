"""`jax.lax`'s functions under their own names: strict about shapes and dtypes, thin over the ops.

Loaded part by part: a name is looked for in the parts in turn.
"""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_PARTS = ("elementwise", "structural", "algebra", "control", "sharding")
_MODULES = ("linalg",)


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        return _importlib.import_module(f"nxjax.lax.{name}")
    if not name.startswith("_") and name not in (*_PARTS, "reductions"):
        for part in _PARTS:
            module = _importlib.import_module(f"nxjax.lax.{part}")
            if name in module.__all__:
                value = globals()[name] = getattr(module, name)
                return value
    raise AttributeError(f"module 'nxjax.lax' has no attribute {name!r}")


def __dir__() -> list[str]:
    found = {*_MODULES}
    for part in _PARTS:
        found.update(_importlib.import_module(f"nxjax.lax.{part}").__all__)
    return sorted(found)
