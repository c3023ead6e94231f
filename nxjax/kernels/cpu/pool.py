"""Windows that do not mix channels: depthwise convolutions, and sums, maxima and minima of windows.

Channels are last in memory, and vectors run along them. A block of output pixels is done at a time: where each tap of
each pixel lies is written into a table first, padding being a row of the neutral element; then, channels by channels,
taps run through the table with the sums in registers::

    table[tap, i] = address of pixel i's input at that tap
    for c in vectors of channels:
        for tap in window:
            for i in pixels:   acc[i] = combine(acc[i], table[tap, i][c] (* w[tap, c]))

Products of int16 are made of two taps at a time: their inputs are put side by side in a lane, as their weights lie in
memory, and one instruction makes both products and adds them.

A window of more taps than the table holds is taken in parts. Each begins anew, and is combined at its end with what
waits in scratch. Sums of floats wait at several levels, so that huge windows lose few digits. Sizes and strides are
integers among the words, as in `conv`, from which the geometry is taken. An item is a block of pixels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.conv_blocks import Kind, multiply_add
from nxjax.kernels.cpu.conv_problem import ConvProblem, Extra, ends, inputs, used
from nxjax.kernels.cpu.expression import Expression, identity
from nxjax.kernels.cpu.ir import LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.pixels import Pixels, Words
from nxjax.trace import dtypes

DType = np.dtype[Any]
Combine = Literal["dot", "sum", "max", "min"]
TAPS: Final = 64  # rows of the table


def accumulator(dtype: DType, out: DType) -> DType:
    """What is summed in: float32 for narrow floats, int32 for int16 where the sum is wanted in it."""
    if dtype == dtypes.int16 and out == dtypes.int32:
        return out
    return dtypes.float32 if dtype in dtypes.FLOAT and dtype.itemsize < 4 else dtype


@final
class Pool(Kernel):
    """``y = epilogue(combination of each window, *extras)``; operands: x, weights for "dot", the extras, then y.

    Args:
        problem: geometry; ``groups`` are the channels, adjacent in x, weights and y, one input and output each.
        combine: "dot" multiplies with weights of the dtype and sums. Beside int16 a weight is an int32: those of two
            taps, which follow each other in row-major order, ``problem.w_c`` bytes from pair to pair.
        dtype: of x in memory.
        pad: what stands in the padding, a number of ``dtype``: neutral for ``combine``.
        out: dtype of what the epilogue gets.
        block: pixels at a time, and vectors of channels.
        lanes: channels in a vector.
        epilogue, extras, more: as of `Conv`.
    """

    def __init__(
        self,
        problem: ConvProblem,
        combine: Combine,
        dtype: DType,
        pad: Any,
        out: DType,
        block: tuple[int, int],
        lanes: int,
        epilogue: Expression | None = None,
        extras: Sequence[Extra] = (),
        more: Sequence[Extra] = (),
    ) -> None:
        self.problem = problem
        self.combine: Combine = combine
        self.dtype = dtype
        self.pad = np.asarray(pad).astype(dtype)
        self.out = out
        self.acc = accumulator(dtype, out)
        self.pixels, self.vectors = block
        self.lanes = lanes
        self.epilogue = epilogue or identity(out)
        self.extras = tuple(extras)
        self.more = tuple(more)
        # Fewer channels than a vector has: lanes beyond them are masked. Otherwise the last vectors are moved back.
        self.masked = problem.groups < lanes * self.vectors
        assert not self.masked or self.vectors == 1
        self.pairs = combine == "dot" and dtype == dtypes.int16
        halves = self.acc.itemsize == 4 and all(d.itemsize == 2 for d in self.epilogue.out_dtypes)
        # Results of half the size of sums are made two vectors at a time, as in `Conv`.
        self.together = 2 if halves and self.acc == dtypes.int32 and self.vectors == 2 and lanes <= 8 else 1
        self.parts = problem.taps > TAPS
        # Sums of parts; and of floats every 64 of these, and every 64 of those.
        self.levels = 3 if combine in ("dot", "sum") and self.acc in dtypes.FLOAT else 1
        self.used = used(problem)
        self.batched = problem.batch > 1
        # Blocks of pixels that share a table: addresses take as long for few of them.
        self.turns = 1 if self.parts else 2
        self.reach = self.turns * self.pixels
        self.items = -(-problem.pixels // self.reach) if problem.groups else 0
        self._row = -(-problem.groups * dtype.itemsize // 64) * 64 + 64
        self._table = 8 * TAPS * 18
        room = self.levels * self.pixels * (problem.groups + lanes) * self.acc.itemsize if self.parts else 0
        self.scratch = self._table + self._row + room
        self.grain = max(1, (1 << 15) // max(self.reach * problem.groups * problem.taps, 1))

    @property
    def neutral(self) -> Any:
        """What combinations begin with."""
        return 0 if self.combine in ("dot", "sum") else self.pad

    @property
    def key(self) -> str:
        extras = ",".join(e.text for e in self.extras)
        dims = f"{'n' if self.batched else ''}{''.join(map(str, self.used))}"
        flags = f"{' masked' if self.masked else ''}{' parts' if self.parts else ''}"
        block = f"{self.turns}*{self.pixels}x{self.vectors}x{self.lanes}"
        return (
            f"pool_{self.combine}({self.dtype.name} {dims} {block}{flags} {self.pad} "
            f"{self.out.name} {self.epilogue.key} [{extras}])"
        )

    @property
    def integers(self) -> tuple[int, ...]:
        """The words after the operands' places."""
        p = self.problem
        found = [p.pixels, p.groups, p.x_n, p.y_n, p.w_c]
        for a in p.axes:
            found += [a.size, a.outputs, a.taps, a.step, a.dilation, a.low, a.x, a.w, a.y]
        for e in (*self.extras, *self.more):
            found += [e.n, *e.axes]
        return tuple(found)

    def touches(self) -> Touches:
        p, size, acc = self.problem, self.dtype.itemsize, self.acc.itemsize
        # One input per channel, and these lie side by side.
        x = inputs(replace(p, x_group=size), size)
        w = Box(acc, (*(a.taps for a in p.axes), p.groups), (*(a.w for a in p.axes), acc))
        if self.pairs:
            w = Box(acc, (-(-p.taps // 2), p.groups), (p.w_c, acc))
        ins, outs = ends(p, self.extras, self.more, self.epilogue.out_dtypes, (1, p.groups))
        found = plain([*([w] if self.combine == "dot" else []), *ins], outs)
        return Touches((x, *found.ins), found.outs)

    def cost(self) -> KernelCost:
        p = self.problem
        x = p.read * p.groups * self.dtype.itemsize
        y = p.pixels * p.groups
        w = p.taps * p.groups * (2 if self.pairs else self.acc.itemsize) if self.combine == "dot" else 0
        flops = y * p.taps * (2 if self.combine == "dot" else 1)
        return KernelCost(flops, x + w, y * sum(d.itemsize for d in self.epilogue.out_dtypes))

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The result [batch, spatial..., channels], if that is how it lies in memory."""
        p = self.problem
        x, *rest = xs
        w = rest.pop(0) if self.combine == "dot" else None

        def at(v: NDArray, offset: NDArray, dtype: DType) -> NDArray:
            raw = np.asarray(v).reshape(-1).view(np.uint8)[offset[..., None] + np.arange(dtype.itemsize)]
            return raw.copy().view(dtype)[..., 0]

        n, c, o = np.arange(p.batch), np.arange(p.groups), [np.arange(a.outputs) for a in p.axes]
        ufunc: Any = {"dot": np.add, "sum": np.add, "max": np.maximum, "min": np.minimum}[self.combine]
        shape = (p.batch, *(a.outputs for a in p.axes), p.groups)
        y = np.full(shape, 0 if self.combine in ("dot", "sum") else self.pad, self.acc)
        for number, tap in enumerate(np.ndindex(*(a.taps for a in p.axes))):
            places = [i * a.step + k * a.dilation - a.low for i, k, a in zip(o, tap, p.axes, strict=True)]
            grid = np.ix_(n, *places, c)
            valid, offset = np.True_, grid[0] * p.x_n + grid[-1] * self.dtype.itemsize
            for i, a in zip(grid[1:4], p.axes, strict=True):
                valid, offset = valid & (i >= 0) & (i < a.size), offset + i * a.x
            value = np.where(valid, at(x, np.where(valid, offset, 0), self.dtype), self.pad).astype(self.acc)
            if w is not None and self.pairs:
                where = c * self.acc.itemsize + number // 2 * p.w_c + number % 2 * self.dtype.itemsize
                value = value * at(w, where, self.dtype)
            elif w is not None:
                where = c * self.acc.itemsize + sum(a.w * k for a, k in zip(p.axes, tap, strict=True))
                value = value * at(w, where, self.acc)
            y = ufunc(y, value.astype(self.acc)).astype(self.acc)
        values: list[NDArray] = []
        for e, v in zip(self.extras, rest, strict=True):
            strides = (e.n, *e.axes, e.dtype.itemsize if e.channels else 0)
            offset = sum(i * s for i, s in zip(np.ix_(n, *o, c), strides, strict=True))
            values.append(np.broadcast_to(at(v, np.asarray(offset), e.dtype), shape))
        return self.epilogue.meaning(y.astype(self.out), *values)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        _Writer(self, module, isa).write()


class _Writer:
    """Writes one function."""

    def __init__(self, kernel: Pool, module: LlvmModule, isa: Isa) -> None:
        self.k = kernel
        self.isa = isa
        self.f, self.words, self.lo, self.hi, self.scratch = kernel.function(module)
        self.wide = 16 if kernel.reach > 8 else 8
        self.acc_type = convert.register_type(kernel.acc, kernel.lanes)

    def write(self) -> None:
        f, k, words = self.f, self.k, self.words
        weighted = k.combine == "dot"
        at = 1 + weighted
        self.x = pointer(f, words, 0)
        self.w = pointer(f, words, 1) if weighted else self.x
        self.e = [pointer(f, words, at + i) for i in range(len(k.extras))]
        outs, last = len(k.epilogue.outputs), at + len(k.extras)
        self.y = [pointer(f, words, last + i) for i in range(outs)]
        numbers = iter(integer(f, words, last + outs + i) for i in range(len(k.integers)))
        take = lambda n: [next(numbers) for _ in range(n)]
        self.count, self.channels, self.x_n, self.y_n, self.pair = take(5)
        axes = [Words(*take(9)) for _ in range(3)]
        self.at = Pixels(f, [axes[i] for i in k.used], k.used, self.count, self.wide, k.batched)
        strides = [take(4) for _ in k.extras]
        strides += [[self.y_n, *(a.y for a in axes)], *(take(4) for _ in k.more)]
        self.places = [(p, s, f.alloca("i64", self.wide)) for p, s in zip((*self.e, *self.y), strides, strict=True)]
        self.taps = self.at.taps
        self.in_table = self.scratch
        self.w_table = f.at(self.scratch, TAPS * 16, 8)
        self.neutral = f.at(self.scratch, k._table)
        row = (self.channels * k.dtype.itemsize + 127) & -64
        self.waiting = f.at(self.neutral, row)
        self._fill_neutral(row)
        if not k.parts:
            self._taps_once()
        with f.loop(self.lo, self.hi) as item:
            self._block(item.index * k.reach)
        f.ret()

    def _fill_neutral(self, row: Value) -> None:
        f, k = self.f, self.k
        lanes = 64 // k.dtype.itemsize
        word = int.from_bytes(k.pad.tobytes(), "little")
        words = f.constant(vector(convert.word_of(k.dtype), lanes), word)
        with f.loop(0, row, 64) as i:
            f.store(words, f.at(self.neutral, i.index))

    def _block(self, first: Value) -> None:
        f, k, at = self.f, self.k, self.at
        at.begin(first)
        start = at.windows(self.x, self.x_n)
        for base, s, room in self.places:
            f.store(at.places(base, s), room)
        tap = at.first_tap()
        self.part_w = self.w
        left = (self.count - first + (k.pixels - 1)).udiv(k.pixels)
        self.blocks = f.intrinsic("smin", "i64", left, f.constant("i64", k.turns))
        if not k.parts:
            self._whole_table(start)
            self._channels(self.taps, None)
            return
        with f.loop(0, (self.channels + k.lanes) * (k.levels * k.pixels)) as i:
            f.store(convert.constant(f, k.acc, k.neutral), f.at(self.waiting, i.index, k.acc.itemsize))
        with f.loop(0, self.taps, TAPS, carry=tap) as part:
            after = part.index + TAPS
            count = f.intrinsic("smin", "i64", self.taps - part.index, f.constant("i64", TAPS))
            part.next(*self._table(start, part.carried, count))
            if k.pairs:
                self.part_w = f.at(self.w, part.index.lshr(1) * self.pair)
            self._channels(count, after)

    def _taps_once(self) -> None:
        """Bytes from a window's first input to that of each tap, and the addresses of weights: equal for all blocks."""
        f, at = self.f, self.at
        self.offsets = f.at(self.scratch, TAPS * 17, 8)
        with f.loop(0, self.taps, carry=at.first_tap()) as t:
            f.store(at.offset(t.carried), f.at(self.offsets, t.index, 8))
            if self.k.combine == "dot" and not self.k.pairs:
                f.store(f.at(self.w, at.weights(t.carried)), f.at(self.w_table, t.index, 8))
            t.next(*at.next_tap(t.carried))

    def _whole_table(self, start: Value) -> None:
        """All taps of a block; where no window leaves the input nothing has to be compared."""
        f, at = self.f, self.at
        _, low = at.tap(start, at.first_tap())
        _, high = at.tap(start, [a.taps - 1 for a in at.axes])
        inner = (low & high).bitcast(f"i{self.wide}").eq(-1)
        with f.if_(inner), f.loop(0, self.taps) as t:
            offset = f.load("i64", f.at(self.offsets, t.index, 8))
            f.store(start + at.splat(offset), f.at(self.in_table, t.index, 8 * self.wide))
        with f.if_(~inner):
            self._table(start, at.first_tap(), self.taps)

    def _table(self, start: Value, tap: Sequence[Value], count: Value) -> Sequence[Value]:
        """Write the addresses of ``count`` taps, of which ``tap`` is the first; gives the tap after them."""
        f, at = self.f, self.at
        neutral = self._nowhere()
        with f.loop(0, count, carry=tap) as t:
            places, inside = at.tap(start, t.carried)
            f.store(f.select(inside, places, neutral), f.at(self.in_table, t.index, 8 * self.wide))
            if self.k.combine == "dot" and self.k.parts and not self.k.pairs:
                f.store(f.at(self.w, at.weights(t.carried)), f.at(self.w_table, t.index, 8))
            t.next(*at.next_tap(t.carried))
        return t.results

    def _nowhere(self) -> Value:
        """The address of the neutral row, for each pixel."""
        return self.at.splat(self.f.cast("ptrtoint", self.neutral, "i64"))

    def _channels(self, taps: Value, after: Value | None) -> None:
        """All channels of the block, for ``taps`` rows of the table; ``after``: taps to the end of this part."""
        f, k = self.f, self.k
        step = k.lanes * k.vectors
        if k.masked:
            self._vectors(f.constant("i64", 0), taps, after, f.lanes_below(self.channels, k.lanes))
            return
        if not k.parts:
            with f.loop(0, self.channels, step) as c:
                # The last ones are moved back so that they end with the channels.
                at = f.intrinsic("smin", "i64", c.index, self.channels - step)
                self._vectors(at, taps, after, None)
            return
        # Where sums wait in memory nothing may be added twice.
        whole = self.channels - self.channels.urem(step)
        with f.loop(0, whole, step) as c:
            self._vectors(c.index, taps, after, None)
        with f.loop(whole, self.channels, k.lanes) as c:
            mask = f.lanes_below(self.channels - c.index, k.lanes)
            self._vectors(c.index, taps, after, mask, 1)

    def _vectors(self, at: Value, taps: Value, after: Value | None, mask: Value | None, vectors: int = 0) -> None:
        """The vectors of channels from ``at`` on, of all pixels."""
        with self.f.loop(0, self.blocks) as block:
            self.lane = block.index * self.k.pixels
            self._vectors_of_block(at, taps, after, mask, vectors)

    def _vectors_of_block(self, at: Value, taps: Value, after: Value | None, mask: Value | None, vectors: int) -> None:
        f, k = self.f, self.k
        vectors = vectors or k.vectors
        combine = self._combine()
        acc = [convert.constant(f, k.acc, k.neutral, k.lanes)] * (k.pixels * vectors)
        done = self._by_pairs(at, taps, acc, mask) if k.pairs else self._by_taps(at, taps, acc, mask)
        if after is None:
            self._finish(at, done, mask, vectors)
            return
        room, width = self.channels + k.lanes, k.lanes * k.acc.itemsize
        waiting = [
            [
                f.at(f.at(self.waiting, at + room * (level * k.pixels + i), k.acc.itemsize), v * width)
                for i in range(k.pixels)
                for v in range(vectors)
            ]
            for level in range(k.levels)
        ]
        join = self._join(combine)
        joined = lambda xs, level: [
            join(self._load(k.acc, p, None), x) for x, p in zip(xs, waiting[level], strict=True)
        ]
        done = joined(done, 0)
        with f.if_(after.lt(self.taps)):
            for x, p in zip(done, waiting[0], strict=True):
                f.store(x, p)
            for level in range(1, k.levels):
                with f.if_((after & (TAPS ** (level + 1) - 1)).eq(0)):
                    below = [self._load(k.acc, p, None) for p in waiting[level - 1]]
                    for x, p, emptied in zip(joined(below, level), waiting[level], waiting[level - 1], strict=True):
                        f.store(x, p)
                        f.store(acc[0], emptied)
        with f.if_(after.ge(self.taps)):
            for level in range(1, k.levels):
                done = joined(done, level)
            self._finish(at, done, mask, vectors)

    def _by_taps(self, at: Value, taps: Value, acc: Sequence[Value], mask: Value | None) -> list[Value]:
        """What the inputs of a part's taps combine to, pixel by pixel."""
        f, k, isa, vectors = self.f, self.k, self.isa, len(acc) // self.k.pixels
        combine = self._combine()
        with f.loop(0, taps, carry=acc) as t:
            table = f.at(f.at(self.in_table, t.index, 8 * self.wide), self.lane, 8)
            weights: list[Value] = []
            if k.combine == "dot":
                w = f.at(f.load("ptr", f.at(self.w_table, t.index, 8), 8), at, k.acc.itemsize)
                weights = [self._load(k.acc, f.at(w, v * k.lanes * k.acc.itemsize), mask) for v in range(vectors)]
            now: list[Value] = []
            for i in range(k.pixels):
                row = f.at(f.load("ptr", f.at(table, i, 8), 8), at, k.dtype.itemsize)
                for v in range(vectors):
                    x = self._load(k.dtype, f.at(row, v * k.lanes * k.dtype.itemsize), mask)
                    if k.acc != k.dtype:
                        x = convert.convert(f, isa, x, k.dtype, k.acc)
                    now.append(combine(t.carried[i * vectors + v], x, weights[v] if weights else x))
            t.next(*now)
        return list(t.results)

    def _by_pairs(self, at: Value, taps: Value, acc: Sequence[Value], mask: Value | None) -> list[Value]:
        """The same for products of int16, two taps at a time.

        Two vectors of sums are made of whole registers of inputs, whose lanes only meet within 16 bytes: lanes of sums
        are in that order until the last tap.
        """
        f, k, isa, vectors = self.f, self.k, self.isa, len(acc) // self.k.pixels
        lanes, size = k.lanes * vectors, k.dtype.itemsize
        side = 4 if vectors > 1 else lanes
        order = [c for v in range(vectors) for g in range(v * side, lanes, vectors * side) for c in range(g, g + side)]
        parts = [order[v * k.lanes : (v + 1) * k.lanes] for v in range(vectors)]
        # A missing last tap is padding, and its weight is zero.
        f.store(self._nowhere(), f.at(self.in_table, taps, 8 * self.wide))
        with f.loop(0, (taps + 1).lshr(1), carry=acc) as t:
            w = f.at(f.at(self.part_w, t.index * self.pair), at, 4)
            weights = [self._load(k.acc, f.at(w, v * k.lanes * 4), mask) for v in range(vectors)]
            if vectors > 1:
                weights = [f.shuffle(weights[0], weights[1], part) for part in parts]
            table = f.at(self.in_table, t.index * 2, 8 * self.wide)
            now: list[Value] = []
            for i in range(k.pixels):
                xs: list[Value] = []
                for one in range(2):
                    place = f.load("ptr", f.at(f.at(table, one * self.wide + i, 8), self.lane, 8), 8)
                    xs.append(self._load(k.dtype, f.at(place, at, size), mask, vectors))
                for v, part in enumerate(parts):
                    both = [c + one * lanes for c in part for one in range(2)]
                    x = f.shuffle(xs[0], xs[1], both).bitcast(self.acc_type)
                    now.append(multiply_add(f, isa, "pairs", x, weights[v], t.carried[i * vectors + v]))
            t.next(*now)
        if vectors == 1:
            return list(t.results)
        back = sorted(range(lanes), key=order.__getitem__)
        return [
            f.shuffle(t.results[i], t.results[i + 1], back[v * k.lanes : (v + 1) * k.lanes])
            for i in range(0, len(acc), 2)
            for v in range(2)
        ]

    def _combine(self) -> Callable[[Value, Value, Value], Value]:
        f, k, isa = self.f, self.k, self.isa
        if k.combine == "dot":
            kind: Kind = "f32" if k.acc == dtypes.float32 else "f64" if k.acc == dtypes.float64 else "i32"
            return lambda acc, x, w: multiply_add(f, isa, kind, x, w, acc)
        name = {"sum": "add", "max": "max", "min": "min"}[k.combine]
        return lambda acc, x, _: ops.emit(f, isa, name, {}, [k.acc, k.acc], k.acc, [acc, x])

    def _join(self, combine: Callable[[Value, Value, Value], Value]) -> Callable[[Value, Value], Value]:
        """How parts are combined: products of parts are there already."""
        return (lambda x, y: x + y) if self.k.combine == "dot" else lambda x, y: combine(x, y, y)

    def _finish(self, at: Value, done: Sequence[Value], mask: Value | None, vectors: int) -> None:
        f, k, isa = self.f, self.k, self.isa
        count, n = len(k.extras), k.together if vectors == k.vectors and mask is None else 1
        parts = range(0, vectors, n)
        rows = [
            [
                self._extra(e, base, at + v * k.lanes, mask, n) if e.row else None
                for e, base in zip(k.extras, self.e, strict=True)
            ]
            for v in parts
        ]
        for i in range(k.pixels):
            bases = [f.load("ptr", f.at(f.at(places, self.lane, 8), i, 8), 8) for _, _, places in self.places]
            for v, row in zip(parts, rows, strict=True):
                ahead, first = at + v * k.lanes, i * vectors + v
                total = done[first] if n == 1 else f.shuffle(done[first], done[first + 1], range(2 * k.lanes))
                values = [convert.convert(f, isa, total, k.acc, k.out)]
                for e, made, base in zip(k.extras, row, bases, strict=False):
                    values.append(made or self._extra(e, base, ahead, mask, n))
                results = k.epilogue.emit(f, isa, values)
                for result, dtype, base in zip(results, k.epilogue.out_dtypes, bases[count:], strict=True):
                    raw = convert.to_memory(f, isa, dtype, result)
                    place = f.at(base, ahead, dtype.itemsize)
                    if mask is None:
                        f.store(raw, place)
                    else:
                        f.store_masked(raw, place, mask)

    def _extra(self, e: Extra, base: Value, ahead: Value, mask: Value | None, n: int) -> Value:
        """An operand of the epilogue, for ``n`` vectors of channels from ``ahead`` on."""
        f = self.f
        if e.channels:
            return self._load(e.dtype, f.at(base, ahead, e.dtype.itemsize), mask, n)
        one = f.load(convert.memory_type(e.dtype), base)
        return f.splat(convert.from_memory(f, self.isa, e.dtype, one), n * self.k.lanes)

    def _load(self, dtype: DType, place: Value, mask: Value | None, n: int = 1) -> Value:
        f = self.f
        type = convert.memory_type(dtype, n * self.k.lanes)
        raw = f.load(type, place) if mask is None else f.load_masked(type, place, mask)
        return convert.from_memory(f, self.isa, dtype, raw)
