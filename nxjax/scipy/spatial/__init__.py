"""`nx.scipy.spatial`: rotations, as `jax.scipy.spatial`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

__all__ = ["transform"]


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise AttributeError(f"module 'nxjax.scipy.spatial' has no attribute {name!r}")
    return _importlib.import_module(f"nxjax.scipy.spatial.{name}")


def __dir__() -> list[str]:
    return [*__all__]
