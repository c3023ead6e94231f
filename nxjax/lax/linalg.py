"""`jax.lax.linalg`: matrix factorizations of batches ``[..., m, n]``, each thin over one op."""

from __future__ import annotations

from enum import Enum
from typing import Any

from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.ops import linalg_eigen, linalg_lu, linalg_qr, linalg_svd, linalg_triangular
from nxjax.ops.base import require
from nxjax.ops.linalg_base import FACTORIZABLE, symmetrized
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import slice as slice_
from nxjax.trace import dtypes
from nxjax.trace.array import as_value
from nxjax.trace.core import Array

__all__ = (
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "eig",
    "eigh",
    "geqrf",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "lu_solve",
    "qr",
    "svd",
    "symmetric_product",
    "triangular_solve",
    "tridiagonal_solve",
)


class SvdAlgorithm(Enum):
    """Which method a device with several should prefer; every method gives the same decomposition."""

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"


class EighImplementation(Enum):
    """As `SvdAlgorithm`, for `eigh`."""

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(Enum):
    """As `SvdAlgorithm`, for `eig`."""

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


def cholesky(x: Any, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L with L L^H = x; NaN where x is not positive definite.

    Args:
        x: Hermitian matrices ``[..., n, n]``.
        symmetrize_input: take (x + x^H) / 2 instead of the lower triangle of x.

    >>> import nxjax as nx
    >>> cholesky(nx.array([[4.0, 2.0], [2.0, 5.0]])).tolist()
    [[2.0, 0.0], [1.0, 2.0]]
    """
    a = as_value(x, "cholesky")
    linalg_triangular.cholesky.infer(a.type)
    return linalg_triangular.cholesky(symmetrized(a) if symmetrize_input else a)


def triangular_solve(
    a: Any,
    b: Any,
    *,
    left_side: bool = False,
    lower: bool = False,
    transpose_a: bool = False,
    conjugate_a: bool = False,
    unit_diagonal: bool = False,
) -> Array:
    """X with op(a) X = b if ``left_side``, else X op(a) = b; ``a`` is triangular, op transposes and conjugates.

    Args:
        a: ``[..., n, n]``, of which one triangle is read.
        b: ``[..., n, k]`` (``[..., k, n]`` without ``left_side``), or one vector ``[..., n]`` per matrix.

    >>> import nxjax as nx
    >>> a = nx.array([[2.0, 0.0], [1.0, 1.0]])
    >>> triangular_solve(a, nx.array([[2.0], [3.0]]), left_side=True, lower=True).tolist()
    [[1.0], [2.0]]
    """
    matrix, rhs = as_value(a, "triangular_solve"), as_value(b, "triangular_solve")
    vector = matrix.ndim == rhs.ndim + 1 > 1
    if vector:
        n = rhs.shape[-1]
        rhs = reshape(rhs, shape=(*rhs.shape[:-1], *((n, 1) if left_side else (1, n))))
    x = linalg_triangular.triangular_solve(
        matrix,
        rhs,
        left_side=bool(left_side),
        lower=bool(lower),
        transpose_a=bool(transpose_a),
        conjugate_a=bool(conjugate_a) and matrix.dtype in dtypes.COMPLEX,
        unit_diagonal=bool(unit_diagonal),
    )
    return reshape(x, shape=(*x.shape[:-2], n)) if vector else x


def lu(x: Any) -> tuple[Array, Array, Array]:
    """P x = L U: packed factors, row swaps ``[..., min(m, n)]`` and permutation ``[..., m]``, both int32.

    >>> import nxjax as nx
    >>> factors, pivots, permutation = lu(nx.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> factors.tolist(), permutation.tolist()
    ([[4.0, 4.0], [0.25, 1.0]], [1, 0])
    """
    return linalg_lu.lu(as_value(x, "lu"))


def lu_pivots_to_permutation(pivots: Any, permutation_size: int) -> Array:
    """The permutation that row swaps make."""
    return linalg_lu.lu_pivots_to_permutation(
        as_value(pivots, "lu_pivots_to_permutation"), permutation_size=int(permutation_size)
    )


def geqrf(a: Any) -> tuple[Array, Array]:
    """R and the Householder reflectors packed, and their scalars."""
    return linalg_qr.geqrf(as_value(a, "geqrf"))


def householder_product(a: Any, taus: Any) -> Array:
    """The product of reflectors as `geqrf` packs them, ``[..., m, n]``."""
    return linalg_qr.householder_product(as_value(a, "householder_product"), as_value(taus, "householder_product"))


def qr(x: Any, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> Any:
    """x = Q R with orthonormal columns of Q.

    Args:
        x: ``[..., m, n]``.
        full_matrices: Q is ``[..., m, m]`` instead of ``[..., m, min(m, n)]``.
        pivoting: not available.

    >>> import nxjax as nx
    >>> q, r = qr(nx.ones((4, 2)), full_matrices=False)
    >>> q.shape, r.shape
    ((4, 2), (2, 2))
    """
    require("qr", not pivoting, "column pivoting is not available", "pivoting=True", fix="use scipy.linalg.qr on NumPy")
    return linalg_qr.qr(as_value(x, "qr"), full_matrices=bool(full_matrices))


def eigh(
    x: Any,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: Any = None,
) -> tuple[Array, Array]:
    """Eigenvectors (columns) and ascending real eigenvalues of Hermitian matrices, in this order.

    Args:
        x: ``[..., n, n]``.
        lower: without ``symmetrize_input``, the triangle to read.
        symmetrize_input: take (x + x^H) / 2 instead of one triangle.
        sort_eigenvalues: they are always sorted.
        subset_by_index: (start, end) of the eigenvalues to give.

    >>> import nxjax as nx
    >>> v, w = eigh(nx.array([[2.0, 0.0], [0.0, 1.0]]))
    >>> w.tolist()
    [1.0, 2.0]
    """
    a = as_value(x, "eigh")
    linalg_eigen.eigh.infer(a.type, lower=lower)
    v, w = linalg_eigen.eigh(symmetrized(a) if symmetrize_input else a, lower=bool(lower))
    if subset_by_index is None:
        return v, w
    start, end = _subset("eigh", subset_by_index, w.shape[-1])
    return _part(v, start, end), _part(w, start, end)


def _subset(name: str, subset: Any, n: int) -> tuple[int, int]:
    try:
        start, end = (int(i) for i in subset)
    except (TypeError, ValueError):
        raise ParameterError(f"{name}: subset_by_index", got=repr(subset), expected="(start, end)") from None
    require(name, 0 <= start < end <= n, "subset_by_index", subset, f"0 <= start < end <= {n}")
    return start, end


def _part(x: Array, start: int, end: int) -> Array:
    """Entries start to end of the last dimension."""
    front = (0,) * (x.ndim - 1)
    return slice_(x, start_indices=(*front, start), limit_indices=(*x.shape[:-1], end))


def eig(
    x: Any,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: Any = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues, then left and right eigenvectors (columns) as asked for, of any square matrices; complex.

    Args:
        x: ``[..., n, n]``.
        enable_eigvec_derivs: allow to differentiate eigenvectors, which is right for distinct eigenvalues only.
    """
    a = as_value(x, "eig")
    return list(
        linalg_eigen.eig(
            a,
            left=bool(compute_left_eigenvectors),
            right=bool(compute_right_eigenvectors),
            derivative=bool(enable_eigvec_derivs),
        )
    )


def svd(
    x: Any,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: Any = None,
) -> Any:
    """x = U diag(s) V^H: ``(U, s, V^H)``, or s alone without ``compute_uv``. Singular values descend.

    Args:
        x: ``[..., m, n]``.
        full_matrices: U and V are square.
        subset_by_index: (start, end) of the singular values to give.

    >>> import nxjax as nx
    >>> svd(nx.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False).tolist()
    [4.0, 3.0]
    """
    a = as_value(x, "svd")
    found = linalg_svd.svd(a, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))
    s = found[0]
    if subset_by_index is not None:
        start, end = _subset("svd", subset_by_index, s.shape[-1])
        whole = (start, end) == (0, s.shape[-1])
        require("svd", whole or not full_matrices, "full_matrices and subset_by_index are both set", subset_by_index)
        s = _part(s, start, end)
    if not compute_uv:
        return s
    _, u, vh = found
    if subset_by_index is not None and not full_matrices:
        u = _part(u, start, end)
        front = (0,) * (vh.ndim - 2)
        vh = slice_(vh, start_indices=(*front, start, 0), limit_indices=(*vh.shape[:-2], end, vh.shape[-1]))
    return u, s, vh


def lu_solve(lu: Any, permutation: Any, b: Any, trans: int = 0) -> Array:
    """x with a x = b (``trans`` 0), a^T x = b (1) or a^H x = b (2), from the results of `lu` for a.

    Args:
        lu: packed factors ``[..., n, n]``.
        permutation: ``[..., n]``.
        b: ``[..., n, k]``, or ``[..., n]`` if ``lu`` has one dimension more.
    """
    factors, order, rhs = (as_value(v, "lu_solve") for v in (lu, permutation, b))
    require("lu_solve", trans in (0, 1, 2), "trans", trans, "0, 1 or 2")
    vector = rhs.ndim == factors.ndim - 1
    if vector:
        rhs = reshape(rhs, shape=(*rhs.shape, 1))
    x = linalg_lu.solve_factored(factors, order, rhs, trans)
    return reshape(x, shape=x.shape[:-1]) if vector else x


def symmetric_product(
    a_matrix: Any, c_matrix: Any, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Array:
    """alpha a a^T + beta c.

    >>> import nxjax as nx
    >>> symmetric_product(nx.array([[1.0, 2.0]]), nx.array([[1.0]]), beta=1.0).tolist()
    [[6.0]]
    """
    from nxjax.ops.arithmetic import add, mul
    from nxjax.ops.linalg_base import mm, t

    a, c = as_value(a_matrix, "symmetric_product"), as_value(c_matrix, "symmetric_product")
    return add(mul(mm(a, t(a)), alpha), mul(c, beta))


def tridiagonal_solve(dl: Any, d: Any, du: Any, b: Any, *, perturb_singular: bool = False) -> Array:
    """x with A x = b, where A has diagonals ``dl`` (below), ``d`` and ``du`` (above).

    Thomas' algorithm, without pivoting: for matrices that are diagonally dominant or positive definite.

    Args:
        dl, d, du: ``[..., n]``; ``dl[..., 0]`` and ``du[..., -1]`` are not read.
        b: ``[..., n, k]``.
        perturb_singular: not available.

    >>> import nxjax as nx
    >>> one = nx.ones(2)
    >>> tridiagonal_solve(0 * one, 2 * one, 0 * one, nx.ones((2, 1))).tolist()
    [[0.5], [0.5]]
    """
    from nxjax.ops.arithmetic import div, mul, sub
    from nxjax.ops.base import zeros
    from nxjax.ops.linalg_base import along_columns
    from nxjax.ops.shape import transpose
    from nxjax.trace.types import ArrayType
    from nxjax.transforms.control.scan import scan

    name = "tridiagonal_solve"
    require(name, not perturb_singular, "perturbation is not available", "perturb_singular=True")
    below, middle, above, rhs = (as_value(v, name) for v in (dl, d, du, b))
    if len({v.dtype for v in (below, middle, above, rhs)}) > 1 or rhs.dtype not in FACTORIZABLE:
        got = ", ".join(repr(v.type) for v in (below, middle, above, rhs))
        raise DtypeError(f"{name}: operands differ in dtype, or are not float", got=got, expected="one float dtype")
    shape = middle.shape
    if not below.shape == above.shape == shape or rhs.ndim != middle.ndim + 1 or rhs.shape[:-1] != shape:
        raise ShapeError(
            f"{name}: diagonals and right-hand side do not fit",
            got=", ".join(repr(v.type) for v in (below, middle, above, rhs)),
            expected="three [..., n] and one [..., n, k]",
        )

    def first(x: Array, axis: int) -> Array:
        return transpose(x, permutation=(axis, *(i for i in range(x.ndim) if i != axis)))

    axis = middle.ndim - 1
    batch, columns = shape[:-1], rhs.shape[-1]
    wide = (*batch, columns)

    def forth(carry: Any, row: Any) -> Any:
        c, y = carry
        low, mid, high, r = row
        pivot = sub(mid, mul(low, c))
        c = div(high, pivot)
        y = div(sub(r, mul(along_columns(low, wide), y)), along_columns(pivot, wide))
        return (c, y), (c, y)

    def back(x: Any, row: Any) -> Any:
        c, y = row
        x = sub(y, mul(along_columns(c, wide), x))
        return x, x

    nothing = zeros(ArrayType(wide, rhs.dtype))
    rows = tuple(first(v, axis) for v in (below, middle, above, rhs))
    _, swept = scan(forth, (zeros(ArrayType(batch, rhs.dtype)), nothing), rows)
    _, x = scan(back, nothing, swept, reverse=True)
    order = (*range(1, axis + 1), 0, axis + 1)
    return transpose(x, permutation=order)
