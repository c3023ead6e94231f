"""Layers as weight methods see them: the right leaf, layout, bias and input, checked by computing the product anew."""

from typing import Any

import numpy as np
import pytest

import nxjax as nx
import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import ParameterError
from nxjax.quant.layers import Layers

R = np.random.default_rng(0)


def normal(*shape: int) -> np.ndarray:
    return R.standard_normal(shape).astype(np.float32)


def conv(numbers: tuple[str, str, str], groups: int = 1, strides: int = 1, dilation: int = 1, padding: Any = "SAME"):
    return lambda p, x: lax.conv_general_dilated(
        x, p["w"], (strides,) * 2, padding, rhs_dilation=(dilation,) * 2, dimension_numbers=numbers,
        feature_group_count=groups,
    )  # fmt: skip


NHWC, NCHW = ("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW")
# What is computed, the weight's shape, the data's shape, and how the result's channels come last.
CASES = {
    "dot": (lambda p, x: x @ p["w"], (6, 4), (5, 6), lambda y: y),
    "transposed": (lambda p, x: x @ p["w"].T, (4, 6), (5, 6), lambda y: y),
    "batched": (lambda p, x: jnp.einsum("bti,io->bto", x, p["w"]), (6, 4), (2, 3, 6), lambda y: y),
    "heads": (lambda p, x: jnp.einsum("bi,ihd->bhd", x, p["w"]), (6, 2, 3), (5, 6), lambda y: y.reshape(5, 6)),
    "two summed": (lambda p, x: jnp.einsum("bij,ijo->bo", x, p["w"]), (3, 2, 4), (5, 3, 2), lambda y: y),
    "swapped": (lambda p, x: p["w"] @ x, (4, 6), (6, 5), lambda y: y.T),
    "conv": (conv(NHWC), (3, 3, 2, 4), (2, 5, 6, 2), lambda y: y),
    "conv NCHW": (conv(NCHW), (4, 2, 3, 2), (2, 2, 5, 6), lambda y: y.transpose(0, 2, 3, 1)),
    "strides": (conv(NHWC, 1, 2, 1, "VALID"), (2, 3, 2, 4), (1, 7, 8, 2), lambda y: y),
    "dilated": (conv(NHWC, 1, 1, 2), (3, 3, 2, 4), (1, 7, 8, 2), lambda y: y),
}


@pytest.mark.parametrize("name", CASES)
def test_the_rows_times_the_matrix_are_the_product(name: str):
    f, shape, given, last = CASES[name]
    p, x = {"other": np.float32(1), "w": normal(*shape)}, normal(*given)
    found = Layers(f, "int8", None, (p, x))
    (layer,) = found.layers
    assert np.asarray(found.leaves[layer.leaf]) is p["w"] and layer.bias is None
    w = found.weight(layer)
    m = layer.matrix(w)
    np.testing.assert_array_equal(layer.restored(m, w.shape), w)
    y = np.asarray(last(np.asarray(f(p, x))))
    rows: list[np.ndarray] = []
    found.observe([(p, x)], lambda layer, x: rows.append(layer.inputs(x)))
    np.testing.assert_allclose(rows[0] @ m.T, y.reshape(-1, y.shape[-1]), 1e-4, 1e-4)
    # What is put back lies as it came.
    found.set_weight(layer, 2 * w)
    np.testing.assert_array_equal(found.result()["w"], 2 * p["w"])


def test_depthwise_weights_are_grouped():
    f = conv(NHWC, 4)
    p, x = {"w": normal(3, 3, 1, 4)}, normal(1, 5, 5, 4)
    found = Layers(f, "int8", None, (p, x))
    (layer,) = found.layers
    rows: list[np.ndarray] = []
    found.observe([(p, x)], lambda layer, x: rows.append(layer.inputs(x)))
    assert layer.grouped
    m = layer.matrix(found.weight(layer))
    y = np.einsum("nfk,fk->nf", rows[0].reshape(-1, 4, 9), m)
    np.testing.assert_allclose(y, np.asarray(f(p, x)).reshape(-1, 4), 1e-4, 1e-5)


def test_biases():
    p = {"w": normal(4, 4), "b": normal(4), "s": normal(4)}
    bias = lambda f: Layers(f, "int8", None, (p, normal(2, 4))).layers[0].bias
    assert bias(lambda p, x: x @ p["w"] + p["b"]) == 0
    assert bias(lambda p, x: nn.relu(x @ p["w"] + p["b"])) == 0
    # Not a leaf as it is, or not alone.
    assert bias(lambda p, x: x @ p["w"] + 2 * p["b"]) is None
    assert bias(lambda p, x: (x @ p["w"] + p["b"]) * p["s"]) is None
    assert bias(lambda p, x: x @ p["w"] - p["b"]) is None


def test_inputs_are_those_of_each_layer_in_float():
    p = {"a": normal(4, 5), "b": normal(5, 3)}
    f = lambda p, x: nn.relu(x @ p["a"]) @ p["b"]
    found = Layers(f, "int8", None, (p, normal(2, 4)))
    assert [layer.name for layer in found.layers] == ["dot_general_0", "dot_general_1"]
    seen: dict[str, list[np.ndarray]] = {}
    data = [(p, normal(n, 4)) for n in (2, 7)]
    found.observe(iter(data), lambda layer, x: seen.setdefault(layer.name, []).append(x))
    for i, (_, x) in enumerate(data):
        np.testing.assert_array_equal(seen["dot_general_0"][i], x)
        np.testing.assert_allclose(seen["dot_general_1"][i], np.maximum(x @ p["a"], 0), 1e-5, 1e-6)


def test_several_trees():
    f = lambda p, q, x: (x @ p["w"]) @ q["w"]
    args = ({"w": normal(3, 4)}, {"w": normal(4, 2), "n": None}, normal(5, 3))
    found = Layers(f, "int8", None, args)
    assert [layer.leaf for layer in found.layers] == [0, 1]
    first, second = found.result()
    assert first.keys() == {"w"} and second.keys() == {"w", "n"}
    stored = np.ones((4, 2), np.int8)
    found.set_stored(found.layers[1], stored, np.ones((1, 2), np.float32))
    assert isinstance(found.result()[1]["w"], nx.QArray)


def test_quantized_leaves_are_read_as_floats():
    p = {"w": nx.QArray(np.array([[2, 4]], np.int8), np.array([[0.5]], np.float32))}
    found = Layers(lambda p, x: x @ p["w"], "int8", None, (p, normal(3, 1)))
    np.testing.assert_array_equal(found.weight(found.layers[0]), [[1, 2]])


def test_errors():
    w, x = normal(3, 4), normal(2, 3)
    with pytest.raises(ParameterError, match="takes its weights from the arguments"):
        Layers(lambda x: x @ w, "int8", None, (x,))
    args = {"w": w}, np.full_like(x, np.inf)
    found = Layers(lambda p, x: x @ p["w"], "int8", None, args)
    with pytest.raises(ParameterError, match=r"gptq: the operand of dot_general_0 (.|\n)*batch 1, in which args\[1\]"):
        found.observe([args], lambda layer, x: None, "gptq")
