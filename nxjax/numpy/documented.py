"""Docstrings of the faces' functions: calls that show them. Knows none of these functions."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from nxjax.trace.core import Array

F = TypeVar("F", bound=Callable[..., Any])
# Errors of many functions, in the words of their docstrings.
COMPLEX = "DtypeError: complex input."
TWO_AXES = "ShapeError: fewer than two axes."
# Package -> what stands before the name of its functions.
_FACES = {"nxjax.numpy": "jnp.", "nxjax.lax": "lax.", "nxjax.random": "nx.random."}
# Files whose functions are those of a part of the face.
_PARTS = {"linalg": "linalg.", "matrix_products": "linalg.", "norms": "linalg.", "fft": "fft."}


def _with_rows(doc: str, rows: tuple[str, ...]) -> str:
    """A docstring, and behind it statements with what they print."""
    lines = (f">>> {x}\n" if i % 2 == 0 else f"{x}\n" for i, x in enumerate(rows) if x)
    return f"{doc}\n\n{''.join(lines)}"


def with_calls(doc: str, module: str, name: str, calls: tuple[str, ...], then: str = "") -> str:
    """A docstring, and behind it calls of a function of ``module``."""
    package, _, file = module.rpartition(".")
    face = _FACES.get(package, "")
    home = face and face + _PARTS.get(file, "")
    rows = (f"{home}{name}({x}){then}" if i % 2 == 0 else x for i, x in enumerate(calls))
    return _with_rows(inspect.cleandoc(doc), tuple(rows))


def _with_error(doc: str | None, raises: str) -> str:
    errors = f"\n\nRaises:\n    {raises}" if raises else ""
    return inspect.cleandoc(doc or "") + errors


def example(*calls: str, then: str = "", raises: str = "") -> Callable[[F], F]:
    """Decorator that shows calls of a function in its docstring.

    Args:
        calls: for each what stands between the parentheses, and then the representation of the result.
        then: what is asked of the result, such as ``.shape``.
        raises: the one error that the function raises, and when.
    """

    def complete(function: F) -> F:
        doc = _with_error(function.__doc__, raises)
        function.__doc__ = with_calls(doc, function.__module__, function.__name__, calls, then)
        return function

    return complete


def shown(*rows: str, raises: str = "") -> Callable[[F], F]:
    """As `example`, of what is no plain call: for each the statement, and then what it prints, if anything."""

    def complete(function: F) -> F:
        function.__doc__ = _with_rows(_with_error(function.__doc__, raises), rows)
        return function

    return complete


def taking(names: Sequence[str], function: F, positional: bool = False) -> F:
    """``function`` of so many operands as one whose parameters have ``names``, which calls may use."""
    kind = inspect.Parameter.POSITIONAL_ONLY if positional else inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(name, kind, annotation="ArrayLike") for name in names]
    signature = inspect.Signature(parameters, return_annotation="Array")

    def made(*xs: Any, **others: Any) -> Array:
        plain = len(xs) == len(names) and not others
        return function(*(xs if plain else signature.bind(*xs, **others).args))

    found: Any = made
    found.__signature__ = signature
    found.__module__ = function.__module__
    return found


def named(name: str, doc: str, *calls: str) -> Callable[[F], F]:
    """Decorator for functions that a factory makes: their public name, docstring, and calls with what they print."""

    def mark(function: F) -> F:
        function.__name__ = function.__qualname__ = name
        function.__doc__ = with_calls(doc, function.__module__, name, calls) if calls else doc
        return function

    return mark
