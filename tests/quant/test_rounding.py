"""GPTQ and AdaRound: better than rounding to the nearest on correlated data, never worse; QArrays come out."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax, nn
from nxjax.quant import rounding
from nxjax.quant.error_feedback import fed_back, feedback

rng = np.random.default_rng(1)
MIX = rng.normal(size=(48, 48)) * np.logspace(0, -1.5, 48)


def model(p, x):
    y = nn.relu(
        lax.conv_general_dilated(x, p["c"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")) + p["cb"]
    )
    y = nn.relu(y.reshape(y.shape[0], -1) @ p["w"] + p["b"])
    return y @ p["v"].T


def setup():
    n = lambda *s: rng.normal(size=s).astype(np.float32)
    p = {"c": n(3, 3, 3, 8) * 0.3, "cb": n(8) * 0.1, "w": n(128, 32) * 0.1, "b": n(32) * 0.1, "v": n(10, 32) * 0.2}
    data = [(p, (rng.normal(size=(64, 48)) @ MIX).astype(np.float32).reshape(64, 4, 4, 3)) for _ in range(4)]
    return p, data


def sqnr(y, q) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return 10 * np.log10((y**2).sum() / ((q - y) ** 2).sum())


@pytest.mark.parametrize("method", [nx.quant.gptq, nx.quant.adaround], ids=["gptq", "adaround"])
@pytest.mark.parametrize("policy", ["int4-weights", "int8-weights"])
def test_better_than_to_the_nearest(method, policy: str):
    p, data = setup()
    x = data[-1][1]
    quantized = nx.quantize(model, policy)
    y = model(p, x)
    found = method(model, data[:3], policy)
    assert {k for k, v in found.items() if isinstance(v, nx.QArray)} == {"c", "w", "v"}
    assert sqnr(y, quantized(found, x)) > sqnr(y, quantized(p, x)) + 0.3
    np.testing.assert_allclose(nx.jit(quantized)(found, x), quantized(found, x), rtol=1e-4, atol=1e-4)


def test_layers_are_never_worse_in_their_own_measure():
    w, x = rng.normal(size=(16, 24)), rng.normal(size=(200, 24)) @ rng.normal(size=(24, 24))
    scale = np.broadcast_to(abs(w).max(1, keepdims=True) / 7, w.shape)
    h = x.T @ x
    loss = lambda q: float(np.trace((q * scale - w) @ h @ (q * scale - w).T))
    nearest = loss(np.clip(np.rint(w / scale), -7, 7))
    assert loss(rounding._adaround(w, scale, h, 7, 200)) <= nearest
    assert loss(fed_back(w, scale, feedback(h), 7)) < nearest


def test_dead_inputs_and_grouped_convolutions_are_taken():
    def f(p, x):
        y = lax.conv_general_dilated(
            x, p["d"], (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=4
        )
        return y.mean((1, 2)) @ p["w"]

    p = {"d": rng.normal(size=(3, 3, 1, 4)).astype("f"), "w": rng.normal(size=(4, 3)).astype("f")}
    x = rng.normal(size=(8, 4, 4, 4)).astype("f")
    x[..., 2] = 0
    found = nx.quant.gptq(f, [(p, x)], "int8-weights")
    assert all(isinstance(v, nx.QArray) for v in found.values())
    assert sqnr(f(p, x), nx.quantize(f, "int8-weights")(found, x)) > 30
