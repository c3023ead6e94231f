"""Multiply-accumulates of programs."""

import numpy as np

import nxjax as nx
from nxjax import lax
from nxjax.lower.macs import macs

X = np.ones((1, 8, 8, 4), np.float32)
DIMS = ("NHWC", "HWIO", "NHWC")


def total(f, *args):
    return sum(map(macs, nx.make_jaxpr(f)(*args).equations))


def test_products():
    x, y = np.ones((5, 3, 4), np.float32), np.ones((5, 4, 7), np.float32)
    assert total(lambda x, y: x @ y, x, y) == 5 * 3 * 4 * 7
    w = np.ones((3, 3, 4, 6), np.float32)
    assert total(lambda x, w: lax.conv_general_dilated(x, w, (2, 2), "SAME", dimension_numbers=DIMS), X, w) == (
        4 * 4 * 6 * 3 * 3 * 4
    )
    depthwise = np.ones((3, 3, 1, 4), np.float32)
    f = lambda x, w: lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=DIMS, feature_group_count=4)
    assert total(f, X, depthwise) == 8 * 8 * 4 * 3 * 3
    # A transposed convolution multiplies every input element with every tap.
    up = lambda x, w: lax.conv_transpose(x, w, (2, 2), "SAME", dimension_numbers=DIMS)
    assert total(up, X, np.ones((2, 2, 4, 6), np.float32)) == X.size * 2 * 2 * 6


def test_quantized_products_count_alike():
    w = np.ones((4, 6), np.float32)
    f = lambda x: x @ w
    assert total(nx.quantize(f, "int8", calibrate=[(X,)]), X) == total(f, X) == 8 * 8 * 4 * 6


def test_loops_and_choices():
    w = np.eye(4, dtype=np.float32)
    assert total(lambda x: lax.scan(lambda c, _: (c @ w, None), x, None, length=5)[0], w) == 5 * 64
    assert total(lambda x: lax.cond(x[0, 0] > 0, lambda x: x @ w @ w, lambda x: x @ w, x), w) == 128
    assert total(nx.jit(lambda x: x @ w), w) == 64
    assert total(lambda x: x + 1, w) == 0


def test_a_while_loop_with_a_counter_counts_every_turn():
    w = np.eye(4, dtype=np.float32)
    turn = lambda s: (s[0] + 2, s[1] @ w)
    assert total(lambda x: lax.while_loop(lambda s: s[0] < 9, turn, (0, x))[1], w) == 5 * 64
    assert total(lambda x: lax.while_loop(lambda s: s[1].sum() < 9, turn, (0, x))[1], w) == 64
