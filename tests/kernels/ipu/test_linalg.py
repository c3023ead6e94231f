"""Factorizations on a tile: C++ against the meaning, and against what a factorization is."""

import itertools

import numpy as np
import pytest

from nxjax.kernels.ipu.chip import BOW
from nxjax.kernels.ipu.host import Library
from nxjax.kernels.ipu.linalg import Cholesky, Lu, TriangularSolve
from nxjax.ops.linalg_lu import lu as lu_op
from nxjax.ops.linalg_triangular import triangular_solve as solve_op

from .vertices import both, same, warnings_of

RNG = np.random.default_rng(7)
FLAGS = list(itertools.product([True, False], repeat=4))
SOLVES = [TriangularSolve(*f) for f in FLAGS]
COUNTS = [(1, 1), (3, 4), (7, 5), (2, 12)]


@pytest.fixture(scope="module")
def library():
    return Library([Cholesky(), Lu(), *SOLVES], workers=6)


def test_cholesky(library):
    for count, n in COUNTS:
        a = RNG.normal(size=(2, count, n, n))
        a = (a @ a.swapaxes(-1, -2) + n * np.eye(n)).astype(np.float32)
        got, want = both(library, Cholesky(), {"x": a}, {"n": n}, {"y": (count, n, n)})
        np.testing.assert_allclose(got["y"], want["y"], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(got["y"] @ got["y"].swapaxes(-1, -2), a, rtol=1e-4, atol=1e-4)
        same(np.triu(got["y"], 1), np.zeros_like(a))


def test_cholesky_of_what_is_not_positive_definite(library):
    a = np.stack([np.eye(3), -np.eye(3), np.full((3, 3), np.nan)])[None].astype(np.float32)
    got, want = both(library, Cholesky(), {"x": a}, {"n": 3}, {"y": (3, 3, 3)})
    same(got["y"], want["y"])
    # As in LAPACK's wrappers: the triangle is NaN, and there are zeros above.
    np.testing.assert_array_equal(np.isnan(got["y"][0]), [np.zeros((3, 3)), *np.tril(np.ones((2, 3, 3)))])


@pytest.mark.parametrize("flags", FLAGS, ids=str)
def test_triangular_solve(library, flags):
    left, lower, transpose, unit = flags
    for count, n in COUNTS:
        k = 3
        a = (RNG.normal(size=(2, count, n, n)) * 0.3 + 2 * np.eye(n)).astype(np.float32)
        b = RNG.normal(size=(2, count, *((n, k) if left else (k, n)))).astype(np.float32)
        got, want = both(library, TriangularSolve(*flags), {"a": a, "b": b}, {"n": n, "k": k}, {"y": b.shape[1:]})
        np.testing.assert_allclose(got["y"], want["y"], rtol=1e-4, atol=1e-5)
        params = {"left_side": left, "lower": lower, "transpose_a": transpose, "unit_diagonal": unit}
        exact = solve_op.eval(a.astype(np.float64), b.astype(np.float64), conjugate_a=False, **params)
        np.testing.assert_allclose(got["y"], exact, rtol=1e-3, atol=1e-4)


def test_lu(library):
    for (count, m), n in zip(COUNTS, (1, 6, 3, 12), strict=True):
        a = RNG.normal(size=(2, count, m, n)).astype(np.float32)
        a[0, 0, :, 0] = 0  # a column of zeros
        k = min(m, n)
        outs = {"y": (count, m, n), "pivots": (count, k), "permutation": (count, m)}
        got, want = both(library, Lu(), {"x": a}, {"rows": m, "columns": n}, outs)
        op = dict(zip(outs, lu_op.eval(a), strict=True))
        for name in ("pivots", "permutation"):
            same(got[name], want[name])
            same(got[name], op[name])
        same(got["y"], want["y"])
        lower = np.tril(got["y"][..., :k], -1) + np.eye(m, k)
        upper = np.triu(got["y"][..., :k, :])
        moved = np.take_along_axis(a, got["permutation"][..., None], 2)
        np.testing.assert_allclose(lower @ upper, moved, rtol=1e-3, atol=1e-4)


def test_cycles_and_sources():
    grown = [Cholesky().cycles({"x": (1, n, n)}, {"n": n}, BOW) for n in (1, 4, 16, 64)]
    assert grown == sorted(set(grown))
    assert warnings_of([Cholesky(), Lu(), *SOLVES]) == ""
