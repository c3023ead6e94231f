"""Exported functions where others look inside: quantized, and compiled for chips."""

import jax
import jax.export
import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError

R = np.random.default_rng(0)
PARAMS = {
    "w": jnp.array(R.normal(size=(12, 32)).astype("f4") * 0.3),
    "v": jnp.array(R.normal(size=(32, 5)).astype("f4")),
}
X = jnp.array(R.normal(size=(6, 12)).astype("f4"))


def net(params, x):
    return nx.nn.softmax(nx.nn.gelu(x @ params["w"]) @ params["v"])


@pytest.fixture(scope="module")
def loaded():
    return nx.export.deserialize(nx.export.export(nx.jit(net))(PARAMS, X).serialize(vjp_order=1))


def test_quantized_it_is_what_the_function_is_quantized(loaded):
    expected = nx.quantize(net, "int8", calibrate=[(PARAMS, X)])
    found = nx.quantize(loaded.call, "int8", calibrate=[(PARAMS, X)])
    assert found(PARAMS, X).tolist() == expected(PARAMS, X).tolist()
    assert nx.grad(lambda p: found(p, X)[0, 0])(PARAMS)["w"].shape == (12, 32)


@pytest.mark.parametrize("target", ["onnx", "ipu-bow"])
def test_targets_have_a_row_per_operation(loaded, target):
    report = nx.explain(loaded.call, target=target)(PARAMS, X)
    assert "softmax" in [r.op for r in report.rows]
    assert "call_exported" not in [r.op for r in report.rows]


def test_what_is_known_to_xla_alone_stays_a_call():
    square = np.asarray(X[:, :6])
    blob = jax.export.export(jax.jit(lambda a: jax.lax.linalg.hessenberg(a @ a.T)[0]))(square).serialize()
    alone = nx.export.deserialize(blob)
    both = nx.quantize(lambda p, x: (x @ p["w"]).sum() + alone.call(x[:, :6]).sum(), "int8", calibrate=[(PARAMS, X)])
    assert abs(float(both(PARAMS, X) - (X @ PARAMS["w"]).sum() - alone.call(square).sum())) < 1.0
    with pytest.raises(ParameterError, match="nothing in the function"):
        nx.quantize(alone.call, "int8", calibrate=[(square,)])
