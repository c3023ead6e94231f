"""Types for annotations, as `jax.typing`: what is accepted where an array, a dtype or a shape is asked for."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from nxjax.trace.core import Array

ArrayLike: TypeAlias = Array | np.ndarray[Any, Any] | np.generic | bool | int | float | complex
DTypeLike: TypeAlias = str | type | np.dtype[Any]
Shape: TypeAlias = Sequence[int]

__all__ = ["ArrayLike", "DTypeLike", "Shape"]
