"""Integer elementwise kernels against the real numbers they stand for."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nxjax.ops.fixed import elementwise
from nxjax.ops.quant_grid import Grid

I8, I16 = np.dtype("int8"), np.dtype("int16")
GRID = Grid(I8, 0.0625, -11)
KERNELS = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "squared_difference": lambda x, y: np.square(x - y),
}


def stored(grid: Grid, seed: int, n: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).integers(*grid.limits, n, endpoint=True).astype(grid.dtype)


@pytest.mark.parametrize("rounding", ["double", "single"])
@pytest.mark.parametrize("name", sorted(KERNELS))
@given(seed=st.integers(0, 999), sx=st.floats(0.01, 0.1), sy=st.floats(0.01, 0.1), zero=st.integers(-128, 127))
def test_kernels_are_real_within_a_step(name: str, rounding: str, seed: int, sx: float, sy: float, zero: int):
    x_grid, y_grid = Grid(I8, float(np.float32(sx)), zero), Grid(I8, float(np.float32(sy)), -zero if zero > -128 else 0)
    out = Grid(I8, 0.25, 5)
    x, y = stored(x_grid, seed), stored(y_grid, seed + 1)
    got = getattr(elementwise, name)(x, x_grid, y, y_grid, out, *out.limits, rounding)
    real = KERNELS[name](x_grid.dequantize(x).astype(np.float64), y_grid.dequantize(y))
    want = np.clip(np.rint(real / 0.25) + 5, -128, 127)
    assert got.dtype == I8 and np.abs(got - want).max() <= 1


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_clamps_and_broadcasts(name: str):
    x, y = stored(GRID, 1, 12).reshape(3, 1, 4), stored(GRID, 2, 6).reshape(6, 1)
    free = getattr(elementwise, name)(x, GRID, y, GRID, GRID, -128, 127)
    tight = getattr(elementwise, name)(x, GRID, y, GRID, GRID, -20, 30)
    assert free.shape == (3, 6, 4)
    assert np.array_equal(tight, np.clip(free, -20, 30))


def test_sixteen_bits():
    g = Grid(I16, 1e-4, 0)
    x, y = stored(g, 3), stored(g, 4)
    out = Grid(I16, 2e-4, 0)
    got = elementwise.add(x, g, y, g, out, *out.limits)
    assert np.abs(got - (x.astype(np.float64) + y) / 2).max() <= 1
    assert got.dtype == I16


def test_requantize_is_the_identity_on_one_grid():
    x = stored(GRID, 5)
    assert np.array_equal(elementwise.requantize(x, GRID, GRID, -128, 127), x)
    assert np.array_equal(elementwise.relu(x, GRID, GRID, -11, 127), np.maximum(x, -11))


def test_requantize_widens_without_loss():
    wide = Grid(I16, GRID.scale / 128, 0)  # pyright: ignore[reportOperatorIssue]
    x = stored(GRID, 6)
    there = elementwise.requantize(x, GRID, wide, *wide.limits)
    assert there.dtype == I16
    assert np.array_equal(elementwise.requantize(there, wide, GRID, -128, 127), x)


def test_the_factor_of_a_relu_is_in_float32():
    a, b = Grid(I8, float(np.float32(0.1)), 0), Grid(I8, float(np.float32(0.3)), 0)
    whole = elementwise.requantize_factor(a, b, -128, 127)
    clamped = elementwise.requantize_factor(a, b, 0, 127)
    assert whole != clamped and np.float32(whole) == clamped


def test_comparable_orders_as_the_real_values_do():
    a, b = Grid(I8, 0.5, 3), Grid(I8, 0.25, -7)
    x, y = stored(a, 7), stored(b, 8)
    p, q = elementwise.comparable(x, a), elementwise.comparable(y, b)
    assert np.array_equal(p < q, a.dequantize(x) < b.dequantize(y))
