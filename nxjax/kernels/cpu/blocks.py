"""Products of rows with a matrix of few bits whose numbers share scales in blocks, as `ops.block_dot` lays it out.

The matrix is read once, as it lies: eight columns side by side, of each four numbers in 32 bits (or eight of 4 bits).
`BlockRows` makes rows ready, `BlockProduct` makes the products of up to eight rows at once, group of columns by group.
Sizes are no part of the code: all matrices of a decoder, and all numbers of rows, share one kernel. Every row is
computed by the same instructions, however many there are. Of the op it knows the layout only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.gemv import total
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, lanes_of, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.ops.block_dot import LANES, TINY, UNIT
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

GROUPS: Final = 8  # of an item, so that results fill whole lines of caches
ROWS: Final = (8, 4, 2, 1)  # at once
_F: Final = vector("float", LANES)
_I: Final = vector("i32", LANES)


@final
@dataclass(frozen=True, eq=False)
class BlockRows(Kernel):
    """Operand: rows ``[rows, depth]`` of float32; then results, whole blocks each.

    ``whole``: numbers of int8 ``[rows, blocks, block]``, scales ``[rows, blocks]``, the sums of numbers (whole, as
    float32), and scales times these sums. Otherwise the numbers as they are, with zeros behind them, and the sums of
    blocks.
    """

    rows: int
    depth: int
    block: int
    whole: bool

    @property
    def key(self) -> str:
        return f"block_rows({self.block} {self.whole})"

    @property
    def blocks(self) -> int:
        return -(-self.depth // self.block)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.rows

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 16384 // max(1, self.depth))

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 4 * self.block

    @property
    def integers(self) -> tuple[int, ...]:
        return (self.depth, self.blocks)

    @property
    def outs(self) -> tuple[tuple[int, DType], ...]:
        """Numbers in a block, and dtype, of each result."""
        if self.whole:
            return ((self.block, dtypes.int8), *((1, dtypes.float32),) * 3)
        return ((self.block, dtypes.float32), (1, dtypes.float32))

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        x = np.zeros((self.rows, self.blocks * self.block), np.float32)
        x[:, : self.depth] = xs[0]
        x = x.reshape(self.rows, self.blocks, self.block)
        if not self.whole:
            return x, x.sum(-1)
        most = abs(x).max(-1)
        factor = np.where((most > np.float32(TINY)) & np.isfinite(most), np.float32(127) / most, np.float32(0))
        q = np.nan_to_num(np.rint(x * factor[..., None])).astype(np.int32)
        scale, sums = most / np.float32(127), q.sum(-1).astype(np.float32)
        return q.astype(np.int8), scale, sums, scale * sums

    def touches(self) -> Touches:
        n = self.rows * self.blocks
        return plain([Box(4 * self.rows * self.depth)], [Box(n * m * d.itemsize) for m, d in self.outs])

    def cost(self) -> KernelCost:
        n = float(self.rows * self.depth)
        return KernelCost(8 * n, 4 * n, n)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        places = [pointer(f, words, i) for i in range(1 + len(self.outs))]
        depth, blocks = (integer(f, words, 1 + len(self.outs) + i) for i in range(2))
        whole = depth.sdiv(self.block)
        rest = depth - whole * self.block
        with f.loop(lo, hi) as row:
            source = f.at(places[0], row.index * depth, 4)
            with f.if_(rest.gt(0)):
                with f.loop(0, self.block) as i:
                    f.store(f.constant("float", 0), f.at(scratch, i.index, 4))
                with f.loop(0, rest) as i:
                    f.store(f.load("float", f.at(source, whole * self.block + i.index, 4)), f.at(scratch, i.index, 4))
            with f.loop(0, blocks) as b:
                at = f.select(b.index.lt(whole), f.at(source, b.index * self.block, 4), scratch)
                place = row.index * blocks + b.index
                outs = [f.at(p, place * n, d.itemsize) for p, (n, d) in zip(places[1:], self.outs, strict=True)]
                xs = [f.load(_F, f.at(at, 4 * i), 4) for i in range(0, self.block, LANES)]
                (self._integers if self.whole else self._floats)(f, xs, outs)
        f.ret()

    def _floats(self, f: Function, xs: list[Value], outs: list[Value]) -> None:
        for i, x in enumerate(xs):
            f.store(x, f.at(outs[0], 4 * LANES * i), 4)
        f.store(total(f, _added(xs)), outs[1])

    def _integers(self, f: Function, xs: list[Value], outs: list[Value]) -> None:
        # Magnitudes are ordered as their bits are, and NaN is above all of them.
        bits = [x.bitcast(_I) & 0x7FFFFFFF for x in xs]
        while len(bits) > 1:
            bits = [f.intrinsic("smax", _I, x, y) for x, y in zip(bits[::2], bits[1::2], strict=True)]
        most = bits[0]
        for step in (4, 2, 1):
            most = f.intrinsic("smax", _I, most, f.shuffle(most, None, [(i + step) % LANES for i in range(LANES)]))
        largest = f.extract(most, 0).bitcast("float")
        factor = f.select(largest.gt(TINY), 127.0 / largest, 0.0)
        sums: list[Value] = []
        for i, x in enumerate(xs):
            # The product of an infinity and 0 is NaN, which stands for nothing in whole numbers.
            y = f.intrinsic("rint", _F, x * f.splat(factor, LANES))
            q = f.select(y.is_nan(), 0.0, y).convert(_I)
            sums.append(q)
            f.store(q.convert(vector("i8", LANES)), f.at(outs[0], LANES * i), 1)
        count = total(f, _added(sums)).convert("float")
        scale = largest / f.constant("float", 127.0)
        f.store(scale, outs[1])
        f.store(count, outs[2])
        f.store(scale * count, outs[3])


def _added(xs: list[Value]) -> Value:
    while len(xs) > 1:
        xs = [x + y for x, y in zip(xs[::2], xs[1::2], strict=True)]
    return xs[0]


@final
@dataclass(frozen=True, eq=False)
class BlockProduct(Kernel):
    """Operands: the results of `BlockRows`, the matrix, its scales, and what 0 stands for if ``least``; then the
    products, float32 ``[rows, columns]``.

    Attributes:
        rows, columns, blocks: sizes.
        block: numbers of a block.
        bits: of a number of the matrix, 4 or 8.
        zero: what is to be taken from a number.
        whole: rows are whole numbers.
        scales: dtype of scales.
        least: there are numbers to be added to all of a block.
        once: there is one scale for all blocks of a column.
    """

    rows: int
    columns: int
    blocks: int
    block: int
    bits: int
    zero: int
    whole: bool
    scales: DType
    least: bool
    once: bool

    @property
    def key(self) -> str:
        return f"block_dot({self.block} {self.bits} {self.zero} {self.whole} {self.scales.name} {self.least})"

    @property
    def groups(self) -> int:
        return -(-self.columns // LANES)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return -(-self.groups // GROUPS)

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 131072 // max(1, self.rows * self.blocks * self.block * LANES * GROUPS))

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return 4 * LANES * GROUPS * ROWS[0]

    @property
    def integers(self) -> tuple[int, ...]:
        step = 0 if self.once else LANES * self.scales.itemsize
        return (self.rows, self.columns, self.blocks, step)

    @property
    def bytes(self) -> int:
        """Of a block of a group of columns."""
        return self.block * LANES * self.bits // 8

    @property
    def units(self) -> int:
        """Vectors of a block."""
        return self.bytes // (LANES * UNIT)

    def numbers(self, data: NDArray) -> NDArray:
        """The matrix [depth, columns], with what fills its last blocks and groups."""
        return unpacked(data, self.bits).astype(np.int32) - self.zero

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        n = 4 if self.whole else 2
        x, w = xs[0].astype(np.int64 if self.whole else np.float64), self.numbers(xs[n])
        x = x.reshape(self.rows, self.blocks, self.block)
        spread = lambda s: np.broadcast_to(
            s.astype(np.float64).transpose(1, 0, 2).reshape(s.shape[1], -1), (self.blocks, w.shape[1])
        )
        sums = np.einsum("mbk,bkn->mbn", x, w.reshape(self.blocks, self.block, -1)).astype(np.float64)
        if self.whole:
            sums = sums * xs[1][..., None]
        y = (sums * spread(xs[n + 1])).sum(1)
        if self.least:
            y = y + (xs[n - 1].astype(np.float64)[..., None] * spread(xs[n + 2])).sum(1)
        return (y[:, : self.columns].astype(np.float32),)

    def touches(self) -> Touches:
        n, groups = self.rows * self.blocks, self.groups
        scale = Box(groups * (1 if self.once else self.blocks) * LANES * self.scales.itemsize)
        per = ((self.block, 1), (1, 4), (1, 4), (1, 4)) if self.whole else ((self.block, 4), (1, 4))
        rows = [Box(n * m * size) for m, size in per]
        ins = [*rows, Box(groups * self.blocks * self.bytes), *[scale] * (1 + self.least)]
        return plain(ins, [Box(4 * self.rows * self.columns)])

    def cost(self) -> KernelCost:
        n = float(self.blocks * self.block * self.columns)
        return KernelCost(2.0 * self.rows * n, n * self.bits / 8, 4.0 * self.rows * self.columns)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        n = 4 if self.whole else 2
        given = [pointer(f, words, i) for i in range(n)]
        data, scale, *least = (pointer(f, words, n + i) for i in range(2 + self.least))
        last = n + 2 + self.least
        out = pointer(f, words, last)
        rows, columns, blocks, step = (integer(f, words, last + 1 + i) for i in range(4))
        line = f.select(step.eq(0), f.value(LANES * self.scales.itemsize, "i64"), step * blocks)
        width = GROUPS * LANES
        # Groups that are computed side by side; where there is no other group, one is computed twice.
        side = 2 if isa.bits == 512 and (isa.vnni or not self.whole) else 1
        # Whole numbers need two registers a row, and few processors have more than 16.
        several = ROWS if not self.whole or isa.registers >= 32 else ROWS[1:]
        with f.loop(lo, hi) as item:
            first = item.index * width
            left = columns - first
            left = f.select(left.lt(width), left, f.value(width, "i64"))
            final = item.index * GROUPS + (left - 1).sdiv(LANES)
            start = f.value(0, "i64")
            for count in several:
                stop = start + ((rows - start) & -count)
                with f.loop(start, stop, count) as turn:
                    code = _Rows(self, f, isa, given, turn.index, blocks, count, LANES * side)
                    with f.loop(0, left, LANES * side) as group:
                        number = item.index * GROUPS + group.index.sdiv(LANES)
                        numbers = [number]
                        if side == 2:
                            numbers.append(f.select(number.lt(final), number + 1, final))
                        places = [[f.at(p, n * line) for n in numbers] for p in (scale, *least)]
                        matrix = [f.at(data, n * blocks, self.bytes) for n in numbers]
                        for r, y in enumerate(code.sums(matrix, places, step)):
                            f.store(y, f.at(f.at(scratch, 4 * width * r), group.index, 4), 4)
                    for r in range(count):
                        place = f.at(out, (turn.index + r) * columns + first, 4)
                        _copied(f, f.at(scratch, 4 * width * r), place, left)
                start = stop
        f.ret()


def _copied(f: Function, source: Value, place: Value, count: Value) -> None:
    whole = count & -LANES
    for type, start, stop, step in ((_F, f.value(0, "i64"), whole, LANES), ("float", whole, count, 1)):
        with f.loop(start, stop, step) as i:
            f.store(f.load(type, f.at(source, i.index, 4), 4), f.at(place, i.index, 4), 4)


def unpacked(data: NDArray, bits: int) -> NDArray:
    """Numbers [depth, columns] from a matrix in groups, [groups, blocks, units, columns, 4]."""
    q = np.concatenate([data & 15, data >> 4], 2) if bits == 4 else data
    groups, blocks, units, lanes, four = q.shape
    return q.transpose(1, 2, 4, 0, 3).reshape(blocks * units * four, groups * lanes)


@final
class _Rows:
    """Writes the products of ``count`` rows from ``row`` on with groups of ``lanes`` columns together."""

    def __init__(
        self,
        kernel: BlockProduct,
        f: Function,
        isa: Isa,
        given: list[Value],
        row: Value,
        blocks: Value,
        count: int,
        lanes: int,
    ) -> None:
        self.k, self.f, self.isa, self.count, self.blocks, self.lanes = kernel, f, isa, count, blocks, lanes
        self.real, self.words = vector("float", lanes), vector("i32", lanes)
        self.bytes, self.shorts = vector("i8", UNIT * lanes), vector("i16", 2 * lanes)
        size = 1 if kernel.whole else 4
        lines = [(row + r if r else row) * blocks for r in range(count)]
        self.numbers = [f.at(given[0], line * kernel.block, size) for line in lines]
        self.others = [[f.at(p, line, 4) for line in lines] for p in given[1:]]

    def joined(self, parts: list[Value]) -> Value:
        """Vectors of groups as one."""
        x, *rest = parts
        for y in rest:
            x = self.f.shuffle(x, y, range(2 * lanes_of(x.type)))
        return x

    def sums(self, data: list[Value], scales: list[list[Value]], step: Value) -> tuple[Value, ...]:
        f, k = self.f, self.k
        # What is to be taken from each number of the matrix, and was added to it.
        zero = k.zero + 128 * (k.bits == 8 and self.means == "vnni")
        zeros = [f.constant(self.real, 0)] * self.count
        with f.loop(0, self.blocks, carry=zeros) as loop:
            b = loop.index
            places = [f.at(p, b, k.bytes) for p in data]
            found = [
                self.joined([convert.load(f, self.isa, k.scales, f.at(p, b * step), LANES) for p in each])
                for each in scales
            ]
            numbers = [f.at(p, b, k.block * (1 if k.whole else 4)) for p in self.numbers]
            each = lambda i, b=b: [f.splat(f.load("float", f.at(p, b, 4)), self.lanes) for p in self.others[i]]
            if k.whole:
                ys = [y.convert(self.real) for y in self.integers(places, numbers)]
                if zero:
                    # No number here has more than 24 bits.
                    ys = [f.fma(x, f.constant(self.real, -zero), y) for x, y in zip(each(1), ys, strict=True)]
                ys = [y * s for y, s in zip(ys, each(0), strict=True)]
            else:
                ys = self.floats(places, numbers, each(0) if k.zero else [])
            totals = [f.fma(y, found[0], t) for y, t in zip(ys, loop.carried, strict=True)]
            if k.least:
                totals = [f.fma(s, found[1], t) for s, t in zip(each(-1), totals, strict=True)]
            loop.next(*totals)
        return loop.results

    def vector(self, places: list[Value], type: str, u: int) -> Value:
        """Unit ``u`` of a block of each group."""
        f = self.f
        return self.joined([f.load(vector("i32", LANES), f.at(p, u * LANES * UNIT), 4) for p in places]).bitcast(type)

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
        totals = [_added(totals[i : i + ways]) for i in range(0, len(totals), ways)]
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
