"""Resampling: values that JAX gives, and derivatives with respect to the translation."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

X = np.float32([0, 1, 4, 4, 1, 0, 1])
# method, antialias -> scaled by 0.6 and moved by 0.3 into 5 pixels; resized to 4 pixels (jax 0.10.2)
EXPECTED = {
    ("linear", True): ([0.25, 2.4375, 3.11765, 0.47059, 0.875], [0.61905, 3.4, 1.64, 0.57143]),
    ("cubic", False): ([-0.06579, 2.5625, 3.65046, 0.02778, 1.125], [0.19927, 4.16406, 1.2998, 0.63694]),
    ("cubic-pytorch", False): ([-0.08681, 2.59375, 3.5868, 0.00463, 1.09375], [0.1626, 4.24609, 1.38525, 0.57373]),
    ("area", True): ([0.14286, 2.5, 3.1, 0.4, 1.0], [0.42857, 3.57143, 1.71429, 0.57143]),
    ("lanczos3", True): ([-0.25877, 2.52833, 3.52137, 0.19862, 0.98694], [0.31105, 3.84543, 1.69336, 0.30681]),
}


def test_values():
    for (method, antialias), (warped, resized) in EXPECTED.items():
        got = nx.image.scale_and_translate(X, (5,), (0,), jnp.array([0.6]), jnp.array([0.3]), method, antialias)
        np.testing.assert_allclose(got, warped, atol=2e-5, err_msg=method)
        np.testing.assert_allclose(nx.image.resize(X, (4,), method, antialias), resized, atol=2e-5, err_msg=method)
    assert nx.image.ResizeMethod.from_string("bicubic-pytorch") is nx.image.ResizeMethod.CUBIC_PYTORCH


def test_derivative_of_the_translation():
    def f(t):
        y = nx.image.scale_and_translate(X, (5,), (-1,), jnp.array([0.6]), t, "cubic")
        return (y[1:4] ** 2).sum()  # the ends jump where a sample leaves the image

    t = jnp.array([0.45])
    slope = (float(f(t + 1e-2)) - float(f(t - 1e-2))) / 2e-2
    np.testing.assert_allclose(nx.grad(f)(t)[0], slope, rtol=1e-2)


def test_no_elements():
    for method in ("nearest", "linear", "cubic"):
        y = nx.image.resize(np.ones((2, 3), np.float16), (0, 3), method)
        assert y.shape == (0, 3) and y.dtype == np.float16


def test_errors():
    for shape, method in (((3, 3), "linear"), ((3,), "nearest"), ((3,), "best")):
        with pytest.raises(ValueError):
            nx.image.scale_and_translate(X, shape, (0,), [1.0], [0.0], method)
