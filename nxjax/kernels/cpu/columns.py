"""Inside a nest whose lanes run along the last kept dimension: elementwise loops, and reductions of columns.

A tile is as many columns as a vector has lanes; its reduced loops run inside, with vectors as accumulators. What is
left of the columns after the last whole tile is done under a mask, or column by column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nxjax.kernels.cpu.ir import Value
from nxjax.kernels.cpu.nest_emit import Here, Scope, Writer


def write(w: Writer, scope: Scope, block: Value | None) -> None:
    """The tiles of the lanes' dimension, or of one block of it."""
    first, end = bounds(w, block)
    tiles(w, first, end, lambda here: tile(w, scope, here))


def bounds(w: Writer, block: Value | None) -> tuple[Value | int, Value | int]:
    """The first column of a block, and the one after its last; of all columns for None."""
    nest = w.nest
    n = nest.sizes[nest.lane]
    if block is None:
        return 0, n
    first = block * nest.block
    after = first + nest.block
    return first, after if n % nest.block == 0 else w.f.select(after.lt(n), after, n)


def tiles(w: Writer, first: Value | int, end: Value | int, body: Callable[[Here], None]) -> None:
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


def prepared(w: Writer, scope: Scope, here: Here) -> Scope:
    """The scope of some columns, with everything that needs no reduction and no row."""
    facts = w.facts
    scope = scope.copy()
    scope.index[w.nest.lane] = w.f.value(here.at, "i64")
    for i in range(len(facts.depth)):
        if i not in scope.values and not facts.full[i] and not facts.level[i]:
            w.make(scope, i, here)
    return scope


def tile(w: Writer, scope: Scope, here: Here) -> None:
    """Everything for some columns."""
    nest, facts = w.nest, w.facts
    scope = prepared(w, scope, here)

    def run(number: int, scope: Scope) -> None:
        sums = w.reductions(number)
        starts = [w.start(i, here.lanes if facts.wide[i] else 0) for i in sums]
        for i, total in zip(sums, _loops(w, scope, number, nest.kept, starts, here), strict=True):
            w.finished(scope, i, total)

    w.passes(scope, here, run)


def _loops(w: Writer, scope: Scope, number: int, dim: int, totals: Sequence[Value], here: Here) -> Sequence[Value]:
    """The reduced loops from ``dim`` on."""
    nest, f = w.nest, w.f
    if dim == len(nest.sizes):
        w.inside(scope, number, None, here)
        return [w.added(i, t, scope, None) for i, t in zip(w.reductions(number), totals, strict=True)]
    size = w.limit(scope) if dim == nest.kept else nest.sizes[dim]
    with f.loop(0, size, 1, totals) as loop:
        inner = w.moved(scope, dim, loop.index)
        if dim + 1 < len(nest.sizes):
            w.inside(inner, number, dim + 1, here)
        loop.next(*_loops(w, inner, number, dim + 1, loop.carried, here))
    return loop.results
