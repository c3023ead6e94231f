"""Integer reductions, resizing and the ways of products against the real numbers they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.ops.fixed import reduce
from nxjax.ops.quant_grid import Grid

I8, I16 = np.dtype("int8"), np.dtype("int16")
AXES = [(0,), (1, 2), (0, 1, 2), (2,)]


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("axes", AXES)
@given(seed=st.integers(0, 999))
def test_mean_and_sum_are_real_within_a_step(axes: tuple[int, ...], rounding: str, seed: int):
    r = np.random.default_rng(seed)
    for dtype in (I8, I16):
        zero = 0 if dtype == I16 else int(r.integers(-128, 128))
        x_grid = Grid(dtype, float(np.float32(r.uniform(0.01, 1))), zero)
        x = r.integers(*x_grid.limits, (3, 5, 7), endpoint=True).astype(dtype)
        real = x_grid.dequantize(x).astype(np.float64)
        for kernel, plain in ((reduce.mean, np.mean), (reduce.sum, np.sum)):
            want = plain(real, axis=axes)
            out = Grid(dtype, float(np.float32(np.abs(want).max() / 100 + 1e-3)), 0)
            got = kernel(x, x_grid, out, axes, rounding)
            assert got.shape == want.shape and got.dtype == dtype
            assert np.abs(got - np.clip(want / out.scale, *out.limits)).max() <= 1


@pytest.mark.parametrize("axes", AXES)
def test_product_is_real_within_two_steps(axes: tuple[int, ...]):
    x_grid, out = Grid(I8, 1 / 64, 0), Grid(I8, 1 / 64, 0)
    x = np.random.default_rng(0).integers(50, 80, (3, 2, 2)).astype(I8)
    want = np.prod(x_grid.dequantize(x).astype(np.float64), axis=axes)
    got = out.dequantize(reduce.product(x, x_grid, out, axes))
    assert got.shape == want.shape
    assert np.abs(got - np.clip(want, *out.bounds)).max() <= 2 / 64


def test_average_rounds_halves_away():
    sums, counts = np.arange(-20, 21), 4
    want = np.sign(sums) * np.floor(np.abs(sums) / 4 + 0.5)
    assert reduce.average(sums, counts, -128, 127).tolist() == want.tolist()
    assert reduce.average(np.array([1000]), np.array([2]), -128, 127).tolist() == [127]
