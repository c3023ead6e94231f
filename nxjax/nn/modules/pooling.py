"""Pooling of images ``[n, c, h, w]``: MaxPool2d, AvgPool2d, AdaptiveAvgPool2d."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.nn.modules.base import Module, one, pair, per_image
from nxjax.numpy.promotion import promote_inexact
from nxjax.ops import window
from nxjax.ops.base import like
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array


class _Pool(Module):
    """A window moved over rows and columns."""

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: str | int | Sequence[int] = 0,
    ) -> None:
        name = type(self).__name__
        self.kernel_size = pair(name, "kernel_size", kernel_size)
        self.stride = self.kernel_size if stride is None else pair(name, "stride", stride)
        self.padding = pair(name, "padding", padding, 0)
        if any(2 * p > k for p, k in zip(self.padding, self.kernel_size, strict=True)):
            raise ParameterError(f"{name}: padding", got=padding, expected="at most half of the kernel size")

    def _window(self) -> dict[str, Any]:
        return {
            "window_dimensions": (1, 1, *self.kernel_size),
            "window_strides": (1, 1, *self.stride),
            "padding": ((0, 0), (0, 0), *((p, p) for p in self.padding)),
            "base_dilation": (1, 1, 1, 1),
            "window_dilation": (1, 1, 1, 1),
        }

    def _settings(self) -> str:
        words = [f"kernel_size={one(self.kernel_size)}"]
        if self.stride != self.kernel_size:
            words.append(f"stride={one(self.stride)}")
        return ", ".join([*words, *([f"padding={one(self.padding)}"] if any(self.padding) else [])])


@final
class MaxPool2d(_Pool):
    """The largest element of each window; padding does not count.

    Args:
        kernel_size: of the window, an int or two.
        stride: of the window; ``kernel_size`` by default.
        padding: on each side, at most half of ``kernel_size``.

    >>> MaxPool2d(2)(jnp.arange(16.0).reshape(1, 1, 4, 4)).tolist()
    [[[[5.0, 7.0], [13.0, 15.0]]]]
    """

    def __call__(self, x: ArrayLike) -> Array:
        return per_image(self, x, lambda v: window.reduce_window_max(v, **self._window()))


@final
class AvgPool2d(_Pool):
    """The mean of each window.

    Args:
        kernel_size, stride, padding: as in `MaxPool2d`.
        count_include_pad: whether padding counts as zeros, or not at all.

    >>> AvgPool2d(2)(jnp.arange(16.0).reshape(1, 1, 4, 4)).tolist()
    [[[[2.5, 4.5], [10.5, 12.5]]]]
    """

    def __init__(
        self,
        kernel_size: int | Sequence[int],
        stride: int | Sequence[int] | None = None,
        padding: str | int | Sequence[int] = 0,
        count_include_pad: bool = True,
    ) -> None:
        super().__init__(kernel_size, stride, padding)
        self.count_include_pad = bool(count_include_pad)

    def __call__(self, x: ArrayLike) -> Array:
        return per_image(self, x, self._pooled)

    def _pooled(self, x: Array) -> Array:
        (v,) = promote_inexact("AvgPool2d", x)
        sums = window.reduce_window_sum(v, **self._window())
        if self.count_include_pad or not any(self.padding):
            return sums / (self.kernel_size[0] * self.kernel_size[1])
        return sums / window.reduce_window_sum(like(v, 1), **self._window())

    def _settings(self) -> str:
        return super()._settings() + ("" if self.count_include_pad else ", count_include_pad=False")


@final
class AdaptiveAvgPool2d(Module):
    """Means over ``output_size`` windows, for images of any size.

    Window ``i`` of ``m`` over ``n`` rows goes from ``floor(i * n / m)`` to ``ceil((i + 1) * n / m)``, as in PyTorch.

    >>> AdaptiveAvgPool2d(1)(jnp.ones((2, 8, 7, 7))).shape
    (2, 8, 1, 1)
    """

    def __init__(self, output_size: int | Sequence[int]) -> None:
        self.output_size = pair("AdaptiveAvgPool2d", "output_size", output_size)

    def __call__(self, x: ArrayLike) -> Array:
        return per_image(self, x, self._pooled)

    def _pooled(self, x: Array) -> Array:
        (v,) = promote_inexact("AdaptiveAvgPool2d", x)
        if self.output_size == (1, 1):
            return jnp.mean(v, axis=(2, 3), keepdims=True)
        if all(n % m == 0 for n, m in zip(v.shape[2:], self.output_size, strict=True)):
            return AvgPool2d(tuple(n // m for n, m in zip(v.shape[2:], self.output_size, strict=True)))(v)
        rows, columns = (_averages(n, m).astype(v.dtype) for n, m in zip(v.shape[2:], self.output_size, strict=True))
        y = lax.dot_general(v, columns, (((3,), (1,)), ((), ())))
        return jnp.moveaxis(lax.dot_general(y, rows, (((2,), (1,)), ((), ()))), 3, 2)

    def _settings(self) -> str:
        return one(self.output_size)


def _averages(n: int, m: int) -> np.ndarray[Any, Any]:
    """The matrix [m, n] whose rows take the means of the windows."""
    out = np.zeros((m, n))
    for i in range(m):
        start, stop = i * n // m, -(-(i + 1) * n // m)
        out[i, start:stop] = 1 / (stop - start)
    return out
