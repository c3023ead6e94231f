"""The innermost loop of blocked factorizations: some rows, a few vectors wide, less a product, in registers.

Every element takes its products one after the other, in the order of the depth. Knows no matrix, only places.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.ir import Function, Value, vector
from nxjax.kernels.cpu.isa import Isa

MOST = 8  # rows


@final
@dataclass(frozen=True, slots=True)
class Tile:
    """``rows`` by ``vectors`` of ``lanes`` numbers of type ``scalar``, ``size`` bytes each."""

    scalar: str
    size: int
    lanes: int
    rows: int
    vectors: int

    @property
    def type(self) -> str:
        return vector(self.scalar, self.lanes)

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes

    def load(self, f: Function, places: Sequence[Value]) -> list[list[Value]]:
        """The rows at ``places``."""
        return [[f.load(self.type, p, self.size * self.lanes) for p in self._vectors(f, place)] for place in places]

    def store(self, f: Function, rows: Sequence[Sequence[Value]], places: Sequence[Value]) -> None:
        for row, place in zip(rows, places, strict=True):
            for x, p in zip(row, self._vectors(f, place), strict=True):
                f.store(x, p, self.size * self.lanes)

    def less(
        self, f: Function, rows: list[list[Value]], left: Value, steps: tuple[int, int], right: Value, gap: int,
        depth: tuple[Value | int, Value | int],
    ) -> list[list[Value]]:  # fmt: skip
        """``rows`` less the product of ``left`` and the lines of ``right``, which are ``gap`` elements apart.

        ``left``: the place of (0, 0), ``steps`` elements to the next row and column. ``depth``: the columns of it, and
        lines, from the first one on to behind the last.
        """
        with f.loop(*depth, 1, [x for row in rows for x in row]) as k:
            (line,) = self.load(f, [f.at(right, k.index * gap, self.size)])
            column = f.at(left, k.index * steps[1], self.size)
            found: list[Value] = []
            for r in range(len(rows)):
                factor = self.factor(f, f.at(column, r * steps[0], self.size))
                old = k.carried[r * self.vectors : (r + 1) * self.vectors]
                found += [f.fma(factor, x, y) for x, y in zip(line, old, strict=True)]
            k.next(*found)
        return [list(k.results[i : i + self.vectors]) for i in range(0, len(k.results), self.vectors)]

    def factor(self, f: Function, place: Value) -> Value:
        """A number's negative in all lanes."""
        return -f.splat(f.load(self.scalar, place), self.lanes)

    def _vectors(self, f: Function, place: Value) -> list[Value]:
        return [f.at(place, v * self.lanes, self.size) for v in range(self.vectors)]


def tile(isa: Isa, scalar: str, size: int, vectors: int, multiple: int = 1) -> Tile:
    """The tallest that the registers hold, of at most ``vectors`` vectors and no more than is good.

    ``multiple``: a power of two; it has so many rows, or a power of two fewer.
    """
    width = min(vectors, isa.registers // 8)
    rows = min(MOST, (isa.registers - 2 - width) // width)
    if multiple > 1:
        rows = min(multiple, 1 << (rows.bit_length() - 1))
    return Tile(scalar, size, isa.lanes(size), rows, width)
