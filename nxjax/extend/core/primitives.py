"""`jax.extend.core.primitives`: the ops of nxjax under JAX's names. See `nxjax.lax.primitives`."""

from __future__ import annotations

from typing import Any

from nxjax.lax import primitives as _primitives


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return _primitives.find(name, "nxjax.extend.core.primitives")


def __dir__() -> list[str]:
    return list(_primitives.NAMES)
