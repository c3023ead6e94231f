"""Moving a block whose place is data: dynamic_slice and dynamic_update_slice. Knows `move` and nothing above."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box, NDArray, OutputEffect, Touches, dense, pointer
from nxjax.kernels.cpu.ir import Function, Value
from nxjax.kernels.cpu.move import Move


@final
@dataclass(frozen=True, slots=True)
class Start:
    """An index that is read when the kernel runs.

    Attributes:
        dtype: of the scalar in memory, an integer of 1 to 8 bytes.
        bound: it is moved into [0, bound].
        stride: bytes per step.
    """

    dtype: np.dtype[np.generic]
    bound: int
    stride: int

    def __repr__(self) -> str:
        return f"{self.dtype.name}<={self.bound}*{self.stride}"


def clamped(f: Function, x: Value, bound: int, *, signed: bool) -> Value:
    """An ``i64`` moved into [0, bound]; unsigned ones begin at 0 anyway."""
    if not signed:
        return f.intrinsic("umin", "i64", x, f.constant("i64", bound))
    x = f.intrinsic("smax", "i64", x, f.constant("i64", 0))
    return f.intrinsic("smin", "i64", x, f.constant("i64", bound))


def read_index(f: Function, place: Value, dtype: np.dtype[np.generic]) -> Value:
    """The integer at ``place`` as an ``i64``; its bits for uint64."""
    return f.load(f"i{8 * dtype.itemsize}", place, 1).convert("i64", signed=dtype.kind == "i")


@final
class MoveAt(Move):
    """As `Move`, with the ``side`` that is a block of something larger moved on by ``starts``.

    Operands: the source, the starts' scalars, the target. The larger array's place is given, not the block's.
    """

    def __init__(
        self,
        shape: Sequence[int],
        source: Sequence[int],
        target: Sequence[int],
        size: int,
        starts: Sequence[Start],
        side: Literal["source", "target"],
    ) -> None:
        super().__init__(shape, source, target, size)
        self.starts = tuple(starts)
        self.side = side

    @property
    def key(self) -> str:
        return f"{super().key[:-1]} {self.side} at {self.starts!r})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """For the source's side: ``xs[0]`` is the whole larger array, with strides `source`.

        For the target's side what the block holds afterwards.
        """
        x, *starts = xs
        if self.side == "source":
            at = [min(max(int(i), 0), s.bound) for i, s in zip(starts, self.starts, strict=True)]
            x = x[tuple(slice(i, i + n) for i, n in zip(at, self.shape, strict=True))]
        return (np.ascontiguousarray(x).reshape(self.shape),)

    def touches(self) -> Touches:
        starts = self.starts if self.nbytes else ()
        near, far = (self.source, self.target) if self.side == "target" else (self.target, self.source)
        shape = (*self.shape, *(s.bound + 1 for s in starts))
        anywhere = Box(self.size, shape, (*far, *(s.stride for s in starts)))
        here = Box(self.size, self.shape, near)
        numbers = tuple([(x,) for x in dense(*(s.dtype.itemsize for s in self.starts))])
        if self.side == "source":
            return Touches(((anywhere,), *numbers), (OutputEffect((here,)),))
        return Touches(((here,), *numbers), (OutputEffect((anywhere,), "some"),))

    def places(self, f: Function, words: Value) -> tuple[Value, Value]:
        moved = f.constant("i64", 0)
        for k, start in enumerate(self.starts):
            index = read_index(f, pointer(f, words, 1 + k), start.dtype)
            moved = moved + clamped(f, index, start.bound, signed=start.dtype.kind == "i") * start.stride
        source, target = pointer(f, words, 0), pointer(f, words, 1 + len(self.starts))
        return (f.at(source, moved), target) if self.side == "source" else (source, f.at(target, moved))
