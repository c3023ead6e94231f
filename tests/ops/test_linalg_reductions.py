"""Hessenberg, tridiagonal and Schur forms and column pivots: against SciPy, and what they are made of."""

import numpy as np
import pytest
import scipy.linalg

import nxjax as nx
from nxjax.errors import DtypeError, LoweringError, ShapeError
from nxjax.lower.stablehlo.builder import lower
from nxjax.ops.linalg_hessenberg import hessenberg, qr_pivots, tridiagonal
from nxjax.ops.linalg_schur import _limits, _phase, _small, schur

rng = np.random.default_rng(0)
DTYPES = [np.float32, np.float64, np.complex64, np.complex128]


def matrix(n, dtype, kind="dense"):
    a = rng.normal(size=(n, n))
    if np.issubdtype(dtype, np.complexfloating):
        a = a + 1j * rng.normal(size=(n, n))
    if kind == "triangular":
        a = np.triu(a)
    if kind == "sparse":
        a = a * (rng.random((n, n)) < 0.3)
    if kind == "whole":
        a = np.round(a)
    return a.astype(dtype)


def eps(a, factor=200):
    return factor * np.finfo(a.dtype).eps * max(len(a), 1) * (1 + np.abs(a).max(initial=0))


def factors(a, atol):
    """T, if it and Q are what they shall be."""
    t, q = schur.eval(a, vectors=True)
    assert t.dtype == q.dtype == a.dtype
    np.testing.assert_allclose(q @ t @ q.conj().T, a, atol=atol)
    np.testing.assert_allclose(q @ q.conj().T, np.eye(len(a)), atol=1000 * np.finfo(a.dtype).eps * max(len(a), 1))
    if np.issubdtype(a.dtype, np.complexfloating):
        assert not np.tril(t, -1).any()
        return t
    blocks = np.flatnonzero(np.diag(t, -1))
    assert not np.tril(t, -2).any() and not (np.diff(blocks) == 1).any()
    for i in blocks:
        assert t[i, i] == t[i + 1, i + 1]
        b, c = t[i, i + 1], t[i + 1, i]
        assert np.sign(b) * np.sign(c) < 0 or min(abs(b), abs(c)) < np.finfo(a.dtype).tiny
    return t


def structured(n):
    """Matrices at which shifts do not help, blocks that are nearly of another kind, and rows that stand apart."""
    eye, full = np.eye(n), rng.normal(size=(n, n))
    cycle, above = np.roll(eye, 1, 0), np.eye(n, k=1)
    found = [
        cycle,
        3 * cycle,
        cycle + cycle.T,
        cycle - cycle.T,
        above,
        above.T,
        eye + above,
        eye + above.T,
        np.ones((n, n)),
    ]
    found += [
        np.zeros((n, n)),
        full - full.T,
        full + full.T,
        full - np.diag(np.diag(full)),
        np.triu(full, -1) * (1 - eye),
    ]
    whole = np.round(3 * rng.normal(size=n))
    found += [np.vstack([whole, np.eye(n - 1, n)]), scipy.linalg.hilbert(n), scipy.linalg.circulant(whole)]
    found += [
        full * 10.0 ** -np.add.outer(np.arange(n), np.arange(n)),
        full * 10.0 ** -abs(np.subtract.outer(np.arange(n), np.arange(n))),
    ]
    for small in (1e-4, 1e-9, 1e-18):
        found += [np.triu(full) + small * above.T, np.triu(full, -1) * np.where(rng.random((n, n)) < 0.5, 1, small)]
    found += [eye[rng.permutation(n)], eye[rng.permutation(n)] * full[0]]
    for b, c, d in (
        (1, 0, 1),
        (0, 1, 1),
        (1, -1, 1),
        (1, 1, 1),
        (1, 1e-17, 1),
        (1, 1e-8, 1),
        (1, -1e-17, 1 + 1e-16),
        (2, 1, 1.5),
        (-1, 2, 1),
    ):
        block = np.array([[1, b], [c, d]], float)
        found.append(scipy.linalg.block_diag(*[block] * (n // 2), *[[[2.0]]] * (n % 2)) + np.triu(full, 2))
    return found


def test_a_subdiagonal_counts_only_beside_what_its_square_could_move():
    """Ahues and Tisseur's criterion: equal diagonal elements far above their difference do not make it nothing."""
    h = np.array([[1, 1], [2e-16, 1.001]])
    tiny, ulp = _limits(h, 2)
    assert _small(h, 0, 2, 1, 0, tiny, ulp) == 0
    h[1, 1] = 2
    assert _small(h, 0, 2, 1, 0, tiny, ulp) == 1


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1.0, 1e-12, 1e12, "smallest", "largest"])
def test_schur_of_structured_matrices(dtype, size):
    for n in (2, 3, 4, 5, 6, 8):
        for a in structured(n):
            info, most = np.finfo(dtype), max(1.0, np.abs(a).max())
            ends = {"smallest": float(info.tiny) * 1e3, "largest": float(info.max) / (1e3 * most)}
            a = (a * ends.get(size, size)).astype(dtype)
            if np.issubdtype(dtype, np.complexfloating):
                phase = np.exp(1j * rng.choice([0, np.pi / 2, 1.0], n)).astype(dtype)
                a = a * rng.choice([phase, np.ones(n, dtype)])
            factors(a, 100 * n * np.finfo(dtype).eps * max(float(np.abs(a).max()), float(np.finfo(dtype).tiny)))


@pytest.mark.parametrize("dtype", [d for d in DTYPES if np.issubdtype(d, np.complexfloating)])
def test_schur_of_subnormal_subdiagonals(dtype):
    """Matrices of rank one leave next to nothing below the diagonal, which has a direction nevertheless."""
    for n in (2, 3, 6):
        for _ in range(40):
            a = np.exp(1j * rng.choice([0, np.pi / 2, 1.0], (1, n))).astype(dtype).repeat(n, 0)
            factors(a, eps(a))
    for x in (3 - 2j, -1j, 5 + 0j):
        small = np.finfo(dtype).smallest_subnormal * dtype(x)
        np.testing.assert_allclose(complex(_phase(small)), x / abs(x), rtol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES)
def test_schur(dtype):
    """The factors, and the eigenvalues in LAPACK's order."""
    for kind in ("dense", "triangular", "sparse", "whole"):
        for n in (0, 1, 2, 3, 6, 20):
            a = matrix(n, dtype, kind)
            t = factors(a, eps(a))
            if kind == "dense" and n:  # the others have eigenvalues that rounding moves far
                np.testing.assert_allclose(np.diag(t), np.diag(scipy.linalg.schur(a)[0]), atol=100 * eps(a))
    (alone,) = schur.eval(a, vectors=False)
    np.testing.assert_array_equal(alone, t)
    assert np.isnan(schur.eval(np.full((2, 2), np.nan, dtype), vectors=True)[0]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_reductions(dtype):
    for n in (1, 2, 3, 7):
        a = matrix(n, dtype)
        packed, taus = hessenberg.eval(a)
        h = scipy.linalg.hessenberg(a) if n > 2 else np.triu(packed, -1)
        np.testing.assert_allclose(np.triu(packed, -1), h, atol=eps(a))
        assert taus.shape == (n - 1,)
        a = a + a.conj().T
        for low in (True, False):
            packed, d, e, taus = tridiagonal.eval(a, lower=low)
            assert d.dtype == e.dtype == a.real.dtype and taus.dtype == dtype
            whole = np.diag(d) + np.diag(e, 1) + np.diag(e, -1)
            np.testing.assert_allclose(np.linalg.eigvalsh(whole), np.linalg.eigvalsh(a), atol=eps(a))
            np.testing.assert_array_equal(np.diag(packed), d)
            other = np.triu(packed, 1) if low else np.tril(packed, -1)
            np.testing.assert_array_equal(other, np.triu(a, 1) if low else np.tril(a, -1))
        for b in (matrix(n + 2, dtype)[:, :n], matrix(n + 2, dtype)[:n]):
            np.testing.assert_array_equal(qr_pivots.eval(b)[0], scipy.linalg.qr(b, pivoting=True)[2])


def test_batches_jit_and_errors():
    x = nx.asarray(np.stack([matrix(3, np.float32) for _ in range(2)]))
    for op, params in ((hessenberg, {}), (tridiagonal, {"lower": True}), (schur, {"vectors": True}), (qr_pivots, {})):
        one = lambda a, op=op, params=params: op(a, **params)
        for whole in (one(x), nx.vmap(one)(x), nx.jit(one)(x)):
            for i in range(2):
                for a, b in zip(whole, one(x[i]), strict=True):
                    np.testing.assert_allclose(a[i].numpy(), b.numpy(), atol=1e-5)
        with pytest.raises(DtypeError):
            op(nx.ones((2, 2), int), **params)
        with pytest.raises(LoweringError, match="no lowering"):
            lower(nx.jit(one).trace(x).program)
    for op, params in ((hessenberg, {}), (tridiagonal, {"lower": True}), (schur, {"vectors": True})):
        with pytest.raises(ShapeError, match="square"):
            op(nx.ones((2, 3)), **params)
    with pytest.raises(ShapeError, match="empty"):
        hessenberg(nx.ones((0, 0)))


def test_an_eager_schur_form_is_that_under_jit():
    rng = np.random.default_rng(3)
    for x in rng.standard_normal((40, 3, 3)).astype("f4"):  # the order of a block's rows is free
        for a, b in zip(schur(nx.asarray(x), vectors=True), nx.jit(lambda x: schur(x, vectors=True))(x), strict=True):
            np.testing.assert_array_equal(a.numpy(), b.numpy())
