"""Sorting many short rows at once: one row per lane, by a network that is the same for all of them.

The network is Batcher's merge exchange for any size (Knuth, "The Art of Computer Programming" 3, 5.2.2, algorithm M).
An element is one or more unsigned 64-bit words, most significant first, that end in its index: no two are equal, so
that any network is stable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value

WORD: Final = 8  # bytes


def rounds(size: int) -> Iterator[tuple[int, int, int]]:
    """(p, r, d): exchange i and i + d, where they are out of order, for all i < size - d with ``i & p == r``.

    >>> list(rounds(3))
    [(2, 0, 2), (1, 0, 1), (1, 1, 1)]
    """
    top = 1 << max(size - 1, 0).bit_length() >> 1
    p = top
    while p:
        q, r, d = top, 0, p
        while True:
            yield p, r, d
            if q == p:
                break
            d, q, r = q - p, q // 2, p
        p //= 2


def network(f: Function, base: Value, size: int, words: int, lanes: int) -> None:
    """Sort the ``size`` elements at ``base``, one after the other: ``words`` vectors of ``lanes`` words each."""
    step = words * lanes * WORD
    table = [n for round in rounds(size) for n in round]
    if not table:
        return
    # The rounds are data: code for each of them would take longer to compile than most rows take to sort.
    name = f"@rounds{size}"
    f.globals[name] = f"{name} = private constant [{len(table)} x i64] [{', '.join(f'i64 {n}' for n in table)}]"
    with f.loop(0, len(table), 3) as round:
        place = f.at(Value(f, "ptr", name), round.index, WORD)
        p, r, d = (f.load("i64", f.at(place, k * WORD)) for k in range(3))
        end = size - d
        # The i with i & p == r: runs of p, every 2 p, from r on; the last run may be short.
        with f.loop(r, end, p + p) as run:
            stop = f.intrinsic("smin", "i64", run.index + p, end)
            with f.loop(run.index, stop) as loop:
                _exchange(f, base, loop.index, d, step, words, lanes)


def _exchange(f: Function, base: Value, i: Value, d: Value, step: int, words: int, lanes: int) -> None:
    """Elements i and i + d in order."""
    type = f"<{lanes} x i64>"
    x, y = f.at(base, i, step), f.at(base, i + d, step)
    xs = [f.load(type, f.at(x, k * lanes * WORD)) for k in range(words)]
    ys = [f.load(type, f.at(y, k * lanes * WORD)) for k in range(words)]
    if words == 1:
        low, high = f.intrinsic("umin", type, xs[0], ys[0]), f.intrinsic("umax", type, xs[0], ys[0])
        f.store(low, x)
        f.store(high, y)
        return
    swap = ys[-1].ult(xs[-1])
    for a, b in zip(reversed(xs[:-1]), reversed(ys[:-1]), strict=True):
        swap = b.ult(a) | (b.eq(a) & swap)
    for k, (a, b) in enumerate(zip(xs, ys, strict=True)):
        f.store(f.select(swap, b, a), f.at(x, k * lanes * WORD))
        f.store(f.select(swap, a, b), f.at(y, k * lanes * WORD))
