"""Patterns of programs that are one node, and look-alikes that are not."""

import numpy as np
import pytest

import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.ops.fake_quantize import quantize_dequantize
from nxjax.ops.quant_grid import asymmetric
from tests.lower.npu.lowering import count, normal, ops, same

X = normal(2, 4, 4, 3)


@pytest.mark.parametrize(
    ("node", "function"),
    [
        ("relu", lambda x: jnp.maximum(x, 0)),
        ("relu", lambda x: jnp.maximum(0.0, x)),
        ("relu", lambda x: jnp.clip(x, 0)),
        ("relu6", lambda x: jnp.clip(x, 0, 6)),
        ("relu6", lambda x: jnp.minimum(jnp.maximum(x, 0), 6)),
        ("relu6", lambda x: jnp.maximum(jnp.minimum(x, 6), 0)),
        ("relu6", lambda x: lax.clamp(0.0, x, 6.0)),
        ("relu_n1_to_1", lambda x: jnp.clip(x, -1, 1)),
        ("relu_n1_to_1", lambda x: jnp.maximum(jnp.minimum(x, 1), -1)),
        ("leaky_relu", lambda x: jnp.maximum(x, 0.1 * x)),
        ("leaky_relu", lambda x: jnp.where(x > 0, x, 0.1 * x)),
        ("leaky_relu", lambda x: jnp.where(x >= 0, x, x * 2.0)),
        ("prelu", lambda x: jnp.where(x > 0, x, normal(3) * x)),
        ("hard_swish", lambda x: x * nn.relu6(x + 3) / 6),
        ("hard_swish", lambda x: x * (nn.relu6(x + 3) / 6)),
        ("hard_swish", lambda x: x * jnp.clip(x + 3, 0, 6) * (1 / 6)),
        ("hard_swish", nn.hard_silu),
        ("square", lambda x: x * x),
        ("mean", lambda x: x.sum((1, 2)) / 16),
        ("resize_nearest", lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 3, 2)),
        ("resize_nearest", lambda x: jnp.repeat(jnp.repeat(x, 3, 2), 2, 1)),
    ],
)
def test_patterns(node, function):
    assert ops(same(function, X * 4)) == [node]


def test_enlargement_channels_first():
    g = same(lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 2, 3), X)
    assert ops(g) == ["transpose", "resize_nearest", "transpose"]


@pytest.mark.parametrize(
    "function",
    [
        lambda x: jnp.maximum(x, 1.0),
        lambda x: jnp.minimum(jnp.maximum(x, 0), 5),
        lambda x: jnp.maximum(x, 2.0 * x),
        lambda x: jnp.where(x > 1, x, 0.1 * x),
        lambda x: x * nn.relu6(x + 2) / 6,
        lambda x: x * nn.relu6(x + 3) / 5,
        lambda x: (x + 1) * nn.relu6(x + 3) / 6,
        lambda x: x.sum((1, 2)) / 15,
        lambda x: jnp.where(x > 0, x, -x * x),
        lambda x: jnp.maximum(x[..., :1], jnp.zeros(3)),
        lambda x: jnp.repeat(jnp.repeat(x, 2, 1), 2, 3),
        lambda x: jnp.repeat(x, 2, 1),
    ],
)
def test_look_alikes(function):
    known = {"relu6", "leaky_relu", "prelu", "hard_swish", "mean", "relu_n1_to_1", "resize_nearest"}
    g = same(function, X * 4)
    assert ops(g)[-1] not in known


def test_factors_meet():
    assert ops(same(lambda x: x * 2 * 3 / 4, X)) == ["mul"]
    assert ops(same(lambda x: x * 4 / 4, X)) == []
    assert ops(same(lambda x: x / 3.0, X)) == ["mul"]


def test_values_read_elsewhere_stay():
    def f(x):
        s = x.sum((1, 2))
        return s, s / 16

    assert count(same(f, X)) == {"sum": 1, "mul": 1}


@pytest.mark.parametrize(("value", "bounds"), [(-9.0, ["minimum"]), (9.0, ["maximum"]), (0.0, ["minimum", "maximum"])])
@pytest.mark.parametrize("flipped", [True, False])
def test_known_masks_on_a_grid_are_bounds(value, bounds, flipped):
    grid = asymmetric(-3.0, 3.5)
    mask = np.tri(4, 3, dtype=bool)

    def f(x):
        x = quantize_dequantize(x, grid=grid)
        fill = quantize_dequantize(jnp.float32(value), grid=grid)
        return jnp.where(mask, fill, x) if flipped else jnp.where(mask, x, fill)

    assert ops(same(f, X, exact=True)) == ["quantize", *bounds, "dequantize"]


def test_masks_that_are_data_stay_choices():
    grid = asymmetric(-3.0, 3.5)

    def f(x, mask):
        x = quantize_dequantize(x, grid=grid)
        return jnp.where(mask, x, quantize_dequantize(jnp.float32(-9.0), grid=grid))

    assert "select" in count(same(f, X, np.tri(4, 3, dtype=bool), exact=True))
    assert "select" in count(same(lambda x: jnp.where(np.tri(4, 3, dtype=bool), x, -9.0), X))
