"""Convolution, correlation, detrend as jax.scipy.signal and SciPy."""

import jax.scipy.signal as theirs
import numpy as np
import pytest
import scipy.signal

import nxjax as nx
from nxjax.scipy import signal as ours

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
