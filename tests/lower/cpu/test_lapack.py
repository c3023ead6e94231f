"""LAPACK's routines in place of the NumPy meaning: the same factors, written to memory that is there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

import nxjax as nx
from nxjax.lower.cpu import lapack
from nxjax.lower.cpu.registry import LIBRARY, routine_of
from nxjax.ops import vocabulary

DTYPES = ("f4", "f8", "c8", "c16")
if lapack._symbol("dpotrf") is None:
    pytest.skip("NumPy's library has no LAPACK with integers of 64 bits", allow_module_level=True)


def drawn(*shape: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.result_type(dtype, "c8")) if (
        dtype[0] == "c"
    ) else rng.standard_normal(shape).astype(dtype)  # fmt: skip


def both(
    name: str, *xs: np.ndarray, read: Sequence[bool] = (True, True, True), **params: object
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """What the routine writes, and the meaning."""
    op = vocabulary.every()[name]
    types = [nx.ShapeDtypeStruct(x.shape, x.dtype) for x in xs]
    (e,) = nx.make_jaxpr(lambda *values: op(*values, **params))(*types).equations
    routine = routine_of(e, read)
    assert routine is not None
    with np.errstate(all="ignore"):
        wanted = op.eval(*xs, **params)
    wanted = list(wanted) if op.multi else [wanted]
    found = [np.full(y.shape, 7, y.dtype) for y in wanted]
    kept = [x.copy() for x in xs]
    routine(xs, found)
    for x, before in zip(xs, kept, strict=True):
        np.testing.assert_array_equal(x, before)
    return found, wanted


def close(x: np.ndarray, y: np.ndarray) -> None:
    assert np.abs(x - y).max() <= 200 * np.finfo(y.dtype).eps * max(np.abs(y).max(), 1)


def test_every_routine_is_for_an_op():
    assert set(lapack._ROUTINES) == LIBRARY <= set(vocabulary.every())


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangles(dtype: str):
    x = drawn(2, 70, 70, dtype=dtype)
    x = x @ x.conj().swapaxes(-1, -2) + 70 * np.eye(70, dtype=dtype)
    x[1, 3, 3] = -1  # not positive definite
    (y,), (wanted,) = both("cholesky", x)
    close(y[0], wanted[0])
    np.testing.assert_array_equal(np.isnan(y[1]), np.isnan(wanted[1]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("lower", [False, True])
def test_eigenvectors(dtype: str, lower: bool):
    x = drawn(3, 20, 20, dtype=dtype)
    x[1, 2, 2] = np.inf
    (v, w), (_, wanted) = both("eigh", x, lower=lower)
    close(w[::2], wanted[::2])
    assert np.isnan(v[1]).all()
    assert np.isnan(w[1]).all()
    half = np.tril(x, -1) if lower else np.triu(x, 1)
    whole = half + half.conj().swapaxes(-1, -2) + np.eye(20) * x.real
    close((v * w[:, None, :] @ v.conj().swapaxes(-1, -2))[::2].astype(dtype), whole[::2].astype(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (1, 6)])
def test_other_factors(dtype: str, shape: tuple[int, int]):
    x = drawn(2, *shape, dtype=dtype)
    k = min(shape)
    for full in (False, True):
        (s, u, vh), (wanted, *_) = both("svd", x, full_matrices=full, compute_uv=True)
        close(s, wanted)
        close(u[..., :k] * s[:, None, :] @ vh[:, :k], x)
        close(u.conj().swapaxes(-1, -2) @ u, np.broadcast_to(np.eye(u.shape[-1], dtype=dtype), (2, *u.shape[-1:] * 2)))
    (s,), (wanted,) = both("svd", x, full_matrices=False, compute_uv=False)
    close(s, wanted)
    for name in ("geqrf", "lu"):
        found, meant = both(name, x)
        if name == "lu":  # columns are contiguous
            found[0] = found[0].reshape(2, *shape[::-1]).swapaxes(1, 2)
        for y, wanted in zip(found, meant, strict=True):
            assert np.array_equal(y, wanted) if y.dtype.kind == "i" else close(y, wanted) is None
    if shape[0] >= shape[1]:
        (q,), (wanted,) = both("householder_product", *both("geqrf", x)[1])
        close(q, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors_that_nobody_reads(dtype: str):
    x = drawn(2, 12, 12, dtype=dtype)
    x = x + x.conj().swapaxes(-1, -2)
    x[1, 2, 2] = np.nan
    (_, w), (_, wanted) = both("eigh", x, lower=True, read=(False, True))
    close(w[0], wanted[0])
    (s, u, vh), (wanted, *_) = both("svd", x, full_matrices=True, compute_uv=True, read=(True, False, False))
    close(s[0], wanted[0])
    assert np.isnan(w[1]).all() and np.isnan(s[1]).all()
    assert (u[0] == 7).all() and (vh[0] == 7).all()


def test_nothing_stands_for_what_has_no_elements():
    x = np.zeros((0, 0), "f4")
    (e,) = nx.make_jaxpr(lambda x: vocabulary.every()["cholesky"](x))(x).equations
    assert routine_of(e, (True,)) is None


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 20])
@pytest.mark.parametrize("vectors", [True, False])
def test_schur(dtype: str, n: int, vectors: bool):
    x = drawn(3, n, n, dtype=dtype)
    x[1, 1, 0] = np.nan
    (t, *q), wanted = both("schur", x, vectors=vectors)
    assert all(np.isnan(y[1]).all() for y in (t, *q, *wanted))
    sizes = lambda y: np.sort(np.abs(np.linalg.eigvals(y[::2])), -1)
    close(sizes(t), sizes(x))
    # Which of equal vectors are taken is free: their signs, and the order of blocks.
    assert not np.tril(t[::2], -1 if dtype[0] == "c" else -2).any()
    for vectors in q:
        turned = vectors.conj().swapaxes(-1, -2)
        close((vectors @ turned)[::2], np.broadcast_to(np.eye(n, dtype=dtype), (2, n, n)))
        close((vectors @ t @ turned)[::2], x[::2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [2, 3, 20])
def test_hessenberg_and_tridiagonal_forms(dtype: str, n: int):
    x = drawn(2, n, n, dtype=dtype)
    for y, wanted in zip(*both("hessenberg", x), strict=True):
        close(y, wanted)
    for lower in (True, False):
        for y, wanted in zip(*both("tridiagonal", x, lower=lower), strict=True):
            close(y, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5, 9), (9, 5), (1, 6), (70, 70)])
def test_pivots(dtype: str, shape: tuple[int, int]):
    (found,), (wanted,) = both("qr_pivots", drawn(2, *shape, dtype=dtype))
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("flags", range(32))
def test_triangular_systems(dtype: str, flags: int):
    names = ("left_side", "lower", "transpose_a", "conjugate_a", "unit_diagonal")
    params = {name: bool(flags >> i & 1) for i, name in enumerate(names)}
    a = drawn(2, 7, 7, dtype=dtype) / 8 + np.eye(7, dtype=dtype)
    b = drawn(2, *((7, 3) if params["left_side"] else (3, 7)), dtype=dtype)
    (x,), (wanted,) = both("triangular_solve", a, b, **params)
    close(x, wanted)
