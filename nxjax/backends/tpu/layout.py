"""How a TPU lays an array out: HLO's shapes with layouts, and the bytes that tiles make of them. Knows the text alone.

A shape such as ``bf16[1000,300]{0,1:T(8,128)(2,1)}`` says: the dimension that varies fastest is 0, then 1; the last two
so ordered are cut into tiles of 8 by 128, which are filled up at the edges; inside of a tile two rows share a word. The
grammar is XLA's (openxla.org/xla/shapes and openxla.org/xla/tiled_layout).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, final

from nxjax.config.forks import cached_property

_SHAPE: Final = re.compile(r"([a-z]\w*)\[([^\]]*)\](?:\{([\d,]*)(?::((?:\{[^}]*\}|[^{}])*))?\})?")
_TILES: Final = re.compile(r"T((?:\([^)]*\))+)")
_BITS: Final = {"pred": 8, "token": 0, "opaque": 0, "f8e4m3fn": 8, "c64": 64, "c128": 128, "bf16": 16}


def bits_of(dtype: str) -> int:
    """Bits of an element by HLO's name of its type.

    >>> bits_of("bf16"), bits_of("s4"), bits_of("f8e5m2"), bits_of("pred")
    (16, 4, 8, 8)
    """
    if dtype in _BITS:
        return _BITS[dtype]
    found = re.match(r"[a-z]+(\d+)", dtype)
    return int(found[1]) if found else 0


@final
@dataclass(frozen=True)
class Shape:
    """An array's type and place.

    Attributes:
        dtype: HLO's name: "f32", "bf16", "s8", "pred".
        dims: sizes.
        order: dimensions from the one that varies fastest.
        tiles: each tile's sizes, the first one cutting the array, the next ones cutting tiles.
        space: the memory it lies in: 0 is HBM, 1 the vector memory (VMEM), others are small ones.
        bits: of an element as it is stored.
    """

    dtype: str
    dims: tuple[int, ...]
    order: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...] = ()
    space: int = 0
    bits: int = 32

    @property
    def logical(self) -> int:
        """Bytes of its numbers alone."""
        return -(-math.prod(self.dims) * bits_of(self.dtype) // 8)

    @cached_property
    def physical(self) -> tuple[int, ...]:
        """Sizes from the slowest dimension to the fastest."""
        return tuple(self.dims[d] for d in reversed(self.order))

    @cached_property
    def filled(self) -> tuple[int, ...]:
        """`physical`, each dimension rounded up to what its tile takes."""
        if not self.tiles or 0 in self.dims:
            return self.physical
        tile = self.tiles[0]
        sizes = (*(1 for _ in range(len(tile) - len(self.physical))), *self.physical)
        head = len(sizes) - len(tile)
        return (*sizes[:head], *(-(-n // t) * t for n, t in zip(sizes[head:], tile, strict=True)))

    @property
    def padded(self) -> int:
        """Bytes that it takes."""
        sizes = list(self.physical)
        if 0 not in sizes:
            for tile in self.tiles:
                sizes = [*(1 for _ in range(len(tile) - len(sizes))), *sizes]
                head, cut = sizes[: len(sizes) - len(tile)], sizes[len(sizes) - len(tile) :]
                # So many tiles along each dimension, then the tile itself, which the next one cuts.
                sizes = [*head, *(-(-n // t) for n, t in zip(cut, tile, strict=True)), *tile]
        elements = math.prod(sizes)
        return -(-elements * self.bits // 8)

    @property
    def waste(self) -> float:
        """Share of the bytes that holds nothing, 0 to 1."""
        return 1 - self.logical / self.padded if self.padded else 0.0

    @property
    def row_major(self) -> bool:
        """Whether the last dimension varies fastest, then the one before it, and so on."""
        return self.order == tuple(reversed(range(len(self.dims))))

    @property
    def type(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.dims))}]"

    @property
    def layout(self) -> str:
        tiles = "".join(f"({','.join(map(str, t))})" for t in self.tiles)
        return f"{{{','.join(map(str, self.order))}{':T' + tiles if tiles else ''}}}"

    def tile_of(self, dim: int) -> int:
        """What size the tile has along one of the array's own dimensions; 1 where it is not tiled."""
        if not self.tiles or not self.dims:
            return 1
        at = len(self.dims) - 1 - self.order.index(dim)
        back = len(self.dims) - at
        tile = self.tiles[0]
        return tile[-back] if back <= len(tile) else 1

    def __str__(self) -> str:
        return self.type + self.layout


def shapes(text: str) -> Iterator[Shape]:
    """Every array shape in a text, tuples flat.

    >>> (s,) = shapes("bf16[1000,300]{0,1:T(8,128)(2,1)}")
    >>> s.filled, s.padded, s.logical
    ((304, 1024), 622592, 600000)
    """
    for found in _SHAPE.finditer(text):
        dtype, sizes, order, rest = found.groups()
        dims = tuple(int(n.strip().lstrip("<=")) for n in sizes.split(",") if n.strip())
        given = tuple(int(d) for d in (order or "").split(",") if d)
        tiles: tuple[tuple[int, ...], ...] = ()
        # Elements of fewer bits are stored in bytes where the layout does not say how many they take.
        space, bits = 0, max(bits_of(dtype), 8)
        if rest:
            if tiled := _TILES.search(rest):
                tiles = tuple(
                    tuple(int(n) for n in t.split(",") if n.strip().isdigit())
                    for t in re.findall(r"\(([^)]*)\)", tiled[1])
                )
            if where := re.search(r"S\((\d+)\)", rest):
                space = int(where[1])
            if size := re.search(r"E\((\d+)\)", rest):
                bits = int(size[1])
        yield Shape(dtype, dims, given or tuple(reversed(range(len(dims)))), tiles, space, bits)
