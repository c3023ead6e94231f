"""`nx.scipy.spatial`: rotations, as `jax.scipy.spatial`."""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy

__all__ = ["transform"]
__getattr__, __dir__ = _lazy(__name__, {}, __all__)
