"""Weight methods: the float function stays, quantized it gets better, as their papers say."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax, nn

PER_TENSOR = nx.quant.Scheme(per_channel=False)


def conv(x, w, groups=1):
    return lax.conv_general_dilated(
        x, w, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups
    )


def separable(p, x):
    y = nn.relu(conv(x, p["c"]) + p["cb"])
    y = nn.relu(conv(y, p["d"], 16) + p["db"])
    y = nn.relu(conv(y, p["e"]) + p["eb"])
    return y.mean((1, 2)) @ p["v"] + p["vb"]


def spread(decades: float = 3.0):
    """A network whose channels differ in range by that many decades, and data."""
    rng = np.random.default_rng(1)
    n = lambda *s: rng.normal(size=s).astype(np.float32)
    p = {
        "c": n(3, 3, 3, 16) * 0.3, "cb": n(16) * 0.1, "d": n(3, 3, 1, 16) * 0.3, "db": n(16) * 0.1,
        "e": n(1, 1, 16, 12) * 0.3, "eb": n(12) * 0.1, "v": n(12, 10), "vb": n(10),
    }  # fmt: skip
    s, t = (10 ** rng.uniform(-decades / 2, decades / 2, 16).astype(np.float32) for _ in range(2))
    p["c"], p["cb"] = p["c"] * s, p["cb"] * s
    p["d"], p["db"] = p["d"] / s * t, p["db"] * t
    p["e"] = p["e"] / t[:, None]
    return p, n(64, 8, 8, 3)


def sqnr(y, q) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return 10 * np.log10((y**2).sum() / ((q - y) ** 2).sum())


def quality(f, p, x, policy=PER_TENSOR) -> float:
    return sqnr(f(p, x), nx.quantize(f, policy, calibrate=[(p, x)], bias_correction=False)(p, x))


def test_equalization_mends_a_collapsed_network():
    p, x = spread()
    even = nx.quant.equalize(separable, p, x)
    y = np.asarray(separable(p, x))
    np.testing.assert_allclose(np.asarray(separable(even, x)), y, rtol=1e-4, atol=1e-4)
    before, after = quality(separable, p, x), quality(separable, even, x)
    assert before < 15 and after > 30
    # Of classes, too: without it many predictions flip, with it less than 1 in 100.
    classes = y.argmax(-1)
    agree = lambda q: (
        np.asarray(nx.quantize(separable, PER_TENSOR, calibrate=[(q, x)], bias_correction=False)(q, x)).argmax(-1)
        == classes
    ).mean()
    assert agree(even) >= 0.99 > agree(p)


@pytest.mark.parametrize("tiny", [0.0, 1e-40, 1e-37, 1e-33])
def test_equalization_of_channels_that_are_nearly_nothing(tiny):
    """A channel that is nothing on one side stays; the others have equal ranges on both sides, however small."""
    p = {"a": np.array([[1.0, 16.0]], np.float32), "b": np.array([[1.0], [tiny]], np.float32)}
    equal = nx.quant.equalize(lambda p, x: nx.nn.relu(x @ p["a"]) @ p["b"], p, np.ones((1, 1), np.float32))
    a, b = np.asarray(equal["a"], np.float64)[0], np.asarray(equal["b"], np.float64)[:, 0]
    np.testing.assert_allclose(a * b, [1.0, 16 * tiny], rtol=1e-4)
    np.testing.assert_allclose(a[1], b[1] if tiny > 1e-38 else 16.0, rtol=1e-4)


def test_equalization_leaves_relu6_alone():
    def f(p, x):
        return nn.relu6(x @ p["a"] + p["b"]) @ p["c"]

    p = {"a": np.ones((4, 4), np.float32), "b": np.zeros(4, np.float32), "c": np.ones((4, 2), np.float32)}
    with pytest.raises(nx.errors.ParameterError, match="no two layers follow each other"):
        nx.quant.equalize(f, p, np.ones((2, 4), np.float32))


@pytest.mark.parametrize("bits", ["int4", "int8"])
def test_bias_correction_takes_the_mean_error_off(bits: str):
    p, x = spread(0.0)
    coarse = nx.quant.Scheme(weights=bits, per_channel=False)
    mended = nx.quant.correct_bias(separable, [(p, x)], coarse)
    assert set(mended) == set(p) and not np.allclose(mended["cb"], p["cb"])
    q = lambda q, **how: nx.quantize(separable, coarse, calibrate=[(q, x)], bias_correction=False, **how)(q, x)
    shift = lambda y: abs(np.asarray(y).mean(0) - np.asarray(separable(p, x)).mean(0)).max()
    assert shift(q(mended)) < shift(q(p))
    assert shift(q(mended)) < 0.5 * shift(q(p, error_feedback=False))


def test_smoothing_moves_outliers_into_weights():
    rng = np.random.default_rng(2)

    def f(p, x):
        return nn.gelu(nn.layer_norm(x, p["g"], p["b"]) @ p["w1"]) @ p["w2"]

    n = lambda *s: rng.normal(size=s).astype(np.float32)
    g = np.ones(32, np.float32)
    g[[3, 7]] = 60, 40
    p = {"g": g, "b": np.zeros(32, np.float32), "w1": n(32, 64) * 0.2, "w2": n(64, 32) * 0.2}
    p["w1"][[3, 7]] /= 50
    x = n(4, 16, 32)
    policy = lambda op, scope, types: None if op == "layer_norm" else "int8"
    smoothed = nx.quant.smooth(f, [(p, x)])
    np.testing.assert_allclose(np.asarray(f(smoothed, x)), np.asarray(f(p, x)), atol=1e-4)
    assert quality(f, smoothed, x, policy) > quality(f, p, x, policy) + 10


def test_smoothing_says_where_it_cannot():
    f = lambda p, x: x @ p["w"]
    with pytest.raises(nx.errors.ParameterError, match="no norm with parameters"):
        nx.quant.smooth(f, [({"w": np.ones((2, 2), np.float32)}, np.ones((1, 2), np.float32))])
    with pytest.raises(nx.errors.ParameterError, match="alpha"):
        nx.quant.smooth(f, [], 2.0)


def test_weights_have_to_be_arguments():
    w = np.ones((2, 2), np.float32)
    with pytest.raises(nx.errors.ParameterError, match="takes its weights from the arguments"):
        nx.quant.correct_bias(lambda x: x @ w, [(np.ones((1, 2), np.float32),)])
