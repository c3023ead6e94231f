"""Moving elements from one strided view to another: what every transpose, slice, reversal and broadcast comes down to.

A view's dimensions are reduced to the loops that matter (`essential`): sizes of 1 vanish, neighbours that are one
run in both views are joined, an innermost run of 2, 4, 8 or 16 bytes becomes an element. What is left is one of

    runs       both views contiguous in the innermost loop: vectors, the last one overlapping the one before
    fill       the source stands still in the innermost loop: one element in all lanes
    tiles      the source is contiguous in another loop: squares of T x T elements, transposed in registers
    groups     the innermost loop is short and the one around it goes on: vectors along both, of shuffled vectors
    lanes      the source steps over up to seven elements, or backwards: vectors and shuffles
    elements   anything else, one by one

No code for remainders exists: every block, tile and vector has its full size, and the last one along a loop is moved
back so that it ends with the loop. A few elements are then written twice, with the same value.

Elements are bits here; this file knows sizes of 1, 2, 4, 8 and 16 bytes and no dtype.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa

ITEM: Final = 16 << 10  # bytes that an item moves, about
STREAM: Final = 16 << 20  # results larger than this go past the caches
LINE: Final = 64  # bytes
SQUARE: Final = 64  # elements along a side of a block of tiles: whole cache lines on both sides even for bytes
SMALL: Final = 8  # strides up to this many elements are read by whole vectors
GROUP: Final = 4  # elements of a short loop, at most, and vectors that are read for it twice as many
REPEATS: Final = 16  # of one element in a short loop


@final
@dataclass(frozen=True, slots=True)
class MoveAxis:
    """``size`` elements, so many bytes apart in the source and in the target."""

    size: int
    source: int
    target: int


@final
@dataclass(frozen=True, slots=True)
class Level:
    """A loop of ``count`` turns; turn i begins at element ``min(i * step, last)`` of ``axis``."""

    axis: MoveAxis
    count: int
    step: int
    last: int


def essential(
    shape: Sequence[int], source: Sequence[int], target: Sequence[int], size: int
) -> tuple[tuple[MoveAxis, ...], int]:
    """The loops that matter, largest stride of the target first, and the bytes of an element.

    >>> essential((2, 3, 4), (48, 16, 4), (48, 16, 4), 4)
    ((MoveAxis(size=24, source=4, target=4),), 4)
    >>> essential((5, 2), (40, 4), (8, 4), 4)  # pairs of four bytes
    ((MoveAxis(size=5, source=40, target=8),), 8)
    """
    axes = [MoveAxis(*a) for a in zip(shape, source, target, strict=True) if a[0] != 1]
    axes.sort(key=lambda a: -a.target)
    joined: list[MoveAxis] = []
    for a in axes:
        if joined and joined[-1].source == a.source * a.size and joined[-1].target == a.target * a.size:
            joined[-1] = MoveAxis(joined[-1].size * a.size, a.source, a.target)
        else:
            joined.append(a)
    last = joined[-1] if len(joined) > 1 else None
    if last is not None and last.source == last.target == size and last.size * size in (2, 4, 8, 16):
        return tuple(joined[:-1]), last.size * size
    return tuple(joined), size


def split(axis: MoveAxis, block: int, multiple: int = 1) -> tuple[Level, int]:
    """A loop over blocks of about ``block`` elements, all of one size; and that size."""
    multiple = multiple if axis.size % multiple == 0 else 1
    count = max(1, round(axis.size / block))
    block = min(-(-axis.size // count // multiple) * multiple, axis.size)
    return Level(axis, -(-axis.size // block), block, axis.size - block), block


def whole(axis: MoveAxis) -> Level:
    """A loop over every element."""
    return Level(axis, axis.size, 1, axis.size - 1)


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
        self._axes, self.element = essential(shape, source, target, size) if self.nbytes else ((), size)
        self._streams = self.nbytes >= STREAM
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
        return f"move({self.element}B {axes})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        return (np.ascontiguousarray(xs[0]).reshape(self.shape),)

    def touches(self) -> Touches:
        return plain([Box(self.size, self.shape, self.source)], [Box(self.size, self.shape, self.target)])

    def cost(self) -> KernelCost:
        distinct = math.prod(n for n, s in zip(self.shape, self.source, strict=True) if s)
        return KernelCost(0, distinct * self.size, self.nbytes)

    # --- what is done ---

    def _plan(self) -> tuple[list[Level], _Body, int]:
        """The loops in order, what is done in the innermost of them, and the bytes that it moves."""
        size = self.element
        if not self._axes:
            return [], lambda w, s, t: w.elements(s, t, MoveAxis(1, 0, 0)), size
        *outer, q = self._axes
        levels = [whole(a) for a in outer]
        if outer and (grouped := self._grouped(outer[:-1], outer[-1], q)) is not None:
            return grouped
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
            lambda w, s, t: w.line(s, t, MoveAxis(block, q.source, q.target)),
            (block * size),
        )

    def _tiled(self, others: list[MoveAxis], p: MoveAxis, q: MoveAxis, side: int) -> tuple[list[Level], _Body, int]:
        """Blocks of tiles; ``p`` runs along the source, ``q`` along the target.

        How large they are was found by measuring 4096 x 4096, 4097 x 4099 and [64, 56, 56, 64] of every size.
        """
        size = self.element
        # Small elements past the caches: whole lines of the source, long rows of the target, put together in scratch.
        gathers = self._streams and size < 4
        long = (64, 1024 // size) if gathers else (SQUARE, 4 * SQUARE) if self._streams else (SQUARE, SQUARE)
        over_p, block_p = split(p, long[0], side)
        over_q, block_q = split(q, long[1], side)
        block = (MoveAxis(block_p, p.source, p.target), MoveAxis(block_q, q.source, q.target))
        if gathers:
            self.scratch = block_p * (block_q * size + LINE)
        body: _Body = lambda w, s, t: w.block(s, t, *block, side)
        # Along the source's rows first: the target's are long.
        return [*map(whole, others), over_q, over_p], body, block_p * block_q * self.element

    def _grouped(self, others: list[MoveAxis], p: MoveAxis, q: MoveAxis) -> tuple[list[Level], _Body, int] | None:
        """Vectors along a short ``q`` and the ``p`` around it, if they are one run of the target."""
        size = self.element
        if (
            q.target != size
            or q.size > (GROUP if q.source else REPEATS)
            or p.target != q.size * size
            or p.size < 8
            or size > 8
        ):
            return None
        if p.source % size or q.source % size or not 0 < abs(p.source) <= 2 * GROUP * size:
            return None
        if p.source == size and q.size == GROUP and q.source:
            return None  # tiles do that
        if abs(q.source) >= abs(p.source) and p.source != size:
            return None
        level, block = split(p, 1024)
        axes = MoveAxis(block, p.source, p.target), q
        return [*map(whole, others), level], lambda w, s, t: w.groups(s, t, *axes), block * q.size * size

    # --- code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        if not self.nbytes:
            f.ret()
            return
        source, target = self.places(f, words)
        streams = self._streams and isa.x86 and isa.has("avx2")
        writer = MoveEmitter(f, isa, self.element, streams, scratch)
        with f.loop(lo, hi) as item:
            rest, s, t = item.index, source, target
            for level in reversed(self._levels[: self._outside]):
                s, t = _begin(f, level, rest.urem(level.count), s, t)
                rest = rest.udiv(level.count)
            self._inside(f, writer, list(self._levels[self._outside :]), s, t)
        if streams:
            f.intrinsic("x86.sse.sfence", "void")
        f.ret()

    def places(self, f: Function, words: Value) -> tuple[Value, Value]:
        """Where the first elements of source and target are."""
        return pointer(f, words, 0), pointer(f, words, 1)

    @property
    def single(self) -> bool:
        """Whether one element is all."""
        return self.nbytes == self.size

    def write(self, f: Function, writer: MoveEmitter, s: Value, t: Value) -> None:
        """All of it inside another kernel; the writer is for elements of `element` bytes."""
        self._inside(f, writer, self._levels, s, t)

    def _inside(self, f: Function, writer: MoveEmitter, levels: list[Level], s: Value, t: Value) -> None:
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


_Body = Callable[["MoveEmitter", Value, Value], None]


@final
class MoveEmitter:
    """Writes the innermost work: elements of ``size`` bytes, from ``s`` to ``t``."""

    def __init__(self, f: Function, isa: Isa, size: int, streams: bool, scratch: Value | None = None) -> None:
        self.f = f
        self.scratch = scratch or f.constant("ptr", 0)
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
        if self.streams and nbytes >= 16 * LINE:
            self._stream(s, t, nbytes)
            return
        group = 4 * width
        whole = nbytes // group * group
        if whole > group:
            with f.loop(0, whole, group) as loop:
                # All loads first: nothing says that the store of one does not change the next.
                ats = [loop.index + i * width for i in range(4)]
                for x, at in [(f.load(type, f.at(s, at), 1), at) for at in ats]:
                    f.store(x, f.at(t, at), 1)
        else:
            whole = 0
        last = [nbytes - width] if nbytes % width else []
        for at in [*range(whole, nbytes - width + 1, width), *last]:
            f.store(f.load(type, f.at(s, at), 1), f.at(t, at), 1)

    def _stream(self, s: Value, t: Value, nbytes: int) -> None:
        """Contiguous bytes past the caches: whole cache lines, and two vectors over the parts of lines at the ends."""
        f, step = self.f, self.bytes
        type = vector("i8", step)
        head = (f.constant("i64", 0) - f.cast("ptrtoint", t, "i64")) & (LINE - 1)

        def line(at: int) -> None:
            for k in range(at, at + LINE, step):
                f.store(f.load(type, f.at(s, k), 1), f.at(t, k), 1)

        with f.loop(head, nbytes - LINE + 1, LINE) as loop:
            a, b = f.at(s, loop.index), f.at(t, loop.index)
            for x, at in [(f.load(type, f.at(a, at), 1), at) for at in range(0, LINE, step)]:
                f.store(x, f.at(b, at), step, stream=True)
        with f.if_(head.ne(0)):
            line(0)
        with f.if_(head.ne(nbytes % LINE)):
            line(nbytes - LINE)

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

    def block(self, s: Value, t: Value, p: MoveAxis, q: MoveAxis, side: int) -> None:
        """``p.size`` x ``q.size`` elements in tiles; ``p`` is contiguous in the source, ``q`` in the target."""
        f = self.f
        side = min(side, self.bytes // self.size)
        row = q.size * self.size
        if self.streams and self.size < 4:
            pitch = row + LINE  # rows a power of two apart would share few places of the cache
            self._tiles(s, self.scratch, MoveAxis(p.size, p.source, pitch), q, side)
            with f.loop(0, p.size) as loop:
                self.run(f.at(self.scratch, loop.index * pitch), f.at(t, loop.index * p.target), row)
        elif self.streams and side * self.size == LINE and q.size % side == 0 and p.target % LINE == 0:
            aligned = (f.cast("ptrtoint", t, "i64") & (LINE - 1)).eq(0)
            with f.if_(aligned):
                self._tiles(s, t, p, q, side, stream=True)
            with f.if_(~aligned):
                self._tiles(s, t, p, q, side)
        else:
            self._tiles(s, t, p, q, side)

    def _tiles(self, s: Value, t: Value, p: MoveAxis, q: MoveAxis, side: int, *, stream: bool = False) -> None:
        """Tiles of ``side`` rows of the source, each as long as a vector if there is room."""
        f = self.f
        lanes = self.bytes // self.size
        wide = lanes if p.size >= lanes else side
        over_p = Level(p, -(-p.size // wide), wide, p.size - wide)
        over_q = Level(q, -(-q.size // side), side, q.size - side)
        type = vector(self.element, wide)
        with f.loop(0, over_q.count) as j:
            a, b = _begin(f, over_q, j.index, s, t)
            with f.loop(0, over_p.count) as i:
                c, d = _begin(f, over_p, i.index, a, b)
                rows = [f.load(type, f.at(c, k * q.source), 1) for k in range(side)]
                for k, column in enumerate(transposed(f, rows)):
                    for group in range(0, wide, side):
                        part = f.shuffle(column, None, range(group, group + side)) if wide > side else column
                        f.store(part, f.at(d, (group + k) * p.target), LINE if stream else 1, stream=stream)

    def line(self, s: Value, t: Value, axis: MoveAxis) -> None:
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
                places = range(0, lanes * stride, stride)
                starts = _starts(places, lanes)
                y = _picked(f, [f.load(type, f.at(a, start, self.size), 1) for start in starts], starts, places)
            f.store(y, b, 1)

    def groups(self, s: Value, t: Value, p: MoveAxis, q: MoveAxis) -> None:
        """``p`` and the short ``q`` inside it, which are one run of the target, as many of ``p`` as there are lanes."""
        f, size = self.f, self.size
        lanes = min(self.bytes // size, 1 << p.size.bit_length() - 1)
        places = [(i * p.source + j * q.source) // size for i in range(lanes) for j in range(q.size)]
        starts = _starts(places, lanes)
        type = vector(self.element, lanes)
        with f.loop(0, -(-p.size // lanes)) as loop:
            a, b = _begin(f, Level(p, -(-p.size // lanes), lanes, p.size - lanes), loop.index, s, t)
            vectors = [f.load(type, f.at(a, start * size), 1) for start in starts]
            for first in range(0, len(places), lanes):
                y = _picked(f, vectors, starts, places[first : first + lanes])
                f.store(y, f.at(b, first * size), 1)

    def elements(self, s: Value, t: Value, axis: MoveAxis) -> None:
        """One loop, element by element, four a turn."""
        f = self.f
        group = min(4, axis.size)
        level = Level(axis, -(-axis.size // group), group, axis.size - group)
        with f.loop(0, level.count) as loop:
            a, b = _begin(f, level, loop.index, s, t)
            xs = [f.load(self.element, f.at(a, i * axis.source), 1) for i in range(group)]
            for i, x in enumerate(xs):
                f.store(x, f.at(b, i * axis.target), 1)


def _starts(places: Iterable[int], lanes: int) -> list[int]:
    """Where vectors begin that hold the elements at ``places``, and of which none reads anything behind them.

    Each begins with the first element that no vector before has, and the last one ends with the last element.
    """
    wanted = sorted(set(places))
    starts: list[int] = []
    for place in wanted:
        if not starts or place >= starts[-1] + lanes:
            starts.append(min(place, wanted[-1] - lanes + 1))
    return starts


def _picked(f: Function, vectors: Sequence[Value], starts: Sequence[int], places: Sequence[int]) -> Value:
    """The elements at ``places``, of vectors that begin at ``starts``."""
    lanes = len(places)
    y: Value | None = None
    filled: set[int] = set()
    for x, start in zip(vectors, starts, strict=True):
        mine = {k: place - start for k, place in enumerate(places) if 0 <= place - start < lanes and k not in filled}
        if not mine:
            continue
        if y is None:
            y = f.shuffle(x, None, [mine.get(k, -1) for k in range(lanes)])
        else:
            y = f.shuffle(y, x, [k if k in filled else lanes + mine[k] if k in mine else -1 for k in range(lanes)])
        filled |= mine.keys()
    assert y is not None
    assert len(filled) == lanes
    return y


def transposed(f: Function, rows: Sequence[Value]) -> list[Value]:
    """The columns of squares that lie side by side in ``rows``: of ``side`` rows, and as many lanes each.

    A perfect shuffle takes row i and row i + side/2 to rows 2i and 2i + 1, lanes interleaved: the number of an element,
    (row, lane) in binary, is rotated by one bit. After log2(side) of them row and lane have changed places.
    """
    side, lanes = len(rows), lanes_of(rows[0].type)
    half = side // 2
    for _ in range(side.bit_length() - 1):
        masks = [
            [g + first + i // 2 + (i % 2) * lanes for g in range(0, lanes, side) for i in range(side)]
            for first in (0, half)
        ]
        rows = [f.shuffle(a, b, mask) for a, b in zip(rows[:half], rows[half:], strict=True) for mask in masks]
    return list(rows)
