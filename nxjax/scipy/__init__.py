"""`nx.scipy`: special functions, distributions, linear algebra and more under SciPy's names, as `jax.scipy`."""

from __future__ import annotations

import importlib as _importlib
from typing import Any as _Any

_MODULES = (
    "cluster",
    "fft",
    "integrate",
    "interpolate",
    "linalg",
    "ndimage",
    "optimize",
    "signal",
    "sparse",
    "spatial",
    "special",
    "stats",
)

__all__ = list(_MODULES)


def __getattr__(name: str) -> _Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'nxjax.scipy' has no attribute {name!r}")
    return _importlib.import_module(f"nxjax.scipy.{name}")


def __dir__() -> list[str]:
    return [*__all__]
