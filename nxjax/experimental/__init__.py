"""`jax.experimental`'s names."""

import importlib
from typing import Any

from nxjax.transforms.callback import io_callback

__all__ = ["MutableArray", "io_callback"]


class MutableArray:
    """The class of arrays that change in place. No value is one: arrays are never written to.

    >>> import nxjax as nx
    >>> isinstance(nx.numpy.ones(2), MutableArray)
    False
    """


def __getattr__(name: str) -> Any:
    if name in ("topologies", "multihost_utils", "checkify", "key_reuse", "jet", "layout", "hijax", "sparse", "pjit"):
        return importlib.import_module(f"nxjax.experimental.{name}")
    raise AttributeError(f"module 'nxjax.experimental' has no attribute {name!r}")
