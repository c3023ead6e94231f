"""Where products and sums in float32 round to the same integers as fixed-point arithmetic.

Quantized operands have few values. So factors can be tried on all of them, and then no operand is left that could
differ. Fixed-point arithmetic rounds several times and each time by little: only what lies near the middle between two
results can differ, and only that is computed twice. Knows no op, only integers, factors and an exact function.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

NDArray = np.ndarray[Any, Any]
_NEAR: Final = 2.0**-11  # from a middle; all roundings together move a sum by less
_GREATEST: Final = 4.0  # of factors: of operands below 2^8, a sum's float is then this near
_STEPS: Final = (0, 1, -1, 2, -2)  # numbers of float32 beside the nearest one that are tried


def same_factors(
    operands: Sequence[NDArray], ideal: Sequence[float], exact: Callable[..., NDArray], low: int, high: int
) -> tuple[float, ...] | None:
    """Float32 factors of which ``rounded(sum of operands * factors)`` has the bits of ``exact``; None: none are found.

    Args:
        operands: all values of each.
        ideal: the real factors, of which ``exact`` is at most `_NEAR` away before it rounds.
        exact: the result of operands, between ``low`` and ``high``.
    """
    if max(map(abs, ideal)) > _GREATEST:
        return None
    grid = np.meshgrid(*operands, indexing="ij", sparse=True)
    real = sum((x * f for x, f in zip(grid, ideal, strict=True)), 0.5)
    near = np.abs(real - np.rint(real)) < _NEAR
    places = np.nonzero(near & (real > low - 1) & (real < high + 2))
    chosen = [x[i] for x, i in zip(operands, places, strict=True)]
    wanted = exact(*chosen)
    floats = [x.astype(np.float32) for x in chosen]
    choices = [[_beside(np.float32(f), n) for n in _STEPS] for f in ideal]
    for factors in itertools.product(*choices):
        total = sum((x * f for x, f in zip(floats[1:], factors[1:], strict=True)), floats[0] * factors[0])
        if np.array_equal(rounded(total, low, high), wanted):
            return tuple(map(float, factors))
    return None


def _beside(x: np.float32, steps: int) -> np.float32:
    return np.float32((np.asarray(x).view(np.int32) + np.int32(steps)).view(np.float32)[()])


def rounded(x: NDArray, low: int, high: int) -> NDArray:
    """Float32 to the nearest integers, halves away from zero, in the operations that machine code has for it."""
    below_half = np.nextafter(np.float32(0.5), np.float32(0))
    return np.clip(x + np.copysign(below_half, x), np.float32(low), np.float32(high)).astype(np.int16)
