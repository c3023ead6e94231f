"""Integer softmax against float64, along any axis."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.errors import ParameterError
from nxjax.ops.fixed.softmax import log_softmax, log_softmax_grid, softmax, softmax_grid
from nxjax.ops.quant_grid import Grid

I8, I16 = np.dtype("int8"), np.dtype("int16")


@pytest.mark.parametrize(("dtype", "steps"), [(I8, 1.01), (I16, 16)], ids=["int8", "int16"])
@pytest.mark.parametrize("axis", [0, 1, -1])
@given(seed=st.integers(0, 999), scale=st.floats(1e-3, 0.2), beta=st.floats(0.5, 2))
def test_softmax_is_real_within_a_step(dtype: np.dtype, steps: float, axis: int, seed: int, scale: float, beta: float):
    grid = Grid(dtype, float(np.float32(scale if dtype == I8 else scale / 256)), 0)
    x = np.random.default_rng(seed).integers(*grid.limits, (3, 4, 9), endpoint=True).astype(dtype)
    out = softmax_grid(dtype)
    got = out.dequantize(softmax(x, grid, out, axis, beta))
    real = np.float64(np.float32(beta)) * grid.dequantize(x)
    e = np.exp(real - real.max(axis, keepdims=True))
    want = e / e.sum(axis, keepdims=True)
    assert np.abs(got - np.clip(want, *out.bounds)).max() <= steps * out.scale


@given(seed=st.integers(0, 999), scale=st.floats(0.01, 0.2))
def test_log_softmax_is_real_within_a_step(seed: int, scale: float):
    grid = Grid(I8, float(np.float32(scale)), 5)
    x = np.random.default_rng(seed).integers(-128, 127, (5, 9), endpoint=True).astype(I8)
    out = log_softmax_grid(I8)
    real = grid.dequantize(x).astype(np.float64)
    want = real - real.max(-1, keepdims=True)
    want = want - np.log(np.exp(want).sum(-1, keepdims=True))
    assert np.abs(out.dequantize(log_softmax(x, grid, out)) - np.clip(want, *out.bounds)).max() <= 0.51 / 16


def test_equal_values_share_equally():
    g = Grid(I8, 0.1, 0)
    assert softmax(np.zeros((1, 4), I8), g, softmax_grid(I8)).tolist() == [[-64] * 4]


def test_the_grid_of_the_result_is_given():
    g = Grid(I8, 0.1, 0)
    with pytest.raises(ParameterError, match="one grid for the result"):
        softmax(np.zeros((1, 4), I8), g, g)
    with pytest.raises(ParameterError, match="one grid for the result"):
        log_softmax(np.zeros((1, 4), I8), g, g)
