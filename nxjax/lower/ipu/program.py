"""What runs on an IPU, as data: variables with a place for each element, compute sets of vertices, exchange, loops.

The same model as Poplar's graph. Vertices of one kind and one size are held together, in columns: a group of 1,472
vertices is a few arrays. Knows no op, and nothing that runs it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.errors import LoweringError, Source
from nxjax.kernels.ipu.chip import IpuSystem
from nxjax.kernels.ipu.spec import CTYPES, Codelet

NDArray = np.ndarray[Any, Any]
Shape = tuple[int, ...]
# "input" and "output" are streamed from and to the host, "state" is both and stays between runs, "constant" has a
# value from the start, "temporary" lives from its first write to its last read.
Role = Literal["input", "output", "state", "constant", "temporary"]


@final
@dataclass(frozen=True, eq=False)
class Boxes:
    """Equal boxes of a variable's elements, one per tile or vertex.

    Element (i0, i1, ...) of box v is the variable's element ``offsets[v] + i0 * strides[0] + i1 * strides[1] + ...`` in
    row-major order of the variable. A stride may be 0 (the element is read again) or negative.

    Attributes:
        offsets: int64 [n].
        sizes: of each box; () is one element.
        strides: one per dimension of the box.
    """

    offsets: NDArray
    sizes: Shape
    strides: Shape

    def __post_init__(self) -> None:
        assert len(self.sizes) == len(self.strides), (self.sizes, self.strides)

    @property
    def count(self) -> int:
        """Elements of one box."""
        return math.prod(self.sizes)

    @property
    def contiguous(self) -> bool:
        """Whether a box's elements follow each other in the variable."""
        step = 1
        for size, stride in zip(reversed(self.sizes), reversed(self.strides), strict=True):
            if size != 1 and stride != step:
                return False
            step *= size
        return True

    def box(self) -> NDArray:
        """Element numbers of a box relative to its offset, shape `sizes`, int64."""
        places = np.zeros((), np.int64)
        for size, stride in zip(self.sizes, self.strides, strict=True):
            places = places[..., None] + np.arange(size, dtype=np.int64) * stride
        return places

    def elements(self) -> NDArray:
        """The variable's element numbers, shape [n, *sizes], int64."""
        return self.offsets.reshape(-1, *(1,) * len(self.sizes)) + self.box()


@final
@dataclass(frozen=True, eq=False)
class MappedRegion:
    """Equal boxes of a variable, each on a tile: ``tiles`` is int32 [n], counted through all IPUs of the system."""

    boxes: Boxes
    tiles: NDArray


@final
@dataclass(eq=False)
class Variable:
    """A tensor in tile memory.

    Attributes:
        name: for people and for emitted code; need not be unique.
        shape: row-major.
        dtype: NumPy dtype, one of `CTYPES`.
        pieces: where each element lies; every element is in exactly one box of one piece.
        role: how long it lives.
        value: of a constant.
        source: the user's source line that it comes from.
    """

    name: str
    shape: Shape
    dtype: np.dtype[Any]
    pieces: tuple[MappedRegion, ...]
    role: Role = "temporary"
    value: NDArray | None = None
    source: Source | None = None
    _tiles: NDArray | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.dtype.name not in CTYPES:
            raise LoweringError(
                f"ipu: no tile memory for dtype {self.dtype.name}",
                got=f"{self.name}: {self.dtype.name}{list(self.shape)}",
                expected=", ".join(CTYPES),
                fix="IPUs have no 64-bit floats, bfloat16 or complex numbers: compute in float32 or float16",
                source=self.source,
            )

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    def tiles(self) -> NDArray:
        """The tile of every element, int32 [size]."""
        if self._tiles is None:
            found = np.full(self.size, -1, np.int32)
            for p in self.pieces:
                found[p.boxes.elements().reshape(len(p.tiles), -1)] = p.tiles[:, None]
            self._tiles = found
        return self._tiles

    def view(self) -> VariableView:
        """The whole variable."""
        return VariableView(self, 0, self.shape, row_major(self.shape))


def row_major(shape: Shape) -> Shape:
    """Strides, in elements, of a contiguous array.

    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    strides: list[int] = []
    step = 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


@final
@dataclass(frozen=True, eq=False)
class VariableView:
    """Elements of a variable in another order: slices, transposes, broadcasts and reversals cost nothing until read.

    Element (i0, i1, ...) is the variable's element ``offset + i0 * strides[0] + ...``.
    """

    variable: Variable
    offset: int
    shape: Shape
    strides: Shape

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.variable.dtype

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def contiguous(self) -> bool:
        return Boxes(np.zeros(1, np.int64), self.shape, self.strides).contiguous

    @property
    def whole(self) -> bool:
        """Whether it is the variable as it lies."""
        return self.offset == 0 and self.size == self.variable.size and self.contiguous

    def boxes(self, starts: NDArray, sizes: Shape) -> Boxes:
        """Boxes of this view: ``starts`` int [n, ndim] is where each begins."""
        offsets = self.offset + starts.astype(np.int64) @ np.asarray(self.strides, np.int64).reshape(-1)
        return Boxes(np.asarray(offsets, np.int64).reshape(len(starts)), sizes, self.strides)


@final
@dataclass(frozen=True, eq=False)
class FieldConnection:
    """What a field of a group's vertices is connected to: vertex v to box v."""

    variable: Variable
    boxes: Boxes


@final
@dataclass(frozen=True, eq=False)
class Group:
    """Vertices of one codelet and one size.

    A field whose elements are not all on the vertex's tile is brought there, in one piece, by the exchange before the
    compute set. On a tile the elements of one box of a `MappedRegion` lie next to each other, in the box's order: a
    field whose box is such a box needs no rearrangement, and neither does a contiguous part of one. What is written
    must be on the vertex's own tile.

    Attributes:
        codelet: what they run.
        tiles: int32 [n], a vertex each; a tile may have several.
        edges: field name -> what it is connected to.
        attributes: attribute name -> a number, or an array [n].
    """

    codelet: Codelet
    tiles: NDArray
    edges: Mapping[str, FieldConnection]
    attributes: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def sizes(self) -> dict[str, Shape]:
        return {name: e.boxes.sizes for name, e in self.edges.items()}


@final
@dataclass(frozen=True, eq=False)
class Execute:
    """A compute set: exchange of what its vertices need, a sync, then all of them at once.

    No vertex may write what another vertex of the set reads or writes.
    """

    name: str
    groups: tuple[Group, ...]
    source: Source | None = None
    scope: str = ""


@final
@dataclass(frozen=True, eq=False)
class Copy:
    """One exchange phase: each target takes its source's elements, in the order of the two views. Shapes are equal.

    No target overlaps another target, or a source.
    """

    pairs: tuple[tuple[VariableView, VariableView], ...]  # (source, target)
    name: str = ""
    source: Source | None = None
    scope: str = ""


@final
@dataclass(frozen=True, eq=False)
class Repeat:
    """``body``, ``count`` times."""

    count: int
    body: tuple[Step, ...]
    source: Source | None = None


@final
@dataclass(frozen=True, eq=False)
class While:
    """``condition``, then, as long as ``predicate`` (one bool) holds, ``body`` and ``condition`` again.

    ``turns``: how often, where that is known before it runs.
    """

    condition: tuple[Step, ...]
    predicate: Variable
    body: tuple[Step, ...]
    source: Source | None = None
    turns: int | None = None


@final
@dataclass(frozen=True, eq=False)
class Switch:
    """The branch that ``index`` (one int32, in range) names. Two branches make an "if"."""

    index: Variable
    branches: tuple[tuple[Step, ...], ...]
    source: Source | None = None


@final
@dataclass(frozen=True, eq=False)
class Call:
    """A function of the program: its steps are held once, and its code is on the tiles once, however often called."""

    function: str


Step = Execute | Copy | Repeat | While | Switch | Call


@final
@dataclass(eq=False)
class IpuProgram:
    """A program for a system of IPUs.

    Attributes:
        name: of the function it comes from.
        system: what it was planned for.
        inputs: variables that the host fills before a run, in order.
        outputs: variables that the host reads after a run, in order; the same one may be read twice.
        steps: what a run does.
        functions: name -> steps, for `Call`.
        aliases: output number -> input number, where an output stays in the place of a donated input between runs.
    """

    name: str
    system: IpuSystem
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    steps: tuple[Step, ...]
    functions: dict[str, tuple[Step, ...]] = field(default_factory=dict[str, tuple["Step", ...]])
    aliases: dict[int, int] = field(default_factory=dict[int, int])

    def walk(self) -> Iterator[Step]:
        """Every step once, those inside of loops, branches and functions too."""
        yield from _walk(self.steps)
        for steps in self.functions.values():
            yield from _walk(steps)

    def variables(self) -> list[Variable]:
        """Every variable, inputs first, in the order of their first use."""
        found: dict[int, Variable] = {id(v): v for v in (*self.inputs, *self.outputs)}
        for step in self.walk():
            for v in touched(step):
                found.setdefault(id(v), v)
        return list(found.values())

    def codelets(self) -> list[Codelet]:
        """Every codelet once, in the order of first use."""
        found: dict[str, Codelet] = {}
        for step in self.walk():
            if isinstance(step, Execute):
                for g in step.groups:
                    found.setdefault(g.codelet.name, g.codelet)
        return list(found.values())


def touched(step: Step) -> Iterator[Variable]:
    """Variables that a step itself reads or writes."""
    match step:
        case Execute():
            for g in step.groups:
                for e in g.edges.values():
                    yield e.variable
        case Copy():
            for source, target in step.pairs:
                yield source.variable
                yield target.variable
        case While():
            yield step.predicate
        case Switch():
            yield step.index
        case _:
            pass


def inside(step: Step) -> Sequence[tuple[Step, ...]]:
    """The bodies that a step holds."""
    match step:
        case Repeat():
            return (step.body,)
        case While():
            return (step.condition, step.body)
        case Switch():
            return step.branches
        case _:
            return ()


def _walk(steps: Sequence[Step]) -> Iterator[Step]:
    for step in steps:
        yield step
        for body in inside(step):
            yield from _walk(body)


# The finest grain of a linear mapping, in bytes, as Poplar's library maps tensors.
GRAIN: Final = 128
