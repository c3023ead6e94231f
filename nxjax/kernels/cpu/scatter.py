"""Updates combined into windows of an array at index vectors that are data, in the order of the index vectors.

Two updates of one element are applied one after the other, as NumPy's ``ufunc.at`` does: sums of floats have one
result, whatever the number of threads. What can be cut into items without changing that order is

    shared dimensions   array and index vectors have them both: each index along them is a problem of its own
    columns             the innermost contiguous run of a window: each item takes some columns of all updates

and where there is neither, one thread does all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, OutputEffect, Touches, pointer
from nxjax.kernels.cpu.grid import Places, Side, joined, moved, walked
from nxjax.kernels.cpu.indices import Vectors
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa

COLUMNS: Final = 64  # bytes: what an item takes of every update
AT_ONCE: Final = 4
CLOSE: Final = 256 << 10  # bytes that the nearest caches hold
AHEAD: Final = 32  # updates whose places are asked for before they are needed

_UFUNCS: Final = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


@final
class Scatter(Kernel):
    """Operands: the index vectors, the updates, and the array that is changed in place.

    Args:
        op: ``set``, or the elementwise op that combines the old element with the update.
        dtype: of array and updates.
        shared: dimensions that array and index vectors have both, with the strides of the index vectors, the updates
            and the array.
        batch: the other dimensions of the index vectors; the stride of the array is 0.
        window: the dimensions of one update; the stride of the index vectors is 0.
        vectors: what an index vector is. Updates of windows outside are dropped.
    """

    def __init__(
        self,
        op: str,
        dtype: np.dtype[np.generic],
        shared: Sequence[Side],
        batch: Sequence[Side],
        window: Sequence[Side],
        vectors: Vectors,
    ) -> None:
        self.op = op
        self.dtype = dtype
        self.vectors = vectors
        self._shared = joined(shared)
        self._batch = joined(batch)
        self._window = joined(sorted(window, key=lambda s: -s.strides[2]))
        self.points = math.prod(s.size for s in (*shared, *batch))
        self.nbytes = self.points * math.prod(s.size for s in window) * dtype.itemsize
        self._count = math.prod(s.size for s in self._shared)
        last = self._window[-1] if self._window else None
        self._contiguous = last is not None and last.strides[1] == last.strides[2] == dtype.itemsize
        self._per_item = max(1, COLUMNS // dtype.itemsize)
        self._by_columns = self._count == 1 and self._contiguous
        if self._by_columns and last is not None:
            self.items = -(-last.size // self._per_item)
            self.grain = max(1, -(-self.items // 8), (64 << 10) * self.items // max(self.nbytes, 1))
        else:
            self.items = self._count
            self.grain = max(1, (64 << 10) * self._count // max(self.nbytes, 1))
        if not self.nbytes:
            self.items = 0

    @property
    def key(self) -> str:
        if not self.nbytes:
            return "scatter(nothing)"
        parts = (" ".join(map(repr, s)) for s in (self._shared, self._batch, self._window))
        return f"scatter_{self.op}({self.dtype.name} {' | '.join(parts)} | {self.vectors!r})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The array after the updates, for dense ``(indices, updates, array)`` without shared dimensions."""
        indices, updates, x = xs
        y = x.copy()
        flat = y.reshape(-1)
        rows = indices.reshape(self.points, -1)
        pieces = updates.reshape(self.points, -1)
        spread = np.zeros((), np.int64)
        for s in self._window:
            spread = spread[..., None] + np.arange(s.size) * (s.strides[2] // self.dtype.itemsize)
        for row, piece in zip(rows, pieces, strict=True):
            at, inside = 0, True
            for c in self.vectors.components:
                index = self.vectors.number(int(row[c.offset // self.vectors.dtype.itemsize]))
                inside &= 0 <= index <= c.bound or self.vectors.clip
                at += min(max(index, 0), c.bound) * c.stride // self.dtype.itemsize
            if inside:
                places = (at + spread).reshape(-1)
                flat[places] = piece if self.op == "set" else _UFUNCS[self.op](flat[places], piece)
        return (y,)

    def touches(self) -> Touches:
        if not self.nbytes:
            return Touches(((), ()), (OutputEffect((), "some"),))
        sides, size = (*self._shared, *self._batch, *self._window), self.dtype.itemsize
        shape = tuple(s.size for s in sides)
        updates = Box(size, shape, tuple(s.strides[1] for s in sides))
        array = self.vectors.anywhere(size, shape, [s.strides[2] for s in sides])
        return Touches((self.vectors.boxes(sides, 0), (updates,)), (OutputEffect((array,), "some"),))

    def cost(self) -> KernelCost:
        read = self.points * self.vectors.dtype.itemsize * len(self.vectors.components)
        flops = 0 if self.op == "set" else self.nbytes / self.dtype.itemsize
        return KernelCost(flops, self.nbytes * (1 if self.op == "set" else 2) + read, self.nbytes)

    # --- code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        if not self.nbytes:
            f.ret()
            return
        places = tuple(pointer(f, words, i) for i in range(3))
        if self._by_columns:
            self._updates(f, isa, places, (lo, hi))
        else:
            with f.loop(lo, hi) as item:
                rest, at = item.index, places
                for side in reversed(self._shared):
                    at = moved(f, at, rest.urem(side.size), side.strides)
                    rest = rest.udiv(side.size)
                self._updates(f, isa, at, None)
        f.ret()

    def _updates(self, f: Function, isa: Isa, places: Places, columns: tuple[Value, Value] | None) -> None:
        """All updates of one item in order."""
        if not self._window and self._batch:
            *outer, inner = self._batch
            walked(f, outer, places, lambda at: self._elements(f, isa, inner, at))
        else:
            walked(f, self._batch, places, lambda at: self._named(f, isa, at, columns))

    def _elements(self, f: Function, isa: Isa, side: Side, at: Places) -> None:
        """One loop of updates of one element."""
        far = self.vectors.reach > CLOSE
        ahead = max(0, side.size - AHEAD) // AT_ONCE * AT_ONCE if far else 0
        whole = side.size - side.size % AT_ONCE

        def group(start: Value, count: int, ask: bool) -> None:
            base = moved(f, at, start, side.strides)
            if ask:
                for i in range(count):
                    place = self.vectors.guess(f, f.at(base[0], (AHEAD + i) * side.strides[0]))
                    f.prefetch(f.at(base[2], place), write=True)
            for i in range(count):
                place, inside = self.vectors.place(f, f.at(base[0], i * side.strides[0]))
                self._update(f, isa, f.at(base[1], i * side.strides[1]), f.at(base[2], place), inside, None)

        with f.loop(0, ahead, AT_ONCE) as loop:
            group(loop.index, AT_ONCE, True)
        with f.loop(ahead, whole, AT_ONCE) as loop:
            group(loop.index, AT_ONCE, False)
        if whole < side.size:
            group(f.constant("i64", whole), side.size - whole, False)

    def _named(self, f: Function, isa: Isa, at: Places, columns: tuple[Value, Value] | None) -> None:
        index, update, target = at
        place, inside = self.vectors.place(f, index)
        self._update(f, isa, update, f.at(target, place), inside, columns)

    def _update(
        self,
        f: Function,
        isa: Isa,
        update: Value,
        target: Value,
        inside: Value | None,
        columns: tuple[Value, Value] | None,
    ) -> None:
        if inside is None:
            self._combine_window(f, isa, update, target, columns)
        else:
            with f.if_(inside):
                self._combine_window(f, isa, update, target, columns)

    def _combine_window(
        self, f: Function, isa: Isa, update: Value, target: Value, columns: tuple[Value, Value] | None
    ) -> None:
        if not self._contiguous:
            walked(f, self._window, (target, update, target), lambda p: self._combine(f, isa, p[1], p[2], 0))
            return
        *outer, last = self._window
        walked(f, outer, (target, update, target), lambda p: self._run(f, isa, last, p[1], p[2], columns))

    def _run(
        self, f: Function, isa: Isa, side: Side, update: Value, target: Value, columns: tuple[Value, Value] | None
    ) -> None:
        """Contiguous elements, those of some columns or all of them: whole vectors, then halves of one."""
        size = self.dtype.itemsize
        lanes = isa.bits // 8 // size

        def piece(start: Value, lanes: int) -> None:
            self._combine(f, isa, f.at(update, start, size), f.at(target, start, size), lanes if lanes > 1 else 0)

        begin, end, rest = f.constant("i64", 0), f.constant("i64", side.size), side.size % lanes
        known = columns is None or self.items == 1
        if columns is not None and not known:
            begin = columns[0] * self._per_item
            end = f.intrinsic("smin", "i64", columns[1] * self._per_item, end)
        whole = begin + ((end - begin) & -lanes)
        with f.loop(begin, whole, lanes) as loop:
            piece(loop.index, lanes)
        while lanes > 1:
            lanes //= 2
            if known and rest & lanes:
                piece(whole, lanes)
            elif not known:
                with f.if_(((end - whole) & lanes).ne(0)):
                    piece(whole, lanes)
            whole = whole + ((end - whole) & lanes)

    def _combine(self, f: Function, isa: Isa, update: Value, target: Value, lanes: int) -> None:
        if self.op == "set":
            type = vector(f"i{8 * self.dtype.itemsize}", lanes)
            f.store(f.load(type, update, 1), target, 1)
            return
        d = self.dtype
        old, new = convert.load(f, isa, d, target, lanes), convert.load(f, isa, d, update, lanes)
        convert.store(f, isa, d, ops.emit(f, isa, self.op, {}, (d, d), d, (old, new)), target)
