"""Pools in every layout and with every divisor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax.numpy as jnp
from nxjax import lax
from nxjax.errors import UnsupportedOpsError
from tests.lower.npu.lowering import count, graph_of, normal, ops, same

X = normal(2, 7, 8, 3)
INF = float("inf")


def total(x, window, strides, padding):
    return lax.reduce_window(x, 0.0, lax.add, window, strides, padding)


@pytest.mark.parametrize("padding", ["VALID", "SAME", ((0, 0), (1, 0), (2, 1), (0, 0))])
def test_max_pool(padding):
    g = same(lambda x: lax.reduce_window(x, -INF, lax.max, (1, 3, 3, 1), (1, 2, 1, 1), padding), X)
    assert ops(g) == ["max_pool_2d"]


def test_min_pool():
    g = same(lambda x: lax.reduce_window(x, INF, lax.min, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), X)
    assert ops(g) == ["neg", "max_pool_2d", "neg"]


@pytest.mark.parametrize("by", ["constant", "counts", "product"])
def test_average_without_padding(by):
    window, strides = (1, 3, 2, 1), (1, 2, 2, 1)

    def f(x):
        y = total(x, window, strides, "VALID")
        if by == "counts":
            return y / total(jnp.ones_like(x), window, strides, "VALID")
        return y * (1 / 6) if by == "product" else y / 6

    assert ops(same(f, X)) == ["average_pool_2d"]


def test_average_of_what_lies_inside():
    def f(x):
        y = total(x, (1, 3, 3, 1), (1, 1, 1, 1), "SAME")
        return y / total(jnp.ones_like(x), (1, 3, 3, 1), (1, 1, 1, 1), "SAME")

    g = same(f, X)
    assert ops(g) == ["average_pool_2d"]
    assert g.nodes[0].attrs["padding"] == ((1, 1), (1, 1))
    first = same(lambda x: f(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), X.transpose(0, 3, 1, 2))
    assert ops(first) == ["transpose", "average_pool_2d", "transpose"]


def test_average_that_counts_padding():
    g = same(lambda x: total(x, (1, 3, 3, 1), (1, 2, 2, 1), "SAME") / 9, X)
    assert ops(g) == ["pad", "average_pool_2d"]
    assert g.nodes[1].attrs["padding"] == ((0, 0), (0, 0))


def test_sums_are_averages_times_their_size():
    assert ops(same(lambda x: total(x, (1, 3, 3, 1), (1, 1, 1, 1), "SAME"), X)) == ["average_pool_2d", "mul"]
    assert ops(same(lambda x: total(x, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"), X)) == ["average_pool_2d", "mul"]


def test_channels_first():
    def f(x):
        y = lax.reduce_window(x, -INF, lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
        return total(y, (1, 1, 3, 3), (1, 1, 1, 1), "SAME") / 9

    g = same(f, X.transpose(0, 3, 1, 2))
    assert ops(g) == ["transpose", "max_pool_2d", "pad", "average_pool_2d", "transpose"]


@pytest.mark.parametrize("shape", [(9,), (4, 9), (2, 9, 3), (2, 9, 4, 3), (2, 3, 4, 5, 2)])
def test_any_rank(shape):
    x = normal(*shape)
    for axis in range(len(shape)):
        window = tuple(3 if i == axis else 1 for i in range(len(shape)))
        padding = [(1, 1) if i == axis else (0, 0) for i in range(len(shape))]
        same(lambda x, w=window, p=padding: lax.reduce_window(x, -INF, lax.max, w, w, p), x)
        same(lambda x, w=window, p=padding: total(x, w, (1,) * x.ndim, p), x)


def test_three_dimensions_in_two_steps():
    x = normal(1, 4, 6, 4, 2)
    window = (1, 2, 2, 2, 1)
    g = same(lambda x: lax.reduce_window(x, -INF, lax.max, window, window, "VALID"), x)
    assert count(g)["max_pool_2d"] == 2
    same(lambda x: total(x, window, window, "VALID") / 8, x)
    with pytest.raises(UnsupportedOpsError, match="pad explicitly"):
        graph_of(lambda x: total(x, (1, 3, 3, 3, 1), (1, 1, 1, 1, 1), "SAME"), x)


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_any_box(data):
    draw = lambda low, high: data.draw(st.integers(low, high))
    shape = (2, draw(4, 7), draw(4, 7), 2)
    window = (1, draw(1, 3), draw(1, 4), 1)
    strides = (1, draw(1, 3), draw(1, 2), 1)
    padding = [(0, 0), (draw(-1, 2), draw(-1, 2)), (draw(-1, 3), draw(0, 3)), (0, 0)]
    x = normal(*shape)
    f = lambda x: total(x, window, strides, padding)
    if 0 in np.shape(f(jnp.asarray(x))):
        return
    same(f, x)
    if all(p < k for k, pair in zip(window, padding, strict=True) for p in pair):
        same(lambda x: lax.reduce_window(x, -INF, lax.max, window, strides, padding), x)


def test_what_pools_cannot_do():
    for word, options in (
        ("base_dilation", {"base_dilation": (1, 2, 1, 1)}),
        ("holes", {"window_dilation": (1, 2, 1, 1)}),
    ):
        with pytest.raises(UnsupportedOpsError, match=word):
            graph_of(
                lambda x, o=options: lax.reduce_window(x, -INF, lax.max, (1, 2, 2, 1), (1, 1, 1, 1), "VALID", **o), X
            )
    with pytest.raises(UnsupportedOpsError, match="padding only"):
        graph_of(
            lambda x: lax.reduce_window(x, -INF, lax.max, (1, 2, 1, 1), (1, 1, 1, 1), ((0, 0), (3, 0), (0, 0), (0, 0))),
            X,
        )
