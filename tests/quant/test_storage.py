"""Stored parameters: followed through transposes, reshapes and loops; the quantized function gives the same bits."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import ParameterError
from nxjax.quant import PRESETS, QArray, Scheme

R = np.random.default_rng(0)
INTEGER = ("int8", "int16x8")


def normal(*shape: int, scale: float = 1.0) -> np.ndarray:
    return (scale * R.standard_normal(shape)).astype(np.float32)


P = {"w": normal(64, 48, scale=0.2), "b": normal(48, scale=0.1), "v": normal(48, 10, scale=0.2)}
X = normal(32, 64)
BATCH = [(P, X)]


# In dB, of two dense layers.
LEAST = {"int8": 32, "int16x8": 32, "dynamic-int8": 32, "int8-weights": 34, "int4-weights": 13, "fp8": 20}


def f(p: Any, x: Any) -> Any:
    return nn.relu(x @ p["w"] + p["b"]) @ p["v"]


def sqnr(y: Any, q: Any) -> float:
    y, q = np.asarray(y, np.float64), np.asarray(q, np.float64)
    return float(10 * np.log10((y**2).sum() / max(((q - y) ** 2).sum(), 1e-30)))


def bits(a: Any, b: Any) -> None:
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and np.array_equal(a, b)


def test_weights_arranged_anew_are_stored():
    p = {"t": normal(48, 64), "r": normal(64, 4, 12), "m": normal(8, 8, 16), "c": normal(16, 3, 3, 64)}
    g = lambda p, x: (
        x @ p["t"].T,
        jnp.einsum("bi,ihd->bhd", x, p["r"]),
        x @ p["m"].reshape(64, 16),
        jnp.einsum("bi,oxyi->boxy", x, p["c"]),
    )
    for name in PRESETS:
        q = nx.quantize(g, name, calibrate=[(p, X)])
        stored = q.quantize_params(p, X)
        assert all(isinstance(v, QArray) for k, v in stored.items() if k != "m"), name
        assert isinstance(stored["m"], QArray) or name not in INTEGER
        for a, b in zip(q(stored, X), q(p, X), strict=True):
            if name in INTEGER:
                bits(a, b)
            np.testing.assert_allclose(a, b, 1e-4, 1e-4)


def test_weights_used_in_two_ways_stay_float():
    p = {"w": normal(8, 8), "tied": normal(20, 8), "v": normal(8, 4)}

    def g(p: Any, x: Any, ids: Any) -> Any:
        return x @ p["w"] + p["w"].sum(0), p["tied"][ids] @ p["tied"].T, x @ p["v"]

    x, ids = normal(5, 8), np.array([1, 2, 3])
    for name in PRESETS:
        q = nx.quantize(g, name, calibrate=[(p, x, ids)])
        stored = q.quantize_params(p, x, ids)
        # A table whose rows have scales of their own is the same one in both uses.
        assert [type(stored[k]) for k in ("w", "v")] == [np.ndarray, QArray]
        assert isinstance(stored["tied"], np.ndarray if name in INTEGER else QArray)
        for a, b in zip(q(stored, x, ids), q(p, x, ids), strict=True):
            if name in INTEGER:
                bits(a, b)
            np.testing.assert_allclose(a, b, 1e-4, 1e-4)
    # Two products that store it alike share it; with scales per channel they do not.
    shared = lambda p, x: (x @ p["w"]) @ p["w"].T
    q = nx.quantize(shared, Scheme(dense_per_channel=False), calibrate=[(p, x)])
    bits(q(q.quantize_params(p, x), x), q(p, x))
    for q in (nx.quantize(shared, "int8", calibrate=[(p, x)]), nx.quantize(shared, "int8-weights")):
        with pytest.raises(ParameterError, match="different scales") as error:
            q.quantize_params(p, x)
        assert "args[0]['w'], f32[8,8], with 1x8 and 8x1 scales" in str(error.value)
    other = nx.quantize(lambda p, x: x @ p["w"] + p["w"].sum(0), "int8", calibrate=[(p, x)])
    with pytest.raises(ParameterError, match="no weight in the arguments is stored"):
        other.quantize_params(p, x)


@pytest.mark.parametrize("name", ["int8", "dynamic-int8", "int4-weights"])
def test_stored_weights_go_into_loops(name: str):
    p = {"ws": normal(3, 8, 8, scale=0.3), "u": normal(8, 8, scale=0.3), "k": normal(8, 8, scale=0.3)}

    def g(p: Any, start: Any) -> Any:
        x = lax.scan(lambda c, w: (nn.relu(c @ w) + c @ p["u"].T, None), start, p["ws"])[0]
        x = nx.checkpoint(lambda k, x: jnp.tanh(x @ k))(p["k"], x)
        return lax.cond(start.sum() > 0, lambda x: x @ p["k"], lambda x: -x @ p["k"], x)

    x = normal(4, 8)
    data = [(p, x), (p, -x)]
    q = nx.quantize(g, name, calibrate=data)
    stored = q.quantize_params(p, x)
    assert all(isinstance(v, QArray) for v in stored.values()) and stored["ws"].scale.shape[0] == 3
    for _, x in data:
        if name in INTEGER:
            bits(q(stored, x), q(p, x))
            bits(nx.jit(q)(stored, x), q(p, x))
        np.testing.assert_allclose(q(stored, x), q(p, x), 1e-4, 1e-4)
    assert jnp.isfinite(nx.grad(lambda x: q(stored, x).sum())(nx.asarray(x))).all()
    bits(nx.vmap(q, in_axes=(None, 0))(stored, x[None])[0].shape, q(p, x).shape)


def test_weights_stored_for_another_policy():
    """Scales are taken over where they fit, and found anew where they do not."""
    for source in PRESETS:
        stored = nx.quantize(f, source, calibrate=BATCH).quantize_params(P, X)
        for name in PRESETS:
            least = min(LEAST[source], LEAST[name])
            assert sqnr(f(P, X), nx.quantize(f, name, calibrate=BATCH)(stored, X)) > least, (source, name)
    eight = nx.quantize(f, "int8", calibrate=BATCH).quantize_params(P, X)
    again = nx.quantize(f, "int4-weights").quantize_params(eight, X)
    assert again["w"].dtype.name == "int4"
    assert nx.quantize(f, "int8", calibrate=BATCH).quantize_params(eight, X)["w"] is eight["w"]
