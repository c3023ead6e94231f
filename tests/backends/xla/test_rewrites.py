"""Rows that replace XLA's slow loops: same results as the portable rule, and they are the ones that run."""

from __future__ import annotations

import numpy as np
import pytest

import nxjax as nx
from nxjax.backends.xla.executable import XlaExecutable, compile_text
from nxjax.backends.xla.rows import ROWS
from nxjax.lower.stablehlo.builder import lower
from nxjax.ops.conv import conv_general_dilated
from nxjax.ops.dimension_numbers import conv_dimension_numbers
from nxjax.ops.window import select_and_scatter_add


def both(f, *xs):
    """Results and texts by the portable rules and by the rows."""
    program = nx.jit(f).trace(*xs).program
    texts = [lower(program)[0], lower(program, rows=ROWS)[0]]
    results = []
    for text in texts:
        executable = XlaExecutable(compile_text(text, []), text, program.out_types, [])
        results.append(executable([nx.asarray(x) for x in xs])[0].numpy())
    return results, texts


LAYOUTS = [("NHWC", "HWIO", "NHWC"), ("NCHW", "OIHW", "NCHW"), ("HCWN", "WOHI", "NWHC")]


@pytest.mark.parametrize("layouts", LAYOUTS)
@pytest.mark.parametrize("seed", range(4))
def test_depthwise_convolutions(layouts, seed):
    rng = np.random.default_rng(seed)
    numbers = conv_dimension_numbers((1,) * 4, (1,) * 4, layouts)
    place = lambda spec, sizes: tuple(sizes[spec.index(d)] for d in range(4))
    x = rng.standard_normal(place(numbers.lhs_spec, (2, 5, 7, 8))).astype(np.float32)
    y = rng.standard_normal(place(numbers.rhs_spec, (5, 1, 3, 2))).astype(np.float32)
    two = lambda low, high: tuple(int(v) for v in rng.integers(low, high, 2))
    f = lambda a, b: conv_general_dilated(
        a,
        b,
        window_strides=two(1, 3) if seed else (1, 1),
        padding=((1, 1), (0, 1)) if seed < 2 else ((-1, 2), (1, -1)),
        lhs_dilation=(1, 2) if seed == 3 else (1, 1),
        rhs_dilation=(2, 1) if seed == 2 else (1, 1),
        feature_group_count=5,
        batch_group_count=1,
        dimension_numbers=numbers,
    )
    (portable, row), (before, after) = both(f, x, y)
    np.testing.assert_allclose(row, portable, rtol=1e-5, atol=1e-5)
    assert "stablehlo.convolution" in before
    assert "stablehlo.convolution" not in after


def test_other_convolutions_are_left_alone():
    x, y = np.ones((1, 4, 5, 5), np.float32), np.ones((4, 2, 3, 3), np.float32)
    f = lambda a, b: nx.lax.conv_general_dilated(a, b, (1, 1), "SAME", feature_group_count=2)
    assert "stablehlo.convolution" in both(f, x, y)[1][1]


@pytest.mark.parametrize("window", [(2, 2), (3, 2), (9, 9)])
def test_select_and_scatter(window):
    x = np.random.default_rng(0).permutation(144).reshape(12, 12).astype(np.float32)
    params = {
        "window_dimensions": window,
        "window_strides": (2, 1),
        "padding": ((1, 0), (0, 1)),
        "base_dilation": (1, 1),
        "window_dilation": (1, 1),
    }
    shape = windows_of(x, params)
    source = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    f = lambda s, v: select_and_scatter_add(s, v, select_prim="ge", **params)
    (portable, row), (before, after) = both(f, source, x)
    np.testing.assert_allclose(row, portable, rtol=1e-5, atol=1e-6)
    assert "select_and_scatter" in before
    assert ("select_and_scatter" in after) == (window == (9, 9))


def windows_of(x, params):
    from nxjax.ops.window import reduce_window_max

    return reduce_window_max(nx.asarray(x), **params).shape


SHIFTED = {
    "set": lambda v: v.at[1:].set(v[:-1]),
    "down": lambda v: v.at[:-1].set(v[1:]),
    "add": lambda v: v.at[1:].add(v[:-1]),
    "subtract": lambda v: v.at[1:].subtract(v[:-1]),
    "multiply": lambda v: v.at[1:].multiply(v[:-1]),
    "max": lambda v: v.at[1:].max(v[:-1]),
    "min": lambda v: v.at[1:].min(v[:-1]),
    "slice": lambda v: nx.lax.dynamic_update_slice(v, v[:-1], (1,) + (0,) * (v.ndim - 1)),
    "of a shape": lambda v: v.ravel().at[3:].set(v.ravel()[:-3]),
    "at a place": lambda v: nx.lax.dynamic_update_slice_in_dim(v, v[2:], (v[0] > -9).any().astype(int), 0),
    "a little": lambda v: v.at[1:3].set(v[:2]),
    "a little more": lambda v: v.at[4].set(9.0).at[1:3].add(v[:2] * 2),
    "in a function": lambda v: nx.jit(lambda u: u.at[1:3].set(u[:2]))(v),
    "from outside of a function": lambda v: nx.jit(lambda u, w: u.at[1:3].set(w))(v, v[:2] + 1),
    "in a loop": lambda v: nx.lax.fori_loop(0, 3, lambda i, v: v.at[1:].set(v[:-1] + i), v),
}
BEFORE = {
    "gather": lambda x: x[::-1][np.array([3, 2, 5, 7, 1, 1, 0])],
    "sum": lambda x: x[:7] + 1,
    "columns": lambda x: (x[:8] + 1).reshape(4, 2, 1),
    "running sum": lambda x: nx.numpy.cumsum(x[:9]),
    "product": lambda x: np.eye(7, 9, dtype=np.float32) @ x[:9],
}


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("before", BEFORE)
@pytest.mark.parametrize("name", SHIFTED)
def test_what_is_shifted_inside_of_itself(name, before, after):
    """XLA's CPU compiler may read what it has overwritten."""
    x = np.arange(1, 13, dtype=np.float32)

    def f(x):
        y = SHIFTED[name](BEFORE[before](x))
        return y.reshape(1, *y.shape, 1) if after else y

    with nx.config.using(executor="reference"):
        expected = f(nx.asarray(x))
    np.testing.assert_array_equal(nx.jit(f, device="xla")(x), expected)


@pytest.mark.parametrize("rows", [1, 2])
def test_small_updates_are_written_in_place(rows):
    def turn(i, v):
        return nx.lax.dynamic_update_slice_in_dim(v, nx.lax.dynamic_slice_in_dim(v, i - 1, rows, 0) * 2, i, 0)

    f = lambda x: nx.lax.fori_loop(1, 98, turn, x)
    (portable, row), (before, after) = both(f, np.ones((100, 3), np.float32))
    np.testing.assert_array_equal(portable, row)
    assert before.count("select") == after.count("select")
