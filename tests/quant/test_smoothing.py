"""SmoothQuant of functions: the results stay, outlier channels go into weights, whoever else reads the norm."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import numpy as jnp
from nxjax.errors import ParameterError
from nxjax.quant import smoothed

RNG = np.random.default_rng(0)
GAMMA = np.where(np.arange(16) % 8 == 3, 40.0, 1.0).astype(np.float32)
BETA, W1, W2 = (RNG.normal(size=s).astype(np.float32) for s in ((16,), (16, 32), (32, 16)))


def whole(x):
    return nx.nn.layer_norm(x, jnp.asarray(GAMMA), jnp.asarray(BETA))


def spelled(x):
    mean = x.mean(-1, keepdims=True)
    off = x - mean
    return off / jnp.sqrt((off * off).mean(-1, keepdims=True) + 1e-5) * GAMMA + BETA


def rms(x):
    return x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * GAMMA


def block(norm):
    """Behind the norm there are a product and a residual sum, as in post-norm transformers."""

    def f(x):
        y = norm(x)
        return y / 40 + nx.nn.gelu(y @ W1) @ W2

    return f


X = [(jnp.asarray(RNG.normal(size=(32, 16)).astype(np.float32)),) for _ in range(3)]


def noise(y, z):
    y = np.asarray(y, np.float64)
    return 10 * np.log10((y**2).sum() / ((y - np.asarray(z)) ** 2).sum())


@pytest.mark.parametrize("norm", [whole, spelled, rms])
def test_the_function_stays_and_its_quantized_form_is_better(norm):
    f = block(norm)
    even = smoothed(f, X, 0.5)
    (x,) = X[0]
    np.testing.assert_allclose(even(x), f(x), rtol=1e-3, atol=1e-4)
    assert list(even.factors) == ["dot_general_0"], "the second product is behind no norm"
    scheme = nx.quant.Scheme(dense_per_channel=True)
    products = lambda op, scope, types: scheme if op == "dot_general" else None
    before, after = (noise(f(x), nx.quantize(g, products, calibrate=X)(x)) for g in (f, even))
    assert after > before + 3


def test_factors_are_those_of_the_paper_over_all_readers():
    f = lambda p, x: (nx.nn.rms_norm(x, p["g"]) @ p["a"], nx.nn.rms_norm(x, p["g"]) @ p["b"])
    p = {"g": jnp.asarray(GAMMA), "a": jnp.asarray(W1), "b": jnp.asarray(W1[:, :4] * 9)}
    even = smoothed(f, [(p, x) for (x,) in X], 0.25)
    top = np.max([np.abs(nx.nn.rms_norm(x, p["g"])).max(0) for (x,) in X], 0)
    for name, w in (("dot_general_0", W1), ("dot_general_1", W1[:, :4] * 9)):
        np.testing.assert_allclose(even.factors[name], top**0.25 / np.abs(w).max(1) ** 0.75, rtol=1e-5)
    for y, z in zip(even(p, X[0][0]), f(p, X[0][0]), strict=True):
        np.testing.assert_allclose(y, z, rtol=1e-3, atol=1e-3)
    g = nx.grad(lambda p: even(p, X[0][0])[0].sum())(p)
    np.testing.assert_allclose(g["a"], nx.grad(lambda p: f(p, X[0][0])[0].sum())(p)["a"], rtol=1e-3, atol=1e-2)


def test_errors_say_what_is_missing():
    with pytest.raises(ParameterError, match="alpha"):
        smoothed(block(whole), X, 2.0)
    with pytest.raises(ParameterError, match="no norm"):
        smoothed(lambda x: x @ W1, X)
    with pytest.raises(ParameterError, match="no data"):
        smoothed(block(whole), [])
