"""Products of rows with a matrix of few bits whose numbers share scales in blocks, as `ops.block_dot` lays it out.

The matrix is read once, as it lies: eight columns side by side, of each four numbers in 32 bits (or eight of 4 bits).
`BlockRows` makes rows ready, `BlockProduct` makes the products of up to eight rows at once, group of columns by group.
Sizes are no part of the code: all matrices of a decoder, and all numbers of rows, share one kernel. Every row is
computed by the same instructions, however many there are. Of the op it knows the layout only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.block_sums import GROUPS, BlockNumbers, BlockSums
from nxjax.kernels.cpu.gemv import total
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.ops.block_dot import LANES, TINY
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

_F: Final = vector("float", LANES)
_I: Final = vector("i32", LANES)


@final
@dataclass(frozen=True, eq=False)
class BlockRows(Kernel):
    """Operand: rows ``[rows, depth]`` of float32; then results, whole blocks each.

    ``whole``: numbers of int8 ``[rows, blocks, block]``, then ``[blocks, rows]`` scales, the sums of numbers (whole, as
    float32), and scales times these sums. Otherwise the numbers as they are, with zeros behind them, and the sums of
    blocks, ``[blocks, rows]``.
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
        return (self.depth, self.blocks, self.rows)

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
            return x, x.sum(-1).T
        most = abs(x).max(-1)
        factor = np.where((most > np.float32(TINY)) & np.isfinite(most), np.float32(127) / most, np.float32(0))
        q = np.nan_to_num(np.rint(x * factor[..., None])).astype(np.int32)
        scale, sums = most / np.float32(127), q.sum(-1).astype(np.float32)
        return q.astype(np.int8), scale.T, sums.T, (scale * sums).T

    def touches(self) -> Touches:
        n = self.rows * self.blocks
        return plain([Box(4 * self.rows * self.depth)], [Box(n * m * d.itemsize) for m, d in self.outs])

    def cost(self) -> KernelCost:
        n = float(self.rows * self.depth)
        return KernelCost(8 * n, 4 * n, n)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        places = [pointer(f, words, i) for i in range(1 + len(self.outs))]
        depth, blocks, rows = (integer(f, words, 1 + len(self.outs) + i) for i in range(3))
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
                numbers = f.at(places[1], (row.index * blocks + b.index) * self.block, self.outs[0][1].itemsize)
                outs = [numbers, *(f.at(p, b.index * rows + row.index, 4) for p in places[2:])]
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
        what: numbers of the matrix and of rows.
        once: there is one scale for all blocks of a column.
    """

    rows: int
    columns: int
    blocks: int
    what: BlockNumbers
    once: bool

    @property
    def key(self) -> str:
        return f"block_dot({self.what.key})"

    @property
    def groups(self) -> int:
        return -(-self.columns // LANES)

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return -(-self.groups // GROUPS)

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 131072 // max(1, self.rows * self.blocks * self.what.block * LANES * GROUPS))

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.what.scratch(self.rows, self.blocks)

    @property
    def integers(self) -> tuple[int, ...]:
        step = 0 if self.once else LANES * self.what.scales.itemsize
        return (self.rows, self.columns, self.blocks, step)

    def numbers(self, data: NDArray) -> NDArray:
        """The matrix [depth, columns], with what fills its last blocks and groups."""
        return unpacked(data, self.what.bits).astype(np.int32) - self.what.zero

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        n = 4 if self.what.whole else 2
        x, w = xs[0].astype(np.int64 if self.what.whole else np.float64), self.numbers(xs[n])
        x = x.reshape(self.rows, self.blocks, self.what.block)
        spread = lambda s: np.broadcast_to(
            s.astype(np.float64).transpose(1, 0, 2).reshape(s.shape[1], -1), (self.blocks, w.shape[1])
        )
        sums = np.einsum("mbk,bkn->mbn", x, w.reshape(self.blocks, self.what.block, -1)).astype(np.float64)
        if self.what.whole:
            sums = sums * xs[1].reshape(self.blocks, self.rows).T[..., None]
        y = (sums * spread(xs[n + 1])).sum(1)
        if self.what.least:
            least = xs[n - 1].astype(np.float64).reshape(self.blocks, self.rows).T
            y = y + (least[..., None] * spread(xs[n + 2])).sum(1)
        return (y[:, : self.columns].astype(np.float32),)

    def touches(self) -> Touches:
        n, groups = self.rows * self.blocks, self.groups
        scale = Box(groups * (1 if self.once else self.blocks) * LANES * self.what.scales.itemsize)
        per = ((self.what.block, 1), (1, 4), (1, 4), (1, 4)) if self.what.whole else ((self.what.block, 4), (1, 4))
        rows = [Box(n * m * size) for m, size in per]
        ins = [*rows, Box(groups * self.blocks * self.what.bytes), *[scale] * (1 + self.what.least)]
        return plain(ins, [Box(4 * self.rows * self.columns)])

    def cost(self) -> KernelCost:
        n = float(self.blocks * self.what.block * self.columns)
        return KernelCost(2.0 * self.rows * n, n * self.what.bits / 8, 4.0 * self.rows * self.columns)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        BlockSums(self.what, f, isa, words, scratch).items(lo, hi)
        f.ret()


def unpacked(data: NDArray, bits: int) -> NDArray:
    """Numbers [depth, columns] from a matrix in groups, [groups, blocks, units, columns, 4]."""
    q = np.concatenate([data & 15, data >> 4], 2) if bits == 4 else data
    groups, blocks, units, lanes, four = q.shape
    return q.transpose(1, 2, 4, 0, 3).reshape(blocks * units * four, groups * lanes)
