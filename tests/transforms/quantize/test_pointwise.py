"""Functions of one value: which are taken to 8 and to 16 bits, and that what is left runs everywhere."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp

R = np.random.default_rng(0)
P = {"w": R.standard_normal((16, 16)).astype(np.float32) / 4}
X = R.standard_normal((4, 16)).astype(np.float32) * 2


def quantized(function, policy):
    f = lambda p, x: function(x @ p["w"]) @ p["w"]
    q = nx.quantize(f, policy, calibrate=[(P, X)])
    wanted, got = np.asarray(f(P, X)), np.asarray(q(P, X))
    assert 20 * np.log10(np.linalg.norm(wanted) / np.linalg.norm(wanted - got)) > 28
    return q, [e.op.name for e, _ in q.plan(q.traced(P, X)).left]


@pytest.mark.parametrize(
    "function",
    [
        nx.nn.sigmoid,
        jnp.tanh,
        nx.nn.gelu,
        nx.nn.leaky_relu,
        lambda x: jnp.exp(x / 4),
        lambda x: -x,
        jnp.abs,
        nx.nn.silu,
    ],
)
def test_functions_of_both_widths(function):
    for policy in ("int8", "int16x8"):
        q, left = quantized(function, policy)
        assert not left
        assert nx.compile(q, target="tflite")(P, X).deviation.exact


@pytest.mark.parametrize(
    ("function", "name"),
    [(nx.nn.elu, "elu"), (nx.nn.selu, "expm1"), (jnp.sin, "sin"), (jnp.exp2, "exp2")],
)
def test_functions_without_sixteen_bits_stay_float_between_grids(function, name):
    assert not quantized(function, "int8")[1]
    q, left = quantized(function, "int16x8")
    assert left == [name]
    for target in ("tflite", "onnx"):
        assert nx.compile(q, target=target)(P, X).deviation.max_lsb <= 1


@pytest.mark.parametrize("policy", ["int8", "int16x8"])
def test_negatives_are_products(policy):
    f = lambda p, x: jnp.tanh(-nx.nn.gelu(x @ p["w"])) @ p["w"]
    q = nx.quantize(f, policy, calibrate=[(P, X)])
    assert "qmul" in [e.op.name for e in nx.make_jaxpr(q)(P, X).equations]
    report = nx.explain(q, target="ethos-u55")(P, X)
    assert {r.op for r in report.host_rows} <= {"gelu"}
    np.testing.assert_array_equal(nx.jit(q)(P, X), q(P, X))
    slope = nx.grad(lambda p: q(p, X).sum())(P)["w"]
    wanted = nx.grad(lambda p: f(p, X).sum())(P)["w"]
    np.testing.assert_allclose(slope, wanted, atol=0.1 * np.abs(wanted).max())
