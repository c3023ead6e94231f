"""The three ways in which sums of products come back on a grid."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.ops.fixed.product import factor, requantize_products
from nxjax.ops.quant_grid import Grid

I8, I16 = np.dtype("int8"), np.dtype("int16")


@pytest.mark.parametrize("kind", ["conv", "dense", "matmul"])
@pytest.mark.parametrize("rounding", ["double", "single"])
@given(seed=st.integers(0, 999))
def test_every_kind_is_real_within_a_step(kind: str, rounding: str, seed: int):
    r = np.random.default_rng(seed)
    scales = r.uniform(0.001, 0.1, 5).astype(np.float32)
    for dtype, bound in ((I8, 1), (I16, 2)):
        out = Grid(dtype, float(np.float32(r.uniform(0.01, 1))), 0 if dtype == I16 else int(r.integers(-128, 128)))
        acc = r.integers(-(10**5), 10**5, (7, 5))
        got = requantize_products(acc, 0.05, scales, out, *out.limits, rounding, kind)
        real = acc * (np.float64(np.float32(0.05)) * scales / np.float64(np.float32(out.scale)))
        assert got.dtype == dtype
        assert np.abs(got - np.clip(real + out.zero_point, *out.limits)).max() <= bound


def test_clamps():
    out = Grid(I8, 1.0, 10)
    for kind in ("conv", "dense", "matmul"):
        got = requantize_products(np.array([-1000, 0, 1000]), 1.0, 1.0, out, -5, 20, "double", kind)
        assert got.tolist() == [-5, 10, 20]


def test_dense_rounds_once_and_conv_twice():
    """LiteRT's FULLY_CONNECTED has no fixed point: some sums differ, by one."""
    out = Grid(I8, 1.0, 0)
    acc = np.arange(-(2**17), 2**17)
    conv, dense = (requantize_products(acc, 0.01, 0.03, out, -128, 127, "double", k) for k in ("conv", "dense"))
    assert set(np.unique(conv.astype(int) - dense)) == {-1, 0, 1}
    real = acc * float(factor(0.01, 0.03, out))
    assert np.array_equal(dense, np.sign(real) * np.floor(np.abs(real) + 0.5))


def test_the_factor_of_a_matmul_is_a_float32_product():
    out = Grid(I8, 1.0, 0)
    assert factor(0.1, 0.3, out, "matmul") == np.float32(0.1) * np.float32(0.3)
    assert factor(0.1, 0.3, out) != factor(0.1, 0.3, out, "matmul")


def test_sums_that_leave_int32_saturate_in_float():
    out = Grid(I8, 1.0, -5)
    got = requantize_products(np.array([2**31 - 1, -(2**31)]), 1e6, 1.0, out, -128, 127, "double", "dense")
    assert got.tolist() == [127, -128]
