"""Powers that are no plain `pow`: to a known number, of which a table can be made, and of integers to integers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np

from nxjax.ops.arithmetic import abs, mul, pow
from nxjax.ops.base import Binary, Differentiable, NDArray, Nondifferentiable, Tangent, Unary, like
from nxjax.ops.bitwise import and_, shift_right_logical
from nxjax.ops.compare import lt, ne
from nxjax.ops.select import select_n
from nxjax.trace import dtypes
from nxjax.trace.core import Array


@final
class Power(Differentiable, Unary):
    """x to the power ``y``; NaN for negative x unless ``y`` is whole."""

    name = "power"
    allowed = dtypes.FLOAT

    def eval(self, x: NDArray, /, *, y: float) -> NDArray:
        with np.errstate(all="ignore"):
            return pow.eval(x, np.asarray(y, x.dtype))

    def expand(self, x: Array, /, *, y: float) -> Array:
        return pow(x, like(x, y))

    def tangents(self, out: Array, x: Array, *, y: float) -> Sequence[Tangent | None]:
        return (None if y == 0 else lambda t: mul(t, mul(power(x, y=y - 1), y)),)


@final
class PowIntegers(Nondifferentiable, Binary):
    """x to the power y modulo 2^bits, for every y; for negative y, 0 unless x is 1 or -1."""

    name = "pow_integers"
    allowed = dtypes.INTEGER

    def eval(self, x: NDArray, y: NDArray, /) -> NDArray:
        # Unsigned words of at least the dtype's width: products wrap around, and the dtype's bits are their lowest.
        word = np.dtype(f"u{x.dtype.itemsize}")
        base, below = x.astype(np.int64).astype(word), y < 0
        rest = np.where(below, np.zeros_like(y), y).astype(word)
        out = np.ones_like(base)
        while rest.any():
            out = np.where(rest & 1, out * base, out)
            base, rest = base * base, rest >> 1
        power = out.astype(f"i{x.dtype.itemsize}").astype(x.dtype)
        if below.any():
            odd = (y.astype(np.int64) & 1).astype(bool)
            power = np.where(below, np.where((x == 1) | (x == -1), np.where(odd, x, x * x), np.zeros_like(x)), power)
        return np.asarray(power, x.dtype)

    def expand(self, x: Array, y: Array, /) -> Array:
        one, zero = like(x, 1), like(x, 0)
        out, base, rest = one, x, y
        # One round per bit of y: an odd x has as many powers. The bit of the sign says nothing of 1 and -1.
        for bit in range(dtypes.bit_width(x.dtype) - (x.dtype in dtypes.SIGNED)):
            if bit:
                base, rest = mul(base, base), shift_right_logical(rest, one)
            out = select_n(ne(and_(rest, one), zero), out, mul(out, base))
        if x.dtype in dtypes.UNSIGNED:
            return out
        return select_n(and_(lt(y, zero), ne(abs(x), one)), out, zero)


power = Power()
pow_integers = PowIntegers()
