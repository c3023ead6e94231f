"""`jax.extend`'s names that exist here; beside them, a program's own ops: the files of `nx.custom_op`, `nx.kernel`."""

import importlib as _importlib
from typing import Any as _Any

__all__ = ["backend", "core", "linear_util", "source_info_util"]


def __getattr__(name: str) -> _Any:
    if name in __all__:
        return _importlib.import_module(f"nxjax.extend.{name}")
    raise AttributeError(f"module 'nxjax.extend' has no attribute {name!r}")
