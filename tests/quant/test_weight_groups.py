"""Tables of weights: rows looked up are rows of the stored table, in every scheme that keeps activations float."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.quant import Scheme
from nxjax.trace import dtypes

RNG = np.random.default_rng(0)
P = {"table": RNG.normal(size=(40, 64)).astype(np.float32), "w": RNG.normal(size=(64, 8)).astype(np.float32)}
TOKENS = np.array([[1, 39, 7], [0, 7, 7]], np.int32)


def tower(p: Any, tokens: Any) -> Any:
    return p["table"][tokens] @ p["w"]


def rounded(policy: str) -> np.ndarray:
    """The table as a policy stores it, by its definition."""
    w = P["table"]
    groups = w.reshape(40, 2, 32) if policy == "int4-weights" else w[:, None]
    limit = {"int4-weights": 7, "fp8": 448}.get(policy, 127)
    scale = np.maximum(np.abs(groups).max(-1, keepdims=True) * np.float32(1 / limit), np.float32(2.0**-100))
    ratio = np.clip(groups / scale, -limit, limit)
    whole = ratio.astype(dtypes.float8_e4m3fn).astype(np.float32) if policy == "fp8" else np.rint(ratio)
    return (whole * scale).reshape(w.shape)


@pytest.mark.parametrize("policy", ["int8-weights", "int4-weights", "dynamic-int8", "fp8"])
def test_rows_are_those_of_the_stored_table(policy: str):
    qf = nx.quantize(lambda p, t: p["table"][t], policy)
    wanted = rounded(policy)[TOKENS]
    np.testing.assert_array_equal(qf(P, TOKENS), wanted)
    np.testing.assert_array_equal(nx.jit(qf)(P, TOKENS), wanted)
    np.testing.assert_array_equal(nx.vmap(qf, in_axes=(None, 0))(P, TOKENS), wanted)
    stored = qf.quantize_params(P, TOKENS)
    assert stored["table"].nbytes < P["table"].nbytes / (6 if policy == "int4-weights" else 3.5)
    np.testing.assert_array_equal(qf(stored, TOKENS), wanted)


def test_gradients_reach_the_rows_that_were_read():
    qf = nx.quantize(tower, "int8-weights")
    g = nx.grad(lambda p: qf(p, TOKENS).sum())(nx.tree.map(nx.asarray, P))
    wanted = nx.grad(lambda p: tower(p, TOKENS).sum())(nx.tree.map(nx.asarray, P))
    np.testing.assert_allclose(g["table"], wanted["table"], atol=0.2)
    assert set(np.flatnonzero(np.abs(np.asarray(g["table"])).sum(1))) == {0, 1, 7, 39}


@pytest.mark.parametrize("take", ["column", "pair", "slice"])
def test_every_kind_of_look_up(take: str):
    looks = {
        "column": lambda p, t: p["table"][:, t],
        "pair": lambda p, t: p["table"][t, t + 3],
        "slice": lambda p, t: nx.lax.dynamic_slice_in_dim(p["table"], t[0], 2) @ p["w"],
    }
    f, t = looks[take], np.array([5, 2], np.int32)
    qf = nx.quantize(f, "int8-weights")
    assert np.abs(np.asarray(qf(P, t)) - np.asarray(f(P, t))).max() < 0.2
    np.testing.assert_allclose(nx.jit(qf)(P, t), qf(P, t), rtol=1e-6, atol=1e-6)


def test_a_table_that_also_multiplies_is_stored_once():
    """Tied embeddings: rows in, logits out."""
    f = lambda p, t: jnp.tanh(p["table"][t]) @ p["table"].T
    qf = nx.quantize(f, Scheme(activations=None, weights=dtypes.int8, dense_per_channel=True))
    names = [e.op.name for e in nx.make_jaxpr(qf)(P, TOKENS).equations]
    assert names.count("quantize_weight") == 2
    stored = qf.quantize_params(P, TOKENS)
    assert stored["table"].dtype == np.int8
    np.testing.assert_array_equal(qf(stored, TOKENS), qf(P, TOKENS))


@pytest.mark.parametrize("target", ["tflite", "onnx", "openvino-cpu", "stablehlo"])
def test_deployed_tables_stay_small(target: str):
    table = {"table": RNG.normal(size=(500, 64)).astype(np.float32), "w": P["w"]}
    qf = nx.quantize(tower, "int8-weights")
    artifact = nx.compile(qf, target=target)(table, TOKENS)
    size = 500 * 64 * (2 if target == "stablehlo" else 1)
    assert max(map(len, artifact.files.values())) < 1.4 * size
    np.testing.assert_allclose(artifact.run(TOKENS), qf(table, TOKENS), rtol=1e-5, atol=1e-5)
