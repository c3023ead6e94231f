"""Index vectors in memory, and the place they name in an array: what gathers and scatters begin with."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import reduce
from typing import final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box
from nxjax.kernels.cpu.grid import Side
from nxjax.kernels.cpu.ir import Function, Value
from nxjax.kernels.cpu.window import clamped, read_index


@final
@dataclass(frozen=True, slots=True)
class Component:
    """One number of an index vector.

    Attributes:
        offset: bytes from the beginning of the vector.
        bound: the largest index at which a window is inside.
        stride: bytes per step in the array.
    """

    offset: int
    bound: int
    stride: int

    def __repr__(self) -> str:
        return f"@{self.offset}<={self.bound}*{self.stride}"


@final
@dataclass(frozen=True, slots=True)
class Vectors:
    """Index vectors of ``dtype``.

    Attributes:
        clip: those outside are moved inside; otherwise they are told apart.
        wrap: what is added to negative numbers first, of vectors of one component.
    """

    dtype: np.dtype[np.generic]
    components: tuple[Component, ...]
    clip: bool
    wrap: int = 0

    def __repr__(self) -> str:
        parts = [self.dtype.name + " ".join(map(repr, self.components))]
        parts += ["clip"] * self.clip + [f"wrap {self.wrap}"] * bool(self.wrap)
        return " ".join(parts)

    def number(self, index: int) -> int:
        """What an index in memory stands for."""
        return index + self.wrap if index < 0 else index

    def _wrapped(self, f: Function, index: Value) -> Value:
        return f.select(index.lt(0), index + self.wrap, index) if self.wrap else index

    def place(self, f: Function, vector: Value) -> tuple[Value, Value | None]:
        """Bytes into the array that the vector at ``vector`` names, and whether it is inside (None: always).

        The bytes are those of some element in any case.
        """
        signed = self.dtype.kind == "i"
        moved: Value | None = None
        inside: Value | None = None
        for c in self.components:
            index = self._wrapped(f, read_index(f, f.at(vector, c.offset), self.dtype))
            if self.clip:
                index = clamped(f, index, c.bound, signed=signed)
            else:
                # One comparison for both ends: a negative index is a huge unsigned one.
                fits = index.ule(c.bound)
                inside = fits if inside is None else inside & fits
                index = f.select(fits, index, 0)
            step = _times(index, c.stride)
            moved = step if moved is None else moved + step
        return (f.constant("i64", 0) if moved is None else moved), inside

    def places(self, f: Function, vector: Value, stride: int, count: int) -> list[tuple[Value, Value | None]]:
        """`place` of ``count`` vectors, ``stride`` bytes apart."""
        size = self.dtype.itemsize
        if not (self.clip and self.has_lanes and stride == size):
            return [self.place(f, f.at(vector, i * stride)) for i in range(count)]
        # Numbers are moved inside all at once, which scalar instructions do one by one; then memory takes them apart.
        (c,) = self.components
        type = f"<{count} x i{8 * size}>"
        x, _ = self.lanes(f, f.load(type, f.at(vector, c.offset)))
        room = f.alloca(type)
        f.store(x, room)
        loaded = [f.load(f"i{8 * size}", f.at(room, i, size)).convert("i64") for i in range(count)]
        return [(_times(index, c.stride), None) for index in loaded]

    @property
    def has_lanes(self) -> bool:
        """Whether `lanes` knows them: signed numbers of one component, that hold all that they are compared with."""
        largest = (1 << (8 * self.dtype.itemsize - 1)) - 1
        wide = self.dtype.kind == "i" and self.dtype.itemsize >= 4
        return wide and len(self.components) == 1 and max(self.components[0].bound, self.wrap) <= largest

    def lanes(self, f: Function, x: Value) -> tuple[Value, Value | None]:
        """Many signed numbers of one component, moved inside; or as they are, and which of them are inside."""
        (c,) = self.components
        return self._lanes(f, x, c)

    def _lanes(self, f: Function, x: Value, c: Component) -> tuple[Value, Value | None]:
        x = self._wrapped(f, x)
        if not self.clip:
            return x, x.ule(c.bound)
        x = f.intrinsic("smax", x.type, x, f.constant(x.type, 0))
        return f.intrinsic("smin", x.type, x, f.constant(x.type, c.bound)), None

    def number_elements(self, size: int) -> bool:
        """Whether `elements` of ``size`` bytes knows them: words, and so are the numbers of elements."""
        whole = all(c.stride % size == 0 and c.bound < 1 << 31 for c in self.components)
        return self.dtype == np.int32 and whole and self.reach // size < 1 << 31 and bool(self.components)

    def elements(self, f: Function, xs: Sequence[Value], size: int) -> tuple[Value, Value | None]:
        """The numbers of the elements that many vectors name, whose components are ``xs``; and which are inside."""
        found = [self._lanes(f, x, c) for x, c in zip(xs, self.components, strict=True)]
        steps = [_times(index, c.stride // size) for (index, _), c in zip(found, self.components, strict=True)]
        inside = [fits for _, fits in found if fits is not None]
        return reduce(operator.add, steps), reduce(operator.and_, inside) if inside else None

    def guess(self, f: Function, vector: Value) -> Value:
        """As `place`, some element's where the vector is outside: for asking the caches early."""
        moved = f.constant("i64", 0)
        for c in self.components:
            index = self._wrapped(f, read_index(f, f.at(vector, c.offset), self.dtype))
            moved = moved + f.select(index.ule(c.bound), index, 0) * c.stride
        return moved

    def boxes(self, sides: Sequence[Side], which: int) -> tuple[Box, ...]:
        """The numbers of the vectors at all points of ``sides``, whose strides ``which`` are those of the vectors."""
        shape, strides = tuple(s.size for s in sides), tuple(s.strides[which] for s in sides)
        return tuple([Box(self.dtype.itemsize, shape, strides, c.offset) for c in self.components])

    def anywhere(self, size: int, shape: Sequence[int], strides: Sequence[int]) -> Box:
        """A window of ``shape`` at every place that vectors may name."""
        steps = (*strides, *(c.stride for c in self.components))
        return Box(size, (*shape, *(c.bound + 1 for c in self.components)), steps)

    @property
    def reach(self) -> int:
        """Bytes of the array that vectors may name, about."""
        return sum(c.bound * abs(c.stride) for c in self.components)


def _times(index: Value, stride: int) -> Value:
    return index if stride == 1 else index * stride
