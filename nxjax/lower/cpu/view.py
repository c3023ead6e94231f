"""Values in memory: a place, a shape and strides. Knows no op and no kernel."""

from __future__ import annotations

import math
from typing import final

from nxjax.config.dataclass import dataclass
from nxjax.lower.cpu.tape import Buffer, Counter, Ref
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape


class NoKernel(Exception):
    """A rule has no kernel for this case; the message is the reason."""


@final
@dataclass(frozen=True, slots=True)
class View:
    """Elements in memory: a place, a shape, and bytes from one element to the next along each dimension.

    Strides may be 0 (repeated) or negative (reversed), so that broadcasts, transposes, slices and reversals cost
    nothing. ``ref`` is the place of the first element.
    """

    ref: Ref
    shape: Shape
    strides: tuple[int, ...]
    dtype: DType

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def is_dense(self) -> bool:
        """Row-major, with no gap."""
        return self.size == 0 or all(
            n == 1 or s == d
            for n, s, d in zip(self.shape, self.strides, dense_strides(self.shape, self.dtype), strict=True)
        )


def dense_strides(shape: Shape, dtype: DType) -> tuple[int, ...]:
    """Row-major strides in bytes."""
    step, found = dtype.itemsize, []
    for n in reversed(shape):
        found.append(step)
        step *= n
    return tuple(reversed(found))


def dense_view(buffer: Buffer, type: ArrayType, moves: tuple[tuple[Counter, int], ...] = ()) -> View:
    """A buffer as one dense array."""
    return View(Ref(buffer, 0, moves), type.shape, dense_strides(type.shape, type.dtype), type.dtype)
