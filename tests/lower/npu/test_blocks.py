"""Weights of which every block has a scale are stored as few bits in every file, and mean the same."""

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.deploy import load
from nxjax.lower.npu.blocks import IN_FLOAT, WeightBlocks, compact, recovered
from nxjax.trace import dtypes
from tests.lower.npu.lowering import normal, ops, same

RUNTIMES = {"tflite": "ai_edge_litert", "onnx": "onnxruntime", "openvino-cpu": "openvino"}
CONV = {"window_strides": (1, 1), "padding": "SAME", "dimension_numbers": ("NHWC", "HWIO", "NHWC")}
W = normal(64, 16)
# Weights, what they compute, an operand, and the number of weights that share a scale.
LAYERS = {
    "bias": ((normal(64, 6), normal(6)), lambda p, x: nn.relu(x @ p[0] + p[1]), normal(3, 64), 32),
    "transposed": (normal(6, 64), lambda p, x: x @ p.T, normal(2, 3, 64), 16),
    "a row": (normal(64, 6), lambda p, x: x @ p, normal(64), 32),
    "on the left": (normal(6, 64), lambda p, x: p @ x, normal(64, 5), 32),
    "groups that do not divide": (normal(40, 7), lambda p, x: x @ p, normal(4, 40), 32),
    "odd groups": (normal(33, 5), lambda p, x: x @ p, normal(4, 33), 11),
    "groups of no power of two": (normal(72, 6), lambda p, x: x @ p, normal(4, 72), 36),
    "one weight": (normal(1, 5), lambda p, x: x @ p, normal(4, 1), 32),
    "of a batch": (normal(3, 64, 5), lambda p, x: jnp.einsum("bmk,bkn->bmn", x, p), normal(3, 2, 64), 16),
    "heads": (normal(4, 64, 6), lambda p, x: jnp.einsum("bhd,hdk->bk", x, p), normal(2, 4, 64), 32),
    "twice": (normal(64, 64), lambda p, x: jnp.tanh(x @ p) @ p, normal(2, 64), 32),
    "both ways": (normal(64, 32), lambda p, x: jnp.tanh(x @ p) @ p.T, normal(2, 64), 32),
    "convolution": (
        normal(3, 3, 64, 5), lambda p, x: lax.conv_general_dilated(x, p, **CONV), normal(1, 4, 4, 64), 32,
    ),
    "convolution in groups": (
        normal(3, 3, 32, 4), lambda p, x: lax.conv_general_dilated(x, p, feature_group_count=2, **CONV),
        normal(1, 4, 4, 64), 16,
    ),
    "transposed convolution": (
        normal(3, 3, 64, 5),
        lambda p, x: lax.conv_transpose(x, p, (2, 2), "SAME", dimension_numbers=CONV["dimension_numbers"]),
        normal(1, 3, 3, 64), 32,
    ),
    "rows looked up": (normal(10, 64), lambda p, x: p[x], np.int32([3, 0, 9]), 32),
}  # fmt: skip


def quantized(name, bits="int4"):
    p, f, x, group = LAYERS[name]
    scheme = nx.quant.Scheme(activations=None, weights=bits, dense_per_channel=True, group=group)
    return lambda x: nx.quantize(f, scheme, params=0)(p, x), x


@pytest.mark.parametrize("name", LAYERS)
def test_the_graph_stores_integers(name):
    f, x = quantized(name)
    graph = same(f, x)
    assert compact(graph) and not graph.notes
    floats = [t.size for t in graph.constants() if t.dtype == dtypes.float32]
    assert max(floats, default=0) <= 6


@pytest.mark.parametrize("target", RUNTIMES)
@pytest.mark.parametrize("name", LAYERS)
def test_files_compute_what_the_program_does(target, name):
    pytest.importorskip(RUNTIMES[target])
    f, x = quantized(name)
    artifact = nx.compile(f, target=target, verify=False)(x)
    np.testing.assert_allclose(artifact.run(x), f(x), rtol=1e-5, atol=1e-4)
    if target != "openvino-cpu":
        np.testing.assert_allclose(load(artifact.bytes).run(x), f(x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", RUNTIMES)
def test_four_bits_are_about_half_of_eight(target):
    pytest.importorskip(RUNTIMES[target])
    w, x = normal(256, 256), normal(2, 256)
    size = {
        policy: sum(map(len, nx.compile(nx.quantize(lambda x: x @ w, policy), target=target)(x).files.values()))
        for policy in ("int8-weights", "int4-weights")
    }
    # A scale of 4 bytes for 32 weights.
    assert size["int4-weights"] < 0.65 * size["int8-weights"] and size["int8-weights"] < 1.2 * w.size


def test_onnx_runtime_multiplies_with_the_integers():
    onnx, ort = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    f, x = quantized("bias")
    data = nx.compile(f, target="onnx", verify=False)(x).bytes
    kinds = [n.op_type for n in onnx.load_from_string(data).graph.node]
    assert kinds == ["DequantizeLinear", "MatMul", "Add", "Relu"]
    options = ort.SessionOptions()
    options.add_session_config_entry("session.qdq_matmulnbits_accuracy_level", "1")
    session = ort.InferenceSession(data, options)
    (name,) = (v.name for v in session.get_inputs())
    np.testing.assert_allclose(session.run(None, {name: x})[0], f(x), rtol=1e-5, atol=1e-4)


def test_older_files_store_blocks_as_rows_of_bytes():
    pytest.importorskip("onnxruntime")
    f, x = quantized("bias")
    artifact = nx.compile(f, target="onnx", opset=17)(x)
    np.testing.assert_allclose(artifact.run(x), f(x), rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(load(artifact.bytes).run(x), f(x), rtol=1e-5, atol=1e-4)


def test_blocks_of_bytes():
    f, x = quantized("bias", "int8")
    assert ops(same(f, x)) == ["dequantize", "reshape", "fully_connected"]


def test_blocks_that_save_nothing_are_floats():
    scheme = nx.quant.Scheme(activations=None, weights="int4", dense_per_channel=True, group=2)
    graph = same(nx.quantize(lambda x: x @ W, scheme), normal(2, 64))
    assert ops(graph) == ["fully_connected"] and graph.notes == [IN_FLOAT]


def test_blocks_under_another_shape():
    blocks = WeightBlocks(np.arange(8.0).reshape(4, 1, 2), dtypes.int4)
    assert blocks.reshaped((4, 3, 64), (12, 64)).scales.tolist() == np.repeat(blocks.scales[:, 0], 3, 0).tolist()
    assert blocks.reshaped((4, 3, 64), (768,)).scales.shape == (24,)
    assert blocks.reshaped((4, 3, 64), (16, 48)) is None


def test_grids_are_found_again_to_the_last_bit():
    rng = np.random.default_rng(0)
    scales = rng.uniform(1e-3, 1, (6, 4)).astype(np.float32)
    whole = rng.integers(-7, 8, (6, 64)).astype(np.float32)
    whole[:, ::16], whole[2], whole[3, 16:32] = 7, 0, np.eye(1, 16)
    rows = whole * np.repeat(scales, 16, 1)
    found = recovered(rows, [(dtypes.int8, 64), (dtypes.int4, 16)])
    assert found.dtype == dtypes.int4 and found.scales.shape == (6, 4)
    stored, grid = found.rows(rows)
    assert np.array_equal(grid.dequantize(stored).reshape(rows.shape), rows)
    assert recovered(rng.normal(size=(4, 64)).astype(np.float32), [(dtypes.int8, 64), (dtypes.int4, 16)]) is None
