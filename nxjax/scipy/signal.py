"""`nx.scipy.signal`: convolution and correlation in any number of dimensions, and detrending, as `jax.scipy.signal`."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.promotion import as_axis, promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def _operands(name: str, in1: Any, in2: Any, mode: str) -> tuple[Array, Array]:
    if mode not in ("full", "same", "valid"):
        raise ParameterError(f"scipy.signal.{name}: mode", got=repr(mode), expected="full, same or valid")
    x, y = promote_inexact(f"scipy.signal.{name}", in1, in2)
    if x.ndim != y.ndim:
        raise ShapeError(f"scipy.signal.{name}: operands have one rank", got=f"{x.type}, {y.type}")
    if 0 in x.shape or 0 in y.shape:
        raise ShapeError(f"scipy.signal.{name}: an operand is empty", got=f"{x.type}, {y.type}")
    return x, y


def _full(x: Array, y: Array, precision: Any) -> Array:
    """The whole convolution; ``x`` slides over ``y``."""
    if x.dtype in dtypes.COMPLEX:
        parts = [(f(x), g(y)) for f in (jnp.real, jnp.imag) for g in (jnp.real, jnp.imag)]
        rr, ri, ir, ii = (_full(a, b, precision) for a, b in parts)
        return lax.complex(rr - ii, ri + ir)
    if not x.ndim:
        return x * y
    kernel = jnp.flip(y)[None, None]
    padding = [(n - 1, n - 1) for n in y.shape]
    return lax.conv_general_dilated(x[None, None], kernel, (1,) * x.ndim, padding, precision=precision)[0, 0]


def _part(name: str, full: Array, x: Array, y: Array, mode: str, late: int = 0) -> Array:
    """What ``mode`` keeps of the whole: all, the middle of the first operand's size, or where the operands overlap.

    ``late`` 1 puts the middle behind the half where there is no true one.
    """
    if mode == "full":
        return full
    if mode == "same":
        sizes = x.shape
    else:
        if not (all(a >= b for a, b in zip(x.shape, y.shape)) or all(a <= b for a, b in zip(x.shape, y.shape))):
            raise ShapeError(
                f"scipy.signal.{name}: one operand must fit into the other for mode 'valid'", got=f"{x.type}, {y.type}"
            )
        sizes = tuple(abs(a - b) + 1 for a, b in zip(x.shape, y.shape, strict=True))
    starts = [(n - s + late) // 2 for n, s in zip(full.shape, sizes, strict=True)]
    return full[tuple(slice(a, a + s) for a, s in zip(starts, sizes, strict=True))]


def convolve(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The convolution of two arrays of one rank.

    Args:
        in1, in2: arrays; integers become float.
        mode: ``"full"``; ``"same"``, the middle of the size of ``in1``; ``"valid"``, where one lies in the other.
        method: ``"direct"``, ``"fft"`` or ``"auto"`` (direct).
        precision: of the products.
    """
    if method not in ("auto", "direct", "fft"):
        raise ParameterError("scipy.signal.convolve: method", got=repr(method), expected="auto, direct or fft")
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    x, y = _operands("convolve", in1, in2, mode)
    return _part("convolve", _full(x, y, precision), x, y, mode)


def correlate(in1: Any, in2: Any, mode: str = "full", method: str = "auto", precision: Any = None) -> Array:
    """The correlation: `convolve` with ``in2`` reversed and conjugated."""
    return convolve(in1, jnp.flip(jnp.conj(in2)), mode, method, precision)


def _two_dimensional(name: str, in1: Any, in2: Any, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"scipy.signal.{name}: only boundary='fill' with fillvalue=0")
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ShapeError(f"scipy.signal.{name}: operands have 2 dimensions", got=f"{np.shape(in1)}, {np.shape(in2)}")


def convolve2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Array:
    """`convolve` of matrices."""
    _two_dimensional("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct", precision)


def correlate2d(
    in1: Any, in2: Any, mode: str = "full", boundary: str = "fill", fillvalue: Any = 0, precision: Any = None
) -> Array:
    """`correlate` of matrices."""
    _two_dimensional("correlate2d", in1, in2, boundary, fillvalue)
    x, y = _operands("correlate2d", in1, jnp.flip(jnp.conj(in2)), mode)
    return _part("correlate2d", _full(x, y, precision), x, y, mode, late=1)


def fftconvolve(in1: Any, in2: Any, mode: str = "full", axes: Any = None) -> Array:
    """`convolve` by fast Fourier transforms, over all axes."""
    if axes is not None:
        raise NotImplementedError("scipy.signal.fftconvolve: only axes=None")
    x, y = _operands("fftconvolve", in1, in2, mode)
    sizes = [a + b - 1 for a, b in zip(x.shape, y.shape, strict=True)]
    all_axes = tuple(range(x.ndim))
    if x.dtype in dtypes.COMPLEX:
        full = jnp.fft.ifftn(jnp.fft.fftn(x, sizes, all_axes) * jnp.fft.fftn(y, sizes, all_axes), sizes, all_axes)
    else:
        full = jnp.fft.irfftn(jnp.fft.rfftn(x, sizes, all_axes) * jnp.fft.rfftn(y, sizes, all_axes), sizes, all_axes)
    return _part("fftconvolve", full.astype(x.dtype), x, y, mode)


def detrend(data: Any, axis: int = -1, type: str = "linear", bp: int = 0, overwrite_data: None = None) -> Array:
    """``data`` less its mean (``type="constant"``) or its straight line of best fit (``"linear"``) along ``axis``."""
    if bp != 0:
        raise NotImplementedError("scipy.signal.detrend: only bp=0")
    if type not in ("linear", "constant"):
        raise ParameterError("scipy.signal.detrend: type", got=repr(type), expected="linear or constant")
    (x,) = promote_inexact("scipy.signal.detrend", data)
    where = as_axis("scipy.signal.detrend", axis, x.ndim)
    centred = x - jnp.mean(x, axis=where, keepdims=True)
    if type == "constant":
        return centred
    n = x.shape[where]
    t = np.arange(n) - (n - 1) / 2
    line = jnp.asarray(t.astype(dtypes.real_part(x.dtype))).reshape((n,) + (1,) * (x.ndim - where - 1))
    slope = jnp.sum(centred * line, axis=where, keepdims=True) / max(float((t * t).sum()), 1e-30)
    return centred - slope * line
