"""Where each temporary lies in the arena: buffers that are needed at the same time do not overlap."""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from typing import Final

from nxjax.lower.cpu.memory_uses import BufferUse, Uses
from nxjax.lower.cpu.tape import ALIGN, Buffer

# First and last step (by number) at which a buffer is needed, and its bytes.
Life = tuple[int, int, int]
# Up to so many buffers the larger ones are placed first, which takes time in the square of their number.
FEW: Final = 128


def lifetimes(uses: Uses) -> dict[Buffer, Life]:
    """When each temporary is needed.

    What a loop or branch shares with its surroundings is needed as long as that runs, since a turn may be followed by
    another; what lives in a body only is free between its last use and its first one in the next turn.
    """
    paths = [path for path, _ in uses.steps]
    found: dict[Buffer, Life] = {}
    for b, used in uses.of.items():
        if b.kind == "temp":
            n = depth(used)
            # A path's prefix stands for all steps inside.
            first = bisect.bisect_left(paths, used[0].path[: n + 1])
            last = bisect.bisect_left(paths, (*used[-1].path[: n + 1], 1 << 60)) - 1
            found[b] = first, last, -(-b.nbytes // ALIGN) * ALIGN
    return found


def depth(uses: Sequence[BufferUse]) -> int:
    """How much of their paths the uses have in common: the innermost list of steps that has all of them."""
    first, last = uses[0].path, uses[-1].path
    n = 0
    while n + 2 < min(len(first), len(last)) and first[: n + 2] == last[: n + 2]:
        n += 2
    return n


def assigned(uses: Uses) -> int:
    """Give every temporary its offset; the bytes of the arena."""
    lives = lifetimes(uses)
    items = list(lives.values())
    plans = [_in_time(items)]
    if len(items) <= FEW:
        plans += [
            _by_size(items, sorted(range(len(items)), key=lambda i: -items[i][2])),
            _by_size(items, sorted(range(len(items)), key=lambda i: -items[i][2] * (items[i][1] - items[i][0] + 1))),
        ]
    top, offsets = min(plans, key=lambda plan: plan[0])
    for b, offset in zip(lives, offsets, strict=True):
        b.offset = offset
    return top


def _in_time(items: Sequence[Life]) -> tuple[int, list[int]]:
    """Each buffer, when it is first needed, in the smallest hole that it fits in."""
    offsets = [0] * len(items)
    used: list[tuple[int, int, int]] = []  # last step, offset, bytes
    holes: list[tuple[int, int]] = []  # offset, bytes; in order, no two adjacent
    top = 0
    for i in sorted(range(len(items)), key=lambda i: (items[i][0], -items[i][2])):
        first, last, size = items[i]
        if not size:
            continue
        while used and used[0][0] < first:
            _, offset, freed = heapq.heappop(used)
            _give_back(holes, offset, freed)
        fits = [(n, at) for at, n in holes if n >= size]
        if fits:
            n, at = min(fits)
            k = bisect.bisect_left(holes, (at, 0))
            holes[k : k + 1] = [(at + size, n - size)] if n > size else []
        else:
            at = top
            if holes and sum(holes[-1]) == top:
                at, _ = holes.pop()
            top = at + size
        offsets[i] = at
        heapq.heappush(used, (last, at, size))
    return top, offsets


def _give_back(holes: list[tuple[int, int]], offset: int, size: int) -> None:
    k = bisect.bisect_left(holes, (offset, 0))
    if k < len(holes) and holes[k][0] == offset + size:
        size += holes.pop(k)[1]
    if k and sum(holes[k - 1]) == offset:
        offset, before = holes.pop(k - 1)
        size, k = size + before, k - 1
    holes.insert(k, (offset, size))


def _by_size(items: Sequence[Life], order: Sequence[int]) -> tuple[int, list[int]]:
    """Each buffer, in ``order``, in the lowest place where no other lies that is needed at the same time."""
    offsets = [0] * len(items)
    done: list[int] = []
    top = 0
    for i in order:
        first, last, size = items[i]
        if not size:
            continue
        at = 0
        for start, end in sorted(
            (offsets[j], offsets[j] + items[j][2]) for j in done if items[j][0] <= last and items[j][1] >= first
        ):
            if start - at >= size:
                break
            at = max(at, end)
        offsets[i] = at
        done.append(i)
        top = max(top, at + size)
    return top, offsets
