"""`nx.scipy.sparse`: iterative solvers of linear systems, as `jax.scipy.sparse`."""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy

__all__ = ["linalg"]
__getattr__, __dir__ = _lazy(__name__, {}, __all__)
