"""`jax.lax.linalg`'s functions that are compositions: against NumPy and SciPy, with derivatives."""

import numpy as np
import pytest
import scipy.linalg

import nxjax as nx
from nxjax.errors import DtypeError, ShapeError
from nxjax.lax import linalg

rng = np.random.default_rng(0)


def matrix(*shape, dtype=np.float32):
    x = rng.normal(size=shape)
    return (x + 1j * rng.normal(size=shape) if np.issubdtype(dtype, np.complexfloating) else x).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float64, np.complex64])
def test_ormqr_is_a_product_with_q(dtype):
    a, c = matrix(2, 5, 3, dtype=dtype), matrix(2, 5, 4, dtype=dtype)
    packed, taus = linalg.geqrf(nx.asarray(a, dtype))
    whole = np.linalg.qr(a, mode="complete")[0]
    for transpose in (False, True):
        q = np.conj(np.swapaxes(whole, -1, -2)) if transpose else whole
        found = linalg.ormqr(packed, taus, nx.asarray(c, dtype), transpose=transpose)
        np.testing.assert_allclose(found.numpy(), q @ c, atol=1e-4)
        right = np.ascontiguousarray(np.swapaxes(c, -1, -2))
        found = linalg.ormqr(packed, taus, nx.asarray(right, dtype), left=False, transpose=transpose)
        np.testing.assert_allclose(found.numpy(), right @ q, atol=1e-4)
    with pytest.raises(ShapeError, match="ormqr"):
        linalg.ormqr(packed, taus, nx.asarray(c[:, :2], dtype))


def test_pivoted_qr():
    for shape in ((4, 3), (3, 4), (2, 3, 3)):
        a = matrix(*shape)
        for full in (True, False):
            q, r, p = linalg.qr(nx.array(a), pivoting=True, full_matrices=full)
            moved = np.take_along_axis(a, p.numpy()[..., None, :], -1)
            np.testing.assert_allclose(q.numpy() @ r.numpy(), moved, atol=1e-5)
            if a.ndim == 2:
                want = scipy.linalg.qr(a, pivoting=True, mode="full" if full else "economic")
                for x, y in zip((q, r, p), want, strict=True):
                    np.testing.assert_allclose(x.numpy(), y, atol=1e-5)
    x = matrix(4, 3, dtype=np.float64)
    direction = matrix(4, 3, dtype=np.float64)
    f = lambda v: linalg.qr(v, pivoting=True, full_matrices=False)[:2]
    _, ts = nx.jvp(f, (nx.asarray(x, np.float64),), (nx.asarray(direction, np.float64),))
    h = 1e-6
    ends = [[v.numpy() for v in f(nx.asarray(x + s * h * direction, np.float64))] for s in (1, -1)]
    for t, a, b in zip(ts, *ends, strict=True):
        np.testing.assert_allclose(t.numpy(), (a - b) / (2 * h), atol=1e-6)


def test_tridiagonal_solve_exchanges_rows():
    for n in (1, 2, 3, 6):
        dl, d, du, b = matrix(2, n), matrix(2, n), matrix(2, n), matrix(2, n, 3)
        d[:, 0] = 0 if n > 1 else 1
        for i in range(2):
            a = np.diag(d[i]) + np.diag(dl[i, 1:], -1) + np.diag(du[i, :-1], 1)
            found = linalg.tridiagonal_solve(*(nx.array(v) for v in (dl, d, du, b)))
            np.testing.assert_allclose(a @ found.numpy()[i], b[i], atol=1e-3 * np.abs(found.numpy()[i]).max())
    zero = nx.zeros(3)
    assert np.isnan(linalg.tridiagonal_solve(zero, zero, zero, nx.ones((3, 1))).numpy()).all()
    one = nx.ones(2)
    assert np.isfinite(linalg.tridiagonal_solve(one, one, one, nx.ones((2, 1)), perturb_singular=True).numpy()).all()


@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_qdwh(dtype):
    for shape in ((5, 3), (4, 4)):
        x = matrix(*shape, dtype=dtype)
        for f in (linalg.qdwh, nx.jit(linalg.qdwh)):
            u, h, count, converged = f(nx.array(x))
            for a, b in zip((u, h), scipy.linalg.polar(x), strict=True):
                np.testing.assert_allclose(a.numpy(), b, atol=2e-5)
            assert bool(converged) and 3 < int(count) < 10
    with pytest.raises(ShapeError, match="qdwh"):
        linalg.qdwh(nx.ones((2, 3)))


def test_cholesky_update_and_symmetric_product():
    r, w = np.triu(matrix(4, 4)) + 3 * np.eye(4, dtype=np.float32), matrix(4)
    w[1] = 0
    found = linalg.cholesky_update(nx.array(r), nx.array(w)).numpy()
    np.testing.assert_allclose(found.T @ found, r.T @ r + np.outer(w, w), atol=1e-4)
    np.testing.assert_array_equal(np.tril(found, -1), 0)
    a, c = matrix(2, 3), np.array([[1, 2], [5, 3]], np.float32)
    whole = linalg.symmetric_product(nx.array(a), nx.array(c), alpha=2.0, beta=1.0, symmetrize_output=True).numpy()
    low = np.tril(2 * a @ a.T + c)
    np.testing.assert_allclose(whole, low + np.tril(low, -1).T, rtol=1e-5)
    with pytest.raises(DtypeError, match="symmetric_product"):
        linalg.symmetric_product(nx.ones((2, 2), complex), nx.ones((2, 2), complex))
    with pytest.raises(ShapeError, match="cholesky_update"):
        linalg.cholesky_update(nx.ones((2, 2)), nx.ones(3))
