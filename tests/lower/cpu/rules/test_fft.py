"""Fourier transforms through the CPU compiler: every kind by kernels, long lines as matrices, the rest by NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from nxjax.ops.fft import FftType, fft
from tests.lower.cpu.rules.equal import hosted, results, tape

# Several axes, of a prime, and one element; lines that are cut.
SHAPES = ((1,), (20, 1, 34), (1, 6000))


def operand(kind: FftType, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, *shape))
    if kind is FftType.IRFFT:
        x = x[..., : shape[-1] // 2 + 1]
    if kind is not FftType.RFFT:
        x = x + 1j * rng.standard_normal(x.shape)
    return x.astype(np.dtype(dtype) if kind is FftType.RFFT else np.result_type(dtype, "c8"))


@pytest.mark.parametrize("kind", list(FftType), ids=lambda k: k.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transforms(kind: FftType, shape: tuple[int, ...]):
    dtype = "f8" if len(shape) == 3 else "f4"
    x = operand(kind, shape, dtype)
    params = {"fft_type": kind, "fft_lengths": shape}
    (got,) = results(fft, x, **params)
    want = fft.eval(x, **params)
    assert (got.shape, got.dtype) == (want.shape, want.dtype)
    assert np.abs(got - want).max() <= 8 * np.finfo(want.dtype).eps * np.abs(want).max()


def test_numpy_answers_the_rest():
    empty = np.zeros((2, 0), "c8")
    assert hosted(tape(fft, empty, fft_type=FftType.FFT, fft_lengths=(0,)))
    prime = np.zeros(99991, "c8")
    assert hosted(tape(fft, prime, fft_type=FftType.FFT, fft_lengths=(99991,)))
