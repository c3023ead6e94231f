"""Sorting many short rows at once: one row per lane, by a network that is the same for all of them.

The network is Batcher's merge exchange for any size (Knuth, "The Art of Computer Programming" 3, 5.2.2, algorithm M).
An element is one or more unsigned 64-bit words, most significant first, that end in its index: no two are equal, so
that any network is stable.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value
from nxjax.kernels.cpu.isa import Isa

WORD: Final = 8  # bytes
LISTED: Final = 256  # up to this size all exchanges are listed, above it the rounds
AT_ONCE: Final = 4


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


def network(f: Function, isa: Isa, base: Value, size: int, words: int, lanes: int, word: int = WORD) -> None:
    """Sort the ``size`` elements at ``base``, one after the other: ``words`` vectors of ``lanes`` unsigned words each.

    The exchanges are data: code for each of them would take longer to compile than most rows take to sort.
    """
    step = words * lanes * word
    exchange = lambda i, j: _exchange(f, isa, f.at(base, i, step), f.at(base, j, step), words, lanes, word)
    if size <= LISTED:
        pairs = [(i, i + d) for p, r, d in rounds(size) for i in range(size - d) if i & p == r]
        place = _table(f, f"@exchanges{size}", "i16", [n for pair in pairs for n in pair])
        whole = len(pairs) // AT_ONCE * AT_ONCE

        def listed(k: Value | int) -> None:
            i, j = (f.load("i16", f.at(f.at(place, k, 4), at)).convert("i64", signed=False) for at in (0, 2))
            exchange(i, j)

        with f.loop(0, whole, AT_ONCE) as loop:
            for k in range(AT_ONCE):
                listed(loop.index + k)
        for k in range(whole, len(pairs)):
            listed(k)
        return
    table = [n for round in rounds(size) for n in round]
    place = _table(f, f"@rounds{size}", "i64", table)
    with f.loop(0, len(table), 3) as round:
        p, r, d = (f.load("i64", f.at(f.at(place, round.index, 8), 8 * k)) for k in range(3))
        end = size - d
        # The i with i & p == r: runs of p, every 2 p, from r on; the last run may be short.
        with f.loop(r, end, p + p) as run:
            stop = f.intrinsic("smin", "i64", run.index + p, end)
            with f.loop(run.index, stop) as loop:
                exchange(loop.index, loop.index + d)


def _table(f: Function, name: str, type: str, numbers: list[int]) -> Value:
    f.globals[name] = (
        f"{name} = private constant [{len(numbers)} x {type}] [{', '.join(f'{type} {n}' for n in numbers)}]"
    )
    return Value(f, "ptr", name)


def _exchange(f: Function, isa: Isa, x: Value, y: Value, words: int, lanes: int, word: int) -> None:
    """Two elements in order."""
    type = f"<{lanes} x i{8 * word}>"
    xs = [f.load(type, f.at(x, k * lanes * word)) for k in range(words)]
    ys = [f.load(type, f.at(y, k * lanes * word)) for k in range(words)]
    if words == 1 and (word < WORD or isa.bits == 512):  # by an instruction
        low, high = f.intrinsic("umin", type, xs[0], ys[0]), f.intrinsic("umax", type, xs[0], ys[0])
        f.store(low, x)
        f.store(high, y)
        return
    swap = ys[-1].ult(xs[-1])
    for a, b in zip(reversed(xs[:-1]), reversed(ys[:-1]), strict=True):
        swap = b.ult(a) | (b.eq(a) & swap)
    # Of a choice between what was loaded and something else, LLVM makes a masked store, which AMD's processors take
    # long for.
    mask = f.cast("sext", swap, type)
    for k, (a, b) in enumerate(zip(xs, ys, strict=True)):
        change = (a ^ b) & mask
        f.store(a ^ change, f.at(x, k * lanes * word))
        f.store(b ^ change, f.at(y, k * lanes * word))
