"""The first few of a long row: a sorted list of the best so far, and one comparison for sixteen elements.

A word is a key with its index below it, so that no two are equal. To put a word into the sorted list L is to make
element j ``min(L[j], max(L[j - 1], word))``: vectors, from the end to the beginning. A random row of n has about
k log(n / k) elements that enter a list of k.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from nxjax.kernels.cpu.ir import Function, Value

WORD: Final = 8  # bytes
LANES: Final = 8
AT_ONCE: Final = 16


def room(kept: int) -> int:
    """Bytes that the list takes, with a vector before it."""
    return (LANES + -(-kept // LANES) * LANES) * WORD


def select(
    f: Function,
    size: int,
    kept: int,
    key: Callable[[Value], Value],
    keys: Callable[[Value], Value],
    scratch: Value,
) -> Value:
    """The ``kept`` smallest of ``size`` elements, in order: the address of their words.

    Args:
        key: the key of one element as an ``i64`` below 2^32.
        keys: those of ``AT_ONCE`` elements from one on as ``i32``.
    """
    best = f.at(scratch, LANES * WORD)
    type = f"<{LANES} x i64>"
    vectors = -(-kept // LANES)
    f.store(f.constant(type, 0), scratch)  # smaller than any word, before the list
    with f.loop(0, vectors) as loop:
        f.store(f.constant(type, -1), f.at(best, loop.index, LANES * WORD))

    def enter(word: Value) -> None:
        wide = f.splat(word, LANES)
        with f.loop(0, vectors) as loop:
            place = f.at(best, (vectors - 1) - loop.index, LANES * WORD)
            here, before = f.load(type, place), f.load(type, f.at(place, -WORD))
            f.store(f.intrinsic("umin", type, here, f.intrinsic("umax", type, before, wide)), place)

    def offer(i: Value) -> None:
        """Element i, if it is among the best so far; an equal one that comes later is not."""
        k = key(i)
        with f.if_(k.ult(f.load("i64", f.at(best, (kept - 1) * WORD)).lshr(32))):
            enter((k << 32) | i)

    with f.loop(0, kept) as loop:
        enter((key(loop.index) << 32) | loop.index)
    whole = kept + (size - kept) // AT_ONCE * AT_ONCE
    with f.loop(kept, whole, AT_ONCE) as loop:
        worst = f.load("i64", f.at(best, (kept - 1) * WORD)).lshr(32).convert("i32")
        better = keys(loop.index).ult(f.splat(worst, AT_ONCE))
        with f.if_(f.intrinsic("vector.reduce.or", "i1", better)), f.loop(0, AT_ONCE) as lane:
            offer(loop.index + lane.index)
    with f.loop(whole, size) as loop:
        offer(loop.index)
    return best
