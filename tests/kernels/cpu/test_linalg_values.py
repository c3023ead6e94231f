"""Values without vectors: close ones, equal ones, graded ones, none; of matrices of any scale."""

import numpy as np
import pytest

from nxjax.kernels.cpu.linalg_values import SingularValues, SymmetricValues
from tests.kernels.cpu.running import ISAS, run

DTYPES = ("f4", "f8")
RNG = np.random.default_rng(0)


def turned(values):
    """A symmetric matrix that has these eigenvalues."""
    q, _ = np.linalg.qr(RNG.standard_normal((len(values),) * 2))
    return q * values @ q.T


N = 21
WILKINSON = np.diag(np.abs(np.arange(N) - 10.0)) + np.eye(N, k=1) + np.eye(N, k=-1)  # pairs that differ by 1e-15
GRADES = 10.0 ** -np.linspace(0, 15, N)
HARD = {
    "nothing": np.zeros((N, N)),
    "ones": np.ones((N, N)),
    "the identity": 3 * np.eye(N),
    "few values": turned(np.repeat([2.0, -1.0, 0.0], 7)),
    "close values": turned(1 + 1e-9 * RNG.standard_normal(N)),
    "close pairs": WILKINSON,
    "no diagonal": np.eye(N, k=1) + np.eye(N, k=-1),
    "graded": GRADES[:, None] * turned(RNG.standard_normal(N) + 4) * GRADES,
    "graded upwards": (GRADES[:, None] * turned(RNG.standard_normal(N) + 4) * GRADES)[::-1, ::-1],
    "a star": np.eye(N) * 1.5 - np.eye(N)[0] - np.eye(N)[0][:, None],
}


@pytest.mark.parametrize("dtype", DTYPES)
def test_hard_matrices(dtype):
    dtype = np.dtype(dtype)
    huge = 1e36 if dtype.itemsize == 4 else 1e290
    for scale in (1.0, huge, 1 / huge):
        x = (np.stack(list(HARD.values())) * scale).astype(dtype)
        exact = x.astype("f8") / scale
        close = 2 * N * np.finfo(dtype).eps * np.abs(exact).max()
        (w,) = run(SymmetricValues(dtype, len(x), N, True), x, name=ISAS[0])
        np.testing.assert_allclose(w / scale, np.linalg.eigvalsh(exact), rtol=0, atol=close)
        assert (np.diff(w) >= 0).all()
        (s,) = run(SingularValues(dtype, len(x), N, N), x, name=ISAS[0])
        np.testing.assert_allclose(s / scale, np.linalg.svd(exact, compute_uv=False), rtol=0, atol=close)
        assert (np.diff(s) <= 0).all() and (s >= 0).all()


@pytest.mark.parametrize("isa_name", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_sizes(dtype, isa_name):
    dtype = np.dtype(dtype)
    close = {"rtol": 0, "atol": 300 * float(np.finfo(dtype).eps)}
    for count, n, lower in ((1, 1, True), (3, 2, False), (2, 17, True), (1, 35, False)):
        x = RNG.standard_normal((count, n, n)).astype(dtype)
        half = (np.tril if lower else np.triu)(x)
        whole = (half + half.swapaxes(1, 2) - half * np.eye(n)).astype("f8")
        x += (np.triu if lower else np.tril)(np.full((n, n), np.nan, dtype), 1 if lower else -1)  # not read
        (w,) = run(SymmetricValues(dtype, count, n, lower), x, name=isa_name, cuts=[count // 2])
        np.testing.assert_allclose(w, np.linalg.eigvalsh(whole), **close)
    for count, m, n, packed in ((1, 4, 1, False), (3, 9, 6, True), (1, 16, 16, False), (2, 40, 20, False)):
        x = RNG.standard_normal((count, m, n)).astype(dtype)
        exact = (np.triu(x[:, :n]) if packed else x).astype("f8")
        (s,) = run(SingularValues(dtype, count, m, n, packed=packed), x, name=isa_name, cuts=[count // 2])
        np.testing.assert_allclose(s, np.linalg.svd(exact, compute_uv=False), **close)


@pytest.mark.parametrize("dtype", DTYPES)
def test_diagonals_keep_all_digits(dtype):
    d = (10.0 ** -np.arange(20)).astype(dtype)
    x = np.stack([np.diag(d), np.diag(d[::-1])])
    (w,) = run(SymmetricValues(d.dtype, 2, 20, True), x)
    np.testing.assert_array_equal(w, np.stack([d[::-1]] * 2))
    (s,) = run(SingularValues(d.dtype, 2, 20, 20), x)
    np.testing.assert_allclose(s, np.stack([d] * 2), rtol=2 * np.finfo(dtype).eps)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_has_no_values(bad):
    x = RNG.standard_normal((3, 6, 6))
    alone = [run(k, x[2:])[0] for k in (SymmetricValues(x.dtype, 1, 6, True), SingularValues(x.dtype, 1, 6, 6))]
    x[1, 4, 2] = bad
    found = [run(k, x)[0] for k in (SymmetricValues(x.dtype, 3, 6, True), SingularValues(x.dtype, 3, 6, 6))]
    for y, one in zip(found, alone, strict=True):
        assert np.isnan(y).all(1).tolist() == [False, True, False]
        np.testing.assert_array_equal(y[2:], one)
