"""Linear algebra through the CPU compiler: batches of small matrices by kernels, the rest by LAPACK."""

import itertools

import numpy as np
import pytest

import nxjax as nx
from nxjax.kernels.cpu.linalg import GROUP
from nxjax.kernels.cpu.linalg_columns import WIDTH
from nxjax.lower.cpu.lower import lower as lowered
from nxjax.lower.cpu.rules import linalg
from nxjax.ops import linalg_eigen, linalg_lu, linalg_qr, linalg_svd, linalg_triangular
from tests.lower.cpu.rules.equal import ISAS, hosted, results, tape

RNG = np.random.default_rng(0)


def matrices(*shape, dtype="f4"):
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_cholesky(dtype):
    x = matrices(2, 9, 6, 6, dtype=dtype)
    x = x @ x.swapaxes(-1, -2) + np.eye(6, dtype=dtype)
    x[0, 3] *= -1
    (got,) = results(linalg_triangular.cholesky, x)
    want = linalg_triangular.cholesky.eval(x)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("left", [False, True])
def test_triangular_solve(left):
    a = matrices(3, 7, 5, 5) * 0.2 + 2 * np.eye(5, dtype="f4")
    b = matrices(3, 7, 5, 2) if left else matrices(3, 7, 2, 5)
    for lower, transposed, unit in itertools.product((False, True), repeat=3):
        params = {"left_side": left, "lower": lower, "transpose_a": transposed, "unit_diagonal": unit}
        params["conjugate_a"] = False
        (got,) = results(linalg_triangular.triangular_solve, a, b, **params)
        want = linalg_triangular.triangular_solve.eval(a, b, **params)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [(64, 64), (2, 200, 200)], ids=str)
def test_a_few_matrices_are_not_left_to_lapack(shape):
    assert not hosted(tape(linalg_triangular.cholesky, matrices(*shape)))


def test_lu():
    for shape in ((4, 3), (17, 3, 5), (5, 5)):
        x = matrices(*shape)
        for y, z in zip(results(linalg_lu.lu, x), linalg_lu.lu.eval(x), strict=True):
            np.testing.assert_array_equal(y, z)


@pytest.mark.parametrize("shape", [(linalg.PANELS, linalg.PANELS), (0, 3, 3), (3, 0, 0)], ids=str)
def test_what_lapack_does(shape):
    assert hosted(tape(linalg_triangular.cholesky, matrices(*shape))) == ["cholesky"]
    assert "cholesky" in hosted(tape(linalg_triangular.cholesky, matrices(4, 3, 3).astype("c8")))


@pytest.mark.parametrize("shape", [(6, 4, 3), (2, 5, 5, 5), (3, 2, 6)], ids=str)
def test_qr(shape):
    x = matrices(*shape)
    packed, taus = results(linalg_qr.geqrf, x)
    want, scalars = linalg_qr.geqrf.eval(x)
    np.testing.assert_allclose(packed, want, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(taus, scalars, rtol=1e-4, atol=1e-5)
    if shape[-2] >= shape[-1]:
        (got,) = results(linalg_qr.householder_product, want, scalars)
        np.testing.assert_allclose(got, linalg_qr.householder_product.eval(want, scalars), rtol=1e-4, atol=1e-5)


SOLVE = {"left_side": True, "lower": True, "transpose_a": False, "unit_diagonal": False, "conjugate_a": False}


# The op, its operands, the limit, and how many bytes a kernel needs.
NEEDS = {
    "lu": (linalg_lu.lu, [matrices(9, 6, 5)], {}, "LARGE", 6 * 5 * 4),
    "lu of doubles": (linalg_lu.lu, [matrices(9, 5, 6, dtype="f8")], {}, "LARGE", 5 * 6 * 8),
    "solve": (
        linalg_triangular.triangular_solve,
        [matrices(9, 5, 5), matrices(9, 5, 7)],
        SOLVE,
        "MOST",
        5 * WIDTH * GROUP,
    ),
    "geqrf": (linalg_qr.geqrf, [matrices(2, 6, 5)], {}, "ALL", 30 * 4),
    "householder": (linalg_qr.householder_product, [matrices(2, 6, 5), matrices(2, 5)], {}, "ALL", 30 * 4),
    "svd": (linalg_svd.svd, [matrices(2, 5, 6)], {"full_matrices": True, "compute_uv": False}, "MOST", 30 * 4),
    "svd of doubles": (
        linalg_svd.svd,
        [matrices(2, 5, 6, dtype="f8")],
        {"full_matrices": True, "compute_uv": False},
        "ALL",
        30 * 8,
    ),
}


@pytest.mark.parametrize("name", NEEDS)
def test_matrices_that_take_too_much_memory_are_for_the_host(name, monkeypatch):
    op, args, params, limit, need = NEEDS[name]
    monkeypatch.setattr(linalg, "NARROW", 0)
    for given in (need, need - 1):
        monkeypatch.setattr(linalg, limit, given)
        assert (op.name in hosted(tape(op, *args, **params))) == (given < need)


def test_eigh():
    x = matrices(40, 5, 5)
    v, w = results(linalg_eigen.eigh, x, lower=True)
    _, want = linalg_eigen.eigh.eval(x, lower=True)
    np.testing.assert_allclose(w, want, atol=1e-5)
    whole = np.tril(x) + np.tril(x, -1).swapaxes(1, 2)
    np.testing.assert_allclose(v * w[:, None, :] @ v.swapaxes(1, 2), whole, atol=1e-5)
    # Large matrices, few of them, and complex numbers are LAPACK's.
    for other in (matrices(60, 60), matrices(1, 20, 20), matrices(3, 3).astype("c8")):
        assert hosted(tape(linalg_eigen.eigh, other, lower=True)) == ["eigh"]


@pytest.mark.parametrize(("op", "params", "lanes"), [
    (linalg_qr.geqrf, {}, "geqrf("),
    (lambda x: linalg_qr.householder_product(x, x[..., 0, :]), {}, "householder_product("),
], ids=["geqrf", "householder_product"])  # fmt: skip
def test_many_small_matrices_are_reflected_in_lanes(op, params, lanes, monkeypatch):
    steps = lambda *shape: str(lowered(nx.make_jaxpr(op)(matrices(*shape))).steps)
    assert lanes in steps(9, 6, 5)
    assert lanes not in steps(2, 6, 5)
    monkeypatch.setattr(linalg, "SCRATCH", 6 * 5 * GROUP - 1)
    assert lanes not in steps(9, 6, 5)


@pytest.mark.parametrize("shape", [(1, 1), (40, 4, 4), (2, 20, 20), (2, 3, 9), (2, 9, 3), (45, 40)], ids=str)
def test_values_without_vectors(shape):
    """What reads no vectors computes none, also in the body of a loop."""
    x = matrices(*shape)
    found = [(nx.numpy.linalg.svdvals, np.linalg.svdvals)]
    if shape[-1] == shape[-2]:
        found.append((nx.numpy.linalg.eigvalsh, lambda x: np.linalg.eigvalsh((x + x.swapaxes(-1, -2)) / 2)))
    for f, wanted in found:
        looped = lambda x, f=f: nx.lax.scan(lambda c, x: (c, f(x)), 0, x[None])[1][0]
        assert not hosted(lowered(nx.make_jaxpr(looped)(x)))
        np.testing.assert_allclose(nx.jit(looped)(x), wanted(x), rtol=1e-5, atol=1e-5 * max(shape[-2:]))
        if len(shape) > 2:
            np.testing.assert_allclose(nx.jit(nx.vmap(f))(x), wanted(x), rtol=1e-5, atol=1e-5 * max(shape[-2:]))


def test_derivatives_of_values_read_the_vectors():
    x, weights = matrices(13, 13), np.arange(1.0, 14, dtype="f4")
    total = lambda f: nx.jit(nx.grad(lambda x: (f(x) * weights).sum()))(x)
    u, _, vh = np.linalg.svd(x.astype("f8"))
    np.testing.assert_allclose(total(nx.numpy.linalg.svdvals), u * weights @ vh, atol=1e-3)
    _, v = np.linalg.eigh((x + x.T).astype("f8"))
    np.testing.assert_allclose(total(nx.numpy.linalg.eigvalsh), v * weights @ v.T, atol=1e-3)


def test_vectors_of_which_somebody_reads_some():
    x = matrices(30, 30)
    assert hosted(lowered(nx.make_jaxpr(lambda x: linalg_eigen.eigh(x, lower=True))(x))) == ["eigh"]
    for i in (1, 2):
        take = lambda x, i=i: linalg_svd.svd(x, full_matrices=False, compute_uv=True)[i]
        assert hosted(lowered(nx.make_jaxpr(take)(x))) == ["svd"]


@pytest.mark.parametrize("shape", [(20, 20), (2, 60, 60), (1, 100, 100)], ids=str)
@pytest.mark.parametrize("lower", [False, True])
def test_lapack_has_only_the_tridiagonal_matrix(shape, lower, monkeypatch):
    x = matrices(*shape)
    f = lambda x: linalg_eigen.eigh(x, lower=lower)
    steps = str(lowered(nx.make_jaxpr(f)(x)).steps)
    assert "tridiagonal(" in steps and "reflected(" in steps
    whole = np.tril(x) + np.tril(x, -1).swapaxes(-1, -2) if lower else np.triu(x) + np.triu(x, 1).swapaxes(-1, -2)
    v, w = map(np.asarray, nx.jit(f)(x))
    np.testing.assert_allclose(v @ (w[..., None] * v.swapaxes(-1, -2)), whole, atol=1e-4)
    np.testing.assert_allclose(w, np.linalg.eigvalsh(whole.astype("f8")), atol=1e-4)
    x[..., 3, 3] = np.nan
    assert all(np.isnan(y).all() for y in map(np.asarray, nx.jit(f)(x[..., :1, :, :] if x.ndim > 2 else x)))
    monkeypatch.setattr(linalg, "NEAR", 4 * shape[-1] ** 2 - 1)
    assert "tridiagonal(" not in str(lowered(nx.make_jaxpr(f)(x)).steps)


@pytest.mark.parametrize("shape", [(20, 20), (2, 60, 60), (12, 12), (19, 17), (3, 50, 14), (14, 50)], ids=str)
def test_lapack_has_only_the_bidiagonal_matrix(shape, monkeypatch):
    x = matrices(*shape)
    f = lambda x: linalg_svd.svd(x, full_matrices=False, compute_uv=True)
    assert "bidiagonal(" in str(lowered(nx.make_jaxpr(f)(x)).steps)
    s, u, vh = map(np.asarray, nx.jit(f)(x))
    np.testing.assert_allclose(u @ (s[..., None] * vh), x, atol=1e-4)
    np.testing.assert_allclose(s, np.linalg.svdvals(x.astype("f8")), atol=1e-4)
    x[..., 0, 0] = np.nan
    assert all(np.isnan(y).all() for y in map(np.asarray, nx.jit(f)(x)))
    assert "bidiagonal(" not in str(lowered(nx.make_jaxpr(f)(matrices(11, 11))).steps)
    monkeypatch.setattr(linalg, "NEAR", 4 * min(shape[-2:]) ** 2 - 1)
    assert "bidiagonal(" not in str(lowered(nx.make_jaxpr(f)(x)).steps)


@pytest.mark.parametrize("scale", [1e-36, 1.0, 1e36])
@pytest.mark.parametrize("shape", [(12, 12), (20, 20), (40, 40), (60, 13), (13, 40)], ids=str)
def test_singular_vectors_of_numbers_of_any_size(shape, scale):
    x = matrices(*shape)
    svd = nx.jit(lambda x: nx.numpy.linalg.svd(x, full_matrices=False))
    u, s, vh = (np.asarray(y, "f8") for y in svd(np.float32(scale) * x))
    np.testing.assert_allclose(u @ (s[:, None] / scale * vh), x, atol=1e-4)
    np.testing.assert_allclose(s / scale, np.linalg.svdvals(x.astype("f8")), atol=1e-4)


@pytest.mark.parametrize(
    "shape", [(500, 3, 3), (3, 3), (40, 7, 4), (4, 7), (60, 20, 20), (9, 50, 30), (5, 1, 6)], ids=str
)
def test_small_matrices_have_singular_vectors_by_squares(shape):
    """Also those whose singular values are equal, zero, or far apart."""
    x = matrices(*shape)
    if x.ndim > 2:
        x[0] = np.eye(*shape[1:])
        x[1, :, -1] = x[1, :, 0]
        x[2] = 0
        x[3] *= np.float32(10.0) ** -np.arange(shape[-1])
    f = lambda x: linalg_svd.svd(x, full_matrices=False, compute_uv=True)
    assert not hosted(tape(f, x))
    s, u, vh = map(np.asarray, nx.jit(f)(x))
    k = s.shape[-1]
    np.testing.assert_allclose(u * s[..., None, :] @ vh, x, atol=1e-5)
    np.testing.assert_allclose(s, np.linalg.svdvals(x.astype("f8")), atol=1e-5)
    assert (np.diff(s) <= 0).all()
    for q in (u.swapaxes(-1, -2) @ u, vh @ vh.swapaxes(-1, -2)):
        np.testing.assert_allclose(q, np.broadcast_to(np.eye(k), q.shape), atol=1e-5)
    x[..., 0, 0] = np.nan
    assert all(np.isnan(y).all() for y in map(np.asarray, nx.jit(f)(x)))


@pytest.mark.parametrize("name", ISAS)
@pytest.mark.parametrize("along", [0, 1])
def test_factors_of_numbers_next_to_the_smallest_are_orthogonal(name, along):
    """In lanes and one by one, rows or columns of them."""
    n = 42
    falling = np.float64(10.0) ** -np.arange(n)
    x = (matrices(17, n, n).astype("f8") * (falling[:, None] if along == 0 else falling)).astype("f4")
    f = nx.jit(lambda x: nx.numpy.linalg.qr(x))
    with nx.config.using(cpu_isa=name):
        for some in (x, x[0]):
            q, r = (np.asarray(y, "f8") for y in f(some))
            np.testing.assert_allclose(q @ r, some, atol=1e-5)
            np.testing.assert_allclose(q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(n), q.shape), atol=5e-6)


def test_each_of_many_matrices_has_its_own_singular_vectors():
    """More than are turned together, and one that is not finite among them."""
    x = matrices(1500, 14, 12)
    x[1234, 2, 3] = np.inf
    s, u, vh = map(np.asarray, nx.jit(lambda x: linalg_svd.svd(x, full_matrices=False, compute_uv=True))(x))
    assert [bool(np.isnan(y[1234]).all()) for y in (s, u, vh)] == [True] * 3
    known = np.arange(1500) != 1234
    np.testing.assert_allclose((u * s[:, None])[known] @ vh[known], x[known], atol=1e-4)


def test_large_factors_are_lapacks(monkeypatch):
    n = 300
    monkeypatch.setattr(linalg, "LARGE", 4 * n * n - 1)
    x = matrices(n, n)
    assert hosted(tape(linalg_lu.lu, x)) == ["lu"]
    y, pivots, permutation = map(np.asarray, nx.jit(lambda x: linalg_lu.lu(x))(x))
    lower, upper = np.tril(y, -1) + np.eye(n), np.triu(y)
    np.testing.assert_allclose(lower @ upper, x[permutation], atol=1e-3)
    assert pivots.dtype == permutation.dtype == np.int32
