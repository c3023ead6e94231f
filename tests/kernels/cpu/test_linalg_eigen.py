"""Symmetric matrices in lanes: vectors, ascending values, large and small ones, and those that have no answer."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_eigen import JacobiEigh
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_factors(dtype, lower):
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    eps = float(np.finfo(dtype).eps)
    huge = 1e37 if dtype.itemsize == 4 else 1e300
    triangle, strict = (np.tril, -1) if lower else (np.triu, 1)
    for count, n in ((21, 7), (3, 1)):
        x = rng.standard_normal((count, n, n)).astype(dtype)
        x[0] = 0
        x[1] *= huge
        x[2] /= huge
        kernel = JacobiEigh(dtype, count, n, lower)
        v, w = run(kernel, x, name=ISAS[0], cuts=[kernel.items // 2])
        half = triangle(x, strict)
        whole = half + half.swapaxes(1, 2) + x * np.eye(n)
        scale = np.abs(whole).max((1, 2), keepdims=True) + np.finfo(dtype).tiny
        np.testing.assert_allclose(v.swapaxes(1, 2) @ v, np.broadcast_to(np.eye(n), x.shape), atol=60 * eps)
        found = (v * (w[:, None, :] / scale)) @ v.swapaxes(1, 2)
        np.testing.assert_allclose(found, whole / scale, rtol=0, atol=60 * eps)
        assert (np.diff(w) >= 0).all()


def test_neighbours_make_no_difference():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((20, 5, 5)).astype(np.float32)
    alone = run(JacobiEigh(x.dtype, 1, 5, True), x[7:8], name=ISAS[0])
    x[3, 4, 1], x[5] = np.inf, np.nan
    x[3, 1, 4] = 0  # the triangle that is not read
    v, w = run(JacobiEigh(x.dtype, 20, 5, True), x, name=ISAS[0])
    np.testing.assert_array_equal(v[7], alone[0][0])
    np.testing.assert_array_equal(w[7], alone[1][0])
    lost = np.isnan(w).all(1)
    assert lost.nonzero()[0].tolist() == [3, 5]
    assert np.isnan(v[lost]).all()
    assert not np.isnan(v[~lost]).any()
