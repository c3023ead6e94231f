"""LU factorization of matrices one at a time, by blocks of columns; beside `linalg_rows`, which rounds as `eval` does.

A panel is as many columns as `GROUP` has lanes. It is turned, so that rows are in lanes while its pivots are looked for
and each of its columns is taken from those before (G. Golub, C. Van Loan, "Matrix Computations", 3.2.9). What stands
behind a panel in its block is changed at once, what stands behind the block when all its panels are done: fewer times,
by longer products. The matrix stands in scratch memory, its rows filled up to an odd number of vectors, so that rows
are in different places of a cache.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, Alike, DType, Lu
from nxjax.kernels.cpu.linalg_tiles import Tile, tile
from nxjax.kernels.cpu.math_base import fabs
from nxjax.kernels.cpu.move import transposed

PANELS = 4  # of a block
WIDTH = 3  # vectors of a tile, where they are as long as `GROUP`
TALL = 4  # vectors of a column that are worked on together


@final
class LuBlocks(Alike):
    """As `linalg.Lu`, with sums in an order of its own."""

    grain = 1

    def __init__(self, dtype: DType, count: int, m: int, n: int) -> None:
        self.dtype, self.count, self.m, self.n = dtype, count, m, n
        self.items = count
        self.lanes = GROUP // dtype.itemsize
        self.scalar, self.word = DTYPES[dtype], f"i{8 * dtype.itemsize}"
        self.k = min(m, n)
        self.high = -(-m // self.lanes) * self.lanes
        self.stride = (-(-n // self.lanes) | 1) * self.lanes  # elements from one row to the next
        self.gap = self.high + self.lanes  # and from one of a panel's columns to the next
        self.scratch = (self.high * self.stride + self.lanes * self.gap) * dtype.itemsize

    @property
    def key(self) -> str:
        return f"lu_blocks({self.dtype.name},{self.count},{self.m},{self.n})"

    def alike(self) -> Lu:
        return Lu(self.dtype, self.count, self.m, self.n)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, matrix = self.function(module)
        m, n, size, side = self.m, self.n, self.dtype.itemsize, self.lanes
        x, y, pivots, order = (pointer(f, words, i) for i in range(4))
        panel = f.at(matrix, self.high * self.stride, size)
        last, nbytes = f.constant("i64", self.k), f.constant("i64", n * size)
        with f.loop(lo, hi) as item:
            swaps, numbers = f.at(pivots, item.index, 4 * self.k), f.at(order, item.index, 4 * m)
            # What is no element is zero: sums of what may lie there, if it is below the normal range, take far longer.
            zero = f.constant(vector(self.scalar, side), 0)
            for begin, end, across in ((0, m, n // side * side), (m, self.high, 0)):
                with f.loop(begin, end) as row, f.loop(across, self.stride, side) as column:
                    f.store(zero, self._place(f, matrix, row.index, column.index), GROUP)
            with f.loop(0, m) as row:
                f.call("memcpy", "ptr", self._place(f, matrix, row.index, 0),
                       f.at(x, item.index * m + row.index, n * size), nbytes)  # fmt: skip
                f.store(row.index.convert("i32"), f.at(numbers, row.index, 4))
            with f.loop(0, self.k, PANELS * side) as block:
                first = block.index
                end = f.intrinsic("smin", "i64", first + PANELS * side, f.constant("i64", self.stride))
                known = f.intrinsic("smin", "i64", first + PANELS * side, last)
                with f.loop(first, known, side) as step:
                    self._turned(f, isa, matrix, panel, step.index)
                    self._factorized(f, panel, swaps, numbers, step.index)
                    self._swapped(f, matrix, swaps, step.index)
                    self._turned(f, isa, matrix, panel, step.index, back=True)
                    behind = step.index + side
                    self._solved(f, isa, matrix, step.index, (step.index, behind), (behind, end))
                    self._less(f, isa, matrix, (behind, self.high), (behind, end), (step.index, behind))
                with f.loop(first, known, side) as step:
                    self._solved(f, isa, matrix, first, (step.index, step.index + side), (end, self.stride))
                self._less(f, isa, matrix, (end, self.high), (end, self.stride), (first, end))
            with f.loop(0, m) as row:
                f.call("memcpy", "ptr", f.at(y, item.index * m + row.index, n * size),
                       self._place(f, matrix, row.index, 0), nbytes)  # fmt: skip
        f.ret()

    def _place(self, f: Function, matrix: Value, row: Value, column: Value | int) -> Value:
        return f.at(matrix, row * self.stride + column, self.dtype.itemsize)

    # --- a panel ---

    def _turned(self, f: Function, isa: Isa, matrix: Value, panel: Value, first: Value, *, back: bool = False) -> None:
        """The panel's rows from its own on to columns, or back."""
        size = self.dtype.itemsize
        side = min(isa.lanes(size), self.lanes)
        type, nbytes = vector(self.scalar, side), side * size
        with f.loop(first, self.high, side) as row:
            for group in range(0, self.lanes, side):
                rows = [f.at(self._place(f, matrix, row.index + i, first), group, size) for i in range(side)]
                columns = [f.at(panel, row.index + (group + i) * self.gap, size) for i in range(side)]
                there, here = (columns, rows) if back else (rows, columns)
                found = transposed(f, [f.load(type, place, nbytes) for place in there])
                for place, value in zip(here, found, strict=True):
                    f.store(value, place, nbytes)

    def _factorized(self, f: Function, panel: Value, swaps: Value, numbers: Value, first: Value) -> None:
        """Column by column, less those before it, with the largest number of each in its row."""
        size, lanes = self.dtype.itemsize, self.lanes
        type = vector(self.scalar, lanes)
        width = f.intrinsic("smin", "i64", f.constant("i64", self.k) - first, f.constant("i64", lanes))
        index = f.constants(self.word, range(lanes))
        with f.loop(0, lanes) as step:
            j = step.index
            column = f.at(panel, j * self.gap, size)
            known = f.intrinsic("smin", "i64", j, width)
            corner = f.at(column, first, size)
            # The panel's own rows wait for each other.
            with f.loop(0, known, 1, (f.load(type, corner, GROUP),)) as k:
                (top,) = k.carried
                factor = f.splat(f.load(self.scalar, f.at(corner, k.index, size)), lanes)
                line = f.load(type, f.at(panel, k.index * self.gap + first, size), GROUP)
                below = index.gt(f.splat(k.index.convert(self.word), lanes))
                top = f.select(below, f.fma(-line, factor, top), top)
                f.store(top, corner, GROUP)
                k.next(top)
            mine = f.splat(j.convert(self.word), lanes)
            numbered = index + f.splat(first.convert(self.word), lanes)
            best = f.select(index.lt(mine), f.constant(index.type, -1), self._bits(f, k.results[0], numbered))
            # Below, it is a product of what is known by now.
            start = first + lanes
            whole = start + (f.constant("i64", self.high) - start).udiv(TALL * lanes) * (TALL * lanes)
            found = (best, numbered)
            for begin, end, tall in ((start, whole, TALL), (whole, f.constant("i64", self.high), 1)):
                with f.loop(begin, end, tall * lanes, found) as row:
                    places = [f.at(column, row.index + v * lanes, size) for v in range(tall)]
                    with f.loop(0, known, 1, [f.load(type, place, GROUP) for place in places]) as k:
                        factor = f.splat(-f.load(self.scalar, f.at(corner, k.index, size)), lanes)
                        other = f.at(panel, k.index * self.gap + row.index, size)
                        lines = [f.load(type, f.at(other, v * lanes, size), GROUP) for v in range(tall)]
                        k.next(*(f.fma(line, factor, old) for line, old in zip(lines, k.carried, strict=True)))
                    best, where = row.carried
                    for v, (place, value) in enumerate(zip(places, k.results, strict=True)):
                        f.store(value, place, GROUP)
                        numbered = index + f.splat((row.index + v * lanes).convert(self.word), lanes)
                        bits = self._bits(f, value, numbered)
                        more = bits.gt(best)
                        best, where = f.select(more, bits, best), f.select(more, numbered, where)
                    row.next(best, where)
                found = row.results
            with f.if_(j.lt(width)):
                k, p = first + j, self._first_of_most(f, *found).convert("i64")
                f.store(p.convert("i32"), f.at(swaps, k, 4))
                with f.if_(p.ne(k)):
                    with f.loop(0, lanes) as each:
                        other = f.at(panel, each.index * self.gap, size)
                        self._exchanged(f, self.scalar, [f.at(other, row, size) for row in (k, p)])
                    self._exchanged(f, "i32", [f.at(numbers, row, 4) for row in (k, p)])
                pivot = f.load(self.scalar, f.at(column, k, size))
                divisor = f.splat(f.select(pivot.eq(0.0), 1.0, pivot), lanes)
                top = f.load(type, corner, GROUP)
                f.store(f.select(index.gt(mine), top / divisor, top), corner, GROUP)
                with f.loop(start, self.high, lanes) as row:
                    place = f.at(column, row.index, size)
                    f.store(f.load(type, place, GROUP) / divisor, place, GROUP)

    def _bits(self, f: Function, x: Value, numbered: Value) -> Value:
        """Integers in the order of absolute values, NaN above all; -1 for rows that the matrix has not."""
        bits = fabs(f, x).bitcast(numbered.type)
        return bits if self.m == self.high else f.select(numbered.lt(self.m), bits, f.constant(bits.type, -1))

    def _first_of_most(self, f: Function, best: Value, where: Value) -> Value:
        lanes = self.lanes
        while lanes > 1:
            lanes //= 2
            halves = [[f.shuffle(x, None, range(i, i + lanes)) for i in (0, lanes)] for x in (best, where)]
            (a, b), (i, j) = halves
            other = b.gt(a) | (b.eq(a) & j.lt(i))
            best, where = f.select(other, b, a), f.select(other, j, i)
        return f.extract(where, 0)

    def _exchanged(self, f: Function, type: str, places: Sequence[Value]) -> None:
        a, b = (f.load(type, place) for place in places)
        f.store(b, places[0])
        f.store(a, places[1])

    # --- what stands beside it ---

    def _swapped(self, f: Function, matrix: Value, swaps: Value, first: Value) -> None:
        """The rows of the whole matrix as those of a panel have been exchanged."""
        size, type = self.dtype.itemsize, vector(self.scalar, self.lanes)
        with f.loop(first, f.intrinsic("smin", "i64", first + self.lanes, f.constant("i64", self.k))) as step:
            k = step.index
            p = f.load("i32", f.at(swaps, k, 4)).convert("i64")
            with f.if_(p.ne(k)):
                rows = [self._place(f, matrix, row, 0) for row in (k, p)]
                with f.loop(0, self.stride, self.lanes) as column:
                    self._exchanged(f, type, [f.at(row, column.index, size) for row in rows])

    def _tiles(self, f: Function, isa: Isa, columns: tuple[Value, Value | int]) -> list[tuple[Tile, Value, Value]]:
        """Tiles, and the columns from which on and up to which they are."""
        size = self.dtype.itemsize
        start, stop = columns[0], f.value(columns[1], "i64")
        vectors = self.lanes // isa.lanes(size)
        wide, narrow = (
            tile(isa, self.scalar, size, v, self.lanes) for v in (vectors if vectors > 1 else WIDTH, vectors)
        )
        whole = start + (stop - start).udiv(wide.columns) * wide.columns
        return [(wide, start, whole), (narrow, whole, stop)]

    def _less(
        self, f: Function, isa: Isa, matrix: Value, rows: tuple[Value, Value | int],
        columns: tuple[Value, Value | int], depth: tuple[Value, Value],
    ) -> None:  # fmt: skip
        """What the factors of ``depth`` take of the rows and columns."""
        for of, start, stop in self._tiles(f, isa, columns):
            with f.loop(start, stop, of.columns) as column, f.loop(*rows, of.rows) as row:
                places = [self._place(f, matrix, row.index + r, column.index) for r in range(of.rows)]
                right = f.at(matrix, column.index, self.dtype.itemsize)
                left = self._place(f, matrix, row.index, 0)
                found = of.less(f, of.load(f, places), left, (self.stride, 1), right, self.stride, depth)
                of.store(f, found, places)

    def _solved(
        self, f: Function, isa: Isa, matrix: Value, known: Value, rows: tuple[Value, Value],
        columns: tuple[Value, Value | int],
    ) -> None:  # fmt: skip
        """The columns of a panel's own rows less what those before, from ``known`` on, take of them."""
        size = self.dtype.itemsize
        for of, start, stop in self._tiles(f, isa, columns):
            with f.loop(start, stop, of.columns) as column, f.loop(*rows, of.rows) as row:
                places = [self._place(f, matrix, row.index + r, column.index) for r in range(of.rows)]
                left = self._place(f, matrix, row.index, 0)
                right = f.at(matrix, column.index, size)
                steps, depth = (self.stride, 1), (known, row.index)
                found = of.less(f, of.load(f, places), left, steps, right, self.stride, depth)
                for r in range(1, of.rows):
                    line = f.at(self._place(f, matrix, row.index + r, row.index), 0, size)
                    for q in range(r):
                        factor = of.factor(f, f.at(line, q, size))
                        found[r] = [f.fma(factor, x, y) for x, y in zip(found[q], found[r], strict=True)]
                of.store(f, found, places)
