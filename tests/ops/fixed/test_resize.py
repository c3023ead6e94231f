"""Integer resizing against interpolation in float64."""

import numpy as np
import pytest

from nxjax.ops.fixed.resize import nearest_index, real_positions, resize_bilinear, resize_nearest

I8 = np.dtype("int8")
CORNERS = [(False, False), (True, False), (False, True)]


@pytest.mark.parametrize("corners", CORNERS)
@pytest.mark.parametrize("size", [(1, 1), (4, 9), (11, 5), (3, 3)])
def test_bilinear_is_real_within_a_step(corners: tuple[bool, bool], size: tuple[int, int]):
    x = np.random.default_rng(0).integers(-128, 128, (2, 4, 5, 3)).astype(I8)
    (y0, y1, dy), (x0, x1, dx) = (real_positions(n, to, *corners) for n, to in zip((4, 5), size, strict=True))
    dy, dx, real = dy[:, None, None], dx[:, None], x.astype(np.float64)
    rows = real[:, y0] * (1 - dy) + real[:, y1] * dy
    want = rows[:, :, x0] * (1 - dx) + rows[:, :, x1] * dx
    for rounding in ("double", "single"):
        got = resize_bilinear(x, size, *corners, rounding)
        assert got.shape == (2, *size, 3) and got.dtype == I8
        # Positions are held in 1/1024: that much of the step between neighbours, per position.
        assert np.abs(got - want).max() <= 1 + 255 * 11 * 2 / 1024


def test_the_same_size_changes_nothing():
    x = np.random.default_rng(1).integers(-128, 128, (1, 6, 7, 2)).astype(I8)
    for corners in CORNERS:
        assert np.array_equal(resize_bilinear(x, (6, 7), *corners), x)
        assert np.array_equal(resize_nearest(x, (6, 7), *corners), x)


def test_nearest_neighbours():
    assert nearest_index(3, 6, False, False).tolist() == [0, 0, 1, 1, 2, 2]
    assert nearest_index(3, 5, True, False).tolist() == [0, 1, 1, 2, 2]
    assert nearest_index(4, 2, False, True).tolist() == [1, 3]
