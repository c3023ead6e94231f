"""Householder reflectors of matrices one at a time, at the edges of panels."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_reflect import GeqrfPanels, HouseholderProductPanels
from tests.kernels.cpu.running import ISAS, run

SHAPES = ((1, 1, 1), (2, 7, 3), (1, 3, 40), (3, 40, 20))


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_factors(dtype, isa_name):
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    eps = 40 * float(np.finfo(dtype).eps)
    huge = 1e30 if dtype.itemsize == 4 else 1e250
    for count, m, n in SHAPES:
        x = rng.standard_normal((count, m, n)).astype(dtype)
        x[0, :, 0] = 0  # nothing to reflect
        x[-1, :, n // 2 :] *= huge  # squares overflow
        x[-1, :, : n // 2] /= huge  # and vanish
        kernel = GeqrfPanels(dtype, count, m, n)
        packed, taus = run(kernel, x, name=isa_name, cuts=[count // 2])
        want, scalars = kernel.meaning(x)
        scale = np.abs(x).max(1, keepdims=True) + np.finfo(dtype).tiny
        above = np.triu(np.ones((m, n), dtype))
        np.testing.assert_allclose(packed * above / scale, want * above / scale, rtol=0, atol=eps * 8)
        np.testing.assert_allclose(packed * (1 - above), want * (1 - above), rtol=0, atol=eps * 8)
        np.testing.assert_allclose(taus, scalars, rtol=0, atol=eps * 8)
        if m < n:
            continue
        kernel = HouseholderProductPanels(dtype, count, m, n, n)
        (q,) = run(kernel, packed, taus, name=isa_name, cuts=[count // 2])
        np.testing.assert_allclose(q.swapaxes(1, 2) @ q, np.broadcast_to(np.eye(n), (count, n, n)), atol=eps)
        np.testing.assert_allclose(q @ (np.triu(packed[:, :n]) / scale), x / scale, rtol=0, atol=eps)


@pytest.mark.parametrize("k", [0, 3, 18])
def test_fewer_reflectors_than_columns(k):
    rng = np.random.default_rng(0)
    x, taus = rng.standard_normal((2, 25, 20)), rng.standard_normal((2, k))
    kernel = HouseholderProductPanels(x.dtype, 2, 25, 20, k)
    np.testing.assert_allclose(run(kernel, x, taus)[0], kernel.meaning(x, taus)[0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("place", [0, 2])
def test_an_infinite_column_has_an_infinite_norm(place):
    x = np.arange(1.0, 13.0, dtype=np.float32).reshape(1, 4, 3)
    x[0, place, 0] = -np.inf
    kernel = GeqrfPanels(np.dtype("f4"), 1, 4, 3)
    assert np.isinf(run(kernel, x)[0][0, 0, 0]) and np.isinf(kernel.meaning(x)[0][0, 0, 0])
    x[0, place, 0] = np.nan
    assert np.isnan(np.triu(run(kernel, x)[0][0, :3])[np.triu_indices(3)]).all()
