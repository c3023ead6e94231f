"""`jax.experimental`'s names."""

import importlib
from typing import Any

from nxjax.transforms.callback import io_callback

__all__ = ["io_callback"]


def __getattr__(name: str) -> Any:
    if name == "topologies":
        return importlib.import_module("nxjax.experimental.topologies")
    raise AttributeError(f"module 'nxjax.experimental' has no attribute {name!r}")
