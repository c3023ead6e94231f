"""Sorting one long row by the digits of its keys, least significant first; every pass keeps the order of equal digits.

A digit is a byte. All are counted in one reading; a pass whose digit is the same everywhere is left out, so that small
integers take as many passes as they have bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value

DIGITS: Final = 256
COUNTS: Final = 8 * DIGITS * 4


def radix(
    f: Function,
    size: int,
    first: Callable[[Value], Value],
    element: str,
    shift: int,
    bits: int,
    room: tuple[Value, Value],
    counts: Value,
) -> Value:
    """Sort ``size`` elements by bits ``shift`` to ``shift + bits`` of their (first) word; gives where they are then.

    Args:
        first: element i to begin with.
        element: an integer type, or ``<2 x i64>``, whose first lane is the key.
        room: memory for the elements, twice.
        counts: memory of ``COUNTS`` bytes.
    """
    nbytes = 16 if element.startswith("<") else int(element[1:]) // 8
    digits = bits // 8
    zero = f.constant("<16 x i32>", 0)
    with f.loop(0, digits * DIGITS, 16) as loop:
        f.store(zero, f.at(counts, loop.index, 4))

    def digit(e: Value, k: int) -> Value:
        word = f.extract(e, 0) if element.startswith("<") else e
        return (word.lshr(shift + 8 * k) & 255).convert("i64", signed=False)

    with f.loop(0, size) as loop:
        e = first(loop.index)
        f.store(e, f.at(room[0], loop.index, nbytes), 1)
        for k in range(digits):
            place = f.at(counts, digit(e, k) + k * DIGITS, 4)
            f.store(f.load("i32", place) + 1, place)
    here, there = room
    for k in range(digits):
        mine = f.at(counts, k * DIGITS * 4)
        alike = f.load("i32", f.at(mine, digit(f.load(element, here, 1), k), 4)).eq(size)
        turns = f.select(alike, f.constant("i64", 0), f.constant("i64", size))
        with f.loop(
            0, f.select(alike, f.constant("i64", 0), f.constant("i64", DIGITS)), 4, [f.constant("i32", 0)]
        ) as b:
            (total,) = b.carried
            for j in range(4):
                place = f.at(mine, b.index + j, 4)
                count = f.load("i32", place)
                f.store(total, place)
                total = total + count
            b.next(total)
        with f.loop(0, turns) as loop:
            e = f.load(element, f.at(here, loop.index, nbytes), 1)
            place = f.at(mine, digit(e, k), 4)
            to = f.load("i32", place)
            f.store(to + 1, place)
            f.store(e, f.at(there, to.convert("i64", signed=False), nbytes), 1)
        here, there = f.select(alike, here, there), f.select(alike, there, here)
    return here
