"""Matrices made bidiagonal from both sides."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_bidiagonal import ToBidiagonal
from nxjax.kernels.cpu.linalg_tridiagonal import Reflected
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("n", [1, 2, 5, 16, 37, 70])
def test_reflectors_turn_the_matrix_into_a_bidiagonal_one(n, dtype, isa_name):
    dtype, count = np.dtype(dtype), 2
    x = np.random.default_rng(n).standard_normal((count, n, n)).astype(dtype)
    *found, d, e = run(ToBidiagonal(dtype, count, n), x, name=isa_name, cuts=[1])
    rows = np.zeros_like(found[0])
    rows[..., :n] = np.eye(n)
    turn = Reflected(dtype, count, n)
    q, p = (run(turn, u, taus, rows, name=isa_name)[0] for u, taus in (found[:2], found[2:]))
    atol = 30 * np.finfo(dtype).eps * n**0.5
    for matrix, left, right, diagonal, above in zip(x, q, p, d, e, strict=True):
        b = np.diag(diagonal[:n]) + np.diag(above[: n - 1], 1)
        np.testing.assert_allclose(left @ b @ right.T, matrix, rtol=0, atol=atol * abs(matrix).max())
        for turned in (left, right):
            np.testing.assert_allclose(turned.T @ turned, np.eye(n), rtol=0, atol=atol)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_has_a_diagonal_of_nan(value):
    x = np.ones((1, 6, 6), "f4")
    x[0, 4, 2] = value
    left, _, right, _, d, _ = run(ToBidiagonal(np.dtype("f4"), 1, 6), x)
    assert np.isnan(d[0, :6]).all()
    assert not left.any() and not right.any()


def test_matrices_of_any_size_of_numbers():
    x = np.random.default_rng(0).standard_normal((1, 20, 20)).astype("f4")
    kernel = ToBidiagonal(np.dtype("f4"), 1, 20)
    for scale in (1e-30, 1e30):
        for got, wanted in zip(run(kernel, x * np.float32(scale))[4:], kernel.meaning(x)[4:], strict=True):
            np.testing.assert_allclose(got / scale, wanted, atol=1e-4)
