"""Windows along padded axes: every stride, dilation, padding and group, forwards and backwards."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.config import config


@pytest.fixture(autouse=True)
def _quick():
    with config.using(executor="reference"):
        yield


def image(n: int, m: int, channels: int, seed: int) -> nx.Array:
    return nx.asarray(np.random.default_rng(seed).normal(size=(1, n, m, channels)).astype(np.float32))


paddings = st.one_of(
    st.sampled_from(["SAME", "SAME_LOWER", "VALID"]),
    st.tuples(*[st.tuples(st.integers(-1, 4), st.integers(-1, 4))] * 2),
)
steps = st.tuples(st.integers(1, 3), st.integers(1, 3))
heights, widths = st.integers(8, 13), st.integers(8, 11)


def check(f, x, w) -> None:
    """Value and both derivatives."""
    g = nx.bucketed(f, {0: {1: "h", 2: "w"}}, {"h": [13], "w": [11]}, at_least=8)
    y = f(x, w)
    np.testing.assert_allclose(g(x, w), y, rtol=1e-4, atol=1e-4)
    weight = nx.cos(nx.arange(y.size, dtype=float)).reshape(y.shape)
    loss = lambda h: lambda *args: (h(*args) * weight).sum()
    for a, b in zip(nx.grad(loss(g), (0, 1))(x, w), nx.grad(loss(f), (0, 1))(x, w), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)


@settings(max_examples=40)
@given(
    paddings, steps, steps, st.sampled_from([(1, 1), (1, 1), (2, 1), (2, 3)]), st.sampled_from([1, 2, 4]),
    st.tuples(st.integers(1, 4), st.integers(1, 3)), st.tuples(heights, widths), st.integers(0, 9),
)  # fmt: skip
def test_convolutions(padding, strides, holes, spread, groups, kernel, size, seed):
    if isinstance(padding, str) and spread != (1, 1):
        padding = ((0, 0), (0, 0))
    # A length with no window at all has another meaning: at_least is for that.
    assume(all((k - 1) * d + 1 <= 6 for k, d in zip(kernel, holes, strict=True)))
    w = nx.asarray(np.random.default_rng(seed).normal(size=(*kernel, 4 // groups, 4)).astype(np.float32))

    def f(x, w):
        return nx.lax.conv_general_dilated(
            x, w, strides, padding, spread, holes, ("NHWC", "HWIO", "NHWC"), feature_group_count=groups
        )

    check(f, image(*size, 4, seed), w)


@settings(max_examples=40)
@given(
    paddings, steps, st.tuples(st.integers(1, 4), st.integers(1, 3)), st.sampled_from(["max", "min", "add"]),
    st.tuples(heights, widths), st.integers(0, 9),
)  # fmt: skip
def test_pools(padding, strides, window, kind, size, seed):
    start = {"max": -np.inf, "min": np.inf, "add": 0.0}[kind]
    pads = padding if isinstance(padding, str) else ((0, 0), *((max(l, 0), max(h, 0)) for l, h in padding), (0, 0))
    if kind != "add" and not isinstance(padding, str):
        # A window that holds padding alone is infinite, and so would be the sums compared.
        pads = tuple((min(l, k - 1), min(h, k - 1)) for (l, h), k in zip(pads, (1, *window, 1), strict=True))

    def f(x, w):
        y = nx.lax.reduce_window(x, start, getattr(nx.lax, kind), (1, *window, 1), (1, *strides, 1), pads)
        return y * w

    check(f, image(*size, 2, seed), nx.asarray([1.0, -2.0]))
