"""`jax.experimental`'s names."""

from nxjax.trace.lazy import lazy as _lazy
from nxjax.transforms.callback import io_callback

__all__ = ["MutableArray", "io_callback"]


class MutableArray:
    """The class of arrays that change in place. No value is one: arrays are never written to.

    >>> isinstance(nx.numpy.ones(2), MutableArray)
    False
    """


_MODULES = (
    "checkify", "hijax", "jet", "key_reuse", "layout", "mesh_utils", "multihost_utils", "ode", "pjit", "shard_map",
    "sparse", "topologies",
)  # fmt: skip
__getattr__, _ = _lazy(__name__, {}, _MODULES)
