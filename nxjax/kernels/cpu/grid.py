"""Loops over points that several arrays share: joined where strides allow it, cut into items, walked by pointers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value

Places = tuple[Value, ...]


@final
@dataclass(frozen=True, slots=True)
class Side:
    """``size`` points, and the bytes from one to the next in each array."""

    size: int
    strides: tuple[int, ...]

    def __repr__(self) -> str:
        return f"{self.size}:{':'.join(map(str, self.strides))}"


def joined(sides: Sequence[Side]) -> tuple[Side, ...]:
    """The same points in the same order with as few loops as the strides allow."""
    found: list[Side] = []
    for b in sides:
        if b.size == 1:
            continue
        if found and all(x == y * b.size for x, y in zip(found[-1].strides, b.strides, strict=True)):
            found[-1] = Side(found[-1].size * b.size, b.strides)
        else:
            found.append(b)
    return tuple(found)


def moved(f: Function, places: Places, index: Value, strides: Sequence[int]) -> Places:
    """Places ``index`` steps further."""
    return tuple(f.at(p, index * s if s != 1 else index) if s else p for p, s in zip(places, strides, strict=True))


def walked(f: Function, sides: Sequence[Side], places: Places, body: Callable[[Places], None]) -> None:
    """``body`` at every point, in row-major order."""
    if not sides:
        body(places)
        return
    with f.loop(0, sides[0].size) as loop:
        walked(f, sides[1:], moved(f, places, loop.index, sides[0].strides), body)


@final
class ItemGrid:
    """``sides`` cut into items of about ``limit``, where a point counts ``weight``.

    An item is a block of one side with everything inside it. Blocks have one size, and the last is moved back so that
    it ends with the side: some points belong to two items, so what is done there must be the same each time.
    """

    def __init__(self, sides: Sequence[Side], weight: int, limit: int) -> None:
        inside = len(sides)
        while inside and weight * sides[inside - 1].size <= limit:
            inside -= 1
            weight *= sides[inside].size
        self.outside = tuple(sides[:inside])
        self.inside = tuple(sides[inside:])
        self._last = 0
        self._block = 1
        counts = [s.size for s in self.outside]
        if self.outside:
            side = self.outside[-1]
            count = max(1, round(side.size * weight / limit))
            self._block = -(-side.size // count)
            self._last = side.size - self._block
            counts[-1] = -(-side.size // self._block)
            self.inside = (Side(self._block, side.strides), *self.inside)
        self._counts = counts
        self.items = math.prod(counts)
        self.weight = weight * self._block

    def begin(self, f: Function, item: Value, places: Places) -> Places:
        """Where an item begins."""
        rest = item
        for i, (side, count) in reversed([*enumerate(zip(self.outside, self._counts, strict=True))]):
            turn = rest.urem(count) if i else rest
            rest = rest.udiv(count) if i else rest
            if i == len(self.outside) - 1:
                turn = f.intrinsic("smin", "i64", turn * self._block, f.constant("i64", self._last))
            places = moved(f, places, turn, side.strides)
        return places
