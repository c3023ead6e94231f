"""Fusions: what products take in, and when they must not."""

import numpy as np
import pytest

import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.ops.fake_quantize import quantize_dequantize, quantize_weight
from nxjax.ops.quant_grid import asymmetric
from nxjax.ops.quant_reduce import qmean
from nxjax.trace import dtypes
from tests.lower.npu.lowering import count, normal, ops, same

W = normal(3, 3, 3, 4)
X = normal(2, 6, 6, 3)
LAYOUT = ("NHWC", "HWIO", "NHWC")


def conv(x, **options):
    return lax.conv_general_dilated(x, W, (1, 1), options.pop("padding", "SAME"), dimension_numbers=LAYOUT)


@pytest.mark.parametrize(
    ("activation", "function"),
    [
        (None, lambda y: y + normal(4)),
        (None, lambda y: normal(4) + y),
        (None, lambda y: y - normal(4)),
        (None, lambda y: y + 2.0),
        (None, lambda y: (y + 1.0) * normal(4) - 3.0),
        (None, lambda y: y * 0.5 + normal(4)),
        (None, lambda y: y / normal(4)),
        ("relu", lambda y: nn.relu(y + normal(4))),
        ("relu6", nn.relu6),
        ("relu_n1_to_1", lambda y: jnp.clip(y, -1, 1)),
    ],
)
def test_taken_in(activation, function):
    for layer in (conv, lambda x: x @ normal(3, 4)):
        g = same(lambda x, layer=layer: function(layer(x)), X, atol=1e-4)
        assert len(g.nodes) == 1
        assert g.nodes[0].attrs["activation"] == activation


@pytest.mark.parametrize(
    "function",
    [
        lambda y: 1.0 - y,
        lambda y: y + normal(6, 1, 1),
        lambda y: y * normal(6, 4),
        lambda y: nn.relu(y) + normal(4),
        lambda y: nn.relu(y) * normal(4),
        lambda y: nn.relu6(nn.relu(y) * 3),
    ],
)
def test_not_taken_in(function):
    assert len(same(lambda x: function(conv(x)), X, atol=1e-4).nodes) >= 2


def test_a_product_read_twice_stays_as_it_is():
    def f(x):
        y = conv(x)
        return nn.relu(y), y + 1.0

    g = same(f, X)
    assert count(g) == {"conv_2d": 1, "relu": 1, "add": 1}


def test_sums_take_activations():
    g = same(lambda x, y: nn.relu(x + y) * 2 - 1, X, X[::-1].copy())
    assert [n.attrs["activation"] for n in g.nodes] == ["relu", None, None]


def test_zero_padding():
    g = same(lambda x: conv(jnp.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0))), padding="VALID"), X)
    assert ops(g) == ["conv_2d"]
    assert g.nodes[0].attrs["padding"] == ((1, 2), (0, 1))
    other = same(lambda x: conv(jnp.pad(x, ((0, 0), (1, 2), (0, 1), (0, 0)), constant_values=1.0)), X)
    assert "pad" in count(other)
    batch = same(lambda x: conv(jnp.pad(x, ((1, 0), (1, 2), (0, 1), (0, 0)))), X)
    assert "pad" in count(batch)


def test_transposed_convolutions_take_biases():
    w = normal(2, 2, 3, 4)
    g = same(lambda x: nn.relu(lax.conv_transpose(x, w, (2, 2), "VALID", dimension_numbers=LAYOUT) + normal(4)), X)
    assert ops(g) == ["transpose_conv"]


def test_constants_on_the_left_of_a_product():
    g = same(lambda x: normal(4, 6) @ x + normal(4, 1), normal(6, 5))
    assert count(g)["fully_connected"] == 1


def test_reshapes_of_weights_do_not_matter():
    w = jnp.asarray(normal(2, 3, 4))
    g = same(lambda x: jnp.einsum("bxi,xio->bo", x, w) + normal(4), normal(5, 2, 3))
    assert ops(g) == ["reshape", "fully_connected"]


def test_values_of_weights():
    g = same(lambda x: nn.relu(conv(x) * normal(4) + normal(4)), X)
    conv_node = g.nodes[0]
    np.testing.assert_allclose(conv_node.inputs[1].data, W.transpose(3, 0, 1, 2) * normal(4)[:, None, None, None])
    np.testing.assert_array_equal(conv_node.inputs[2].data, normal(4))


def test_quantized_embeddings_are_stored_as_integers():
    words, g = jnp.asarray(normal(20, 8)), asymmetric(-2.0, 2.0)
    graph = same(lambda i: quantize_dequantize(words[i], grid=g), np.array([[1, 19, 0]], np.int32), exact=True)
    gather = next(n for n in graph.nodes if n.op == "gather")
    assert gather.inputs[0].dtype == np.int8
    assert ops(graph)[-2:] == ["gather", "dequantize"]


@pytest.mark.parametrize(
    ("shape", "perm", "left"),
    [
        ((2, 3, 1, 4, 5), (0, 3, 1, 2, 4), ((2, 3, 4, 5), (0, 2, 1, 3))),
        ((2, 3, 4, 5, 6), (0, 3, 4, 1, 2), ((2, 12, 30), (0, 2, 1))),
        ((2, 3, 4, 5, 6), (4, 3, 2, 1, 0), ((2, 3, 4, 5, 6), (4, 3, 2, 1, 0))),
        ((2, 1, 4, 1, 6), (4, 3, 2, 1, 0), ((2, 4, 6), (2, 1, 0))),
    ],
)
def test_transposes_of_many_dimensions(shape, perm, left):
    g = same(lambda x: x.transpose(perm), normal(*shape), exact=True)
    (n,) = (n for n in g.nodes if n.op == "transpose")
    assert (n.inputs[0].shape, n.attrs["permutation"]) == left


def test_reductions_drop_units():
    w = normal(3, 3, 4)
    layout = ("NWC", "WIO", "NWC")
    g = same(lambda x: lax.conv_general_dilated(x, w, (1,), "SAME", dimension_numbers=layout).mean(1), normal(2, 8, 3))
    assert ops(g) == ["reshape", "conv_2d", "mean"]


@pytest.mark.parametrize("per_channel", [True, False])
def test_scales_of_stored_weights_change_their_grid(per_channel):
    scale = np.abs(W).max((0, 1, 2), keepdims=True) / 127 if per_channel else np.full((1, 1, 1, 1), 0.02)

    def f(x):
        w = quantize_weight(jnp.asarray(W), jnp.asarray(scale, dtype=jnp.float32), dtype=dtypes.int8)
        y = lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=LAYOUT)
        return nn.relu(y * jnp.array([2.0, -0.5, 1.0, 3.0]) + normal(4))

    g = same(f, X, atol=1e-4)
    assert ops(g) == ["dequantize", "conv_2d"]
    assert g.nodes[0].inputs[0].dtype == np.int8
    assert len(g.nodes[0].inputs[0].grid.scale) == 4


G, OUT = asymmetric(-3.0, 3.5), asymmetric(-2.0, 2.5)


def snapped(x, grid=G):
    return quantize_dequantize(x, grid=grid)


def test_a_float_value_is_quantized_once_for_all_its_parts():
    def scan(x):
        rows = x[0, 0]
        return lax.scan(lambda c, row: (jnp.maximum(c, snapped(row)), c), snapped(jnp.zeros(3)), rows)[0]

    g = same(scan, X, exact=True)
    (n,) = (n for n in g.nodes if n.op == "quantize")
    assert n.inputs[0] is g.inputs[0]
    assert count(g)["slice"] == 6 + 1
    joined = same(lambda x, y: snapped(jnp.concatenate([x, normal(2, 1, 6, 3), y[:, ::-2]], 1)), X, X, exact=True)
    assert ops(joined)[-2:] == ["concatenation", "dequantize"]
    both = same(lambda x: (x[:, 1:], snapped(x[:, 1:])), X, exact=True)
    assert count(both) == {"slice": 1, "quantize": 1, "dequantize": 1}, "what is read in float is cut in float"


@pytest.mark.parametrize(
    ("axes", "shape"),
    [
        ((1,), (1, 2, 4, 15)),
        ((1, 2), (1, 2, 20, 3)),
        ((3,), (1, 1, 40, 3)),
        ((2, 3), (1, 1, 8, 15)),
        ((0,), None),
        ((1, 3), None),
    ],
)
@pytest.mark.parametrize("keepdims", [True, False])
def test_means_within_a_batch_are_of_one_image(axes, shape, keepdims):
    def f(x):
        y = qmean(snapped(x), axes=axes, x_grid=G, y_grid=OUT, rounding="double")
        return jnp.expand_dims(y, axes) if keepdims else y

    x = normal(2, 4, 5, 3)
    g = same(f, x, exact=True)
    (n,) = (n for n in g.nodes if n.op == "mean")
    assert n.inputs[0].shape == (shape or x.shape)
