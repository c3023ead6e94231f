"""`jax.experimental.hijax`: the names by which libraries define types and primitives above arrays.

Classes can be defined by them. Values of such types cannot be traced here: whatever would make one is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from nxjax.core import AbstractValue
from nxjax.errors import LoweringError
from nxjax.interpreters.ad import Zero, instantiate_zeros, is_undefined_primal

__all__ = [
    "QDD",
    "AbstractValue",
    "AvalMutableQDD",
    "AvalQDD",
    "HiPrimitive",
    "HiType",
    "MutableHiType",
    "Zero",
    "aval_method",
    "aval_property",
    "control_flow_allowed_effects",
    "instantiate_zeros",
    "is_undefined_primal",
    "register_hitype",
]


def _refuse(what: str) -> NoReturn:
    raise LoweringError(
        f"hijax: {what}",
        got="a type above arrays",
        expected="arrays and trees of them",
        fix="use the library without hijax: flax.nnx does, unless nnx.use_hijax(True) was called",
    )


class HiType:
    """A type above arrays."""


class MutableHiType(HiType):
    """A type of what changes in place."""


class HiPrimitive:
    """A primitive on values of such types.

    >>> try:
    ...     HiPrimitive("new").bind(1.0)
    ... except NotImplementedError as error:
    ...     print(str(error).splitlines()[0])
    hijax: the primitive 'new' cannot be bound
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def bind(self, *args: Any, **params: Any) -> Any:
        _refuse(f"the primitive {self.name!r} cannot be bound")


class QDD:
    """What of a type depends on the data."""


class AvalQDD:
    """A type with what depends on the data."""

    def __init__(self, aval: Any, qdd: Any) -> None:
        _refuse("such a value cannot be made")


class AvalMutableQDD(AvalQDD):
    """As `AvalQDD`, of what changes in place."""


class aval_property:
    """A property that tracers of a type have."""

    def __init__(self, fget: Callable[..., Any]) -> None:
        self.fget = fget


class aval_method:
    """A method that tracers of a type have."""

    def __init__(self, fun: Callable[..., Any]) -> None:
        self.fun = fun


def register_hitype(kind: type, aval_of: Callable[[Any], Any]) -> None:
    """Values of ``kind`` have the type that ``aval_of`` gives. They are no arrays, so tracing refuses them anyway."""


class _Effects:
    """A set of kinds of effects that control flow may have. Effects are ordered here by themselves."""

    def add_type(self, kind: type) -> None:
        """Every kind may be."""


control_flow_allowed_effects = _Effects()
