"""Fixed-point series against float64."""

import numpy as np

from nxjax.ops.fixed.point import INT32_MAX
from nxjax.ops.fixed.series import (
    exp_negative,
    inverse_root,
    leading_zeros,
    log_from_one,
    one_over_one_plus,
    reciprocal,
)


def test_exp_negative():
    x = -np.arange(0, 2**31, 2**15 - 1)
    real = np.exp(x / 2.0**26)
    assert np.abs(exp_negative(x, 5) / 2.0**31 - real).max() < 1e-6


def test_divisions():
    x = np.arange(0, 2**31, 2**16 + 1)
    assert np.abs(one_over_one_plus(x) / 2.0**31 - 1 / (1 + x / 2.0**31)).max() < 1e-8
    whole = np.arange(2**19, 2**31, 2**16 + 1)
    r, n = reciprocal(whole, 12)
    assert np.abs(r / 2.0**31 * 2.0**-n * (whole / 2.0**19) - 1).max() < 1e-7


def test_log():
    x = np.arange(2**19, 2**31, 2**16 + 7)
    assert np.abs(log_from_one(x, 12, 5) / 2.0**26 - np.log(x / 2.0**19)).max() < 1e-6


def test_inverse_root():
    x = np.arange(1, 1 << 16)
    multiplier, shift = inverse_root(x)
    assert np.abs(multiplier * 2.0 ** (shift - 31) * np.sqrt(x) - 1).max() < 1e-5


def test_leading_zeros():
    x = np.array([0, 1, 2, 2**31 - 1, INT32_MAX, 2**31, -1])
    assert leading_zeros(x).tolist() == [32, 31, 30, 1, 1, 0, 0]
