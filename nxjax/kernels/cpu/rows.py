"""Inside a nest whose lanes run along the last reduced dimension: rows that are reduced to numbers.

Lane i of an accumulator takes the elements i, i + V, i + 2V, ... of a row; a long row is summed in parts, whose sums
are added, and so are many rows; at the end the lanes are folded in halves. So a sum's error grows with the number of
vectors in a part and the logarithm of its length.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from nxjax.kernels.cpu.ir import Value
from nxjax.kernels.cpu.nest_emit import Here, LoopScope, NestEmitter, folded


def write(w: NestEmitter, scope: LoopScope) -> None:
    """All passes over one row."""
    lanes = w.lanes if w.lanes > 1 else 0
    one = Here(0, 0)

    def run(number: int, scope: LoopScope) -> None:
        sums = w.reductions(number)
        # Accumulators: vectors, and scalars for what is left of a row where there are no masks.
        starts = [w.start(i, lanes) for i in sums]
        extra = [w.start(i, 0) for i in sums] if lanes and not w.masks() and not w.nest.fixed else []
        found = list(_loops(w, scope, number, w.nest.kept, [*starts, *extra]))
        for k, i in enumerate(sums):
            total = folded(w, i, found[k]) if lanes else found[k]
            w.finished(scope, i, w.combine(i, total, found[len(sums) + k]) if extra else total)

    w.passes(scope, one, run)


def _loops(w: NestEmitter, scope: LoopScope, number: int, dim: int, totals: Sequence[Value]) -> Sequence[Value]:
    """The reduced loops from ``dim`` on."""
    nest = w.nest
    size = w.limit(scope) if dim == nest.kept else nest.sizes[dim]
    if dim == nest.lane:
        return _row(w, scope, number, size, totals)

    def turn(index: Value, totals: Sequence[Value]) -> Sequence[Value]:
        inner = w.moved(scope, dim, index)
        w.inside(inner, number, dim + 1, Here(0, 0))
        return _loops(w, inner, number, dim + 1, totals)

    # What is left of rows without masks has sums of its own, after the others.
    sums = w.reductions(number)
    every = sums * (len(totals) // len(sums)) if sums else []
    return w.chained(every, w.parts[dim - nest.kept] if sums else [], 0, size, 1, totals, turn)


def _row(w: NestEmitter, scope: LoopScope, number: int, n: Value | int, totals: Sequence[Value]) -> Sequence[Value]:
    """The elements of one row: whole vectors, then what is left."""
    f, sums = w.f, w.reductions(number)
    lanes = w.lanes

    def turn(here: Here, totals: Sequence[Value]) -> list[Value]:
        inner = scope.copy()
        inner.index[w.nest.lane] = f.value(here.at, "i64")
        w.inside(inner, number, None, here)
        return [w.added(i, t, inner, here.mask) for i, t in zip(sums, totals, strict=True)]

    def vectors(lo: Value | int, hi: Value | int, carry: Sequence[Value]) -> Sequence[Value]:
        parts = w.parts[-1] if sums else []
        one: Callable[[Value, Sequence[Value]], list[Value]] = lambda i, t: turn(Here(lanes if lanes > 1 else 0, i), t)
        return w.chained(sums, parts, lo, hi, lanes, carry, one)

    if lanes == 1:
        return vectors(0, n, totals)
    count = len(sums)
    main, extra = list(totals[:count]), list(totals[count:])
    whole = n - n % lanes if isinstance(n, int) else n - (n & (lanes - 1))
    if isinstance(whole, int) and whole == lanes:
        main = turn(Here(lanes, 0), main)
    elif not isinstance(whole, int) or whole:
        main = list(vectors(0, whole, main))
    if isinstance(n, int) and n == whole:
        return [*main, *extra]
    if w.nest.fixed:
        # What is left goes where a further vector would take it.
        for k in range(n - whole if isinstance(n, int) and isinstance(whole, int) else 0):
            one = turn(Here(0, f.value(whole, "i64") + k), [f.extract(t, k) for t in main])
            main = [f.insert(t, y, k) for t, y in zip(main, one, strict=True)]
        return main
    if w.masks():
        left = n - whole
        if isinstance(left, int):
            main = turn(Here(lanes, whole, w.mask(left)), main)
        else:
            with f.loop(whole, n, lanes, main) as loop:  # one turn, or none
                loop.next(*turn(Here(lanes, loop.index, w.mask(left)), loop.carried))
            main = list(loop.results)
        return main
    with f.loop(whole, n, 1, extra) as loop:
        loop.next(*turn(Here(0, loop.index), loop.carried))
    return [*main, *loop.results]
