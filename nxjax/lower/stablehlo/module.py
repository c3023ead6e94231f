"""A StableHLO module as plain Python: what a reader gives and an importer walks.

Knows types and NumPy, nothing of MLIR's bindings, of ops or of executors. Functions have one block, blocks hold
operations in order, operations hold values, attributes and regions of one block each.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, final

import numpy as np

from nxjax.trace.types import ArrayType


@final
@dataclass(frozen=True)
class TupleOf:
    """The type of a tuple."""

    parts: tuple[Any, ...]


@final
@dataclass(frozen=True)
class Opaque:
    """A type that holds no array: a token, a future. ``text`` is how MLIR writes it."""

    text: str


@final
@dataclass(frozen=True)
class Splat:
    """A constant that repeats one element: ``value`` is an array of no dimensions."""

    value: np.ndarray[Any, Any]
    shape: tuple[int, ...]


Kind = ArrayType | TupleOf | Opaque


@final
class Value:
    """An SSA value: a type and an identity."""

    __slots__ = ("type",)

    def __init__(self, type: Kind) -> None:
        self.type = type


@final
@dataclass(eq=False)
class Block:
    """Operations with arguments; ``results`` is what its terminator gives."""

    arguments: list[Value]
    operations: list[Operation]
    results: list[Value]


@final
@dataclass(eq=False)
class Operation:
    """One operation. ``location`` is where the module says it came from, ``scope`` the named scopes in that."""

    name: str
    operands: list[Value]
    results: list[Value]
    attributes: dict[str, Any]
    regions: list[Block]
    location: str = ""
    scope: str = ""

    @property
    def out_types(self) -> tuple[Any, ...]:
        return tuple(v.type for v in self.results)


@final
@dataclass(eq=False)
class FunctionDef:
    """A function of a module. ``names`` are its arguments' names, empty where the module says none."""

    name: str
    body: Block
    public: bool
    names: tuple[str, ...]


@final
@dataclass(eq=False)
class StablehloModule:
    """Functions by name, in the module's order, and the axes of its meshes of devices with their sizes."""

    name: str
    functions: dict[str, FunctionDef] = field(default_factory=dict[str, FunctionDef])
    meshes: dict[str, tuple[tuple[str, int], ...]] = field(default_factory=dict[str, tuple[tuple[str, int], ...]])
