"""A product, a nest along its rows, and a product of what that gives, without the matrices between them in memory.

That is attention: scores of queries and keys, masked and made into weights by a softmax, times the values. An item
makes some rows of the result of one matrix of the batch. It holds these rows of the scores, and of the weights, whole
and in scratch memory, where they stay in the second cache. The three kernels are the ones that would run one after the
other (`Gemm`, `Nest`, `Gemm`), called as functions for the item's rows, with the places of scores and weights moved
such that their rows fall into scratch. So the numbers are the same bits as without this. Knows no softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, final

import numpy as np

from nxjax.config.digest import digest
from nxjax.config.forks import cached_property
from nxjax.kernels.cpu.base import Kernel, KernelCost, NDArray, Touches, integer
from nxjax.kernels.cpu.gemm import BatchAxis, Gemm, least
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.nest import Nest

ROWS: Final = 384 << 10  # bytes of scores and weights that an item holds, about
MOST: Final = 128  # rows of an item
RIGHT: Final = 512 << 10  # bytes of the keys that stay in the second cache beside them


@final
class Attention(Kernel):
    """Operands: left and right of ``scores`` and those of its epilogue, the nest's but for the scores, right of
    ``values`` and those of its epilogue; then the results of ``values``. See `joins` for what fits.

    Args:
        scores: makes the operand ``place`` of ``nest``.
        nest: its one result is the left operand of ``values``.
    """

    def __init__(self, scores: Gemm, nest: Nest, values: Gemm, place: int) -> None:
        self.place = place
        self.nest = nest
        # The scores may become the weights where they lie.
        self.inside = (0, place) in nest.inplace
        self.line = _row(nest, place)
        self.out_line = values.problem.left_row
        rows = values.problem.rows
        step = math.lcm(scores.tile.rows, values.tile.rows)
        width = self.line if self.inside else self.line + self.out_line
        high = min(MOST, max(ROWS // width, 1), rows)
        turns = -(-rows // max(high // step * step, step))
        self.high = -(-rows // turns // step) * step
        self.turns = -(-rows // self.high)
        self.scores = _cut(scores, self.high)
        self.values = _cut(values, self.high)
        self.items = self.turns * math.prod(a.size for a in values.problem.batch)
        self.grain = max(1, int(400_000 * self.items // max(self.cost().flops, 1)))
        self.words = sum(self._counts)
        self._room = _aligned(8 * self.words)
        # The last tile of the second product may begin at rows before the item's, which are not looked at.
        self._before = _aligned(values.tile.rows * self.out_line)
        self._scores = _aligned(self.high * self.line)
        self._weights = 0 if self.inside else self._before + _aligned(self.high * self.out_line)
        self.scratch = self._room + self._before + self._scores + self._weights + self._inner

    @property
    def _stages(self) -> tuple[Gemm, Nest, Gemm]:
        return self.scores, self.nest, self.values

    @property
    def _inner(self) -> int:
        """Scratch memory of the kernels."""
        return max(k.scratch for k in self._stages)

    @property
    def _counts(self) -> tuple[int, int, int]:
        """Words of each kernel."""
        of = lambda k: 3 + len(k.end.operands) + len(k.integers)
        return of(self.scores), len(self.nest.inputs) + 1, of(self.values)

    @cached_property
    def key(self) -> str:
        sizes = f"{self.turns} {self.high} {self.line} {self.out_line} {self.place} {self._inner}"
        grids = f"{self.scores.grid[1]} {self.values.grid[1]}"
        text = f"{sizes} {grids} {self._counts} {' '.join(k.key for k in self._stages)}"
        p = self.scores.problem
        shown = f"{self.items // self.turns}x{p.rows}x{p.columns}"
        return f"attention({shown} in {self.turns} #{digest(text.encode()).hexdigest()[:16]})"

    @property
    def integers(self) -> tuple[int, ...]:
        return (*self.scores.integers, *self.values.integers)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        n, m = 2 + len(self.scores.end.operands), len(self.nest.inputs) - 1
        s = np.asarray(self.scores.meaning(*xs[:n])[0]).reshape(self.nest.sizes)
        others = list(xs[n : n + m])
        others.insert(self.place, s)
        p = self.values.problem
        weights = self.nest.meaning(*others)[0].reshape(*(a.size for a in p.batch), p.rows, p.depth)
        return self.values.meaning(weights, *xs[n + m :])

    def touches(self) -> Touches:
        first, middle, last = (k.touches() for k in self._stages)
        others = tuple(x for i, x in enumerate(middle.ins) if i != self.place)
        return Touches((*first.ins, *others, *last.ins[1:]), last.outs)

    def cost(self) -> KernelCost:
        first, middle, last = (k.cost() for k in self._stages)
        points = float(self.nest.size)
        scores = points * self.nest.inputs[self.place].dtype.itemsize
        weights = points * self.nest.dtype_of(self.nest.outputs[0].value).itemsize
        read = first.read + middle.read - scores + last.read - weights
        return KernelCost(first.flops + middle.flops + last.flops, read, last.written)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        names = [f"{self.symbol}_{i}" for i in range(3)]
        for kernel, name in zip(self._stages, names, strict=True):
            part = LlvmModule()
            kernel.emit(part, isa)
            module.take(part, kernel.symbol, name)
        f, words, lo, hi, scratch = self.function(module)
        first, middle, last = self._words(f, words, scratch)
        at = self._room + self._before
        scores = f.at(scratch, at)
        weights = scores if self.inside else f.at(scores, self._scores + self._before)
        inner = f.at(scratch, at + self._scores + self._weights)
        rows = self.values.problem.rows
        with f.loop(lo, hi) as item:
            matrix, turn = item.index.sdiv(self.turns), item.index.srem(self.turns)
            start = turn * self.high
            count = least(f, f.value(rows, "i64") - start, f.value(self.high, "i64"))
            row = matrix * rows + start
            moved, out = f.at(scores, -(row * self.line)), f.at(weights, -(row * self.out_line))
            f.store(moved, f.at(first, 8 * (2 + len(self.scores.end.operands))), 8)
            f.store(moved, f.at(middle, 8 * self.place), 8)
            f.store(out, f.at(middle, 8 * len(self.nest.inputs)), 8)
            f.store(out, last, 8)
            self._product(f, names[0], self.scores, first, matrix, turn, inner)
            f.call(names[1], "void", middle, row, row + count, inner)
            self._product(f, names[2], self.values, last, matrix, turn, inner)
        f.ret()

    def _words(self, f: Function, words: Value, scratch: Value) -> list[Value]:
        """Each kernel's words in scratch memory, but for where scores and weights lie."""
        a, b, c = self._counts
        x, y = len(self.scores.integers), len(self.values.integers)
        operands = iter(range(self.words - x - y - 4))  # scores twice, weights twice: nobody gives them
        numbers = iter(range(self.words - x - y - 4, self.words))
        given: list[int | None] = [next(operands) for _ in range(a - x - 1)]
        given += [None, *(next(numbers) for _ in range(x))]
        given += [None if i == self.place else next(operands) for i in range(b - 1)]
        given += [None, None, *(next(operands) for _ in range(c - y - 1)), *(next(numbers) for _ in range(y))]
        assert len(given) == self.words
        for i, source in enumerate(given):
            if source is not None:
                f.store(integer(f, words, source), f.at(scratch, 8 * i), 8)
        return [scratch, f.at(scratch, 8 * a), f.at(scratch, 8 * (a + b))]

    @staticmethod
    def _product(f: Function, name: str, k: Gemm, words: Value, matrix: Value, turn: Value, scratch: Value) -> None:
        """The rows of an item, block of columns by block."""
        down, across = k.grid
        with f.loop(0, across) as block:
            at = (matrix * across + block.index) * down + turn
            f.call(name, "void", words, at, at + 1, scratch)


def joins(scores: Gemm, nest: Nest, values: Gemm, place: int) -> bool:
    """Whether the three can be one: matrices of scores and weights lie one after the other, row by row, without gaps,
    and the nest's items are their rows, in order."""
    p, q = scores.problem, values.problem
    count = math.prod(a.size for a in p.batch)
    rows = math.prod(nest.sizes[: nest.kept])
    if not (nest.rows and not nest.total and nest.items == rows == count * p.rows):
        return False
    if len(nest.outputs) != 1 or math.prod(nest.sizes[nest.kept :]) != p.columns or len(scores.end.outs) != 1:
        return False
    if (q.rows, q.depth, math.prod(a.size for a in q.batch)) != (p.rows, p.columns, count):
        return False
    size, out_size = scores.end.outs[0].itemsize, values.left.itemsize
    line, out_line = size * p.columns, out_size * q.depth
    return (
        nest.inputs[place].dtype == scores.end.outs[0]
        and nest.dtype_of(nest.outputs[0].value) == values.left
        and _dense(nest.sizes, nest.inputs[place].strides, size)
        and _dense(nest.sizes, nest.outputs[0].strides, out_size)
        and p.others[-1] == line
        and (q.left_row, q.left_depth) == (out_line, out_size)
        and _follow(p.batch, [a.others[-1] for a in p.batch], line * p.rows)
        and _follow(q.batch, [a.left for a in q.batch], out_line * q.rows)
    )


def _dense(sizes: Sequence[int], strides: Sequence[int], step: int) -> bool:
    for n, stride in zip(reversed(sizes), reversed(strides), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True


def _follow(batch: Sequence[BatchAxis], strides: Sequence[int], step: int) -> bool:
    return _dense([a.size for a in batch], strides, step)


def _row(nest: Nest, place: int) -> int:
    """Bytes of a row of scores."""
    return math.prod(nest.sizes[nest.kept :]) * nest.inputs[place].dtype.itemsize


def _cut(k: Gemm, high: int) -> Gemm:
    """The same product in blocks of ``high`` rows."""
    panel = k.blocks.depth * k.tile.unit * k.tile.columns
    columns = max(1, RIGHT // panel) * k.tile.columns
    return replace(k, blocks=replace(k.blocks, rows=high, columns=columns))


def _aligned(n: int) -> int:
    return -(-n // 64) * 64
