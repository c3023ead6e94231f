import numpy as np
import pytest

from nxjax.kernels.cpu import isa
from nxjax.kernels.cpu.choose import Slide, WindowSelection
from nxjax.kernels.cpu.pool import accumulator
from tests.kernels.cpu.running import run


@pytest.mark.parametrize("name", isa.possible())
@pytest.mark.parametrize("scatter", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "int8"])
@pytest.mark.parametrize(("channels", "direction"), [(19, "le"), (1, "ge"), (64, "ge"), (213, "le")])
def test_against_the_meaning(name, scatter, dtype, channels, direction):
    """Overlapping windows with padding and holes, a last vector that is not whole, all cuts into items."""
    dtype, rng = np.dtype(dtype), np.random.default_rng(0)
    batch, high, wide = 2, 7, 5
    acc = accumulator(dtype, dtype)
    size, other = dtype.itemsize, acc.itemsize if scatter else dtype.itemsize
    x_row, o_row, w_row = wide * channels * size, wide * channels * other, 7 * channels * size
    slides = (
        Slide(high, 4, 3, 2, 1, 1, 1, x_row, o_row, w_row),
        Slide(wide, 7, 2, 1, 2, 0, 2, channels * size, channels * other, channels * size),
    )
    steps = (high * x_row, high * o_row, 4 * w_row)
    lanes = isa.named(name).lanes(max(acc.itemsize, 4))
    kernel = WindowSelection(scatter, direction, dtype, batch, channels, slides, steps, lanes)
    draw = lambda *shape: rng.integers(-3, 4, shape).astype(dtype)
    x = draw(batch, high, wide, channels)
    first = draw(batch, 4, 7, channels) if scatter else draw(*x.shape)
    (wanted,) = kernel.meaning(first, x)
    assert wanted.shape == ((batch, high, wide, channels) if scatter else (batch, 4, 7, channels))
    assert wanted.any()
    for cuts in (None, list(range(1, kernel.items))):
        (y,) = run(kernel, first, x, name=name, cuts=cuts)
        np.testing.assert_array_equal(y, wanted)


def test_sizes_are_no_part_of_the_code():
    a, b = (
        WindowSelection(
            True, "ge", np.dtype("float32"), n, 32, [Slide(n, n, 2, 1, 1, 0, 1, 128, 128, 128)], (0, 0, 0), 16
        )
        for n in (5, 9)
    )
    assert a.symbol == b.symbol
    assert a.integers != b.integers
