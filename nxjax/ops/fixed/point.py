"""Fixed-point rescaling: a real factor as a 32-bit multiplier and a shift, and the published roundings of the product.

Everything here is int32 arithmetic as compiled C++ does it, kept in int64 arrays: what leaves 32 bits wraps. Formulas:
Jacob et al. 2018, "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only Inference",
section 2.2 and appendix B. Knows no grid and no op.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Rounding

# Arrays, or single numbers where a constant is meant.
Ints = NDArray | np.integer[Any] | int

INT32_MAX: Final = 2**31 - 1
INT32_MIN: Final = -(2**31)


def wrap32(x: Ints) -> NDArray:
    """The low 32 bits of ``x`` as a signed number, in int64.

    >>> wrap32(np.array([2**31])).tolist()
    [-2147483648]
    """
    return np.asarray(x, np.int64).astype(np.int32).astype(np.int64)


def round_away(x: Any) -> NDArray:
    """Nearest integer of float64 ``x``, halves away from zero (C's ``round``), as float64.

    >>> round_away([0.5, -2.5, 0.49999999999999994]).tolist()
    [1.0, -3.0, 0.0]
    """
    x = np.asarray(x, np.float64)
    whole = np.trunc(x)
    return whole + np.where(np.abs(x - whole) >= 0.5, np.copysign(1.0, x), 0.0)


def quantize_multiplier(real: Any, rounding: Rounding = "double") -> tuple[NDArray, NDArray]:
    """``real`` as ``multiplier * 2**(shift - 31)`` with ``2**30 <= |multiplier| < 2**31``; int64 arrays of its shape.

    Factors below 2**-32 become 0. Single rounding has no shift above 30: greater factors saturate.

    >>> multiplier, shift = quantize_multiplier(0.75)
    >>> int(multiplier), int(shift)
    (1610612736, 0)
    """
    fraction, exponent = np.frexp(np.asarray(real, np.float64))
    multiplier = round_away(fraction * 2.0**31).astype(np.int64)
    shift = exponent.astype(np.int64)
    full = multiplier == 1 << 31
    multiplier, shift = np.where(full, 1 << 30, multiplier), np.where(full, shift + 1, shift)
    gone = (shift < -31) | (multiplier == 0)
    multiplier, shift = np.where(gone, 0, multiplier), np.where(gone, 0, shift)
    if rounding == "single":
        great = shift > 30
        multiplier, shift = np.where(great, INT32_MAX, multiplier), np.where(great, 30, shift)
    return multiplier, shift


def high_product(a: Ints, b: Ints) -> NDArray:
    """``a * b / 2**31``, to the nearest integer; -2**31 squared saturates. Operands are in the range of int32.

    >>> high_product(np.int64(1 << 30), np.int64(3)).tolist()
    2
    """
    product = np.asarray(a, np.int64) * np.asarray(b, np.int64)
    nudged = product + np.where(product >= 0, 1 << 30, 1 - (1 << 30))
    # C++ division cuts towards zero, a shift towards minus infinity.
    quotient = (nudged + np.where(nudged < 0, INT32_MAX, 0)) >> 31
    return np.asarray(np.minimum(quotient, INT32_MAX))


def divide_by_power(x: Ints, exponent: Ints) -> NDArray:
    """``x / 2**exponent`` to the nearest integer, halves away from zero.

    >>> divide_by_power(np.array([5, -5, 6]), 1).tolist()
    [3, -3, 3]
    """
    x, e = np.asarray(x, np.int64), np.asarray(exponent, np.int64)
    mask = (np.int64(1) << e) - 1
    return (x >> e) + ((x & mask) > (mask >> 1) + (x < 0))


def rescale(x: Ints, multiplier: Ints, shift: Ints, rounding: Rounding = "double") -> NDArray:
    """``x * multiplier * 2**(shift - 31)`` as an int64 array of int32 values; ``x`` is in the range of int32.

    "double" rounds the high half of the product, then the shift to the right, each to the nearest (gemmlowp);
    "single" rounds once, halves up.

    >>> multiplier, shift = quantize_multiplier(0.3)
    >>> rescale(np.array([10, -10, 15]), multiplier, shift).tolist()
    [3, -3, 5]
    >>> rescale(np.array([10, -10, 15]), multiplier, shift, "single").tolist()
    [3, -3, 5]
    """
    x = np.asarray(x, np.int64)
    multiplier, shift = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    if rounding == "single":
        total = 31 - shift
        return wrap32((x * multiplier + (np.int64(1) << (total - 1))) >> total)
    # The left shift of a 32-bit machine takes its count modulo 32.
    left, right = np.maximum(shift, 0) & 31, np.maximum(-shift, 0)
    return divide_by_power(high_product(wrap32(x << left), multiplier), right)


def rescale_wide(x: Ints, multiplier: Ints, shift: Ints) -> NDArray:
    """`rescale` for 64-bit sums (16-bit activations): the multiplier keeps 16 bits, halves go up.

    Shifts above 14, for which the published routine has no meaning, count as 14.

    >>> multiplier, shift = quantize_multiplier(0.001)
    >>> rescale_wide(np.array([2500, 10**9]), multiplier, shift).tolist()
    [2, 999987]
    """
    x = np.asarray(x, np.int64)
    multiplier, shift = np.asarray(multiplier, np.int64), np.asarray(shift, np.int64)
    reduced = np.where(multiplier < 0x7FFF0000, (multiplier + (1 << 15)) >> 16, 0x7FFF)
    total = np.maximum(15 - shift, 1)
    return wrap32((x * reduced + (np.int64(1) << (total - 1))) >> total)
