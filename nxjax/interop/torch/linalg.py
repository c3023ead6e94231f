"""Rules of linear algebra: factorizations, inverses, solutions of systems.

Those of whole operators stand beside those of the parts that torch splits them into: the parts check for errors, which
would be an effect of the graph.
"""

from __future__ import annotations

from typing import Any

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.interop.graphs.values import Refused
from nxjax.interop.torch.walk import rule
from nxjax.scipy import linalg
from nxjax.trace import dtypes


def _adjoint(x: Any) -> Any:
    return jnp.conj(x).swapaxes(-1, -2)


@rule("linalg_inv_ex")
def _inverse(A: Any, *, check_errors: bool = False) -> Any:
    return jnp.linalg.inv(A), jnp.zeros(A.shape[:-2], dtypes.int32)


@rule("linalg_cholesky_ex")
def _cholesky(self: Any, *, upper: bool = False, check_errors: bool = False) -> Any:
    factor = jnp.linalg.cholesky(self)
    return (jnp.conj(factor).swapaxes(-1, -2) if upper else factor), jnp.zeros(self.shape[:-2], dtypes.int32)


@rule("_linalg_det")
def _det(A: Any) -> Any:
    return jnp.linalg.det(A), A, jnp.zeros(A.shape[:-1], dtypes.int32)


@rule("_linalg_slogdet")
def _slogdet(A: Any) -> Any:
    sign, log = jnp.linalg.slogdet(A)
    return sign, log, A, jnp.zeros(A.shape[:-1], dtypes.int32)


@rule("_linalg_solve_ex")
def _solve(A: Any, B: Any, *, left: bool = True, check_errors: bool = False) -> Any:
    vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    b = B[..., None] if vector else B
    x = jnp.linalg.solve(A, b) if left else jnp.linalg.solve(A.swapaxes(-1, -2), b.swapaxes(-1, -2)).swapaxes(-1, -2)
    whole = jnp.zeros(A.shape[:-1], dtypes.int32)
    return (x[..., 0] if vector else x), A, whole, jnp.zeros(A.shape[:-2], dtypes.int32)


@rule("linalg_solve_triangular")
def _solve_triangular(self: Any, B: Any, *, upper: bool, left: bool = True, unitriangular: bool = False) -> Any:
    batch = jnp.broadcast_shapes(self.shape[:-2], B.shape[:-2])
    a, b = (jnp.broadcast_to(v, (*batch, *v.shape[-2:])) for v in (self, B))
    return lax.linalg.triangular_solve(a, b, left_side=left, lower=not upper, unit_diagonal=unitriangular)


@rule("linalg_qr")
def _qr(A: Any, mode: str = "reduced") -> Any:
    if mode == "r":
        return jnp.zeros((0,), A.dtype), jnp.linalg.qr(A, "r")
    return tuple(jnp.linalg.qr(A, mode))


@rule("_linalg_eigh")
def _eigh(A: Any, UPLO: str = "L", compute_v: bool = True) -> Any:
    values, vectors = jnp.linalg.eigh(A, UPLO, symmetrize_input=False)
    return values, vectors


@rule("_linalg_svd")
def _svd(A: Any, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None) -> Any:
    return tuple(jnp.linalg.svd(A, full_matrices))


# --- whole operators ---


@rule("linalg_inv", "inverse")
def _whole_inverse(A: Any) -> Any:
    return jnp.linalg.inv(A)


@rule("linalg_cholesky", "cholesky")
def _whole_cholesky(self: Any, upper: bool = False) -> Any:
    return _cholesky(self, upper=upper)[0]


@rule("linalg_det", "det")
def _whole_det(A: Any) -> Any:
    return jnp.linalg.det(A)


@rule("linalg_slogdet", "slogdet")
def _whole_slogdet(A: Any) -> Any:
    return tuple(jnp.linalg.slogdet(A))


@rule("logdet")
def _logdet(self: Any) -> Any:
    sign, log = jnp.linalg.slogdet(self)
    return jnp.where(sign < 0, jnp.nan, log).astype(log.dtype)


@rule("linalg_solve")
def _whole_solve(A: Any, B: Any, *, left: bool = True) -> Any:
    return _solve(A, B, left=left)[0]


@rule("triangular_solve")
def _old_triangular(self: Any, A: Any, upper: bool = True, transpose: bool = False, unitriangular: bool = False) -> Any:
    a = A.swapaxes(-1, -2) if transpose else A
    return _solve_triangular(a, self, upper=upper != transpose, unitriangular=unitriangular), A


@rule("cholesky_solve")
def _cholesky_solve(self: Any, input2: Any, upper: bool = False) -> Any:
    low = _adjoint(input2) if upper else input2
    return _solve_triangular(_adjoint(low), _solve_triangular(low, self, upper=False), upper=True)


@rule("cholesky_inverse")
def _cholesky_inverse(self: Any, upper: bool = False) -> Any:
    return _cholesky_solve(jnp.eye(self.shape[-1], dtype=self.dtype), self, upper)


@rule("linalg_matrix_power", "matrix_power")
def _matrix_power(self: Any, n: int) -> Any:
    return jnp.linalg.matrix_power(self, n)


@rule("linalg_matrix_exp", "matrix_exp")
def _matrix_exp(self: Any) -> Any:
    return linalg.expm(self)


@rule("linalg_eigh")
def _whole_eigh(self: Any, UPLO: str = "L") -> Any:
    return _eigh(self, UPLO)


@rule("linalg_eigvalsh")
def _eigvalsh(self: Any, UPLO: str = "L") -> Any:
    return _eigh(self, UPLO)[0]


@rule("linalg_eig")
def _eig(self: Any) -> Any:
    return tuple(jnp.linalg.eig(self))


@rule("linalg_eigvals", "_linalg_eigvals")
def _eigvals(self: Any) -> Any:
    return jnp.linalg.eigvals(self)


@rule("linalg_svd")
def _whole_svd(A: Any, full_matrices: bool = True, *, driver: str | None = None) -> Any:
    return _svd(A, full_matrices)


@rule("linalg_svdvals")
def _svdvals(A: Any, *, driver: str | None = None) -> Any:
    return jnp.linalg.svdvals(A)


@rule("linalg_pinv", "pinverse")
def _pinv(self: Any, rcond: float = 1e-15, hermitian: bool = False) -> Any:
    return jnp.linalg.pinv(self, rcond, hermitian)


@rule("linalg_pinv.atol_rtol_float", "linalg_pinv.atol_rtol_tensor")
def _pinv_to(self: Any, *, atol: Any = None, rtol: Any = None, hermitian: bool = False) -> Any:
    if atol is not None:
        raise Refused("from_torch: a pseudo-inverse with an absolute tolerance", got=atol)
    cut = max(self.shape[-2:]) * float(jnp.finfo(self.dtype).eps) if rtol is None else rtol
    return jnp.linalg.pinv(self, cut, hermitian)


@rule("linalg_tensorinv")
def _tensorinv(self: Any, ind: int = 2) -> Any:
    return jnp.linalg.tensorinv(self, ind)


@rule("linalg_tensorsolve")
def _tensorsolve(self: Any, other: Any, dims: Any = None) -> Any:
    return jnp.linalg.tensorsolve(self, other, dims)


def _pivoted(A: Any, pivot: bool) -> Any:
    if not pivot:
        raise Refused("from_torch: an LU factorization without pivots", fix="pivot=True")
    return lax.linalg.lu(A)


@rule("linalg_lu")
def _lu(A: Any, *, pivot: bool = True) -> Any:
    packed, _, order = _pivoted(A, pivot)
    return _unpacked(packed, order)


@rule("linalg_lu_factor")
def _lu_factor(A: Any, *, pivot: bool = True) -> Any:
    packed, pivots, _ = _pivoted(A, pivot)
    return packed, pivots + 1


@rule("lu_unpack")
def _lu_unpack(LU_data: Any, LU_pivots: Any, unpack_data: bool = True, unpack_pivots: bool = True) -> Any:
    return _unpacked(LU_data, lax.linalg.lu_pivots_to_permutation(LU_pivots - 1, LU_data.shape[-2]))


def _unpacked(packed: Any, order: Any) -> Any:
    """The permutation, the lower and the upper factor."""
    m, n = packed.shape[-2:]
    k = min(m, n)
    low = jnp.tril(packed[..., :k], -1) + jnp.eye(m, k, dtype=packed.dtype)
    rows = jnp.arange(m)[:, None]
    return (rows == order[..., None, :]).astype(packed.dtype), low, jnp.triu(packed[..., :k, :])
