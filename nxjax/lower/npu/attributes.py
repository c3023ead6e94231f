"""Attributes of NPU ops: the kinds there are, and each op's schema, by which a node is checked when it is built.

A kind reads a value into the one form that graphs keep (tuples, Python's numbers, axes counted from the front) or
refuses it. Knows no op and no graph: ops declare their schemas when they are registered.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, final

import numpy as np

from nxjax.errors import ParameterError, ProgramError, Source
from nxjax.lower.npu.permutation import Perm, back

# What a result is clamped to behind an op -> the least and the greatest real value; an infinite one is no bound.
ACTIVATIONS: Final[dict[str, tuple[float, float]]] = {
    "relu": (0.0, np.inf),
    "relu6": (0.0, 6.0),
    "relu_n1_to_1": (-1.0, 1.0),
}
_REQUIRED: Final = object()


@final
@dataclass(frozen=True)
class AttributeKind:
    """What it may be, in words; how it is read, given the rank of the op's first operand; its default.

    ``turned`` is what it becomes where the operand was ``transpose(x, perm)`` and is ``x``.
    """

    expected: str
    read: Callable[[Any, int], Any]
    default: Any = _REQUIRED
    turned: Callable[[Any, Perm], Any] = lambda value, _: value

    def __call__(self, default: Any) -> AttributeKind:
        """The same kind with a default."""
        return replace(self, default=default)


def _integers(value: Any, _: int) -> tuple[int, ...]:
    return tuple(operator.index(v) for v in value)


def _two(value: Any, _: int) -> tuple[int, int]:
    first, second = value
    return operator.index(first), operator.index(second)


def _three(value: Any, _: int) -> tuple[int, int, int]:
    first, second, third = value
    return operator.index(first), operator.index(second), operator.index(third)


def _pairs(value: Any, _: int) -> tuple[tuple[int, int], ...]:
    return tuple(_two(pair, _) for pair in value)


def _two_pairs(value: Any, _: int) -> tuple[tuple[int, int], ...]:
    first, second = value
    return _pairs((first, second), _)


def _three_pairs(value: Any, _: int) -> tuple[tuple[int, int], ...]:
    first, second, third = value
    return _pairs((first, second, third), _)


def _axis(value: Any, rank: int) -> int:
    axis = operator.index(value)
    return axis + rank if -rank <= axis < 0 else axis


def _flag(value: Any, _: int) -> bool:
    if value not in (0, 1):
        raise ValueError
    return bool(value)


def _real(value: Any, _: int) -> float:
    if isinstance(value, str):
        raise TypeError
    return float(value)


def _number(value: Any, _: int) -> int | float | None:
    if value is None or isinstance(value, (int, float)):
        return value
    found = value.item()
    if not isinstance(found, (int, float)):
        raise TypeError
    return found


def _numbers(value: Any, _: int) -> tuple[int | float, ...]:
    found = np.asarray(value)
    if found.dtype.kind not in "biufV":
        raise TypeError
    return tuple(found.reshape(-1).tolist())


def _graph(value: Any, _: int) -> Any:
    # Whatever it is else, it has these.
    return value if value.nodes is not None and value.inputs is not None and value.outputs else None


def _activation(value: Any, _: int) -> str | None:
    if value is not None and value not in ACTIVATIONS:
        raise ValueError
    return value


def _text(value: Any, _: int) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


GRAPH: Final = AttributeKind("a graph", _graph)
INTEGER: Final = AttributeKind("an integer", lambda value, _: operator.index(value))
REAL: Final = AttributeKind("a real number", _real)
NUMBER: Final = AttributeKind("a number or None", _number)
FLAG: Final = AttributeKind("True or False", _flag)
TEXT: Final = AttributeKind("a name", _text)
NUMBERS: Final = AttributeKind("numbers", _numbers)
INTEGERS: Final = AttributeKind("integers", _integers)
TWO: Final = AttributeKind("two integers, of height and width", _two)
THREE: Final = AttributeKind("three integers, of depth, height and width", _three)
PER_DIMENSION: Final = AttributeKind("an integer per dimension", _integers, turned=back)
PAIRS: Final = AttributeKind("(low, high) per dimension", _pairs, turned=back)
BORDER: Final = AttributeKind("(low, high) of height and of width", _two_pairs)
BORDERS: Final = AttributeKind("(low, high) of depth, of height and of width", _three_pairs)
AXIS: Final = AttributeKind("an axis", _axis, turned=lambda axis, perm: perm[axis])
NEW_AXIS: Final = AttributeKind("an axis of the result", lambda value, rank: _axis(value, rank + 1))
AXES: Final = AttributeKind(
    "axes",
    lambda value, rank: tuple(_axis(v, rank) for v in value),
    turned=lambda axes, perm: tuple(sorted(perm[a] for a in axes)),
)
ACTIVATION: Final = AttributeKind(f"None, {', '.join(map(repr, ACTIVATIONS))}", _activation, None)

# The schema of each op that is registered: attributes by name.
SCHEMAS: Final[dict[str, Mapping[str, AttributeKind]]] = {}


def completed(op: str, attrs: Mapping[str, Any], rank: int, source: Source | None) -> dict[str, Any]:
    """``attrs`` of a node of ``op`` as graphs keep them, with defaults for those that are not given.

    Raises:
        ProgramError: an op that is not in the vocabulary.
        ParameterError: an attribute that the op does not have, that is of another kind, or that is missing.

    >>> completed("softmax", {}, 2, None)
    {'beta': 1.0}
    """
    schema = SCHEMAS.get(op)
    if schema is None:
        raise ProgramError(f"graph: {op!r} is an op that is not in the vocabulary", got=op, source=source)
    if not attrs.keys() <= schema.keys():
        unknown = ", ".join(repr(k) for k in attrs if k not in schema)
        known = ", ".join(schema) or "no attributes"
        raise ParameterError(f"{op}: an attribute that it does not have", got=unknown, expected=known, source=source)
    found: dict[str, Any] = {}
    for name, kind in schema.items():
        given = attrs.get(name, kind.default)
        try:
            # A default is in its form already.
            found[name] = given if given is kind.default and given is not _REQUIRED else kind.read(given, rank)
        except (TypeError, ValueError, AttributeError, OverflowError):
            got = "nothing" if given is _REQUIRED else given
            raise ParameterError(f"{op}: attribute {name}", got=got, expected=kind.expected, source=source) from None
    return found
