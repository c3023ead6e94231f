"""Fourier transforms against NumPy and JAX: values, derivatives, batching, errors."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.ops.fft import FftType, fft
from nxjax.testing import check_op, sample

LENGTHS = [(8,), (7,), (1,), (4, 6), (3, 5), (2, 3, 4)]


def operand(kind, lengths, front=(2,), seed=0):
    rng = np.random.default_rng(seed)
    last = lengths[-1] // 2 + 1 if kind is FftType.IRFFT else lengths[-1]
    shape = (*front, *lengths[:-1], last)
    x = rng.standard_normal(shape)
    if kind is not FftType.RFFT:
        x = x + 1j * rng.standard_normal(shape)
    return x.astype(np.float32 if kind is FftType.RFFT else np.complex64)


@pytest.mark.parametrize("kind", list(FftType))
@pytest.mark.parametrize("lengths", LENGTHS)
def test_values_and_derivatives_are_jax(kind, lengths):
    import jax

    x = operand(kind, lengths)
    f = lambda v: fft(v, fft_type=kind, fft_lengths=lengths)
    g = lambda v: jax.lax.fft(v, kind.name, lengths)
    expected, pull_jax = jax.vjp(g, x)
    found, pull = nx.vjp(f, x)
    close = lambda a, b: np.testing.assert_allclose(a.numpy(), np.asarray(b), rtol=1e-4, atol=1e-4)
    close(found, expected)
    close(nx.jit(f)(x), expected)
    assert found.dtype == expected.dtype
    rng = np.random.default_rng(1)
    ct = rng.standard_normal(expected.shape)
    if expected.dtype == np.complex64:
        ct = ct + 1j * rng.standard_normal(expected.shape)
    ct = ct.astype(expected.dtype)
    close(pull(nx.asarray(ct))[0], pull_jax(ct)[0])
    close(nx.jvp(f, (x,), (x,))[1], expected)
    # The transpose of the transpose is the transform.
    again = nx.linear_transpose(lambda c: pull(c)[0], nx.asarray(ct))(nx.asarray(x))[0]
    close(again, expected)


@pytest.mark.parametrize("kind", list(FftType))
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_vmap(kind, dim):
    x = operand(kind, (4,), (3, 2))
    f = lambda v: fft(v, fft_type=kind, fft_lengths=(4,))
    found = nx.vmap(f, in_axes=dim)(np.moveaxis(x, 0, dim)).numpy()
    np.testing.assert_allclose(found, f(nx.asarray(x)).numpy(), rtol=1e-5, atol=1e-5)


def test_double_precision_stays():
    x = nx.asarray(np.ones(4)).astype(nx.float64)
    assert fft(x, fft_type=FftType.RFFT, fft_lengths=(4,)).dtype == np.complex128


def test_empty_batch():
    x = nx.asarray(np.zeros((0, 4), np.complex64))
    f = lambda v: fft(v, fft_type=FftType.IRFFT, fft_lengths=(6,))
    assert f(x).shape == nx.jit(f)(x).shape == (0, 6)


@pytest.mark.parametrize(
    ("kind", "shape", "dtype", "lengths", "error", "text"),
    [
        (FftType.FFT, (4,), np.float32, (4,), DtypeError, "does not take this dtype"),
        (FftType.RFFT, (4,), np.complex64, (4,), DtypeError, "does not take this dtype"),
        (FftType.FFT, (4,), np.complex64, (5,), ShapeError, "does not fit the operand"),
        (FftType.IRFFT, (4,), np.complex64, (4,), ShapeError, "does not fit the operand"),
        (FftType.FFT, (4,), np.complex64, (), ParameterError, "number of dimensions"),
        (FftType.FFT, (4,), np.complex64, (1, 4), ShapeError, "does not fit the operand"),
    ],
)
def test_errors(kind, shape, dtype, lengths, error, text):
    with pytest.raises(error, match=f"fft: .*{text}"):
        fft(nx.asarray(np.ones(shape, dtype)), fft_type=kind, fft_lengths=lengths)


def test_laws():
    samples = [
        sample(operand(kind, lengths), fft_type=kind, fft_lengths=lengths)
        for kind in FftType
        for lengths in ((6,), (3, 5))
    ]
    check_op(fft, samples, rtol=1e-4)
