"""The code of one block of lines, one line per lane: passes between two pieces of scratch memory, and what is before
and after them. Lines are loaded and stored side by side, or one after the other; real ones are put together and apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from nxjax.kernels.cpu.fft_butterfly import Pair, butterfly, radices, times
from nxjax.kernels.cpu.fft_lines import SCALARS, Lines, table
from nxjax.kernels.cpu.ir import Function, Value, vector
from nxjax.kernels.cpu.move import transposed

Read = Callable[[Value], Pair]
Write = Callable[[Value, Pair], None]


def _swapped(z: Pair) -> Pair:
    """What a transform forwards of it, swapped again, is the transform backwards of."""
    return z[1], z[0]


@final
class FftBlock:
    """The code for one item: as many lines as there are lanes."""

    def __init__(
        self, of: Lines, f: Function, x: Value, y: Value, constants: Value, scratch: Value, item: Value
    ) -> None:
        self.of, self.f = of, f
        self.size, self.width, self.lanes = of.size, of.width, of.lanes
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
        self.rooms = (scratch, f.at(scratch, of.room, 2 * self.width))

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
        passes = len(radices(self.of.worked, self.of.eights))
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
