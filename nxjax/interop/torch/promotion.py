"""PyTorch's dtype rules: what arrays, zero-dimensional arrays and Python numbers become together.

Python numbers are of the weakest kind, arrays without dimensions of the next; a higher category (bool, integers,
floats, complex numbers) wins in any case.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.trace import dtypes
from nxjax.trace.core import Array

_PYTHON: Final[dict[type, Any]] = {
    bool: dtypes.bool_, int: dtypes.int64, float: dtypes.float32, complex: dtypes.complex64,
}  # fmt: skip
_WIDER: Final[dict[Any, Any]] = {dtypes.float64: dtypes.complex128}


def category(dtype: Any) -> int:
    """0 for bool, 1 for integers, 2 for floats, 3 for complex numbers."""
    if dtype == dtypes.bool_:
        return 0
    return 1 if dtype in dtypes.INTEGER else 2 if dtype in dtypes.FLOAT else 3


def promoted(a: Any, b: Any) -> Any:
    """What two dtypes of arrays become."""
    if a == b:
        return a
    if category(a) != category(b):
        low, high = sorted((a, b), key=category)
        if category(high) == 3 and category(low) == 2:
            return np.promote_types(high, _WIDER.get(low, dtypes.complex64))
        return high
    if category(a) == 2 and a.itemsize == b.itemsize:
        return dtypes.float32  # float16 and bfloat16
    if category(a) == 2:
        return a if a.itemsize > b.itemsize else b
    return np.promote_types(a, b)


def result_dtype(*xs: Any) -> Any:
    """The dtype that operands are computed in."""
    groups: list[Any] = [None, None, None]  # arrays, arrays without dimensions, numbers
    for x in xs:
        if isinstance(x, (Array, np.ndarray)):
            place, dtype = (0 if x.ndim else 1), x.dtype
        elif x is None:
            continue
        else:
            kind = next((t for t in _PYTHON if isinstance(x, t)), None)
            if kind is None:
                raise TypeError(f"{type(x).__name__} is no number")
            place, dtype = 2, _PYTHON[kind]
        groups[place] = dtype if groups[place] is None else promoted(groups[place], dtype)
    found: Any = None
    for dtype in groups:
        if dtype is None:
            continue
        if found is None:
            found = dtype
        elif category(dtype) > category(found):
            # A float of a wider complex number stays as precise as it was.
            found = promoted(found, dtype) if category(dtype) == 3 else dtype
    return found


def together(*xs: Any, floating: bool = False) -> list[Any]:
    """Operands in the dtype that they are computed in; ``floating``: whole numbers become the default float."""
    dtype = result_dtype(*xs)
    if floating and category(dtype) < 2:
        dtype = dtypes.float32
    return [in_dtype(x, dtype) for x in xs]


def in_dtype(x: Any, dtype: Any) -> Any:
    """An array or number in a dtype; None stays."""
    if x is None:
        return None
    if isinstance(x, Array):
        return x if x.dtype == dtype and not x.type.weak else x.astype(dtype)
    # An integer that does not fit wraps around.
    return jnp.asarray(np.asarray(x).astype(dtype))


def floated(x: Any) -> Any:
    """An operand of a function of floats."""
    return x if category(x.dtype) >= 2 else x.astype(dtypes.float32)


def widened(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of one float array that computes in float32 what is narrower, as torch's kernels do."""

    def run(x: Any, *args: Any, **kwargs: Any) -> Any:
        if x.dtype in dtypes.NARROW:
            return function(x.astype(dtypes.float32), *args, **kwargs).astype(x.dtype)
        return function(x, *args, **kwargs)

    return run
