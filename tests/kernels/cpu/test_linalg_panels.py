"""Cholesky of matrices one at a time, at the edges of panels."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg import Cholesky
from nxjax.kernels.cpu.linalg_panels import SMALL, CholeskyPanels, kernel
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_cholesky(dtype, isa_name):
    rng = np.random.default_rng(0)
    close = 2e-5 if dtype == "f4" else 1e-12
    for count, n in ((1, 1), (3, 5), (3, 16), (1, 17), (3, 33), (1, 49), (1, 70)):
        x = rng.standard_normal((count, n, n)).astype(dtype)
        x = x @ x.swapaxes(1, 2) + np.eye(n, dtype=dtype) * 0.5
        x += np.triu(np.full((n, n), np.nan, dtype), 1)  # not read
        bad = {0: -1.0, 1: np.nan} if count > 1 else {}
        for i, number in bad.items():
            x[i, n // 2, n // 2] = number
        k = CholeskyPanels(np.dtype(dtype), count, n)
        (got,) = run(k, x, name=isa_name, cuts=[count // 2])
        (want,) = k.meaning(x)
        good = [i for i in range(count) if i not in bad]
        np.testing.assert_allclose(got[good], want[good], rtol=close, atol=close)
        for i in bad:
            assert np.isnan(got[i, -1, -1])
            assert i or np.isnan(got[i][np.tril_indices(n)]).all()
        assert (np.triu(got, 1) == 0).all()


def test_which_way():
    assert isinstance(kernel(np.dtype("f4"), 100, 8), Cholesky)
    assert isinstance(kernel(np.dtype("f4"), 8, 8), CholeskyPanels)
    assert isinstance(kernel(np.dtype("f4"), 100, SMALL), CholeskyPanels)
