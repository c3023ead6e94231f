"""Convolution and correlation in any number of dimensions, and detrending."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.documented import example, shown
from nxjax.numpy.promotion import as_axes, as_axis, check_choice, promote_inexact
from nxjax.ops.precision import PrecisionLike
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.vmap import vmap


def _operands(name: str, in1: Any, in2: Any, mode: str) -> tuple[Array, Array]:
    check_choice(f"scipy.signal.{name}: mode", mode, "full", "same", "valid")
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


@example("jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])", "[1.0, 3.0, 2.0]", then=".tolist()")
def convolve(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """The convolution of two arrays of one rank.

    Args:
        in1, in2: arrays; integers become float.
        mode: ``"full"``; ``"same"``, the middle of the size of ``in1``; ``"valid"``, where one is inside the other.
        method: ``"direct"``, ``"fft"`` or ``"auto"`` (direct).
        precision: of the products.
    """
    check_choice("scipy.signal.convolve: method", method, "auto", "direct", "fft")
    if method == "fft":
        return fftconvolve(in1, in2, mode)
    x, y = _operands("convolve", in1, in2, mode)
    return _part("convolve", _full(x, y, precision), x, y, mode)


@example("jnp.array([1.0, 2.0]), jnp.array([0.0, 1.0])", "[1.0, 2.0, 0.0]", then=".tolist()")
def correlate(
    in1: ArrayLike, in2: ArrayLike, mode: str = "full", method: str = "auto", precision: PrecisionLike = None
) -> Array:
    """The correlation: `convolve` with ``in2`` reversed and conjugated, and its other arguments."""
    return convolve(in1, jnp.flip(jnp.conj(in2)), mode, method, precision)


def _two_dimensional(name: str, in1: Any, in2: Any, boundary: str, fillvalue: Any) -> None:
    if boundary != "fill" or fillvalue != 0:
        raise NotImplementedError(f"scipy.signal.{name}: only boundary='fill' with fillvalue=0")
    if np.ndim(in1) != 2 or np.ndim(in2) != 2:
        raise ShapeError(f"scipy.signal.{name}: operands have 2 dimensions", got=f"{np.shape(in1)}, {np.shape(in2)}")


@example('jnp.ones((2, 2)), jnp.ones((1, 2)), mode="valid"', "[[2.0], [2.0]]", then=".tolist()")
def convolve2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """`convolve` of matrices; other values of ``boundary`` and ``fillvalue`` than these are not available."""
    _two_dimensional("convolve2d", in1, in2, boundary, fillvalue)
    return convolve(in1, in2, mode, "direct", precision)


@example('jnp.ones((2, 2)), jnp.ones((1, 2)), mode="valid"', "[[2.0], [2.0]]", then=".tolist()")
def correlate2d(
    in1: ArrayLike,
    in2: ArrayLike,
    mode: str = "full",
    boundary: str = "fill",
    fillvalue: ArrayLike = 0,
    precision: PrecisionLike = None,
) -> Array:
    """`correlate` of matrices; other values of ``boundary`` and ``fillvalue`` than these are not available."""
    _two_dimensional("correlate2d", in1, in2, boundary, fillvalue)
    x, y = _operands("correlate2d", in1, jnp.flip(jnp.conj(in2)), mode)
    found = _part("correlate2d", _full(x, y, precision), x, y, mode, late=1)
    # SciPy's order of the operands where the second one is the larger.
    swapped = mode == "valid" and x.shape != y.shape and all(a <= b for a, b in zip(x.shape, y.shape, strict=True))
    return jnp.conj(found) if swapped else found


@shown("[round(v, 4) for v in fftconvolve(jnp.array([1.0, 2.0]), jnp.array([1.0, 1.0])).tolist()]", "[1.0, 3.0, 2.0]")
def fftconvolve(in1: ArrayLike, in2: ArrayLike, mode: str = "full", axes: int | Sequence[int] | None = None) -> Array:
    """`convolve` by fast Fourier transforms.

    Args:
        in1, in2: arrays of one rank; integers become float.
        mode: as of `convolve`.
        axes: those to convolve over, all by default; along the others the operands are of one size.
    """
    x, y = _operands("fftconvolve", in1, in2, mode)
    if axes is not None:
        chosen = as_axes("scipy.signal.fftconvolve", axes, x.ndim)
        others = [i for i in range(x.ndim) if i not in chosen]
        if any(x.shape[i] != y.shape[i] for i in others):
            raise ShapeError("scipy.signal.fftconvolve: operands differ along a mapped axis", got=f"{x.type}, {y.type}")
        one = lambda a, b: fftconvolve(a, b, mode)
        for i in others:
            one = vmap(one, i, i)
        return one(x, y)
    whole = [a + b - 1 for a, b in zip(x.shape, y.shape, strict=True)]
    sizes = [_quick(n) for n in whole]
    all_axes = tuple(range(x.ndim))
    if x.dtype in dtypes.COMPLEX:
        full = jnp.fft.ifftn(jnp.fft.fftn(x, sizes, all_axes) * jnp.fft.fftn(y, sizes, all_axes), sizes, all_axes)
    else:
        full = jnp.fft.irfftn(jnp.fft.rfftn(x, sizes, all_axes) * jnp.fft.rfftn(y, sizes, all_axes), sizes, all_axes)
    return _part("fftconvolve", full[tuple(slice(n) for n in whole)].astype(x.dtype), x, y, mode)


def _quick(n: int) -> int:
    """The least length from ``n`` on whose transform is quick: factors 2, 3 and 5, and 16 of a long one."""
    step = 16 if n > 256 else 1

    def is_quick(m: int) -> bool:
        for p in (2, 3, 5):
            while m % p == 0:
                m //= p
        return m == 1

    return next(m for m in itertools.count(-(-n // step) * step, step) if is_quick(m))


@example("jnp.array([1.0, 2.0, 3.0])", "[0.0, 0.0, 0.0]", then=".tolist()")
def detrend(
    data: ArrayLike, axis: int = -1, type: str = "linear", bp: ArrayLike = 0, overwrite_data: None = None
) -> Array:
    """``data`` less its mean (``type="constant"``) or its straight line of best fit (``"linear"``) along ``axis``.

    Args:
        data: integers become float.
        bp: positions where a line ends and the next one begins.
    """
    if overwrite_data is not None:
        raise NotImplementedError("scipy.signal.detrend: only overwrite_data=None")
    check_choice("scipy.signal.detrend: type", type, "linear", "constant")
    (x,) = promote_inexact("scipy.signal.detrend", data)
    where = as_axis("scipy.signal.detrend", axis, x.ndim)
    if type == "constant":
        return x - jnp.mean(x, axis=where, keepdims=True)
    n = x.shape[where]
    ends = np.unique(np.r_[0, bp, n])
    if ends[0] < 0 or ends[-1] > n:
        raise ParameterError("scipy.signal.detrend: bp", got=bp, expected=f"positions from 0 to {n}")
    parts = [jnp.take(x, np.arange(a, b), axis=where) for a, b in itertools.pairwise(ends)]
    return jnp.concatenate([_straightened(v, where) for v in parts], where) if parts else x


def _straightened(x: Array, axis: int) -> Array:
    n = x.shape[axis]
    centred = x - jnp.mean(x, axis=axis, keepdims=True)
    t = np.arange(n) - (n - 1) / 2
    line = jnp.asarray(t.astype(dtypes.real_part(x.dtype))).reshape((n,) + (1,) * (x.ndim - axis - 1))
    slope = jnp.sum(centred * line, axis=axis, keepdims=True) / max(float((t * t).sum()), 1e-30)
    return centred - slope * line
