"""Docstrings of the faces' functions: calls that show them. Knows none of these functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
# Errors of many functions, in the words of their docstrings.
COMPLEX = "DtypeError: complex input."
TWO_AXES = "ShapeError: fewer than two axes."
_IMPORTS = {
    "nxjax.numpy": ("jnp.", ">>> import nxjax.numpy as jnp\n"),
    "nxjax.lax": ("lax.", ">>> from nxjax import lax, numpy as jnp\n"),
}


def with_calls(doc: str, module: str, name: str, calls: tuple[str, ...], then: str = "") -> str:
    """A docstring, and behind it calls of a function of ``module``."""
    package, _, file = module.rpartition(".")
    face, imports = _IMPORTS.get(package, ("", ""))
    home = f"{face}{file}." if face and file in ("linalg", "fft") else face
    lines = (f">>> {home}{name}({args}){then}\n{shown}\n" for args, shown in zip(calls[::2], calls[1::2], strict=True))
    return f"{inspect.cleandoc(doc)}\n\n{imports}{''.join(lines)}"


def example(*calls: str, then: str = "", raises: str = "") -> Callable[[F], F]:
    """Decorator that shows calls of a function in its docstring.

    Args:
        calls: for each what stands between the parentheses, and then the representation of the result.
        then: what is asked of the result, such as ``.shape``.
        raises: the one error that the function raises, and when.
    """
    errors = f"\n\nRaises:\n    {raises}" if raises else ""

    def complete(function: F) -> F:
        doc = inspect.cleandoc(function.__doc__ or "") + errors
        function.__doc__ = with_calls(doc, function.__module__, function.__name__, calls, then)
        return function

    return complete


def named(name: str, doc: str, *calls: str) -> Callable[[F], F]:
    """Decorator for functions that a factory makes: their public name, docstring, and calls with what they print."""

    def mark(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = with_calls(doc, function.__module__, name, calls) if calls else doc
        return function

    return mark
