"""Cholesky factorization of matrices one at a time, by panels; beside `linalg.Cholesky`, which has matrices in lanes.

A panel is as many columns as `GROUP` has lanes. What it needs of the rows that cross its diagonal stands transposed in
scratch memory: line k has their elements of column k in its lanes. So one line, times an element of each of several
rows, is what column k takes from these rows; inside the panel the element is in a lane of the row itself. Every element
of the input is read before the place of it is written, and every number has one order of operations, whatever the
vectors of the processor are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from nxjax.kernels.cpu.base import pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.linalg import DTYPES, GROUP, Alike, Cholesky, DType
from nxjax.kernels.cpu.move import transposed

MOST = 8  # rows that are worked on together
SMALL = 24  # rows from which one matrix at a time is quicker, however many there are


@final
class CholeskyPanels(Alike):
    """As `linalg.Cholesky`."""

    grain = 1

    def __init__(self, dtype: DType, count: int, n: int) -> None:
        self.dtype, self.count, self.n = dtype, count, n
        self.items = count
        self.lanes = GROUP // dtype.itemsize
        self.scalar = DTYPES[dtype]
        self.vector = vector(self.scalar, self.lanes)
        self.panels = -(-n // self.lanes)
        self.scratch = (self.panels * self.lanes + 1) * GROUP

    @property
    def key(self) -> str:
        return f"cholesky_panels({self.dtype.name},{self.count},{self.n})"

    def alike(self) -> Cholesky:
        return Cholesky(self.dtype, self.count, self.n)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, lines = self.function(module)
        n, size, lanes = self.n, self.dtype.itemsize, self.lanes
        x, y = pointer(f, words, 0), pointer(f, words, 1)
        with f.loop(lo, hi) as item:
            source, target = (f.at(p, item.index, n * n * size) for p in (x, y))
            with f.loop(0, n, lanes, (f.constant("i1", True),)) as panel:
                first, block = panel.index, f.at(lines, panel.index, GROUP)
                width = f.intrinsic("smin", "i64", f.constant("i64", n) - first, f.constant("i64", lanes))
                self._turned(f, target, lines, first, isa.lanes(size))
                self._diagonal(f, source, lines, block, first, width)
                good = self._factorized(f, block, width)
                panel.next(panel.carried[0] & good)
                self._stored(f, target, block, first, width)
                self._below(f, source, target, lines, first, isa)
            with f.if_(~panel.results[0]), f.loop(0, n) as row, f.loop(0, row.index + 1) as column:
                nan = f.constant(self.scalar, float("nan"))
                f.store(nan, self._place(f, target, row.index, column.index))
        f.ret()

    def _place(self, f: Function, matrix: Value, row: Value, column: Value) -> Value:
        return f.at(matrix, row * self.n + column, self.dtype.itemsize)

    def _line(self, f: Function, place: Value, mine: Value | int = 0) -> Value:
        return f.load(self.vector, f.at(place, mine, GROUP), GROUP)

    def _turned(self, f: Function, target: Value, lines: Value, first: Value, side: int) -> None:
        """The rows that cross the panel's diagonal, as far as they are known, into lines."""
        size, last = self.dtype.itemsize, f.constant("i64", self.n - 1)
        side = min(side, self.lanes)
        type = vector(self.scalar, side)
        with f.loop(0, first, side) as k:
            for group in range(0, self.lanes, side):
                # Rows that the matrix has not are in lanes that nobody reads.
                numbers = [f.intrinsic("smin", "i64", first + (group + i), last) for i in range(side)]
                rows = [f.load(type, self._place(f, target, row, k.index), size) for row in numbers]
                for i, column in enumerate(transposed(f, rows)):
                    f.store(column, f.at(f.at(lines, k.index + i, GROUP), group, size), side * size)

    def _diagonal(self, f: Function, source: Value, lines: Value, block: Value, first: Value, width: Value) -> None:
        """Columns of the block on the diagonal, less what the columns before take of them, into lines."""
        size = self.dtype.itemsize
        zero = f.constant(self.vector, 0.0)
        with f.loop(0, self.lanes) as k:
            f.store(zero, f.at(block, k.index, GROUP), GROUP)
        with f.loop(0, width) as c, f.loop(0, c.index + 1) as k:
            place = f.at(f.at(block, k.index, GROUP), c.index, size)
            f.store(f.load(self.scalar, self._place(f, source, first + c.index, first + k.index)), place)
        rows = 4
        with f.loop(0, self.lanes, rows) as k:
            mine = [f.at(block, k.index + r, GROUP) for r in range(rows)]
            with f.loop(0, first, 1, [self._line(f, place) for place in mine]) as j:
                line = f.at(lines, j.index, GROUP)
                other = self._line(f, line)
                factors = [f.load(self.scalar, f.at(line, k.index + r, size)) for r in range(rows)]
                j.next(*self._less(f, factors, other, j.carried))
            for place, value in zip(mine, j.results, strict=True):
                f.store(value, place, GROUP)

    def _less(self, f: Function, factors: Sequence[Value], line: Value, rows: Sequence[Value]) -> list[Value]:
        """Each row less a number of its own times ``line``."""
        spread = [x if x.type == self.vector else f.splat(x, self.lanes) for x in factors]
        return [f.fma(-x, line, row) for x, row in zip(spread, rows, strict=True)]

    def _factorized(self, f: Function, block: Value, width: Value) -> Value:
        """The columns of the block's factor, and behind the block the inverse of its diagonal; if it has one."""
        size = self.dtype.itemsize
        inverses = f.at(block, self.lanes, GROUP)
        with f.loop(0, width, 1, (f.constant("i1", True),)) as k:
            line = f.at(block, k.index, GROUP)
            pivot = f.load(self.scalar, f.at(line, k.index, size))
            k.next(k.carried[0] & ~pivot.le(0.0))
            root = f.intrinsic("sqrt", self.scalar, pivot)
            inverse = 1.0 / root
            column = self._line(f, line) * f.splat(inverse, self.lanes)
            f.store(column, line, GROUP)
            f.store(root, f.at(line, k.index, size))
            f.store(inverse, f.at(inverses, k.index, size))
            with f.loop(k.index + 1, width) as later:
                place = f.at(block, later.index, GROUP)
                factor = f.load(self.scalar, f.at(line, later.index, size))
                (left,) = self._less(f, (factor,), column, (self._line(f, place),))
                f.store(left, place, GROUP)
        return k.results[0]

    def _stored(self, f: Function, target: Value, block: Value, first: Value, width: Value) -> None:
        """The rows of the block's factor, zeros behind them; then each line times the diagonal's inverse."""
        size = self.dtype.itemsize
        with f.loop(0, width) as c:
            row = f.at(target, (first + c.index) * self.n, size)
            with f.loop(0, c.index + 1) as k:
                value = f.load(self.scalar, f.at(f.at(block, k.index, GROUP), c.index, size))
                f.store(value, f.at(row, first + k.index, size))
            behind = first + c.index + 1
            f.call(
                "memset", "ptr", f.at(row, behind, size), f.constant("i32", 0),
                (f.constant("i64", self.n) - behind) * size,
            )  # fmt: skip
        inverses = f.at(block, self.lanes, GROUP)
        numbers = f.constants("i64", range(self.lanes))
        with f.loop(0, width) as k:
            place = f.at(block, k.index, GROUP)
            inverse = f.splat(f.load(self.scalar, f.at(inverses, k.index, size)), self.lanes)
            behind = numbers.gt(f.splat(k.index, self.lanes))
            f.store(f.select(behind, self._line(f, place) * inverse, 0.0), place, GROUP)

    def _below(self, f: Function, source: Value, target: Value, lines: Value, first: Value, isa: Isa) -> None:
        """The panel's rows below its block, several at a time; the last of these end with the matrix."""
        rows = max(2, min(MOST, isa.registers * isa.bits // (16 * GROUP)))
        start, n = first + self.lanes, f.constant("i64", self.n)
        whole = f.select((n - start).ge(rows), n, start)
        with f.loop(start, whole, rows) as row:
            self._rows(f, source, target, lines, first, f.intrinsic("smin", "i64", row.index, n - rows), rows)
        with f.loop(whole, n) as row:
            self._rows(f, source, target, lines, first, row.index, 1)

    def _rows(
        self, f: Function, source: Value, target: Value, lines: Value, first: Value, start: Value, rows: int
    ) -> None:
        size = self.dtype.itemsize
        outs = [self._place(f, target, start + r, first) for r in range(rows)]
        mine = [f.at(target, (start + r) * self.n, size) for r in range(rows)]
        begin = [f.load(self.vector, self._place(f, source, start + r, first), size) for r in range(rows)]
        with f.loop(0, first, 1, begin) as k:
            factors = [f.load(self.scalar, f.at(row, k.index, size)) for row in mine]
            k.next(*self._less(f, factors, self._line(f, lines, k.index), k.carried))
        found = list(k.results)
        block = f.at(lines, first, GROUP)
        for k in range(self.lanes - 1):
            factors = [f.shuffle(row, None, [k] * self.lanes) for row in found]
            found = self._less(f, factors, self._line(f, block, k), found)
        inverses = self._line(f, block, self.lanes)
        for out, row in zip(outs, found, strict=True):
            f.store(row * inverses, out, size)


def kernel(dtype: DType, count: int, n: int) -> Cholesky | CholeskyPanels:
    """The quicker of the two: matrices in lanes where there are enough of them and they are small."""
    many = 2 * count * dtype.itemsize > GROUP
    return Cholesky(dtype, count, n) if n < SMALL and many else CholeskyPanels(dtype, count, n)
