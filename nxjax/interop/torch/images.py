"""Rules that resample images: interpolation to another size, samples at the points of a grid.

A size is changed by one product with a matrix for each axis, made while the graph is walked. The cubic kernel is Keys',
IEEE Transactions on Acoustics, Speech, and Signal Processing 29 (6), 1981, with a = -0.75.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.onnx.images import grid_sample, resize_matrix
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes

NDArray = np.ndarray[Any, Any]


def _sizes(x: Any, size: Any, scales: Any) -> tuple[list[int], list[float | None]]:
    """The sizes of the result, and the scale of each axis where it counts instead of their quotient."""
    rank = x.ndim - 2
    if size is not None:
        return [int(n) for n in size], [None] * rank
    return [math.floor(n * float(s)) for n, s in zip(x.shape[2:], scales, strict=True)], [float(s) for s in scales]


def _nearest(x: Any, size: list[int], scales: list[float | None], exact: bool) -> Any:
    for i, (m, s) in enumerate(zip(size, scales, strict=True)):
        n = x.shape[2 + i]
        # In single precision, as torch finds the places.
        step = np.float32(1 / s if s else n / m)
        at = np.floor((np.arange(m, dtype=np.float32) + np.float32(0.5 if exact else 0)) * step)
        x = jnp.take(x, jnp.asarray(np.minimum(at, n - 1).astype(np.int64)), axis=2 + i)
    return x


def _smooth(
    x: Any, size: list[int], scales: list[float | None], align: bool, mode: str, antialias: bool = False
) -> Any:
    wide = x.astype(dtypes.float32) if x.dtype in dtypes.NARROW or x.dtype not in dtypes.FLOAT else x
    for i, (m, s) in enumerate(zip(size, scales, strict=True)):
        n = x.shape[2 + i]
        if n == m and s in (None, 1.0):
            continue
        y = np.arange(m, dtype=np.float64)
        step = 1 / s if s else n / m
        if align:
            step = (n - 1) / (m - 1) if m > 1 else 0.0
        if align and not antialias:
            at = y * step
        else:
            at = (y + 0.5) * step - 0.5
            at = np.maximum(at, 0) if mode == "linear" and not antialias else at
        matrix = resize_matrix(
            mode, at, n, 1 / step if step else 1.0, -0.5 if antialias else -0.75, antialias, antialias
        )
        moved = jnp.moveaxis(wide, 2 + i, -1)
        wide = jnp.moveaxis(jnp.matmul(moved, jnp.asarray(matrix.T.astype(wide.dtype))), -1, 2 + i)
    if x.dtype in dtypes.INTEGER:
        wide = jnp.clip(jnp.round(wide), int(dtypes.lowest(x.dtype)), int(dtypes.highest(x.dtype)))
    return wide.astype(x.dtype)


def _given(args: tuple[Any, ...], named: dict[str, Any], rank: int) -> list[float | None]:
    scales = [*args, *(named[k] for k in ("scales_d", "scales_h", "scales_w", "scales") if k in named)]
    return [*scales, *[None] * (rank - len(scales))]


def _families(exact: bool) -> None:
    name = "_upsample_nearest_exact" if exact else "upsample_nearest"
    for rank in (1, 2, 3):

        def by_size(self: Any, output_size: Any, *scales: Any, **named: Any) -> Any:
            return _nearest(self, [int(n) for n in output_size], _given(scales, named, len(output_size)), exact)

        def vec(input: Any, output_size: Any, scale_factors: Any) -> Any:
            return _nearest(input, *_sizes(input, output_size, scale_factors), exact)

        rule(f"{name}{rank}d")(by_size)
        rule(f"{name}{rank}d.vec")(vec)


_families(False)
_families(True)


def _smooth_family(name: str, mode: str, antialias: bool) -> None:
    def by_size(self: Any, output_size: Any, align_corners: bool, *scales: Any, **named: Any) -> Any:
        sizes = [int(n) for n in output_size]
        return _smooth(self, sizes, _given(scales, named, len(sizes)), align_corners, mode, antialias)

    def vec(input: Any, output_size: Any, align_corners: bool, scale_factors: Any) -> Any:
        return _smooth(input, *_sizes(input, output_size, scale_factors), align_corners, mode, antialias)

    rule(name)(by_size)
    rule(f"{name}.vec")(vec)


_smooth_family("upsample_linear1d", "linear", False)
_smooth_family("upsample_bilinear2d", "linear", False)
_smooth_family("upsample_trilinear3d", "linear", False)
_smooth_family("upsample_bicubic2d", "cubic", False)
_smooth_family("_upsample_bilinear2d_aa", "linear", True)
_smooth_family("_upsample_bicubic2d_aa", "cubic", True)


def _grid_sampler(input: Any, grid: Any, interpolation_mode: int, padding_mode: int, align_corners: bool) -> Any:
    wide = input.dtype in dtypes.NARROW
    y = grid_sample(
        input.astype(dtypes.float32) if wide else input,
        grid.astype(dtypes.float32) if wide else grid,
        align_corners=int(align_corners),
        mode=("linear", "nearest", "cubic")[interpolation_mode],
        padding_mode=("zeros", "border", "reflection")[padding_mode],
    )
    return y.astype(input.dtype)


rule("grid_sampler", "grid_sampler_2d", "grid_sampler_3d")(_grid_sampler)


@rule("affine_grid_generator")
def _affine_grid(theta: Any, size: Any, align_corners: bool) -> Any:
    sizes = [int(n) for n in size[2:]]
    lines = [np.linspace(-1, 1, n) if align_corners else (np.arange(n) * 2 + 1) / n - 1 for n in sizes]
    grids = np.meshgrid(*lines, indexing="ij")
    points = np.stack([*reversed(grids), np.ones(sizes)], -1).astype(theta.dtype)
    return jnp.einsum("...j,nij->n...i", jnp.asarray(points), theta)


@rule("pixel_shuffle")
def _pixel_shuffle(self: Any, upscale_factor: int) -> Any:
    *outer, c, h, w = self.shape
    r = upscale_factor
    k = len(outer)
    y = self.reshape((*outer, c // (r * r), r, r, h, w))
    y = y.transpose((*range(k), k, k + 3, k + 1, k + 4, k + 2))
    return y.reshape((*outer, c // (r * r), h * r, w * r))


@rule("pixel_unshuffle")
def _pixel_unshuffle(self: Any, downscale_factor: int) -> Any:
    *outer, c, h, w = self.shape
    r = downscale_factor
    k = len(outer)
    y = self.reshape((*outer, c, h // r, r, w // r, r)).transpose((*range(k), k, k + 2, k + 4, k + 1, k + 3))
    return y.reshape((*outer, c * r * r, h // r, w // r))


@rule("channel_shuffle", "native_channel_shuffle")
def _channel_shuffle(self: Any, groups: int) -> Any:
    n, c, *rest = self.shape
    return self.reshape((n, groups, c // groups, *rest)).swapaxes(1, 2).reshape(self.shape)
