"""scipy.linalg: identities of the factors, values and derivatives as jax.scipy.linalg."""

import jax
import jax.scipy.linalg as theirs
import numpy as np
import pytest

import nxjax as nx
from nxjax.scipy import linalg as ours

rng = np.random.default_rng(0)
A = rng.normal(size=(4, 4)).astype(np.float32)
SPD = A @ A.T + 4 * np.eye(4, dtype=np.float32)
B = rng.normal(size=(4, 3)).astype(np.float32)
CASES = [
    ("cholesky", (SPD,), {}),
    ("cholesky", (SPD,), {"lower": True}),
    ("solve", (A, B), {}),
    ("solve", (A, B[:, 0]), {}),
    ("solve", (SPD, B), {"assume_a": "pos"}),
    ("inv", (A,), {}),
    ("det", (A,), {}),
    *(("solve_triangular", (SPD, B), {"lower": lo, "trans": t}) for lo in (False, True) for t in (0, 1, "C")),
    ("solve_triangular", (SPD, B[:, 0]), {"unit_diagonal": True}),
    ("expm", (A,), {}),
    ("expm", (A * 10,), {}),
    ("toeplitz", (B[:, 0], B[0]), {}),
    ("toeplitz", (B[:, 0],), {}),
    ("block_diag", (A, B, B[0]), {}),
    ("hilbert", (3,), {}),
]


@pytest.mark.parametrize(("name", "args", "kwargs"), CASES)
def test_values(name, args, kwargs):
    want = np.asarray(getattr(theirs, name)(*args, **kwargs))
    got = getattr(ours, name)(*args, **kwargs)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(np.asarray(got), want, rtol=2e-3, atol=1e-4 * max(1, np.abs(want).max()))


@pytest.mark.parametrize("name", ["cholesky", "solve", "inv", "det", "expm"])
def test_derivatives(name):
    args = (SPD, B) if name == "solve" else (SPD / 10,)
    got = nx.grad(lambda *a: (getattr(ours, name)(*a) ** 2).sum())(*args)
    want = jax.grad(lambda *a: (getattr(theirs, name)(*a) ** 2).sum())(*args)
    np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=5e-3, atol=1e-3)


def test_factors_multiply_to_the_matrix():
    p, lower, upper = ours.lu(A)
    np.testing.assert_allclose(np.asarray(p @ lower @ upper), A, atol=1e-5)
    pl, upper = ours.lu(B, permute_l=True)
    np.testing.assert_allclose(np.asarray(pl @ upper), B, atol=1e-5)
    q, r = ours.qr(B)
    assert q.shape == (4, 4)
    np.testing.assert_allclose(np.asarray(q @ r), B, atol=1e-5)
    q, r = ours.qr(B, mode="economic")
    assert q.shape == (4, 3)
    np.testing.assert_allclose(np.abs(np.asarray(ours.qr(B, mode="r")[0])[:3]), np.abs(np.asarray(r)), atol=1e-5)
    u, s, vh = ours.svd(B, full_matrices=False)
    np.testing.assert_allclose(np.asarray(u * s @ vh), B, atol=1e-5)
    np.testing.assert_allclose(np.asarray(ours.svd(B, compute_uv=False)), np.asarray(s), atol=1e-5)
    w, v = ours.eigh(SPD)
    np.testing.assert_allclose(np.asarray(v * w @ v.T), SPD, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.asarray(ours.eigh(SPD, eigvals_only=True)), np.asarray(w), rtol=1e-5)


def test_factor_and_solve():
    for lower in (False, True):
        x = ours.cho_solve(ours.cho_factor(SPD, lower), B)
        np.testing.assert_allclose(SPD @ np.asarray(x), B, atol=1e-4)
    for trans, m in ((0, A), (1, A.T)):
        x = ours.lu_solve(ours.lu_factor(A), B, trans)
        np.testing.assert_allclose(m @ np.asarray(x), B, atol=1e-4)


def test_expm_of_a_batch_and_too_large():
    many = np.stack([A, A * 3, A * 0])
    got = np.asarray(ours.expm(many))
    for g, m in zip(got, many, strict=True):
        np.testing.assert_allclose(g, np.asarray(theirs.expm(m)), rtol=1e-3, atol=1e-3)
    assert np.isnan(np.asarray(ours.expm(A * 100, max_squarings=2))).all()


def test_errors():
    with pytest.raises(nx.errors.ShapeError, match="square"):
        ours.cholesky(B)
    with pytest.raises(nx.errors.ParameterError, match="trans"):
        ours.solve_triangular(A, B, trans=7)
    with pytest.raises(nx.errors.ParameterError, match="assume_a"):
        ours.solve(A, B, assume_a="x")
    with pytest.raises(NotImplementedError):
        ours.eigh(A, B)


@pytest.mark.parametrize("f", [lambda a: ours.schur(a)[0], lambda a: ours.sqrtm(a).real], ids=["schur", "sqrtm"])
def test_what_has_no_derivative_says_so(f):
    with pytest.raises(NotImplementedError, match=r"schur of f32\[3,3\] has no derivative"):
        nx.grad(lambda a: f(a).sum())(np.eye(3, dtype=np.float32))
