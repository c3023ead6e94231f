"""`jax.extend.core.primitives`: the ops of nxjax under JAX's names. See `nxjax.lax.primitives`."""

from __future__ import annotations

from typing import Any

from nxjax import random as _random
from nxjax.lax import primitives as _primitives


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    if name == "random_gamma_p":
        return getattr(_random, name)
    return _primitives.find(name, "nxjax.extend.core.primitives")


def __dir__() -> list[str]:
    return sorted((*_primitives.NAMES, "random_gamma_p"))
