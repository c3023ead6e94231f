"""The numbers of each dtype, for oracles: all of them, rounding to them, distances in last places, conversion.

Rounding goes by the table of a dtype's numbers, not by a cast. Knows no op and no executor.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np

from nxjax.trace import dtypes

EXACT = 0.5  # the nearest number


@dataclass(frozen=True)
class Kind:
    """A dtype as the meanings see it."""

    dtype: Any

    @property
    def bits(self):
        return dtypes.bit_width(self.dtype)

    @property
    def signed(self):
        return self.dtype in dtypes.SIGNED

    def round(self, x):
        """``x`` rounded once to the dtype, in float64 again."""
        return rounded(x, self.dtype).astype(np.float64)


def words(dtype):
    """Every value of a dtype of at most 16 bits."""
    if dtype == dtypes.bool_:
        return np.array([False, True])
    bits = dtypes.bit_width(dtype)
    if bits == 4:
        return (np.arange(16) - (8 if dtype == dtypes.int4 else 0)).astype(np.int8).astype(dtype)
    return np.arange(1 << bits).astype(f"u{bits // 8}").view(dtype)


def singles(mantissas):
    """float32 of every exponent and sign: ``mantissas`` fractions spread evenly, ties of narrow formats, ends."""
    even = np.arange(0, 1 << 23, (1 << 23) // mantissas)
    ends = [0, 1, 2, (1 << 23) - 1, (1 << 23) - 2]
    ties = [(k << cut) + (1 << (cut - 1)) + e for cut in (13, 16, 20, 21) for k in (0, 1, 2, 3) for e in (-1, 0, 1)]
    ties += [
        (k << cut) - (1 << (cut - 1)) + e + (1 << 23) - (1 << cut)
        for cut in (13, 16, 20, 21)
        for k in (0, 1)
        for e in (-1, 0, 1)
    ]
    # Subnormal numbers of float16 and float8 have their ties at higher bits.
    ties += [(1 << b) + e for b in range(23) for e in (-1, 0, 1)] + [
        (3 << b) + e for b in range(22) for e in (-1, 0, 1)
    ]
    fractions = np.unique(np.concatenate([even, ends, ties])) & ((1 << 23) - 1)
    top = (np.arange(512) << 23)[:, None]
    return (top | fractions[None]).reshape(-1).astype(np.uint32).view(np.float32)


def wide(x):
    """Operands as the meanings take them. A NaN is a quiet one: of signaling ones C's `pow` may say either 1 or NaN."""
    if x.dtype not in dtypes.FLOAT:
        return x if x.dtype == dtypes.bool_ else x.astype(np.int64)
    x = x.astype(np.float64)
    return np.where(np.isnan(x), np.copysign(np.nan, x), x)


@lru_cache(None)
def magnitudes(dtype):
    """Finite numbers from 0 up, each at the place that its word is, and the one that would be next; middles between."""
    x = words(dtype)[: 1 << (dtypes.bit_width(dtype) - 1)].astype(np.float64)
    x = x[np.isfinite(x)]
    assert (np.diff(x) > 0).all()
    x = np.append(x, 2 * x[-1] - x[-2])
    return x, (x[1:] + x[:-1]) / 2


def rounded(x, dtype):
    """float64 rounded to ``dtype``, ties to even; past the last number infinite, or NaN where infinity is not."""
    x = np.asarray(x, np.float64)
    if dtype.itemsize > 2:
        return x.astype(dtype)
    _, middle = magnitudes(dtype)
    size = np.abs(x)
    word = np.searchsorted(middle, size)
    tie = size == middle[np.minimum(word, len(middle) - 1)]
    word += tie & (word & 1).astype(bool)
    sign = np.signbit(x) & ((word > 0) | signed_zero(dtype))
    y = (word | sign.astype(np.int64) << (dtypes.bit_width(dtype) - 1)).astype(f"u{dtype.itemsize}").view(dtype)
    return np.where(np.isnan(x), np.array(np.nan, dtype), y)


def signed_zero(dtype):
    return "fnuz" not in dtype.name


def wrapped(x, dtype):
    """Integers modulo the range of ``dtype``, in int64."""
    bits = dtypes.bit_width(dtype)
    low = -(1 << (bits - 1)) if dtype in dtypes.SIGNED else 0
    return (x.astype(np.int64) - low) % (1 << bits) + low


def errors(got, want, dtype):
    """Distance of each result from what is wanted, in units of the last place; infinite where the kind differs."""
    if dtype == dtypes.bool_:
        return np.where(got == want, 0, np.inf)
    if dtype in dtypes.INTEGER:
        return np.where(got.astype(np.int64) == wrapped(want, dtype), 0, np.abs(got.astype(np.float64) - want))
    info = ml_dtypes.finfo(dtype)
    top = float(info.max) + 2.0 ** (np.frexp(float(info.max))[1] - 1 - info.nmant)
    y, want = got.astype(np.float64), np.asarray(want, np.float64)
    if not np.isinf(np.array(np.inf, dtype).astype(np.float64)):
        # NaN stands for what is too large.
        y = np.where(np.isnan(y) & (np.abs(want) > float(info.max)), np.copysign(np.inf, want), y)
    exponent = np.maximum(np.frexp(want)[1] - 1, info.minexp)
    inside = np.clip(want, -top, top)
    error = np.abs(np.clip(y, -top, top) - inside) / np.ldexp(
        1.0, np.where(np.isfinite(want), exponent, 0) - info.nmant
    )
    error = np.where(np.isinf(want), np.where(y == want, 0, np.inf), error)
    if signed_zero(dtype):
        error = np.where(np.signbit(y) == np.signbit(want), error, np.inf)
    return np.where(np.isnan(want), np.where(np.isnan(y), 0, np.inf), np.where(np.isnan(y), np.inf, error))


def unlike(got, want, dtype, bound, right=None):
    """Where results are not what the row promises; ``right`` is ``want`` rounded, if that is known."""
    if dtype not in dtypes.FLOAT:
        return errors(got, want, dtype) > 0
    right = rounded(want, dtype) if right is None else right
    word = f"u{dtype.itemsize}"
    bad = (np.ascontiguousarray(got).view(word) != right.view(word)) & ~(np.isnan(got) & np.isnan(right))
    if np.any(bound != EXACT) and bad.any():
        bad[bad] = errors(got[bad], np.asarray(want, np.float64)[bad], dtype) > np.broadcast_to(bound, bad.shape)[bad]
    return bad


# --- conversions ---


def _to_float(value, bits):
    """A Python integer with ``bits`` significant bits, ties to even."""
    size, shift = abs(value), max(abs(value).bit_length() - bits, 0)
    whole, rest = size >> shift, size & ((1 << shift) - 1)
    half = (1 << shift) >> 1
    whole += bool(shift) and (rest > half or (rest == half and whole & 1 == 1))
    return float((whole << shift) * (-1 if value < 0 else 1))


def converted(x, new):
    """``x`` by value in another real dtype: nearest even; floats cut off and saturated; integers modulo the range."""
    old = x.dtype
    if new == dtypes.bool_:
        return x != np.zeros((), old)
    if old not in dtypes.FLOAT:
        values = [int(v) for v in x]
        if new in dtypes.FLOAT:
            # Narrow floats by way of float32, as XLA does.
            wides = np.array([_to_float(v, 53 if new == dtypes.float64 else 24) for v in values])
            return rounded(wides, new)
        low, size = int(dtypes.integer_info(new).min), 1 << dtypes.bit_width(new)
        y = [(v - low) % size + low for v in values]
    else:
        wide_x = x.astype(np.float64)
        if new in dtypes.FLOAT:
            return rounded(wide_x, new)
        low, high = int(dtypes.integer_info(new).min), int(dtypes.integer_info(new).max)
        y = [0 if v != v else low if v <= low else high if v >= high else int(v) for v in wide_x.tolist()]
    return (
        np.array(y, np.int64 if low < 0 else np.uint64)
        .astype(np.int8 if dtypes.bit_width(new) == 4 else new)
        .astype(new)
    )


def hard(dtype):
    """All values of narrow dtypes; of others those next to where a conversion turns."""
    if dtype.itemsize <= 2:
        return words(dtype)
    if dtype == dtypes.float32:
        return singles(8)
    if dtype == dtypes.float64:
        x = singles(1)[::3].astype(np.float64)
        return np.concatenate([x, x * (1 + 2.0**-40), x * (1 - 2.0**-40)])
    bits, info = dtypes.bit_width(dtype), dtypes.integer_info(dtype)
    some = {(1 << k) + (m << j) + e for k in range(bits) for j in range(0, k, 3) for m in (0, 1, 3) for e in (-1, 0, 1)}
    return np.array(sorted(v for v in some | {-v for v in some} if info.min <= v <= info.max), object).astype(dtype)
