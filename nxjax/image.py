"""`jax.image`: resizing. Plain nearest and linear resizing is one op, which NPUs know; the rest are matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.promotion import promote_inexact, value
from nxjax.ops import resize as ops
from nxjax.trace.core import Array

NDArray = np.ndarray[Any, Any]


class ResizeMethod(Enum):
    """How `resize` interpolates.

    >>> ResizeMethod.from_string("bilinear").name
    'LINEAR'
    """

    NEAREST = 0
    LINEAR = 1
    LANCZOS3 = 2
    LANCZOS5 = 3
    CUBIC = 4

    @staticmethod
    def from_string(s: str) -> ResizeMethod:
        """A method by any of its names."""
        try:
            return _NAMES[s]
        except KeyError:
            raise ParameterError("resize: method", got=repr(s), expected=", ".join(_NAMES)) from None


_NAMES: Final = {
    "nearest": ResizeMethod.NEAREST,
    **dict.fromkeys(("linear", "bilinear", "trilinear", "triangle"), ResizeMethod.LINEAR),
    "lanczos3": ResizeMethod.LANCZOS3,
    "lanczos5": ResizeMethod.LANCZOS5,
    **dict.fromkeys(("cubic", "bicubic", "tricubic"), ResizeMethod.CUBIC),
}


def _triangle(x: NDArray) -> NDArray:
    return np.maximum(0, 1 - np.abs(x))


def _cubic(x: NDArray) -> NDArray:
    # Keys, "Cubic convolution interpolation for digital image processing" (1981), with a = -1/2.
    near = ((1.5 * x - 2.5) * x) * x + 1.0
    far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
    return np.where(x >= 2, 0.0, np.where(x >= 1, far, near))


def _lanczos(radius: float) -> Callable[[NDArray], NDArray]:
    def kernel(x: NDArray) -> NDArray:
        y = radius * np.sin(np.pi * x) * np.sin(np.pi * x / radius)
        out = np.where(x > 1e-3, y / np.where(x != 0, np.pi**2 * x**2, 1), 1)
        return np.where(x > radius, 0.0, out)

    return kernel


_KERNELS: Final = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _cubic,
}


def resize(
    image: Any, shape: Sequence[int], method: str | ResizeMethod, antialias: bool = True, precision: Any = None
) -> Array:
    """``image`` resized to ``shape``; centers of pixels lie at half integers.

    Args:
        image: array of any rank.
        shape: of the result; dimensions that keep their size are not touched.
        method: "nearest", "linear" (also "bilinear", "trilinear", "triangle"), "cubic" (also "bicubic", "tricubic"),
            "lanczos3", "lanczos5", or a `ResizeMethod`.
        antialias: when a dimension shrinks, widen the kernel so that nothing is skipped; not for "nearest".
        precision: of the matrix products.

    Raises:
        ShapeError: ``shape`` of another rank.

    >>> import nxjax.numpy as np
    >>> resize(np.array([0.0, 4.0]), (4,), "linear").tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    chosen = ResizeMethod.from_string(method) if isinstance(method, str) else method
    x = value(image, "resize")
    if len(shape) != x.ndim:
        raise ShapeError("resize: one size per dimension", got=tuple(shape), expected=f"{x.ndim} sizes for {x.type}")
    sizes = tuple(int(n) for n in shape)
    axes = tuple(i for i, (a, b) in enumerate(zip(x.shape, sizes, strict=True)) if a != b)
    if chosen is ResizeMethod.NEAREST:
        return ops.resize(x, axes=axes, sizes=tuple(sizes[a] for a in axes), method="nearest") if axes else x
    (x,) = promote_inexact("resize", x)
    if not axes:
        return x
    grows = all(sizes[a] >= x.shape[a] for a in axes)
    if chosen is ResizeMethod.LINEAR and (grows or not antialias):
        return ops.resize(x, axes=axes, sizes=tuple(sizes[a] for a in axes), method="linear")
    for a in axes:
        weights = _weights(x.shape[a], sizes[a], _KERNELS[chosen], antialias).astype(x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, ((a,), (0,)), precision=precision), -1, a)
    return x


def _weights(size: int, to: int, kernel: Callable[[NDArray], NDArray], antialias: bool) -> NDArray:
    """Columns of weights [size, to], each summing to 1; zero where the sample lies outside."""
    ratio = size / to
    width = max(ratio, 1.0) if antialias else 1.0
    at = (np.arange(to) + 0.5) * ratio - 0.5
    weights = kernel(np.abs(at[None, :] - np.arange(size)[:, None]) / width)
    total = weights.sum(0, keepdims=True)
    live = np.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    weights = np.where(live, weights / np.where(live, total, 1), 0)
    return np.where((at >= -0.5) & (at <= size - 0.5), weights, 0)
