"""Boxes of elements in flat memory, prepared to be read and written often: strided views where they are regular.

Knows arrays and boxes, no step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

import numpy as np

from nxjax.lower.ipu.program import Boxes, NDArray, Shape, View

# An index of so many elements that one index vector per dimension no longer helps.
_DIMS = 3


def regular(offsets: NDArray) -> tuple[int, Shape, Shape] | None:
    """Offsets as a grid: the first, sizes and strides; None if they are none.

    >>> import numpy as np
    >>> regular(np.array([3, 4, 13, 14, 23, 24]))
    (3, (3, 2), (10, 1))
    """
    n = len(offsets)
    if n == 0:
        return None
    first = int(offsets[0])
    sizes: list[int] = []
    strides: list[int] = []
    left = offsets - first
    while n > 1:
        if len(sizes) == _DIMS:
            return None
        step = int(left[1])
        # How far the innermost step goes on.
        breaks = np.flatnonzero(left != np.arange(n, dtype=np.int64) * step)
        count = int(breaks[0]) if len(breaks) else n
        if n % count:
            return None
        blocks = left.reshape(-1, count)
        if not np.array_equal(blocks - blocks[:, :1], np.broadcast_to(blocks[0], blocks.shape)):
            return None
        sizes.insert(0, count)
        strides.insert(0, step)
        left, n = np.ascontiguousarray(blocks[:, 0]), n // count
    return first, tuple(sizes), tuple(strides)


@final
class Place:
    """Boxes of one flat array.

    Attributes:
        shape: [n, *sizes].
        view: the boxes as a view of the memory, if they are regular.
    """

    __slots__ = ("_index", "_memory", "shape", "view")

    def __init__(self, memory: NDArray, boxes: Boxes) -> None:
        self.shape = (len(boxes.offsets), *boxes.sizes)
        self._memory = memory
        self._index: NDArray | None = None
        self.view: NDArray | None = None
        found = regular(boxes.offsets)
        if found is not None:
            first, sizes, strides = found
            item = memory.itemsize
            view = np.lib.stride_tricks.as_strided(
                memory[first:], (*sizes, *boxes.sizes), tuple(s * item for s in (*strides, *boxes.strides))
            )
            # One dimension of vertices, where that needs no copy.
            flat = view.reshape(self.shape)
            if np.shares_memory(flat, memory) or not flat.size:
                self.view = flat
                return
        self._index = boxes.elements()

    def read(self) -> NDArray:
        """The boxes' values: a view that must not be written to, or a copy."""
        if self.view is not None:
            return self.view
        assert self._index is not None
        return self._memory[self._index]

    def write(self, values: Any) -> None:
        if self.view is not None:
            self.view[...] = np.reshape(values, self.shape)
        else:
            self._memory[self._index] = np.reshape(values, self.shape)


def of_view(memory: NDArray, view: View) -> NDArray:
    """The elements of a view, in its shape, as a view of the memory."""
    item = memory.itemsize
    return np.lib.stride_tricks.as_strided(memory[view.offset :], view.shape, tuple(s * item for s in view.strides))


Launch = Callable[[], None]
