"""Quantized programs, whose arithmetic is 64 bits wide, on tiles of 32: bit for bit, and what is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nxjax as nx
from nxjax.errors import UnsupportedOpsError
from nxjax.lower.ipu.interpret import interpret
from nxjax.lower.ipu.lower import lower
from nxjax.lower.ipu.verify import verify
from nxjax.ops.fixed.point import round_away
from tests.lower.ipu.cases import TINY, lax, normal

W, V = normal(20, 16) * 0.3, normal(16, 10) * 0.2
KERNEL = normal(3, 3, 3, 8) * 0.2
HEAD = normal(128, 10) * 0.2


def exact(function, *args):
    """Every bit of the reference's results."""
    program = nx.make_jaxpr(function)(*args)
    lowered = verify(lower(program, TINY))
    for y, w in zip(interpret(lowered, args), program(*map(nx.asarray, args)), strict=True):
        np.testing.assert_array_equal(y, w.numpy())
    return lowered


def dense(x):
    return nx.nn.relu(x @ W) @ V


def net(x):
    y = lax.conv_general_dilated(x, KERNEL, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    y = lax.reduce_window(nx.nn.relu(y), -np.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
    return nx.nn.softmax(y.reshape(y.shape[0], -1) @ HEAD)


def test_dense_layers():
    x = normal(4, 20)
    exact(nx.quantize(dense, "int8", calibrate=[(x,)]), x)


def test_a_convolutional_net():
    x = normal(2, 8, 8, 3)
    exact(nx.quantize(net, "int8", calibrate=[(x,)]), x)


@pytest.mark.parametrize("preset", ["int8-weights", "int4-weights", "dynamic-int8"])
def test_other_presets(preset):
    x = normal(4, 20)
    program = nx.make_jaxpr(nx.quantize(dense, preset, calibrate=[(x,)]))(x)
    (y,) = interpret(verify(lower(program, TINY)), [x])
    np.testing.assert_allclose(y, program(nx.asarray(x))[0].numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("function", [nx.nn.sigmoid, nx.tanh, nx.nn.softmax, lambda x: x + x * 0.5, nx.mean])
def test_other_ops(function):
    x = normal(4, 6)
    exact(nx.quantize(function, "int8", calibrate=[(x,)]), x)


@settings(max_examples=40, deadline=None)
@given(
    st.floats(1e-9, 1.0, exclude_min=True),
    st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=8),
    st.lists(st.integers(-300, 300), min_size=0, max_size=4),
)
def test_a_product_in_float64_is_rounded_as_it_is(factor, whole, halves):
    """Also where the product lies a hair below a half."""
    x = np.array([*whole, *(int((h + 0.5) / factor) for h in halves if abs(h + 0.5) / factor < 2**31)], np.int32)

    def f(x):
        wide = lambda value: nx.full(x.shape, value, np.float64)
        y = lax.round(x.astype(np.float64) * wide(factor), lax.RoundingMethod.AWAY_FROM_ZERO)
        return lax.clamp(wide(-1e6), y, wide(1e6)).astype(np.int32)

    (y,) = interpret(lower(nx.make_jaxpr(f)(x), TINY), [x])
    want = np.clip(round_away(x.astype(np.float64) * factor), -1e6, 1e6).astype(np.int32)
    np.testing.assert_array_equal(y, want)


def test_values_that_do_not_fit_move_as_two_words():
    x = np.array([2**31 - 1, -(2**31), 5], np.int32)

    def f(x):
        y = x.astype(np.int64) * 3_000_000_000
        spread = nx.broadcast_to(y[:, None], (3, 2))[::-1]
        return (spread // 1_000_000_007).astype(np.int32), (spread.T >> 31).astype(np.int32)

    exact(f, x)


def test_float64_that_guards_a_rounding_is_float32():
    x = normal(6)
    exact(lambda x: (x.astype(np.float64) / np.float64(np.float32(0.3))).astype(np.float32), x)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: (x.astype(np.float64) * 0.1 + 1).astype(np.float32),
        lambda x: x.astype(np.int64) * 3_000_000_000,
        lambda x: nx.sum(x.astype(np.int64) * 3_000_000_000).astype(np.int32),
        lambda x: nx.sin(x.astype(np.float64)).astype(np.float32),
    ],
)
def test_what_needs_64_bits_is_refused(function):
    with pytest.raises(UnsupportedOpsError, match="tiles have no"):
        lower(nx.make_jaxpr(function)(normal(4)), TINY)
