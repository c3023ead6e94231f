"""`nx.scipy.sparse`: iterative solvers of linear systems, as `jax.scipy.sparse`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

__all__ = ["linalg"]


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise AttributeError(f"module 'nxjax.scipy.sparse' has no attribute {name!r}")
    return _importlib.import_module(f"nxjax.scipy.sparse.{name}")


def __dir__() -> list[str]:
    return [*__all__]
