"""The judge of quantized programs takes the error of a grid, and no other."""

import numpy as np
import pytest

import nxjax as nx
from nxjax import numpy as jnp
from nxjax.quant import pointwise
from nxjax.testing.quantized import failure, far_off, quantized
from nxjax.testing.ways import Way


def _x(*shape: int):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    assert not quantized(seed)


@pytest.mark.parametrize("policy", ["int8", "int16x8", "dynamic-int8"])
def test_the_error_of_a_grid_is_no_failure(policy):
    text = "def f(x, w):\n    return jax.nn.softmax(jnp.tanh(x) @ w, -1)\n"
    assert not failure(text, [_x(5, 7), _x(7, 3)], policy, Way("cpu", calls=3))


def test_a_sum_that_overflows_is_found(monkeypatch):
    text = "def f(x):\n    return jnp.abs(x).mean(-1, keepdims=True) + x[:, :1]\n"
    args = [np.full((2, 70_001), 0.9, np.float32)]
    assert not failure(text, args, "int16x8", Way())
    monkeypatch.setattr(pointwise, "holds_sum", lambda *_: True)
    assert "wrong value" in failure(text, args, "int16x8", Way())


def test_a_wrong_element_is_found():
    fun = lambda x: jnp.tanh(x) + 1.0
    x = jnp.asarray(_x(300))
    y = np.array(nx.quantize(fun, "int8", calibrate=[(x,)])(x))
    assert not far_off(fun, [x], "int8", [y])
    y[7] += 0.5
    assert "[7] is" in far_off(fun, [x], "int8", [y])


def test_lines_between_the_values_of_a_table_are_no_failure():
    """The logarithm of 1, of up to 361, lies between entries for 0 and 1.4."""
    fun = lambda x: jnp.log(x * x) * 0.5
    x = jnp.concatenate([jnp.ones(3), jnp.linspace(5, 19, 400)])
    y = np.array(nx.quantize(fun, "int16x8", calibrate=[(x,)])(x))
    assert y[0] < -0.3
    assert not far_off(fun, [x], "int16x8", [y])
    y[-1] += 0.5
    assert "[402] is" in far_off(fun, [x], "int16x8", [y])


def test_equal_values_have_one_error():
    """All of many small values round to 0 on the grid of tanh: their sum is as far off as all of them together."""
    total = lambda x: jnp.tanh(x * 1e-3) @ x
    x = jnp.ones(5000)
    product = np.array(nx.quantize(total, "int8", calibrate=[(x,)])(x))
    assert not product and not far_off(total, [x], "int8", [product])
    fun = lambda x: jnp.tanh(x) + 1.0
    x = jnp.concatenate([jnp.zeros(3000), jnp.asarray(_x(300))])
    y = np.array(nx.quantize(fun, "int8", calibrate=[(x,)])(x))
    assert not far_off(fun, [x], "int8", [y])
    y[7] += 0.9
    assert "[7] is" in far_off(fun, [x], "int8", [y])


def test_scales_of_weights_without_elements():
    """One of each: the checker of programs takes them, as the op does."""
    assert not quantized(22573)


def test_a_pole_within_a_step_is_no_failure():
    """1 among numbers up to 90,000 lies on the same step as 0, where digamma has a pole."""
    text = "def f(x):\n    return jax.scipy.special.digamma(jnp.cumsum(x, 1) ** 2 + 1)\n"
    x = np.full((1, 300), 1.0, np.float32)
    x[0, :3] = 0.01
    assert not failure(text, [x], "int16x8", Way())
