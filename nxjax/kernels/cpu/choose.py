"""Windows that choose one element each: what the derivatives of pools of maxima and minima are made of.

Each window chooses the first of its largest (or smallest) elements of ``x``; a NaN is never better than what follows
it. A *gathering* kernel gives the element of ``t`` at that place; a *scattering* one adds the window's element of
``ct`` to that place of a result of zeros::

    for window:
        for tap, in order:   if inside and not (chosen and best >= x[tap]):   best, chosen = x[tap], tap
        gather:    y[window] = t[chosen]
        scatter:   y[tap] += ct[window] if chosen == tap else 0,   for all taps inside

Vectors run along a dimension without windows, whose elements are neighbours in memory, so that lanes choose for
themselves and no address depends on data. An item is some vectors of it of one element of the batch, and writes
nothing that another item does. Windows are taken from the last to the first: an element of several of them gets its
terms in the order of their taps, which is the order of the op. Narrow floats are summed in float32. Sizes are integers
among the words; any number of dimensions may have windows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, Final, Literal, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert, ops
from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, NDArray, Touches, integer, plain, pointer
from nxjax.kernels.cpu.ir import LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.pool import accumulator
from nxjax.trace import dtypes

DType = np.dtype[Any]
Direction = Literal["ge", "le"]
_ITEMS: Final = 16  # that are wanted


@final
@dataclass(frozen=True, slots=True)
class Slide:
    """A dimension with windows.

    Window ``o`` sees, by tap ``k``, place ``o * step + k * dilation - low``, which is element ``place / holes`` of
    ``size`` if ``holes`` divides it. Bytes from one element to the next: ``x``; ``other``, which is of the shape of x
    (t, or the scattered result); ``window``, of what has an element per window.
    """

    size: int
    windows: int
    taps: int
    step: int
    dilation: int
    low: int
    holes: int
    x: int
    other: int
    window: int


@final
class WindowSelection(Kernel):
    """Operands: t, x and the result where ``scatter`` is false; ct, x and the result where it is true.

    Args:
        scatter: see above; the result is of `accumulator(dtype, dtype)` then, otherwise of ``dtype``.
        direction: "ge" chooses the largest, "le" the smallest.
        dtype: of x, and of t or ct.
        batch, channels: of the dimensions without windows.
        slides: the dimensions with windows.
        steps: bytes to the next element of the batch of x, of what has its shape, and of what has one per window.
        lanes: channels in a vector.
    """

    def __init__(
        self,
        scatter: bool,
        direction: Direction,
        dtype: DType,
        batch: int,
        channels: int,
        slides: Sequence[Slide],
        steps: tuple[int, int, int],
        lanes: int,
    ) -> None:
        self.scatter = scatter
        self.direction: Direction = direction
        self.dtype = dtype
        self.batch = batch
        self.channels = channels
        self.slides = tuple(slides)
        self.steps = steps
        self.lanes = lanes
        self.acc = accumulator(dtype, dtype)
        self.out = self.acc if scatter else dtype
        self.masked = channels % lanes != 0
        # Neighbouring vectors are done together, as long as there are items for several threads.
        blocks = -(-channels // lanes)
        self.share = max(1, min(blocks, batch * blocks // _ITEMS))
        self.items = batch * -(-blocks // self.share)
        self.windows = math.prod(s.windows for s in slides)
        self.taps = math.prod(s.taps for s in slides)
        self.grain = max(1, (1 << 13) // max(self.windows * self.taps * self.share, 1))

    @property
    def key(self) -> str:
        holes = "".join("h" if s.holes > 1 else "." for s in self.slides)
        name = "scatter" if self.scatter else "gather"
        masked = " masked" if self.masked else ""
        return f"choose_{name}({self.direction} {self.dtype.name} {self.lanes}{masked} {holes})"

    @property
    def integers(self) -> tuple[int, ...]:
        """The words after the operands' places."""
        return (self.channels, self.share, *self.steps, *(n for s in self.slides for n in astuple(s)))

    def touches(self) -> Touches:
        def box(step: int, dtype: DType, dims: Sequence[tuple[int, int]]) -> Box:
            dims = [(self.batch, step), (self.channels, dtype.itemsize), *dims]
            return Box(dtype.itemsize, tuple(n for n, _ in dims), tuple(s for _, s in dims))

        x = box(self.steps[0], self.dtype, [(s.size, s.x) for s in self.slides])
        like = box(self.steps[1], self.out if self.scatter else self.dtype, [(s.size, s.other) for s in self.slides])
        window = box(self.steps[2], self.dtype, [(s.windows, s.window) for s in self.slides])
        return plain([window, x], [like]) if self.scatter else plain([like, x], [window])

    def cost(self) -> KernelCost:
        n, size = self.batch * self.channels, self.dtype.itemsize
        x, y = n * math.prod(s.size for s in self.slides), n * self.windows
        operations = float(y * self.taps * (2 if self.scatter else 1))
        if self.scatter:
            return KernelCost(operations, (x + y) * size, x * self.acc.itemsize)
        return KernelCost(operations, 2 * x * size, y * size)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        """The result [batch, places or windows..., channels], if that is how it lies in memory."""
        first, x = xs
        sizes = [s.size if self.scatter else s.windows for s in self.slides]
        y = np.zeros((self.batch, *sizes, self.channels), self.out)

        def at(v: NDArray, step: int, places: Sequence[int]) -> NDArray:
            start = np.arange(self.batch)[:, None] * step + sum(places)
            offset = (start + np.arange(self.channels) * self.dtype.itemsize)[..., None] + np.arange(
                self.dtype.itemsize
            )
            return np.asarray(v).reshape(-1).view(np.uint8)[offset].copy().view(self.dtype)[..., 0]

        better = np.greater_equal if self.direction == "ge" else np.less_equal
        for window in reversed(list(np.ndindex(*(s.windows for s in self.slides)))):
            best = np.zeros((self.batch, self.channels), self.dtype)
            chosen = np.full(best.shape, -1)
            seen: list[tuple[int, tuple[int, ...]]] = []
            for k, tap in enumerate(np.ndindex(*(s.taps for s in self.slides))):
                places = [o * s.step + j * s.dilation - s.low for o, j, s in zip(window, tap, self.slides, strict=True)]
                element = tuple(p // s.holes for p, s in zip(places, self.slides, strict=True))
                if any(
                    p % s.holes or not 0 <= e < s.size for p, e, s in zip(places, element, self.slides, strict=True)
                ):
                    continue
                value = at(x, self.steps[0], [e * s.x for e, s in zip(element, self.slides, strict=True)])
                taken = ~((chosen >= 0) & better(best, value))
                best, chosen = np.where(taken, value, best), np.where(taken, k, chosen)
                seen.append((k, element))
            for k, element in seen:
                if self.scatter:
                    ct = at(first, self.steps[2], [o * s.window for o, s in zip(window, self.slides, strict=True)])
                    y[:, *element] += np.where(chosen == k, ct, 0).astype(self.acc)
                else:
                    t = at(first, self.steps[1], [e * s.other for e, s in zip(element, self.slides, strict=True)])
                    y[:, *window] = np.where(chosen == k, t, y[:, *window])
        return [y]

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        _Writer(self, module, isa).write()


@dataclass(frozen=True, slots=True)
class _Words:
    """A `Slide` as machine code reads it."""

    size: Value
    windows: Value
    taps: Value
    step: Value
    dilation: Value
    low: Value
    holes: Value
    x: Value
    other: Value
    window: Value


# What is done for a tap: its number, whether it is inside, and the places of its element in x and in what is like x.
_Tap = Callable[[Value, Value, Value, Value, Sequence[Value]], Sequence[Value]]


class _Writer:
    """Writes one function."""

    def __init__(self, kernel: WindowSelection, module: LlvmModule, isa: Isa) -> None:
        self.k = kernel
        self.isa = isa
        self.f, self.words, self.lo, self.hi, _ = kernel.function(module)
        self.mask: Value | None = None

    def write(self) -> None:
        f, k, words = self.f, self.k, self.words
        first, x, last = (pointer(f, words, i) for i in range(3))
        numbers = iter(integer(f, words, 3 + i) for i in range(len(k.integers)))
        take = lambda n: [next(numbers) for _ in range(n)]
        self.channels, share, *steps = take(5)
        self.slides = [_Words(*take(10)) for _ in k.slides]
        other, window = (last, first) if k.scatter else (first, last)
        blocks = (self.channels + (k.lanes - 1)).udiv(k.lanes)
        parts = (blocks + share - 1).udiv(share)
        with f.loop(self.lo, self.hi) as item:
            n, self.begin = item.index.udiv(parts), item.index.urem(parts) * share
            self.end = f.intrinsic("smin", "i64", self.begin + share, blocks)
            x_, other_, window_ = (f.at(v, n * step) for v, step in zip((x, other, window), steps, strict=True))
            if k.scatter:
                self._clear(0, other_)
            self._windows(0, [x_, other_, window_], [])
        f.ret()

    def _vectors(self, body: Callable[[Value], None]) -> None:
        """``body`` with the number of the first channel of each of the item's vectors."""
        with self.f.loop(self.begin, self.end) as v:
            channel = v.index * self.k.lanes
            if self.k.masked:
                self.mask = self.f.lanes_below(self.channels - channel, self.k.lanes)
            body(channel)

    def _clear(self, i: int, place: Value) -> None:
        """Zeros where the item scatters."""
        f, k = self.f, self.k
        if i == len(self.slides):
            zero = convert.constant(f, k.out, 0, k.lanes)
            self._vectors(lambda c: self._store(zero, k.out, f.at(place, c, k.out.itemsize)))
            return
        with f.loop(0, self.slides[i].size) as loop:
            self._clear(i + 1, f.at(place, loop.index * self.slides[i].other))

    def _windows(self, i: int, places: list[Value], starts: list[Value]) -> None:
        """All windows, from the last to the first; ``starts``: their first places along the dimensions before.

        ``places`` are those of x, of what has its shape, and of the window.
        """
        f, k = self.f, self.k
        if i == len(self.slides):
            x, other, window = places
            size, like = k.dtype.itemsize, (k.out if k.scatter else k.dtype).itemsize
            self._vectors(lambda c: self._window(f.at(x, c, size), f.at(other, c, like), f.at(window, c, size), starts))
            return
        s = self.slides[i]
        with f.loop(0, s.windows) as loop:
            index = s.windows - 1 - loop.index
            here = [*places[:2], f.at(places[2], index * s.window)]
            self._windows(i + 1, here, [*starts, index * s.step - s.low])

    def _window(self, x: Value, other: Value, place: Value, starts: Sequence[Value]) -> None:
        """One window of one vector of channels."""
        f, k = self.f, self.k
        zero = convert.constant(f, k.dtype, 0, k.lanes)
        chosen = f.constant(vector("i32", k.lanes), -1)

        def choose(number: Value, inside: Value, at: Value, like: Value, now: Sequence[Value]) -> Sequence[Value]:
            best, chosen, *rest = now
            value = self._load(k.dtype, f.select(inside, at, x))
            kept = ops.emit(f, self.isa, k.direction, {}, [k.dtype] * 2, dtypes.bool_, [best, value])
            taken = f.splat(inside, k.lanes) & ~(chosen.ge(0) & kept)
            number = f.splat(number.convert("i32"), k.lanes)
            found = [f.select(taken, value, best), f.select(taken, number, chosen)]
            if not k.scatter:
                t = self._load(k.dtype, f.select(inside, like, other))
                found.append(f.select(taken, t, rest[0]))
            return found

        _, chosen, *rest = self._taps(x, other, starts, [zero, chosen, *([] if k.scatter else [zero])], choose)
        if not k.scatter:
            self._store(rest[0], k.dtype, place)
            return
        ct = convert.convert(f, self.isa, self._load(k.dtype, place), k.dtype, k.acc)
        nothing = convert.constant(f, k.acc, 0, k.lanes)

        def put(number: Value, inside: Value, at: Value, like: Value, now: Sequence[Value]) -> Sequence[Value]:
            with f.if_(inside):
                mine = f.select(chosen.eq(f.splat(number.convert("i32"), k.lanes)), ct, nothing)
                old = self._load(k.acc, like)
                new = ops.emit(f, self.isa, "add", {}, [k.acc] * 2, k.acc, [old, mine])
                self._store(new, k.acc, like)
            return now

        self._taps(x, other, starts, [], put)

    def _taps(
        self, first: Value, like: Value, starts: Sequence[Value], carry: Sequence[Value], body: _Tap
    ) -> Sequence[Value]:
        """``body`` for all taps of a window in order, with values from one to the next."""
        f = self.f

        def along(
            i: int, number: Value, inside: Value, x: Value, other: Value, now: Sequence[Value]
        ) -> Sequence[Value]:
            if i == len(self.slides):
                return body(number, inside, x, other, now)
            s = self.slides[i]
            with f.loop(0, s.taps, carry=now) as tap:
                place = starts[i] + tap.index * s.dilation
                if self.k.slides[i].holes > 1:
                    there = inside & place.ge(0) & place.srem(s.holes).eq(0)
                    place = place.sdiv(s.holes)
                    there = there & place.lt(s.size)
                else:
                    there = inside & place.ult(s.size)
                ahead = f.at(x, place * s.x), f.at(other, place * s.other)
                tap.next(*along(i + 1, number * s.taps + tap.index, there, *ahead, tap.carried))
            return tap.results

        return along(0, f.constant("i64", 0), f.constant("i1", True), first, like, carry)

    def _load(self, dtype: DType, place: Value) -> Value:
        f = self.f
        type = convert.memory_type(dtype, self.k.lanes)
        raw = f.load(type, place) if self.mask is None else f.load_masked(type, place, self.mask)
        return convert.from_memory(f, self.isa, dtype, raw)

    def _store(self, x: Value, dtype: DType, place: Value) -> None:
        raw = convert.to_memory(self.f, self.isa, dtype, x)
        if self.mask is None:
            self.f.store(raw, place)
        else:
            self.f.store_masked(raw, place, self.mask)
