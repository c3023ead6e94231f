"""Index vectors in memory, and the place they name in an array: what gathers and scatters begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

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
    """Index vectors of ``dtype``; ``clip``: those outside are moved inside, otherwise told apart."""

    dtype: np.dtype[np.generic]
    components: tuple[Component, ...]
    clip: bool

    def __repr__(self) -> str:
        return f"{self.dtype.name}{' '.join(map(repr, self.components))}{' clip' if self.clip else ''}"

    def place(self, f: Function, vector: Value) -> tuple[Value, Value | None]:
        """Bytes into the array that the vector at ``vector`` names, and whether it is inside (None: always).

        The bytes are those of some element in any case.
        """
        signed = self.dtype.kind == "i"
        moved: Value | None = None
        inside: Value | None = None
        for c in self.components:
            index = read_index(f, f.at(vector, c.offset), self.dtype)
            if self.clip:
                index = clamped(f, index, c.bound, signed=signed)
            else:
                # One comparison for both ends: a negative index is a huge unsigned one.
                fits = index.ule(c.bound)
                inside = fits if inside is None else inside & fits
                index = f.select(fits, index, 0)
            step = index * c.stride if c.stride != 1 else index
            moved = step if moved is None else moved + step
        return (f.constant("i64", 0) if moved is None else moved), inside


def batch_strides(ndim: int, along: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Per batch dimension, bytes in the array for those that the array has too."""
    found = [0] * ndim
    for d, s in zip(along, strides, strict=True):
        found[d] = s
    return found
