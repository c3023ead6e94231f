"""`jax.dlpack`: arrays of other libraries, without a copy where both sides can."""

from typing import Any

import numpy as np

from nxjax.numpy import from_dlpack as from_dlpack
from nxjax.trace import dtypes as _dtypes

# What `__dlpack__` of a NumPy array can say.
_KINDS = "biufc"


def is_supported_dtype(dtype: Any) -> bool:
    """Whether arrays of ``dtype`` can be handed on by DLPack.

    >>> is_supported_dtype("float32"), is_supported_dtype("int4")
    (True, False)
    """
    found = np.dtype(_dtypes.as_dtype(dtype))
    return found.kind in _KINDS and found.isbuiltin == 1


__all__ = ["from_dlpack", "is_supported_dtype"]
