"""The short way for concrete arrays of plain dtypes: the ufunc that an op's `eval` would call, called at once.

Eager arithmetic must cost little more than NumPy's own, so it does not go through trace and executor where nothing is
being traced and the dtypes need no promotion. Every function here gives None when it is not sure; the caller then
takes the general way, which also says what is wrong with the operands.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax.config import current_settings
from nxjax.trace import dtypes
from nxjax.trace.array import DEEP, LARGE, DeviceArray
from nxjax.trace.core import EVAL, current_trace
from nxjax.trace.dtypes import DType
from nxjax.trace.sums import BLOCK, blocked_sum
from nxjax.trace.types import ArrayType

FLOATS: Final = frozenset((dtypes.float32, dtypes.float64, dtypes.float16))
INTEGERS: Final = frozenset((dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.int8, dtypes.uint32))
NUMBERS: Final = FLOATS | INTEGERS
BITS: Final = INTEGERS | {dtypes.bool_}
COMPARED: Final = NUMBERS | {dtypes.bool_}
WIDE: Final = frozenset((dtypes.float32, dtypes.float64))
_bool: Final = dtypes.bool_
# Of large arrays the general way has compiled kernels for these, which take less time than NumPy.
_COMPILED: Final = frozenset((np.exp, np.exp2))
# The trace under which the short way is open; `close` has another in its place, that is never the current one.
_open: Any = EVAL


def close(closed: bool) -> None:
    """Have every call take the general way, where a watcher sees it and the shortcut "eager ufunc" is not allowed."""
    global _open
    _open = None if closed else EVAL


class _NoWarnings(threading.local):
    """A context in which NumPy does not warn; entering it is cheaper than `np.errstate` by far."""

    def __init__(self) -> None:
        context = contextvars.Context()
        context.run(np.seterr, all="ignore")
        self.run: Callable[..., Any] = context.run


_no_warnings: Final = _NoWarnings()


def _is_uncommitted(x: Any) -> bool:
    """Whether ``x`` is a concrete array that was put nowhere."""
    return type(x) is DeviceArray and x.place is None


def binary(
    a: DeviceArray, b: Any, ufunc: Any, allowed: frozenset[DType], compares: bool, reflected: bool = False
) -> Any:
    """``ufunc(a, b)``, or of ``reflected`` operands ``ufunc(b, a)``, where that is the whole meaning, else None."""
    ta = a.type
    dtype = ta.dtype
    kind = type(b)
    if kind is DeviceArray:
        tb: ArrayType = b.type
        if tb.dtype is not dtype or b.place is not None:
            return None
        right = b._data
        if right is None:
            right = b.numpy()
    elif kind is float:
        if dtype not in FLOATS:
            return None
        tb = ta
        right = b
    elif kind is int:
        if dtype is _bool and not compares:  # which becomes an integer
            return None
        tb = ta
        right = b
    else:
        return None
    if dtype not in allowed or a.place is not None or current_trace() is not _open:
        return None
    left = a._data
    if left is None:
        left = a.numpy()
    if dtype is dtypes.float16 and left.size >= LARGE:
        return None
    try:
        y = _no_warnings.run(ufunc, right, left) if reflected else _no_warnings.run(ufunc, left, right)
    except (ValueError, OverflowError):
        return None
    if type(y) is not np.ndarray:
        y = np.asarray(y)
    if compares:
        return DeviceArray(y, ArrayType(y.shape, _bool))
    if ta.weak and not tb.weak:
        ta = tb
    return DeviceArray(y, ta if ta.shape == y.shape else ArrayType(y.shape, dtype, ta.weak))


def unary(a: DeviceArray, ufunc: Any, allowed: frozenset[DType]) -> Any:
    """``ufunc(a)``, of the type of ``a``, where that is the whole meaning."""
    if a.type.dtype not in allowed or a.place is not None or current_trace() is not _open:
        return None
    x = a._data
    if x is None:
        x = a.numpy()
    if x.size >= LARGE and ufunc in _COMPILED:
        return None
    y = _no_warnings.run(ufunc, x)
    return DeviceArray(y if type(y) is np.ndarray else np.asarray(y), a.type)


def reduction(a: Any, ufunc: Any, axis: Any, keepdims: bool) -> Any:
    """``ufunc.reduce`` of a float array, of its strong dtype."""
    if not _is_uncommitted(a) or a.type.dtype not in WIDE or a.type.weak or current_trace() is not _open:
        return None
    # NumPy takes axis 0 of a number.
    if axis is not None and (type(axis) is not int or not a.type.shape):
        return None
    x = a.numpy()
    if x.size >= LARGE:
        return None
    try:
        many = (x.size if axis is None else x.shape[axis]) > 2 * BLOCK
        if many and ufunc is np.add and not (axis is None and x.flags.forc):
            y = _no_warnings.run(blocked_sum, x, tuple(range(x.ndim)) if axis is None else (range(x.ndim)[axis],))
            y = y.reshape([1 if axis in (None, i, i - x.ndim) else n for i, n in enumerate(x.shape)]) if keepdims else y
        else:
            y = _no_warnings.run(ufunc.reduce, x, axis, None, None, keepdims)
    except (IndexError, ValueError):
        return None
    y = y if type(y) is np.ndarray else np.asarray(y)
    if y.size == x.size:  # NumPy adds even a single element to 0, which makes 0 of -0
        y = x.reshape(y.shape).copy()
    return DeviceArray(y, ArrayType(y.shape, a.type.dtype))


def product(a: Any, b: Any) -> Any:
    """``a @ b`` of float matrices and vectors."""
    if not _is_uncommitted(a) or not _is_uncommitted(b) or current_trace() is not _open:
        return None
    ta, tb = a.type, b.type
    if ta.dtype is not tb.dtype or ta.dtype not in WIDE:
        return None
    if not 1 <= len(ta.shape) <= 2 or not 1 <= len(tb.shape) <= 2 or ta.shape[-1] >= 2 * DEEP:
        return None
    if current_settings().default_matmul_precision is not None:
        return None
    try:
        y = _no_warnings.run(np.matmul, a.numpy(), b.numpy())
    except ValueError:
        return None
    y = y if type(y) is np.ndarray else np.asarray(y)
    return DeviceArray(y, ArrayType(y.shape, ta.dtype, ta.weak and tb.weak))


def _scalar_like(x: Any, other: Any) -> Any:
    """``x``; a Python float as an array of the dtype that a float array beside it has."""
    if type(x) is not float or type(other) is not DeviceArray or other.type.dtype not in FLOATS:
        return x
    dtype = other.type.dtype
    return DeviceArray(_no_warnings.run(np.asarray, x, dtype), ArrayType((), dtype, True))


def choice(c: Any, a: Any, b: Any) -> Any:
    """``a`` where ``c`` holds, else ``b``."""
    a, b = _scalar_like(a, b), _scalar_like(b, a)
    if not _is_uncommitted(c) or not _is_uncommitted(a) or not _is_uncommitted(b):
        return None
    ta, tb = a.type, b.type
    if ta.dtype is not tb.dtype or c.type.dtype is not _bool or current_trace() is not _open:
        return None
    try:
        y = np.where(c.numpy(), a.numpy(), b.numpy())
    except ValueError:
        return None
    return DeviceArray(y, ArrayType(y.shape, ta.dtype, ta.weak and tb.weak))
