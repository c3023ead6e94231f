"""Direct convolution: a block of output pixels times a block of output channels in registers, no matrix of windows.

Channels are last in the result's memory. For each tap of the window and each input feature, one element of every pixel
is repeated over a vector and multiplied with vectors of weights, whose lanes are output channels::

    for tap in window:                          # up to three spatial dimensions
        for c in input features:
            for v in vectors:   w[v] = weights[tap, c, v]
            for i in pixels:    acc[i, v] += x[pixel i + tap, c] * w[v]

A long sum of floats is made of parts, so that its error does not grow with its length: ``acc`` begins anew with each
part, and what it held is added to sums in memory.

A pixel whose tap lies in the padding reads zeros. Every size and stride is an integer among the words, so that one
piece of machine code serves all convolutions of one dtype, block and epilogue: 1x1, strided, dilated, grouped, and the
gradients of all of them. An item is a run of pixel blocks of one block of channels: the weights of a block stay in the
cache while the pixels pass by.

Knows no program and no dimension numbers; what they come down to is a `ConvProblem`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu import convert, knobs
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.conv_blocks import SCALAR, WORK, DType, Kind, RegisterBlock, multiply_add
from nxjax.kernels.cpu.conv_problem import ConvProblem, Extra, ends, inputs, used
from nxjax.kernels.cpu.expression import Constant, Expression, identity
from nxjax.kernels.cpu.ir import LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.pixels import Pixels, Words

# Bytes of input that a run of pixel blocks may span: with a block of weights it stays in the second-level cache.
_WEIGHT_BYTES: Final = 384 << 10  # larger weights do not stay there beside it
_PACK_RUN: Final = 4  # blocks of pixels that make it worth while
_CHEAP: Final = ("add", "sub", "mul", "max", "min", "clamp", "neg")
_TAPS: Final = 64  # windows of no more taps have all their addresses made before the first product
_LONG: Final = 2304  # products of floats in a row, at most: longer sums lose digits, and are made of parts
_PART: Final = 512  # products of such a part
_LEVELS: Final = 3  # parts are added up, then every 64 sums of parts, and every 64 of these
AHEAD: Final = 8  # features: how far ahead weights are asked for


@final
class Conv(Kernel):
    """``y = epilogue(sum of x * w, *extras)``; operands: x, w, the extras, then y.

    Args:
        problem: sizes and strides, which the machine code does not depend on.
        kind: how products are made.
        block: what is held in registers.
        dtype: of the sum that the epilogue gets (rounded or wrapped to it).
        epilogue: from the sum and the extras to the results.
        extras: operands of the epilogue.
        more: results after the first, whose strides the problem has.
    """

    def __init__(
        self,
        problem: ConvProblem,
        kind: Kind,
        block: RegisterBlock,
        dtype: DType,
        epilogue: Expression | None = None,
        extras: Sequence[Extra] = (),
        more: Sequence[Extra] = (),
    ) -> None:
        self.problem = problem
        self.kind: Kind = kind
        self.block = block
        self.dtype = dtype
        self.epilogue = epilogue or identity(dtype)
        self.extras = tuple(extras)
        self.more = tuple(more)
        # Parts of a long sum are added to what is there.
        self.added = tuple((0, 2 + i) for i in range(len(self.extras)))
        size = 4 if kind == "pairs" else WORK[kind].itemsize
        self._size = size
        # Where features do not lie one after the other there is no row of zeros to read instead of padding.
        self.unit = problem.x_c == size
        # Dimensions that do nothing, and a batch of one, take no instructions.
        self.used = used(problem)
        self.batched = problem.batch > 1
        self.table = self.unit and 1 < problem.taps <= _TAPS
        self.parts = kind in ("f32", "f64") and problem.taps * problem.inputs > _LONG
        # An epilogue of a few cheap steps is written out for every vector of a block.
        cheap = all(isinstance(n, Constant) or n.op.name in _CHEAP for n in self.epilogue.nodes)
        self.direct = cheap and len(self.epilogue.nodes) <= 6
        # Results of half the size of sums are made two vectors at a time, which fill one; the widest have a way alone.
        halves = kind == "pairs" and all(d.itemsize == 2 for d in self.epilogue.out_dtypes)
        self.together = 2 if halves and block.vectors == 2 and block.lanes <= 8 else 1
        # One step that long is written out too, but its sums wait in memory: it leaves no registers for them.
        self.waits = halves and len(self.epilogue.nodes) == 1
        self.padded = any(a.padded for a in problem.axes)
        assert self.unit or not self.padded
        # One tap, and pixels at equal distances: the addresses of a block are a few additions.
        (*_, last) = self.used
        axis = problem.axes[last]
        even = len(self.used) == 1 and axis.taps == 1 and axis.low == 0 and not axis.padded
        self.line = even and self.unit and not self.batched and not self.parts
        self._zeros = -(-problem.inputs * size // 64) * 64 + 64 if self.padded else 0
        self.tiles = -(-problem.pixels // block.pixels)
        self.blocks = problem.groups * -(-problem.outputs // block.channels)
        self.run = self._run(size)
        # Rows of large weights that lie apart fall into few sets of the caches: they are laid together first, where
        # enough pixels follow.
        row = block.channels * WORK[kind].itemsize
        room = problem.taps * problem.inputs * row
        self.packs = problem.w_c != row and room >= knobs.CONV_PACK() and self.run >= _PACK_RUN
        self.line = self.line and not self.packs
        self.scratch = self._zeros + (room if self.packs else 0)
        self.items = -(-self.tiles // self.run) * self.blocks if problem.outputs else 0
        work = self.run * block.pixels * block.channels * problem.taps * problem.inputs * (2 if kind == "pairs" else 1)
        self.grain = max(1, (1 << 17) // max(work, 1))

    def _run(self, size: int) -> int:
        """Pixel blocks of an item. Items with the same pixels come one after the other.

        Weights that stay in the second-level cache as a whole are read again for every run: runs are as long as their
        input stays there too. Larger weights pass by once, block by block, with all pixels for each block, as long as
        there are blocks enough for several threads.
        """
        p = self.problem
        weights = p.groups * p.inputs * p.taps * p.outputs * size
        if weights > _WEIGHT_BYTES:
            return max(1, -(-self.tiles * self.blocks // max(self.blocks, knobs.CONV_ITEMS())))
        per_tile = self.block.pixels * p.inputs * size * math.prod(a.step for a in p.axes)
        return max(1, min(self.tiles, knobs.CONV_RUN() // max(per_tile, 1), self.tiles // knobs.CONV_ITEMS()))

    @property
    def key(self) -> str:
        extras = ",".join(e.text for e in self.extras)
        flags = f"{'' if self.unit else ' strided'}{' packing' if self.packs else ''}{' table' if self.table else ''}"
        flags += f"{' parts' if self.parts else ''}{' line' if self.line else ''}"
        flags += " padded" if self.padded else ""
        b, dims = self.block, f"{'n' if self.batched else ''}{''.join(map(str, self.used))}"
        return (
            f"conv({self.kind}{flags} {dims} "
            f"{b.pixels}x{b.vectors}x{b.lanes} {self.dtype.name} "
            f"{self.epilogue.key} [{extras}])"
        )

    @property
    def title(self) -> str:
        return "conv" if self.epilogue.is_identity else f"conv+{self.epilogue}"[:40]

    @property
    def integers(self) -> tuple[int, ...]:
        """The words after the operands' places."""
        p = self.problem
        found = [p.pixels, self.tiles, self.run, p.groups, -(-p.outputs // self.block.channels), p.inputs, p.outputs]
        found += [p.x_n, p.x_c, p.x_group, p.w_c, p.w_block, p.w_group, p.y_n, p.y_group]
        for a in p.axes:
            found += [a.size, a.outputs, a.taps, a.step, a.dilation, a.low, a.x, a.w, a.y]
        for e in (*self.extras, *self.more):
            found += [e.n, *e.axes, e.group]
        return tuple(found)

    def cost(self) -> KernelCost:
        p = self.problem
        size = WORK[self.kind].itemsize if self.kind != "pairs" else 2
        features = p.inputs * (2 if self.kind == "pairs" else 1)
        x = p.read * p.groups * features * size
        w = p.groups * p.outputs * features * p.taps * size
        y = p.pixels * p.groups * p.outputs
        extra = sum(e.dtype.itemsize * (y if any((e.n, *e.axes)) else p.outputs) for e in self.extras)
        written = y * sum(d.itemsize for d in self.epilogue.out_dtypes)
        return KernelCost(2.0 * y * features * p.taps, x + w + extra, written)

    def touches(self) -> Touches:
        p = self.problem
        lanes = self.block.channels
        shape = (p.groups, *(a.taps for a in p.axes), p.inputs)
        steps = (p.w_group, *(a.w for a in p.axes), p.w_c)
        whole, rest = divmod(p.outputs, lanes)
        row = WORK[self.kind].itemsize
        # Of the last block whole vectors are loaded; lanes that are no channel lie in the padding of packed weights.
        w = [
            Box(row, (*shape, whole, lanes), (*steps, p.w_block, row)),
            Box(row, (*shape, rest), (*steps, row), whole * p.w_block),
            Box(row, (*shape, lanes if rest else 0), (*steps, row), whole * p.w_block, idle=True),
        ]
        ins, outs = ends(p, self.extras, self.more, self.epilogue.out_dtypes, (p.groups, p.outputs))
        found = plain(ins, outs)
        return Touches((inputs(p, self._size), tuple(w), *found.ins), found.outs)

    # --- meaning ---

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The results [batch, spatial..., groups * outputs], if that is how they lie in memory."""
        p = self.problem
        x, w, *extras = xs
        outs = [a.outputs for a in p.axes]
        two = 2 if self.kind == "pairs" else 1
        work: Any = np.int64 if self.kind == "pairs" else WORK[self.kind]
        total = np.zeros((p.batch, *outs, p.groups, p.outputs), work)
        at = lambda v, offset, dtype: np.asarray(v).reshape(-1).view(np.uint8)[
            np.asarray(offset)[..., None] + np.arange(dtype.itemsize)
        ].copy().view(dtype)[..., 0]  # fmt: skip
        size, narrow = (2, np.dtype("int16")) if two == 2 else (self._size, WORK[self.kind])
        n, g = np.arange(p.batch), np.arange(p.groups)
        channel = np.arange(p.outputs)
        features = np.arange(p.inputs * two)
        o = [np.arange(k) for k in outs]
        for tap in np.ndindex(*(a.taps for a in p.axes)):
            places = [i * a.step + k * a.dilation - a.low for i, k, a in zip(o, tap, p.axes, strict=True)]
            grid = np.ix_(n, *places, g, features)
            valid = np.True_
            for i, a in zip(grid[1:4], p.axes, strict=True):
                valid = valid & (i >= 0) & (i < a.size)
            strides = (p.x_n, *(a.x for a in p.axes), p.x_group)
            offset = sum(i * s for i, s in zip(grid[:-1], strides, strict=True))
            offset = offset + grid[-1] // two * p.x_c + grid[-1] % two * size
            left = np.where(valid, at(x, np.where(valid, offset, 0), narrow), 0).astype(work)
            c, k = np.ix_(features, channel)
            block = k // self.block.channels * p.w_block + k % self.block.channels * size * two
            where = c // two * p.w_c + c % two * size + block
            where = where + sum(a.w * i for a, i in zip(p.axes, tap, strict=True))
            right = at(w, where + g[:, None, None] * p.w_group, narrow).astype(work)
            total += np.einsum("abcdgf,gfk->abcdgk", left, right)
        y = total.astype(self.dtype)
        values = []
        for e, v in zip(self.extras, extras, strict=True):
            strides = (e.n, *e.axes, e.group, e.dtype.itemsize if e.channels else 0)
            offset = sum(i * s for i, s in zip(np.ix_(n, *o, g, channel), strides, strict=True))
            values.append(np.broadcast_to(at(v, offset, e.dtype), y.shape))
        return [v.reshape(p.batch, *outs, p.groups * p.outputs) for v in self.epilogue.meaning(y, *values)]

    # --- machine code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        _Writer(self, module, isa).write()


class _Writer:
    """Writes one function; holds the words that are read once, before the loops."""

    def __init__(self, kernel: Conv, module: LlvmModule, isa: Isa) -> None:
        self.k = kernel
        self.isa = isa
        self.f, self.words, self.lo, self.hi, self.scratch = kernel.function(module)
        self.wide = 16 if kernel.block.pixels > 8 else 8
        self.scalar = SCALAR[kernel.kind]
        self.acc_type = vector(self.scalar, kernel.block.lanes)

    def write(self) -> None:
        f, k, words = self.f, self.k, self.words
        count = len(k.extras)
        self.x, self.w = pointer(f, words, 0), pointer(f, words, 1)
        self.e = [pointer(f, words, 2 + i) for i in range(count)]
        outs = len(k.epilogue.outputs)
        self.y = [pointer(f, words, 2 + count + i) for i in range(outs)]
        numbers = iter(integer(f, words, 2 + count + outs + i) for i in range(len(k.integers)))
        take = lambda n: [next(numbers) for _ in range(n)]
        self.pixels, tiles, run, groups, blocks, self.inputs, outputs = take(7)
        self.x_n, self.x_c, x_group, self.w_c, w_block, w_group, self.y_n, y_group = take(8)
        axes = [Words(*take(9)) for _ in range(3)]
        extra_words = [take(5) for _ in k.extras]
        out_words = [[self.y_n, *(a.y for a in axes), y_group], *(take(5) for _ in k.more)]
        self.far = self.w_c * AHEAD
        self.axis = axes[k.used[-1]]
        self.at = Pixels(f, [axes[i] for i in k.used], k.used, self.pixels, self.wide, k.batched)
        b = k.block
        self.acc = f.alloca(self.acc_type, b.pixels * b.vectors)
        self.sums = f.alloca(self.acc_type, b.pixels * b.vectors * _LEVELS) if k.parts else None
        self.out_places = [f.alloca("i64", self.wide) for _ in self.y]
        self.extra_places = [f.alloca("i64", self.wide) for _ in k.extras]
        self.in_places = f.alloca("i64", self.wide * (_TAPS if k.table else 1))
        if k.table:
            self.w_places = f.alloca("i64", _TAPS)
            with f.loop(0, self.at.taps, carry=self.at.first_tap()) as tap:
                f.store(self.at.weights(tap.carried), f.at(self.w_places, tap.index, 8))
                tap.next(*self.at.next_tap(tap.carried))
        if k.padded:
            with f.loop(0, self.inputs * k._size, 64) as zero:
                f.store(f.constant("<16 x i32>", 0), f.at(self.scratch, zero.index))
        sizes = [d.itemsize for d in k.epilogue.out_dtypes]
        per_run = groups * blocks
        with f.loop(self.lo, self.hi) as item:
            chunk, rest = item.index.udiv(per_run), item.index.urem(per_run)
            group, block = rest.udiv(blocks), rest.urem(blocks)
            channel = block * b.channels
            self.left = outputs - channel
            self.x_at = f.at(self.x, group * x_group)
            self.w_at = f.at(self.w, group * w_group + block * w_block)
            y_at = [f.at(p, s[4] * group + channel * size) for p, s, size in zip(self.y, out_words, sizes, strict=True)]
            e_at = [
                f.at(p, group * s[4] + (channel * e.dtype.itemsize if e.channels else 0))
                for p, s, e in zip(self.e, extra_words, k.extras, strict=True)
            ]
            self.row_at = [p for p, e in zip(e_at, k.extras, strict=True) if e.row]
            extras = zip(e_at, extra_words, self.extra_places, strict=True)
            self.places = [v for v, e in zip(extras, k.extras, strict=True) if not e.row]
            self.places += zip(y_at, out_words, self.out_places, strict=True)
            if k.packs:
                self.next_w = f.at(self.w_at, w_block)
                self._pack()
            first = chunk * run
            last = f.intrinsic("smin", "i64", first + run, tiles)
            self.run = run
            with f.loop(first, last) as tile:
                self.turn = tile.index - first
                self._tile(tile.index * b.pixels)
        f.ret()

    def _tile(self, first: Value) -> None:
        """The pixels from ``first`` on, for one block of channels."""
        f, k, at = self.f, self.k, self.at
        left = self.pixels - first
        if k.line:
            rows = self._along(self.x_at, self.axis.step * self.axis.x, first, left)
            for base, s, room in self.places:
                for i, place in enumerate(self._along(base, s[1 + k.used[-1]], first, left)):
                    f.store(place, f.at(room, i, 8), 8)
            zero = [f.constant(self.acc_type, 0)] * (k.block.pixels * k.block.vectors)
            acc = self._features(rows, self.w_at, (f.constant("i64", 0), self.inputs), zero, None)
        else:
            at.begin(first)
            for base, s, room in self.places:
                f.store(at.places(base, s), room)
            acc = self._sum(at.windows(self.x_at, self.x_n))
        full = self.left.ge(k.block.channels)
        if k.waits:
            self._wait(acc)
            whole = full & left.ge(k.block.pixels)
            with f.if_(whole):
                kept = [f.load(self.acc_type, self._waiting(i), 64) for i in range(len(acc))]
                self._finish_whole(kept)
            with f.if_(~whole):
                self._finish_any(left, full)
        elif k.direct:
            # Most blocks are whole: their sums go through the epilogue without a way through memory.
            whole = full & left.ge(k.block.pixels)
            with f.if_(whole):
                self._finish_whole(acc)
            with f.if_(~whole):
                self._wait(acc)
                self._finish_any(left, full)
        else:
            self._wait(acc)
            self._finish_any(left, full)

    def _along(self, base: Value, step: Value, first: Value, left: Value) -> list[Value]:
        """Where a block of pixels ``step`` bytes apart lies; what is behind the last of ``left`` pixels repeats it."""
        f = self.f
        found = [f.at(base, first * step)]
        for i in range(1, self.k.block.pixels):
            found.append(f.at(found[-1], f.select(left.gt(i), step, 0)))
        return found

    def _wait(self, acc: Sequence[Value]) -> None:
        """Sums to memory."""
        for i, value in enumerate(acc):
            self.f.store(value, self._waiting(i), 64)

    def _waiting(self, i: int) -> Value:
        return self.f.at(self.acc, i * self.k.block.lanes * self._acc_bytes)

    def _finish_whole(self, acc: Sequence[Value]) -> None:
        """Epilogue and store of a block that has all its pixels and channels."""
        f, b, n = self.f, self.k.block, self.k.together
        parts = range(0, b.vectors, n)
        rows = [self._rows(v, n, None) for v in parts]
        for i in range(b.pixels):
            at = [f.load("ptr", f.at(place, i, 8), 8) for _, _, place in self.places]
            for v, row in zip(parts, rows, strict=True):
                first = i * b.vectors + v
                x = acc[first] if n == 1 else f.shuffle(acc[first], acc[first + 1], range(2 * b.lanes))
                self._store(x, v, n, row, at, None)

    def _finish_any(self, left: Value, full: Value) -> None:
        """The same by loops over pixels, of any number, and with channels masked where there are fewer."""
        f, k = self.f, self.k
        count = f.intrinsic("smin", "i64", left, f.constant("i64", k.block.pixels))
        with f.if_(full):
            self._finish(count, None)
        with f.if_(~full):
            masks: list[Value] = []
            for v in range(k.block.vectors):
                there = f.intrinsic("smax", "i64", self.left - v * k.block.lanes, f.constant("i64", 0))
                masks.append(f.lanes_below(there, k.block.lanes))
            self._finish(count, masks)

    def _sum(self, start: Value) -> Sequence[Value]:
        """The sums over all taps and features; ``start``: the windows' first inputs."""
        f, at, zero = self.f, self.at, self.f.constant("i64", 0)
        first = at.first_tap()
        if self.k.table:
            self._table(start)
            first = []
        if not self.k.parts:
            return self._part(start, (zero, at.taps), first, (zero, self.inputs))[1]
        n = self.k.block.pixels * self.k.block.vectors
        for i in range(n * _LEVELS):
            f.store(f.constant(self.acc_type, 0), self._kept(i))
        # Parts are some taps with all features, or some features of one tap.
        most = f.constant("i64", _PART)
        taps = f.intrinsic("smax", "i64", most.udiv(f.intrinsic("smax", "i64", self.inputs, zero + 1)), zero + 1)
        with f.loop(0, at.taps, taps, carry=[zero, *first]) as window:
            stop = f.intrinsic("smin", "i64", window.index + taps, at.taps)
            with f.loop(0, self.inputs, most, carry=window.carried) as features:
                end = f.intrinsic("smin", "i64", features.index + most, self.inputs)
                now = window.carried[1:]
                now, acc = self._part(start, (window.index, stop), now, (features.index, end))
                self._keep(acc, features.carried[0])
                features.next(features.carried[0] + 1, *now)
            window.next(*features.results)
        sums = [[f.load(self.acc_type, self._kept(level * n + i)) for i in range(n)] for level in range(_LEVELS)]
        return [reduce(lambda a, b: a + b, levels) for levels in zip(*sums, strict=True)]

    def _kept(self, i: int) -> Value:
        """Where the sum ``i`` of parts is."""
        assert self.sums is not None
        return self.f.at(self.sums, i * self.k.block.lanes * self._acc_bytes)

    def _keep(self, acc: Sequence[Value], number: Value) -> None:
        """Add the sums of part ``number`` to those in memory, and every 64 times these to the next level's."""
        f = self.f
        for i, x in enumerate(acc):
            f.store(f.load(self.acc_type, self._kept(i)) + x, self._kept(i))
        for level in range(1, _LEVELS):
            mask = 64**level - 1
            with f.if_((number & mask).eq(mask)):
                for i in range(level * len(acc), (level + 1) * len(acc)):
                    below = self._kept(i - len(acc))
                    f.store(f.load(self.acc_type, self._kept(i)) + f.load(self.acc_type, below), self._kept(i))
                    f.store(f.constant(self.acc_type, 0), below)

    def _part(
        self, start: Value, taps: tuple[Value, Value], first: Sequence[Value], features: tuple[Value, Value]
    ) -> tuple[Sequence[Value], Sequence[Value]]:
        """The tap after the last, and the sums over some taps, of which ``first`` is the first, and some features."""
        f, b, at = self.f, self.k.block, self.at
        zero = f.constant(self.acc_type, 0)
        with f.loop(*taps, carry=[*first, *[zero] * (b.pixels * b.vectors)]) as tap:
            now, acc = tap.carried[: len(first)], tap.carried[len(first) :]
            places = self.in_places
            if self.k.table:
                places = f.at(self.in_places, tap.index, 8 * self.wide)
            else:
                self._inputs(start, now, places)
            rows = [f.load("ptr", f.at(places, i, 8), 8) for i in range(b.pixels)]
            if self.k.packs:
                weights = tap.index * self.inputs * self._row
            elif self.k.table:
                weights = f.load("i64", f.at(self.w_places, tap.index, 8))
            else:
                weights = at.weights(now)
            ahead = None
            if self.k.packs:
                # Each turn of the item asks for the taps of the next channels' weights that are its share.
                mine = tap.index.urem(self.run).eq(self.turn)
                place = f.load("i64", f.at(self.w_places, tap.index, 8)) if self.k.table else at.weights(now)
                ahead = f.select(mine, f.at(self.next_w, place), self.w_at), f.select(mine, self.w_c, 0)
            acc = self._features(rows, f.at(self.w_at, weights), features, acc, ahead)
            tap.next(*(at.next_tap(now) if first else []), *acc)
        return tap.results[: len(first)], tap.results[len(first) :]

    def _inputs(self, start: Value, now: Sequence[Value], room: Value) -> None:
        """Write where a tap's input of each pixel lies; padding is a row of zeros."""
        f, at = self.f, self.at
        places, inside = at.tap(start, now)
        if self.k.padded:
            places = f.select(inside, places, at.splat(f.cast("ptrtoint", self.scratch, "i64")))
        f.store(places, room)

    def _table(self, start: Value) -> None:
        """Where the inputs of all taps lie: made ahead, so that products never wait for addresses."""
        f, at = self.f, self.at
        with f.loop(0, at.taps, carry=at.first_tap()) as tap:
            self._inputs(start, tap.carried, f.at(self.in_places, tap.index, 8 * self.wide))
            tap.next(*at.next_tap(tap.carried))

    @property
    def _acc_bytes(self) -> int:
        return WORK[self.k.kind].itemsize

    def _features(
        self,
        rows: Sequence[Value],
        weights: Value,
        features: tuple[Value, Value],
        acc: Sequence[Value],
        ahead: tuple[Value, Value] | None,
    ) -> Sequence[Value]:
        """One tap: products of some features, added to ``acc``; ``ahead``: rows to ask for, first and step."""
        f, k = self.f, self.k
        first, last = features
        unroll = 4 if k.unit else 1
        whole = last & -unroll  # parts begin at multiples of it
        step = self._row if k.packs else self.w_c
        if k.parts:
            weights = f.at(weights, first * step)
            ahead = ahead and (f.at(ahead[0], first * ahead[1]), ahead[1])
        with f.loop(first, whole, unroll, carry=[weights, ahead[0] if ahead else weights, *acc]) as c:
            at, wanted, *now = c.carried
            for u in range(unroll):
                if ahead:
                    self._fetch(wanted)
                    wanted = f.at(wanted, ahead[1])
                else:
                    self._fetch(f.at(at, self.far))
                now = self._products(rows, c.index, u, at, now)
                at = f.at(at, step)
            c.next(at, wanted if ahead else at, *now)
        at, _, *now = c.results
        if unroll == 1:
            return now
        with f.loop(whole, last, carry=[at, *now]) as c:
            at, *now = c.carried
            c.next(f.at(at, step), *self._products(rows, c.index, 0, at, now))
        return c.results[1:]

    @property
    def _row(self) -> int:
        """Bytes of the weights of one feature for a block of channels."""
        return self.k.block.channels * self._acc_bytes

    def _pack(self) -> None:
        """The weights of the item's channels to scratch, one row after the other; they are read from there."""
        f, at, lanes = self.f, self.at, self.k.block.lanes * self._acc_bytes
        room = f.at(self.scratch, (self.inputs * self.k._size + 127) & -64) if self.k.padded else self.scratch
        source, self.w_at = self.w_at, room
        first = at.first_tap()
        with f.loop(0, at.taps, carry=[self.w_at, *first]) as tap:
            target, now = tap.carried[0], tap.carried[1:]
            with f.loop(0, self.inputs, carry=[f.at(source, at.weights(now)), target]) as row:
                here, there = row.carried
                self._fetch(f.at(here, self.far))
                for v in range(self.k.block.vectors):
                    f.store(f.load(self.acc_type, f.at(here, v * lanes)), f.at(there, v * lanes))
                row.next(f.at(here, self.w_c), f.at(there, self._row))
            tap.next(row.results[1], *at.next_tap(now))

    def _fetch(self, at: Value) -> None:
        """Ask for a row of weights, which is anywhere: rows that are not packed lie in different pages."""
        for line in range(0, self._row, 64):
            self.f.prefetch(self.f.at(at, line))

    def _products(
        self, rows: Sequence[Value], index: Value, ahead: int, at: Value, acc: Sequence[Value]
    ) -> list[Value]:
        f, b, size = self.f, self.k.block, self.k._size
        bytes_ = b.lanes * self._acc_bytes
        w = [
            f.load(self.acc_type, f.at(at, v * bytes_), 2 if self.k.kind == "pairs" else None) for v in range(b.vectors)
        ]
        found: list[Value] = []
        offset = None if self.k.unit else index * self.x_c
        for i, row in enumerate(rows):
            place = f.at(f.at(row, index, size), ahead * size) if offset is None else f.at(row, offset)
            x = f.splat(f.load(self.scalar, place, 2 if self.k.kind == "pairs" else None), b.lanes)
            for v in range(b.vectors):
                found.append(multiply_add(f, self.isa, self.k.kind, x, w[v], acc[i * b.vectors + v]))
        return found

    def _finish(self, count: Value, masks: Sequence[Value] | None) -> None:
        """Epilogue and store of the first ``count`` pixels, whose sums are in memory."""
        f, b = self.f, self.k.block
        size = b.vectors * b.lanes * self._acc_bytes
        n = self.k.together if masks is None else 1
        for v in range(0, b.vectors, n):
            rows = self._rows(v, n, masks)
            with f.loop(0, count) as i:
                at = [f.load("ptr", f.at(place, i.index, 8), 8) for _, _, place in self.places]
                source = f.at(f.at(self.acc, i.index, size), v * b.lanes * self._acc_bytes)
                self._store(f.load(vector(self.scalar, n * b.lanes), source), v, n, rows, at, masks)

    def _rows(self, v: int, n: int, masks: Sequence[Value] | None) -> list[Value]:
        """Operands of the epilogue that are the same for all pixels, for ``n`` vectors of channels."""
        same = (e for e in self.k.extras if e.row)
        return [self._extra(e, p, v, n, masks) for e, p in zip(same, self.row_at, strict=True)]

    def _store(
        self, acc: Value, v: int, n: int, rows: Sequence[Value], at: Sequence[Value], masks: Sequence[Value] | None
    ) -> None:
        """``n`` vectors of one pixel; ``at`` are the pixel's places of other operands and of results."""
        f, k, isa = self.f, self.k, self.isa
        row, place = iter(rows), iter(at)
        values = [convert.convert(f, isa, acc, WORK[k.kind], k.dtype)]
        values += [next(row) if e.row else self._extra(e, next(place), v, n, masks) for e in k.extras]
        results = k.epilogue.emit(f, isa, values)
        for result, dtype, y in zip(results, k.epilogue.out_dtypes, place, strict=True):
            raw = convert.to_memory(f, isa, dtype, result)
            where = f.at(y, v * k.block.lanes * dtype.itemsize)
            if masks is None:
                f.store(raw, where)
            else:
                f.store_masked(raw, where, masks[v])

    def _extra(self, e: Extra, at: Value, v: int, n: int, masks: Sequence[Value] | None) -> Value:
        f, lanes = self.f, n * self.k.block.lanes
        if not e.channels:
            one = convert.from_memory(f, self.isa, e.dtype, f.load(convert.memory_type(e.dtype), at))
            return f.splat(one, lanes)
        place = f.at(at, v * self.k.block.lanes * e.dtype.itemsize)
        type = convert.memory_type(e.dtype, lanes)
        raw = f.load(type, place) if masks is None else f.load_masked(type, place, masks[v])
        return convert.from_memory(f, self.isa, e.dtype, raw)
