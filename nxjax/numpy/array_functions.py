"""The methods of an array that are functions of the face: ``x.sum(axis)`` is ``nx.numpy.sum(x, axis)``.

A method is made of its function when it is first asked for, and has its parameters; the function's file is loaded
then. `compress`, whose first operand is another one, is written out. The file must not know what the functions do.
"""

from __future__ import annotations

import inspect
from types import FunctionType
from typing import Any

from nxjax import numpy as jnp
from nxjax.trace.core import Array

_SAME = """
    all any argmax argmin argpartition argsort choose clip conj conjugate cumprod cumsum diagonal dot max mean min
    nonzero prod ptp ravel repeat round searchsorted sort squeeze std sum swapaxes take trace var
"""
# Parameters of functions that JAX's methods do not name.
_UNNAMED = {"argsort": "dtype", "clip": "a a_min a_max", "dot": "out_sharding", "std": "mean", "var": "mean"}


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
        unnamed = _UNNAMED.get(self.name, "").split()
        first, *others = (p for p in signature.parameters.values() if p.name not in unnamed)
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
    return {name: _Method(name) for name in _SAME.split()} | {"compress": _labelled(compress)}
