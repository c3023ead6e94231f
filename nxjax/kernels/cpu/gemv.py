"""Products of a matrix with a few vectors: the matrix is read once, as fast as memory gives it.

``out[r, n] = sum over k of few[r, k] * many[k, n]`` for up to `MOST` rows. An item makes some columns of the result.
Where ``many`` lies along the depth (`along` is ``depth``), each column is a dot product of vectors, up to four at
once, or eight short ones. Where its columns lie side by side, rows of it are added, eight at once, to sums in the first
cache, which are put by after many of them. For more than a few vectors, strips of sums stay in registers for some rows
of the matrix. Knows no op.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.epilogue import Epilogue, finish_row
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, is_float, lanes_of
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace.dtypes import DType

# Rows, by the dimension that has no gaps: of more, `Gemm` is faster.
MOST: Final = {"columns": 8, "depth": 4}
BLOCK: Final = 4096  # columns of an item, at most
LINE: Final = BLOCK + 16  # sums of a row: rows that are powers of two apart share few places of the first cache
PAGE: Final = 4096  # bytes
LINES: Final = 16  # rows of the matrix whose products with a strip of columns are made one after the other
MANY: Final = 512  # rows that are added before their sums are put by, likewise
DEEP: Final = 8192  # products in a row of a dot product, before their sums are added up: longer sums lose digits

SHORT: Final = 256  # products in a row of a dot product, of which so few are begun and ended all the time


@final
@dataclass(frozen=True, eq=False)
class Gemv(Kernel):
    """Operands: few ``[rows, depth]``, many ``[depth, columns]``, those of the epilogue; then its results.

    Attributes:
        rows: of the result.
        few, many: dtypes; rows of ``few`` have no gaps.
        sums: dtype in which products are made and summed.
        along: the dimension of ``many`` that has no gaps.
        columns, depth: sizes. ``block``: columns of an item.
        few_row, many_step: bytes from row to row of ``few``; from column to column of ``many``, or along its depth.
        others: bytes from row to row of the epilogue's operands, then of its results.
        batch: sizes, and bytes from one product to the next: few, many, others.
    """

    rows: int
    few: DType
    many: DType
    sums: DType
    along: Literal["depth", "columns"]
    columns: int
    depth: int
    block: int
    few_row: int
    many_step: int
    others: tuple[int, ...]
    end: Epilogue
    batch: tuple[tuple[int, ...], ...] = ()

    @property
    def key(self) -> str:
        types = f"{self.few.name} {self.many.name} {self.sums.name}"
        return f"gemv({self.rows} {types} {self.along} {self.group} {len(self.batch)} {self.end.key})"

    @property
    def group(self) -> int:
        """Columns whose dot products are made together."""
        if self.along == "columns":
            return 0
        return min(8 if self.rows == 1 and self.depth <= SHORT else 4, self.columns)

    @property
    def strips(self) -> bool:
        """Whether so many products are made of a number that sums stay in registers."""
        return self.along == "columns" and self.rows > (4 if self.many == self.sums else 2)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return -(-self.columns // self.block) * math.prod(n for n, *_ in self.batch)

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 16384 // max(1, self.block * self.depth))

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        put_by = self.along == "columns" and self.depth > MANY
        return ((1 + put_by) * LINE + self.strips * MANY) * self.rows * self.sums.itemsize

    @property
    def integers(self) -> tuple[int, ...]:
        flat = [x for axis in self.batch for x in axis]
        return (self.columns, self.depth, self.block, self.few_row, self.many_step, *self.others, *flat)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        work = np.float64 if self.sums.kind == "f" else np.int64
        found = np.matmul(xs[0].astype(work), xs[1].astype(work))
        return self.end.meaning(found.astype(self.sums).astype(self.end.product), *xs[2:])

    def touches(self) -> Touches:
        many = self.many.itemsize
        batch = tuple(n for n, *_ in self.batch)
        steps = lambda i: tuple(axis[1 + i] for axis in self.batch)
        few = Box(self.few.itemsize, (*batch, self.rows, self.depth), (*steps(0), self.few_row, self.few.itemsize))
        column, down = (self.many_step, many) if self.along == "depth" else (many, self.many_step)
        right = Box(many, (*batch, self.columns, self.depth), (*steps(1), column, down))
        moves = [steps(2 + i) for i in range(len(self.others))]
        rest = self.end.boxes(self.rows, self.columns, self.others, batch, moves)
        count = len(self.end.operands)
        return plain([few, right, *rest[:count]], rest[count:])

    def cost(self) -> KernelCost:
        n = float(self.depth * self.columns * math.prod(n for n, *_ in self.batch))
        written = sum(n / max(self.depth, 1) * self.rows * d.itemsize for d in self.end.outs)
        return KernelCost(2.0 * self.rows * n, n * self.many.itemsize, written)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        count = len(self.end.operands) + len(self.end.outs)
        few, many, *others = (pointer(f, words, i) for i in range(2 + count))
        width_ = 3 + count
        last = 7 + 2 * count
        columns, depth, block, few_row, many_step, *rows = (integer(f, words, i) for i in range(2 + count, last))
        batch = [[integer(f, words, last + a * width_ + i) for i in range(width_)] for a in range(len(self.batch))]
        wide = [*((o.dtype, o.wide) for o in self.end.operands), *((d, True) for d in self.end.outs)]
        n, lanes = len(self.end.operands), isa.lanes(self.sums.itemsize)
        with f.loop(lo, hi) as item:
            turn = item.index
            if batch:
                blocks = (columns + (block - 1)).sdiv(block)
                turn, matrix = item.index.srem(blocks), item.index.sdiv(blocks)
                places = [few, many, *others]
                for size, *strides in reversed(batch):
                    i, matrix = matrix.srem(size), matrix.sdiv(size)
                    places = [f.at(p, i * s) for p, s in zip(places, strides, strict=True)]
                few_, many_, *others_ = places
            else:
                few_, many_, others_ = few, many, others
            code = _Code(self, f, isa, few_, few_row, many_step, depth, scratch)
            j = turn * block
            width = f.select((columns - j).lt(block), columns - j, block)
            if self.along == "depth":
                code.dots(f.at(many_, j * many_step), width)
            else:
                code.added(f.at(many_, j, self.many.itemsize), width)
            for r in range(self.rows):
                places: list[Value] = []
                for (dtype, side), x, stride in zip(wide, others_, rows, strict=True):
                    row = f.at(x, stride * r)
                    places.append(f.at(row, j, dtype.itemsize) if side else row)
                source = code.sum(r, 0)
                finish_row(f, isa, self.end, source, self.sums, lanes, places[:n], places[n:], width)
        f.ret()


@final
class _Code:
    """Writes the sums of a block of columns into scratch, `LINE` to a row."""

    def __init__(
        self, kernel: Gemv, f: Function, isa: Isa, few: Value, few_row: Value, step: Value, depth: Value, scratch: Value
    ) -> None:
        self.k, self.f, self.isa = kernel, f, isa
        self.step, self.depth = step, depth
        self.size = kernel.sums.itemsize
        self.lanes = isa.lanes(self.size)
        self.few = [f.at(few, few_row * r) for r in range(kernel.rows)]
        # Rows that are computed together, as registers allow: where they begin, and how many.
        most = 4 if kernel.along == "columns" or isa.registers >= 32 else 2
        self.chunks = [(r, min(most, kernel.rows - r)) for r in range(0, kernel.rows, most)]
        # Of strips, first the numbers of `few` that belong to a part; then sums, then those put by.
        self.numbers = scratch
        self.scratch = f.at(scratch, kernel.rows * MANY * self.size) if kernel.strips else scratch

    def loaded(self, dtype: DType, at: Value, lanes: int) -> Value:
        x = convert.load(self.f, self.isa, dtype, at, lanes)
        return convert.convert(self.f, self.isa, x, dtype, self.k.sums)

    def number(self, dtype: DType, place: Value, lanes: int, mask: Value | None) -> Value:
        """As `loaded`; of the lanes of ``mask`` only, if there is one, and zeros."""
        f = self.f
        if mask is None:
            return self.loaded(dtype, place, lanes)
        raw = f.load_masked(convert.memory_type(dtype, lanes), place, mask)
        return convert.convert(f, self.isa, convert.from_memory(f, self.isa, dtype, raw), dtype, self.k.sums)

    def plus(self, total: Value, x: Value, y: Value) -> Value:
        return self.f.fma(x, y, total) if is_float(total.type) else total + x * y

    def zero(self, lanes: int) -> Value:
        return self.f.constant(convert.memory_type(self.k.sums, lanes), 0)

    def dots(self, many: Value, width: Value) -> None:
        f, k = self.f, self.k
        # Columns that are far apart, each followed by its next: memory gives such runs the fastest.
        far = (width + (k.group - 1)).sdiv(k.group)
        with f.loop(0, far) as turn:
            places = [turn.index + far * g if g else turn.index for g in range(k.group)]
            # Columns beyond the last are the last once more; nobody looks at what they give.
            columns = [f.at(many, f.select(j.lt(width), j, width - 1) * self.step) for j in places]
            for first, count in self.chunks:
                found = self.products(self.few[first : first + count], columns)
                for g, j in enumerate(places):
                    for r in range(count):
                        f.store(found[g * count + r], self.sum(first + r, j))

    def products(self, few: Sequence[Value], columns: Sequence[Value]) -> list[Value]:
        """The dot products of ``few`` with each column, column by column."""
        f, size = self.f, len(few) * len(columns)
        start, totals = f.value(0, "i64"), [self.zero(self.lanes)] * size
        # Enough sums at once for the latency of an addition, then whole vectors, then what is left.
        for copies in dict.fromkeys((max(1, 8 // size), 1)):
            turn = self.lanes * copies
            stop = start + ((self.depth - start) & -turn)
            zeros = [self.zero(self.lanes)] * (copies * size)
            with f.loop(start, stop, DEEP, carry=zeros) as part:
                after = part.index + DEEP
                after = f.select(after.lt(stop), after, stop)
                with f.loop(part.index, after, turn, carry=zeros) as loop:
                    loop.next(*self.further(loop.carried, few, columns, loop.index, copies, self.lanes, None))
                part.next(*(x + y for x, y in zip(part.carried, loop.results, strict=True)))
            found = [*totals, *part.results]
            while len(found) > size:
                found = [x + y for x, y in zip(found[:size], found[-size:], strict=True)] + found[size:-size]
            totals, start = found, stop
        if self.isa.bits == 512:
            with f.loop(start, self.depth, self.lanes, carry=totals) as loop:
                mask = f.lanes_below(self.depth - loop.index, self.lanes)
                loop.next(*self.further(loop.carried, few, columns, loop.index, 1, self.lanes, mask))
            return _totals(f, loop.results)
        with f.loop(start, self.depth, carry=[self.zero(0)] * size) as loop:
            loop.next(*self.further(loop.carried, few, columns, loop.index, 1, 0, None))
        return [x + y for x, y in zip(_totals(f, totals), loop.results, strict=True)]

    def further(
        self,
        totals: Sequence[Value],
        few: Sequence[Value],
        columns: Sequence[Value],
        start: Value,
        copies: int,
        lanes: int,
        mask: Value | None,
    ) -> list[Value]:
        """``totals`` with the products of ``copies`` times ``lanes`` numbers from ``start`` on."""
        f, k, found = self.f, self.k, list[Value]()
        for c in range(copies):
            at = start + c * lanes if c else start
            xs = [self.number(k.few, f.at(p, at, k.few.itemsize), lanes, mask) for p in few]
            for column in columns:
                y = self.number(k.many, f.at(column, at, k.many.itemsize), lanes, mask)
                found += [self.plus(totals[len(found) + r], x, y) for r, x in enumerate(xs)]
        return found

    def added(self, many: Value, width: Value) -> None:
        f, k = self.f, self.k
        with f.loop(0, (width + (self.lanes - 1)) & -self.lanes, self.lanes) as loop:
            for r in range(k.rows):
                f.store(self.zero(self.lanes), self.sum(r, loop.index), 4)
        with f.loop(0, self.depth, MANY) as part:
            after = part.index + MANY
            after = f.select(after.lt(self.depth), after, self.depth)
            with f.if_(part.index.ge(1)):
                self.put_by(width, part.index.eq(MANY))
            (self.strips if k.strips else self.lines)(many, part.index, after, width)
        with f.if_(self.depth.gt(MANY)):
            self.put_by(width, None)

    def sum(self, row: int, at: Value | int) -> Value:
        """Where the sum of a column is."""
        return self.f.at(self.f.at(self.scratch, row * LINE * self.size), at, self.size)

    # --- few rows: sums are in memory, and the matrix is read in long runs ---

    def lines(self, many: Value, start: Value, after: Value, width: Value) -> None:
        """Rows ``start`` to ``after`` of the matrix, some at a time, added to the sums."""
        f, k, whole = self.f, self.k, width & -self.lanes
        for turn in (8 // k.rows, 1):
            # Rows that are far apart, each followed by its next: memory gives such runs the fastest.
            far = (after - start).sdiv(turn)
            with f.loop(start, start + far) as loop:
                rows = [loop.index + far * u if u else loop.index for u in range(turn)]
                lines = [f.at(many, row * self.step) for row in rows]
                xs: list[list[Value]] = []
                for p in self.few:
                    xs.append([self.loaded(k.few, f.at(p, row, k.few.itemsize), 0) for row in rows])
                wide = [[f.splat(x, self.lanes) for x in row] for row in xs]
                with f.loop(0, whole, self.lanes) as columns:
                    self.line(lines, wide, columns.index, self.lanes, None)
                if self.isa.bits == 512:
                    with f.if_(whole.lt(width)):
                        self.line(lines, wide, whole, self.lanes, f.lanes_below(width - whole, self.lanes))
                else:
                    with f.loop(whole, width) as columns:
                        self.line(lines, xs, columns.index, 0, None)
            start = start + far * turn

    def put_by(self, width: Value, first: Value | None) -> None:
        """Add the sums so far to those put by, if it is not the ``first`` time, and begin anew; None: take them all."""
        f, k, zero = self.f, self.k, self.zero(self.lanes)
        with f.loop(0, (width + (self.lanes - 1)) & -self.lanes, self.lanes) as loop:
            for r in range(k.rows):
                now, by = (self.sum(row, loop.index) for row in (r, k.rows + r))
                total = f.load(zero.type, by, self.size)
                if first is not None:
                    total = f.select(first, zero, total)
                total = total + f.load(zero.type, now, self.size)
                f.store(zero if first is not None else total, now, self.size)
                if first is not None:
                    f.store(total, by, self.size)

    def line(self, lines: Sequence[Value], xs: list[list[Value]], at: Value, lanes: int, mask: Value | None) -> None:
        """Some columns of the rows at ``lines``, times ``xs``, added to the sums."""
        places = [self.sum(r, at) for r in range(self.k.rows)]
        totals = [self.f.load(convert.memory_type(self.k.sums, lanes), p, self.size) for p in places]
        for u, line in enumerate(lines):
            y = self.number(self.k.many, self.f.at(line, at, self.k.many.itemsize), lanes, mask)
            totals = [self.plus(t, row[u], y) for t, row in zip(totals, xs, strict=True)]
        for t, p in zip(totals, places, strict=True):
            self.f.store(t, p, self.size)

    # --- more rows: sums are in registers for `LINES` rows of the matrix ---

    def strips(self, many: Value, start: Value, after: Value, width: Value) -> None:
        """As `lines`, a few columns at a time."""
        f, k, begun = self.f, self.k, start
        with f.loop(start, after) as i:
            for r, p in enumerate(self.few):
                x = self.loaded(k.few, f.at(p, i.index, k.few.itemsize), 0)
                f.store(x, f.at(self.numbers, (i.index - start) * k.rows + r, self.size), self.size)
        for lines in (LINES, 1):
            count = (after - start).sdiv(lines)
            down, far = f.value(1, "i64"), count
            if k.many.itemsize < self.size:
                # Strips of narrow numbers share lines of caches, which rows that are pages apart would drive out.
                near = self.step.ge(PAGE)
                down, far = f.select(near, lines, down), f.select(near, 1, far)
            steps = far * self.step, far * (k.rows * self.size)
            with f.loop(0, count) as loop:
                row = loop.index * down
                first = f.at(many, (start + row) * self.step)
                xs = f.at(self.numbers, (start - begun + row) * k.rows, self.size)
                self.across(first, xs, steps, lines, width)
            start = start + count * lines

    def across(self, first: Value, xs: Value, steps: tuple[Value, Value], lines: int, width: Value) -> None:
        """`strip` for all columns."""
        f = self.f
        begin = f.value(0, "i64")
        for vectors in (3, 1):
            stop = begin + ((width - begin).sdiv(vectors * self.lanes) * (vectors * self.lanes))
            with f.loop(begin, stop, vectors * self.lanes) as columns:
                self.strip(first, xs, steps, lines, columns.index, vectors, self.lanes, None)
            begin = stop
        if self.isa.bits == 512:
            with f.if_(begin.lt(width)):
                self.strip(first, xs, steps, lines, begin, 1, self.lanes, f.lanes_below(width - begin, self.lanes))
        else:
            with f.loop(begin, width) as columns:
                self.strip(first, xs, steps, lines, columns.index, 1, 0, None)

    def strip(
        self,
        first: Value,
        xs: Value,
        steps: tuple[Value, Value],
        lines: int,
        at: Value,
        vectors: int,
        lanes: int,
        mask: Value | None,
    ) -> None:
        """``vectors`` columns from ``at`` on, of the rows of the matrix from ``first`` on, times ``xs``, added to sums.

        The second rows of ``few`` find in the first cache what the first have read.
        """
        f, k, number = self.f, self.k, convert.memory_type(self.k.sums)
        for start, count in self.chunks:
            places = [self.sum(start + r, at + v * lanes if v else at) for r in range(count) for v in range(vectors)]
            totals = [f.load(convert.memory_type(k.sums, lanes), p, self.size) for p in places]
            with f.loop(0, lines, carry=totals) as line:
                row = f.at(f.at(first, line.index * steps[0]), at, k.many.itemsize)
                numbers = f.at(xs, line.index * steps[1])
                ys = [self.number(k.many, f.at(row, v * lanes * k.many.itemsize), lanes, mask) for v in range(vectors)]
                found: list[Value] = []
                for r in range(count):
                    x = f.load(number, f.at(numbers, (start + r) * self.size), self.size)
                    wide = f.splat(x, lanes)
                    found += [self.plus(line.carried[r * vectors + v], wide, y) for v, y in enumerate(ys)]
                line.next(*found)
            for y, p in zip(line.results, places, strict=True):
                f.store(y, p, self.size)


def total(f: Function, x: Value) -> Value:
    """The sum of a vector's lanes, halves first; a scalar is itself."""
    while (lanes := lanes_of(x.type)) > 1:
        low, high = f.shuffle(x, None, range(lanes // 2)), f.shuffle(x, None, range(lanes // 2, lanes))
        x = low + high
    return f.extract(x, 0) if lanes_of(x.type) else x


def _totals(f: Function, xs: Sequence[Value]) -> list[Value]:
    """`total` of each: vectors are added together, as long as two have room in one."""
    lanes, found = lanes_of(xs[0].type), list(xs)
    if len(xs) == 1 or lanes < len(xs):
        return [total(f, x) for x in xs]
    # Each vector is a row of blocks, of which each has the parts of one sum.
    width = lanes
    while width > 1:
        half = width // 2
        first = [i for i in range(2 * lanes) if i % width < half]
        second = [i + half for i in first]
        if len(found) > 1:
            found += [found[-1]] * (len(found) % 2)
            pairs = list(zip(found[::2], found[1::2], strict=True))
            found = [f.shuffle(x, y, first) + f.shuffle(x, y, second) for x, y in pairs]
            width = half
        else:
            (x,) = found
            for n in (width >> i for i in range(1, width.bit_length())):
                x = x + f.shuffle(x, None, [(i + n) % lanes for i in range(lanes)])
            return [f.extract(x, i * width) for i in range(len(xs))]
    return [f.extract(found[0], i) for i in range(len(xs))]


def block_for(along: str, columns: int, depth: int, part: bool) -> int:
    """Columns of an item; ``part``: of a part of a product, of which there are several.

    Dot products: some thirty thousand products. Sums of rows: memory gives long runs much faster than short ones,
    so all columns at once, or half of them where a matrix that is no part is larger than the second cache.
    """
    if along == "depth":
        block = -(-32768 // max(depth, 1))
    else:
        block = -(-columns // 2) if columns * depth > 1 << 18 and columns >= 1024 and not part else columns
    return min(BLOCK, -(-min(max(block, 64), columns) // 64) * 64)


def pieces_for(along: str, depth: int, row: int, sums: DType, many: bool) -> int:
    """How many pieces a matrix with rows of ``row`` bytes is cut into along its depth; ``many``: there is a batch.

    Where its rows are added, pieces are at least 2 MiB, so that their sums, which go to memory, are nothing beside
    them. Longer sums of floats lose digits.
    """
    pieces = min(16, depth * row >> 21, depth) if along == "columns" and not many else 1
    return max(pieces, parts_of(depth, DEEP if along == "depth" else MANY, sums))


def parts_of(depth: int, chain: int, sums: DType) -> int:
    """How many parts, themselves cut if need be, a sum of floats is made of that adds up ``chain`` products at a time.

    Not more than 64 sums are added one after the other.
    """
    return min(64, -(-depth // (64 * chain))) if sums.kind == "f" else 1
