"""Reductions of wide columns in one pass: every row is read from beginning to end.

A tile of columns reads a little of each row, which memory is slow at where rows are long. Here rows are read whole,
one after the other, while the accumulators of all columns wait in scratch memory (which stays in the first cache):

    accumulators = start
    for each row:  for each tile of columns:  accumulator = combine(accumulator, row)
    for each tile: finish, and store the outputs

An element's association is that of its column in tiles: many rows go by parts, which have accumulators of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import final

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.columns import bounds, prepared
from nxjax.kernels.cpu.columns import tiles as tiles_of
from nxjax.kernels.cpu.ir import Value
from nxjax.kernels.cpu.nest_emit import Here, LoopScope, NestEmitter


def write(w: NestEmitter, scope: LoopScope, block: Value | None, scratch: Sequence[Value]) -> None:
    """All columns, or one block of them; ``scratch``: where accumulators lie, of each reduction, then of its parts."""
    _Whole(w, block, scratch).write(scope)


@final
class _Whole:
    """All columns, or one block of them; ``level`` 0 has the accumulators of everything, the next one of its parts."""

    def __init__(self, w: NestEmitter, block: Value | None, scratch: Sequence[Value]) -> None:
        self.w, self.block = w, block
        self.first, self.end = bounds(w, block)
        self.sums = w.reductions(0)
        self.dtypes = [w.reduction(i).accumulator for i in self.sums]
        count = len(self.sums)
        self.levels = [scratch[k : k + count] for k in range(0, len(scratch), count)]

    def write(self, scope: LoopScope) -> None:
        w = self.w

        def finish(here: Here) -> None:
            inner = prepared(w, scope, here)
            for i, total in zip(self.sums, self._load(0, here), strict=True):
                w.finished(inner, i, total)
            for level in range(1, w.facts.passes + 1):
                w.after(inner, here, level)
            w.stored(inner, here)

        self._start(0)
        self._rows(scope, w.nest.kept, 0)
        self._tiles(finish)

    # --- accumulators ---

    def _tiles(self, body: Callable[[Here], None]) -> None:
        tiles_of(self.w, self.first, self.end, body)

    def _place(self, p: Value, here: Here, size: int) -> Value:
        f = self.w.f
        return f.at(p, here.at if self.block is None else f.value(here.at, "i64") - self.first, size)

    def _load(self, level: int, here: Here) -> list[Value]:
        # Accumulators have room for whole tiles: no mask.
        f, isa = self.w.f, self.w.isa
        return [
            convert.load(f, isa, d, self._place(p, here, d.itemsize), here.lanes)
            for d, p in zip(self.dtypes, self.levels[level], strict=True)
        ]

    def _store(self, level: int, here: Here, values: Sequence[Value]) -> None:
        for d, p, v in zip(self.dtypes, self.levels[level], values, strict=True):
            convert.store(self.w.f, self.w.isa, d, v, self._place(p, here, d.itemsize))

    def _start(self, level: int) -> None:
        self._tiles(lambda here: self._store(level, here, [self.w.start(i, here.lanes) for i in self.sums]))

    def _join(self, level: int) -> None:
        """Combine the accumulators of a part into those that it belongs to; the next part begins anew."""

        def tile(here: Here) -> None:
            pairs = zip(self.sums, self._load(level - 1, here), self._load(level, here), strict=True)
            self._store(level - 1, here, [self.w.combine(i, a, b) for i, a, b in pairs])
            self._store(level, here, [self.w.start(i, here.lanes) for i in self.sums])

        self._tiles(tile)

    # --- loops ---

    def _rows(self, scope: LoopScope, dim: int, level: int) -> None:
        """The reduced loops from ``dim`` on."""
        nest = self.w.nest
        size = self.w.limit(scope) if dim == nest.kept else nest.sizes[dim]
        self._chained(scope, dim, self.w.parts[dim - nest.kept], 0, size, level)

    def _chained(
        self, scope: LoopScope, dim: int, parts: Sequence[int], lo: Value | int, hi: Value | int, level: int
    ) -> None:
        """`NestEmitter.chained`, of accumulators in memory."""
        w, f = self.w, self.w.f
        if parts:
            *shorter, part = parts
            self._start(level + 1)
            with f.loop(lo, hi, part) as loop:
                self._chained(scope, dim, shorter, loop.index, w.end_of(loop.index, part, hi), level + 1)
                self._join(level + 1)
            return
        with f.loop(lo, hi) as loop:
            row = w.moved(scope, dim, loop.index)
            if dim + 1 < len(w.nest.sizes):
                self._rows(row, dim + 1, level)
            else:
                self._tiles(lambda here: self._row(row, dim, level, here))

    def _row(self, row: LoopScope, dim: int, level: int, here: Here) -> None:
        w = self.w
        inner = prepared(w, row, here)
        _fetch_next(w, inner, dim, here)
        w.inside(inner, 0, None, here)
        totals = self._load(level, here)
        self._store(level, here, [w.added(i, t, inner, None) for i, t in zip(self.sums, totals, strict=True)])


def _fetch_next(w: NestEmitter, scope: LoopScope, dim: int, here: Here) -> None:
    """Ask for what the next row reads here: at the beginning of a page the processor does not foresee it."""
    nest, f = w.nest, w.f
    for place, x in zip(scope.places, nest.inputs, strict=False):
        if abs(x.strides[nest.lane]) == x.dtype.itemsize and x.strides[dim]:
            first = f.at(place, f.value(here.at, "i64") * x.strides[nest.lane])
            for line in range(0, max(here.lanes, 1) * x.dtype.itemsize, 64):
                f.prefetch(f.at(first, x.strides[dim] + line))
