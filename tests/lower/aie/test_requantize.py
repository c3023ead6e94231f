"""Columns' factors have the bits of the meaning for every sum; what cannot have them is refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nxjax.errors import LoweringError
from nxjax.kernels.aie.matmul import LOW, rescaled
from nxjax.lower.aie.requantize import columns
from nxjax.ops.fixed.product import factor, requantize_products
from nxjax.ops.quant_grid import Grid

COLUMNS = 24


def made(seed, x_scale, out_scale, rounding, bound=2**22):
    rng = np.random.default_rng(seed)
    w_scale = np.exp(rng.uniform(-8, -1, COLUMNS)).astype(np.float32)
    # Scales that people choose: sums lie on exact halves.
    w_scale[:6] = [0.5, 0.25, 0.1, 0.3, 0.007, 0.0625]
    grid = Grid(np.dtype("int8"), out_scale, int(rng.integers(-128, 128)))
    meaning = lambda sums: requantize_products(sums, x_scale, w_scale, grid, -128, 127, rounding, "dense")
    bounds = np.full(COLUMNS, bound, np.int64)
    real = factor(x_scale, w_scale, grid, "dense")
    return meaning, columns(meaning, real, np.zeros(COLUMNS, np.int64), bounds, grid.zero_point, -128, 127), grid, real


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([0.05, 0.1, 0.5, 0.0117]), st.sampled_from([0.05, 0.1, 0.25, 0.031]))
def test_every_sum_has_the_bits_of_the_meaning(seed, x_scale, out_scale):
    meaning, found, grid, real = made(seed, x_scale, out_scale, "double")
    rng = np.random.default_rng(seed)
    near = np.rint((rng.integers(-129, 129, (400, COLUMNS)) + 0.5) / real)
    sums = np.concatenate([near + rng.integers(-1, 2, near.shape), rng.integers(-(2**22), 2**22, near.shape)])
    sums = np.clip(sums, -(2**22), 2**22).astype(np.int64)
    y = rescaled(sums, found.high, found.low, found.shift, found.rounding)
    ours = np.clip(y + grid.zero_point, -128, 127)
    np.testing.assert_array_equal(ours, meaning(sums))
    assert np.all(found.high < 2**31) and np.all((found.low >= 0) & (found.low < 1 << LOW))


def test_a_block_holds_columns_side_by_side_and_zeros_beyond():
    _, found, grid, _ = made(1, 0.1, 0.1, "double")
    words = np.frombuffer(found.block(16, 16), np.int32)
    assert words[:3].tolist() == [grid.zero_point, -128, 127] and words.size == 8 + 3 * 16
    np.testing.assert_array_equal(words[8 + 16 : 8 + 16 + 8], found.high[16:24])
    assert not words[8 + 16 + 8 : 8 + 32].any()


def test_what_the_cores_cannot_round_is_refused():
    with pytest.raises(LoweringError, match="32 bits"):
        made(0, 0.1, 0.1, "double", bound=2**31)
    # A meaning that steps elsewhere.
    real = np.array([0.01])
    odd = lambda sums: np.clip(np.floor(sums * 0.01 + 0.77), -128, 127).astype(np.int8)
    with pytest.raises(LoweringError, match="rounding is not that of the meaning"):
        columns(odd, real, np.zeros(1, np.int64), np.array([10**6]), 0, -128, 127)
