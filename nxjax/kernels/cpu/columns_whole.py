"""Reductions of wide columns in one pass: every row is read from beginning to end.

A tile of columns reads a little of each row, which memory is slow at where rows are long. Here rows are read whole,
one after the other, while the accumulators of all columns wait in scratch memory (which stays in the first cache):

    accumulators = start
    for each row:  for each tile of columns:  accumulator = combine(accumulator, row)
    for each tile: finish, and store the outputs

An element's association is that of its column from the first row to the last, as in tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.columns import bounds, prepared
from nxjax.kernels.cpu.columns import tiles as tiles_of
from nxjax.kernels.cpu.ir import Value
from nxjax.kernels.cpu.nest_emit import Here, Scope, Writer


def write(w: Writer, scope: Scope, block: Value | None, scratch: Sequence[Value]) -> None:
    """All columns, or one block of them; ``scratch``: where the accumulators of each reduction lie."""
    nest, f = w.nest, w.f
    first, end = bounds(w, block)
    sums = w.reductions(0)
    dtypes = [w.reduction(i).accumulator for i in sums]

    def tiles(body: Callable[[Here], None]) -> None:
        tiles_of(w, first, end, body)

    def place(p: Value, here: Here, size: int) -> Value:
        return f.at(p, here.at if block is None else f.value(here.at, "i64") - first, size)

    def load(here: Here) -> list[Value]:
        # Accumulators have room for whole tiles: no mask.
        return [
            convert.load(f, w.isa, d, place(p, here, d.itemsize), here.lanes)
            for d, p in zip(dtypes, scratch, strict=True)
        ]

    def store(here: Here, values: Sequence[Value]) -> None:
        for d, p, v in zip(dtypes, scratch, values, strict=True):
            convert.store(f, w.isa, d, v, place(p, here, d.itemsize))

    tiles(lambda here: store(here, [w.start(i, here.lanes) for i in sums]))
    _rows(w, scope, nest.kept, tiles, load, store)

    def finish(here: Here) -> None:
        inner = prepared(w, scope, here)
        for i, total in zip(sums, load(here), strict=True):
            w.finished(inner, i, total)
        for level in range(1, w.facts.passes + 1):
            w.after(inner, here, level)
        w.stored(inner, here)

    tiles(finish)


def _rows(
    w: Writer,
    scope: Scope,
    dim: int,
    tiles: Callable[[Callable[[Here], None]], None],
    load: Callable[[Here], list[Value]],
    store: Callable[[Here, Sequence[Value]], None],
) -> None:
    """The reduced loops from ``dim`` on."""
    nest, f = w.nest, w.f
    size = w.limit(scope) if dim == nest.kept else nest.sizes[dim]
    if dim + 1 < len(nest.sizes):
        with f.loop(0, size) as loop:
            _rows(w, w.moved(scope, dim, loop.index), dim + 1, tiles, load, store)
        return
    with f.loop(0, size) as loop:
        row = w.moved(scope, dim, loop.index)

        def tile(here: Here) -> None:
            inner = prepared(w, row, here)
            _fetch_next(w, inner, dim, here)
            w.inside(inner, 0, None, here)
            store(here, [w.added(i, t, inner, None) for i, t in zip(w.reductions(0), load(here), strict=True)])

        tiles(tile)


def _fetch_next(w: Writer, scope: Scope, dim: int, here: Here) -> None:
    """Ask for what the next row reads here: at the beginning of a page the processor does not foresee it."""
    nest, f = w.nest, w.f
    for place, x in zip(scope.places, nest.inputs, strict=False):
        if abs(x.strides[nest.lane]) == x.dtype.itemsize and x.strides[dim]:
            first = f.at(place, f.value(here.at, "i64") * x.strides[nest.lane])
            for line in range(0, max(here.lanes, 1) * x.dtype.itemsize, 64):
                f.prefetch(f.at(first, x.strides[dim] + line))
