"""Inside a nest whose lanes run along the last kept dimension: elementwise loops, and reductions of columns.

A tile is as many columns as a vector has lanes; its reduced loops run inside, with vectors as accumulators. What is
left of the columns after the last whole tile is done under a mask, or column by column.

Fixed reductions have `ACCUMULATORS` rows of accumulators, which wait in memory: rows of the last reduced dimension are
combined into them in turn, as `rows` combines elements into lanes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.ir import Value
from nxjax.kernels.cpu.nest import ACCUMULATORS
from nxjax.kernels.cpu.nest_emit import Here, LoopScope, NestEmitter


def write(w: NestEmitter, scope: LoopScope, block: Value | None) -> None:
    """The tiles of the lanes' dimension, or of one block of it."""
    first, end = bounds(w, block)
    tiles(w, first, end, lambda here: tile(w, scope, here))


def bounds(w: NestEmitter, block: Value | None) -> tuple[Value | int, Value | int]:
    """The first column of a block, and the one after its last; of all columns for None."""
    nest = w.nest
    n = nest.sizes[nest.lane]
    if block is None:
        return 0, n
    first = block * nest.block
    after = first + nest.block
    return first, after if n % nest.block == 0 else w.f.select(after.lt(n), after, n)


def tiles(w: NestEmitter, first: Value | int, end: Value | int, body: Callable[[Here], None]) -> None:
    """``body`` for the columns from ``first`` to ``end``: whole tiles, then what is left of the last column's."""
    f, lanes = w.f, w.lanes
    n = w.nest.sizes[w.nest.lane]
    if lanes == 1:
        with f.loop(first, end) as loop:
            body(Here(0, loop.index))
        return
    whole: Value | int = end  # only the block with the last column has something left
    if n % lanes:
        whole = n - n % lanes
        if not isinstance(end, int):
            whole = f.select(end.lt(whole), end, whole)
    if isinstance(first, int) and isinstance(whole, int) and whole - first == lanes:
        body(Here(lanes, first))
    elif not isinstance(whole, int) or whole:
        with f.loop(first, whole, lanes) as loop:
            body(Here(lanes, loop.index))
    if n % lanes:
        start = n - n % lanes
        if not w.masks():
            with f.loop(whole, end) as loop:
                body(Here(0, loop.index))
        elif isinstance(end, int):
            body(Here(lanes, start, w.mask(n % lanes)))
        else:
            with f.if_(end.eq(n)):
                body(Here(lanes, start, w.mask(n % lanes)))


def prepared(w: NestEmitter, scope: LoopScope, here: Here) -> LoopScope:
    """The scope of some columns, with everything that needs no reduction and no row."""
    facts = w.facts
    scope = scope.copy()
    scope.index[w.nest.lane] = w.f.value(here.at, "i64")
    for i in range(len(facts.depth)):
        if i not in scope.values and not facts.full[i] and not facts.level[i]:
            w.make(scope, i, here)
    return scope


def tile(w: NestEmitter, scope: LoopScope, here: Here) -> None:
    """Everything for some columns."""
    nest, facts = w.nest, w.facts
    scope = prepared(w, scope, here)

    def run(number: int, scope: LoopScope) -> None:
        sums = w.reductions(number)
        if nest.fixed and sums:
            _Fixed(w, number, here).write(scope)
            return
        starts = [w.start(i, here.lanes if facts.wide[i] else 0) for i in sums]
        for i, total in zip(sums, _loops(w, scope, number, nest.kept, starts, here), strict=True):
            w.finished(scope, i, total)

    w.passes(scope, here, run)


def _loops(
    w: NestEmitter, scope: LoopScope, number: int, dim: int, totals: Sequence[Value], here: Here
) -> Sequence[Value]:
    """The reduced loops from ``dim`` on."""
    nest, sums = w.nest, w.reductions(number)
    if dim == len(nest.sizes):
        w.inside(scope, number, None, here)
        return [w.added(i, t, scope, None) for i, t in zip(sums, totals, strict=True)]

    def turn(index: Value, totals: Sequence[Value]) -> Sequence[Value]:
        inner = w.moved(scope, dim, index)
        if dim + 1 < len(nest.sizes):
            w.inside(inner, number, dim + 1, here)
        return _loops(w, inner, number, dim + 1, totals, here)

    size = w.limit(scope) if dim == nest.kept else nest.sizes[dim]
    return w.chained(sums, w.parts[dim - nest.kept] if sums else [], 0, size, 1, totals, turn)


@final
class _Fixed:
    """The reductions of one pass over one tile, by accumulators in memory."""

    def __init__(self, w: NestEmitter, number: int, here: Here) -> None:
        self.w, self.number, self.here = w, number, here
        self.sums = w.reductions(number)
        self.dtypes = [w.reduction(i).accumulator for i in self.sums]
        self.lanes = [here.lanes if w.facts.wide[i] else 0 for i in self.sums]

    def _started(self) -> list[Value]:
        """Fresh accumulators."""
        rooms: list[Value] = []
        for d, lanes in zip(self.dtypes, self.lanes, strict=True):
            rooms.append(self.w.f.alloca("i8", ACCUMULATORS * max(lanes, 1) * d.itemsize))
        with self.w.f.loop(0, ACCUMULATORS) as row:
            self._store(rooms, row.index, [self.w.start(i, n) for i, n in zip(self.sums, self.lanes, strict=True)])
        return rooms

    def _load(self, rooms: Sequence[Value], row: Value | int) -> list[Value]:
        f, isa = self.w.f, self.w.isa
        return [
            convert.load(f, isa, d, f.at(p, row, max(lanes, 1) * d.itemsize), lanes)
            for p, d, lanes in zip(rooms, self.dtypes, self.lanes, strict=True)
        ]

    def _store(self, rooms: Sequence[Value], row: Value | int, values: Sequence[Value]) -> None:
        f, isa = self.w.f, self.w.isa
        for p, d, lanes, v in zip(rooms, self.dtypes, self.lanes, values, strict=True):
            convert.store(f, isa, d, v, f.at(p, row, max(lanes, 1) * d.itemsize))

    def write(self, scope: LoopScope) -> None:
        w = self.w
        rooms = self._started()
        self._loops(scope, w.nest.kept, rooms)
        rows = [self._load(rooms, row) for row in range(ACCUMULATORS)]
        for k, i in enumerate(self.sums):
            w.finished(scope, i, w.gathered(i, [row[k] for row in rows]))

    def _loops(self, scope: LoopScope, dim: int, rooms: Sequence[Value]) -> None:
        """The reduced loops from ``dim`` on."""
        w = self.w
        size, parts = w.nest.sizes[dim], w.parts[dim - w.nest.kept]
        last = dim + 1 == len(w.nest.sizes)

        def turn(index: Value, rooms: Sequence[Value]) -> None:
            inner = w.moved(scope, dim, index)
            w.inside(inner, self.number, None if last else dim + 1, self.here)
            if not last:
                self._loops(inner, dim + 1, rooms)
                return
            row = index & (ACCUMULATORS - 1)
            totals = self._load(rooms, row)
            self._store(rooms, row, [w.added(i, t, inner, None) for i, t in zip(self.sums, totals, strict=True)])

        # What is left goes where a further row of every accumulator would take it.
        whole = size - size % ACCUMULATORS if last and parts else size
        self._chained(parts, 0, whole, rooms, turn)
        if whole < size:
            self._chained((), whole, size, rooms, turn)

    def _chained(
        self,
        parts: Sequence[int],
        lo: Value | int,
        hi: Value | int,
        rooms: Sequence[Value],
        turn: Callable[[Value, Sequence[Value]], None],
    ) -> None:
        """`NestEmitter.chained`, of accumulators in memory."""
        w, f = self.w, self.w.f
        if not parts:
            with f.loop(lo, hi) as loop:
                turn(loop.index, rooms)
            return
        *shorter, part = parts
        with f.loop(lo, hi, part) as loop:
            some = self._started()
            self._chained(shorter, loop.index, w.end_of(loop.index, part, hi), some, turn)
            with f.loop(0, ACCUMULATORS) as row:
                old, new = self._load(rooms, row.index), self._load(some, row.index)
                both = [w.combine(i, a, b) for i, a, b in zip(self.sums, old, new, strict=True)]
                self._store(rooms, row.index, both)
