"""The methods of an array that are functions of the face: ``x.sum(axis)`` is ``nx.numpy.sum(x, axis)``.

A method is made of its function when it is first asked for, and has its parameters; the function's file is loaded
then. Those that differ in their parameters, as in JAX, are written out. The file must not know what the functions do.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from nxjax import numpy as jnp
from nxjax.trace.core import Array

_SAME = """
    all any argmax argmin argpartition choose conj conjugate cumprod cumsum diagonal max mean min nonzero prod ptp ravel
    repeat round searchsorted sort squeeze sum swapaxes take trace
"""


def argsort(
    self: Any,
    axis: int | None = -1,
    *,
    kind: None = None,
    order: None = None,
    stable: bool = True,
    descending: bool = False,
) -> Any:
    return jnp.argsort(self, axis, kind=kind, order=order, stable=stable, descending=descending)


def clip(self: Any, min: Any = None, max: Any = None) -> Any:
    return jnp.clip(self, min, max)


def compress(
    self: Any,
    condition: Any,
    axis: int | None = None,
    *,
    out: None = None,
    size: int | None = None,
    fill_value: Any = 0,
) -> Any:
    return jnp.compress(condition, self, axis, out=out, size=size, fill_value=fill_value)


def dot(self: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    return jnp.dot(self, b, precision=precision, preferred_element_type=preferred_element_type)


def _moment(name: str) -> Any:
    def method(
        self: Any,
        axis: Any = None,
        dtype: Any = None,
        out: None = None,
        ddof: int = 0,
        keepdims: bool = False,
        *,
        where: Any = None,
        correction: float | None = None,
    ) -> Any:
        return getattr(jnp, name)(self, axis, dtype, out, ddof, keepdims, where=where, correction=correction)

    method.__name__ = name
    return method


class _Method:
    """Stands for a method until it is asked for."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, x: Any, owner: Any = None) -> Any:
        function = getattr(jnp, self.name)
        method: Any = FunctionType(
            function.__code__, function.__globals__, self.name, function.__defaults__, function.__closure__
        )
        method.__kwdefaults__ = function.__kwdefaults__
        signature = inspect.signature(function)
        first, *others = signature.parameters.values()
        first = first.replace(name="self", kind=first.POSITIONAL_OR_KEYWORD)
        method.__signature__ = signature.replace(parameters=[first, *others])
        setattr(Array, self.name, _labelled(method))
        return getattr(Array if x is None else x, self.name)


def _labelled(method: Any) -> Any:
    """Named as what it is attached to."""
    method.__module__, method.__qualname__ = "nxjax.trace.core", f"Array.{method.__name__}"
    method.__doc__ = f"As `nx.numpy.{method.__name__}` of this array."
    return method


def members() -> dict[str, Any]:
    """The methods by name."""
    written = (argsort, clip, compress, dot, _moment("std"), _moment("var"))
    return {name: _Method(name) for name in _SAME.split()} | {f.__name__: _labelled(f) for f in written}
