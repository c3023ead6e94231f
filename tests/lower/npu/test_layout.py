"""Layouts: transposes are pushed through, cancelled, or left where they cost least; results stay."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax.numpy as jnp
from nxjax import lax, nn
from nxjax.lower.npu.layout import channels_last, composed, cost, inverse, reshape_through, trivial
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

W = normal(4, 4, 3, 3) * 0.3


def conv(x):
    return lax.conv_general_dilated(x, W, (1, 1), "SAME")


X = normal(2, 4, 6, 5)


@pytest.mark.parametrize(
    "between",
    [
        jnp.tanh,
        lambda x: x + normal(4)[:, None, None],
        lambda x: x * normal(6, 5),
        lambda x: x + x * nn.sigmoid(x),
        lambda x: jnp.pad(x, ((0, 0), (0, 0), (1, 0), (0, 2))),
        lambda x: x[:, :, 1:, :3],
        lambda x: x[:, :, ::2],
        lambda x: x[:, :, ::-1],
        lambda x: jnp.concatenate([x, x * 2], 1)[:, 2:6],
        lambda x: jnp.concatenate([x, normal(2, 4, 2, 5)], 2),
        lambda x: x - x.mean((2, 3), keepdims=True),
        lambda x: x / (1 + jnp.sum(x * x, 1, keepdims=True)),
        lambda x: nn.softmax(x, 1),
        lambda x: jnp.where(x > 0, x, -x),
        lambda x: x * nn.sigmoid(x.mean((2, 3)))[:, :, None, None],
        lambda x: jnp.add(*lax.split(x, (2, 2), 1)).repeat(2, 1),
        lambda x: jnp.cumsum(x, 2),
        lambda x: lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID"),
        lambda x: nn.leaky_relu(x, jnp.asarray(0.2)) + jnp.broadcast_to(x[:, :, :1, :1], x.shape),
        lambda x: x.reshape(2, 2, 2, 6, 5).mean(2, keepdims=True).reshape(2, 2, 6, 5).repeat(2, 1),
        lambda x: x[:, :, jnp.array([0, 2, 1])],
        lambda x: jnp.repeat(jnp.repeat(x, 2, 2), 2, 3),
    ],
)
def test_nothing_between_convolutions_keeps_a_transpose(between):
    g = same(lambda x: conv(between(conv(x))), X, atol=1e-4)
    assert count(g)["transpose"] == 2, "at the input and at the result"
    assert g.nodes[0].op == "transpose"
    assert g.nodes[-1].op == "transpose"


def test_skips_past_convolutions():
    def f(x):
        for _ in range(3):
            y = nn.relu(conv(x))
            x = jnp.tanh(conv(y)) + x
        return x.mean((2, 3))

    assert count(same(f, X, atol=1e-4))["transpose"] == 1


def test_a_flattened_picture_permutes_the_weights():
    w = normal(4 * 6 * 5, 7)

    def f(x):
        return conv(x).reshape(2, -1) @ w

    g = same(f, X, atol=1e-4)
    assert ops(g) == ["transpose", "conv_2d", "reshape", "fully_connected"]


def test_a_sequence_of_pixels_is_a_reshape():
    w = normal(4, 7)

    def f(x):
        y = conv(x).reshape(2, 4, 30).transpose(0, 2, 1)
        return y @ w

    assert ops(same(f, X, atol=1e-4)) == ["transpose", "conv_2d", "reshape", "fully_connected"]


def test_one_channel_moves_for_free():
    w = normal(4, 1, 3, 3)
    g = same(lambda x: lax.conv_general_dilated(x, w, (1, 1), "SAME").mean((2, 3)), normal(2, 1, 6, 5))
    assert ops(g) == ["reshape", "conv_2d", "mean"]


def test_products_take_a_swap_as_a_flag():
    g = same(lambda x, y: jnp.matmul(jnp.tanh(x.swapaxes(1, 2)), y), normal(2, 3, 4), normal(2, 3, 5))
    assert ops(g) == ["tanh", "batch_matmul"]
    assert g.nodes[1].attrs["adj_x"]


def test_mixed_operands_move_the_smaller():
    def f(x, s):
        return conv(conv(x) + s)

    g = same(f, X, normal(2, 4, 1, 5), atol=1e-4)
    sizes = sorted(n.output.size for n in g.nodes if n.op == "transpose")
    assert sizes == [40, 240, 240]


def test_attention_keeps_its_transposes():
    def f(q, k, v):
        return nn.dot_product_attention(q, k, v)

    g = same(f, *(normal(2, 6, 3, 4) for _ in range(3)))
    assert count(g)["transpose"] <= 4


def test_it_never_costs_more():
    def f(x):
        y = x.transpose(0, 2, 3, 1)
        return jnp.tanh(y), jnp.sin(y), jnp.exp(y)

    g = same(f, X)
    assert cost(g) == X.size
    assert cost(channels_last(g)) <= X.size


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_reshapes_go_through_permutations(data):
    sizes = data.draw(st.lists(st.sampled_from([1, 2, 3, 4]), min_size=1, max_size=5))
    perm = tuple(data.draw(st.permutations(range(len(sizes)))))
    x = np.arange(np.prod(sizes)).reshape(sizes)
    new = list(x.transpose(perm).shape)
    for _ in range(data.draw(st.integers(0, 3))):
        i = data.draw(st.integers(0, len(new) - 1))
        if data.draw(st.booleans()) and i + 1 < len(new):
            new[i : i + 2] = [new[i] * new[i + 1]]
        else:
            divisors = [d for d in range(1, new[i] + 1) if new[i] % d == 0]
            d = data.draw(st.sampled_from(divisors))
            new[i : i + 1] = [d, new[i] // d]
    found = reshape_through(tuple(sizes), perm, tuple(new))
    if found is not None:
        shape, order = found
        np.testing.assert_array_equal(x.reshape(shape).transpose(order), x.transpose(perm).reshape(new))
    elif perm == tuple(range(len(sizes))):
        raise AssertionError("a reshape of what is not permuted always goes through")


@given(st.permutations(range(4)), st.permutations(range(4)))
def test_permutations(p, q):
    x = np.arange(24).reshape(1, 2, 3, 4)
    np.testing.assert_array_equal(x.transpose(composed(p, q)), x.transpose(p).transpose(q))
    assert composed(p, inverse(p)) == (0, 1, 2, 3)
    assert trivial((1, 1, 1, 5), p)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_random_networks_channels_first(data):
    steps = [
        lambda x, y: conv(x), lambda x, y: jnp.tanh(x), lambda x, y: x + y,
        lambda x, y: x * y.mean((2, 3), keepdims=True),
        lambda x, y: nn.softmax(x, 1), lambda x, y: x.transpose(0, 1, 3, 2).transpose(0, 1, 3, 2),
        lambda x, y: jnp.concatenate([x[:, :2], y[:, 2:]], 1), lambda x, y: x.reshape(2, 4, 30).reshape(2, 4, 6, 5),
        lambda x, y: jnp.maximum(x, y.max(1, keepdims=True)), lambda x, y: x[:, ::-1] - normal(4, 1, 5),
        lambda x, y: (x.transpose(0, 2, 3, 1) @ normal(4, 4)).transpose(0, 3, 1, 2),
        lambda x, y: x.reshape(2, 2, 2, 6, 5).transpose(0, 2, 1, 3, 4).reshape(2, 4, 6, 5),
        lambda x, y: jnp.where(x > y, x, 0.0), lambda x, y: x.transpose(0, 1, 3, 2).reshape(2, 4, 6, 5),
    ]  # fmt: skip
    chosen = data.draw(st.lists(st.tuples(st.integers(0, len(steps) - 1), st.integers(0, 20)), min_size=1, max_size=8))

    def f(x):
        values = [x]
        for i, j in chosen:
            values.append(steps[i](values[-1], values[j % len(values)]))
        return values[-1], values[len(values) // 2].sum((2, 3))

    same(f, X, rtol=1e-4, atol=1e-3)


def test_results_brought_into_order_have_a_line_of_the_user():
    w = np.ones((3, 4, 1, 1), np.float32)
    f = lambda x: lax.conv_general_dilated(x, w, (1, 1), "SAME")
    assert all(n.source is not None for n in graph_of(f, np.ones((1, 4, 5, 6), np.float32)).nodes)
