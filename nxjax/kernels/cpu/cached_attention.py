"""What queries read from a cache of keys and values, of which only the first places are filled: how many is a number
that is known when the code runs, for each sequence its own.

An item is one query token of one sequence and one head of keys: the scores of its heads with the keys that it sees,
their softmax, and the sum of the values. Scores stay in scratch memory. A vector of scores is made at once, as the sums
of as many products along the head. Sizes are no part of the code. Knows no op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.math_exp import exp, tanh
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

WIDEST: Final = 16  # lanes
DEEP: Final = 512  # values that are added in a row, before their sums are added up: longer sums lose digits
_FLOAT: Final = dtypes.float32


@final
@dataclass(frozen=True, eq=False)
class FilledAttention(Kernel):
    """Operands: query [B, T, N, H], keys and values [B, S, K, H], lengths int32 [B], for int8 the scales of keys and of
    values [B, S, K]; then the result, dense, of the query's type. Meant is `ops.composite_attention.CachedAttention`.

    Attributes:
        query, cache: dtypes.
        batch, tokens, heads, groups, size, room: B, T, K, N / K, H (whole vectors of all processors), S.
        strides: bytes along the dimensions of each operand; a head's numbers lie side by side.
        scale, window, cap: as there.
    """

    query: DType
    cache: DType
    batch: int
    tokens: int
    heads: int
    groups: int
    size: int
    room: int
    strides: tuple[tuple[int, ...], ...]
    scale: float
    window: int
    cap: float | None

    @property
    def key(self) -> str:
        near = bool(self.window)
        return f"cached_attention({self.query.name} {self.cache.name} {self.scaled} {self.scale!r} {near} {self.cap!r})"

    @property
    def scaled(self) -> bool:
        return len(self.strides) > 4

    @property
    def items(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.batch * self.heads * self.tokens

    @property
    def grain(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return max(1, 65536 // max(1, self.groups * self.size * self.room))

    @property
    def line(self) -> int:
        """Bytes of a row of scores."""
        return -(-self.room // WIDEST) * WIDEST * 4

    @property
    def scratch(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.groups * (self.line + 4)

    @property
    def integers(self) -> tuple[int, ...]:
        sizes = (self.tokens, self.heads, self.groups, self.size, self.room, self.window, self.line)
        return (*sizes, *(x for strides in self.strides for x in (strides if len(strides) < 4 else strides[:-1])))

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        q, keys, values = (x.astype(np.float64) for x in xs[:3])
        if self.scaled:
            keys, values = keys * xs[4][..., None], values * xs[5][..., None]
        q = q.reshape(self.batch, self.tokens, self.heads, self.groups, self.size)
        scores = np.einsum("btkgh,bskh->bkgts", q, keys) * self.scale
        scores = scores if self.cap is None else self.cap * np.tanh(scores / self.cap)
        first = np.clip(xs[3], 0, self.room - self.tokens).reshape(-1, 1, 1, 1, 1)
        last, place = first + np.arange(self.tokens)[:, None], np.arange(self.room)
        seen: NDArray = np.logical_and(place <= last, place > last - (self.window or math.inf))
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        looked = np.asarray(seen.any((1, 2, 3)))[..., None, None]
        y = np.einsum("bkgts,bskh->btkgh", weights, np.where(looked, values, 0))
        return (y.reshape(xs[0].shape).astype(self.query),)

    def touches(self) -> Touches:
        b, t, s, k, h = self.batch, self.tokens, self.room, self.heads, self.size
        cache = (b, s, k, h)
        shapes = [(b, t, k * self.groups, h), cache, cache, (b,), *[cache[:3]] * (2 * self.scaled)]
        sizes = [self.query, self.cache, self.cache, dtypes.int32, *[_FLOAT] * (2 * self.scaled)]
        ins = [Box(d.itemsize, x, y) for d, x, y in zip(sizes, shapes, self.strides, strict=True)]
        return plain(ins, [Box(math.prod(shapes[0]) * self.query.itemsize)])

    def cost(self) -> KernelCost:
        n = float(self.batch * self.room * self.heads * self.size)
        own = float(self.batch * self.tokens * self.heads * self.groups * self.size * self.query.itemsize)
        return KernelCost(4.0 * self.tokens * self.groups * n, 2 * n * self.cache.itemsize + own, own)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        count = 4 + 2 * self.scaled
        places = [pointer(f, words, i) for i in range(count + 1)]
        number = iter(range(count + 1, count + 1 + len(self.integers)))
        take = lambda n: [integer(f, words, next(number)) for _ in range(n)]
        tokens, heads, groups, size, room, window, line = take(7)
        q_steps, k_steps, v_steps, (l_step,) = take(3), take(3), take(3), take(1)
        scale_steps = [take(3) for _ in range(2 * self.scaled)]
        with f.loop(lo, hi) as item:
            t, at = item.index.srem(tokens), item.index.sdiv(tokens)
            head, b = at.srem(heads), at.sdiv(heads)
            length = f.load("i32", f.at(places[3], b * l_step), 4).convert("i64")
            most = room - tokens
            length = f.select(length.lt(0), 0, f.select(length.gt(most), most, length))
            end, begin = length + t + 1, f.value(0, "i64")
            if self.window:
                begin = f.select(end.gt(window), end - window, begin)
            near = lambda p, steps: f.at(p, b * steps[0] + begin * steps[1] + head * steps[2])
            code = _Code(self, f, isa, size, end - begin, scratch, line, f.at(scratch, groups * line))
            each = [(near(p, s), s[1]) for p, s in zip(places[4:], scale_steps, strict=False)]
            query = f.at(places[0], b * q_steps[0] + t * q_steps[1] + head * groups * q_steps[2])
            with f.loop(0, groups) as row:
                code.weights(row.index, f.at(query, row.index * q_steps[2]), near(places[1], k_steps), k_steps[1], each)
            out = f.at(places[-1], ((b * tokens + t) * heads + head) * groups * size, self.query.itemsize)
            start = f.value(0, "i64")
            for rows in (2, 1):
                stop = start + ((groups - start) & -rows)
                with f.loop(start, stop, rows) as row:
                    code.read(row.index, rows, near(places[2], v_steps), v_steps[1], out)
                start = stop
        f.ret()


@final
class _Code:
    """Writes what an item does with the ``count`` places that its token sees, for heads of ``size`` numbers."""

    def __init__(
        self,
        kernel: FilledAttention,
        f: Function,
        isa: Isa,
        size: Value,
        count: Value,
        lines: Value,
        line: Value,
        factors: Value,
    ) -> None:
        self.k, self.f, self.isa, self.size, self.count = kernel, f, isa, size, count
        self.lines, self.line, self.factors = lines, line, factors
        self.lanes = isa.lanes(4)
        self.type = vector("float", self.lanes)
        self.zero = f.constant(self.type, 0)

    def loaded(self, dtype: DType, at: Value) -> Value:
        return convert.convert(self.f, self.isa, convert.load(self.f, self.isa, dtype, at, self.lanes), dtype, _FLOAT)

    def weights(self, row: Value, query: Value, keys: Value, step: Value, scales: list[tuple[Value, Value]]) -> None:
        """The weights of a head's values, but for the factor of all that is put beside them."""
        f, k, n = self.f, self.k, self.lanes
        line = f.at(self.lines, row * self.line)
        low = f.constant(self.type, -math.inf)
        with f.loop(0, self.count, n, carry=[low]) as loop:
            # Places beyond the last are the last once more; their weights are 0.
            near = [f.select(p.lt(self.count), p, self.count - 1) for p in (loop.index + i for i in range(n))]
            rows = [f.at(keys, p * step) for p in near]
            with f.loop(0, self.size, n, carry=[self.zero] * n) as part:
                x = self.loaded(k.query, f.at(query, part.index, k.query.itemsize))
                ys = [self.loaded(k.cache, f.at(p, part.index, k.cache.itemsize)) for p in rows]
                part.next(*(f.fma(x, y, total) for y, total in zip(ys, part.carried, strict=True)))
            score = self.summed(part.results) * (self.gathered(scales[0], near) * k.scale if scales else k.scale)
            if k.cap is not None:
                score = tanh(f, self.isa, score * (1 / k.cap)) * k.cap
            score = f.select(f.lanes_below(self.count - loop.index, n), score, low)
            f.store(score, f.at(line, loop.index, 4), 4)
            loop.next(f.select(score.gt(loop.carried[0]), score, loop.carried[0]))
        top = f.splat(self.folded(loop.results[0], lambda x, y: f.select(x.gt(y), x, y)), n)
        with f.loop(0, self.count, n, carry=[self.zero]) as loop:
            place = f.at(line, loop.index, 4)
            weight = exp(f, self.isa, f.load(self.type, place, 4) - top)
            total = loop.carried[0] + weight
            if scales:
                near = [f.select(p.lt(self.count), p, self.count - 1) for p in (loop.index + i for i in range(n))]
                weight = weight * self.gathered(scales[1], near)
            f.store(weight, place, 4)
            loop.next(total)
        total = self.folded(loop.results[0], lambda x, y: x + y)
        f.store(1.0 / total, f.at(self.factors, row, 4), 4)

    def summed(self, xs: Sequence[Value]) -> Value:
        """The sums of as many vectors as they have lanes, in order."""
        f, n = self.f, self.lanes
        while len(xs) > 1:
            pairs = list(zip(xs[::2], xs[1::2], strict=True))
            xs = [f.shuffle(x, y, range(0, 2 * n, 2)) + f.shuffle(x, y, range(1, 2 * n, 2)) for x, y in pairs]
        return xs[0]

    def folded(self, x: Value, both: Callable[[Value, Value], Value]) -> Value:
        """All lanes of a vector as one number."""
        f, n = self.f, self.lanes
        while n > 1:
            n //= 2
            x = both(f.shuffle(x, None, range(n)), f.shuffle(x, None, range(n, 2 * n)))
        return f.extract(x, 0)

    def gathered(self, scales: tuple[Value, Value], near: Sequence[Value]) -> Value:
        f, x = self.f, self.zero
        for i, p in enumerate(near):
            x = f.insert(x, f.load("float", f.at(scales[0], p * scales[1]), 4), i)
        return x

    def read(self, row: Value, rows: int, values: Value, step: Value, out: Value) -> None:
        """The values of ``rows`` heads from ``row`` on, with their weights."""
        f, k, n = self.f, self.k, self.lanes
        lines = [f.at(self.lines, (row + r if r else row) * self.line) for r in range(rows)]
        start = f.value(0, "i64")
        for vectors in (4, 1):
            stop = start + ((self.size - start).sdiv(n * vectors) * (n * vectors))
            zeros = [self.zero] * (rows * vectors)
            with f.loop(start, stop, n * vectors) as part:
                first = f.at(values, part.index, k.cache.itemsize)
                with f.loop(0, self.count, DEEP, carry=zeros) as block:
                    after = block.index + DEEP
                    after = f.select(after.lt(self.count), after, self.count)
                    with f.loop(block.index, after, carry=zeros) as place:
                        at = f.at(first, place.index * step)
                        ys = [self.loaded(k.cache, f.at(at, v * n * k.cache.itemsize)) for v in range(vectors)]
                        xs = [f.splat(f.load("float", f.at(p, place.index, 4), 4), n) for p in lines]
                        pairs = zip([(x, y) for x in xs for y in ys], place.carried, strict=True)
                        place.next(*(f.fma(x, y, total) for (x, y), total in pairs))
                    block.next(*(x + y for x, y in zip(block.carried, place.results, strict=True)))
                for r in range(rows):
                    at = row + r if r else row
                    factor = f.splat(f.load("float", f.at(self.factors, at, 4), 4), n)
                    for v in range(vectors):
                        y = convert.convert(f, self.isa, block.results[r * vectors + v] * factor, _FLOAT, k.query)
                        place = f.at(out, at * self.size + part.index + v * n, k.query.itemsize)
                        convert.store(f, self.isa, k.query, y, place)
            start = stop
