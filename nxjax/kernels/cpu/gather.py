"""Windows of an array at index vectors that are data: rows of a table, single elements, blocks.

Where a window is one element, the points of the innermost loop are done eight at a time, loads before stores, so that
the processor has many reads under way. Longer windows are moved as `move` does it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, OutputEffect, Touches, pointer
from nxjax.kernels.cpu.grid import ItemGrid, Places, Side, joined, moved, walked
from nxjax.kernels.cpu.indices import Vectors
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.move import Move, MoveEmitter

ITEM: Final = 32 << 10  # bytes that an item writes, about
AT_ONCE: Final = 8


@final
class Gather(Kernel):
    """Operands: the array, the index vectors, the result.

    Args:
        batch: the points in row-major order of the batch dimensions, with the strides of the index vectors, of the
            result, and of the array (0 but along dimensions that array and indices share).
        window: moves one window from the array to the result.
        vectors: what an index vector is.
        fill: the bytes of the element that windows outside consist of; None where there are none.
    """

    def __init__(self, batch: Sequence[Side], window: Move, vectors: Vectors, fill: bytes | None) -> None:
        self.vectors = vectors
        self.window = window
        self.fill = fill
        self.points = math.prod(s.size for s in batch)
        self.nbytes = self.points * window.nbytes
        sides = joined(sorted(batch, key=lambda s: -s.strides[1])) if self.nbytes else ()
        self._sides = sides
        self._cut = ItemGrid(sides, window.nbytes or 1, ITEM)
        self.items = self._cut.items if self.nbytes else 0
        self.grain = max(1, 2 * ITEM // self._cut.weight)

    @property
    def key(self) -> str:
        if not self.nbytes:
            return "gather(nothing)"
        sides = " ".join(map(repr, self._sides))
        fill = "" if self.fill is None else f" else {self.fill.hex()}"
        return f"gather({sides} {self.window.key} {self.vectors!r}{fill})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """By bytes; the array and the vectors may be strided, the result is one flat run of bytes."""
        x, indices = xs
        y = np.zeros(self.nbytes, np.uint8)
        source, vectors = np.asarray(x).ctypes.data, np.asarray(indices).ctypes.data
        for point in np.ndindex(*(s.size for s in self._sides)):
            i, t, a = (sum(k * s.strides[n] for k, s in zip(point, self._sides, strict=True)) for n in range(3))
            inside = True
            for c in self.vectors.components:
                word = _bytes(vectors + i + c.offset, self.vectors.dtype.itemsize)
                index = self.vectors.number(int(word.view(self.vectors.dtype)[0]))
                inside &= 0 <= index <= c.bound
                a += min(max(index, 0), c.bound) * c.stride
            size = self.window.size
            for at in np.ndindex(self.window.shape):
                s = sum(k * n for k, n in zip(at, self.window.source, strict=True))
                to = t + sum(k * n for k, n in zip(at, self.window.target, strict=True))
                taken = _bytes(source + a + s, size)
                if not inside and not self.vectors.clip:
                    taken = np.frombuffer(self.fill or bytes(size), np.uint8)
                y[to : to + size] = taken
        return (y,)

    def touches(self) -> Touches:
        w, sides = self.window, self._sides
        if not self.nbytes:
            return Touches(((), ()), (OutputEffect(()),))
        sizes = tuple(s.size for s in sides)
        array = self.vectors.anywhere(w.size, (*sizes, *w.shape), (*(s.strides[2] for s in sides), *w.source))
        out = Box(w.size, (*sizes, *w.shape), (*(s.strides[1] for s in sides), *w.target))
        return Touches(((array,), self.vectors.boxes(sides, 0)), (OutputEffect((out,)),))

    def cost(self) -> KernelCost:
        read = self.points * self.vectors.dtype.itemsize * len(self.vectors.components)
        return KernelCost(0, self.nbytes + read, self.nbytes)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        if not self.nbytes:
            f.ret()
            return
        places = (pointer(f, words, 1), pointer(f, words, 2), pointer(f, words, 0))
        single = self.window.single
        writer = MoveEmitter(f, isa, self.window.size if single else self.window.element, False)
        other: Value | None = None
        if self.fill is not None and not self.vectors.clip:
            other = f.alloca("i8", 16)
            for i, byte in enumerate(self.fill):
                f.store(f.constant("i8", byte), f.at(other, i))
        with f.loop(lo, hi) as item:
            begin = self._cut.begin(f, item.index, places)
            inside = self._cut.inside
            if single and inside:
                walked(f, inside[:-1], begin, lambda at: self._elements(f, writer, inside[-1], at, other))
            else:
                walked(f, inside, begin, lambda at: self._windows(f, writer, at, other))
        f.ret()

    def _elements(self, f: Function, writer: MoveEmitter, side: Side, at: Places, other: Value | None) -> None:
        """One loop of windows of one element."""
        filler = f.load(writer.element, other, 1) if other is not None else None

        def group(start: Value, count: int) -> None:
            base = moved(f, at, start, side.strides)
            taken: list[Value] = []
            places = self.vectors.places(f, base[0], side.strides[0], count)
            for i, (place, fits) in enumerate(places):
                x = f.load(writer.element, f.at(f.at(base[2], i * side.strides[2]), place), 1)
                if fits is not None and filler is not None:
                    x = f.select(fits, x, filler)
                taken.append(x)
            for i, x in enumerate(taken):
                f.store(x, f.at(base[1], i * side.strides[1]), 1)

        done = self._vectors(f, writer, side, at, filler)
        whole = done + (side.size - done) // AT_ONCE * AT_ONCE
        with f.loop(done, whole, AT_ONCE) as loop:
            group(loop.index, AT_ONCE)
        if whole < side.size:
            group(f.constant("i64", whole), side.size - whole)

    def _vectors(self, f: Function, writer: MoveEmitter, side: Side, at: Places, filler: Value | None) -> int:
        """As many elements as fill vectors, by the instruction that reads them; how many they are.

        For words of four bytes that int32 indices name. Several for each lie side by side, or each kind for itself.
        """
        v, n = self.vectors, len(self.vectors.components)
        apart = side.strides[0] == 4
        fits = v.number_elements(4) and side.strides[1:] == (4, 0) and (n > 1 or v.components[0].stride == 4)
        fits = fits and (apart or [c.offset for c in v.components] == [*range(0, side.strides[0], 4)])
        lanes = writer.isa.lanes(4)
        if not fits or writer.size != 4 or not writer.isa.name.startswith("avx512"):
            return 0
        type, pointers, bits = f"<{lanes} x i32>", f"<{lanes} x ptr>", f"<{lanes} x i1>"
        whole = side.size // lanes * lanes
        with f.loop(0, whole, lanes) as loop:
            vector, target, source = moved(f, at, loop.index, side.strides)
            if apart:
                xs = [f.load(type, f.at(vector, c.offset)) for c in v.components]
            else:
                words = f.load(f"<{n * lanes} x i32>", vector, 4)
                xs = [f.shuffle(words, None, range(i, n * lanes, n)) for i in range(n)]
            index, inside = v.elements(f, xs, 4)
            places = f.emit(pointers, f"getelementptr i32, ptr {source.name}, {type} {index.name}")
            mask = inside or f.constant(bits, True)
            other = f.splat(filler, lanes) if filler is not None else f.poison(type)
            f.store(f.gather(type, places, mask, other), target, 1)
        return whole

    def _windows(self, f: Function, writer: MoveEmitter, at: Places, other: Value | None) -> None:
        """One window of several elements."""
        vector, target, source = at
        place, fits = self.vectors.place(f, vector)
        if fits is None or other is None:
            self.window.write(f, writer, f.at(source, place), target)
            return
        with f.if_(fits):
            self.window.write(f, writer, f.at(source, place), target)
        with f.if_(~fits):
            w = self.window
            filled = Move(w.shape, (0,) * len(w.shape), w.target, w.size)
            filled.write(f, MoveEmitter(f, writer.isa, filled.element, False), other, target)


def _bytes(address: int, count: int) -> NDArray:
    import ctypes

    return np.ctypeslib.as_array((ctypes.c_uint8 * count).from_address(address)).copy()
