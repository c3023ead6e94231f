"""Classes whose instances op parameters may hold. Knows nothing of programs; `text` prints and parses them."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Final, TypeVar

C = TypeVar("C", bound=type)
PARAM_CLASSES: Final[dict[str, Any]] = {}


class Printed:
    """A parameter that is printed as a call of its class."""

    __slots__ = ()
    param_name: ClassVar[str]  # the name of the class

    @abstractmethod
    def param_fields(self, canonical: bool) -> dict[str, Any]:
        """The arguments that make an equal instance. Canonical: with everything else that values differ in."""


def param_class(cls: C) -> C:
    """Class decorator: a class whose instances op parameters may hold, so that the parser knows it.

    A frozen dataclass, an enum, or a `Printed`.
    """
    PARAM_CLASSES[cls.__name__] = cls
    return cls
