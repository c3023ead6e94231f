"""`jax.example_libraries`: small optimizers and layers, which older programs import. New ones have better (optax)."""

import importlib
from typing import Any


def __getattr__(name: str) -> Any:
    if name in ("optimizers", "stax"):
        return importlib.import_module(f"nxjax.example_libraries.{name}")
    raise AttributeError(f"module 'nxjax.example_libraries' has no attribute {name!r}")
