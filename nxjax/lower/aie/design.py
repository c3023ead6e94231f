"""A design of the AI Engine array as objects: tiles, object fifos and their links, buffers, cores, the host's sequence.

Mirrors the operations of the MLIR dialects ``aie`` and ``aiex`` that designs are written in, no more; `text` writes it,
`parse` reads it back equal, `verify` checks it. Knows no kernel and no tensor.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, final

from nxjax.errors import ProgramError
from nxjax.kernels.aie.chip import TileKind, kind_of
from nxjax.kernels.aie.spec import MemRef

_T = TypeVar("_T", "TileOp", "ObjectFifoOp", "FuncOp")
Port = Literal["Produce", "Consume"]
# (size, stride in elements), outermost first.
Dimensions = tuple[tuple[int, int], ...]


@final
@dataclass(frozen=True)
class TileOp:
    """``%name = aie.tile(column, row)``."""

    name: str
    column: int
    row: int

    @property
    def kind(self) -> TileKind:
        return kind_of(self.row)


@final
@dataclass(frozen=True)
class ObjectFifoOp:
    """``aie.objectfifo``: objects of one type from one tile to one or several, ``depth`` of them at either end.

    ``to_stream`` is the order in which an object's elements leave the producer; empty: as they lie.
    """

    name: str
    producer: str
    consumers: tuple[str, ...]
    depth: int
    type: MemRef
    to_stream: Dimensions = ()


@final
@dataclass(frozen=True)
class ObjectFifoLinkOp:
    """``aie.objectfifo.link``: what arrives by ``sources`` leaves by ``targets``, through one tile's memory.

    Several targets: each object is dealt out, from ``target_offsets`` on (elements). Several sources: each object is
    put together, at ``source_offsets``.
    """

    sources: tuple[str, ...]
    targets: tuple[str, ...]
    source_offsets: tuple[int, ...] = ()
    target_offsets: tuple[int, ...] = ()


@final
@dataclass(frozen=True)
class FuncOp:
    """``func.func private``: a kernel, and the object file that has it."""

    name: str
    arguments: tuple[MemRef, ...]
    object_file: str


@final
@dataclass(frozen=True)
class BufferOp:
    """``aie.buffer``: memory of a tile; with ``values``, its bytes when the array is loaded."""

    name: str
    tile: str
    type: MemRef
    values: bytes | None = None


@final
@dataclass(frozen=True)
class AcquireOp:
    """The next object of a fifo, as ``value``: waits until there is one."""

    value: str
    fifo: str
    port: Port


@final
@dataclass(frozen=True)
class ReleaseOp:
    """The object that was acquired goes back, or on."""

    fifo: str
    port: Port


@final
@dataclass(frozen=True)
class CallOp:
    """A kernel on acquired objects and buffers, by name."""

    function: str
    arguments: tuple[str, ...]


@final
@dataclass(frozen=True)
class ForOp:
    """``scf.for`` from 0 to ``count``."""

    count: int
    body: tuple[Statement, ...]


Statement = AcquireOp | ReleaseOp | CallOp | ForOp


@final
@dataclass(frozen=True)
class CoreOp:
    """``aie.core``: what one core does."""

    tile: str
    body: tuple[Statement, ...]
    stack: int


@final
@dataclass(frozen=True)
class DmaMemcpyOp:
    """``aiex.npu.dma_memcpy_nd``: elements of a host buffer into a fifo from a shim, or out of one to a shim.

    Offsets, sizes and strides are in elements, outermost first, four of each. ``token``: a wait may be for it.
    """

    argument: str
    offsets: tuple[int, int, int, int]
    sizes: tuple[int, int, int, int]
    strides: tuple[int, int, int, int]
    fifo: str
    id: int
    token: bool = False

    @property
    def start(self) -> int:
        """The first element that is moved."""
        return sum(o * s for o, s in zip(self.offsets, self.strides, strict=True))

    @property
    def count(self) -> int:
        """Elements that are moved."""
        a, b, c, d = self.sizes
        return a * b * c * d

    @property
    def last(self) -> int:
        """The last element that is touched."""
        return self.start + sum((n - 1) * s for n, s in zip(self.sizes, self.strides, strict=True))

    @property
    def linear(self) -> bool:
        """Whether it is one piece, or one piece again and again: then a size may exceed a dimension's."""
        return self.sizes[1:3] == (1, 1) and self.strides[1:] == (0, 0, 1)


@final
@dataclass(frozen=True)
class DmaWaitOp:
    """``aiex.npu.dma_wait``: for the oldest copy of a fifo with a token that was not waited for."""

    fifo: str


@final
@dataclass(frozen=True)
class RuntimeSequenceOp:
    """``aie.runtime_sequence``: what the host's buffers are, and the order of copies."""

    name: str
    arguments: tuple[tuple[str, MemRef], ...]
    body: tuple[DmaMemcpyOp | DmaWaitOp, ...]


@final
@dataclass(frozen=True)
class Design:
    """One ``aie.device``."""

    device: str
    functions: tuple[FuncOp, ...]
    tiles: tuple[TileOp, ...]
    buffers: tuple[BufferOp, ...]
    fifos: tuple[ObjectFifoOp, ...]
    links: tuple[ObjectFifoLinkOp, ...]
    cores: tuple[CoreOp, ...]
    sequence: RuntimeSequenceOp
    _lines: dict[str, int] = field(default_factory=dict[str, int], compare=False, repr=False)

    def tile(self, name: str) -> TileOp:
        return _one(self.tiles, name, "tile")

    def fifo(self, name: str) -> ObjectFifoOp:
        return _one(self.fifos, name, "object fifo")

    def function(self, name: str) -> FuncOp:
        return _one(self.functions, name, "function")

    def line(self, name: str) -> int | None:
        """The line of the text that a thing of this name was read from."""
        return self._lines.get(name)


def _one(things: Sequence[_T], name: str, what: str) -> _T:
    for t in things:
        if t.name == name:
            return t
    raise ProgramError(f"AIE design: there is no {what} of this name", got=name, expected=[t.name for t in things][:12])


def statements(body: Sequence[Statement]) -> Iterator[Statement]:
    """Every statement, those in loops after their loop."""
    for s in body:
        yield s
        if isinstance(s, ForOp):
            yield from statements(s.body)
