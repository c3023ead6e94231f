"""`jax.experimental`'s names."""

import importlib
from typing import Any

from nxjax.transforms.callback import io_callback

__all__ = ["io_callback"]


def __getattr__(name: str) -> Any:
    if name in ("topologies", "multihost_utils", "checkify", "key_reuse", "jet"):
        return importlib.import_module(f"nxjax.experimental.{name}")
    raise AttributeError(f"module 'nxjax.experimental' has no attribute {name!r}")
