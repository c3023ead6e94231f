"""Spectra of signals: of windowed segments (`stft` and its inverse), and their averages (`csd`, `welch`).

P. Welch, "The use of fast Fourier transform for the estimation of power spectra", IEEE Trans. Audio 15, 1967;
D. Griffin and J. Lim, "Signal estimation from modified short-time Fourier transform", IEEE Trans. ASSP 32, 1984.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import as_axis, check_choice, promote_inexact, static_int
from nxjax.scipy.signal.filtering import detrend as _detrend
from nxjax.scipy.signal.windows import named
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array


def _window(name: str, window: Any, length: int, dtype: Any) -> Array:
    """The named window of a length, or the given one."""
    if isinstance(window, (str, tuple)):
        return jnp.asarray(named(name, window, length).astype(dtype))
    found = jnp.asarray(window, dtype)
    if found.ndim != 1 or found.shape[0] != length:
        raise ShapeError(f"scipy.signal.{name}: the window does not fit", got=found.type, expected=f"[{length}]")
    return found


def _lengths(name: str, window: Any, nperseg: Any, noverlap: Any, nfft: Any, length: int) -> tuple[int, int, int]:
    """Lengths of segments, of their overlap, and of the transform."""
    if nperseg is not None and static_int(name, nperseg) < 1:
        raise ParameterError(f"scipy.signal.{name}: nperseg", got=nperseg, expected="a positive integer")
    if isinstance(window, (str, tuple)):
        size = length if nperseg is None else static_int(name, nperseg)
        if size > length:
            warnings.warn(f"nperseg={size} is greater than input_length={length}, using nperseg={length}", stacklevel=4)
            size = length
    else:
        given = int(np.prod(np.shape(window)))
        size = given if nperseg is None else static_int(name, nperseg)
        if length < given:
            raise ShapeError(f"scipy.signal.{name}: the window is longer than the signal", got=f"{given}, {length}")
    overlap = size // 2 if noverlap is None else static_int(name, noverlap)
    points = size if nfft is None else static_int(name, nfft)
    return size, overlap, points


def _checked(name: str, size: int, overlap: int, points: int) -> None:
    if points < size:
        raise ParameterError(f"scipy.signal.{name}: nfft", got=points, expected=f"at least nperseg, {size}")
    if overlap >= size:
        raise ParameterError(f"scipy.signal.{name}: noverlap", got=overlap, expected=f"less than nperseg, {size}")


def _extended(x: Array, n: int, boundary: str | None) -> Array:
    """The signal with ``n`` more points at both ends."""
    if boundary is None or n < 1:
        return x
    width = [(0, 0)] * (x.ndim - 1) + [(n, n)]
    if boundary != "odd":
        return jnp.pad(x, width, {"even": "reflect", "constant": "edge", "zeros": "constant"}[boundary])
    if n > x.shape[-1] - 1:
        raise ShapeError("scipy.signal: the signal is too short to be extended", got=x.type, expected=f"length {n + 1}")
    left, right = x[..., :1], x[..., -1:]
    before, after = jnp.flip(x[..., 1 : n + 1], -1), jnp.flip(x[..., -n - 1 : -1], -1)
    return jnp.concatenate([2 * left - before, x, 2 * right - after], -1)


def _transformed(x: Array, window: Array, trend: Any, axis: int, overlap: int, points: int, whole: bool) -> Array:
    """Transforms ``[..., segments, frequencies]`` of the windowed segments."""
    size = window.shape[0]
    starts = np.arange(0, x.shape[-1] - size + 1, size - overlap)
    segments = x[..., starts[:, None] + np.arange(size)[None, :]]
    if isinstance(trend, str):
        segments = _detrend(segments, type=trend, axis=-1)
    elif callable(trend):
        segments = jnp.moveaxis(trend(jnp.moveaxis(segments, axis, -1)), -1, axis) if axis != -1 else trend(segments)
    elif trend:
        raise ParameterError("scipy.signal: detrend", got=repr(trend), expected="a name, a function or False")
    segments = window * segments
    return jnp.fft.fft(segments, n=points) if whole else jnp.fft.rfft(segments.real, n=points)


def _spectra(
    name: str,
    x: Any,
    y: Any,
    fs: Any,
    window: Any,
    nperseg: Any,
    noverlap: Any,
    nfft: Any,
    trend: Any,
    onesided: bool,
    scaling: str,
    axis: int,
    boundary: str | None,
    padded: bool,
) -> tuple[Array, Array, Array]:
    """Frequencies, times and the transforms of segments, or products of two signals' transforms if ``y`` is given.

    With ``name`` "stft" they are transforms of x, else spectral densities (``y`` None: of x with itself).
    """
    check_choice(f"scipy.signal.{name}: boundary", boundary, None, "even", "odd", "constant", "zeros")
    check_choice(f"scipy.signal.{name}: scaling", scaling, "density", "spectrum")
    power = name != "stft"
    found = promote_inexact(f"scipy.signal.{name}", *((x,) if y is None else (x, y)))
    signals = list(found)
    first = signals[0]
    at = as_axis(f"scipy.signal.{name}", axis, first.ndim)
    if len(signals) > 1 and signals[1].ndim != first.ndim:
        raise ShapeError(f"scipy.signal.{name}: signals are of one rank", got=f"{first.type}, {signals[1].type}")
    complex_dtype, real_dtype = dtypes.complex_of(first.dtype), dtypes.real_part(first.dtype)
    size, overlap, points = _lengths(name, window, nperseg, noverlap, nfft, first.shape[at])
    if any(not s.size for s in signals):
        shape = first.shape
        if len(signals) > 1:
            outer = jnp.broadcast_shapes(*(s.shape[:at] + s.shape[at + 1 :] for s in signals))
            shape = (*outer[:at], min(s.shape[at] for s in signals), *outer[at:])
        return jnp.zeros(shape, real_dtype), jnp.zeros(shape, real_dtype), jnp.zeros(shape, complex_dtype)
    win = _window(name, window, size, first.dtype)
    _checked(name, size, overlap, points)
    signals = [jnp.moveaxis(s, at, -1) for s in signals]
    longest = max(s.shape[-1] for s in signals)
    signals = [jnp.pad(s, [(0, 0)] * (s.ndim - 1) + [(0, longest - s.shape[-1])]) for s in signals]
    signals = [_extended(s, size // 2, boundary) for s in signals]
    step = size - overlap
    if padded:
        more = (-(signals[0].shape[-1] - size) % step) % size
        signals = [jnp.pad(s, [(0, 0)] * (s.ndim - 1) + [(0, more)]) for s in signals]
    scale = 1 / (fs * jnp.sum(win * win)) if scaling == "density" else 1 / jnp.sum(win) ** 2
    whole = not onesided
    if onesided and first.dtype in dtypes.COMPLEX:
        warnings.warn("Input data is complex, switching to return_onesided=False", stacklevel=4)
        whole = True
    frequencies = (jnp.fft.fftfreq if whole else jnp.fft.rfftfreq)(points, 1 / fs, dtype=real_dtype)
    spectra = [_transformed(s, win, trend, at if at != first.ndim - 1 else -1, overlap, points, whole) for s in signals]
    result = jnp.conj(spectra[0]) * spectra[-1] if power else spectra[0]
    result = result * (scale if power else jnp.sqrt(scale))
    if power and not whole:
        doubled = np.full(result.shape[-1], 2.0)
        doubled[0] = 1
        if points % 2 == 0:
            doubled[-1] = 1
        result = result * doubled.astype(real_dtype)
    times = np.arange(size / 2, signals[0].shape[-1] - size / 2 + 1, step).astype(real_dtype) / fs
    times = jnp.asarray(times - (size / 2) / fs if boundary is not None else times, real_dtype)
    result = result.astype(complex_dtype)
    result = result.real if power and y is None else result
    return frequencies, times, jnp.moveaxis(result, -1, at)


def stft(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = 256,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | Callable[..., Any] = False,
    return_onesided: bool = True,
    boundary: str | None = "zeros",
    padded: bool = True,
    axis: int = -1,
) -> tuple[Array, Array, Array]:
    """Frequencies, times, and the transforms of overlapping windowed segments of a signal; segments are the last axis.

    Args:
        x: signals along ``axis``; integers become float.
        fs: samples per unit of time.
        window: SciPy's name of one, ``"hann"``, hamming, blackman, boxcar, tukey and so on, a tuple of a name and its
            parameters, ``("kaiser", beta)``, or an array.
        nperseg, noverlap: lengths of segments and of their overlap (half of it by default).
        nfft: length of the transforms, nperseg by default; segments are padded with zeros.
        detrend: ``"linear"``, ``"constant"``, a function of segments, or False.
        return_onesided: return frequencies from 0 on, for real signals.
        boundary: how the signal is extended by half a segment: even, odd, constant, zeros, or None.
        padded: fill the last segment with zeros.

    >>> f, t, z = stft(jnp.ones(16), nperseg=8)
    >>> z.shape, [round(abs(v), 3) for v in z[0].tolist()][1:4]
    ((5, 5), [1.0, 1.0, 1.0])
    """
    kinds = (detrend, return_onesided, "spectrum", axis, boundary, padded)
    return _spectra("stft", x, None, fs, window, nperseg, noverlap, nfft, *kinds)


def csd(
    x: ArrayLike,
    y: ArrayLike,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | Callable[..., Any] = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Frequencies and the cross spectral density of two signals, averaged over segments; real if ``y`` is None.

    Args:
        x, y: signals along ``axis``; integers become float; the shorter one is padded with zeros.
        nperseg: the length of the signal by default.
        scaling: ``"density"`` or ``"spectrum"``.
        average: ``"mean"`` or ``"median"``.
        fs, window, noverlap, nfft, detrend, return_onesided: as of `stft`.

    >>> f, p = csd(jnp.ones(8), jnp.ones(8), detrend=False)
    >>> f.tolist(), p.dtype.name
    ([0.0, 0.125, 0.25, 0.375, 0.5], 'complex64')
    """
    kinds = (detrend, return_onesided, scaling, axis, None, False)
    f, _, p = _spectra("csd", x, y, fs, window, nperseg, noverlap, nfft, *kinds)
    check_choice("scipy.signal.csd: average", average, "mean", "median")
    if p.ndim < 2 or not p.size:
        return f, p
    if p.shape[-1] == 1:
        return f, p[..., 0]
    if average == "mean":
        return f, jnp.mean(p, axis=-1)
    # The median of exponentially distributed values is smaller than their mean.
    i = np.arange(2.0, p.shape[-1], 2)
    bias = 1 + float(np.sum(1 / (i + 1) - 1 / i))
    middle = lambda v: jnp.median(v, axis=-1) / bias
    return f, middle(p.real) + 1j * middle(p.imag) if p.dtype in dtypes.COMPLEX else middle(p)


@shown("f, p = welch(jnp.sin(jnp.arange(64) * jnp.pi / 4), nperseg=16)", "", "float(f[jnp.argmax(p)])", "0.125")
def welch(
    x: ArrayLike,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool | Callable[..., Any] = "constant",
    return_onesided: bool = True,
    scaling: str = "density",
    axis: int = -1,
    average: str = "mean",
) -> tuple[Array, Array]:
    """Frequencies and the power spectral density of a signal; the arguments are those of `csd`."""
    kinds = (detrend, return_onesided, scaling, axis, average)
    f, p = csd(x, None, fs, window, nperseg, noverlap, nfft, *kinds)
    return f, p.real


def _overlapped(x: Array, step: int) -> Array:
    """The sum of segments ``[..., segments, length]``, each ``step`` after the one before."""
    *_, count, size = x.shape
    places = (np.arange(count)[:, None] * step + np.arange(size)[None, :]).ravel()
    y = jnp.zeros((*x.shape[:-2], step * (count - 1) + size), x.dtype)
    return y.at[..., places].add(x.reshape(*x.shape[:-2], count * size))


@shown("x = jnp.arange(16.0)", "", "bool(jnp.allclose(istft(stft(x, nperseg=8)[2])[1], x, atol=1e-4))", "True")
def istft(
    Zxx: ArrayLike,
    fs: ArrayLike = 1.0,
    window: str | tuple[Any, ...] | ArrayLike = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    input_onesided: bool = True,
    boundary: bool = True,
    time_axis: int = -1,
    freq_axis: int = -2,
) -> tuple[Array, Array]:
    """Times, and the signal whose `stft` is ``Zxx``, by least squares of all segments.

    Args:
        Zxx: transforms; real ones become complex.
        nperseg, noverlap, nfft, window: as for `stft`.
        input_onesided: only frequencies from 0 on are given.
        boundary: half a segment at both ends is not part of the signal.
        time_axis, freq_axis: where segments and frequencies are.
    """
    (z,) = promote_inexact("scipy.signal.istft", Zxx)
    if z.ndim < 2:
        raise ShapeError("scipy.signal.istft: needs frequencies and times", got=z.type, expected="2 dimensions or more")
    f, t = (as_axis("scipy.signal.istft", a, z.ndim) for a in (freq_axis, time_axis))
    if f == t:
        raise ParameterError("scipy.signal.istft: time and frequency are the same axis", got=f)
    z = z.astype(dtypes.complex_of(z.dtype))
    default = 2 * (z.shape[f] - 1) if input_onesided else z.shape[f]
    size = static_int("istft", nperseg or default)
    if size < 1:
        raise ParameterError("scipy.signal.istft: nperseg", got=nperseg, expected="a positive integer")
    points = nfft if nfft is not None else default + (input_onesided and size == default + 1)
    overlap = static_int("istft", noverlap or size // 2)
    _checked("istft", size, overlap, static_int("istft", points))
    outer = [i for i in range(z.ndim) if i not in (f, t)]
    moved = jnp.transpose(z, (*outer, f, t))
    segments = (jnp.fft.irfft if input_onesided else jnp.fft.ifft)(moved, n=nfft, axis=-2)[..., :size, :]
    win = _window("istft", window, size, dtypes.real_part(segments.dtype))
    column = win[:, None]
    whole = _overlapped(jnp.swapaxes(segments * jnp.sum(win) * column, -1, -2), size - overlap)
    weight = _overlapped(jnp.swapaxes(jnp.broadcast_to(column * column, (size, z.shape[t])), -1, -2), size - overlap)
    if boundary:
        inside = slice(size // 2, -(size // 2))
        whole, weight = whole[..., inside], weight[..., inside]
    x = whole / jnp.where(weight > 1e-10, weight, 1.0).astype(whole.dtype)
    if x.ndim > 1 and t != z.ndim - 1:
        x = jnp.moveaxis(x, -1, t - 1 if f < t else t)
    return jnp.arange(x.shape[0], dtype=dtypes.real_part(x.dtype)) / fs, x
