"""Symmetric matrices made tridiagonal, and vectors turned back."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_tridiagonal import Reflected, ToTridiagonal
from tests.kernels.cpu.running import ISAS, run


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("n", [1, 2, 5, 16, 37, 70])
def test_reflectors_turn_the_matrix_into_a_tridiagonal_one(n, lower, dtype, isa_name):
    dtype, count = np.dtype(dtype), 2
    x = np.random.default_rng(n).standard_normal((count, n, n)).astype(dtype)
    whole = np.tril(x) + np.tril(x, -1).swapaxes(1, 2) if lower else np.triu(x) + np.triu(x, 1).swapaxes(1, 2)
    u, taus, d, e = run(ToTridiagonal(dtype, count, n, lower), x, name=isa_name, cuts=[1])
    rows = np.zeros_like(u)
    rows[..., :n] = np.eye(n)
    (q,) = run(Reflected(dtype, count, n), u, taus, rows, name=isa_name, cuts=[1])
    atol = 30 * np.finfo(dtype).eps * max(1, n**0.5)
    np.testing.assert_allclose(q, Reflected(dtype, count, n).meaning(u, taus, rows)[0], rtol=0, atol=atol)
    for matrix, turn, diagonal, beside in zip(whole, q, d, e, strict=True):
        t = np.diag(diagonal[:n]) + np.diag(beside[: n - 1], 1) + np.diag(beside[: n - 1], -1)
        np.testing.assert_allclose(turn @ t @ turn.T, matrix, rtol=0, atol=atol * abs(matrix).max())
        np.testing.assert_allclose(turn.T @ turn, np.eye(n), rtol=0, atol=atol)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_what_is_not_finite_has_a_diagonal_of_nan(value):
    x = np.ones((1, 6, 6), "f4")
    x[0, 4, 2] = x[0, 2, 4] = value
    u, taus, d, _ = run(ToTridiagonal(np.dtype("f4"), 1, 6, True), x)
    assert np.isnan(d[0, :6]).all()
    assert not u.any() and not taus.any()


def test_matrices_of_any_size_of_numbers():
    x = np.random.default_rng(0).standard_normal((1, 20, 20)).astype("f4")
    kernel = ToTridiagonal(np.dtype("f4"), 1, 20, True)
    for scale in (1e-30, 1e30):
        for got, wanted in zip(run(kernel, x * np.float32(scale))[2:], kernel.meaning(x)[2:], strict=True):
            np.testing.assert_allclose(got / scale, wanted, atol=1e-4)
