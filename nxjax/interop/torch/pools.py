"""Rules of pooling."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.onnx.products import window_places
from nxjax.interop.torch.walk import rule
from nxjax.trace import dtypes


def _spread(v: Any, rank: int, default: Sequence[int] = ()) -> tuple[int, ...]:
    given = [v] if isinstance(v, int) else list(v)
    return tuple(given * rank if len(given) == 1 else given or default)


class _Windows:
    """The windows of a pool over the last ``rank`` axes: what they read after the end is padding, too."""

    def __init__(self, x: Any, rank: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil: bool) -> None:
        self.rank, self.shape = rank, x.shape
        self.outer = x.ndim - rank
        self.kernel = _spread(kernel, rank)
        self.stride = _spread(stride, rank, self.kernel)
        self.padding = _spread(padding, rank)
        self.dilation = _spread(dilation, rank)
        self.edges: list[tuple[int, int]] = []
        for n, k, s, p, d in zip(
            x.shape[self.outer :], self.kernel, self.stride, self.padding, self.dilation, strict=True
        ):
            room = n + 2 * p - (k - 1) * d - 1
            count = (-(-room // s) if ceil else room // s) + 1
            if ceil and (count - 1) * s >= n + p:
                count -= 1  # the last window may not begin in the padding at the end
            if count <= 0:
                raise ValueError(f"a window of {k} over an axis of {n}")
            self.edges.append((p, max((count - 1) * s + (k - 1) * d + 1 - n - p, 0)))

    def reduced(self, x: Any, start: Any, function: Any) -> Any:
        ones = (1,) * self.outer
        return lax.reduce_window(
            x, jnp.asarray(start, x.dtype), function, (*ones, *self.kernel), (*ones, *self.stride),
            (*((0, 0),) * self.outer, *self.edges), None, (*ones, *self.dilation),
        )  # fmt: skip

    def counts(self, with_padding: bool) -> np.ndarray[Any, Any]:
        """How many elements each window averages; beyond the padding at the end there are none."""
        total: Any = np.ones((), np.float64)
        for i, n in enumerate(self.shape[self.outer :]):
            p, end = self.padding[i], self.edges[i][1]
            line = np.zeros(n + p + end)
            line[0 if with_padding else p : (n + 2 * p) if with_padding else n + p] = 1
            count = (line.size - self.kernel[i]) // self.stride[i] + 1
            each = line[np.arange(count)[:, None] * self.stride[i] + np.arange(self.kernel[i])].sum(1)
            total = total * each.reshape((-1,) + (1,) * (self.rank - 1 - i))
        return total

    def places(self, x: Any) -> tuple[Any, Any]:
        """The elements of each window [..., *out, elements], and their places in the operand without padding."""
        least = dtypes.lowest(x.dtype)
        padded = jnp.pad(x, [(0, 0)] * self.outer + self.edges, constant_values=least)
        index = window_places(padded.shape[self.outer :], self.kernel, self.stride, self.dilation)
        read = padded.reshape((*x.shape[: self.outer], -1))[..., jnp.asarray(index)]
        spots = np.unravel_index(index, padded.shape[self.outer :])
        flat: Any = 0
        for i, n in enumerate(self.shape[self.outer :]):
            flat = flat * n + (spots[i] - self.edges[i][0])
        return read, jnp.asarray(np.asarray(flat, np.int64))


def _max_pool(rank: int, with_places: bool) -> Any:
    def run(
        self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False
    ) -> Any:
        windows = _Windows(self, rank, kernel_size, stride, padding, dilation, ceil_mode)
        y = windows.reduced(self, dtypes.lowest(self.dtype), lax.max)
        if not with_places:
            return y
        read, places = windows.places(lax.stop_gradient(self))
        chosen = jnp.argmax(read, -1)[..., None]
        at = jnp.take_along_axis(jnp.broadcast_to(places, read.shape), chosen, axis=-1)[..., 0]
        return y, at.astype(dtypes.int64)

    return run


for _i in (1, 2, 3):
    rule(f"max_pool{_i}d")(_max_pool(_i, False))
    rule(f"max_pool{_i}d_with_indices")(_max_pool(_i, True))


def _average(windows: _Windows, x: Any, include: bool, divisor: int | None) -> Any:
    wide = x.astype(dtypes.float32) if x.dtype in dtypes.NARROW else x
    total = windows.reduced(wide, 0, lax.add)
    y = total / (divisor if divisor else jnp.asarray(windows.counts(include).astype(total.dtype)))
    return y.astype(x.dtype)


@rule("avg_pool1d")
def _avg_pool1d(
    self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Any:  # fmt: skip
    return _average(_Windows(self, 1, kernel_size, stride, padding, 1, ceil_mode), self, count_include_pad, None)


def _avg_pool(rank: int) -> Any:
    def run(
        self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
        count_include_pad: bool = True, divisor_override: int | None = None,
    ) -> Any:  # fmt: skip
        windows = _Windows(self, rank, kernel_size, stride, padding, 1, ceil_mode)
        return _average(windows, self, count_include_pad, divisor_override)

    return run


rule("avg_pool2d")(_avg_pool(2))
rule("avg_pool3d")(_avg_pool(3))


def _bins(n: int, m: int) -> list[tuple[int, int]]:
    """First and last places of the ``m`` parts of an axis, which may share elements."""
    return [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]


def _sizes(x: Any, rank: int, wanted: Any) -> list[int]:
    given: Any = _spread(wanted, rank)
    return [n if m is None else int(m) for n, m in zip(x.shape[x.ndim - rank :], given, strict=True)]


def _adaptive_average(rank: int) -> Any:
    def run(self: Any, output_size: Any) -> Any:
        x = self.astype(dtypes.float32) if self.dtype in dtypes.NARROW else self
        outer = x.ndim - rank
        sizes = _sizes(x, rank, output_size)
        if all(m == 1 for m in sizes):
            return x.mean(tuple(range(outer, x.ndim)), keepdims=True).astype(self.dtype)
        for i, m in enumerate(sizes):
            n = x.shape[outer + i]
            # A product with the weights of each part.
            matrix = np.zeros((n, m))
            for j, (a, z) in enumerate(_bins(n, m)):
                matrix[a:z, j] = 1 / (z - a)
            moved = jnp.moveaxis(x, outer + i, -1)
            x = jnp.moveaxis(jnp.matmul(moved, jnp.asarray(matrix.astype(x.dtype))), -1, outer + i)
        return x.astype(self.dtype)

    return run


for _i in (1, 2, 3):
    rule(f"adaptive_avg_pool{_i}d")(_adaptive_average(_i))
rule("_adaptive_avg_pool2d")(_adaptive_average(2))
rule("_adaptive_avg_pool3d")(_adaptive_average(3))


def _adaptive_max(rank: int) -> Any:
    def run(self: Any, output_size: Any) -> Any:
        outer = self.ndim - rank
        sizes = _sizes(self, rank, output_size)
        # Places of all elements of each part; a shorter part repeats its first.
        flat: Any = np.zeros((), np.int64)
        for i, m in enumerate(sizes):
            n = self.shape[outer + i]
            bins = _bins(n, m)
            width = max(z - a for a, z in bins)
            at = np.array([[a + j if a + j < z else a for j in range(width)] for a, z in bins])
            shape = [1] * 2 * rank
            shape[i], shape[rank + i] = at.shape
            flat = flat * n + at.reshape(shape)
        places = jnp.asarray(flat.reshape((*sizes, -1)))
        read = self.reshape((*self.shape[:outer], -1))[..., places]
        chosen = jnp.argmax(lax.stop_gradient(read), -1)[..., None]
        y = jnp.take_along_axis(read, chosen, axis=-1)[..., 0]
        at = jnp.take_along_axis(jnp.broadcast_to(places, read.shape), chosen, axis=-1)[..., 0]
        return y, at.astype(dtypes.int64)

    return run


rule("adaptive_max_pool1d")(_adaptive_max(1))
rule("adaptive_max_pool2d")(_adaptive_max(2))
rule("adaptive_max_pool3d")(_adaptive_max(3))


def _unpool(rank: int) -> Any:
    def run(self: Any, indices: Any, output_size: Any, *_: Any) -> Any:
        outer = self.shape[: self.ndim - rank]
        rows = math.prod(outer)
        y = jnp.zeros((rows, math.prod(output_size)), self.dtype)
        y = y.at[jnp.arange(rows)[:, None], indices.reshape((rows, -1))].set(self.reshape((rows, -1)))
        return y.reshape((*outer, *output_size))

    return run


rule("max_unpool2d")(_unpool(2))
rule("max_unpool3d")(_unpool(3))
