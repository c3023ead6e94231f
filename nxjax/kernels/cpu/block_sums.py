"""The machine code of products with a matrix of few bits, `blocks.BlockProduct`: its loops, and what they sum.

An item has `GROUPS` groups of columns, and all rows. With a matrix unit and 16 rows or more, its columns are unpacked
once, and 16 rows at a time, then 8, are products of tiles. Other rows are summed in registers, up to eight at a time. A
block's sum is the same whole number either way, and is scaled and added by the same instructions. So a row gives the
same bits, whatever is beside it. Knows pointers and sizes, and no op.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Final, final

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, matrix_unit
from nxjax.kernels.cpu.base import integer, pointer
from nxjax.kernels.cpu.ir import Function, Value, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.matrix_unit import SIDE
from nxjax.ops.block_dot import LANES, UNIT
from nxjax.trace.dtypes import DType

GROUPS: Final = 8  # of an item, so that results fill whole lines of caches
ROWS: Final = (8, 4, 2, 1)  # at once
TILED: Final = (SIDE, SIDE // 2)  # the same by the matrix unit, where there are as many as the first
_WIDTH: Final = GROUPS * LANES
_LINE: Final = 64  # bytes that a processor fetches at once
# Scratch: results of rows; then sums of two blocks by the matrix unit, and its columns.
_SUMS: Final = 4 * _WIDTH * ROWS[0]
_TILE: Final = 4 * SIDE * SIDE


@final
@dataclass(frozen=True, slots=True)
class BlockNumbers:
    """What the numbers of a matrix are, and those of rows.

    Attributes:
        block: numbers of a block.
        bits: of a number of the matrix, 4 or 8.
        zero: what is to be taken from a number.
        whole: rows are whole numbers.
        scales: dtype of scales.
        least: there are numbers to be added to all of a block.
    """

    block: int
    bits: int
    zero: int
    whole: bool
    scales: DType
    least: bool

    @property
    def key(self) -> str:
        return f"{self.block} {self.bits} {self.zero} {self.whole} {self.scales.name} {self.least}"

    @property
    def bytes(self) -> int:
        """Of a block of a group of columns."""
        return self.block * LANES * self.bits // 8

    @property
    def units(self) -> int:
        """Vectors of a block."""
        return self.bytes // (LANES * UNIT)

    def scratch(self, rows: int, blocks: int) -> int:
        """Bytes that an item needs."""
        return _SUMS + (self.whole and rows >= SIDE) * (2 * _TILE + blocks * self.block * SIDE)


@final
class BlockSums:
    """Writes the loops of a product; ``words`` are those of `blocks.BlockProduct`."""

    def __init__(self, numbers: BlockNumbers, f: Function, isa: Isa, words: Value, scratch: Value) -> None:
        self.k, self.f, self.isa, self.scratch = numbers, f, isa, scratch
        n = 4 if numbers.whole else 2
        self.given = [pointer(f, words, i) for i in range(n)]
        self.data, *self.scales = (pointer(f, words, n + i) for i in range(2 + numbers.least))
        last = n + 2 + numbers.least
        self.out = pointer(f, words, last)
        self.rows, self.columns, self.blocks, self.step = (integer(f, words, last + 1 + i) for i in range(4))
        once = f.value(LANES * numbers.scales.itemsize, "i64")
        self.line = f.select(self.step.eq(0), once, self.step * self.blocks)
        # Groups that are computed side by side.
        self.side = 2 if isa.bits == 512 and (isa.vnni or not numbers.whole) else 1
        # Whole numbers need two registers a row.
        self.several = ROWS if not numbers.whole or isa.registers >= 32 else ROWS[1:]
        self.tiles = isa.tiles and numbers.whole

    def items(self, lo: Value, hi: Value) -> None:
        f, rows = self.f, self.rows
        many = f.select(rows.lt(SIDE), 0, self.blocks).gt(0)
        if self.tiles:
            with f.if_(many):
                matrix_unit.begin(f, sum(TILED), self.k.block // UNIT)
        with f.loop(lo, hi) as item:
            self.first = item.index * _WIDTH
            left = self.columns - self.first
            self.left = f.select(left.lt(_WIDTH), left, _WIDTH)
            self.number = item.index * GROUPS
            start = f.value(0, "i64")
            if self.tiles:
                start = f.select(many, rows & -TILED[-1], start)
                with f.if_(many):
                    self.by_tiles()
            for count in self.several:
                stop = start + ((rows - start) & -count)
                self.by_rows(start, stop, count)
                start = stop
        if self.tiles:
            with f.if_(many):
                matrix_unit.end(f)

    def operands(self, column: Value, side: int) -> tuple[list[Value], list[list[Value]]]:
        """Where the matrix, scales, and what 0 stands for are, of the group at a column of the item and the next one.

        Where there is no other group, it is the same one.
        """
        f = self.f
        last = self.number + (self.left - 1).sdiv(LANES)
        group = self.number + column.sdiv(LANES)
        groups = [group, f.select(group.lt(last), group + 1, last)][:side]
        matrix = [f.at(self.data, g * self.blocks, self.k.bytes) for g in groups]
        return matrix, [[f.at(p, g * self.line) for g in groups] for p in self.scales]

    def by_rows(self, start: Value, stop: Value, count: int) -> None:
        f, lanes = self.f, LANES * self.side
        with f.loop(start, stop, count) as turn:
            code = _Rows(self, turn.index, count, lanes)
            with f.loop(0, self.left, lanes) as column:
                for r, y in enumerate(code.sums(*self.operands(column.index, self.side))):
                    f.store(y, f.at(f.at(self.scratch, 4 * _WIDTH * r), column.index, 4), 4)
            for r in range(count):
                place = f.at(self.out, (turn.index + r) * self.columns + self.first, 4)
                _copied(f, f.at(self.scratch, 4 * _WIDTH * r), place, self.left)

    def by_tiles(self) -> None:
        f = self.f
        turns = f.at(self.scratch, _SUMS)
        matrix = f.at(turns, 2 * _TILE)
        with f.loop(0, self.left, SIDE) as column:
            places, scales = self.operands(column.index, 2)
            _Rows(self, f.value(0, "i64"), SIDE, SIDE).unpack(places, matrix)
            rest = self.left - column.index
            exist = f.lanes_below(rest, SIDE)
            start = f.value(0, "i64")
            for count in TILED:
                stop = self.rows & -count
                with f.loop(start, stop, count) as turn:
                    ys = _Rows(self, turn.index, count, SIDE).tile_sums(matrix, turns, places, scales)
                    corner = f.at(self.out, turn.index * self.columns + self.first + column.index, 4)
                    for r, y in enumerate(ys):
                        f.store_masked(y, f.at(corner, self.columns * r, 4), exist)
                start = stop


def _copied(f: Function, source: Value, place: Value, count: Value) -> None:
    whole = count & -LANES
    for type, start, stop, step in (
        (vector("float", LANES), f.value(0, "i64"), whole, LANES),
        ("float", whole, count, 1),
    ):
        with f.loop(start, stop, step) as i:
            f.store(f.load(type, f.at(source, i.index, 4), 4), f.at(place, i.index, 4), 4)


@final
class _Rows:
    """Writes the sums of ``count`` rows from ``row`` on with groups of ``lanes`` columns together."""

    def __init__(self, whole: BlockSums, row: Value, count: int, lanes: int) -> None:
        k, f = whole.k, whole.f
        self.k, self.f, self.isa, self.count, self.lanes = k, f, whole.isa, count, lanes
        self.rows, self.blocks, self.step = whole.rows, whole.blocks, whole.step
        self.real, self.words = vector("float", lanes), vector("i32", lanes)
        self.bytes, self.shorts = vector("i8", UNIT * lanes), vector("i16", 2 * lanes)
        self.size = k.block * (1 if k.whole else 4)  # bytes of a block of a row
        self.numbers = [f.at(whole.given[0], (row + r if r else row) * self.blocks, self.size) for r in range(count)]
        self.others = [f.at(p, row, 4) for p in whole.given[1:]]

    def joined(self, parts: list[Value]) -> Value:
        """Vectors of groups as one."""
        x, *rest = parts
        for y in rest:
            x = self.f.shuffle(x, y, range(2 * lanes_of(x.type)))
        return x

    def sums(self, data: list[Value], scales: list[list[Value]]) -> tuple[Value, ...]:
        f, k = self.f, self.k
        with f.loop(0, self.blocks, carry=[f.constant(self.real, 0)] * self.count) as loop:
            b = loop.index
            places = [f.at(p, b, k.bytes) for p in data]
            self.ahead(data, b)
            numbers = [f.at(p, b, self.size) for p in self.numbers]
            if k.whole:
                # What is to be taken from each number of the matrix, and was added to it.
                zero = k.zero + 128 * (k.bits == 8 and self.means == "vnni")
                ys = self.scaled(self.integers(places, numbers), zero, b)
            else:
                ys = self.floats(places, numbers, self.each(0, b) if k.zero else [])
            loop.next(*self.added(ys, loop.carried, scales, b))
        return loop.results

    def each(self, i: int, block: Value) -> list[Value]:
        """What there is once for a block of each row."""
        f = self.f
        line = f.at(self.others[i], block * self.rows, 4)
        return [f.splat(f.load("float", f.at(line, 4 * r)), self.lanes) for r in range(self.count)]

    def scaled(self, sums: Sequence[Value], zero: int, block: Value) -> list[Value]:
        """Sums of whole numbers by the scales of rows, less ``zero`` times the rows' numbers."""
        f = self.f
        ys = [y.convert(self.real) for y in sums]
        if zero:
            # No number here has more than 24 bits.
            ys = [f.fma(x, f.constant(self.real, -zero), y) for x, y in zip(self.each(1, block), ys, strict=True)]
        return [y * s for y, s in zip(ys, self.each(0, block), strict=True)]

    def added(
        self, ys: Sequence[Value], totals: Sequence[Value], scales: list[list[Value]], block: Value
    ) -> list[Value]:
        """``totals`` and the products of a block, by the scales of columns."""
        f, k = self.f, self.k
        load = lambda p: convert.load(f, self.isa, k.scales, f.at(p, block * self.step), LANES)
        found = [self.joined([load(p) for p in places]) for places in scales]
        sums = [f.fma(y, found[0], t) for y, t in zip(ys, totals, strict=True)]
        if k.least:
            sums = [f.fma(s, found[1], t) for s, t in zip(self.each(-1, block), sums, strict=True)]
        return sums

    def vector(self, places: list[Value], type: str, u: int) -> Value:
        """Unit ``u`` of a block of each group."""
        f = self.f
        return self.joined([f.load(vector("i32", LANES), f.at(p, u * LANES * UNIT), 4) for p in places]).bitcast(type)

    def ahead(self, data: list[Value], block: Value) -> None:
        """Have a block of the next groups fetched: a group is too short for a processor to see a stream of its own."""
        f, k = self.f, self.k
        for p in data:
            place = f.at(p, self.blocks * len(data) + block, k.bytes)
            for line in range(0, k.bytes, _LINE):
                f.prefetch(f.at(place, line))

    # --- rows of whole numbers ---

    def integers(self, places: list[Value], xs: list[Value]) -> list[Value]:
        """Exact sums of products, int32."""
        f, k = self.f, self.k
        pairs = [f.constant(self.shorts, 0)] * self.count
        # Few rows: several sums each, so that no product waits for the one before.
        ways = max(1, 4 // self.count) if self.means == "vnni" else 1
        totals = [f.constant(self.words, 0)] * (self.count * ways)
        turn = 0
        # Eight products of a nibble and a byte, in pairs, stay within 16 bits.
        short = self.means == "pairs" and k.bits == 4
        for u in range(k.units):
            w, at = self.vector(places, self.bytes, u), UNIT * u
            parts = [(w, at)]
            if k.bits == 4:
                high = w.bitcast(self.words).lshr(4).bitcast(self.bytes)
                parts = [(w & 15, at), (high & 15, k.block // 2 + at)]
            for part, first in parts:
                size = part
                if k.bits == 8:
                    size = part ^ -128 if self.means == "vnni" else f.intrinsic("smax", self.bytes, part, -part)
                for r, p in enumerate(xs):
                    x = f.splat(f.load("i32", f.at(p, first), 1), self.lanes).bitcast(self.bytes)
                    if short:
                        pairs[r] = pairs[r] + f.intrinsic("x86.avx2.pmadd.ub.sw", self.shorts, part, x)
                    else:
                        i = r * ways + turn % ways
                        totals[i] = self.plus(totals[i], part, size, x)
                turn += 1
        totals = [functools.reduce(operator.add, totals[i : i + ways]) for i in range(0, len(totals), ways)]
        return [self.paired(t, p) for t, p in zip(totals, pairs, strict=True)] if short else totals

    @property
    def means(self) -> str:
        """How products of bytes are summed here."""
        isa = self.isa
        return "vnni" if isa.vnni else "dots" if isa.dots else "pairs" if isa.x86 and isa.has("avx2") else "plain"

    def paired(self, total: Value, pairs: Value) -> Value:
        return total + self.f.intrinsic("x86.avx2.pmadd.wd", self.words, pairs, self.f.constant(self.shorts, 1))

    def plus(self, total: Value, w: Value, size: Value, x: Value) -> Value:
        """``total`` and four products in each lane; ``size``: the numbers ``w``, moved up, or without a sign."""
        f, means = self.f, self.means
        if means == "vnni":
            name = f"x86.avx512.vpdpbusd.{32 * self.lanes}"
            return f.intrinsic(name, total.type, total, size.bitcast(self.words), x.bitcast(self.words))
        if means == "pairs":
            signed = f.intrinsic("x86.avx2.psign.b", self.bytes, x, w) if self.k.bits == 8 else x
            return self.paired(total, f.intrinsic("x86.avx2.pmadd.ub.sw", self.shorts, size, signed))
        if means == "dots":
            half = lambda v, i: f.shuffle(v, None, range(i * (n := lanes_of(v.type) // 2), i * n + n))
            dot = lambda *vs: f.intrinsic("aarch64.neon.sdot.v4i32.v16i8", vector("i32", 4), *vs)
            low, high = (dot(*(half(v, i) for v in (total, w, x))) for i in range(2))
            return f.shuffle(low, high, range(LANES))
        wide, other = w.bitcast(self.words), x.bitcast(self.words)
        for j in range(UNIT):
            total = total + (wide << 24 - 8 * j >> 24) * (other << 24 - 8 * j >> 24)
        return total

    # --- the same by the matrix unit ---

    def unpack(self, data: list[Value], to: Value) -> None:
        """All blocks of two groups as the unit takes them: unit after unit, four numbers of each column."""
        f, k = self.f, self.k
        line = self.lanes * UNIT
        with f.loop(0, self.blocks) as loop:
            places = [f.at(p, loop.index, k.bytes) for p in data]
            out = f.at(to, loop.index, k.block * self.lanes)
            for u in range(k.units):
                w = self.vector(places, self.bytes, u)
                if k.bits == 4:
                    high = w.bitcast(self.words).lshr(4).bitcast(self.bytes)
                    f.store(high & 15, f.at(out, line * (k.units + u)), line)
                    w = w & 15
                f.store(w, f.at(out, line * u), line)

    def tile_sums(self, matrix: Value, turns: Value, data: list[Value], scales: list[list[Value]]) -> tuple[Value, ...]:
        """As `sums`, with what `unpack` made. A block's sums go by memory: they are taken up a block later."""
        f, k = self.f, self.k
        mode = "tile_su" if k.bits == 4 else "tile_ss"

        def start(b: Value) -> None:
            left = f.at(self.numbers[0], b, k.block), self.blocks * k.block
            place = f.at(turns, b & 1, _TILE)
            matrix_unit.products(f, mode, TILED.index(self.count), left, f.at(matrix, b, k.block * SIDE), place)

        start(f.value(0, "i64"))
        with f.loop(0, self.blocks, carry=[f.constant(self.real, 0)] * self.count) as loop:
            b = loop.index
            with f.if_((b + 1).lt(self.blocks)):
                start(b + 1)
            self.ahead(data, b)
            place = f.at(turns, b & 1, _TILE)
            sums = [f.load(self.words, f.at(place, matrix_unit.LINE * r), 64) for r in range(self.count)]
            loop.next(*self.added(self.scaled(sums, k.zero, b), loop.carried, scales, b))
        return loop.results

    # --- rows of floats ---

    def floats(self, places: list[Value], xs: list[Value], sums: list[Value]) -> list[Value]:
        """Sums of products, where what is to be taken from the numbers is taken once."""
        f, k = self.f, self.k
        totals = [s * float(-k.zero) for s in sums] if k.zero else [f.constant(self.real, 0)] * self.count
        for u in range(k.units):
            w = self.vector(places, self.words, u)
            for j in range(UNIT):
                at = UNIT * u + j
                parts = [(w << 24 - 8 * j >> 24, at)]
                if k.bits == 4:
                    parts = [(w.lshr(8 * j + 4 * i) & 15, at + i * k.block // 2) for i in range(2)]
                for part, first in parts:
                    y = part.convert(self.real)
                    for r, p in enumerate(xs):
                        x = f.splat(f.load("float", f.at(p, 4 * first), 4), self.lanes)
                        totals[r] = f.fma(y, x, totals[r])
        return totals
