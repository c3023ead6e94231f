"""`scipy.linalg`'s factorizations, functions of matrices and structured matrices as SciPy's; shapes that JAX allows."""

import numpy as np
import pytest
import scipy.linalg as theirs

import nxjax as nx
import nxjax.numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.scipy import linalg as ours

rng = np.random.default_rng(0)
A, B, C = (rng.normal(size=s).astype(np.float32) for s in ((4, 4), (3, 3), (4, 3)))
Z = (A + 1j * A[::-1]).astype(np.complex64)


def same(got, want, atol=1e-4):
    got, want = (x if isinstance(x, tuple) else (x,) for x in (got, want))
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-4, atol=atol)


def test_structured():
    c, r = np.array([1.0, 2, 3, 5], np.float32), np.array([9.0, 4, 7], np.float32)
    for name in ("toeplitz", "hankel"):
        same(getattr(ours, name)(c), getattr(theirs, name)(c))
        same(getattr(ours, name)(c, r), getattr(theirs, name)(c, r))
        assert getattr(ours, name)(jnp.stack([c, c]), r).shape == (2, 4, 3)
        assert getattr(ours, name)(c[:0], r).shape == (0, 3)
    same(ours.toeplitz(c + 1j), theirs.toeplitz(c + 1j))
    for name in ("circulant", "companion", "fiedler", "fiedler_companion"):
        for k in (2, 3, 4):
            same(getattr(ours, name)(c[:k]), getattr(theirs, name)(c[:k]))
        assert getattr(ours, name)(np.stack([c, c])).shape[0] == 2
    same(ours.leslie(c, r), theirs.leslie(c, r))
    for mode in ("full", "same", "valid"):
        for n in (2, 3, 6):
            same(ours.convolution_matrix(c, n, mode), theirs.convolution_matrix(c, n, mode))
    for n in (1, 2, 4):
        for name in ("hilbert", "invhilbert", "pascal", "invpascal", "hadamard", "dft", "helmert"):
            same(getattr(ours, name)(n), getattr(theirs, name)(n))
        for kind in ("lower", "upper"):
            same(ours.pascal(n, kind), theirs.pascal(n, kind))
            same(ours.invpascal(n, kind), theirs.invpascal(n, kind))
        same(ours.helmert(n, full=True), theirs.helmert(n, full=True))
        same(ours.dft(n, "sqrtn"), theirs.dft(n, "sqrtn"))
    for call in (lambda: ours.hadamard(3), lambda: ours.dft(2, "x"), lambda: ours.pascal(2, "x")):
        with pytest.raises(ParameterError):
            call()
    with pytest.raises(ShapeError, match="too short"):
        ours.companion(c[:1])


def test_factorizations():
    for a in (A, Z):
        t, z = ours.schur(a, output="complex")
        same(z @ t @ jnp.conj(z).T, a)
        same(ours.hessenberg(a, calc_q=True), theirs.hessenberg(a, calc_q=True))
        for side, x in (("right", a), ("right", a[:, :3]), ("left", a[:3])):
            for method in ("qdwh", "svd"):
                same(ours.polar(x, side, method=method), theirs.polar(x, side))
    t, z = ours.rsf2csf(*ours.schur(A))
    same(z @ t @ jnp.conj(z).T, A)
    assert not np.tril(np.asarray(t), -1).any()
    assert ours.hessenberg(A[:0, :0]).shape == (0, 0)
    with pytest.raises(NotImplementedError, match="polar"):
        ours.polar(A[:3])
    for pivoting in (False, True):
        for conjugate in (False, True):
            for mode, x in (("right", rng.normal(size=(2, 4))), ("left", rng.normal(size=(3, 2)))):
                x = (x + 1j * x**2).astype(np.complex64)
                got = ours.qr_multiply(Z[:, :3], x, mode, pivoting, conjugate)
                same(got, theirs.qr_multiply(Z[:, :3], x, mode, pivoting, conjugate))
    d, e = A[0], A[1, :3]
    w, v = ours.eigh_tridiagonal(d, e)
    same(w, theirs.eigh_tridiagonal(d, e, eigvals_only=True))
    same((np.diag(d) + np.diag(e, 1) + np.diag(e, -1)) @ np.asarray(v), np.asarray(v * w))
    part = ours.eigh_tridiagonal(d, e, eigvals_only=True, select="i", select_range=(1, 2))
    same(part, np.asarray(w)[1:3])


def test_functions():
    spread = (A @ A.T + np.eye(4)).astype(np.float32)
    same(ours.sqrtm(spread), theirs.sqrtm(spread).astype(np.complex64), 1e-3)
    same(ours.sqrtm(Z) @ ours.sqrtm(Z), Z, 1e-3)
    same(ours.funm(A, jnp.exp), theirs.expm(A), 1e-2)
    assert float(ours.funm(A, jnp.exp, disp=False)[1]) <= 1
    same(ours.expm_frechet(A, B @ B.T if A.shape == B.shape else A.T), theirs.expm_frechet(A, A.T), 1e-2)
    for method in ("schur", "eigen"):
        x = ours.solve_sylvester(A, B, C, method=method)
        assert x.dtype == np.float32
        same(A @ np.asarray(x) + np.asarray(x) @ B, C, 1e-3)
    assert ours.solve_sylvester(jnp.stack([A, A]), B, C).shape == (2, 4, 3)
    assert np.isnan(np.asarray(ours.solve_sylvester(np.eye(1), -np.eye(1), np.eye(1)))).all()
    assert np.isnan(np.asarray(ours.expm(A * 1e8))).all()
    f = nx.jit(lambda a: ours.sqrtm(a))
    same(f(spread), ours.sqrtm(spread))


def test_systems_in_batches():
    spd = (A @ A.T + 4 * np.eye(4)).astype(np.float32)
    many, wide = np.stack([spd, 2 * spd]), rng.normal(size=(2, 4, 3)).astype(np.float32)
    for f in (
        lambda a, b: ours.solve(a, b),
        lambda a, b: ours.solve(a, b, assume_a="pos"),
        lambda a, b: ours.lu_solve(ours.lu_factor(a), b),
        lambda a, b: ours.cho_solve(ours.cho_factor(a), b),
    ):
        same(f(spd, wide), np.linalg.solve(spd, wide))
        same(f(many, wide[0]), np.linalg.solve(many, wide[0]))
        same(f(spd, wide[0, :, 0]), np.linalg.solve(spd, wide[0, :, 0]))
    assert ours.lu_factor(A[:3])[0].shape == (3, 4)
    # The derivative is the equation's, so that it is not symmetric.
    gradient = nx.grad(lambda a: jnp.sum(ours.solve(a, wide[0], assume_a="pos")))(spd)
    plain = nx.grad(lambda a: jnp.sum(ours.solve(a, wide[0])))(spd)
    same(gradient, np.asarray(plain))
