"""`nx.scipy.cluster`: vector quantization, as `jax.scipy.cluster`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

__all__ = ["vq"]


def __getattr__(name: str) -> _Any:
    if name not in __all__:
        raise AttributeError(f"module 'nxjax.scipy.cluster' has no attribute {name!r}")
    return _importlib.import_module(f"nxjax.scipy.cluster.{name}")


def __dir__() -> list[str]:
    return [*__all__]
