"""Moving elements from one strided view to another: what every transpose, slice, reversal and broadcast comes down to.

A view's dimensions are reduced to the loops that matter (`essential`): sizes of 1 vanish, neighbours that are one
run in both views are joined, an innermost run of 2, 4, 8 or 16 bytes becomes an element. What is left is one of

    runs       both views contiguous in the innermost loop: vectors, the last one overlapping the one before
    fill       the source stands still in the innermost loop: one element in all lanes
    tiles      the source is contiguous in another loop: squares of T x T elements, transposed in registers
    lanes      the source steps over up to three elements, or backwards: vectors and a shuffle
    elements   anything else, one by one

No code for remainders exists: every block, tile and vector has its full size, and the last one along a loop is moved
back so that it ends with the loop. A few elements are then written twice, with the same value.

Elements are bits here; this file knows sizes of 1, 2, 4, 8 and 16 bytes and no dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu.base import Cost, Kernel, NDArray, pointer
from nxjax.kernels.cpu.ir import Function, Module, Value, vector
from nxjax.kernels.cpu.isa import Isa

ITEM: Final = 16 << 10  # bytes that an item moves, about
STREAM: Final = 16 << 20  # results larger than this go past the caches
SQUARE: Final = 64  # elements along a side of a block of tiles: whole cache lines on both sides even for bytes
SMALL: Final = 3  # strides up to this many elements are read by whole vectors


@final
@dataclass(frozen=True, slots=True)
class Axis:
    """``size`` elements, so many bytes apart in the source and in the target."""

    size: int
    source: int
    target: int


@final
@dataclass(frozen=True, slots=True)
class Level:
    """A loop of ``count`` turns; turn i begins at element ``min(i * step, last)`` of ``axis``."""

    axis: Axis
    count: int
    step: int
    last: int


def essential(
    shape: Sequence[int], source: Sequence[int], target: Sequence[int], size: int
) -> tuple[tuple[Axis, ...], int]:
    """The loops that matter, largest stride of the target first, and the bytes of an element.

    >>> essential((2, 3, 4), (48, 16, 4), (48, 16, 4), 4)
    ((Axis(size=24, source=4, target=4),), 4)
    >>> essential((5, 2), (40, 4), (8, 4), 4)  # pairs of four bytes
    ((Axis(size=5, source=40, target=8),), 8)
    """
    axes = [Axis(*a) for a in zip(shape, source, target, strict=True) if a[0] != 1]
    axes.sort(key=lambda a: -a.target)
    joined: list[Axis] = []
    for a in axes:
        if joined and joined[-1].source == a.source * a.size and joined[-1].target == a.target * a.size:
            joined[-1] = Axis(joined[-1].size * a.size, a.source, a.target)
        else:
            joined.append(a)
    last = joined[-1] if len(joined) > 1 else None
    if last is not None and last.source == last.target == size and last.size * size in (2, 4, 8, 16):
        return tuple(joined[:-1]), last.size * size
    return tuple(joined), size


def split(axis: Axis, block: int, multiple: int = 1) -> tuple[Level, int]:
    """A loop over blocks of about ``block`` elements, all of one size; and that size."""
    count = max(1, round(axis.size / block))
    block = min(-(-axis.size // count // multiple) * multiple, axis.size)
    return Level(axis, -(-axis.size // block), block, axis.size - block), block


def whole(axis: Axis) -> Level:
    """A loop over every element."""
    return Level(axis, axis.size, 1, axis.size - 1)


@final
class Move(Kernel):
    """Copies a view of ``shape`` with strides ``source`` (bytes; may be 0 or negative) to strides ``target``.

    The places of input and output are those of their first elements. Elements have ``size`` bytes: 1, 2, 4, 8 or 16.
    The views do not overlap.
    """

    def __init__(self, shape: Sequence[int], source: Sequence[int], target: Sequence[int], size: int) -> None:
        self.shape = tuple(shape)
        self.source = tuple(source)
        self.target = tuple(target)
        self.size = size
        self.nbytes = math.prod(shape) * size
        self._axes, self._element = essential(shape, source, target, size) if self.nbytes else ((), size)
        self._levels, self._body, self._moved = self._plan()
        # The outermost loops are the items; the others run inside one.
        inside = len(self._levels)
        while inside and self._moved * self._levels[inside - 1].count <= ITEM:
            inside -= 1
            self._moved *= self._levels[inside].count
        self._outside = inside
        self.items = math.prod(level.count for level in self._levels[:inside]) if self.nbytes else 0
        self.grain = max(1, 4 * ITEM // max(self._moved, 1))

    @property
    def key(self) -> str:
        axes = " ".join(f"{a.size}:{a.source}:{a.target}" for a in self._axes) if self.nbytes else "nothing"
        return f"move({self._element}B {axes})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return (np.ascontiguousarray(xs[0]).reshape(self.shape),)

    def cost(self) -> Cost:
        distinct = math.prod(n for n, s in zip(self.shape, self.source, strict=True) if s)
        return Cost(0, distinct * self.size, self.nbytes)

    # --- what is done ---

    def _plan(self) -> tuple[list[Level], Callable[[_Writer, Value, Value], None], int]:
        """The loops in order, what is done in the innermost of them, and the bytes that it moves."""
        size = self._element
        if not self._axes:
            return [], lambda w, s, t: w.elements(s, t, Axis(1, 0, 0)), size
        *outer, q = self._axes
        levels = [whole(a) for a in outer]
        if q.target == size and q.source in (0, size):
            level, block = split(q, ITEM // size, max(64 // size, 1))
            if q.source:
                return [*levels, level], lambda w, s, t: w.run(s, t, block * size), block * size
            return [*levels, level], lambda w, s, t: w.fill(s, t, block), block * size
        p = next((a for a in outer if a.source == size), None)
        if p is not None and q.target == size:
            side = min(p.size, q.size, 16)
            side = 1 << side.bit_length() - 1
            if side >= 4 and size <= 8:
                return self._tiled([a for a in outer if a is not p], p, q, side)
        # A short run of the source stays inside a block of the target, so that its cache lines are read once.
        level, block = split(q, 1024)
        near = [a for a in outer if abs(a.source) < abs(q.source)]
        levels = [whole(a) for a in outer if a not in near]
        return (
            [*levels, level, *map(whole, near)],
            lambda w, s, t: w.line(s, t, Axis(block, q.source, q.target)),
            (block * size),
        )

    def _tiled(
        self, others: list[Axis], p: Axis, q: Axis, side: int
    ) -> tuple[list[Level], Callable[[_Writer, Value, Value], None], int]:
        """Blocks of tiles; ``p`` runs along the source, ``q`` along the target."""
        over_p, block_p = split(p, SQUARE, side if p.size % side == 0 else 1)
        over_q, block_q = split(q, SQUARE, side if q.size % side == 0 else 1)
        block = (Axis(block_p, p.source, p.target), Axis(block_q, q.source, q.target))
        body: Callable[[_Writer, Value, Value], None] = lambda w, s, t: w.block(s, t, *block, side)
        return [*map(whole, others), over_p, over_q], body, block_p * block_q * self._element

    # --- code ---

    def emit(self, module: Module, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        if not self.nbytes:
            f.ret()
            return
        source, target = pointer(f, words, 0), pointer(f, words, 1)
        streams = self.nbytes >= STREAM and isa.name in ("avx512", "avx2")
        writer = _Writer(f, isa, self._element, streams)
        with f.loop(lo, hi) as item:
            rest, s, t = item.index, source, target
            for level in reversed(self._levels[: self._outside]):
                s, t = _begin(f, level, rest.urem(level.count), s, t)
                rest = rest.udiv(level.count)
            self._inside(f, writer, list(self._levels[self._outside :]), s, t)
        if streams:
            f.call("llvm.x86.sse.sfence", "void")
        f.ret()

    def _inside(self, f: Function, writer: _Writer, levels: list[Level], s: Value, t: Value) -> None:
        if not levels:
            self._body(writer, s, t)
        elif levels[0].count == 1:
            self._inside(f, writer, levels[1:], s, t)
        else:
            with f.loop(0, levels[0].count) as loop:
                self._inside(f, writer, levels[1:], *_begin(f, levels[0], loop.index, s, t))


def _begin(f: Function, level: Level, turn: Value, s: Value, t: Value) -> tuple[Value, Value]:
    """Where a turn of ``level`` begins in source and target."""
    if level.count == 1:
        return s, t
    start = turn * level.step if level.step != 1 else turn
    if (level.count - 1) * level.step != level.last:
        start = f.intrinsic("smin", "i64", start, f.constant("i64", level.last))
    axis = level.axis
    return (f.at(s, start * axis.source) if axis.source else s), f.at(t, start * axis.target)


@final
class _Writer:
    """Writes the innermost work: elements of ``size`` bytes, from ``s`` to ``t``."""

    def __init__(self, f: Function, isa: Isa, size: int, streams: bool) -> None:
        self.f = f
        self.isa = isa
        self.size = size
        self.streams = streams
        self.bytes = isa.bits // 8
        self.element = "<2 x i64>" if size == 16 else f"i{8 * size}"

    def run(self, s: Value, t: Value, nbytes: int) -> None:
        """Contiguous bytes."""
        f = self.f
        width = min(self.bytes, 1 << nbytes.bit_length() - 1)
        type = vector("i8", width)

        def vectors(stream: bool) -> None:
            def move(at: Value | int) -> None:
                x = f.load(type, f.at(s, at), 1)
                f.store(x, f.at(t, at), width if stream else 1, stream=stream)

            group = 4 * width
            whole = nbytes // group * group
            if whole == group:
                whole = 0
            if whole:
                with f.loop(0, whole, group) as loop:
                    # All loads first: nothing says that the store of one does not change the next.
                    ats = [loop.index + i * width for i in range(4)]
                    loaded = [f.load(type, f.at(s, at), 1) for at in ats]
                    for x, at in zip(loaded, ats, strict=True):
                        f.store(x, f.at(t, at), width if stream else 1, stream=stream)
            for at in range(whole, nbytes - width + 1, width):
                move(at)
            if nbytes % width:
                f.store(f.load(type, f.at(s, nbytes - width), 1), f.at(t, nbytes - width), 1)

        if self.streams and nbytes >= 4 * self.bytes:
            self._either(t, vectors)
        else:
            vectors(False)

    def _either(self, t: Value, write: Callable[[bool], None]) -> None:
        """``write`` with streaming stores where the target is aligned for them, without elsewhere."""
        f = self.f
        aligned = (f.cast("ptrtoint", t, "i64") & (self.bytes - 1)).eq(0)
        with f.if_(aligned):
            write(True)
        with f.if_(~aligned):
            write(False)

    def fill(self, s: Value, t: Value, count: int) -> None:
        """One element, ``count`` times."""
        f = self.f
        x = f.load(self.element, s, 1)
        lanes = min(self.bytes // self.size, 1 << count.bit_length() - 1)
        if self.size == 16:
            wide = f.shuffle(x, None, [0, 1] * lanes)
        else:
            wide = f.splat(x, lanes)
        with f.loop(0, count // lanes) as loop:
            f.store(wide, f.at(t, loop.index, lanes * self.size), 1)
        if count % lanes:
            f.store(wide, f.at(t, count - lanes, self.size), 1)

    def block(self, s: Value, t: Value, p: Axis, q: Axis, side: int) -> None:
        """``p.size`` x ``q.size`` elements in tiles; ``p`` is contiguous in the source, ``q`` in the target."""
        f = self.f
        over_p, over_q = (Level(a, -(-a.size // side), side, a.size - side) for a in (p, q))
        # A streaming store must fill its cache line at once, and all rows of the target begin alike.
        fits = side * self.size == self.bytes and q.size % side == 0 and p.target % self.bytes == 0

        def tiles(stream: bool) -> None:
            with f.loop(0, over_p.count) as i:
                sp, tp = _begin(f, over_p, i.index, s, t)
                with f.loop(0, over_q.count) as j:
                    self._tile(*_begin(f, over_q, j.index, sp, tp), p, q, side, stream)

        if self.streams and fits:
            self._either(t, tiles)
        else:
            tiles(False)

    def _tile(self, s: Value, t: Value, p: Axis, q: Axis, side: int, stream: bool) -> None:
        f = self.f
        type = vector(self.element, side)
        rows = [f.load(type, f.at(s, i * q.source), 1) for i in range(side)]
        for i, row in enumerate(transposed(f, rows)):
            f.store(row, f.at(t, i * p.target), self.bytes if stream else 1, stream=stream)

    def line(self, s: Value, t: Value, axis: Axis) -> None:
        """One loop, by vectors if the strides allow it."""
        f, lanes = self.f, self.bytes // self.size
        lanes = min(lanes, 1 << axis.size.bit_length() - 1)
        stride = axis.source // self.size
        near = axis.source % self.size == 0 and (stride == -1 or 1 < stride <= SMALL)
        if not near or axis.target != self.size or lanes < 4 or self.size == 16:
            self.elements(s, t, axis)
            return
        level = Level(axis, -(-axis.size // lanes), lanes, axis.size - lanes)
        type = vector(self.element, lanes)
        with f.loop(0, level.count) as loop:
            a, b = _begin(f, level, loop.index, s, t)
            if stride == -1:
                x = f.load(type, f.at(a, -(lanes - 1), self.size), 1)
                y = f.shuffle(x, None, range(lanes)[::-1])
            else:
                y = self._spaced(a, type, lanes, stride)
            f.store(y, b, 1)

    def _spaced(self, s: Value, type: str, lanes: int, stride: int) -> Value:
        """Every ``stride``-th element: the vectors that hold them, and shuffles that pick.

        The last vector is moved back, so that it ends with the last element wanted and nothing behind it is read.
        """
        f = self.f
        starts = [i * lanes for i in range(stride - 1)] + [(lanes - 1) * stride - lanes + 1]
        y: Value | None = None
        filled = 0
        for start in starts:
            x = f.load(type, f.at(s, start, self.size), 1)
            upto = min((start + lanes - 1) // stride + 1, lanes)
            mine = [i * stride - start for i in range(filled, upto)]
            if y is None:
                y = f.shuffle(x, None, mine + [-1] * (lanes - len(mine)))
            else:
                mask = [*range(filled), *(lanes + i for i in mine)]
                y = f.shuffle(y, x, mask + [-1] * (lanes - len(mask)))
            filled = upto
        assert y is not None
        return y

    def elements(self, s: Value, t: Value, axis: Axis) -> None:
        """One loop, element by element, four a turn."""
        f = self.f
        group = min(4, axis.size)
        level = Level(axis, -(-axis.size // group), group, axis.size - group)
        with f.loop(0, level.count) as loop:
            a, b = _begin(f, level, loop.index, s, t)
            xs = [f.load(self.element, f.at(a, i * axis.source), 1) for i in range(group)]
            for i, x in enumerate(xs):
                f.store(x, f.at(b, i * axis.target), 1)


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The columns of a square of vectors.

    In step k, rows i and i + 2^k swap blocks of 2^k lanes: after all steps, lane j of row i has become lane i of row j.
    """
    side, rows = len(rows), list(rows)
    step = 1
    while step < side:
        low = [j if not j & step else side + (j ^ step) for j in range(side)]
        high = [j ^ step if not j & step else side + j for j in range(side)]
        for i in range(side):
            if not i & step:
                a, b = rows[i], rows[i + step]
                rows[i], rows[i + step] = f.shuffle(a, b, low), f.shuffle(a, b, high)
        step *= 2
    return rows
