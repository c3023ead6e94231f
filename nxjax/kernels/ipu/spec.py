"""The contract of a codelet: its meaning in NumPy, its source in C++, what it asks of its fields, and its cycles.

One codelet is one C++ class against Poplar's vertex interface. Its source is the same text whether Poplar's compiler
reads it for a tile or the host's compiler reads it, against our shim header, for the model. Knows no program.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, final

import numpy as np

from nxjax.kernels.ipu.chip import IpuChip

NDArray = np.ndarray[Any, Any]
Io = Literal["in", "out", "inout"]
# How a tile runs a vertex: on all six workers at once, on one of them, or on the supervisor.
Kind = Literal["multi", "worker", "supervisor"]

# NumPy dtype name -> C++ type, of the types that Poplar's tensors have. There is no 64-bit float.
CTYPES: Final = {
    "float32": "float",
    "float16": "half",
    "int32": "int",
    "uint32": "unsigned int",
    "int16": "short",
    "uint16": "unsigned short",
    "int8": "signed char",
    "uint8": "unsigned char",
    "bool": "bool",
}


@final
@dataclass(frozen=True)
class Field:
    """A piece of tile memory that a vertex reads or writes: elements of one dtype, contiguous.

    Attributes:
        name: of the C++ member.
        io: "in", "out" or "inout".
        dtype: a key of `CTYPES`.
        align: bytes that its address is a multiple of.
        interleaved: must lie in interleaved memory, for 128-bit loads.
    """

    name: str
    io: Io
    dtype: str
    align: int = 8
    interleaved: bool = False


@final
@dataclass(frozen=True)
class Attribute:
    """A number that a vertex holds: "int" (32 bits), "unsigned" or "float". The same or another one per vertex."""

    name: str
    ctype: Literal["int", "unsigned", "float"]


class Codelet(ABC):
    """One vertex class, its template arguments fixed. Abstract; implementations are final.

    Two instances are equal if their names are: the name holds every template argument.

    Attributes:
        kind: how a tile runs it.
        common: whether many programs have the same one: then the host keeps it compiled by itself.
        fields: in the order of the C++ class.
        attributes: likewise.
    """

    kind: ClassVar[Kind] = "multi"
    common: ClassVar[bool] = True

    @property
    @abstractmethod
    def name(self) -> str:
        """The class with its template arguments, e.g. ``nx::Reduce<float,float,add>``."""

    @property
    @abstractmethod
    def fields(self) -> tuple[Field, ...]: ...

    @property
    def attributes(self) -> tuple[Attribute, ...]:
        return ()

    @property
    @abstractmethod
    def source(self) -> str:
        """C++ text that defines the class (and instantiates it, if it is a template); stands alone."""

    @abstractmethod
    def meaning(self, arrays: Mapping[str, NDArray], attributes: Mapping[str, Any]) -> dict[str, NDArray]:
        """What n vertices compute.

        Args:
            arrays: per "in" and "inout" field, the values of shape [n, *sizes]; per "out" field an empty
                (uninitialized) array of its shape and dtype, for the shape's sake.
            attributes: per attribute a number, or an array [n].

        Returns:
            The new values of every "out" and "inout" field, of shape [n, *sizes].
        """

    @abstractmethod
    def cycles(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any], chip: IpuChip) -> int:
        """Estimated cycles that the tile is busy with one vertex (all six workers of a "multi" one together).

        For a "worker" vertex: cycles of its own thread times the number of workers, i.e. as if it ran alone.
        """

    def flops(self, sizes: Mapping[str, tuple[int, ...]], attributes: Mapping[str, Any]) -> int:
        """Floating-point operations of one vertex; a multiply-add counts as two."""
        return 0

    def code_bytes(self, chip: IpuChip) -> int:
        """Bytes of machine code that a tile holds to run it; an estimate from the length of the source."""
        return 16 * max(16, self.source.count(";"))

    def state_bytes(self) -> int:
        """Bytes of vertex state on its tile: a pointer and a size per field, a word per attribute."""
        return 8 * len(self.fields) + 4 * len(self.attributes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Codelet) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return self.name


def per_worker(count: int, chip: IpuChip) -> int:
    """Elements that the busiest of a tile's workers gets of ``count``.

    >>> from nxjax.kernels.ipu.chip import BOW
    >>> per_worker(13, BOW)
    3
    """
    return -(-count // chip.workers)


def dtypes_of(fields: Sequence[Field]) -> set[str]:
    """Every dtype that the fields hold."""
    return {f.dtype for f in fields}
