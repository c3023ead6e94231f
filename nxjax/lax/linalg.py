"""`jax.lax.linalg`: matrix factorizations of batches ``[..., m, n]``, each thin over one op."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lax import primitives
from nxjax.lax._polar import qdwh
from nxjax.lax._tridiagonal import tridiagonal_solve
from nxjax.lax.slices import slice_in_dim
from nxjax.numpy.documented import example as _example
from nxjax.ops import linalg_eigen, linalg_hessenberg, linalg_lu, linalg_qr, linalg_schur, linalg_svd, linalg_triangular
from nxjax.ops.arithmetic import add, mul, sub
from nxjax.ops.base import require
from nxjax.ops.linalg_base import (
    FACTORIZABLE,
    along_columns,
    along_rows,
    conj,
    eye,
    h,
    mm,
    resized,
    symmetrized,
    t,
    tril,
    triu,
)
from nxjax.ops.shape import reshape
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.lazy import missing_attribute as _missing
from nxjax.transforms.control.while_loop import fori_loop

__all__ = (
    "EigImplementation",
    "EighImplementation",
    "SvdAlgorithm",
    "cholesky",
    "cholesky_update",
    "eig",
    "eigh",
    "geqrf",
    "hessenberg",
    "householder_product",
    "lu",
    "lu_pivots_to_permutation",
    "lu_solve",
    "ormqr",
    "qdwh",
    "qr",
    "schur",
    "svd",
    "symmetric_product",
    "triangular_solve",
    "tridiagonal",
    "tridiagonal_solve",
)


class SvdAlgorithm(Enum):
    """The preferred method on a device with several. All give the same decomposition.

    >>> lax.linalg.svd(jnp.diag(jnp.array([4.0, 9.0])), compute_uv=False, algorithm=lax.linalg.SvdAlgorithm.QR)
    Array([9., 4.], dtype=float32)
    """

    DEFAULT = "default"
    QR = "QR"
    JACOBI = "Jacobi"
    POLAR = "polar"
    DIVIDE_AND_CONQUER = "divide_and_conquer"


class EighImplementation(Enum):
    """As `SvdAlgorithm`, for `eigh`.

    >>> x = jnp.array([[9.0, 0.0], [0.0, 4.0]])
    >>> lax.linalg.eigh(x, implementation=lax.linalg.EighImplementation.JACOBI)[1]
    Array([4., 9.], dtype=float32)
    """

    QR = "qr"
    JACOBI = "jacobi"
    QDWH = "qdwh"


class EigImplementation(Enum):
    """As `SvdAlgorithm`, for `eig`.

    >>> x = jnp.array([[0.0, -1.0], [1.0, 0.0]])
    >>> lax.linalg.eig(x, implementation=lax.linalg.EigImplementation.LAPACK)[0].imag
    Array([ 1., -1.], dtype=float32)
    """

    CUSOLVER = "cusolver"
    MAGMA = "magma"
    LAPACK = "lapack"


@_example("jnp.array([[4.0, 2.0], [2.0, 5.0]])", "[[2.0, 0.0], [1.0, 2.0]]", then=".tolist()")
def cholesky(x: ArrayLike, *, symmetrize_input: bool = True) -> Array:
    """The lower triangular L with L L^H = x; NaN where x is not positive definite.

    Args:
        x: Hermitian matrices ``[..., n, n]``.
        symmetrize_input: take (x + x^H) / 2 instead of the lower triangle of x.

    Raises:
        ShapeError: ``x`` is not square; DtypeError: it is not float or complex.
    """
    a = as_value(x, "cholesky")
    linalg_triangular.cholesky.infer(a.type)
    return linalg_triangular.cholesky(symmetrized(a) if symmetrize_input else a)


def triangular_solve(
    a: ArrayLike,
    b: ArrayLike,
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

    Raises:
        ShapeError: the operands do not fit; DtypeError: they are not float or complex.

    >>> a = jnp.array([[2.0, 0.0], [1.0, 1.0]])
    >>> triangular_solve(a, jnp.array([[2.0], [3.0]]), left_side=True, lower=True).tolist()
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


def lu(x: ArrayLike) -> list[Array]:
    """P x = L U: packed factors, row swaps ``[..., min(m, n)]`` and permutation ``[..., m]``, both int32.

    Raises:
        ShapeError: ``x`` is not a matrix; DtypeError: it is not float or complex.

    >>> factors, pivots, permutation = lu(jnp.array([[1.0, 2.0], [4.0, 4.0]]))
    >>> factors.tolist(), permutation.tolist()
    ([[4.0, 4.0], [0.25, 1.0]], [1, 0])
    """
    return list(linalg_lu.lu(as_value(x, "lu")))


@_example("jnp.array([2, 1]), 3", "[2, 1, 0]", then=".tolist()")
def lu_pivots_to_permutation(pivots: ArrayLike, permutation_size: int) -> Array:
    """The permutation that row swaps make.

    Args:
        pivots: int32 ``[..., k]``, from `lu`.
        permutation_size: number of rows, at least k; the result is int32 ``[..., permutation_size]``.

    Raises:
        DtypeError: pivots are not int32; ParameterError: there are fewer rows than swaps.
    """
    return linalg_lu.lu_pivots_to_permutation(
        as_value(pivots, "lu_pivots_to_permutation"), permutation_size=int(permutation_size)
    )


def geqrf(a: ArrayLike) -> tuple[Array, Array]:
    """R in the upper triangle, Householder reflectors below it, and their scalars ``[..., min(m, n)]``: LAPACK's geqrf.

    Raises:
        ShapeError: ``a`` is not a matrix; DtypeError: it is not float or complex.

    >>> geqrf(jnp.array([[0.0], [2.0]]))[0].tolist()
    [[-2.0], [1.0]]
    """
    return linalg_qr.geqrf(as_value(a, "geqrf"))


@_example("*lax.linalg.geqrf(jnp.array([[0.0], [2.0]]))", "[[0.0], [-1.0]]", then=".tolist()")
def householder_product(a: ArrayLike, taus: ArrayLike) -> Array:
    """The product of reflectors as `geqrf` packs them: orthonormal columns ``[..., m, n]``.

    Args:
        a: ``[..., m, n]``, m >= n.
        taus: scalars of the reflectors ``[..., k]``, k <= n.

    Raises:
        ShapeError: reflectors and scalars do not fit; DtypeError: they are not float or complex.
    """
    return linalg_qr.householder_product(as_value(a, "householder_product"), as_value(taus, "householder_product"))


def qr(x: ArrayLike, *, pivoting: bool = False, full_matrices: bool = True, use_magma: bool | None = None) -> Any:
    """x = Q R with orthonormal columns of Q.

    Args:
        x: ``[..., m, n]``.
        full_matrices: Q is ``[..., m, m]`` instead of ``[..., m, min(m, n)]``.
        pivoting: factorize x[:, p] instead, and also return the permutation p ``[..., n]`` (int32): the largest
            remaining column is next, so the diagonal of R does not increase.

    Raises:
        ShapeError: ``x`` is not a matrix; DtypeError: it is not float or complex.

    >>> q, r = qr(jnp.ones((4, 2)), full_matrices=False)
    >>> q.shape, r.shape
    ((4, 2), (2, 2))
    """
    a = as_value(x, "qr")
    if not pivoting:
        return linalg_qr.qr(a, full_matrices=bool(full_matrices))
    (order,) = linalg_hessenberg.qr_pivots(a)
    moved = t(linalg_lu.permuted(t(a), order))
    return (*linalg_qr.qr(moved, full_matrices=bool(full_matrices)), order)


def eigh(
    x: ArrayLike,
    *,
    lower: bool = True,
    symmetrize_input: bool = True,
    sort_eigenvalues: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    implementation: object = None,
) -> tuple[Array, Array]:
    """Eigenvectors (columns) and ascending real eigenvalues of Hermitian matrices, in this order.

    Args:
        x: ``[..., n, n]``.
        lower: without ``symmetrize_input``, the triangle to read.
        symmetrize_input: take (x + x^H) / 2 instead of one triangle.
        sort_eigenvalues: they are always sorted.
        subset_by_index: (start, end) of the eigenvalues to return.

    Raises:
        ShapeError: ``x`` is not square; DtypeError: it is not float or complex.
        ParameterError: no such eigenvalues.

    >>> v, w = eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))
    >>> w.tolist()
    [1.0, 2.0]
    """
    a = as_value(x, "eigh")
    linalg_eigen.eigh.infer(a.type, lower=lower)
    v, w = linalg_eigen.eigh(symmetrized(a) if symmetrize_input else a, lower=bool(lower))
    if subset_by_index is None:
        return v, w
    start, end = _subset("eigh", subset_by_index, w.shape[-1])
    return slice_in_dim(v, start, end, axis=-1), slice_in_dim(w, start, end, axis=-1)


def _subset(name: str, subset: Any, n: int) -> tuple[int, int]:
    try:
        start, end = (int(i) for i in subset)
    except (TypeError, ValueError):
        raise ParameterError(f"{name}: subset_by_index", got=repr(subset), expected="(start, end)") from None
    require(name, 0 <= start < end <= n, "subset_by_index", subset, f"0 <= start < end <= {n}")
    return start, end


def eig(
    x: ArrayLike,
    *,
    compute_left_eigenvectors: bool = True,
    compute_right_eigenvectors: bool = True,
    enable_eigvec_derivs: bool = False,
    implementation: object = None,
    use_magma: bool | None = None,
) -> list[Array]:
    """Eigenvalues, then the requested left and right eigenvectors (columns), of any square matrices; complex.

    Args:
        x: ``[..., n, n]``.
        enable_eigvec_derivs: allow to differentiate eigenvectors, which is right for distinct eigenvalues only.

    Raises:
        ShapeError: ``x`` is not square; DtypeError: it is not float or complex.

    >>> w, _, _ = eig(jnp.array([[0.0, 1.0], [-1.0, 0.0]]))
    >>> sorted(w.tolist(), key=lambda z: z.imag)
    [-1j, 1j]
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


@_example("jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False", "[4.0, 3.0]", then=".tolist()")
def svd(
    x: ArrayLike,
    *,
    full_matrices: bool = True,
    compute_uv: bool = True,
    subset_by_index: tuple[int, int] | None = None,
    algorithm: object = None,
) -> Any:
    """x = U diag(s) V^H: ``(U, s, V^H)``, or s alone without ``compute_uv``. Singular values descend.

    Args:
        x: ``[..., m, n]``.
        full_matrices: U and V are square.
        subset_by_index: (start, end) of the singular values to return.

    Raises:
        ShapeError: ``x`` is not a matrix; DtypeError: it is not float or complex.
        ParameterError: no such singular values.
    """
    a = as_value(x, "svd")
    found = linalg_svd.svd(a, full_matrices=bool(full_matrices), compute_uv=bool(compute_uv))
    s = found[0]
    if subset_by_index is not None:
        start, end = _subset("svd", subset_by_index, s.shape[-1])
        whole = (start, end) == (0, s.shape[-1])
        require("svd", whole or not full_matrices, "full_matrices and subset_by_index are both set", subset_by_index)
        s = slice_in_dim(s, start, end, axis=-1)
    if not compute_uv:
        return s
    _, u, vh = found
    if subset_by_index is not None and not full_matrices:
        u, vh = slice_in_dim(u, start, end, axis=-1), slice_in_dim(vh, start, end, axis=-2)
    return u, s, vh


def lu_solve(lu: ArrayLike, permutation: ArrayLike, b: ArrayLike, trans: int = 0) -> Array:
    """x with a x = b (``trans`` 0), a^T x = b (1) or a^H x = b (2), from the results of `lu` for a.

    Args:
        lu: packed factors ``[..., n, n]``.
        permutation: ``[..., n]``.
        b: ``[..., n, k]``, or ``[..., n]`` if ``lu`` has one dimension more.

    Raises:
        ShapeError: the matrix is not square, or ``b`` has another number of rows.
        ParameterError: ``trans`` is not 0, 1 or 2.

    >>> factors, _, permutation = lu(jnp.array([[2.0, 0.0], [0.0, 4.0]]))
    >>> lu_solve(factors, permutation, jnp.array([2.0, 4.0])).tolist()
    [1.0, 1.0]
    """
    factors, order, rhs = (as_value(v, "lu_solve") for v in (lu, permutation, b))
    require("lu_solve", trans in (0, 1, 2), "trans", trans, "0, 1 or 2")
    vector = rhs.ndim == factors.ndim - 1
    if vector:
        rhs = reshape(rhs, shape=(*rhs.shape, 1))
    if rhs.ndim < 2 or factors.ndim < 2 or rhs.shape[-2] != factors.shape[-1]:
        raise ShapeError(
            "lu_solve: factors and right-hand side do not fit",
            got=f"{factors.type} and {as_value(b, 'lu_solve').type}",
            expected="[..., n, n] and [..., n] or [..., n, k]",
        )
    x = linalg_lu.solve_factored(factors, order, rhs, trans)
    return reshape(x, shape=x.shape[:-1]) if vector else x


@_example("jnp.array([[1.0, 2.0]]), jnp.array([[1.0]]), beta=1.0", "[[6.0]]", then=".tolist()")
def symmetric_product(
    a_matrix: ArrayLike, c_matrix: ArrayLike, *, alpha: float = 1.0, beta: float = 0.0, symmetrize_output: bool = False
) -> Array:
    """alpha a a^T + beta c.

    Args:
        a_matrix: ``[..., m, n]``, float.
        c_matrix: ``[..., m, m]``, symmetric.
        alpha, beta: Python numbers.
        symmetrize_output: copy the lower triangle to the upper one.

    Raises:
        ShapeError: the operands do not fit; DtypeError: they are not of one float dtype.
    """
    name = "symmetric_product"
    a, c = as_value(a_matrix, name), as_value(c_matrix, name)
    if a.dtype != c.dtype or a.dtype not in dtypes.FLOAT:
        raise DtypeError(f"{name}: operands are of one real float dtype", got=f"{a.type}, {c.type}")
    if a.ndim < 2 or c.shape != (*a.shape[:-1], a.shape[-2]):
        raise ShapeError(f"{name}: operands do not fit", got=f"{a.type}, {c.type}", expected="[..., m, n], [..., m, m]")
    y = add(mul(mm(a, t(a)), alpha), mul(c, beta))
    return add(tril(y), t(tril(y, -1))) if symmetrize_output else y


@_example("jnp.array([[3.0]]), jnp.array([4.0])", "[[5.0]]", then=".tolist()")
def cholesky_update(r_matrix: ArrayLike, w_vector: ArrayLike) -> Array:
    """The R of R^T R + w w^T, by Givens rotations (Golub and Van Loan, "Matrix Computations", 6.5.4).

    Args:
        r_matrix: upper triangular ``[n, n]``, float.
        w_vector: ``[n]``.

    Raises:
        ShapeError: the operands do not fit; DtypeError: they are not of one float dtype.
    """
    name = "cholesky_update"
    r, w = as_value(r_matrix, name), as_value(w_vector, name)
    if r.dtype != w.dtype or r.dtype not in dtypes.FLOAT:
        raise DtypeError(f"{name}: operands are of one real float dtype", got=f"{r.type}, {w.type}")
    if r.ndim != 2 or r.shape != (*w.shape, *w.shape):
        raise ShapeError(f"{name}: operands do not fit", got=f"{r.type}, {w.type}", expected="[n, n], [n]")

    def rotate(k: Any, carry: Any) -> Any:
        rows, z = carry
        x, y = rows[k, k], z[k]
        none = y == 0
        top = jnp.maximum(jnp.abs(x), jnp.abs(y))
        top = jnp.where(top == 0, 1, top)
        u, v = jnp.where(none, 1, x / top), jnp.where(none, 0, y / top)
        length = jnp.sqrt(u * u + v * v)
        c, s = u / length, v / length
        row = rows[k]
        return rows.at[k].set(c * row + s * z), (c * z - s * row).at[k].set(0)

    return fori_loop(0, w.shape[0], rotate, (r, w))[0]


def hessenberg(a: ArrayLike) -> tuple[Array, Array]:
    """Q^H a Q, zero below the first subdiagonal, packed with the reflectors that make Q, and their scalars.

    LAPACK's gehrd. Has no derivative.

    Args:
        a: ``[..., n, n]``, n > 0.

    Raises:
        ShapeError: ``a`` is not square; DtypeError: it is not float or complex.

    >>> packed, taus = hessenberg(jnp.ones((3, 3)))
    >>> packed.shape, taus.shape
    ((3, 3), (2,))
    """
    return linalg_hessenberg.hessenberg(as_value(a, "hessenberg"))


def tridiagonal(a: ArrayLike, *, lower: bool = True) -> tuple[Array, Array, Array, Array]:
    """Q^H a Q, tridiagonal, packed with the reflectors that make Q; its diagonal; its off-diagonal; their scalars.

    LAPACK's sytrd and hetrd. Has no derivative.

    Args:
        a: Hermitian ``[..., n, n]``, n > 0.
        lower: the triangle to read.

    Raises:
        ShapeError: ``a`` is not square; DtypeError: it is not float or complex.

    >>> _, d, e, _ = tridiagonal(jnp.array([[2.0, 1.0], [1.0, 3.0]]))
    >>> d.tolist(), e.tolist()
    ([2.0, 3.0], [1.0])
    """
    return linalg_hessenberg.tridiagonal(as_value(a, "tridiagonal"), lower=bool(lower))


def schur(
    x: ArrayLike,
    *,
    compute_schur_vectors: bool = True,
    sort_eig_vals: bool = False,
    select_callable: Callable[..., Any] | None = None,
) -> tuple[Array, ...]:
    """x = Q T Q^H with unitary Q and upper triangular T: ``(T, Q)``, or ``(T,)`` without ``compute_schur_vectors``.

    T of a real matrix has a 2 by 2 block per pair of conjugate eigenvalues; LAPACK's gees. Signs (phases) of the
    columns of Q are free. Has no derivative.

    Args:
        x: ``[..., n, n]``.
        sort_eig_vals, select_callable: not available.

    Raises:
        ShapeError: ``x`` is not square; DtypeError: it is not float or complex.

    >>> schur(jnp.array([[1.0, 2.0], [0.0, 3.0]]))[0].tolist()
    [[1.0, 2.0], [0.0, 3.0]]
    """
    if sort_eig_vals:
        raise NotImplementedError("schur: sorting of eigenvalues is not available")
    return tuple(linalg_schur.schur(as_value(x, "schur"), vectors=bool(compute_schur_vectors)))


def ormqr(a: ArrayLike, taus: ArrayLike, c: ArrayLike, *, left: bool = True, transpose: bool = False) -> Array:
    """Q c, or c Q without ``left``, for the Q that `geqrf` packs; Q^H instead of Q with ``transpose``.

    All reflectors at once, as 1 - V T V^H (R. Schreiber and C. Van Loan, "A storage-efficient WY representation for
    products of Householder transformations", 1989).

    Args:
        a: ``[..., m, n]`` with the reflectors below its diagonal.
        taus: their scalars ``[..., k]``.
        c: ``[..., m, p]``, or ``[..., p, m]`` without ``left``.

    Raises:
        ShapeError: the operands do not fit; DtypeError: their dtypes differ, or are not float or complex.

    >>> ormqr(*geqrf(jnp.array([[0.0], [2.0]])), jnp.array([[0.0], [2.0]]), transpose=True).tolist()
    [[-2.0], [0.0]]
    """
    packed, scalars, x = (as_value(v, "ormqr") for v in (a, taus, c))
    equal = packed.dtype == scalars.dtype == x.dtype and x.dtype in FACTORIZABLE
    if not equal:
        got = ", ".join(repr(v.type) for v in (packed, scalars, x))
        raise DtypeError("ormqr: operands differ in dtype, or are not float", got=got, expected="one float dtype")
    (*batch, m, n), k = packed.shape, scalars.shape[-1]
    if (
        scalars.shape[:-1] != (*batch,)
        or x.shape[:-2] != (*batch,)
        or x.shape[-2 if left else -1] != m
        or k > min(m, n)
    ):
        got = ", ".join(repr(v.type) for v in (packed, scalars, x))
        raise ShapeError("ormqr: operands do not fit", got=got, expected="[..., m, n], [..., k] and m rows (columns)")
    cut = resized(packed, m, k)
    v = add(tril(cut, -1), resized(eye(packed, m), m, k))
    # T = D (1 + S D)^-1, where D has the scalars and S is what V^H V has above its diagonal.
    inner = triu(mm(h(v), v), 1)
    mixed = mul(inner, along_rows(scalars, inner.shape))
    scale = lambda z, w: mul(w, along_columns(z, w.shape))

    def apply(y: Array) -> Array:
        w = mm(h(v), y)
        if transpose == left:
            w = _unit_upper(mixed, scale(conj(scalars), w), True)
        else:
            w = scale(scalars, _unit_upper(mixed, w, False))
        return sub(y, mm(v, w))

    return apply(x) if left else h(apply(h(x)))


def _unit_upper(a: Array, b: Array, adjoint: bool) -> Array:
    """The solution with a's strictly upper triangle and a diagonal of ones, or with the adjoint."""
    options = {"left_side": True, "lower": False, "unit_diagonal": True}
    return linalg_triangular.triangular_solve(
        a, b, transpose_a=adjoint, conjugate_a=adjoint and a.dtype in dtypes.COMPLEX, **options
    )


def __getattr__(name: str) -> Any:
    """The primitives that JAX names here are ops of nxjax."""
    if name.endswith("_p"):
        return primitives.find(name, "nxjax.lax.linalg")
    raise _missing(__name__, name)
