import numpy as np

from nxjax.kernels.cpu import ops_quant
from nxjax.kernels.cpu.float_factors import rounded, same_factors
from nxjax.ops.quant_grid import Grid


def _sum(x_grid, y_grid, out, rounding):
    given = {"x_grid": x_grid, "y_grid": y_grid, "out": out, "sign": 1, "lo": -128, "hi": 127, "rounding": rounding}
    return lambda p, q: ops_quant.summed.eval(p, q, **given)


def test_factors_give_the_bits_of_fixed_point_sums_for_all_operands():
    rng = np.random.default_rng(0)
    bytes_ = np.arange(-255, 256)
    found = 0
    for _ in range(8):
        grids = [
            Grid(np.dtype("int8"), float(np.float32(np.exp(rng.uniform(-4, -3)))), int(rng.integers(-128, 128)))
            for _ in range(3)
        ]
        x, y, out = grids
        exact, limits = _sum(*grids, "double"), (-128 - out.zero_point, 127 - out.zero_point)
        factors = same_factors((bytes_, bytes_), (x.scale / out.scale, y.scale / out.scale), exact, *limits)
        if factors is not None:
            found += 1
            p, q = np.meshgrid(bytes_, bytes_)
            a, b = map(np.float32, factors)
            total = p.astype(np.float32) * a + q.astype(np.float32) * b
            np.testing.assert_array_equal(rounded(total, *limits), exact(p, q))
    assert found > 4


def test_halves_that_go_up_have_no_factors():
    """Floats are rounded with halves away from zero, so sums that are rounded otherwise are not found."""
    grid, half = Grid(np.dtype("int8"), 0.5, 0), Grid(np.dtype("int8"), 1.0, 0)
    bytes_ = np.arange(-255, 256)
    given = lambda rounding: ((bytes_, bytes_), (0.5, 0.5), _sum(grid, grid, half, rounding), -128, 127)
    assert same_factors(*given("double")) == (0.5, 0.5)
    assert same_factors(*given("single")) is None


def test_great_factors_are_not_tried():
    assert same_factors((np.arange(3),), (5.0,), lambda p: 5 * p, 0, 9) is None
