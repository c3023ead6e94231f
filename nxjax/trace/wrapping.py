"""What a function that stands for another takes from it: its name, docstring and signature. Knows no transform."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, NoneType
from typing import Any, Final, TypeVar

F = TypeVar("F", bound=Callable[..., Any])
# What an attribute must be to be taken; the others are text.
_KINDS: Final = {
    "__doc__": (str, NoneType),
    "__annotations__": dict,
    "__annotate__": (FunctionType, NoneType),
    "__type_params__": tuple,
}


def name_of(fun: Any, default: str = "function") -> str:
    """The name of a callable. Objects may have none, or have something else for `__name__`."""
    name = getattr(fun, "__name__", default)
    return name if isinstance(name, str) else default


def wraps(fun: Any) -> Callable[[F], F]:
    """`functools.wraps` of any callable, also of an object whose `__name__` or `__doc__` is not text.

    >>> class Scale:
    ...     __name__ = 3
    ...     def __call__(self, x):
    ...         return 2 * x
    >>> wraps(Scale())(lambda x: x).__name__
    '<lambda>'
    """
    taken = [a for a in functools.WRAPPER_ASSIGNMENTS if isinstance(getattr(fun, a, ...), _KINDS.get(a, str))]
    return lambda wrapper: functools.update_wrapper(wrapper, fun, assigned=taken)  # pyright: ignore[reportReturnType]
