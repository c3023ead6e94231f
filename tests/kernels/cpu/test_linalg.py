"""Small matrices in lanes: factors, failures, swaps, all kinds of triangular systems."""

import itertools

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg import Cholesky, Lu, Solve
from nxjax.kernels.cpu.linalg_columns import SolveColumns
from tests.kernels.cpu.running import ISAS, run

DTYPES = [np.dtype("f4"), np.dtype("f8")]


def tolerance(dtype):
    return 2e-5 if dtype == DTYPES[0] else 1e-12


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cholesky(dtype, isa_name):
    rng = np.random.default_rng(0)
    for count, n in ((1, 1), (3, 2), (16, 4), (37, 5), (20, 16), (2, 33)):
        x = rng.standard_normal((count, n, n)).astype(dtype)
        x = x @ x.swapaxes(1, 2) + np.eye(n, dtype=dtype) * 0.5
        x += np.triu(rng.standard_normal((n, n)).astype(dtype), 1)  # not read
        bad = range(0, count, 5) if count > 1 else ()
        for i in bad:
            x[i, n // 2, n // 2] = (-1.0, np.nan, 0.0)[i % 3]
        kernel = Cholesky(dtype, count, n)
        (got,) = run(kernel, x, name=isa_name, cuts=[kernel.items // 2])
        (want,) = kernel.meaning(x)
        np.testing.assert_allclose(got, want, rtol=tolerance(dtype), atol=tolerance(dtype))
        assert all(np.isnan(got[i][np.tril_indices(n)]).all() for i in bad if i % 3 != 1)
        assert (np.triu(got, 1) == 0).all()


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [Solve, SolveColumns])
def test_solve(kind, dtype, isa_name):
    rng = np.random.default_rng(0)
    for count, n, k in ((1, 1, 1), (19, 5, 3), (16, 4, 9), (2, 7, 70)):
        a = rng.standard_normal((count, n, n)).astype(dtype) * 0.3 + 2 * np.eye(n, dtype=dtype)
        for transposed, upper, unit, turned in itertools.product((False, True), repeat=4):
            kernel = kind(dtype, count, n, k, transposed=transposed, upper=upper, unit=unit, turned=turned)
            b = rng.standard_normal((count, k, n) if turned else (count, n, k)).astype(dtype)
            (got,) = run(kernel, a, b, name=isa_name, cuts=[1])
            np.testing.assert_allclose(got, kernel.meaning(a, b)[0], rtol=tolerance(dtype), atol=tolerance(dtype))


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_lu_is_that_of_eval(dtype, isa_name):
    rng = np.random.default_rng(0)
    for count, m, n in ((1, 1, 1), (16, 4, 4), (21, 5, 3), (9, 3, 7), (2, 20, 20)):
        x = rng.standard_normal((count, m, n)).astype(dtype)
        x[0] = 0
        x[-1, :, 0] = np.round(x[-1, :, 0])  # equal pivots
        if count > 2:
            x[1, -1, 0] = np.nan
        kernel = Lu(dtype, count, m, n)
        with np.errstate(all="ignore"):
            want = kernel.meaning(x)
        for y, z in zip(run(kernel, x, name=isa_name, cuts=[1]), want, strict=True):
            np.testing.assert_array_equal(y, z)
