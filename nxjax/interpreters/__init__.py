"""`jax.interpreters`' names: where a program's own primitives get their rules. See `nxjax.transforms.primitive`."""

import importlib as _importlib
from typing import Any as _Any

__all__ = ["ad", "batching", "mlir", "partial_eval", "xla"]


def __getattr__(name: str) -> _Any:
    if name in __all__:
        return _importlib.import_module(f"nxjax.interpreters.{name}")
    raise AttributeError(f"module 'nxjax.interpreters' has no attribute {name!r}")
