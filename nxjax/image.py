"""`jax.image`: resizing. Plain nearest and linear resizing is one op, which NPUs know; the rest are matrix products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy import host_functions
from nxjax.numpy.promotion import as_operand, convert, promote_inexact
from nxjax.ops import resize as ops
from nxjax.ops.precision import Precision, PrecisionLike
from nxjax.trace.annotations import ArrayLike
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
    CUBIC_PYTORCH = 5
    AREA = 6

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
    **dict.fromkeys(("cubic-pytorch", "bicubic-pytorch"), ResizeMethod.CUBIC_PYTORCH),
    "area": ResizeMethod.AREA,
}


# Kernels of the distance in pixels, on NumPy's arrays or on traced ones: ``m`` is the module that has the functions.


def _triangle(x: Any, m: Any = np) -> Any:
    return m.maximum(0, 1 - m.abs(x))


def _keys(a: float) -> Callable[..., Any]:
    # Keys, "Cubic convolution interpolation for digital image processing" (1981), with free parameter a.
    def kernel(x: Any, m: Any = np) -> Any:
        near = (((a + 2) * x - (a + 3)) * x) * x + 1.0
        far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
        return m.where(x >= 2, 0.0, m.where(x >= 1, far, near))

    return kernel


def _lanczos(radius: float) -> Callable[..., Any]:
    def kernel(x: Any, m: Any = np) -> Any:
        sin = host_functions.sin if m is np else m.sin
        y = radius * sin(np.pi * x) * sin(np.pi * x / radius)
        out = m.where(x > 1e-3, y / m.where(x != 0, np.pi**2 * x**2, 1), 1)
        return m.where(x > radius, 0.0, out)

    return kernel


_KERNELS: Final = {
    ResizeMethod.LINEAR: _triangle,
    ResizeMethod.LANCZOS3: _lanczos(3.0),
    ResizeMethod.LANCZOS5: _lanczos(5.0),
    ResizeMethod.CUBIC: _keys(-0.5),
    ResizeMethod.CUBIC_PYTORCH: _keys(-0.75),
}
_EDGE: Final = 2  # pixels that a cubic kernel reads beyond the image


def resize(
    image: ArrayLike,
    shape: Sequence[int],
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = None,
) -> Array:
    """``image`` resized to ``shape``; pixel centers are at half integers.

    An infinite or NaN pixel affects the pixels where its weight is not 0. In JAX, which multiplies by all weights, it
    also affects the others.

    Args:
        image: array of any rank.
        shape: of the result; dimensions of equal size are unchanged.
        method: "nearest", "linear" (also "bilinear", "trilinear", "triangle"), "cubic" (also "bicubic", "tricubic"),
            "lanczos3", "lanczos5", "cubic-pytorch" (as PyTorch does it), "area" (means over pixels), or a
            `ResizeMethod`.
        antialias: when a dimension shrinks, widen the kernel so that no pixel is skipped; not for "nearest".
        precision: of the matrix products.

    Raises:
        ShapeError: ``shape`` of another rank.

    >>> import nxjax.numpy as np
    >>> resize(np.array([0.0, 4.0]), (4,), "linear").tolist()
    [0.0, 1.0, 3.0, 4.0]
    """
    chosen = ResizeMethod.from_string(method) if isinstance(method, str) else method
    x = as_operand(image, "resize")
    if len(shape) != x.ndim:
        raise ShapeError("resize: one size per dimension", got=tuple(shape), expected=f"{x.ndim} sizes for {x.type}")
    sizes = tuple(int(n) for n in shape)
    if 0 in sizes:
        return jnp.zeros(sizes, x.dtype if chosen is ResizeMethod.NEAREST else promote_inexact("resize", x)[0].dtype)
    axes = tuple(i for i, (a, b) in enumerate(zip(x.shape, sizes, strict=True)) if a != b)
    if chosen is ResizeMethod.NEAREST:
        return ops.resize(x, axes=axes, sizes=tuple(sizes[a] for a in axes), method="nearest") if axes else x
    (x,) = promote_inexact("resize", x)
    if not axes:
        return x
    x = convert(x, x.dtype)  # never weak
    grows = all(sizes[a] >= x.shape[a] for a in axes)
    if chosen is ResizeMethod.LINEAR and (grows or not antialias):
        return ops.resize(x, axes=axes, sizes=tuple(sizes[a] for a in axes), method="linear")
    by_warp = chosen in (ResizeMethod.AREA, ResizeMethod.CUBIC_PYTORCH)
    for a in axes:
        if by_warp:
            weights: Any = _warp(x.shape[a], sizes[a], sizes[a] / x.shape[a], 0.0, chosen, antialias).astype(x.dtype)
        else:
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


def _warp(size: int, to: int, scale: Any, translation: Any, method: ResizeMethod, antialias: bool) -> Array:
    """Columns of weights [size, to] of an image that is scaled and then moved."""
    dtype = jnp.result_type(scale, translation)
    pixel = 1.0 / jnp.asarray(scale, dtype)
    at = (jnp.arange(to, dtype=dtype) + 0.5) * pixel - translation * pixel - 0.5
    edge = _EDGE if method is ResizeMethod.CUBIC_PYTORCH and not antialias else 0
    if method is ResizeMethod.CUBIC_PYTORCH and antialias:
        method = ResizeMethod.CUBIC
    if method is ResizeMethod.AREA:
        left = (jnp.arange(to, dtype=dtype) - translation) * pixel
        low = jnp.arange(size, dtype=dtype)[:, None]
        weights = jnp.maximum(0.0, jnp.minimum(left + pixel, low + 1.0) - jnp.maximum(left, low))
    else:
        width = jnp.maximum(pixel, 1.0) if antialias else 1.0
        place = jnp.arange(-edge, size + edge, dtype=dtype)
        weights = _KERNELS[method](jnp.abs(at[None, :] - place[:, None]) / width, jnp)
    if edge:  # what lies beyond the image has the value at its edge
        inside = np.clip(np.arange(-edge, size + edge), 0, size - 1)
        weights = jnp.zeros((size, to), dtype).at[inside].add(weights)
    total = weights.sum(0, keepdims=True)
    live = jnp.abs(total) > 1000 * float(np.finfo(np.float32).eps)
    weights = jnp.where(live, weights / jnp.where(total != 0, total, 1), 0)
    return weights if edge else jnp.where((at >= -0.5) & (at <= size - 0.5), weights, 0)


def scale_and_translate(
    image: ArrayLike,
    shape: Sequence[int],
    spatial_dims: Sequence[int],
    scale: ArrayLike,
    translation: ArrayLike,
    method: str | ResizeMethod,
    antialias: bool = True,
    precision: PrecisionLike = Precision.HIGHEST,
) -> Array:
    """``image`` scaled and then moved, in some of its dimensions; differentiable in both.

    Args:
        image: array of any rank.
        shape: of the result.
        spatial_dims: dimensions that are scaled and moved.
        scale, translation: one number per spatial dimension; the place x of the image goes to x * scale + translation.
        method: as in `resize`, except "nearest".
        antialias: where it shrinks, widen the kernel so that no pixel is skipped.
        precision: of the matrix products.

    Returns:
        The image; zero outside it.

    Raises:
        ShapeError: ``shape`` of another rank.
        ParameterError: the method "nearest".

    >>> import nxjax.numpy as np
    >>> x = np.array([1.0, 2.0, 3.0])
    >>> scale_and_translate(x, (3,), (0,), np.array([1.0]), np.array([1.0]), "linear").tolist()
    [0.0, 1.0, 2.0]
    """
    chosen = ResizeMethod.from_string(method) if isinstance(method, str) else method
    (x,) = promote_inexact("scale_and_translate", as_operand(image, "scale_and_translate"))
    if len(shape) != x.ndim:
        raise ShapeError("scale_and_translate: one size per dimension", got=tuple(shape), expected=f"{x.ndim} sizes")
    if chosen is ResizeMethod.NEAREST:
        raise ParameterError("scale_and_translate: method", got="nearest", expected="a method that interpolates")
    scales, moves = promote_inexact(
        "scale_and_translate", as_operand(scale, "scale_and_translate"), as_operand(translation, "scale_and_translate")
    )
    for i, d in enumerate(spatial_dims):
        axis = d % x.ndim if -x.ndim <= d < x.ndim else d
        weights = _warp(x.shape[axis], int(shape[axis]), scales[i], moves[i], chosen, antialias).astype(x.dtype)
        x = jnp.moveaxis(jnp.tensordot(x, weights, ((axis,), (0,)), precision=precision), -1, axis)
    return x
