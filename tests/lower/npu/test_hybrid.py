"""Values on grids of their rows: which products take them in, in which formats, and what runtimes make of that."""

from functools import partial

import numpy as np
import pytest

import nxjax as nx
from nxjax import lax
from nxjax import numpy as jnp
from nxjax.lower.npu.hybrid import rows_settled
from nxjax.lower.npu.interpret import interpret
from nxjax.lower.npu.lower import lower

RNG = np.random.default_rng(3)
W, B, K = (RNG.normal(size=s).astype(np.float32) for s in ((16, 24), (24,), (8, 4, 3, 3)))
D, LAST = (RNG.normal(size=s).astype(np.float32) for s in ((8, 1, 3, 3), (8, 5)))


def dense(x):
    return nx.nn.relu(x @ W + B)


def turned(x):
    return lax.dot_general(x, W, (((0,), (0,)), ((), ())))


def net(x, pad=1):
    y = nx.nn.relu(lax.conv_general_dilated(x, K, (1, 1), ((pad, pad),) * 2))
    y = lax.conv_general_dilated(y, D, (2, 2), ((1, 1), (1, 1)), feature_group_count=8)
    return y.mean((2, 3)) @ LAST


def words(x):
    kernel = K[:, :, 0]
    return lax.conv_general_dilated(x, kernel, (1,), ((1, 1),))


def rows(*shape):
    """Rows of very different sizes."""
    sizes = (10.0 ** RNG.integers(-3, 3, shape[:1])).reshape(-1, *(1,) * (len(shape) - 1))
    return (RNG.normal(size=shape) * sizes).astype(np.float32)


CASES = {
    "one row": (dense, (1, 16)),
    "rows": (dense, (6, 16)),
    "tokens": (dense, (2, 3, 16)),
    "turned": (turned, (16, 3)),
    "an image": (net, (1, 4, 10, 10)),
    "images": (net, (3, 4, 10, 10)),
    "wide padding": (partial(net, pad=2), (1, 4, 9, 9)),
    "a line": (words, (1, 4, 12)),
}


def noise(y, z):
    y = np.asarray(y, np.float64)
    return 10 * np.log10((y**2).sum() / max(((y - np.asarray(z)) ** 2).sum(), 1e-300))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("format", ["tflite", "onnx", ""])
def test_graphs_mean_what_the_function_computes(name, format):
    f, shape = CASES[name]
    x = rows(*shape)
    q = nx.quantize(f, "dynamic-int8")
    graph = lower(nx.make_jaxpr(q)(x), format=format)
    dynamic = [n.attrs["dynamic"] for n in graph.nodes if n.op in ("fully_connected", "conv_2d")]
    assert dynamic and all(dynamic) == bool(format) and all(n.op != "quantize_rows" for n in graph.nodes)
    (y,) = interpret(graph, [x])
    assert noise(q(x), y) > 110


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("target", "module"), [("tflite", "ai_edge_litert"), ("onnx", "onnxruntime")])
def test_runtimes_bring_the_same_rows_to_bytes(name, target, module):
    pytest.importorskip(module)
    f, shape = CASES[name]
    x = rows(*shape)
    q = nx.quantize(f, "dynamic-int8")
    found = nx.compile(q, target=target, verify=False)(x).run(x)
    # Values within one rounding of half a step may fall on its other side.
    assert noise(q(x), found) > 60


def test_files_hold_bytes_and_integer_products():
    onnx = pytest.importorskip("onnx")
    x = rows(4, 16)
    q = nx.quantize(dense, "dynamic-int8")
    model = onnx.load_from_string(nx.compile(q, target="onnx", verify=False)(x).bytes)
    assert "MatMulInteger" in [n.op_type for n in model.graph.node]
    one = onnx.load_from_string(nx.compile(q, target="onnx", verify=False)(x[:1]).bytes)
    assert [n.op_type for n in one.graph.node][:2] == ["DynamicQuantizeLinear", "MatMulInteger"]
    file = nx.compile(q, target="tflite", verify=False)(x).bytes
    assert len(file) < W.size + 2500


@pytest.mark.parametrize("n", [1, 3])
def test_sums_of_large_integers_do_not_saturate(n):
    """ONNX Runtime's uint8 by int8 does, on processors without VNNI: one row lost everything."""
    pytest.importorskip("onnxruntime")
    w, x = jnp.ones((64, 8)), np.full((n, 64), 3.0, np.float32)
    artifact = nx.compile(nx.quantize(lambda x: x @ w, "dynamic-int8"), target="onnx")(x)
    assert artifact.deviation.sqnr > 100
    np.testing.assert_allclose(nx.interop.from_onnx(artifact.bytes, closed=True)(x), np.full((n, 8), 192.0), rtol=1e-5)


def test_products_of_two_activations_stay_floats():
    f = lambda w, x: (x @ w) @ (x @ w).T
    x, w = rows(3, 16), jnp.asarray(W)
    y = nx.quantize(lambda w, x: x @ w, "dynamic-int8", params=0)(w, x)
    np.testing.assert_array_equal(nx.quantize(f, "dynamic-int8", params=0)(w, x), y @ y.T)


def test_what_no_product_takes_in_is_computed():
    up = lambda x: lax.conv_transpose(x, K[:4], (2, 2), "SAME", dimension_numbers=("NCHW", "OIHW", "NCHW"))
    x = rows(2, 4, 5, 5)
    q = nx.quantize(up, "dynamic-int8")
    graph = lower(nx.make_jaxpr(q)(x), format="tflite")
    assert "round" in [n.op for n in graph.nodes] and rows_settled(graph, "tflite") is graph
    assert noise(q(x), interpret(graph, [x])[0]) > 110


@pytest.mark.parametrize("target", ["tflite", "onnx"])
def test_convolutions_of_volumes_compute_with_the_quantized_weights(target):
    pytest.importorskip("onnxruntime" if target == "onnx" else "ai_edge_litert")
    w, x = nx.random.normal(nx.random.key(0), (3, 3, 3, 4, 8)), nx.random.normal(nx.random.key(1), (1, 6, 6, 6, 4))
    layout = ("NDHWC", "DHWIO", "NDHWC")
    f = lambda x: nx.lax.conv_general_dilated(x, w, (1, 1, 1), "SAME", dimension_numbers=layout)
    artifact = nx.compile(nx.quantize(f, "dynamic-int8"), target=target)(x)
    assert artifact.deviation.sqnr > 100
