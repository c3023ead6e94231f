"""Rows sorted together: the first operands are keys, the others follow; or the first few of the sorted row (top_k).

    network   rows are short: as many at once as a vector has lanes (`sort_network`)
    select    few of a long row are wanted (`sort_top`)
    radix     rows are long: by the digits of the keys, last key first (`sort_radix`)

Either way the indices are sorted with the keys, and every operand is read in their order; but one operand alone is
restored from its keys, where no two words have one key.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.base import Kernel, KernelCost, NDArray, OutputEffect, Touches, dense, plain, pointer
from nxjax.kernels.cpu.ir import Function, LlvmModule, Loop, Value
from nxjax.kernels.cpu.isa import Isa
from nxjax.kernels.cpu.move import transposed
from nxjax.kernels.cpu.sort_keys import REAL, SortKey, is_ambiguous, keys_of, ordered, restored
from nxjax.kernels.cpu.sort_network import WORD, network
from nxjax.kernels.cpu.sort_radix import COUNTS, radix
from nxjax.kernels.cpu.sort_top import AT_ONCE, room, select
from nxjax.ops.sort import largest_first
from nxjax.ops.sort import sort as sort_op
from nxjax.trace import dtypes
from nxjax.trace.dtypes import bit_width

DType = np.dtype[Any]
SHORT: Final = 64  # rows up to this long go through the network whatever their number
MEDIUM: Final = 256  # and up to this long if there are enough to fill its lanes
LONG: Final = 2048  # or even this long if they are restored from their keys
LANES: Final = 8
FEW: Final = 256  # up to so many are kept in a list
EXACT: Final = REAL - dtypes.FLOAT  # whose elements all have keys of their own


@final
class Sort(Kernel):
    """Operands: dense arrays ``[rows, size]``, results ``[rows, kept]``, with ``indexed`` the sorted indices (int32),
    and work memory of ``work`` bytes, where that is not 0.

    Args:
        dtypes: of the operands.
        keys: how many of them decide, the first before the second.
        descending: the largest of one key first, in the total order; equal ones in order of index all the same.
    """

    def __init__(
        self,
        dtypes: Sequence[DType],
        keys: int,
        rows: int,
        size: int,
        kept: int | None = None,
        *,
        descending: bool = False,
        indexed: bool = False,
    ) -> None:
        self.dtypes = tuple(dtypes)
        self.keys = keys
        self.rows = rows
        self.size = size
        self.kept = size if kept is None else kept
        self.descending = descending
        self.indexed = indexed
        self._keys = tuple(k for i, d in enumerate(dtypes[:keys]) for k in keys_of(i, d))
        self._index_bits = max(size - 1, 1).bit_length()
        first = self.dtypes[0]
        # One operand may be restored from its keys. Four bits lie in a byte of which the rest may be anything.
        self._alone = len(self.dtypes) == 1 and not indexed and first in REAL and bit_width(first) != 4
        # Whole squares of words are transposed into lanes.
        self._squares = self._alone and first.itemsize in (4, 8) and size >= 64 // first.itemsize
        few = rows < LANES // 2
        self._network = size <= SHORT or (size <= (LONG if self._squares else MEDIUM) and not few)
        self.work = 0
        self._selects = (
            self._network is False
            and len(self._keys) == len(self.dtypes) == 1
            and self._keys[0].bits <= 32
            and 0 < 4 * self.kept <= size
            and self.kept <= FEW
        )
        if self._selects:
            self.items = rows
            self.scratch = room(self.kept)
        elif self._network:
            self._words = self._layout()
            self._lanes = 64 // first.itemsize if self._squares else LANES
            self.items = -(-rows // self._lanes)
            self.scratch = size * len(self._words) * LANES * WORD
        else:
            self.items = rows
            self._element = "i64" if all(k.bits <= 32 for k in self._keys) else "<2 x i64>"
            width = 8 if self._element == "i64" else 16
            need = 2 * size * width + size * 4 + 64
            if self._alone and first in EXACT:
                need = self._spare * size * first.itemsize + 64
            if need <= 1 << 20:
                self.scratch = need
            else:
                self.work = need
                self.items = 1
        if not rows * self.kept:
            self.items = 0
        self.grain = max(1, 2000 * self.items // max(rows * size, 1))

    @property
    def _spare(self) -> int:
        """Rows of work memory for one operand that is restored from its keys: the result is the other of two."""
        return 1 if self.kept == self.size else 2

    @property
    def key(self) -> str:
        names = " ".join(d.name for d in self.dtypes)
        way = f"{' descending' if self.descending else ''}{' indexed' if self.indexed else ''}"
        return f"sort({names} by {self.keys} {self.rows}x{self.size} keep {self.kept}{way})"

    def meaning(self, *xs: NDArray) -> Sequence[NDArray]:
        shaped = [x.reshape(self.rows, self.size) for x in xs]
        if self.descending:
            order = largest_first(shaped[0], 1)
        else:
            order = sort_op.order(shaped[: self.keys], 1)
        order = order[:, : self.kept]
        more = [order.astype(np.int32)] if self.indexed else []
        return [*(np.take_along_axis(x, order, 1) for x in shaped), *more]

    def touches(self) -> Touches:
        kept = self.rows * self.kept
        sizes = [kept * d.itemsize for d in self.dtypes] + [kept * 4] * self.indexed
        found = plain(dense(*(self.rows * self.size * d.itemsize if kept else 0 for d in self.dtypes)), dense(*sizes))
        return Touches(found.ins, (*found.outs, OutputEffect(dense(self.work), "own"))) if self.work else found

    def cost(self) -> KernelCost:
        count = self.rows * self.size
        read = count * sum(d.itemsize for d in self.dtypes)
        return KernelCost(count * max(self.size, 2).bit_length(), read, read * self.kept // max(self.size, 1))

    # --- code ---

    def emit(self, module: LlvmModule, isa: Isa) -> None:
        f, words, lo, hi, scratch = self.function(module)
        if self.items:
            n = len(self.dtypes)
            ins = [pointer(f, words, i) for i in range(n)]
            outs = [pointer(f, words, n + i) for i in range(n + self.indexed)]
            if self._selects:
                with f.loop(lo, hi) as row:
                    self._by_selection(f, isa, *self._row(f, row.index, ins, outs), scratch)
            elif self._network:
                with f.loop(lo, hi) as item:
                    if self._squares:
                        self._values_by_network(f, isa, item.index, ins, outs, scratch)
                    else:
                        self._by_network(f, isa, item.index, ins, outs, scratch)
            else:
                room = pointer(f, words, n + len(outs)) if self.work else scratch
                rows = (f.constant("i64", 0), f.constant("i64", self.rows)) if self.work else (lo, hi)
                with f.loop(*rows) as row:
                    self._by_radix(f, isa, *self._row(f, row.index, ins, outs), room)
        f.ret()

    def _row(self, f: Function, row: Value, ins: list[Value], outs: list[Value]) -> tuple[list[Value], list[Value]]:
        sizes = [d.itemsize for d in self.dtypes]
        return (
            [f.at(p, row * self.size, s) for p, s in zip(ins, sizes, strict=True)],
            [f.at(p, row * self.kept, s) for p, s in zip(outs, [*sizes, 4][: len(outs)], strict=True)],
        )

    def _write(self, f: Function, ins: list[Value], outs: list[Value], to: Value, index: Value) -> None:
        """The element at ``index`` of every operand as result ``to``."""
        for d, x, y in zip(self.dtypes, ins, outs, strict=False):
            size = d.itemsize
            type = f"i{8 * size}" if size <= 8 else "<2 x i64>"
            f.store(f.load(type, f.at(x, index, size), 1), f.at(y, to, size), 1)
        if self.indexed:
            f.store(index.convert("i32"), f.at(outs[-1], to, 4))

    # --- short rows ---

    def _layout(self) -> list[list[tuple[SortKey | None, int]]]:
        """Which keys lie in which word, and how far up; None is the index, in the last word. Most significant first."""
        parts: list[SortKey | None] = [*self._keys, None]
        words: list[list[tuple[SortKey | None, int]]] = []
        word: list[tuple[SortKey | None, int]] = []
        used = 0
        for part in reversed(parts):
            bits = self._index_bits if part is None else part.bits
            if used + bits > 64:
                words.append(word)
                word, used = [], 0
            word.append((part, used))
            used += bits
        words.append(word)
        return words[::-1]

    def _by_network(
        self, f: Function, isa: Isa, item: Value, ins: list[Value], outs: list[Value], scratch: Value
    ) -> None:
        """As many rows as there are lanes; lanes without a row repeat the last one."""
        count = len(self._words)
        step = count * LANES * WORD
        with f.loop(0, LANES) as lanes:
            lane = lanes.index
            row = f.intrinsic("smin", "i64", item * LANES + lane, f.constant("i64", self.rows - 1))
            mine, _ = self._row(f, row, ins, outs)
            with f.loop(0, self.size) as loop:
                for w, word in enumerate(self._words):
                    x = f.constant("i64", 0)
                    for key, up in word:
                        part = loop.index
                        if key is not None:
                            part = key.read(f, isa, mine[key.operand], loop.index, self.descending)
                        x = x | (part << up if up else part)
                    f.store(x, f.at(f.at(f.at(scratch, loop.index, step), lane, WORD), w * LANES * WORD))
        network(f, isa, scratch, self.size, count, LANES)
        with f.loop(0, f.intrinsic("smin", "i64", self.rows - item * LANES, f.constant("i64", LANES))) as lanes:
            mine, theirs = self._row(f, item * LANES + lanes.index, ins, outs)
            last = f.at(f.at(scratch, lanes.index, WORD), (count - 1) * LANES * WORD)
            with f.loop(0, self.kept) as loop:
                x = f.load("i64", f.at(last, loop.index, step))
                self._write(f, mine, theirs, loop.index, x & ((1 << self._index_bits) - 1))

    def _values_by_network(
        self, f: Function, isa: Isa, item: Value, ins: list[Value], outs: list[Value], scratch: Value
    ) -> None:
        """One operand's rows, by keys alone where these tell all; squares are transposed into lanes and back."""
        d, lanes = self.dtypes[0], self._lanes
        size = d.itemsize
        side = isa.lanes(size)  # of a square; there may be several side by side in the lanes
        memory, word = f"<{side} x {convert.memory_type(d)}>", f"<{side} x i{8 * size}>"
        last = f.constant("i64", self.rows - 1)

        def rows(base: list[Value], group: Value, at: Value) -> list[Value]:
            """Where the squares of some rows begin at element ``at``; rows that are not there are the last one."""
            first = item * lanes + group
            found = [f.intrinsic("smin", "i64", first + i, last) for i in range(side)]
            return [f.at(base[0], row * self.size + at, size) for row in found]

        def squares(loop: Loop, group: Value) -> tuple[Value, list[Value]]:
            """Where a square begins, and the places of its columns in scratch."""
            at = f.intrinsic("smin", "i64", loop.index * side, f.constant("i64", self.size - side))
            base = f.at(f.at(scratch, at, lanes * size), group, size)
            return at, [f.at(base, k * lanes * size) for k in range(side)]

        count = -(-self.size // side)
        with f.loop(0, lanes, side, [f.constant(f"<{side} x i1>", 0)]) as groups:
            with f.loop(0, count, 1, groups.carried) as loop:
                at, places = squares(loop, groups.index)
                raws = [f.load(memory, place, 1) for place in rows(ins, groups.index, at)]
                (odd,) = loop.carried
                if d in dtypes.FLOAT:
                    for raw in raws:
                        odd = odd | is_ambiguous(f, isa, d, raw)
                loop.next(odd)
                keys = [ordered(f, isa, d, raw) for raw in raws]
                for place, column in zip(places, transposed(f, keys), strict=True):
                    f.store(column, place)
            groups.next(*loop.results)
        pairs = f.intrinsic("vector.reduce.or", "i1", groups.results[0])
        with f.if_(pairs):
            for half in range(lanes // LANES):
                self._by_network(f, isa, item * (lanes // LANES) + half, ins, outs, scratch)
        with f.if_(~pairs):
            network(f, isa, scratch, self.size, 1, lanes, size)
            with f.loop(0, lanes, side) as groups, f.loop(0, count) as loop:
                at, places = squares(loop, groups.index)
                columns = [f.load(word, place) for place in places]
                # A row that is not there writes what the last one writes, in its place.
                for place, row in zip(rows(outs, groups.index, at), transposed(f, columns), strict=True):
                    f.store(restored(f, d, row), place, 1)

    # --- long rows ---

    def _by_selection(self, f: Function, isa: Isa, ins: list[Value], outs: list[Value], scratch: Value) -> None:
        """The first few alone."""
        key, d = self._keys[0], self.dtypes[0]

        def keys(i: Value) -> Value:
            raw = f.load(f"<{AT_ONCE} x {convert.memory_type(d)}>", f.at(ins[0], i, d.itemsize), 1)
            found = ordered(f, isa, d, raw, self.descending)
            return (~found if self.descending else found).convert(f"<{AT_ONCE} x i32>", signed=False)

        one = lambda i: key.read(f, isa, ins[0], i, self.descending)
        best = select(f, self.size, self.kept, one, keys, scratch)
        with f.loop(0, self.kept) as loop:
            word = f.load("i64", f.at(best, loop.index, WORD))
            self._write(f, ins, outs, loop.index, word & 0xFFFFFFFF)

    def _by_radix(self, f: Function, isa: Isa, ins: list[Value], outs: list[Value], room: Value) -> None:
        d = self.dtypes[0]
        counts = f.alloca("i8", COUNTS)
        if not self._alone:
            self._by_pairs(f, isa, ins, outs, room, counts)
            return
        if d in EXACT:
            self._by_values(f, isa, ins[0], outs[0], room, counts)
            return
        memory, size = convert.memory_type(d), d.itemsize
        lanes = 64 // size
        found = f.constant(f"<{lanes} x i1>", 0)
        whole = self.size // lanes * lanes
        with f.loop(0, whole, lanes, [found]) as loop:
            raw = f.load(f"<{lanes} x {memory}>", f.at(ins[0], loop.index, size), 1)
            loop.next(loop.carried[0] | is_ambiguous(f, isa, d, raw))
        any_ = f.intrinsic("vector.reduce.or", "i1", loop.results[0])
        with f.loop(whole, self.size, 1, [any_]) as loop:
            raw = f.load(memory, f.at(ins[0], loop.index, size), 1)
            loop.next(loop.carried[0] | is_ambiguous(f, isa, d, raw))
        (pairs,) = loop.results
        with f.if_(pairs):
            self._by_pairs(f, isa, ins, outs, room, counts)
        with f.if_(~pairs):
            self._by_values(f, isa, ins[0], outs[0], room, counts)

    def _by_values(self, f: Function, isa: Isa, x: Value, y: Value, room: Value, counts: Value) -> None:
        """One operand, restored from its sorted keys."""
        d = self.dtypes[0]
        size, bits = d.itemsize, 8 * d.itemsize
        type = f"i{bits}"

        def first(i: Value) -> Value:
            key = ordered(f, isa, d, f.load(convert.memory_type(d), f.at(x, i, size), 1), self.descending)
            return ~key if self.descending else key

        other = y if self._spare == 1 else f.at(room, self.size * size)
        here = radix(f, self.size, first, type, 0, bits, (other, room), counts)
        with f.loop(0, self.kept) as loop:
            key = f.load(type, f.at(here, loop.index, size), 1)
            f.store(restored(f, d, ~key if self.descending else key), f.at(y, loop.index, size), 1)

    def _by_pairs(self, f: Function, isa: Isa, ins: list[Value], outs: list[Value], room: Value, counts: Value) -> None:
        """Keys with their indices, the last key first."""
        wide = self._element != "i64"
        width = 16 if wide else 8
        both = (room, f.at(room, self.size * width))
        order = f.at(room, 2 * self.size * width)
        index = lambda e: f.extract(e, 1) if wide else e & 0xFFFFFFFF
        for n, key in enumerate(reversed(self._keys)):

            def first(i: Value, key: SortKey = key, n: int = n) -> Value:
                at = f.load("i32", f.at(order, i, 4)).convert("i64", signed=False) if n else i
                k = key.read(f, isa, ins[key.operand], at, self.descending)
                if not wide:
                    return (k << 32) | at
                return f.insert(f.insert(f.poison("<2 x i64>"), k, 0), at, 1)

            here = radix(f, self.size, first, self._element, 0 if wide else 32, key.bits, both, counts)
            last = n == len(self._keys) - 1
            with f.loop(0, self.kept if last else self.size) as loop:
                at = index(f.load(self._element, f.at(here, loop.index, width), 1))
                if last:
                    self._write(f, ins, outs, loop.index, at)
                else:
                    f.store(at.convert("i32"), f.at(order, loop.index, 4))
