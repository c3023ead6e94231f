"""`nx.scipy.cluster`: vector quantization, as `jax.scipy.cluster`."""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy

__all__ = ["vq"]
__getattr__, __dir__ = _lazy(__name__, {}, __all__)
