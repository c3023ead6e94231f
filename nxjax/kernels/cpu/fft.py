"""Fourier transforms of many lines: one line per lane, passes of butterflies between two pieces of scratch memory.

A pass of radix r takes elements that stand n / r apart, transforms them in registers and turns them by roots of unity;
Stockham's order of the results makes the last pass leave all in place (C. Van Loan, "Computational Frameworks for the
Fast Fourier Transform", 1992, 1.7). A length with a large prime is a convolution of a smooth length (L. Bluestein, "A
linear filtering approach to the computation of the discrete Fourier transform", 1970).

Lines may stand in memory in two ways: side by side, element by element, which loads fill lanes with; or one after the
other, which squares of registers are transposed for. Real lines of even length are complex ones of half the length, and
a step apart from those; of odd length, complex ones with zeros.

A long line is a matrix: its columns are transformed and turned by roots of the whole length (``twist``), then its rows,
whose results go to columns.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, final

import numpy as np

from nxjax.kernels.cpu.base import Box, Kernel, KernelCost, Touches, plain, pointer
from nxjax.kernels.cpu.fft_butterfly import Pair, butterfly, factors, is_smooth, radices, roots, times
from nxjax.kernels.cpu.ir import Function, LlvmModule, Value, vector
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.move import transposed

DType = np.dtype[Any]
NDArray = np.ndarray[Any, Any]
SCALARS: Final = {np.dtype(np.float32): "float", np.dtype(np.float64): "double"}
Read = Callable[[Value], Pair]
Write = Callable[[Value, Pair], None]


class FftSteps(NamedTuple):
    """From a group of lines to the next, from a line to the next, and from an element to the next, in scalars."""

    group: int
    line: int
    element: int


@final
@dataclass(frozen=True)
class Lines:
    """Which lines are transformed, and how.

    Attributes:
        dtype: of real and imaginary parts.
        kind: "complex" to complex; "real" to the first ``length // 2 + 1`` frequencies; or "back" from those to real.
        inverse: complex, backwards; "back" always is. Divided by ``divisor``.
        length: of a line; of real ones, in real numbers.
        groups, lines: how many groups there are, and lines in each.
        source, target: where they stand.
        twist: 0, or the length of the line whose columns these are.
        lanes: of a vector.
        eights: butterflies of 8 have the registers that they need.
    """

    dtype: DType
    kind: str
    inverse: bool
    length: int
    groups: int
    lines: int
    source: FftSteps
    target: FftSteps
    lanes: int
    eights: bool
    twist: int = 0
    divisor: int = 1

    @property
    def elements(self) -> int:
        """Of the complex line that is transformed."""
        return self.length // 2 if self.halved else self.length

    @property
    def halved(self) -> bool:
        return self.kind != "complex" and self.length % 2 == 0

    @property
    def frequencies(self) -> int:
        return self.length // 2 + 1

    @property
    def padded(self) -> int:
        """The length of the convolution that a length with a large prime is; 0 where there is none."""
        n = self.elements
        if is_smooth(n):
            return 0
        return next(m for m in range(2 * n - 1, 4 * n) if max(factors(m)) <= 5)

    @property
    def blocks(self) -> int:
        return -(-self.lines // self.lanes)


@lru_cache(64)
def table(x: Lines) -> tuple[NDArray, dict[str, int]]:
    """The constants of a kernel, and where each kind of them begins."""
    parts: list[NDArray] = []
    places: dict[str, int] = {}

    def add(name: str, values: NDArray) -> None:
        places[name] = sum(p.size for p in parts)
        flat = np.ascontiguousarray(values, np.complex128).view(np.float64).ravel()
        parts.append(flat.astype(x.dtype))

    def passes(name: str, n: int) -> None:
        left = n
        for number, r in enumerate(radices(n, x.eights)):
            m = left // r
            if m > 1:
                add(f"{name}{number}", roots(left, np.outer(np.arange(m), np.arange(1, r))))
            left = m

    n = x.elements
    if m := x.padded:
        j = np.arange(n, dtype=object)
        chirp = roots(2 * n, np.array(j * j % (2 * n), np.int64))  # exp(-pi i j^2 / n)
        wrapped = np.zeros(m, np.complex128)
        wrapped[:n] = chirp.conj()
        wrapped[m - n + 1 :] = chirp[:0:-1].conj()
        add("chirp", chirp)
        add("convolved", np.fft.fft(wrapped) / m)
        passes("pass", m)
    else:
        passes("pass", n)
    if x.halved:
        # Half of i w^k, by which frequencies k and n - k are told apart.
        add("apart", 0.5j * roots(x.length, np.arange(n // 2 + 1)))
    if x.twist:
        k = np.arange(n)
        within = roots(x.twist, np.outer(k, np.arange(x.lanes)))
        places["within"] = sum(p.size for p in parts)
        parts.append(np.stack([within.real, within.imag], 1).astype(x.dtype).ravel())
        add("begin", roots(x.twist, np.outer(np.arange(x.blocks) * x.lanes, k)))
    return np.concatenate([*parts, np.zeros(1, x.dtype)]), places


@final
class FftLines(Kernel):
    """``lines`` from the first operand to the output; the second one is `table`."""

    def __init__(self, lines: Lines) -> None:
        self.of = lines
        self.items = lines.groups * lines.blocks
        self.size = lines.dtype.itemsize
        self.width = lines.lanes * self.size  # bytes of a vector
        self.room = (lines.padded or lines.elements) + 1  # elements of a piece of scratch
        self.scratch = 2 * self.room * 2 * self.width
        work = (lines.padded or lines.elements) * lines.lanes
        self.grain = max(1, 1 << 15 >> (work - 1).bit_length())
        if lines.source == lines.target and lines.kind == "complex":
            self.inplace = ((0, 0),)

    @property
    def key(self) -> str:
        x = self.of
        steps = f"{list(x.source)}{list(x.target)}".replace(" ", "")
        return (
            f"fft({x.dtype.name},{x.kind},{x.inverse:d},{x.length},{x.groups},{x.lines},{steps},{x.lanes},"
            f"{x.eights:d},{x.twist},{x.divisor})"
        )

    # --- contract ---

    def _box(self, which: str) -> Box:
        x = self.of
        steps = x.source if which == "source" else x.target
        real = (x.kind, which) in (("real", "source"), ("back", "target"))
        count = x.length if real or x.kind == "complex" else x.frequencies
        strides = (*steps[:2], 1 if real else steps.element)
        parts = 1 if real else 2
        return Box(parts * self.size, (x.groups, x.lines, count), tuple(s * self.size for s in strides))

    def _strided(self, flat: NDArray, which: str) -> NDArray:
        box = self._box(which)
        dtype = self.of.dtype if box.size == self.size else np.dtype(f"c{box.size}")
        return np.ndarray(box.shape, dtype, flat, 0, box.strides)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        x = self.of
        a = self._strided(np.ascontiguousarray(xs[0]).ravel(), "source")
        if x.kind == "real":
            y = np.fft.rfft(a)
        elif x.kind == "back":
            y = np.fft.irfft(a, x.length) * x.length
        else:
            y = np.fft.ifft(a) * x.length if x.inverse else np.fft.fft(a)
        if x.twist:
            w = roots(x.twist, np.outer(np.arange(x.lines), np.arange(x.length)))
            y = y * (w.conj() if x.inverse else w)
        out = np.zeros(self._box("target").end // self.size, x.dtype)
        self._strided(out, "target")[...] = y / x.divisor
        return [out]

    def touches(self) -> Touches:
        return plain((self._box("source"), Box(table(self.of)[0].nbytes)), (self._box("target"),))

    def cost(self) -> KernelCost:
        x = self.of
        count = x.groups * x.lines
        n = x.elements
        length = x.padded or n
        flops = 5.0 * count * length * max(1.0, math.log2(max(length, 2))) * (2 if x.padded else 1)
        nbytes = 2.0 * count * n * self.size
        return KernelCost(flops, nbytes, nbytes)

    # --- code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        x, y, constants = pointer(f, words, 0), pointer(f, words, 2), pointer(f, words, 1)
        with f.loop(lo, hi) as item:
            _Block(self, f, x, y, constants, scratch, item.index).write()
        f.ret()


def _swapped(z: Pair) -> Pair:
    """What a transform forwards of it, swapped again, is the transform backwards of."""
    return z[1], z[0]


class _Block:
    """The code for one item: as many lines as there are lanes."""

    def __init__(
        self, kernel: FftLines, f: Function, x: Value, y: Value, constants: Value, scratch: Value, item: Value
    ) -> None:
        self.k, self.of, self.f = kernel, kernel.of, f
        of = self.of
        self.size, self.width, self.lanes = kernel.size, kernel.width, of.lanes
        self.scalar = SCALARS[of.dtype]
        self.type = vector(self.scalar, of.lanes)
        self.constants, self.places = constants, table(of)[1]
        group = item.udiv(of.blocks) if of.groups > 1 else f.constant("i64", 0)
        self.block = item.urem(of.blocks) if of.groups > 1 else item
        first = self.block * of.lanes
        self.valid = f.intrinsic("smin", "i64", f.constant("i64", of.lines) - first, f.constant("i64", of.lanes))
        self.partial = of.lines % of.lanes != 0
        start = lambda p, s: f.at(f.at(p, group * s.group, self.size), first * s.line, self.size)
        self.source, self.target = start(x, of.source), start(y, of.target)
        self.rooms = (scratch, f.at(scratch, kernel.room, 2 * self.width))
        self.written = 0  # which of the two was written last

    # --- places ---

    def _at(self, room: Value, index: Value) -> tuple[Value, Value]:
        place = self.f.at(room, index, 2 * self.width)
        return place, self.f.at(place, self.width)

    def _load(self, room: Value, index: Value) -> Pair:
        a, b = self._at(room, index)
        return self.f.load(self.type, a, self.width), self.f.load(self.type, b, self.width)

    def _store(self, room: Value, index: Value, z: Pair) -> None:
        for part, place in zip(z, self._at(room, index), strict=True):
            self.f.store(part, place, self.width)

    def _mixed(self, base: Value, step: Value) -> tuple[Read, Write]:
        """Elements ``step`` bytes apart, of each the complex values of all lanes side by side."""
        f, n = self.f, self.lanes

        def read(index: Value) -> Pair:
            place = f.at(base, index * step)
            a, b = f.load(self.type, place, self.size), f.load(self.type, f.at(place, self.width), self.size)
            return f.shuffle(a, b, range(0, 2 * n, 2)), f.shuffle(a, b, range(1, 2 * n, 2))

        def write(index: Value, z: Pair) -> None:
            place = f.at(base, index * step)
            low = f.shuffle(*z, [i // 2 + i % 2 * n for i in range(n)])
            high = f.shuffle(*z, [n // 2 + i // 2 + i % 2 * n for i in range(n)])
            f.store(low, place, self.size)
            f.store(high, f.at(place, self.width), self.size)

        return read, write

    def _constant(self, name: str, index: Value, which: int = 0) -> Pair:
        """Complex constant ``index + which`` of a kind, in all lanes."""
        f = self.f
        base = f.at(self.constants, self.places[name] + 2 * which, self.size)
        place = f.at(base, index, 2 * self.size)
        parts = [f.load(self.scalar, f.at(place, i, self.size)) for i in range(2)]
        return f.splat(parts[0], self.lanes), f.splat(parts[1], self.lanes)

    # --- the whole ---

    def write(self) -> None:
        of = self.of
        swapped = of.inverse or of.kind == "back"
        turned = lambda read: (lambda i: _swapped(read(i))) if swapped else read
        read = turned(self._source())
        out = self.rooms[1 - self._last()]
        if of.target.line == 2 and of.kind == "complex":
            step = self.f.constant("i64", of.target.element * self.size)
            base = self.target
            if self.partial:
                whole = self.valid.eq(self.lanes)
                base = self.f.select(whole, base, out)
                step = self.f.select(whole, step, 2 * self.width)
            self._transformed(read, self._finished(self._mixed(base, step)[1], swapped))
            if self.partial:
                with self.f.if_(self.valid.lt(self.lanes)):
                    self._copied(out, self.target, of.target.element, False)
            return
        self._transformed(read, self._finished(lambda i, z: self._store(out, i, z), swapped))
        if of.kind == "real" and of.halved:
            self._apart(out)
        self._scattered(out)

    def _finished(self, write: Write, swapped: bool) -> Write:
        """Twisted, scaled, and with its parts in order."""
        f, of = self.f, self.of

        def finish(index: Value, z: Pair) -> None:
            if of.twist:
                base = f.at(self.constants, self.places["within"], self.size)
                within = [f.load(self.type, f.at(base, index * 2 + i, self.width), self.size) for i in range(2)]
                w = times(f, (within[0], within[1]), self._constant("begin", self.block * of.length + index))
                z = times(f, z, w)
            if of.divisor != 1:
                scale = f.constant(self.type, 1 / of.divisor)
                z = z[0] * scale, z[1] * scale
            write(index, _swapped(z) if swapped else z)

        return finish

    def _source(self) -> Read:
        """How the passes read the lines, once what has to be done before them is done."""
        f, of = self.f, self.of
        room = self.rooms[1]
        if of.source.line == 2 and of.kind == "complex":
            base, step = self.source, f.constant("i64", of.source.element * self.size)
            if self.partial:
                whole = self.valid.eq(self.lanes)
                with f.if_(~whole):
                    self._copied(room, self.source, of.source.element, True)
                base = f.select(whole, base, room)
                step = f.select(whole, step, 2 * self.width)
            return self._mixed(base, step)[0]
        self._gathered(room)
        if of.kind == "back":
            if of.halved:
                self._joined(room)
            else:
                self._mirrored(room)
        return lambda i: self._load(room, i)

    # --- between memory and scratch ---

    def _copied(self, room: Value, memory: Value, element: int, inwards: bool) -> None:
        """Few lines, side by side, element by element."""
        f = self.f
        beyond = f.intrinsic("smax", "i64", self.valid * 2 - self.lanes, f.constant("i64", 0))
        below = [f.lanes_below(count, self.lanes) for count in (self.valid * 2, beyond)]
        with f.loop(0, self.of.length) as j:
            outside = f.at(memory, j.index, element * self.size)
            inside = f.at(room, j.index, 2 * self.width)
            for i, mask in enumerate(below):
                a, b = (f.at(p, i * self.width) for p in (outside, inside))
                if inwards:
                    f.store(f.load_masked(self.type, a, mask), b, self.width)
                else:
                    f.store_masked(f.load(self.type, b, self.width), a, mask)

    def _row(self, memory: Value, step: int, lane: Value | int) -> Value:
        """Where a line begins; those that are not there are the last one."""
        f = self.f
        lane = f.value(lane, "i64")
        if self.partial:
            lane = f.intrinsic("smin", "i64", lane, self.valid - 1)
        return f.at(memory, lane * step, self.size)

    def _gathered(self, room: Value) -> None:
        """Lines that stand one after the other."""
        of = self.of
        alone = of.kind == "real" and not of.halved
        count = of.length if alone else 2 * (of.frequencies if of.kind == "back" else of.elements)
        self._squares(self.source, of.source.line, room, count, alone, inwards=True)

    def _scattered(self, room: Value) -> None:
        of = self.of
        alone = of.kind == "back" and not of.halved
        count = of.length if alone else 2 * (of.frequencies if of.kind == "real" else of.elements)
        self._squares(self.target, of.target.line, room, count, alone, inwards=False)

    def _squares(self, memory: Value, step: int, room: Value, count: int, alone: bool, *, inwards: bool) -> None:
        """``count`` scalars of each line; ``alone``: real parts, and imaginary ones that are zero or not wanted."""
        f, n = self.f, self.lanes
        zero = f.constant(self.type, 0.0)
        # Scalar s of a line is vector s of scratch, or with ``alone`` vector 2 s.
        place = lambda s: f.at(room, s, (2 if alone else 1) * self.width)
        if count < n:
            with f.loop(0, n) as lane:
                row = self._row(memory, step, lane.index)
                with f.loop(0, count) as s:
                    outside, inside = f.at(row, s.index, self.size), f.at(place(s.index), lane.index, self.size)
                    here, there = (outside, inside) if inwards else (inside, outside)
                    f.store(f.load(self.scalar, here), there)
            if alone and inwards:
                with f.loop(0, count) as s:
                    f.store(zero, f.at(place(s.index), self.width), self.width)
            return
        with f.loop(0, -(-count // n)) as chunk:
            at = chunk.index * n
            if count % n:
                at = f.intrinsic("smin", "i64", at, f.constant("i64", count - n))
            rows = [f.at(self._row(memory, step, r), at, self.size) for r in range(n)]
            if inwards:
                columns = transposed(f, [f.load(self.type, row, self.size) for row in rows])
                for s, v in enumerate(columns):
                    f.store(v, place(at + s), self.width)
                    if alone:
                        f.store(zero, f.at(place(at + s), self.width), self.width)
            else:
                columns = [f.load(self.type, place(at + s), self.width) for s in range(n)]
                for row, v in zip(rows, transposed(f, columns), strict=True):
                    f.store(v, row, self.size)

    # --- real lines ---

    def _apart(self, room: Value) -> None:
        """The frequencies of real lines from those of even elements plus i times odd ones.

        With z at k and the conjugate of that at n - k: half their sum is the even elements' frequency, half their
        difference i times the odd ones'.
        """
        f, n = self.f, self.of.elements
        zero = f.constant("i64", 0)
        re, im = self._load(room, zero)
        none = f.constant(self.type, 0.0)
        self._store(room, zero, (re + im, none))
        self._store(room, f.constant("i64", n), (re - im, none))
        half = f.constant(self.type, 0.5)
        with f.loop(1, n // 2 + 1) as loop:
            i, j = loop.index, f.constant("i64", n) - loop.index
            (a, b), (c, d) = self._load(room, i), self._load(room, j)
            even = (a + c) * half, (b - d) * half
            odd = times(f, (a - c, b + d), self._constant("apart", i))
            self._store(room, j, (even[0] + odd[0], -(even[1] + odd[1])))
            self._store(room, i, (even[0] - odd[0], even[1] - odd[1]))

    def _joined(self, room: Value) -> None:
        """The inverse of `_apart`, times two."""
        f, n = self.f, self.of.elements
        zero = f.constant("i64", 0)
        first, last = self._load(room, zero)[0], self._load(room, f.constant("i64", n))[0]
        self._store(room, zero, (first + last, first - last))
        two = f.constant(self.type, 2.0)
        with f.loop(1, n // 2 + 1) as loop:
            i, j = loop.index, f.constant("i64", n) - loop.index
            (a, b), (c, d) = self._load(room, i), self._load(room, j)
            even = a + c, b - d
            w = self._constant("apart", i)
            # i / w^k is minus the conjugate of i w^k.
            odd = times(f, (a - c, b + d), (-(w[0] * two), w[1] * two))
            self._store(room, j, (even[0] - odd[0], -(even[1] - odd[1])))
            self._store(room, i, (even[0] + odd[0], even[1] + odd[1]))

    def _mirrored(self, room: Value) -> None:
        """All frequencies of real lines of odd length from the first half."""
        f, n = self.f, self.of.length
        zero = f.constant("i64", 0)
        self._store(room, zero, (self._load(room, zero)[0], f.constant(self.type, 0.0)))
        with f.loop(1, n // 2 + 1) as loop:
            re, im = self._load(room, loop.index)
            self._store(room, f.constant("i64", n) - loop.index, (re, -im))

    # --- passes ---

    def _last(self) -> int:
        """Which piece of scratch the last pass reads."""
        passes = len(radices(self.of.padded or self.of.elements, self.of.eights))
        if self.of.padded:  # a loop after twice as many
            return 0
        return passes % 2 if passes else 1

    def _transformed(self, read: Read, write: Write) -> None:
        f, of = self.f, self.of
        n, m = of.elements, of.padded
        if not m:
            self._passes(read, write, n, 1)
            return
        a = self.rooms[0]
        with f.loop(0, n) as j:
            self._store(a, j.index, times(f, read(j.index), self._constant("chirp", j.index)))
        with f.loop(n, m) as j:
            none = f.constant(self.type, 0.0)
            self._store(a, j.index, (none, none))
        out = self.rooms[len(radices(m, of.eights)) % 2]

        def convolved(index: Value, z: Pair) -> None:
            self._store(out, index, _swapped(times(f, z, self._constant("convolved", index))))

        self._passes(lambda i: self._load(a, i), convolved, m, 0)
        self._passes(
            lambda i: self._load(out, i), lambda i, z: self._store(a, i, _swapped(z)), m, len(radices(m, of.eights)) % 2
        )
        with f.loop(0, n) as j:
            write(j.index, times(f, self._load(a, j.index), self._constant("chirp", j.index)))

    def _passes(self, read: Read, write: Write, n: int, reading: int) -> None:
        """All passes; ``reading``: which piece of scratch the first one reads, the other one is written."""
        f = self.f
        every = radices(n, self.of.eights)
        if not every:
            zero = f.constant("i64", 0)
            write(zero, read(zero))
            return
        left, done = n, 1  # elements of a transform that is left to do, and how many of them are side by side
        for number, r in enumerate(every):
            m = left // r
            last = number == len(every) - 1
            source, target = self.rooms[reading], self.rooms[1 - reading]
            get: Read = read if number == 0 else lambda i, room=source: self._load(room, i)
            put: Write = write if last else lambda i, z, room=target: self._store(room, i, z)
            self._pass(get, put, r, m, done, f"pass{number}")
            left, done, reading = m, done * r, 1 - reading

    def _pass(self, read: Read, write: Write, r: int, m: int, done: int, name: str) -> None:
        f = self.f

        def butterflies(p: Value, q: Value, turns: Sequence[Pair]) -> None:
            at = q + p * done
            ys = butterfly(f, [read(at + k * m * done) for k in range(r)])
            to = q + p * (done * r)
            for k, y in enumerate(ys):
                write(to + k * done, times(f, y, turns[k - 1]) if k and turns else y)

        if m == 1:
            with f.loop(0, done) as q:
                butterflies(f.constant("i64", 0), q.index, ())
            return
        with f.loop(0, m) as p:
            turns = [self._constant(name, p.index * (r - 1), k) for k in range(r - 1)]
            if done == 1:
                butterflies(p.index, f.constant("i64", 0), turns)
            else:
                with f.loop(0, done) as q:
                    butterflies(p.index, q.index, turns)


@final
class RealLines(Kernel):
    """`Lines` of one element each way, for long real ones: ``2 m`` reals as ``m`` complex numbers, transformed.

    Forwards the ``m`` frequencies of those to the ``m + 1`` of the reals; ``back`` the other way, so that a transform
    backwards follows, times two. Frequencies k and m - k are made together, as many as there are lanes.
    """

    def __init__(self, dtype: DType, back: bool, lines: int, m: int, lanes: int) -> None:
        self.dtype, self.back, self.lines, self.m, self.lanes = dtype, back, lines, m, lanes
        self.size = dtype.itemsize
        self.blocks = max(1, -(-(m // 2) // lanes))  # of k from 1 to m // 2
        self.items = lines * self.blocks
        self.grain = max(1, 2048 // lanes)

    @property
    def key(self) -> str:
        return f"fft_real({self.dtype.name},{self.back:d},{self.lines},{self.m},{self.lanes})"

    @property
    def _boxes(self) -> tuple[Box, Box]:
        short, long = (Box(2 * self.size * self.lines * n) for n in (self.m, self.m + 1))
        return (long, short) if self.back else (short, long)

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        m, kind = self.m, np.dtype(f"c{2 * self.size}")
        x = np.ascontiguousarray(xs[0]).view(kind).reshape(self.lines, -1)
        if self.back:
            y = np.fft.fft(np.fft.irfft(x, 2 * m).reshape(self.lines, m, 2) @ np.array([2, 2j]))
        else:
            z = np.fft.ifft(x)
            y = np.fft.rfft(np.stack([z.real, z.imag], -1).reshape(self.lines, 2 * m))
        return [y.astype(kind)]

    def touches(self) -> Touches:
        source, target = self._boxes
        return plain((source, Box((self.m // 2 + 1) * 2 * self.size)), (target,))

    def cost(self) -> KernelCost:
        nbytes = 2.0 * self.lines * self.m * self.size
        return KernelCost(8.0 * self.lines * self.m, nbytes, nbytes)

    def table(self) -> NDArray:
        """The second operand: half of i w^k."""
        return _apart(self.dtype, self.m)

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, _ = self.function(module)
        x, w, y = (pointer(f, words, i) for i in range(3))
        m, n = self.m, self.lanes
        counts = (m + 1, m) if self.back else (m, m + 1)
        with f.loop(lo, hi) as item:
            line, block = item.index.udiv(self.blocks), item.index.urem(self.blocks)
            source, target = (f.at(p, line * c, 2 * self.size) for p, c in zip((x, y), counts, strict=True))
            with f.if_(block.eq(0)):
                self._ends(f, source, target)
            first = block * n + 1
            count = f.intrinsic("smin", "i64", f.constant("i64", m // 2 + 1) - first, f.constant("i64", n))
            whole = count.eq(n)
            with f.if_(whole):
                self._pairs(f, source, w, target, first, n)
            with f.if_(~whole), f.loop(first, first + count) as k:
                self._pairs(f, source, w, target, k.index, 1)
        f.ret()

    def _ends(self, f: Function, source: Value, target: Value) -> None:
        scalar, m = SCALARS[self.dtype], self.m
        one = lambda p, i: f.at(p, i, self.size)
        a, b = f.load(scalar, source), f.load(scalar, one(source, 2 * m if self.back else 1))
        f.store(a + b, target)
        f.store(a - b, one(target, 1 if self.back else 2 * m))
        if not self.back:
            for i in (1, 2 * m + 1):
                f.store(f.constant(scalar, 0.0), one(target, i))

    def _pairs(self, f: Function, source: Value, w: Value, target: Value, k: Value, n: int) -> None:
        """Frequencies from ``k`` on, ``n`` of them, and those that they are told apart from."""
        scalar, half = SCALARS[self.dtype], f.constant(vector(SCALARS[self.dtype], n), 0.5)
        type, mirror = vector(scalar, 2 * n), list(range(n))[::-1]
        behind = f.constant("i64", self.m - n + 1) - k

        def read(p: Value, i: Value) -> Pair:
            z = f.load(type, f.at(p, i, 2 * self.size), self.size)
            return f.shuffle(z, None, range(0, 2 * n, 2)), f.shuffle(z, None, range(1, 2 * n, 2))

        def write(p: Value, i: Value, z: Pair) -> None:
            mixed = f.shuffle(*z, [j // 2 + j % 2 * n for j in range(2 * n)])
            f.store(mixed, f.at(p, i, 2 * self.size), self.size)

        turned = lambda z: (f.shuffle(z[0], None, mirror), f.shuffle(z[1], None, mirror))
        (a, b), (c, d) = read(source, k), turned(read(source, behind))
        turn = read(w, k)
        even = a + c, b - d
        if self.back:
            turn = -(turn[0] + turn[0]), turn[1] + turn[1]
        else:
            even = even[0] * half, even[1] * half
        odd = times(f, (a - c, b + d), turn)
        plus, minus = (even[0] + odd[0], even[1] + odd[1]), (even[0] - odd[0], even[1] - odd[1])
        here, there = (plus, minus) if self.back else (minus, plus)
        write(target, behind, turned((there[0], -there[1])))
        write(target, k, here)


@lru_cache(16)
def _apart(dtype: DType, m: int) -> NDArray:
    return (0.5j * roots(2 * m, np.arange(m // 2 + 1))).view(np.float64).astype(dtype)
