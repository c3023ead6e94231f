"""Rules of pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.onnx.products import padding, window_places
from nxjax.interop.onnx.shapes import ints
from nxjax.interop.onnx.walk import rule
from nxjax.trace import dtypes


class _Windows:
    """The windows of a pool over an array [n, c, ...]: their padding, and what more is read at the end."""

    def __init__(
        self, x: Any, kernel: Sequence[int], strides: Any, pads: Any, dilations: Any, auto_pad: str, ceil_mode: int
    ) -> None:
        self.rank = len(kernel)
        self.kernel = tuple(kernel)
        self.strides = tuple(strides or (1,) * self.rank)
        self.dilations = tuple(dilations or (1,) * self.rank)
        self.sizes = x.shape[2:]
        self.pads = padding(auto_pad, pads, self.sizes, self.kernel, self.strides, self.dilations)
        self.around: list[tuple[int, int]] = []
        for n, k, s, d, (a, b) in zip(self.sizes, self.kernel, self.strides, self.dilations, self.pads, strict=True):
            room = n + a + b - (k - 1) * d - 1
            count = (-(-room // s) if ceil_mode else room // s) + 1
            if ceil_mode and (count - 1) * s >= n + a:
                count -= 1  # the last window may not begin in the padding at the end
            self.around.append((a, max((count - 1) * s + (k - 1) * d + 1 - n - a, 0)))

    def reduced(self, x: Any, start: Any, function: Any) -> Any:
        outer = (1, 1)
        # An end that no window reads is cut, where a window would fit into it.
        return lax.reduce_window(
            x, jnp.asarray(start, x.dtype), function, (*outer, *self.kernel), (*outer, *self.strides),
            ((0, 0), (0, 0), *self.around), None, (*outer, *self.dilations),
        )  # fmt: skip

    def counts(self, with_padding: bool) -> np.ndarray[Any, Any]:
        """How many elements each window averages."""
        total: Any = np.ones((), np.float64)
        for i, (n, k, s, d) in enumerate(zip(self.sizes, self.kernel, self.strides, self.dilations, strict=True)):
            (a, b), (_, end) = self.pads[i], self.around[i]
            line = np.zeros(n + a + end)
            line[0 if with_padding else a : min(n + a + b, line.size) if with_padding else a + n] = 1
            count = (line.size - (k - 1) * d - 1) // s + 1
            each = line[np.arange(count)[:, None] * s + np.arange(k) * d].sum(1)
            shape = [1] * self.rank
            shape[i] = count
            total = total * each.reshape(shape)
        return total


@rule("MaxPool", moves=True)
def max_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, pads: Any = None,
    storage_order: int = 0, strides: Any = None, outputs: int,
) -> Any:  # fmt: skip
    windows = _Windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    least = dtypes.lowest(x.dtype)
    y = windows.reduced(x, least, lax.max)
    if outputs < 2:
        return y
    # Places of maxima: windows written out, the first of equal elements.
    padded = jnp.pad(x, ((0, 0), (0, 0), *windows.around), constant_values=least)
    index = window_places(padded.shape[2:], windows.kernel, windows.strides, windows.dilations)
    read = padded.reshape((*x.shape[:2], -1))[:, :, jnp.asarray(index)]
    chosen = jnp.argmax(read, -1)[..., None]
    where = jnp.broadcast_to(jnp.asarray(index), (*x.shape[:2], *index.shape))
    at = jnp.take_along_axis(where, chosen, axis=-1)[..., 0]
    flat: Any = 0
    spots = list(np.unravel_index(np.arange(int(np.prod(padded.shape[2:]))), padded.shape[2:]))
    order = range(windows.rank) if not storage_order else reversed(range(windows.rank))
    for i in order:
        flat = flat * x.shape[2 + i] + (spots[i] - windows.around[i][0])
    inside = jnp.asarray(np.asarray(flat, np.int64))[at]
    image = int(np.prod(x.shape[2:]))
    planes = jnp.arange(x.shape[0] * x.shape[1], dtype=jnp.int64) * image
    return y, inside + planes.reshape((*x.shape[:2], *(1,) * windows.rank))


@rule("AveragePool")
def average_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, count_include_pad: int = 0,
    dilations: Any = None, pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    windows = _Windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    total = windows.reduced(x, 0, lax.add)
    return total / jnp.asarray(windows.counts(bool(count_include_pad)).astype(x.dtype))


@rule("LpPool")
def _lp_pool(
    x: Any, *, kernel_shape: Any, auto_pad: str = "NOTSET", ceil_mode: int = 0, dilations: Any = None, p: Any = 2,
    pads: Any = None, strides: Any = None,
) -> Any:  # fmt: skip
    windows = _Windows(x, kernel_shape, strides, pads, dilations, auto_pad, ceil_mode)
    return windows.reduced(jnp.abs(x) ** p, 0, lax.add) ** (1 / p)


def _spatial(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@rule("GlobalAveragePool")
def _global_average(x: Any) -> Any:
    return x.mean(_spatial(x), keepdims=True)


@rule("GlobalMaxPool", moves=True)
def _global_max(x: Any) -> Any:
    return x.max(_spatial(x), keepdims=True)


@rule("GlobalLpPool")
def _global_lp(x: Any, *, p: Any = 2) -> Any:
    return (jnp.abs(x) ** p).sum(_spatial(x), keepdims=True) ** (1 / p)


@rule("MaxUnpool", known=("shape",))
def _max_unpool(
    x: Any, places: Any, shape: Any = None, *, kernel_shape: Any, pads: Any = None, strides: Any = None
) -> Any:
    rank = len(kernel_shape)
    strides = strides or (1,) * rank
    around = padding("NOTSET", pads, x.shape[2:], kernel_shape, strides, (1,) * rank)
    plain = [
        (n - 1) * s + k - a - b for n, s, k, (a, b) in zip(x.shape[2:], strides, kernel_shape, around, strict=True)
    ]
    # Places count in the array that was pooled, whatever the shape of the result.
    small = (*x.shape[:2], *plain)
    flat = jnp.zeros(int(np.prod(small)), x.dtype).at[places.reshape(-1)].set(x.reshape(-1)).reshape(small)
    if shape is None:
        return flat
    return jnp.pad(flat, [(0, n - m) for n, m in zip(ints(shape), small, strict=True)])
