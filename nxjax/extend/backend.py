"""`jax.extend.backend`: XLA's clients by platform."""

from __future__ import annotations

from typing import Any

from nxjax.backends.xla.client import made_clients
from nxjax.trace.lazy import getattr_with_hints as _refusing

__all__ = ["backends"]
__getattr__ = _refusing(__name__)


def backends() -> dict[str, Any]:
    """The clients that the process has made so far. Devices that nxjax computes on itself have none."""
    return {name: client for name, client in made_clients().items() if name in ("cpu", "gpu", "tpu")}
