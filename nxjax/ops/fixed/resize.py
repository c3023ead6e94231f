"""Resizing of stored images [n, h, w, c]: bilinear in 10-bit fixed point, and nearest neighbour.

The grid does not change, so no grid is asked for. ``align_corners`` and ``half_pixel_centers`` as in TensorFlow.
"""

from __future__ import annotations

import numpy as np

from nxjax.ops.base import NDArray
from nxjax.ops.quant_grid import Rounding

ONE = 1 << 10


def fixed_positions(
    size: int, to: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[NDArray, NDArray, NDArray]:
    """Lower neighbour, upper neighbour and the distance from the lower in 1/1024, per output position."""
    if align_corners and to > 1:
        step = (ONE * (size - 1) + (to - 1) // 2) // (to - 1)
    else:
        step = (ONE * size + to // 2) // to
    at = np.arange(to, dtype=np.int64) * step
    if half_pixel_centers:
        at = at + step // 2 - ONE // 2
    # C++ division cuts towards zero.
    cut = lambda v: np.where(v >= 0, v // ONE, -(-v // ONE))
    low = np.maximum(cut(at), 0)
    return low, np.minimum(cut(at + ONE - 1), size - 1), at - ONE * low


def real_positions(
    size: int, to: int, align_corners: bool, half_pixel_centers: bool
) -> tuple[NDArray, NDArray, NDArray]:
    """Lower neighbour, upper neighbour and the distance from the lower in float32: bilinear resizing of floats."""
    f = np.float32
    scale = f(size - 1) / f(to - 1) if align_corners and to > 1 else f(size) / f(to)
    at = np.arange(to).astype(f)
    at = (at + f(0.5)) * scale - f(0.5) if half_pixel_centers else at * scale
    low = np.maximum(np.floor(at).astype(np.int64), 0)
    return low, np.minimum(np.ceil(at).astype(np.int64), size - 1), at - low.astype(f)


def resize_bilinear(
    x: NDArray,
    size: tuple[int, int],
    align_corners: bool = False,
    half_pixel_centers: bool = False,
    rounding: Rounding = "double",
) -> NDArray:
    """Stored values between the four neighbours, to the nearest ("single": halves up), modulo the storage dtype.

    >>> x = np.int8([0, 10]).reshape(1, 1, 2, 1)
    >>> resize_bilinear(x, (1, 4)).ravel().tolist()
    [0, 5, 10, 10]
    """
    y0, y1, dy = fixed_positions(x.shape[1], size[0], align_corners, half_pixel_centers)
    x0, x1, dx = fixed_positions(x.shape[2], size[1], align_corners, half_pixel_centers)
    wide = x.astype(np.int64)
    dy, dx = dy.reshape(-1, 1, 1), dx.reshape(-1, 1)
    total = (
        wide[:, y0][:, :, x0] * (ONE - dy) * (ONE - dx)
        + wide[:, y1][:, :, x0] * dy * (ONE - dx)
        + wide[:, y0][:, :, x1] * (ONE - dy) * dx
        + wide[:, y1][:, :, x1] * dy * dx
    )
    if rounding == "single":
        return ((total + (1 << 19)) >> 20).astype(x.dtype)
    nudged = np.abs(total) + (1 << 19) >> 20
    return np.where(total > 0, nudged, -nudged).astype(x.dtype)


def nearest_index(size: int, to: int, align_corners: bool, half_pixel_centers: bool) -> NDArray:
    """Which of ``size`` positions each of ``to`` positions takes; the arithmetic is float32.

    >>> nearest_index(2, 4, False, False).tolist()
    [0, 0, 1, 1]
    """
    f = np.float32
    scale = f(size - 1) / f(to - 1) if align_corners and to > 1 else f(size) / f(to)
    at = (np.arange(to).astype(f) + f(0.5 if half_pixel_centers else 0)) * scale
    whole = np.floor(at + f(0.5)) if align_corners else np.floor(at)
    return np.clip(whole.astype(np.int64), 0, size - 1)


def resize_nearest(
    x: NDArray, size: tuple[int, int], align_corners: bool = False, half_pixel_centers: bool = False
) -> NDArray:
    """The nearest neighbour of every output position; any dtype."""
    y = nearest_index(x.shape[1], size[0], align_corners, half_pixel_centers)
    z = nearest_index(x.shape[2], size[1], align_corners, half_pixel_centers)
    return x[:, y][:, :, z]
