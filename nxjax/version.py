"""`jax.version`: what libraries ask for before they choose between old and new names of JAX.

``__version__`` is that of nxjax, and of the JAX whose public API nxjax follows while `jax` is nxjax (`interop.as_jax`).
"""

import sys as _sys

OWN = "0.1.0"
# The release of JAX whose public names, arguments and meaning these are.
JAX = "0.10.2"


def __getattr__(name: str) -> object:
    if name in ("__version__", "__version_info__"):
        found = JAX if _sys.modules.get("jax") is _sys.modules["nxjax"] else OWN
        return found if name == "__version__" else tuple(map(int, found.split(".")))
    raise AttributeError(f"module 'nxjax.version' has no attribute {name!r}")
