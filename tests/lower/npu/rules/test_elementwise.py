"""Arithmetic, functions, comparisons, choices and conversions."""

import numpy as np
import pytest

import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.errors import UnsupportedOpsError
from tests.lower.npu.lowering import graph_of, normal, ops, same

X, Y = normal(3, 4), np.flip(normal(3, 4)).copy()
POSITIVE = np.abs(X) + 0.1


@pytest.mark.parametrize(
    ("node", "function"),
    [
        ("exp", jnp.exp), ("abs", jnp.abs), ("neg", jnp.negative), ("sin", jnp.sin), ("cos", jnp.cos),
        ("floor", jnp.floor), ("ceil", jnp.ceil), ("round", jnp.round), ("sign", jnp.sign), ("square", jnp.square),
        ("logistic", nn.sigmoid), ("tanh", jnp.tanh), ("relu", nn.relu), ("relu6", nn.relu6), ("erf", lax.erf),
        ("gelu", nn.gelu), ("hard_swish", nn.hard_swish), ("leaky_relu", nn.leaky_relu), ("elu", nn.elu),
    ],
)  # fmt: skip
def test_functions_that_are_nodes(node, function):
    assert ops(same(function, X * 3)) == [node]


@pytest.mark.parametrize(("node", "function"), [("log", jnp.log), ("sqrt", jnp.sqrt), ("rsqrt", lax.rsqrt)])
def test_functions_of_positive_numbers(node, function):
    assert ops(same(function, POSITIVE)) == [node]


@pytest.mark.parametrize(
    "function",
    [
        jnp.expm1, jnp.tan, jnp.sinh, jnp.cosh, jnp.cbrt, lax.erfc, nn.silu, nn.softplus, nn.mish, nn.hard_sigmoid,
        lambda x: lax.round(x * 4), lambda x: x**3, lambda x: x**-2, lambda x: nn.gelu(x, approximate=False),
        lambda x: jnp.exp2(x), jnp.isfinite, nn.soft_sign, nn.log_sigmoid, nn.selu, nn.hard_tanh, nn.glu,
        lambda x: jnp.clip(x, -0.5, 0.25), lambda x: lax.clamp(-1.0, x, 1.0), lambda x: lax.reduce_precision(x, 8, 23),
        lambda x: lax.stop_gradient(lax.optimization_barrier(x)), lambda x: x[:, :2].astype(jnp.int32),
        lambda x: (x > 0).astype(jnp.float32), lambda x: x.astype(jnp.float16), lambda x: x.astype(bool),
        lambda x: jnp.log1p(jnp.abs(x)), jnp.mod, nn.squareplus,
    ],
)  # fmt: skip
def test_functions_in_pieces(function):
    xs = (X, POSITIVE) if function is jnp.mod else (X,)
    same(function, *xs, rtol=2e-4, atol=2e-5)


def test_infinities_are_not_finite():
    same(jnp.isfinite, np.array([np.inf, -np.inf, 1, np.nan], np.float32), exact=True)


@pytest.mark.parametrize(
    ("node", "function"),
    [
        ("add", lambda x, y: x + y), ("sub", lambda x, y: x - y), ("mul", lambda x, y: x * y),
        ("div", lambda x, y: x / y), ("maximum", jnp.maximum), ("minimum", jnp.minimum),
        ("equal", lambda x, y: x == y), ("not_equal", lambda x, y: x != y), ("less", lambda x, y: x < y),
        ("less_equal", lambda x, y: x <= y), ("greater", lambda x, y: x > y), ("greater_equal", lambda x, y: x >= y),
    ],
)  # fmt: skip
def test_operands_broadcast_in_the_node(node, function):
    assert ops(same(function, X, Y)) == [node]
    assert ops(same(function, X, Y[0])) == ["reshape", node]
    assert ops(same(function, X[:, :1], Y)) == [node]
    if node != "div":
        g = same(lambda x: function(x, jnp.asarray(Y[:, 1:2])), X)
        assert ops(g) == [node]
        assert g.constants()[0].shape == (3, 1)


def test_power():
    assert ops(same(jnp.power, POSITIVE, Y)) == ["pow"]


def test_constants_are_small():
    g = same(lambda x: (x * 2 + jnp.ones((3, 4))) * jnp.arange(4.0), X)
    assert [t.shape for t in g.constants()] == [(), (), (1, 4)]


def test_choice():
    assert ops(same(lambda x, y: jnp.where(x > y, x, y * 2), X, Y)) == ["greater", "mul", "select"]
    same(lambda x, y: lax.select_n(jnp.argmax(x) > 1, x, y), X, Y)
    which = np.array([[0, 2, 1, 1]] * 3, np.int32)
    same(lambda w, x, y: lax.select_n(w, x, y, x + y), which, X, Y)


def test_logic():
    a, b = X > 0, Y > 0
    for f in (jnp.logical_and, jnp.logical_or, jnp.logical_xor, lambda a, b: ~a, jnp.maximum, jnp.minimum):
        same(f, a, b, exact=True)
    with pytest.raises(UnsupportedOpsError, match="bits"):
        graph_of(lambda x: x & 3, np.arange(4, dtype=np.int32))
    with pytest.raises(UnsupportedOpsError, match="use arithmetic"):
        graph_of(lambda x: x << 3, np.arange(4, dtype=np.int32))


def test_integers():
    i = np.arange(12, dtype=np.int32).reshape(3, 4) - 5
    same(lambda i: jnp.maximum(i * 2 + 1, 3) - i, i, exact=True)
    with pytest.raises(UnsupportedOpsError, match="division"):
        graph_of(lambda i: lax.div(i, i), i)
    with pytest.raises(UnsupportedOpsError, match="remainder"):
        graph_of(lambda i: lax.rem(i, i), i)


def test_other_widths_of_floats():
    with pytest.raises(UnsupportedOpsError, match="float16"):
        graph_of(lambda x: lax.reduce_precision(x, 5, 10), X)
