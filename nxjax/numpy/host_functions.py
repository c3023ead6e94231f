"""Functions of arrays that are known while a program is written: NumPy's, or kernels' under `config.reproducible`.

The last bits of NumPy's functions hang on the processor that it finds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax.config import config
from nxjax.ops import vocabulary as ops
from nxjax.trace.array import wrap
from nxjax.trace.core import Op
from nxjax.trace.stage import evaluating_eagerly

NDArray = np.ndarray[Any, Any]


def _known(op: Op, *xs: NDArray) -> NDArray:
    with evaluating_eagerly():
        found: Any = op(*map(wrap, xs))
        return found.numpy()


def sin(x: NDArray) -> NDArray:
    """Of floats."""
    return _known(ops.sin, x) if config.reproducible else np.sin(x)


def cos(x: NDArray) -> NDArray:
    """Of floats."""
    return _known(ops.cos, x) if config.reproducible else np.cos(x)


def power(x: NDArray, y: NDArray) -> NDArray:
    """Of floats of one shape."""
    return _known(ops.pow, x, y) if config.reproducible else np.power(x, y)
