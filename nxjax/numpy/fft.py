"""Discrete Fourier transforms, as `numpy.fft`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ParameterError
from nxjax.numpy.creation import asarray, full_scalar, put_on_device
from nxjax.numpy.documented import example as _example
from nxjax.numpy.floats import conjugate
from nxjax.numpy.promotion import as_axes, as_axis, as_operand, convert, promote_inexact, static_int
from nxjax.numpy.rearranging import roll
from nxjax.numpy.shapes import moveaxis
from nxjax.ops import vocabulary as ops
from nxjax.ops.fft import FftType
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DeviceLike, DTypeLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifft2", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfft2", "irfftn", "rfft", "rfft2", "rfftfreq", "rfftn",
]  # fmt: skip


_REAL = "ValueError: complex input."


def _transform(name: str, kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Array:
    """Transform ``kind`` over ``axes``, after cutting or zero-padding them to the sizes ``s``."""
    if norm not in (None, "backward", "ortho", "forward"):
        raise ValueError(f'jnp.fft.{name}: norm must be "backward", "ortho" or "forward", not {norm!r}')
    (x,) = promote_inexact(name, a)
    x = convert(x, dtypes.float32) if x.dtype.itemsize < 4 else x
    if kind == "RFFT":
        if x.dtype in dtypes.COMPLEX:
            raise ValueError("only real valued inputs supported for rfft")
    else:
        x = convert(x, dtypes.complex_of(x.dtype))
    if s is not None:
        s = tuple(static_int(name, n) for n in s)
        if any(n < 1 for n in s):
            raise ParameterError(f"jnp.fft.{name}: sizes are positive", got=s)
    if axes is None:
        axes = tuple(range(x.ndim)) if s is None else tuple(range(x.ndim - len(s), x.ndim))
    where = as_axes(name, tuple(axes), x.ndim)
    if not where:
        return x
    if s is not None and len(s) != len(where):
        raise ParameterError(f"jnp.fft.{name}: one size per axis", got=f"{len(s)} sizes, {len(where)} axes")
    n = len(where)
    x = moveaxis(x, where, tuple(range(x.ndim - n, x.ndim)))
    sizes = list(x.shape[x.ndim - n :]) if s is None else list(s)
    if kind == "IRFFT":
        if s is None:
            sizes[-1] = max(0, 2 * (sizes[-1] - 1))
        held = [*sizes[:-1], sizes[-1] // 2 + 1]
    else:
        held = sizes
    if any(k == 0 for k in sizes):
        if kind == "RFFT" and sizes[-1] == 0:
            raise ParameterError(f"jnp.fft.{name}: an axis has no elements", got=tuple(sizes))
        return _nothing(x, kind, sizes, where)
    x = _sized(x, held)
    out = _runs(x, FftType[kind], kind, sizes)
    scale = _scale(norm, kind in ("IFFT", "IRFFT"), math.prod(sizes))
    if scale != 1:
        out = out * np.asarray(scale, dtypes.real_part(out.dtype))
    return moveaxis(out, tuple(range(out.ndim - n, out.ndim)), where)


def _nothing(x: Array, kind: str, sizes: Sequence[int], where: Sequence[int]) -> Array:
    """The transform of no elements, or to none."""
    n = len(sizes)
    shape = (*x.shape[: x.ndim - n], *sizes[:-1], sizes[-1] // 2 + 1 if kind == "RFFT" else sizes[-1])
    dtype = dtypes.real_part(x.dtype) if kind == "IRFFT" else dtypes.complex_of(x.dtype)
    return moveaxis(full_scalar(shape, 0, dtype), tuple(range(x.ndim - n, x.ndim)), tuple(where))


def _scale(norm: str | None, inverse: bool, n: int) -> float:
    """What the ops' own scaling (1 forwards, 1 / n backwards) is multiplied by."""
    if norm == "ortho":
        return math.sqrt(n) if inverse else 1 / math.sqrt(n)
    if norm == "forward":
        return n if inverse else 1 / n
    return 1.0


def _sized(x: Array, sizes: Sequence[int]) -> Array:
    """The trailing axes cut or padded with zeros at the end."""
    lead = x.ndim - len(sizes)
    if tuple(sizes) == x.shape[lead:]:
        return x
    config = ((0, 0, 0),) * lead + tuple((0, want - have, 0) for want, have in zip(sizes, x.shape[lead:], strict=True))
    return ops.pad(x, wrap(np.zeros((), x.dtype)), padding_config=config)


def _runs(x: Array, kind: Any, name: str, sizes: Sequence[int]) -> Array:
    """One op over up to three axes; more of them in turns, the real one last (or first, backwards)."""
    if len(sizes) <= 3:
        return ops.fft(x, fft_type=kind, fft_lengths=tuple(sizes))
    complex_kind = FftType.IFFT if name in ("IFFT", "IRFFT") else FftType.FFT
    n = len(sizes)

    def others(y: Array) -> Array:
        for k in range(n - 1):
            i = y.ndim - n + k
            moved = moveaxis(y, i, -1)
            y = moveaxis(ops.fft(moved, fft_type=complex_kind, fft_lengths=(moved.shape[-1],)), -1, i)
        return y

    if name == "RFFT":
        return others(ops.fft(x, fft_type=kind, fft_lengths=(sizes[-1],)))
    return ops.fft(others(x), fft_type=kind, fft_lengths=(sizes[-1],))


def _one(name: str, kind: str, a: Any, n: int | None, axis: int, norm: str | None) -> Array:
    if isinstance(axis, (list, tuple)):
        raise ValueError(f"jax.numpy.fft.{name} does not support multiple axes. Use jax.numpy.fft.{name}n.")
    x = as_operand(a, name)
    return _transform(name, kind, x, None if n is None else (n,), (as_axis(name, axis, x.ndim),), norm)


@_example("jnp.array([1.0, 0.0, 0.0, 0.0])", "Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)")
def fft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete Fourier transform along ``axis``, complex; ``n`` first cuts or zero-pads it.

    ``norm`` divides by the length in the inverse (``backward``, the default), here (``forward``), or by its root in
    both (``ortho``).

    Raises:
        ParameterError: no elements along the axis, or an ``n`` that is not positive.
        ValueError: another ``norm``, or several axes.
        AxisError: an axis that ``a`` does not have.
    """
    return _one("fft", "FFT", a, n, axis, norm)


@_example("jnp.array([4.0, 0.0, 0.0, 0.0])", "Array([1., 1., 1., 1.], dtype=float32)", then=".real")
def ifft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft`, with its arguments and errors; complex."""
    return _one("ifft", "IFFT", a, n, axis, norm)


@_example("jnp.array([1.0, 1.0, 1.0, 1.0])", "Array([4.+0.j, 0.+0.j, 0.+0.j], dtype=complex64)", raises=_REAL)
def rfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """`fft` of real input: the ``n // 2 + 1`` frequencies that are not mirrored; raises as `fft`."""
    return _one("rfft", "RFFT", a, n, axis, norm)


@_example("jnp.fft.rfft(jnp.array([1.0, 2.0, 3.0])), n=3", "Array([1., 2., 3.], dtype=float32)", then=".round(4)")
def irfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `rfft`, real; ``n`` is the length of the result, by default the even one."""
    return _one("irfft", "IRFFT", a, n, axis, norm)


@_example("jnp.ones((2, 2))", "Array([[4., 0.],\n       [0., 0.]], dtype=float32)", then=".real")
def fftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The discrete Fourier transform along several axes, all by default, or the last ones if sizes ``s`` are given.

    Raises:
        ParameterError: an axis without elements, a size that is not positive, or not one size per axis.
        ValueError: another ``norm``.
    """
    return _transform("fftn", "FFT", a, s, axes, norm)


@_example("jnp.fft.fftn(jnp.eye(2))", "Array([[1., 0.],\n       [0., 1.]], dtype=float32)", then=".real")
def ifftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The inverse of `fftn`, with its arguments and errors."""
    return _transform("ifftn", "IFFT", a, s, axes, norm)


@_example("jnp.ones((4, 4))", "(4, 3)", then=".shape", raises=_REAL)
def rfftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """`fftn` of real input; the last axis is halved as by `rfft`."""
    return _transform("rfftn", "RFFT", a, s, axes, norm)


@_example("jnp.fft.rfftn(jnp.ones((3, 3))), s=(3, 3)", "(3, 3)", then=".shape")
def irfftn(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None
) -> Array:
    """The inverse of `rfftn`, real; ``s`` is the shape of the result."""
    return _transform("irfftn", "IRFFT", a, s, axes, norm)


def _two(name: str, kind: str, a: Any, s: Any, axes: Any, norm: str | None) -> Array:
    if len(axes) != 2:
        raise ValueError(f"jax.numpy.fft.{name} only supports 2 axes. Got axes = {axes}.")
    return _transform(name, kind, a, s, axes, norm)


@_example("jnp.ones((5, 2, 2))", "(5, 2, 2)", then=".shape", raises="ValueError: another number of axes.")
def fft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """`fftn` over two axes, by default the last ones."""
    return _two("fft2", "FFT", a, s, axes, norm)


@_example("jnp.fft.fft2(jnp.eye(2))", "Array([[1., 0.],\n       [0., 1.]], dtype=float32)", then=".real")
def ifft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """`ifftn` over two axes, by default the last ones."""
    return _two("ifft2", "IFFT", a, s, axes, norm)


@_example("jnp.ones((2, 4))", "Array([[8., 0., 0.],\n       [0., 0., 0.]], dtype=float32)", then=".real")
def rfft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """`rfftn` over two axes, by default the last ones."""
    return _two("rfft2", "RFFT", a, s, axes, norm)


@_example("jnp.fft.rfft2(jnp.ones((2, 4)))", "(2, 4)", then=".shape")
def irfft2(
    a: ArrayLike, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None
) -> Array:
    """`irfftn` over two axes, by default the last ones."""
    return _two("irfft2", "IRFFT", a, s, axes, norm)


_OTHER_WAY = {None: "forward", "backward": "forward", "forward": "backward", "ortho": "ortho"}


@_example("jnp.array([1.0, 2.0, 1.0])", "Array([ 6.,  0., -2.,  0.], dtype=float32)")
def hfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of a signal with Hermitian symmetry, of which the first half is given: real."""
    return irfft(conjugate(as_operand(a, "hfft")), n, axis, _OTHER_WAY.get(norm, norm))


@_example("jnp.array([6.0, 0.0, -2.0, 0.0])", "Array([1., 2., 1.], dtype=float32)", then=".real")
def ihfft(a: ArrayLike, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `hfft`: of a real signal, half of one with Hermitian symmetry."""
    return conjugate(rfft(asarray(a), n, axis, _OTHER_WAY.get(norm, norm)))


@_example(
    "4",
    "Array([ 0.  ,  0.25, -0.5 , -0.25], dtype=float32)",
    "5, d=0.5",
    "Array([ 0. ,  0.4,  0.8, -0.8, -0.4], dtype=float32)",
    raises="ValueError: ``n`` or ``d`` is not a number.",
)
def fftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
    """The frequencies of `fft`'s results, for samples ``d`` apart."""
    return _frequencies("fftfreq", n, d, dtype, device, np.fft.fftfreq)


@_example("4", "Array([0.  , 0.25, 0.5 ], dtype=float32)")
def rfftfreq(n: int, d: ArrayLike = 1.0, *, dtype: DTypeLike | None = None, device: DeviceLike = None) -> Array:
    """The frequencies of `rfft`'s results, for samples ``d`` apart; none is negative."""
    return _frequencies("rfftfreq", n, d, dtype, device, np.fft.rfftfreq)


def _frequencies(name: str, n: Any, d: Any, dtype: Any, device: Any, plain: Any) -> Array:
    if isinstance(n, (list, tuple)) or isinstance(d, (list, tuple)):
        raise ValueError(f"The n and d arguments of jax.numpy.fft.{name} only take an int and a number")
    wanted = dtypes.as_dtype(float if dtype is None else dtype)
    n = static_int(name, int(n) if isinstance(n, float) and n.is_integer() else n)
    whole = plain(n) * n if n > 0 else np.zeros(1 if n == 0 and name == "rfftfreq" else 0)  # 0 / 0: nan
    frequencies = wrap(whole.astype(dtypes.to_inexact(wanted))) / as_operand(d * n, name)
    return put_on_device(convert(frequencies, dtypes.to_inexact(wanted) if name == "rfftfreq" else wanted), device)


@_example("jnp.fft.fftfreq(4)", "Array([-0.5 , -0.25,  0.  ,  0.25], dtype=float32)")
def fftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The zero frequency moved to the middle, along ``axes`` or all."""
    return _shifted("fftshift", x, axes, lambda n: n // 2)


@_example("jnp.fft.fftshift(jnp.arange(5))", "Array([0, 1, 2, 3, 4], dtype=int32)")
def ifftshift(x: ArrayLike, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`; not itself where a size is odd."""
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))


def _shifted(name: str, x: Any, axes: Any, by: Any) -> Array:
    v = as_operand(x, name)
    where = as_axes(name, axes, v.ndim)
    return roll(v, tuple(by(v.shape[i]) for i in where), where) if where else v
