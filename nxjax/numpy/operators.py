"""Python's operators on arrays.

Two concrete arrays (or an array and a Python number) of one plain dtype meet NumPy directly: the same ufunc that the
op's `eval` would call, without the way through trace and executor, because eager arithmetic must cost little more than
NumPy's own. Everything else, tracers above all, goes through the functions of the face.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from nxjax.trace import dtypes
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import EVAL, Array, current_trace
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType

_FLOATS: Final = frozenset((dtypes.float32, dtypes.float64, dtypes.float16))
_INTEGERS: Final = frozenset((dtypes.int32, dtypes.int64, dtypes.uint8, dtypes.int8, dtypes.uint32))
_NUMBERS: Final = _FLOATS | _INTEGERS
_BITS: Final = _INTEGERS | {dtypes.bool_}
_COMPARED: Final = _NUMBERS | {dtypes.bool_}
_bool: Final = dtypes.bool_


class _Quiet(threading.local):
    """A context in which NumPy does not warn; entering it is cheaper than `np.errstate` by far."""

    def __init__(self) -> None:
        context = contextvars.Context()
        context.run(np.seterr, all="ignore")
        self.run: Callable[..., Any] = context.run


_quiet: Final = _Quiet()


def _eager(a: DeviceArray, b: Any, ufunc: Any, allowed: frozenset[DType], compares: bool) -> Any:
    """``ufunc(a, b)`` where that is the whole meaning, else None."""
    ta = a.type
    dtype = ta.dtype
    kind = type(b)
    if kind is DeviceArray:
        tb: ArrayType = b.type
        if tb.dtype is not dtype or a.device is not b.device:
            return None
        right = b._data
        if right is None:
            right = b.numpy()
    elif kind is float:
        if dtype not in _FLOATS:
            return None
        tb = ta
        right = b
    elif kind is int:
        tb = ta
        right = b
    else:
        return None
    if dtype not in allowed or current_trace() is not EVAL:
        return None
    left = a._data
    if left is None:
        left = a.numpy()
    try:
        y = _quiet.run(ufunc, left, right)
    except (ValueError, OverflowError):
        return None
    if type(y) is not np.ndarray:
        y = np.asarray(y)
    if compares:
        return DeviceArray(y, ArrayType(y.shape, _bool), None, a.device)
    if ta.weak and not tb.weak:
        ta = tb
    return DeviceArray(y, ta if ta.shape == y.shape else ArrayType(y.shape, dtype, ta.weak), None, a.device)


_OPERAND: Final = (bool, int, float, complex, np.ndarray, np.generic)


def _accepts(x: Any) -> bool:
    """Whether an operator takes ``x``; for anything else Python asks the other operand."""
    return isinstance(x, (Array, *_OPERAND)) or hasattr(x, "__jax_array__") or hasattr(x, "__nx_array__")


def _refused(symbol: str, x: Any) -> None:
    if isinstance(x, (list, tuple, dict, set)):
        raise TypeError(
            f"{symbol}: unsupported operand type {type(x).__name__}; convert sequences with nx.array(...) first"
        )


def _binary(symbol: str, name: str, ufunc: Any = None, allowed: frozenset[DType] = _NUMBERS) -> tuple[Any, Any]:
    """The operator and its reflection, calling the face's function ``name``."""
    compares = symbol in ("<", "<=", ">", ">=", "==", "!=")

    def slow(a: Any, b: Any, other: Any) -> Any:
        if not _accepts(other):
            _refused(symbol, other)
            return NotImplemented
        from nxjax import numpy as face

        return getattr(face, name)(a, b)

    if ufunc is None:

        def forward(self: Any, other: Any) -> Any:
            return slow(self, other, other)
    else:

        def forward(self: Any, other: Any) -> Any:
            if type(self) is DeviceArray:
                y = _eager(self, other, ufunc, allowed, compares)
                if y is not None:
                    return y
            return slow(self, other, other)

    swapped = None if ufunc is None else _swapped(ufunc)

    def reflected(self: Any, other: Any) -> Any:
        if swapped is not None and type(self) is DeviceArray:
            y = _eager(self, other, swapped, allowed, compares)
            if y is not None:
                return y
        return slow(other, self, other)

    return forward, reflected


def _swapped(ufunc: Any) -> Any:
    return lambda x, y: ufunc(y, x)


def _unary(name: str) -> Any:
    def method(self: Any) -> Any:
        from nxjax import numpy as face

        return getattr(face, name)(self)

    return method


def _equality(symbol: str, name: str, ufunc: Any) -> Any:
    forward, _ = _binary(symbol, name, ufunc, _COMPARED)

    def method(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return forward(self, other)

    return method


def _divmod(self: Any, other: Any) -> Any:
    from nxjax import numpy as face

    return face.divmod(self, other) if _accepts(other) else NotImplemented


def _rdivmod(self: Any, other: Any) -> Any:
    from nxjax import numpy as face

    return face.divmod(other, self) if _accepts(other) else NotImplemented


def _pow(self: Any, other: Any) -> Any:
    from nxjax.numpy.floats import power

    if not _accepts(other):
        _refused("**", other)
        return NotImplemented
    return power(self, other)


def _rpow(self: Any, other: Any) -> Any:
    from nxjax.numpy.floats import power

    return power(other, self) if _accepts(other) else NotImplemented


def operators() -> dict[str, Any]:
    """Method name -> function, for every operator."""
    table: dict[str, Any] = {"__pow__": _pow, "__rpow__": _rpow, "__divmod__": _divmod, "__rdivmod__": _rdivmod}
    for method, symbol, name, ufunc, allowed in (
        ("add", "+", "add", np.add, _COMPARED),
        ("sub", "-", "subtract", np.subtract, _NUMBERS),
        ("mul", "*", "multiply", np.multiply, _COMPARED),
        ("truediv", "/", "divide", np.true_divide, _FLOATS),
        ("floordiv", "//", "floor_divide", None, _NUMBERS),
        ("mod", "%", "remainder", None, _NUMBERS),
        ("matmul", "@", "matmul", None, _NUMBERS),
        ("and", "&", "bitwise_and", np.bitwise_and, _BITS),
        ("or", "|", "bitwise_or", np.bitwise_or, _BITS),
        ("xor", "^", "bitwise_xor", np.bitwise_xor, _BITS),
        ("lshift", "<<", "left_shift", None, _BITS),
        ("rshift", ">>", "right_shift", None, _BITS),
    ):
        forward, reflected = _binary(symbol, name, ufunc, allowed)
        table[f"__{method}__"], table[f"__r{method}__"] = forward, reflected
    for method, symbol, name, ufunc in (
        ("lt", "<", "less", np.less),
        ("le", "<=", "less_equal", np.less_equal),
        ("gt", ">", "greater", np.greater),
        ("ge", ">=", "greater_equal", np.greater_equal),
    ):
        table[f"__{method}__"] = _binary(symbol, name, ufunc, _COMPARED)[0]
    table["__eq__"] = _equality("==", "equal", np.equal)
    table["__ne__"] = _equality("!=", "not_equal", np.not_equal)
    for method, name in (
        ("neg", "negative"),
        ("pos", "positive"),
        ("abs", "absolute"),
        ("invert", "bitwise_not"),
    ):
        table[f"__{method}__"] = _unary(name)
    for method, function in table.items():
        function.__name__ = method
        function.__qualname__ = f"Array.{method}"
    return table
