"""Rules of factorizations and solvers of batches of matrices. Must not know any op's own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from nxjax.lower.type_rules.base import COMPLEX_OF, PART, Params, Results, Rule, Types, need, of, one_dtype, operands
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

_Make = Callable[[Shape, int, int, DType, Params], Results]


def _matrices(make: _Make, square: bool = False, empty: bool = True) -> Rule:
    """Of one batch of matrices; ``make`` gets the batch, rows, columns and the dtype."""

    def rule(types: Types, params: Params) -> Results:
        (x,) = operands(types, 1)
        of(COMPLEX_OF, x)
        need(len(x.shape) >= 2, "no matrix", x)
        *batch, m, n = x.shape
        need(m == n or not square, "the matrix is not square", x)
        need(empty or m > 0, "the matrix is empty", x)
        return make(tuple(batch), m, n, x.dtype, params)

    return rule


def _real(dtype: DType) -> DType:
    return PART.get(dtype, dtype)


def _eig(b: Shape, m: int, n: int, d: DType, p: Params) -> Results:
    whole = COMPLEX_OF[d]
    return [((*b, n), whole), *[((*b, n, n), whole)] * (p["left"] + p["right"])]


def _qr(b: Shape, m: int, n: int, d: DType, p: Params) -> Results:
    k = m if p["full_matrices"] else min(m, n)
    return [((*b, m, k), d), ((*b, k, n), d)]


def _svd(b: Shape, m: int, n: int, d: DType, p: Params) -> Results:
    k = min(m, n)
    left, right = (m, n) if p["full_matrices"] else (k, k)
    vectors = [((*b, m, left), d), ((*b, right, n), d)] if p["compute_uv"] else []
    return [((*b, k), _real(d)), *vectors]


def _triangular_solve(types: Types, params: Params) -> Results:
    a, b = operands(types, 2)
    of(COMPLEX_OF, a)
    one_dtype(types)
    *batch, m, n = a.shape
    need(m == n and len(b.shape) == len(a.shape), "operands do not fit", types)
    *others, rows, columns = b.shape
    need(others == batch and n == (rows if params["left_side"] else columns), "operands do not fit", types)
    return [(b.shape, b.dtype)]


def _permutation(types: Types, params: Params) -> Results:
    (pivots,) = operands(types, 1)
    of((dtypes.int32,), pivots)
    *batch, k = pivots.shape
    need(params["permutation_size"] >= k, "fewer rows than swaps", params["permutation_size"])
    return [((*batch, params["permutation_size"]), dtypes.int32)]


def _householder(types: Types, params: Params) -> Results:
    a, taus = operands(types, 2)
    of(COMPLEX_OF, a)
    one_dtype(types)
    *batch, m, n = a.shape
    *others, k = taus.shape
    need(others == batch and k <= n <= m, "reflectors and scalars do not fit", types)
    return [(a.shape, a.dtype)]


RULES: Final[Mapping[str, Rule]] = {
    "triangular_solve": _triangular_solve,
    "cholesky": _matrices(lambda b, m, n, d, p: [((*b, n, n), d)], square=True),
    "lu": _matrices(lambda b, m, n, d, p: [((*b, m, n), d), ((*b, min(m, n)), dtypes.int32), ((*b, m), dtypes.int32)]),
    "lu_pivots_to_permutation": _permutation,
    "eigh": _matrices(lambda b, m, n, d, p: [((*b, n, n), d), ((*b, n), _real(d))], square=True),
    "eig": _matrices(_eig, square=True),
    "hessenberg": _matrices(lambda b, m, n, d, p: [((*b, n, n), d), ((*b, n - 1), d)], square=True, empty=False),
    "tridiagonal": _matrices(
        lambda b, m, n, d, p: [((*b, n, n), d), ((*b, n), _real(d)), ((*b, n - 1), _real(d)), ((*b, n - 1), d)],
        square=True,
        empty=False,
    ),
    "qr_pivots": _matrices(lambda b, m, n, d, p: [((*b, n), dtypes.int32)]),
    "geqrf": _matrices(lambda b, m, n, d, p: [((*b, m, n), d), ((*b, min(m, n)), d)]),
    "householder_product": _householder,
    "qr": _matrices(_qr),
    "schur": _matrices(lambda b, m, n, d, p: [((*b, n, n), d)] * (1 + p["vectors"]), square=True),
    "svd": _matrices(_svd),
}
