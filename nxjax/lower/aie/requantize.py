"""Columns' factors for `nxjax.kernels.aie.matmul.Requantize`, proved to have the bits of the integer meaning.

The meaning of a quantized product takes its sums to eight bits by a product in float64 or by a fixed-point routine;
cores do neither. Both the meaning and the core's arithmetic are step functions of the sum that never go down, with at
most 255 steps: they are equal everywhere if they are equal on both sides of every step, and that is looked at for each
column. Where the nearest factor is not equal its neighbours are tried. Knows no design.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, final

import numpy as np

from nxjax.errors import LoweringError
from nxjax.kernels.aie.matmul import AWAY, HEADER, LOW, UP, rescaled
from nxjax.kernels.aie.spec import NDArray

# Integer results for sums [any, n], by the meaning: one column after the other.
Meaning = Callable[[NDArray], NDArray]
# The core's last shift.
_SHIFTS: Final = 46
# Units of the factor's last bit that are tried beside the nearest one.
_NEAR: Final = (0, 1, -1, 2, -2, 3, -3, 4, -4)


@final
@dataclass(frozen=True, eq=False)
class Columns:
    """What blocks of requantization hold: ``bias``, ``high`` and ``low`` of n columns, and what all have in common."""

    bias: NDArray
    high: NDArray
    low: NDArray
    zero_point: int
    least: int
    greatest: int
    shift: int
    rounding: int

    def block(self, first: int, count: int) -> bytes:
        """The numbers of ``count`` columns from ``first`` on, zeros where there are none."""
        words = np.zeros(HEADER + 3 * count, np.int32)
        words[:5] = self.zero_point, self.least, self.greatest, self.shift, self.rounding
        for i, part in enumerate((self.bias, self.high, self.low)):
            piece = part[first : first + count]
            words[HEADER + i * count : HEADER + i * count + piece.size] = piece
        return words.tobytes()


def columns(
    meaning: Meaning, real: NDArray, bias: NDArray, bound: NDArray, zero_point: int, least: int, greatest: int
) -> Columns:
    """Factors that are proved equal to ``meaning`` for sums (with bias) of magnitude up to ``bound``.

    Args:
        meaning: from sums with their bias, [any, n], to stored results.
        real: the real factors, [n], positive.
        bias: added to sums of products, [n].
        bound: of sums with their bias, [n].
        zero_point, least, greatest: of the result.

    Raises:
        LoweringError: sums that leave 32 bits, factors that no shift holds, or a rounding that is not the core's.
    """
    top, most = float(np.max(real)), int(np.max(bound))
    if most >= 2**31:
        raise LoweringError("AIE requantize: sums may leave 32 bits", got=most, expected="below 2**31")
    shift = min(_SHIFTS, 30 - math.frexp(top)[1], 61 - math.frexp(top)[1] - most.bit_length())
    if shift < 1:
        raise LoweringError("AIE requantize: a factor is too large for the cores' shift", got=top)
    sums, wanted = _steps(meaning, real, bound, zero_point, least, greatest)
    factor = np.round(np.asarray(real, np.float64) * 2.0 ** (shift + LOW)).astype(np.int64)
    for rounding in (AWAY, UP):
        chosen, left = factor.copy(), np.ones(factor.shape, np.bool_)
        for near in _NEAR:
            tried = np.maximum(factor + near, 0)
            y = rescaled(sums, tried >> LOW, tried & ((1 << LOW) - 1), shift, rounding)
            equal = (np.clip(y + zero_point, least, greatest) == wanted).all(0)
            chosen = np.where(left & equal, tried, chosen)
            left &= ~equal
            if not left.any():
                high, low = chosen >> LOW, chosen & ((1 << LOW) - 1)
                return Columns(bias, high, low, zero_point, least, greatest, shift, rounding)
    raise LoweringError(
        "AIE requantize: the cores' rounding is not that of the meaning for every sum",
        got=f"{int(left.sum())} of {left.size} columns, the first {int(np.argmax(left))}",
    )


def _steps(
    meaning: Meaning, real: NDArray, bound: NDArray, zero_point: int, least: int, greatest: int
) -> tuple[NDArray, NDArray]:
    """Sums on both sides of every step, [any, n], and what the meaning makes of them."""
    edges = np.arange(least + 1, greatest + 1) - zero_point - 0.5
    near = np.floor(edges[:, None] / np.asarray(real, np.float64)[None])
    sums = np.concatenate([near + d for d in (-2, -1, 0, 1, 2)] + [-bound[None] * 1.0, bound[None] * 1.0])
    kept = np.clip(sums, -bound, bound).astype(np.int64)
    return kept, meaning(kept).astype(np.int64)
