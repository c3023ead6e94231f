"""Classes whose instances op parameters may hold. Knows nothing of programs; `text` prints and parses them."""

from __future__ import annotations

from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)
PARAM_CLASSES: Final[dict[str, Any]] = {}


def param_class(cls: C) -> C:
    """Class decorator: a class whose instances op parameters may hold, so that the parser knows it.

    A frozen dataclass, an enum, or a class with ``param_name`` and ``param_fields(canonical)``: the name of the class
    and the arguments that make an equal instance. Canonical fields also hold everything else that values differ in.
    """
    PARAM_CLASSES[cls.__name__] = cls
    return cls
