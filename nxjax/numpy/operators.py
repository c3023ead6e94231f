"""Python's operators on arrays.

Two concrete arrays (or an array and a Python number) of one plain dtype take the short way of `eager`. Everything
else, tracers above all, goes through the functions of the face.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.eager import BITS, COMPARED, FLOATS, NUMBERS, binary, product, unary
from nxjax.trace.array import DeviceArray
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType

_OPERAND: Final = (bool, int, float, complex, np.ndarray, np.generic)


def _accepts(x: Any) -> bool:
    """Whether an operator takes ``x``; for anything else Python asks the other operand."""
    return isinstance(x, (Array, *_OPERAND)) or hasattr(x, "__jax_array__") or hasattr(x, "__nx_array__")


def _refused(symbol: str, x: Any) -> None:
    if isinstance(x, (list, tuple, dict, set)):
        raise TypeError(
            f"{symbol}: unsupported operand type {type(x).__name__}; convert sequences with nx.array(...) first"
        )


def _binary(symbol: str, name: str, ufunc: Any = None, allowed: frozenset[DType] = NUMBERS) -> tuple[Any, Any]:
    """The operator and its reflection, calling the face's function ``name``."""
    compares = symbol in ("<", "<=", ">", ">=", "==", "!=")

    def slow(a: Any, b: Any, other: Any) -> Any:
        if not _accepts(other):
            _refused(symbol, other)
            return NotImplemented
        return getattr(jnp, name)(a, b)

    if ufunc is None:

        def forward(self: Any, other: Any) -> Any:
            return slow(self, other, other)
    else:

        def forward(self: Any, other: Any) -> Any:
            if type(self) is DeviceArray:
                y = binary(self, other, ufunc, allowed, compares)
                if y is not None:
                    return y
            return slow(self, other, other)

    def reflected(self: Any, other: Any) -> Any:
        if ufunc is not None and type(self) is DeviceArray:
            y = binary(self, other, ufunc, allowed, compares, True)
            if y is not None:
                return y
        return slow(other, self, other)

    return forward, reflected


def _unary(name: str, ufunc: Any = None) -> Any:
    def method(self: Any) -> Any:
        if ufunc is not None and type(self) is DeviceArray:
            y = unary(self, ufunc, NUMBERS)
            if y is not None:
                return y
        return getattr(jnp, name)(self)

    return method


def _matmul(self: Any, other: Any) -> Any:
    y = product(self, other)
    return y if y is not None else _slow_matmul(self, other)


_slow_matmul, _rmatmul = _binary("@", "matmul")


def _equality(symbol: str, name: str, ufunc: Any) -> Any:
    forward, _ = _binary(symbol, name, ufunc, COMPARED)

    def method(self: Any, other: Any) -> Any:
        if other is None or isinstance(other, str):
            return NotImplemented
        return forward(self, other)

    return method


def _divmod(self: Any, other: Any) -> Any:
    return jnp.divmod(self, other) if _accepts(other) else NotImplemented


def _rdivmod(self: Any, other: Any) -> Any:
    return jnp.divmod(other, self) if _accepts(other) else NotImplemented


def _pow(self: Any, other: Any) -> Any:
    if not _accepts(other):
        _refused("**", other)
        return NotImplemented
    return jnp.power(self, other)


def _rpow(self: Any, other: Any) -> Any:
    return jnp.power(other, self) if _accepts(other) else NotImplemented


def operators() -> dict[str, Any]:
    """Method name -> function, for every operator."""
    table: dict[str, Any] = {"__pow__": _pow, "__rpow__": _rpow, "__divmod__": _divmod, "__rdivmod__": _rdivmod}
    table["__matmul__"], table["__rmatmul__"] = _matmul, _rmatmul
    for method, symbol, name, ufunc, allowed in (
        ("add", "+", "add", np.add, COMPARED),
        ("sub", "-", "subtract", np.subtract, NUMBERS),
        ("mul", "*", "multiply", np.multiply, COMPARED),
        ("truediv", "/", "divide", np.true_divide, FLOATS),
        ("floordiv", "//", "floor_divide", None, NUMBERS),
        ("mod", "%", "remainder", None, NUMBERS),
        ("and", "&", "bitwise_and", np.bitwise_and, BITS),
        ("or", "|", "bitwise_or", np.bitwise_or, BITS),
        ("xor", "^", "bitwise_xor", np.bitwise_xor, BITS),
        ("lshift", "<<", "left_shift", None, BITS),
        ("rshift", ">>", "right_shift", None, BITS),
    ):
        forward, reflected = _binary(symbol, name, ufunc, allowed)
        table[f"__{method}__"], table[f"__r{method}__"] = forward, reflected
    for method, symbol, name, ufunc in (
        ("lt", "<", "less", np.less),
        ("le", "<=", "less_equal", np.less_equal),
        ("gt", ">", "greater", np.greater),
        ("ge", ">=", "greater_equal", np.greater_equal),
    ):
        table[f"__{method}__"] = _binary(symbol, name, ufunc, COMPARED)[0]
    table["__eq__"] = _equality("==", "equal", np.equal)
    table["__ne__"] = _equality("!=", "not_equal", np.not_equal)
    for method, name, ufunc in (
        ("neg", "negative", np.negative),
        ("pos", "positive", None),
        ("abs", "absolute", np.abs),
        ("invert", "bitwise_not", None),
    ):
        table[f"__{method}__"] = _unary(name, ufunc)
    for method, function in table.items():
        function.__name__ = method
        function.__qualname__ = f"Array.{method}"
    return table
