"""One block of host memory for all temporaries of a program: those that are never alive together share their bytes.

Knows when variables live, not what runs.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nxjax.backends.ipu.liveness import Liveness
from nxjax.lower.ipu.program import IpuProgram, NDArray, Variable

ALIGN: Final = 64
# Where bytes of tile memory that nobody has written show, they are not zeros that happen to be right.
FILL: Final = 0xA5


def allocate(program: IpuProgram) -> dict[int, NDArray]:
    """A flat array for each variable, by identity; temporaries lie in one arena, all others by themselves."""
    alive = Liveness(program)
    temporaries = list(alive.names(((1 << len(alive.variables)) - 1) & ~alive.always))
    last: dict[int, int] = {}
    first: dict[int, int] = {}
    before = 0
    for at, visit in enumerate([*alive.visits, None]):
        bits = visit.live & ~alive.always if visit is not None else 0
        for v in alive.names(bits & ~before):
            first.setdefault(id(v), at)
        for v in alive.names(before & ~bits):
            last[id(v)] = at - 1
        before = bits
    offsets, size = _offsets([v for v in temporaries if id(v) in first], first, last)
    arena = _filled(size)
    found: dict[int, NDArray] = {}
    for v in alive.variables:
        at = offsets.get(id(v))
        if at is not None:
            found[id(v)] = arena[at : at + v.nbytes].view(v.dtype)
        elif v.value is not None:
            found[id(v)] = np.array(v.value, v.dtype).reshape(-1)
        else:
            found[id(v)] = _filled(v.nbytes).view(v.dtype)
        if v.dtype == np.bool_ and v.value is None:
            found[id(v)].view(np.uint8).fill(1)
    return found


def _filled(size: int) -> NDArray:
    found = np.empty(size, np.uint8)
    found.fill(FILL)
    return found


def _offsets(variables: list[Variable], first: dict[int, int], last: dict[int, int]) -> tuple[dict[int, int], int]:
    """The largest first, each at the lowest address where none that it meets lies."""
    starts, ends, begins, stops = (np.zeros(len(variables), np.int64) for _ in range(4))
    found: dict[int, int] = {}
    top = 0
    for n, v in enumerate(sorted(variables, key=lambda v: -v.nbytes)):
        a, b = first[id(v)], last[id(v)]
        met = np.flatnonzero((begins[:n] <= b) & (stops[:n] >= a))
        order = met[np.argsort(starts[met], kind="stable")]
        size = max(-(-v.nbytes // ALIGN) * ALIGN, ALIGN)
        # The end of everything below each one that is met, where the next begins.
        below = np.maximum.accumulate(np.r_[0, ends[order]])
        room = np.flatnonzero(np.r_[starts[order], np.iinfo(np.int64).max] - below >= size)
        at = int(below[room[0]])
        starts[n], ends[n], begins[n], stops[n] = at, at + size, a, b
        found[id(v)] = at
        top = max(top, at + size)
    return found, top
