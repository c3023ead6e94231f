"""Rules of signals: Fourier transforms, windows, mel weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.interop.onnx.graph import dtype_of
from nxjax.interop.onnx.shapes import number, sized
from nxjax.interop.onnx.walk import rule


def _complex(x: Any) -> Any:
    """Pairs in the last axis as complex numbers; one number is real."""
    return x[..., 0] if x.shape[-1] == 1 else x[..., 0] + 1j * x[..., 1]


def _pairs(y: Any, dtype: Any) -> Any:
    return jnp.stack([jnp.real(y), jnp.imag(y)], -1).astype(dtype)


@rule("DFT", known=("length", "along"))
def _dft(
    x: Any, length: Any = None, along: Any = None, *, axis: int = 1, inverse: int = 0, onesided: int = 0, opset: int
) -> Any:
    if along is not None:
        axis = int(number(along))
    elif opset >= 20:
        axis = -2
    a = axis % x.ndim
    n = x.shape[a] if length is None else sized((int(number(length)),))[0]
    signal = _complex(x)
    if inverse and onesided:
        return jnp.fft.irfft(signal, n if length is not None else None, axis=a)[..., None].astype(x.dtype)
    if inverse:
        return _pairs(jnp.fft.ifft(signal, n, axis=a), x.dtype)
    if onesided:
        return _pairs(jnp.fft.rfft(jnp.real(signal), n, axis=a), x.dtype)
    return _pairs(jnp.fft.fft(signal, n, axis=a), x.dtype)


@rule("STFT", known=("step", "length"))
def _stft(signal: Any, step: Any, window: Any = None, length: Any = None, *, onesided: int = 1) -> Any:
    hop = int(number(step))
    n = int(number(length)) if length is not None else window.shape[0]
    count = (signal.shape[1] - n) // hop + 1
    index = np.arange(count)[:, None] * hop + np.arange(n)
    frames = (signal if signal.ndim == 2 else _complex(signal))[:, jnp.asarray(index)]
    if window is not None:
        more = n - window.shape[0]
        frames = frames * jnp.pad(window, (more // 2, more - more // 2))
    real = signal.ndim == 2 or signal.shape[-1] == 1
    y = jnp.fft.rfft(frames, axis=-1) if onesided and real else jnp.fft.fft(frames, axis=-1)
    return _pairs(y[..., : n // 2 + 1] if onesided else y, signal.dtype)


def _window(name: str, *factors: float) -> None:
    def run(size: Any, *, output_datatype: int = 1, periodic: int = 1) -> Any:
        n = sized((int(number(size)),))[0]
        angle = 2 * np.pi * np.arange(n) / (n if periodic else max(n - 1, 1))
        y = sum(f * np.cos(i * angle) for i, f in enumerate(factors))
        return jnp.asarray(np.asarray(y).astype(dtype_of(output_datatype)))

    rule(name, known=("size",))(run)


_window("HannWindow", 0.5, -0.5)
_window("HammingWindow", 25 / 46, -21 / 46)
_window("BlackmanWindow", 0.42, -0.5, 0.08)


@rule("MelWeightMatrix", known=("bins", "length", "rate", "low", "high"))
def _mel(bins: Any, length: Any, rate: Any, low: Any, high: Any, *, output_datatype: int = 1) -> Any:
    count, n = sized((int(number(bins)), int(number(length)) // 2 + 1))
    mel = lambda f: 2595 * np.log10(1 + f / 700)
    first, last = mel(number(low)), mel(number(high))
    edges = 700 * (10 ** ((first + np.arange(count + 2) * (last - first) / (count + 2)) / 2595) - 1)
    places = ((int(number(length)) + 1) * edges / number(rate)).astype(int)
    y = np.zeros((n, count))
    for i in range(count):
        a, b, c = places[i : i + 3]
        if b == a:
            y[b, i] = 1
        else:
            y[a : b + 1, i] = (np.arange(a, b + 1) - a) / (b - a)
        if c > b:
            y[b:c, i] = (c - np.arange(b, c)) / (c - b)
    return jnp.asarray(y.astype(dtype_of(output_datatype)))
