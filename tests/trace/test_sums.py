"""The error of a sum does not grow with the number of rows."""

import numpy as np
import pytest

from nxjax.trace import dtypes
from nxjax.trace.sums import BLOCK, blocked_sum


@pytest.mark.parametrize("axes", [(0,), (0, 2)])
def test_long_columns_keep_their_digits(axes):
    x = np.full((1 << 16, 3, 2), 0.1, np.float32)
    want = x.astype(np.float64).sum(axes)
    np.testing.assert_allclose(blocked_sum(x, axes), want, rtol=3e-6)
    assert abs(np.add.reduce(x, axis=axes) / want - 1).max() > 1e-5  # as NumPy adds them, one after the other


def test_narrow_floats_are_added_in_float32_and_integers_as_they_are():
    assert blocked_sum(np.ones(3 * BLOCK, dtypes.bfloat16), (0,)) == np.float32(3 * BLOCK)
    y = blocked_sum(np.ones((3, 2), np.int8), (0,))
    assert y.dtype == np.int8 and y.tolist() == [3, 3]


def test_no_elements_are_nothing():
    assert blocked_sum(np.ones((0, 2), np.float32), (0,)).tolist() == [0, 0]
