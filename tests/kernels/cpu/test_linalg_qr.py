"""Householder reflectors in lanes: LAPACK's numbers, orthonormal columns, large and small norms."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_qr import Geqrf, HouseholderProduct
from tests.kernels.cpu.running import ISAS, run

SHAPES = ((1, 1, 1), (16, 4, 4), (21, 7, 3), (9, 3, 7), (2, 1, 5), (3, 5, 1), (5, 12, 10))


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_factors(dtype, isa_name):
    rng = np.random.default_rng(0)
    dtype = np.dtype(dtype)
    eps = 40 * float(np.finfo(dtype).eps)
    large = 1e30 if dtype.itemsize == 4 else 1e250
    for count, m, n in SHAPES:
        x = rng.standard_normal((count, m, n)).astype(dtype)
        x[0, :, 0] = 0  # nothing to reflect
        x[-1] *= large  # squares overflow
        kernel = Geqrf(dtype, count, m, n)
        packed, taus = run(kernel, x, name=isa_name, cuts=[kernel.items // 2])
        want, scalars = kernel.meaning(x)
        scale = np.abs(want).max((1, 2), keepdims=True) + 1e-30
        np.testing.assert_allclose(packed / scale, want / scale, rtol=0, atol=eps * 8)
        np.testing.assert_allclose(taus, scalars, rtol=0, atol=eps * 8)
        if m < n:
            continue
        kernel = HouseholderProduct(dtype, count, m, n, min(m, n))
        (q,) = run(kernel, packed, taus, name=isa_name, cuts=[1])
        np.testing.assert_allclose(q.swapaxes(1, 2) @ q, np.broadcast_to(np.eye(n), (count, n, n)), atol=eps)
        np.testing.assert_allclose(q @ np.triu(packed[:, :n]) / scale, x / scale, rtol=0, atol=eps)


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("place", [0, 2])
def test_an_infinite_column_has_an_infinite_norm(place, isa_name):
    x = np.arange(1.0, 13.0, dtype=np.float32).reshape(1, 4, 3)
    x[0, place, 0] = -np.inf
    kernel = Geqrf(np.dtype("f4"), 1, 4, 3)
    packed, _ = run(kernel, x, name=isa_name)
    assert np.isinf(packed[0, 0, 0]) and np.isinf(kernel.meaning(x)[0][0, 0, 0])
