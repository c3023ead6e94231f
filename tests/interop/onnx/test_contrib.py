"""Operators give what ONNX Runtime gives: those of its domain, and those that ONNX has no tests of."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
from tests.interop.onnx.onnx_models import one

onnx: Any = pytest.importorskip("onnx")
onnxruntime: Any = pytest.importorskip("onnxruntime")
helper = onnx.helper
RNG = np.random.default_rng(0)


def floats(*shape: int, scale: float = 1.0) -> Any:
    return (RNG.normal(size=shape) * scale).astype(np.float32)


def bytes_(*shape: int) -> Any:
    return RNG.integers(0, 256, shape).astype(np.uint8)


def weights(*shape: int) -> Any:
    """Half of int8's range: without VNNI, ONNX Runtime saturates the sum of two products with uint8 in 16 bits."""
    return RNG.integers(-64, 64, shape).astype(np.int8)


def s(value: float) -> Any:
    return np.float32(value)


def z(value: int, dtype: Any = np.uint8) -> Any:
    return dtype(value)


MASK = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
ANGLES = RNG.uniform(0, 6, (16, 4)).astype(np.float32)
WIDE = RNG.uniform(0, 6, (16, 8)).astype(np.float32)
IDS = RNG.integers(0, 9, (2, 5)).astype(np.int32)
PAIRS = {"kernel_shape": [2, 2], "strides": [2, 2]}
# Operator, inputs (None: left out), how many results, attributes.
CASES: list[tuple[str, list[Any], int, dict[str, Any]]] = [
    ("FastGelu", [floats(3, 4), floats(4)], 1, {}),
    ("BiasGelu", [floats(3, 4), floats(4)], 1, {}),
    ("Gelu", [floats(3, 4)], 1, {}),
    ("QuickGelu", [floats(3, 4)], 1, {"alpha": 1.5}),
    ("FusedMatMul", [floats(2, 4, 3), floats(2, 5, 4)], 1, {"alpha": 0.5, "transA": 1, "transB": 1}),
    ("FusedMatMul", [floats(4, 2, 3), floats(2, 3, 5)], 1, {"transBatchA": 1}),
    ("FusedMatMul", [floats(3, 2, 4), floats(5, 2, 3)], 1,
     {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}),
    ("SkipLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8), floats(8), floats(8)], 1, {}),
    ("SkipSimplifiedLayerNormalization", [floats(2, 3, 8), floats(2, 3, 8), floats(8)], 1, {"epsilon": 1e-5}),
    (
        "EmbedLayerNormalization",
        [IDS, MASK, floats(9, 8), floats(6, 8), floats(2, 8), floats(8), floats(8), MASK],
        2,
        {"mask_index_type": 0},
    ),
    ("Attention", [floats(2, 5, 8), floats(8, 24), floats(24), MASK], 1, {"num_heads": 2}),
    ("Attention", [floats(2, 5, 8), floats(8, 24), floats(24)], 1, {"num_heads": 4, "unidirectional": 1}),
    # Where each sequence ends, and where it starts.
    ("Attention", [floats(2, 5, 8), floats(8, 24), floats(24), np.array([3, 4], np.int32)], 1, {"num_heads": 2}),
    ("Attention", [floats(2, 5, 8), floats(8, 24), floats(24), np.array([3, 4, 0, 2], np.int32)], 1, {"num_heads": 2}),
    ("MultiHeadAttention", [floats(2, 5, 8), floats(2, 7, 8), floats(2, 7, 8), floats(24)], 1, {"num_heads": 2}),
    (
        "RotaryEmbedding",
        [floats(2, 3, 5, 8), np.array([[3]], np.int64).reshape(1), np.cos(ANGLES), np.sin(ANGLES)],
        1,
        {"interleaved": 0},
    ),
    (
        "RotaryEmbedding",
        [floats(2, 3, 5, 8), RNG.integers(0, 16, (2, 5)), np.cos(ANGLES), np.sin(ANGLES)],
        1,
        {"interleaved": 1},
    ),
    (
        "GroupQueryAttention",
        [floats(2, 3, 32), floats(2, 3, 16), floats(2, 3, 16), None, None, np.array([2, 2], np.int32), np.int32(3),
         np.cos(WIDE), np.sin(WIDE)],
        1,
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1},
    ),
    (
        "GroupQueryAttention",
        [floats(2, 1, 16), floats(2, 1, 8), floats(2, 1, 8), floats(2, 1, 5, 8), floats(2, 1, 5, 8),
         np.array([5, 3], np.int32), np.int32(6)],
        1,
        {"num_heads": 2, "kv_num_heads": 1},
    ),
    *(
        ("GroupQueryAttention", [floats(2, 6, 16), floats(2, 6, 8), floats(2, 6, 8), None, None,
         np.array([5, 5], np.int32), np.int32(6), *more], 1, {"num_heads": 2, "kv_num_heads": 1, **attributes})
        for attributes, more in (
            ({"local_window_size": 3}, []),
            ({"smooth_softmax": 1}, []),
            ({"softcap": 2.0}, [None, None, None, floats(2, 2, 6, 6)]),
            ({}, [None, None, None, None, floats(2)]),
        )
    ),
    ("QAttention", [bytes_(1, 4, 8), weights(8, 24), floats(24), s(0.02), s(0.02), None, z(128), z(0, np.int8)], 1,
     {"num_heads": 2}),
    ("QAttention", [bytes_(1, 4, 8), bytes_(8, 24), floats(24), s(0.02), s(0.01), None, z(128), z(128)], 1,
     {"num_heads": 2}),
    ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3), floats(3), floats(1, 3, 3, 3)], 1, {"activation": "Relu"}),
    ("FusedConv", [floats(1, 2, 5, 5), floats(3, 2, 3, 3)], 1,
     {"activation": "Clip", "activation_params": [0.0, 6.0], "pads": [1, 1, 1, 1]}),
    ("FusedGemm", [floats(2, 3), floats(3, 4), floats(4)], 1, {"activation": "LeakyRelu", "activation_alpha": 0.1}),
    ("Inverse", [floats(3, 3) + 3 * np.eye(3, dtype=np.float32)], 1, {}),
    ("Trilu", [floats(3, 4), np.int64(1)], 1, {"upper": 1}),
    ("Range", [s(1), s(5)], 1, {}),
    ("Pad", [floats(2, 2), np.array([0, 1, 0, 1]), floats(1)], 1, {}),
    ("GatherND", [floats(3, 4), np.array([[2], [0]])], 1, {}),
    ("ExpandDims", [floats(2, 3), np.int32(-1)], 1, {}),
    ("Unique", [np.array([2, 1, 1, 3, 2], np.float32)], 3, {}),
    ("CDist", [floats(3, 4), floats(5, 4)], 1, {"metric": "euclidean"}),
    ("CDist", [floats(3, 4), floats(5, 4)], 1, {"metric": "sqeuclidean"}),
    ("NhwcMaxPool", [bytes_(1, 6, 6, 2)], 1, {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ("DynamicQuantizeMatMul", [floats(2, 3), bytes_(3, 4), s(0.2), z(100), floats(4)], 1, {}),
    ("QLinearWhere", [np.array([True, False]), bytes_(2), s(0.1), z(120), bytes_(2), s(0.2), z(90), s(0.3), z(100)], 1,
     {}),
    ("MatMulNBits", [floats(3, 40), bytes_(6, 3, 8), floats(6 * 3)], 1, {"K": 40, "N": 6, "bits": 4, "block_size": 16}),
    (
        "MatMulNBits",
        [floats(3, 32), bytes_(6, 2, 8), floats(6 * 2), bytes_(6)],
        1,
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
    ),
    (
        "GatherBlockQuantized",
        [bytes_(9, 16), np.array([[1, 8, 0]]), floats(9, 2)],
        1,
        {"bits": 4, "block_size": 16, "quantize_axis": 1},
    ),
    ("QLinearAdd", [bytes_(3, 4), s(0.1), z(128), bytes_(4), s(0.05), z(100), s(0.2), z(120)], 1, {}),
    ("QLinearMul", [bytes_(3, 4), s(0.1), z(128), bytes_(4), s(0.05), z(100), s(0.5), z(120)], 1, {}),
    ("QLinearSigmoid", [bytes_(40), s(0.05), z(128), s(1 / 256), z(0)], 1, {}),
    ("QLinearSoftmax", [bytes_(3, 8), s(0.05), z(128), s(1 / 256), z(0)], 1, {"axis": -1, "opset": 13}),
    ("QLinearLeakyRelu", [bytes_(40), s(0.05), z(128), s(0.03), z(60)], 1, {"alpha": 0.1}),
    ("QLinearConcat", [s(0.1), z(128), bytes_(2, 3), s(0.2), z(100), bytes_(2, 2), s(0.05), z(3)], 1, {"axis": 1}),
    ("QLinearGlobalAveragePool", [bytes_(1, 3, 5, 5), s(0.1), z(128), s(0.05), z(100)], 1, {}),
    ("QLinearAveragePool", [bytes_(1, 2, 6, 6), s(0.1), z(128), s(0.1), z(128)], 1, PAIRS),
    ("MatMulIntegerToFloat", [bytes_(3, 8), bytes_(8, 4), s(0.1), floats(4), z(128), z(100), floats(4)], 1, {}),
    (
        "QGemm",
        [bytes_(3, 8), s(0.1), z(128), bytes_(8, 4), s(0.02), z(100), np.arange(4, dtype=np.int32), s(0.3), z(120)],
        1,
        {},
    ),
    ("QGemm", [bytes_(3, 8), s(0.1), z(128), bytes_(8, 4), s(0.02), z(100)], 1, {}),
]  # fmt: skip


# Operands that ONNX Runtime wants to be stored in the file.
STORED = {"QAttention": (1, 2, 3, 4, 6, 7), "QLinearWhere": (2, 3, 5, 6, 7, 8), "DynamicQuantizeMatMul": (1, 2, 3, 4)}


@pytest.mark.parametrize(
    ("kind", "inputs", "results", "attributes"), CASES, ids=[f"{c[0]}{i}" for i, c in enumerate(CASES)]
)
def test_as_onnx_runtime(kind: str, inputs: list[Any], results: int, attributes: dict[str, Any]):
    arrays = [None if x is None else np.asarray(x) for x in inputs]
    code = helper.np_dtype_to_tensor_dtype
    held = STORED.get(kind, ())
    given = {f"x{i}": x for i, x in enumerate(arrays) if x is not None and i not in held}
    stored = [onnx.numpy_helper.from_array(arrays[i], f"x{i}") for i in held]
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(arrays)]
    ports = [helper.make_tensor_value_info(k, code(x.dtype), x.shape) for k, x in given.items()]
    out = [helper.make_empty_tensor_value_info(f"y{i}") for i in range(results)]
    # GroupQueryAttention has three results in any case.
    made = [p.name for p in out] + (["k", "v"] if kind == "GroupQueryAttention" else [])
    node = helper.make_node(kind, names, made, domain="com.microsoft", **attributes)
    model = helper.make_model(
        helper.make_graph([node], "g", ports, out, stored),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    expected = session.run(None, given)
    y = nx.interop.from_onnx(model.SerializeToString(), closed=True)(*given.values())
    for a, b in zip(y if results > 1 else [y], expected, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        if b.dtype.kind in "iu":
            assert np.abs(np.asarray(a).astype(int) - b).max() <= (1 if kind.startswith("Q") else 0)
        else:
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def test_signed_weights_of_any_size_are_unsigned_ones():
    """The same numbers on a grid that is moved by 128, which ONNX Runtime computes exactly on every processor."""
    x, w, b = bytes_(1, 4, 8), bytes_(8, 24), floats(24)
    found = [
        nx.interop.from_onnx(
            one(
                "QAttention",
                {"x": x, "w": v, "b": b, "xs": s(0.02), "ws": s(0.01), "m": None, "xz": z(128), "wz": zero},
                domain="com.microsoft", version=1, num_heads=2,
            ),
            closed=True,
        )(x, v, b, s(0.02), s(0.01), z(128), zero)
        for v, zero in ((w, z(128)), ((w.astype(int) - 128).astype(np.int8), z(0, np.int8)))
    ]  # fmt: skip
    np.testing.assert_array_equal(found[1], found[0])


@pytest.mark.parametrize("directions", [1, 2])
def test_an_lstm_with_stored_weights(directions: int):
    """ONNX Runtime rounds the state to 8 bits in each step, so the numbers are near."""
    along = "bidirectional" if directions == 2 else "forward"
    w, r = (weights(directions, n, 12) for n in (4, 3))
    scale, zero = np.full((directions, 12), 0.008, np.float32), np.zeros((directions, 12), np.int8)
    b = floats(directions, 24, scale=0.1)
    held = {"w": w, "r": r, "b": b, "ws": scale, "wz": zero, "rs": scale, "rz": zero}
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=3, direction=along)
    graph = helper.make_graph(
        [node], "g", [helper.make_tensor_value_info("x", 1, (6, 2, 4))], [helper.make_empty_tensor_value_info("y")],
        [onnx.numpy_helper.from_array(v, k) for k, v in held.items()],
    )  # fmt: skip
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=imports, ir_version=10).SerializeToString()
    x = floats(6, 2, 4)
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    f = nx.interop.from_onnx(model, closed=True)
    np.testing.assert_allclose(f(x), expected, atol=0.01)
    assert np.abs(nx.grad(lambda x: f(x).sum())(x)).max() > 0


CLIPPED = {"hidden_size": 3, "clip": 0.5}
STANDARD: list[tuple[str, list[Any], dict[str, Any]]] = [
    *(
        (kind, [floats(5, 2, 4, scale=2), floats(1, n * 3, 4), floats(1, n * 3, 3), floats(1, n * 6)], CLIPPED)
        for kind, n in (("RNN", 1), ("GRU", 3), ("LSTM", 4))
    ),
    ("LSTM", [floats(5, 2, 4, scale=2), floats(1, 12, 4), floats(1, 12, 3), floats(1, 24), None, floats(1, 2, 3),
              floats(1, 2, 3), floats(1, 9)], CLIPPED),
    *(("MeanVarianceNormalization", [floats(2, 4, *sizes)], {}) for sizes in ((9,), (5, 6), (5, 3, 2))),
    *(
        ("MaxRoiPool", [floats(2, 3, 10, 12), np.array(
            [[0, 0, 0, 5, 5], [1, 1, 2, 8, 9], [0, 9, 9, 30, 30], [1, 3, 3, 3, 3], [0, 5, 5, 2, 2]], np.float32
        )], {"pooled_shape": [2, 3], "spatial_scale": scale})
        for scale in (1.0, 0.5, 0.9)
    ),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "inputs", "attributes"), STANDARD)
def test_standard_operators(kind: str, inputs: list[Any], attributes: dict[str, Any]):
    given = {f"x{i}": x for i, x in enumerate(inputs) if x is not None}
    names = [f"x{i}" if x is not None else "" for i, x in enumerate(inputs)]
    ports = [helper.make_tensor_value_info(k, 1, x.shape) for k, x in given.items()]
    node = helper.make_node(kind, names, ["y"], **attributes)
    graph = helper.make_graph([node], "g", ports, [helper.make_empty_tensor_value_info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    (expected,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, given)
    np.testing.assert_allclose(nx.interop.from_onnx(model, closed=True)(*given.values()), expected, 1e-5, 1e-6)


@pytest.mark.parametrize(("total", "rows"), [(6, 16), (17, 17)])
def test_a_past_that_is_a_buffer_keeps_its_length(total: int, rows: int):
    """One that is full grows by the new steps, as in ONNX Runtime."""
    arrays = [floats(1, 1, 32), floats(1, 1, 16), floats(1, 1, 16), floats(1, 1, 16, 16), floats(1, 1, 16, 16)]
    arrays += [np.array([total - 1], np.int32), np.array(total, np.int32)]
    code = helper.np_dtype_to_tensor_dtype
    names = [f"x{i}" for i in range(len(arrays))]
    ports = [helper.make_tensor_value_info(k, code(x.dtype), x.shape) for k, x in zip(names, arrays, strict=True)]
    out = [helper.make_empty_tensor_value_info(k) for k in "ykv"]
    node = helper.make_node("GroupQueryAttention", names, [*"ykv"], domain="com.microsoft", num_heads=2, kv_num_heads=1)
    model = helper.make_model(
        helper.make_graph([node], "g", ports, out),
        opset_imports=[helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, dict(zip(names, arrays, strict=True)))
    y, k, v = nx.interop.from_onnx(model.SerializeToString())({}, *arrays)
    assert k.shape == v.shape == expected[1].shape == (1, 1, rows, 16)
    np.testing.assert_allclose(y, expected[0], rtol=1e-4, atol=1e-5)
    for mine, other in ((k, expected[1]), (v, expected[2])):
        np.testing.assert_allclose(mine[:, :, :total], other[:, :, :total], rtol=1e-5)
