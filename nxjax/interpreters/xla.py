"""`jax.interpreters.xla`: how values of a class become arrays. Here they do by NumPy's protocols, whatever is set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax.trace.lazy import getattr_with_hints as _refusing

__all__ = ["canonicalize_dtype_handlers"]
__getattr__ = _refusing(__name__)

# A class -> what makes an array of its values. Libraries copy the entry of NumPy's arrays for classes of their own.
canonicalize_dtype_handlers: dict[type, Callable[[Any], Any]] = {np.ndarray: np.asarray}
