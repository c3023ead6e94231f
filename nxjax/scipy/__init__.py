"""`nx.scipy`: special functions, distributions, linear algebra and more under SciPy's names, as `jax.scipy`."""

from __future__ import annotations

from nxjax.trace.lazy import lazy as _lazy

_MODULES = tuple(
    "cluster fft integrate interpolate linalg ndimage optimize signal sparse spatial special stats".split()  # noqa: SIM905
)

__all__ = [*_MODULES]
__getattr__, __dir__ = _lazy(__name__, {}, _MODULES)
