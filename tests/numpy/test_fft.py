"""Fourier transforms, against JAX."""

import functools

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

R = np.random.RandomState(0)
X = jnp.array(R.randn(3, 4, 6).astype(np.float32))
Z = (X + 1j * X[::-1]).astype("complex64")


@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft", "ihfft"])
@pytest.mark.parametrize(
    "options", [{}, {"n": 5}, {"n": 8, "axis": 1}, {"norm": "ortho"}, {"norm": "forward"}], ids=str
)
def test_one_axis(check, name, options):
    x = X if name in ("rfft", "ihfft") else Z
    check.values(lambda m, x: getattr(m.fft, name)(x, **options), x, rtol=1e-4)


@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn", "fft2", "ifft2", "rfft2", "irfft2"])
def test_several_axes(check, name):
    x = X if name[0] == "r" else Z
    check.values(lambda m, x: getattr(m.fft, name)(x), x, rtol=1e-4)
    check.values(lambda m, x: getattr(m.fft, name)(x, s=(3, 8), axes=(0, 1), norm="ortho"), x, rtol=1e-4)
    check.vmap(lambda m, x: getattr(m.fft, name)(x, axes=(0, 1)), x, rtol=1e-4)


@pytest.mark.parametrize("norm", [None, "ortho", "forward"])
@pytest.mark.parametrize("name", ["fftn", "ifftn", "rfftn", "irfftn"])
def test_any_number_of_axes(check, name, norm):
    """NumPy is the judge: JAX has no more than three."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(2, 3, 4, 3, 2)) + (0 if name[0] == "r" else 1j * rng.normal(size=(2, 3, 4, 3, 2)))
    for count in range(1, 6):
        axes = tuple(int(a) for a in rng.permutation(5)[:count])
        wanted = getattr(np.fft, name)(x, axes=axes, norm=norm)
        f = functools.partial(getattr(jnp.fft, name), axes=axes, norm=norm)
        for way in (f, nx.jit(f)):
            np.testing.assert_allclose(way(x), wanted, rtol=1e-4, atol=1e-4 * abs(wanted).max())


def test_gradient(check):
    check.grad(lambda m, x: m.abs(m.fft.rfft(x)), X, rtol=1e-3, atol=1e-4)
    check.grad(lambda m, x: m.fft.irfft(m.fft.rfft(x) * 2), X, rtol=1e-3, atol=1e-4)


def test_frequencies(check):
    check.values(lambda m: [m.fft.fftfreq(6, 0.5), m.fft.rfftfreq(7), m.fft.fftfreq(5)])
    check.values(lambda m, x: [m.fft.fftshift(x), m.fft.ifftshift(x, 1), m.fft.fftshift(x, (0, 2))], X)


def test_integers_become_complex(check):
    check.values(lambda m: m.fft.fft(np.arange(6)), rtol=1e-4)


def test_refusals(check):
    check.raises_alike(lambda m, x: m.fft.rfft(x), Z)
    check.raises_alike(lambda m, x: m.fft.fft(x, norm="bad"), X)
    check.raises_alike(lambda m, x: m.fft.fft(x, n=0), X)


def test_transforms_of_nothing():
    for name in ("fft", "ifft", "irfft", "hfft"):
        assert getattr(jnp.fft, name)(jnp.zeros((3, 0))).shape == (3, 0)
    assert jnp.fft.irfft(jnp.zeros((2, 1))).shape == (2, 0)
    assert jnp.fft.irfft2(jnp.zeros((0, 2))).dtype == jnp.float32
    with pytest.raises(ValueError):
        jnp.fft.rfft(jnp.zeros(0))
    assert jnp.fft.fftfreq(0).shape == (0,) and np.isnan(jnp.fft.rfftfreq(0)).tolist() == [True]
    assert jnp.fft.rfftfreq(4, dtype="int32").tolist() == [0, 0.25, 0.5]
    assert jnp.fft.ihfft([1, 2, 3]).shape == (2,)
