"""Rules of pools and of resized images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.tflite.elementwise import activated
from nxjax.interop.tflite.products import edges
from nxjax.interop.tflite.shapes import ints
from nxjax.interop.tflite.walk import rule
from nxjax.ops.fixed.resize import nearest_index, real_positions
from nxjax.trace import dtypes


def pooled(x: Any, start: Any, function: Any, padding: int, window: tuple[int, int], strides: tuple[int, int]) -> Any:
    """Windows of an image, each reduced to one number."""
    around = ((0, 0), *edges(padding, x.shape[1:3], window, strides, (1, 1)), (0, 0))
    return lax.reduce_window(x, jnp.asarray(start, x.dtype), function, (1, *window, 1), (1, *strides, 1), around)


@rule("MAX_POOL_2D")
def _max_pool(
    x: Any, *, padding: int, stride_w: int, stride_h: int, filter_width: int, filter_height: int,
    fused_activation_function: int,
) -> Any:  # fmt: skip
    window, strides = (filter_height, filter_width), (stride_h, stride_w)
    return activated(pooled(x, dtypes.lowest(x.dtype), lax.max, padding, window, strides), fused_activation_function)


def _mean(x: Any, padding: int, window: tuple[int, int], strides: tuple[int, int]) -> Any:
    counts = pooled(jnp.ones((1, *x.shape[1:3], 1), x.dtype), 0, lax.add, padding, window, strides)
    return pooled(x, 0, lax.add, padding, window, strides) / counts


@rule("AVERAGE_POOL_2D")
def _average_pool(
    x: Any, *, padding: int, stride_w: int, stride_h: int, filter_width: int, filter_height: int,
    fused_activation_function: int,
) -> Any:  # fmt: skip
    return activated(_mean(x, padding, (filter_height, filter_width), (stride_h, stride_w)), fused_activation_function)


@rule("L2_POOL_2D")
def _l2_pool(
    x: Any, *, padding: int, stride_w: int, stride_h: int, filter_width: int, filter_height: int,
    fused_activation_function: int,
) -> Any:  # fmt: skip
    mean = _mean(x * x, padding, (filter_height, filter_width), (stride_h, stride_w))
    return activated(jnp.sqrt(mean), fused_activation_function)


@rule("RESIZE_BILINEAR", known=("size",))
def _resize_bilinear(x: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    for axis, to in zip((1, 2), ints(size), strict=True):
        low, high, far = real_positions(x.shape[axis], to, align_corners, half_pixel_centers)
        far = jnp.asarray(far.reshape([-1 if i == axis else 1 for i in range(4)]).astype(x.dtype))
        a, b = (jnp.take(x, jnp.asarray(at), axis=axis) for at in (low, high))
        x = a * (1 - far) + b * far
    return x


@rule("RESIZE_NEAREST_NEIGHBOR", known=("size",), on_grids="moved")
def _resize_nearest(x: Any, size: Any, *, align_corners: bool, half_pixel_centers: bool) -> Any:
    for axis, to in zip((1, 2), ints(size), strict=True):
        x = jnp.take(x, jnp.asarray(nearest_index(x.shape[axis], to, align_corners, half_pixel_centers)), axis=axis)
    return x


_WINDOWED: Final[tuple[Callable[..., Any] | None, ...]] = (None, lax.add, lax.mul, lax.min, lax.max)


@rule("REDUCE_WINDOW", known=("window", "strides", "dilations"))
def _reduce_window(x: Any, start: Any, window: Any, strides: Any, dilations: Any, *, reduce_function: int) -> Any:
    function = _WINDOWED[reduce_function] if 0 < reduce_function < len(_WINDOWED) else None
    if function is None:
        raise Refused("from_tflite: REDUCE_WINDOW of truth values", got=reduce_function)
    edges = [(0, 0)] * x.ndim
    return lax.reduce_window(x, start.reshape(()), function, ints(window), ints(strides), edges, None, ints(dilations))
