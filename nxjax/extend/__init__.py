"""`jax.extend`'s names that exist here; beside them, a program's own ops: the files of `nx.custom_op`, `nx.kernel`."""

from nxjax.trace.lazy import lazy as _lazy

__all__ = ["backend", "core", "linear_util", "source_info_util"]
__getattr__, _ = _lazy(__name__, {}, __all__)
