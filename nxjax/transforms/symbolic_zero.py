"""Zeros that are not written out: what the rules of `custom_jvp` and `custom_vjp` get with ``symbolic_zeros=True``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

from nxjax.trace import tree
from nxjax.trace.array import as_value
from nxjax.trace.core import Tangents
from nxjax.trace.types import ArrayType
from nxjax.transforms.jvp import zero_tangent


@final
class SymbolicZero:
    """A zero tangent or cotangent without a value. It has the ``shape``, ``dtype`` and ``ndim`` of its type, ``aval``.

    >>> SymbolicZero.from_primal_value(nx.ones(3)).shape
    (3,)
    """

    def __init__(self, aval: ArrayType) -> None:
        self.aval = aval

    def __repr__(self) -> str:
        return "SymbolicZero"

    def __getattr__(self, name: str) -> Any:
        if name == "aval":  # being copied, before it has one
            raise AttributeError(name)
        return getattr(self.aval, name)

    @staticmethod
    def from_primal_value(val: Any) -> SymbolicZero:
        """The zero tangent of ``val``."""
        return SymbolicZero(as_value(val, "SymbolicZero").type.to_tangent_aval())


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """Zero tangents for a tree of values; arrays unless ``symbolic_zeros``.

    >>> zero_from_primal(nx.ones(2)).tolist()
    [0.0, 0.0]
    """

    def zero(x: Any) -> Any:
        return (
            SymbolicZero.from_primal_value(x) if symbolic_zeros else zero_tangent(as_value(x, "zero_from_primal").type)
        )

    return tree.map(zero, val)


def as_symbolic_zeros(tangents: Tangents, types: Sequence[ArrayType]) -> list[Any]:
    """``tangents`` with a `SymbolicZero` for each None."""
    return [SymbolicZero(type.to_tangent_aval()) if t is None else t for t, type in zip(tangents, types, strict=True)]
