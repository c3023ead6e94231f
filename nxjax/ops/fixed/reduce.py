"""Integer means, sums and products, as LiteRT's reference kernels compute them.

Sums are the exception: LiteRT rounds them in float32, so some of its elements differ by one, and those of its reference
kernel for int8 by more.

The factor 1 / count of a mean is folded into the multiplier before the one rescaling.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.fixed.point import quantize_multiplier, rescale, rescale_wide, wrap32
from nxjax.ops.quant_grid import Grid, Rounding


def _centred_sum(x: NDArray, grid: Grid, axes: Sequence[int]) -> tuple[NDArray, int]:
    count = math.prod(x.shape[a] for a in axes)
    total = wrap32(np.sum(x, tuple(axes), dtype=np.int64))
    return wrap32(total - grid.zero_point * count), count


def _factor(x_grid: Grid, out: Grid, rounding: Rounding) -> tuple[int, int]:
    assert not isinstance(x_grid.scale, tuple) and not isinstance(out.scale, tuple)
    multiplier, shift = quantize_multiplier(
        np.float64(np.float32(x_grid.scale)) / np.float64(np.float32(out.scale)), rounding
    )
    return int(multiplier), int(shift)


def _stored(x: NDArray, out: Grid) -> NDArray:
    return np.clip(wrap32(x + out.zero_point), *out.limits).astype(out.dtype)


def mean(x: NDArray, x_grid: Grid, out: Grid, axes: Sequence[int], rounding: Rounding = "double") -> NDArray:
    """Stored mean over ``axes``, which leave the shape.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> mean(np.int8([[1, 2, 6]]), g, g, (1,)).tolist()
    [3]
    """
    total, count = _centred_sum(x, x_grid, axes)
    multiplier, shift = _factor(x_grid, out, rounding)
    # As many bits as the count has move from the shift to the multiplier, so that the division loses little.
    bits = min(count.bit_length() - 1, 32, 31 + shift)
    multiplier = (multiplier << bits) // count
    return _stored(rescale(total, multiplier, shift - bits, rounding), out)


def sum(x: NDArray, x_grid: Grid, out: Grid, axes: Sequence[int], rounding: Rounding = "double") -> NDArray:
    """Stored sum over ``axes``, which leave the shape.

    >>> g, h = Grid(np.dtype("int8"), 0.5, 0), Grid(np.dtype("int8"), 1.0, 0)
    >>> sum(np.int8([[1, 2, 6]]), g, h, (1,)).tolist()
    [5]
    """
    total, _ = _centred_sum(x, x_grid, axes)
    return _stored(rescale(total, *_factor(x_grid, out, rounding), rounding), out)


def average(sums: NDArray, counts: Any, lo: int, hi: int) -> NDArray:
    """``sums / counts`` to the nearest integer, halves away from zero, clamped; int64. Grid in, same grid out.

    >>> average(np.array([5, -5, 4]), 2, -128, 127).tolist()
    [3, -3, 2]
    """
    sums, counts = np.asarray(sums, np.int64), np.asarray(counts, np.int64)
    size = (np.abs(sums) + counts // 2) // counts
    return np.clip(np.where(sums > 0, size, -size), lo, hi)


def product(x: NDArray, x_grid: Grid, out: Grid, axes: Sequence[int], rounding: Rounding = "double") -> NDArray:
    """Stored product over ``axes``, which leave the shape.

    Every factor is scaled by the count-th root of the whole factor, so that the product of stored values stays small.

    >>> g = Grid(np.dtype("int8"), 0.5, 0)
    >>> product(np.int8([[2, 4, 6]]), g, g, (1,)).tolist()
    [12]
    """
    assert not isinstance(x_grid.scale, tuple) and not isinstance(out.scale, tuple)
    kept = [a for a in range(x.ndim) if a not in axes]
    count = math.prod(x.shape[a] for a in axes)
    rows = x.transpose(*kept, *sorted(axes)).reshape([x.shape[a] for a in kept] + [count])
    rows = rows.astype(np.int64) - x_grid.zero_point
    real = np.float64(np.float32(x_grid.scale)) / np.float64(np.float32(out.scale)) ** (1.0 / count)
    multiplier, shift = quantize_multiplier(real, rounding)
    total = rows[..., 0]
    for i in range(1, count):
        total = rescale_wide(total * rows[..., i], multiplier, shift)
    return _stored(rescale_wide(total, multiplier, shift), out)
