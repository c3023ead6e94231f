"""Convolution, correlation, detrend as jax.scipy.signal and SciPy."""

import jax.scipy.signal as theirs
import numpy as np
import pytest
import scipy.signal

import nxjax as nx
from nxjax.scipy import signal as ours
from nxjax.scipy.signal.windows import named

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(6, 7)).astype(np.float32), rng.normal(size=(3, 4)).astype(np.float32)


@pytest.mark.parametrize("mode", ["full", "same", "valid"])
@pytest.mark.parametrize("name", ["convolve", "correlate", "convolve2d", "correlate2d", "fftconvolve"])
def test_values(name, mode):
    for a, b in ((X, Y), (X[:, :5], Y[:2, :2])):
        want = getattr(scipy.signal, name)(a, b, mode)
        np.testing.assert_allclose(np.asarray(getattr(ours, name)(a, b, mode)), want, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(np.asarray(getattr(theirs, name)(a, b, mode)), want, rtol=1e-4, atol=1e-5)
    if name == "convolve":
        z = (X + 1j * X[::-1]).astype(np.complex64)
        np.testing.assert_allclose(
            np.asarray(ours.convolve(z, z[:2, :2], mode)),
            scipy.signal.convolve(z, z[:2, :2], mode),
            rtol=1e-3,
            atol=1e-4,
        )
        np.testing.assert_allclose(
            np.asarray(ours.convolve(X[0], Y[0], mode, method="fft")),
            scipy.signal.convolve(X[0], Y[0], mode),
            rtol=1e-4,
            atol=1e-5,
        )


@pytest.mark.parametrize("kind", ["linear", "constant"])
@pytest.mark.parametrize("axis", [0, -1])
def test_detrend(kind, axis):
    want = np.asarray(theirs.detrend(X, axis=axis, type=kind))
    np.testing.assert_allclose(np.asarray(ours.detrend(X, axis=axis, type=kind)), want, atol=1e-5)


def test_windows_are_scipys():
    plain = ("boxcar", "hann", "hamming", "blackman", "nuttall", "blackmanharris", "flattop", "bartlett", "barthann",
             "bohman", "cosine", "exponential", "lanczos", "parzen", "triang", "tukey")  # fmt: skip
    given = (("tukey", 0.25), ("tukey", 0.0), ("exponential", None, 3.0), ("gaussian", 2.0), ("kaiser", 5.0),
             ("general_cosine", [0.5, 0.3, 0.2]), ("general_gaussian", 1.5, 2.0), ("general_hamming", 0.6))  # fmt: skip
    for window in (*plain, *given):
        for n in (1, 2, 9, 16):
            want = scipy.signal.get_window(window, n)
            np.testing.assert_allclose(named("stft", window, n), want, atol=1e-12, err_msg=str(window))
    for bad in ("unknown", "kaiser", ("hann", 2.0)):
        with pytest.raises(nx.errors.ParameterError, match="window"):
            named("stft", bad, 8)


def test_errors():
    with pytest.raises(nx.errors.ParameterError, match="mode"):
        ours.convolve(X, Y, "wrong")
    with pytest.raises(nx.errors.ShapeError, match="rank"):
        ours.convolve(X, Y[0])
    with pytest.raises(nx.errors.ShapeError, match="fit into"):
        ours.convolve(X, rng.normal(size=(7, 2)), "valid")
    with pytest.raises(nx.errors.ShapeError, match="2 dimensions"):
        ours.convolve2d(X[0], Y[0])
    with pytest.raises(NotImplementedError):
        ours.convolve2d(X, Y, boundary="wrap")
