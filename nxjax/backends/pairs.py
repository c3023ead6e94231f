"""Two functions measured in turn on a machine that others use too: which is faster, and how sure that is.

Knows nothing of what the functions do.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np

# One measurement takes at least this long, so that the clock does not matter.
_LEAST: Final = 200e-6
# How unlikely it may be that as many of the pairs go one way by chance.
CHANCE: Final = 0.01
# A gain smaller than this is not worth another way.
GAIN: Final = 0.03
# Times that are as many times as long in each of a few pairs are longer, whatever else the machine does.
_APART: Final = 4.0


@final
@dataclass(frozen=True)
class Pair:
    """What measuring two functions in turn gave.

    Attributes:
        ratio: the median over pairs of the second one's time to the first one's.
        first, second: median seconds of a call.
        pairs: how many.
        chance: how likely it is that as many pairs or more favour the one that they do, if both were equal (sign test).
    """

    ratio: float
    first: float
    second: float
    pairs: int
    chance: float

    @property
    def faster(self) -> bool:
        """Whether the second is faster for sure, and by more than is worth nothing."""
        return self.ratio < 1 - GAIN and (self.chance < CHANCE or self.ratio < 1 / _APART)

    @property
    def slower(self) -> bool:
        """Whether the second is slower for sure."""
        return self.ratio > 1 and (self.chance < CHANCE or self.ratio > _APART)


def sign_test(wins: int, pairs: int) -> float:
    """The two-sided probability of ``wins`` of ``pairs``, or of anything as far from the half, for a fair coin.

    >>> sign_test(5, 10), round(sign_test(10, 10), 6)
    (1.0, 0.001953)
    """
    far = max(wins, pairs - wins)
    tail = sum(math.comb(pairs, k) for k in range(far, pairs + 1)) / 2**pairs
    return min(1.0, 2 * tail)


def measured(
    first: Callable[[], object],
    second: Callable[[], object],
    *,
    most: int = 40,
    seconds: float = 1.0,
    clock: Callable[[], float] = time.perf_counter,
) -> Pair:
    """Both functions in turn until it is sure which is faster, or there were enough pairs, or the time is up.

    Args:
        first, second: called without arguments; they wait for what they compute.
        most: pairs.
        seconds: that all of it may take, about; at least eight pairs are measured, or three that are far apart.
        clock: gives seconds.
    """
    end = clock() + seconds
    first()
    second()
    start = clock()
    first()
    count = max(1, math.ceil(_LEAST / max(clock() - start, 1e-9)))

    def timed(function: Callable[[], object]) -> float:
        start = clock()
        for _ in range(count):
            function()
        return max(clock() - start, 1e-9) / count

    times: list[tuple[float, float]] = []
    while len(times) < most:
        # Who begins changes, so that what comes every so often meets both.
        if len(times) % 2:
            b = timed(second)
            a = timed(first)
        else:
            a = timed(first)
            b = timed(second)
        times.append((a, b))
        n = len(times)
        if n >= 3 and clock() > end and (n >= 8 or _far(times)):
            break
        if n >= 12 and _chance(times) < CHANCE / 4:
            break
    values = np.array(times)
    ratio = float(np.median(values[:, 1] / values[:, 0]))
    one, other = map(float, np.median(values, axis=0))
    return Pair(ratio, one, other, len(times), _chance(times))


def _chance(times: list[tuple[float, float]]) -> float:
    return sign_test(sum(b < a for a, b in times), len(times))


def _far(times: list[tuple[float, float]]) -> bool:
    return all(b > _APART * a for a, b in times) or all(a > _APART * b for a, b in times)
