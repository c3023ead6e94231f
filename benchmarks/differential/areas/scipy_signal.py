"""``scipy.signal``: convolutions, detrending and spectra, along every axis and with every keyword."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.differential.case import MODES, Case
from benchmarks.differential.inputs import COMPLEX, FLOATS, INTS, Inputs

PARTS = ("full", "same", "valid")
QUICK = ("call", "jit")


def _named(name: str, *args: Any, modes: tuple[str, ...] = MODES, **kwargs: Any) -> Case:
    return Case(f"scipy.signal.{name}", args, kwargs, modes=modes)


def cases(inputs: Inputs) -> Iterator[Case]:
    yield from _convolutions(inputs)
    yield from _planes(inputs)
    yield from _fourier(inputs)
    yield from _detrended(inputs)
    yield from _spectra(inputs)
    yield from _inverse(inputs)


def _convolutions(inputs: Inputs) -> Iterator[Case]:
    for name in ("convolve", "correlate"):
        for mode in PARTS:
            x, y = inputs.array((7,), "float32"), inputs.array((3,), "float32")
            yield _named(name, x, y, mode=mode)
            yield _named(name, y, x, mode=mode, modes=QUICK)
            yield _named(name, inputs.array((4, 5), "float32"), inputs.array((2, 3), "float32"), mode)
            yield _named(name, inputs.array((5,), COMPLEX), inputs.array((3,), COMPLEX), mode, modes=("call", "vjp"))
            kinds = (*INTS, "bool", *FLOATS)
            yield _named(name, inputs.array((5,), kinds), inputs.array((2,), kinds), mode, modes=QUICK)
            yield _named(name, x, y, mode, method="fft", modes=("call", "jvp"))
        for kind in (*FLOATS, "int32", "int8", "bool"):
            yield _named(name, inputs.array((6,), kind), inputs.array((4,), kind), modes=("call", "vmap"))
        yield _named(name, x, y, method="direct", precision="highest")
        yield _named(name, np.float32([1, np.nan, 2, 0]), np.float32([np.inf, 1]), modes=QUICK)
        yield _named(name, inputs.array((3, 2, 2), "float32"), inputs.array((2, 1, 2), "float32"), "same")
        yield _named(name, inputs.array((0,), "float32"), y, modes=("call",))
        yield _named(name, inputs.array((), "float32"), inputs.array((), "float32"), modes=("call",))
        yield _named(name, x, inputs.array((2, 2), "float32"), modes=("call",))
        yield _named(name, x, y, "other", modes=("call",))
        yield _named(name, x, y, method="other", modes=("call",))


def _planes(inputs: Inputs) -> Iterator[Case]:
    for name in ("convolve2d", "correlate2d"):
        for mode in PARTS:
            x, y = inputs.array((4, 6), "float32"), inputs.array((3, 2), "float32")
            yield _named(name, x, y, mode)
            yield _named(name, y, x[:2, :2], mode, modes=("call", "vjp"))
            yield _named(name, inputs.array((3, 4), (*INTS, *FLOATS)), inputs.array((2, 2), (*INTS, *FLOATS)), mode)
            yield _named(name, inputs.array((3, 4), COMPLEX), inputs.array((2, 2), COMPLEX), mode, modes=QUICK)
            yield _named(name, y, x, mode, modes=("call",))
        yield _named(name, x, y, boundary="wrap", modes=("call",))
        yield _named(name, x, y, fillvalue=1.0, modes=("call",))
        yield _named(name, x, y[0], modes=("call",))
        yield _named(name, x[:0], y, modes=("call",))
        yield _named(name, x, y, "same", precision="highest", modes=QUICK)


def _fourier(inputs: Inputs) -> Iterator[Case]:
    for mode in PARTS:
        x, y = inputs.array((8,), "float32"), inputs.array((3,), "float32")
        yield _named("fftconvolve", x, y, mode)
        yield _named("fftconvolve", y, x, mode, modes=QUICK)
        yield _named("fftconvolve", inputs.array((3, 5), "float32"), inputs.array((2, 4), "float32"), mode)
        yield _named("fftconvolve", inputs.array((4,), COMPLEX), inputs.array((3,), "float32"), mode)
        for axes in (0, (1,), (-1,), (0, 1)):
            whole, some = inputs.array((3, 5), "float32"), inputs.array((3, 2), "float32")
            yield _named("fftconvolve", whole, some, mode, axes=axes, modes=QUICK)
    for kind in (*FLOATS, "int32", "uint8", "bool"):
        yield _named("fftconvolve", inputs.array((5,), kind), inputs.array((2,), kind), modes=QUICK)
    yield _named("fftconvolve", inputs.array((1, 4), "float32"), inputs.array((3, 2), "float32"), axes=1)
    yield _named("fftconvolve", inputs.array((0,), "float32"), y, modes=("call",))
    yield _named("fftconvolve", inputs.array((), "float32"), inputs.array((), "float32"))
    yield _named("fftconvolve", x, y[None], modes=("call",))
    yield _named("fftconvolve", x, y, "other", modes=("call",))


def _detrended(inputs: Inputs) -> Iterator[Case]:
    for kind in ("linear", "constant"):
        for dtype in (*FLOATS, "int32", "complex64"):
            x = inputs.array((3, 8), dtype)
            yield _named("detrend", x, type=kind, modes=MODES if dtype == "float32" else QUICK)
        yield _named("detrend", inputs.array((7, 2), "float32"), axis=0, type=kind)
        yield _named("detrend", inputs.array((2, 6, 3), "float32"), axis=inputs.axis(3), type=kind)
        yield _named("detrend", inputs.array((9,), "float32"), type=kind, bp=4)
        yield _named("detrend", inputs.array((9,), "float32"), type=kind, bp=[3, 6], modes=QUICK)
        yield _named("detrend", inputs.array((9,), "float32"), type=kind, bp=np.array([3, 6]).tolist(), modes=QUICK)
        yield _named("detrend", inputs.array((1,), "float32"), type=kind, modes=QUICK)
        yield _named("detrend", inputs.array((0,), "float32"), type=kind, modes=("call",))
    yield _named("detrend", inputs.array((9,), "float32"), type="other", modes=("call",))
    yield _named("detrend", inputs.array((9,), "float32"), bp=12, modes=("call",))


def _spectra(inputs: Inputs) -> Iterator[Case]:
    x, y = inputs.array((64,), "float32"), inputs.array((64,), "float32")
    some: tuple[dict[str, Any], ...] = (
        {"nperseg": 16},
        {"nperseg": 16, "noverlap": 4, "fs": 10.0},
        {"nperseg": 16, "nfft": 32, "window": "hamming"},
        {"nperseg": 16, "window": "boxcar", "return_onesided": False},
        {"nperseg": 15, "detrend": "linear"},
        {"window": ("tukey", 0.25), "nperseg": 16},
        {"nperseg": 200},
        {},
    )
    more: tuple[dict[str, Any], ...] = (
        {"nperseg": 16, "scaling": "spectrum"},
        {"nperseg": 16, "average": "median"},
        {"nperseg": 16, "detrend": False},
        {"nperseg": 16, "scaling": "other"},
        {"nperseg": 16, "average": "other"},
    )
    for i, keywords in enumerate((*some, *more)):
        modes = MODES if i < 2 else QUICK
        if i < len(some):
            yield _named("stft", x, modes=modes, **keywords)
        yield _named("welch", x, modes=modes, **keywords)
        yield _named("csd", x, y, modes=modes, **keywords)
    yield _named("stft", x, nperseg=16, boundary=None, padded=False)
    for boundary in ("even", "odd", "constant", "other"):
        yield _named("stft", x, nperseg=16, boundary=boundary, modes=QUICK)
    for kind in ("float16", "bfloat16", "int32", "complex64"):
        z = inputs.array((32,), kind)
        yield _named("stft", z, nperseg=8, modes=QUICK)
        yield _named("welch", z, nperseg=8, modes=QUICK)
        yield _named("csd", z, z[::-1].copy(), nperseg=8, modes=QUICK)
    plane = inputs.array((32, 2), "float32")
    yield _named("stft", plane, nperseg=8, axis=0)
    yield _named("welch", plane, nperseg=8, axis=-2)
    yield _named("csd", plane, plane[::-1].copy(), nperseg=8, axis=0, modes=QUICK)
    yield _named("csd", x, None, nperseg=16, modes=QUICK)
    yield _named("csd", x, y[:48], nperseg=16, modes=QUICK)
    yield _named("csd", plane.T.copy(), x[:32], nperseg=8, modes=QUICK)
    yield _named("welch", x, window=np.hanning(16).astype(np.float32), modes=QUICK)
    for name in ("stft", "welch"):
        yield _named(name, x, nperseg=16, noverlap=16, modes=("call",))
        yield _named(name, x, nperseg=16, nfft=8, modes=("call",))
        yield _named(name, x, nperseg=0, modes=("call",))
        yield _named(name, x[:0], modes=("call",))
        yield _named(name, x, window="nonsense", nperseg=16, modes=("call",))


def _inverse(inputs: Inputs) -> Iterator[Case]:
    spectrum = inputs.array((9, 7), "complex64")
    yield _named("istft", spectrum)
    yield _named("istft", spectrum, fs=4.0, nperseg=16, noverlap=12)
    yield _named("istft", spectrum, boundary=False, modes=QUICK)
    yield _named("istft", spectrum, window="boxcar", noverlap=0, modes=QUICK)
    yield _named("istft", spectrum, nfft=20, nperseg=16, modes=QUICK)
    yield _named("istft", inputs.array((8, 7), "complex64"), input_onesided=False, modes=QUICK)
    yield _named("istft", spectrum.T.copy(), time_axis=0, freq_axis=1)
    yield _named("istft", inputs.array((2, 9, 7), "complex64"), modes=QUICK)
    yield _named("istft", inputs.array((9, 4), "float32"), modes=QUICK)
    yield _named("istft", inputs.array((9,), "complex64"), modes=("call",))
    yield _named("istft", spectrum, time_axis=0, freq_axis=0, modes=("call",))
    yield _named("istft", spectrum, nperseg=8, noverlap=9, modes=("call",))
