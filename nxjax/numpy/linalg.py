"""Linear algebra, as `numpy.linalg`: matrices in the last two axes, leading axes are a batch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from nxjax.errors import ParameterError, ShapeError
from nxjax.numpy.contractions import vecdot
from nxjax.numpy.creation import full_scalar
from nxjax.numpy.documented import example as _example
from nxjax.numpy.documented import shown as _shown
from nxjax.numpy.elementwise import maximum
from nxjax.numpy.floats import conjugate, frexp, isnan, real, times_power
from nxjax.numpy.grids import diagonal as _diagonal
from nxjax.numpy.indexing import take_along_axis
from nxjax.numpy.matrix_products import cross, diagonal, matmul, multi_dot, outer, tensordot, trace
from nxjax.numpy.methods import concrete_value
from nxjax.numpy.norms import matrix_norm, norm, vector_norm
from nxjax.numpy.padding import pad
from nxjax.numpy.promotion import (
    as_axis,
    as_operand,
    broadcast_shape,
    broadcast_to_shape,
    convert,
    promote_inexact,
    static_int,
)
from nxjax.numpy.ranges import eye, iota
from nxjax.numpy.reductions import any as any_
from nxjax.numpy.reductions import max as max_
from nxjax.numpy.reductions import prod
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import matrix_transpose, moveaxis, reshape
from nxjax.numpy.sorting import argsort
from nxjax.ops import linalg_lu
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array, Tracer
from nxjax.trace.lazy import getattr_with_hints as _refusing
from nxjax.transforms.custom_jvp import custom_jvp

__all__ = [
    "cholesky", "cond", "cross", "det", "diagonal", "eig", "eigh", "eigvals", "eigvalsh", "inv", "lstsq", "matmul",
    "matrix_norm", "matrix_power", "matrix_rank", "matrix_transpose", "multi_dot", "norm", "outer", "pinv", "qr",
    "slogdet", "solve", "svd", "svdvals", "tensordot", "tensorinv", "tensorsolve", "trace", "vecdot", "vector_norm",
]  # fmt: skip
__getattr__ = _refusing(__name__)


class EigResult(NamedTuple):
    """Result of `eig`."""

    eigenvalues: Array
    eigenvectors: Array


class EighResult(NamedTuple):
    """Result of `eigh`."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """Result of `qr`."""

    Q: Array
    R: Array


class SVDResult(NamedTuple):
    """Result of `svd`."""

    U: Array
    S: Array
    Vh: Array


class SlogdetResult(NamedTuple):
    """Result of `slogdet`."""

    sign: Array
    logabsdet: Array


_SQUARE = "ShapeError: no square matrices."


def _matrix(where_: str, a: Any, square: bool = True) -> Array:
    """``a`` in an inexact dtype of at least single precision, checked to be (square) matrices."""
    (x,) = promote_inexact(where_, a)
    if x.ndim < 2 or (square and x.shape[-1] != x.shape[-2]):
        kind = "square matrices" if square else "matrices"
        raise ShapeError(
            f"linalg.{where_}: needs {kind}", got=x.type, expected="[..., n, n]" if square else "[..., m, n]"
        )
    return convert(x, dtypes.float32) if x.dtype.itemsize < 4 else x if not x.type.weak else convert(x, x.dtype)


def _adjoint(x: Array) -> Array:
    return conjugate(matrix_transpose(x))


# --- decompositions ---


@_example(
    "jnp.array([[4.0, 2.0], [2.0, 10.0]])",
    "Array([[2., 0.],\n       [1., 3.]], dtype=float32)",
    "jnp.array([[-1.0]])",
    "Array([[nan]], dtype=float32)",
    raises="ShapeError: no square matrices.",
)
def cholesky(a: ArrayLike, *, upper: bool = False, symmetrize_input: bool = True) -> Array:
    """The triangular L with L L^H = a (or U with U^H U = a); nan where ``a`` is not positive definite.

    ``symmetrize_input`` takes the mean of ``a`` and its adjoint first; else only the lower triangle is read.
    """
    x = _matrix("cholesky", a)
    if symmetrize_input:
        x = (x + _adjoint(x)) / 2
    y = ops.cholesky(x)
    return _adjoint(y) if upper else y


def qr(a: ArrayLike, mode: str = "reduced") -> Array | tuple[Array, ...]:
    """Orthonormal Q and upper triangular R with Q R = a, of ``[..., m, n]``.

    Args:
        mode: ``reduced`` or ``full`` (Q is ``[m, min(m, n)]``), ``complete`` (``[m, m]``), ``r`` (R alone), or ``raw``
            (LAPACK's reflectors, transposed, and their factors).

    Raises:
        ShapeError: no matrices.
        ValueError: another mode.

    >>> q, r = jnp.linalg.qr(jnp.arange(6.0).reshape(3, 2))
    >>> q.shape, r.shape
    ((3, 2), (2, 2))
    >>> bool(jnp.allclose(q @ r, jnp.arange(6.0).reshape(3, 2), atol=1e-5))
    True
    """
    x = _matrix("qr", a, square=False)
    if mode == "raw":
        packed, taus = ops.geqrf(x)
        return QRResult(matrix_transpose(packed), taus)
    if mode not in ("reduced", "complete", "r", "full"):
        raise ValueError(f"Unsupported QR decomposition mode '{mode}'")
    q, r = ops.qr(x, full_matrices=mode == "complete")
    return r if mode == "r" else QRResult(q, r)


def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    hermitian: bool = False,
    subset_by_index: tuple[int, int] | None = None,
) -> Array | tuple[Array, ...]:
    """Singular values in falling order, and the unitary U and Vh with U diag(S) Vh = a, of ``[..., m, n]``.

    Args:
        full_matrices: whether U is ``[m, m]`` and Vh ``[n, n]``, or both have as many vectors as there are values.
        compute_uv: also return U and Vh; else only the values.
        hermitian: ``a`` is Hermitian, which is quicker.
        subset_by_index: ``(first, end)`` of the values that are wanted, with ``full_matrices=False``.

    Raises:
        ShapeError: no matrices.
        ValueError: ``subset_by_index`` of full matrices.

    >>> u, s, vh = jnp.linalg.svd(jnp.ones((4, 2)), full_matrices=False)
    >>> u.shape, s.shape, vh.shape
    ((4, 2), (2,), (2, 2))
    >>> jnp.linalg.svd(jnp.diag(jnp.array([3.0, -4.0])), compute_uv=False)
    Array([4., 3.], dtype=float32)
    """
    x = _matrix("svd", a, square=hermitian)
    if subset_by_index is not None:
        if full_matrices and compute_uv:
            raise ValueError("svd: full_matrices and subset_by_index cannot both be set")
        first, end = subset_by_index
        out = svd(x, False, compute_uv, hermitian)
        if not compute_uv:
            return out[..., first:end]
        return SVDResult(out.U[..., first:end], out.S[..., first:end], out.Vh[..., first:end, :])
    if hermitian:
        w, v = eigh(x)
        s = ops.abs(w)
        order = argsort(-s, axis=-1)
        s = take_along_axis(s, order, -1)
        if not compute_uv:
            return s
        w = take_along_axis(w, order, -1)
        u = take_along_axis(v, order[..., None, :], -1)
        signs = convert(ops.sign(w) + (w == 0), u.dtype)
        return SVDResult(u, s, _adjoint(u * signs[..., None, :]))
    out = ops.svd(x, full_matrices=full_matrices, compute_uv=compute_uv)
    if not compute_uv:
        return out[0]
    s, u, vh = out
    return SVDResult(u, s, vh)


@_example("jnp.diag(jnp.array([3.0, -4.0]))", "Array([4., 3.], dtype=float32)")
def svdvals(x: ArrayLike, /) -> Array:
    """Singular values in falling order."""
    return svd(x, compute_uv=False)


@_shown("w, v = jnp.linalg.eigh(jnp.array([[2.0, 0.0], [0.0, 1.0]]))", "", "w", "Array([1., 2.], dtype=float32)")
def eigh(a: ArrayLike, UPLO: str | None = None, symmetrize_input: bool = True) -> EighResult:
    """Eigenvalues in rising order and eigenvectors of a symmetric or Hermitian matrix; reads the triangle ``UPLO``.

    ``symmetrize_input`` takes the mean of ``a`` and its adjoint first.

    Raises:
        ShapeError: no square matrices.
        ParameterError: another ``UPLO``.
    """
    if UPLO not in (None, "L", "U"):
        raise ParameterError(f"UPLO must be one of None, 'L', or 'U', got {UPLO}")
    x = _matrix("eigh", a)
    if symmetrize_input:
        x = (x + _adjoint(x)) / 2
    v, w = ops.eigh(x, lower=UPLO in (None, "L"))
    return EighResult(w, v)


@_example("jnp.array([[2.0, 0.0], [0.0, 1.0]])", "Array([1., 2.], dtype=float32)")
def eigvalsh(a: ArrayLike, UPLO: str | None = "L", *, symmetrize_input: bool = True) -> Array:
    """Eigenvalues of a symmetric or Hermitian matrix in rising order, real; raises as `eigh`."""
    return eigh(a, UPLO, symmetrize_input)[0]


def eig(a: ArrayLike) -> EigResult:
    """Eigenvalues and right eigenvectors, complex, in no order.

    Raises:
        ShapeError: no square matrices.
        GradientError: it is differentiated; `eigvals` and `eigh` can be.

    >>> w, v = jnp.linalg.eig(jnp.array([[0.0, 1.0], [0.0, 2.0]]))
    >>> w
    Array([0.+0.j, 2.+0.j], dtype=complex64)
    """
    return EigResult(*ops.eig(_matrix("eig", a), left=False, right=True, derivative=False))


@_example("jnp.array([[0.0, -1.0], [1.0, 0.0]])", "dtype('complex64')", then=".dtype", raises=_SQUARE)
def eigvals(a: ArrayLike) -> Array:
    """Eigenvalues, complex, in no order."""
    return ops.eig(_matrix("eigvals", a), left=False, right=False, derivative=False)[0]


# --- systems of equations ---


@_example("jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0])", "Array([1. , 0.5], dtype=float32)")
def solve(a: ArrayLike, b: ArrayLike) -> Array:
    """The solution x of a x = b for ``a`` ``[..., n, n]``; a vector ``b`` gives a vector, a singular ``a`` inf or nan.

    Raises:
        ShapeError: ``a`` is not square, or ``b`` has other than n rows.
    """
    x, y = promote_inexact("solve", a, b)
    x, y = _matrix("solve", x), y
    y = convert(y, x.dtype)
    n = x.shape[-1]
    if y.ndim < 1:
        raise ShapeError("linalg.solve: b is a vector or matrices", got=y.type)
    vector = y.ndim == 1
    if vector:
        y = ops.reshape(y, shape=(y.shape[0], 1))
    if y.shape[-2] != n:
        raise ShapeError(
            "linalg.solve: a and b differ in size", got=f"{x.type} and {y.type}", expected=f"{n} rows in b"
        )
    lead = broadcast_shape("linalg.solve", x.shape[:-2], y.shape[:-2])
    x = broadcast_to_shape(x, (*lead, n, n))
    y = broadcast_to_shape(y, (*lead, *y.shape[-2:]))
    out = linalg_lu.solve(x, y)
    return ops.reshape(out, shape=out.shape[:-1]) if vector else out


@_example("jnp.array([[2.0, 0.0], [0.0, 4.0]])", "Array([[0.5 , 0.  ],\n       [0.  , 0.25]], dtype=float32)")
def inv(a: ArrayLike) -> Array:
    """The inverse of square matrices; inf or nan where there is none.

    Raises:
        ShapeError: no square matrices.
    """
    x = _matrix("inv", a)
    n = x.shape[-1]
    return solve(x, broadcast_to_shape(eye(n, dtype=x.dtype), x.shape))


def lstsq(
    a: ArrayLike, b: ArrayLike, rcond: ArrayLike | None = None, *, numpy_resid: bool = False
) -> tuple[Array, Array, Array, Array]:
    """The x of least norm that minimizes |a x - b|; residuals, rank and singular values of ``a``.

    Singular values below ``rcond`` times the largest count as zero. ``numpy_resid=True`` gives no residuals, as NumPy,
    where the rank is not full.

    Raises:
        TypeError: ``a`` is not a matrix.
        ValueError: ``b`` has another number of rows.

    >>> x, residuals, rank, s = jnp.linalg.lstsq(jnp.array([[1.0], [1.0]]), jnp.array([1.0, 3.0]))
    >>> x.round(4), residuals.round(4), rank
    (Array([2.], dtype=float32), Array([2.], dtype=float32), Array(1, dtype=int32))
    """
    x, y = promote_inexact("lstsq", a, b)
    if x.ndim != 2:
        raise TypeError(f"{x.ndim}-dimensional array given. Array must be two-dimensional")
    if y.ndim not in (1, 2) or x.shape[0] != y.shape[0]:
        raise ValueError("Leading dimensions of input arrays must match")
    x = _matrix("lstsq", x, square=False)
    y = convert(y, x.dtype)
    m, n = x.shape
    vector = y.ndim == 1
    y = ops.reshape(y, shape=(m, 1)) if vector else y
    real_dtype = dtypes.real_part(x.dtype)
    if rcond is None:
        rcond = float(dtypes.float_info(x.dtype).eps) * max(n, m)
    elif isinstance(rcond, (int, float)) and rcond < 0:
        rcond = float(dtypes.float_info(x.dtype).eps)
    if m == 0 or n == 0:
        s = full_scalar((0,), 0, real_dtype)
        out, rank = full_scalar((n, y.shape[1]), 0, x.dtype), full_scalar((), 0, dtypes.int32)
    else:
        u, s, vh = svd(x, full_matrices=False)
        kept = s >= s[0] * rcond
        rank = sum_(convert(kept, dtypes.int32))
        inverse = convert(where(kept, 1 / where(kept, s, 1), 0), x.dtype)
        out = matmul(_adjoint(vh), inverse[:, None] * matmul(_adjoint(u), y))
    misfit = y - matmul(x, out)
    residuals = sum_(real(misfit * conjugate(misfit)), 0)
    if numpy_resid and m > n and isinstance(concrete_value(rank), Tracer):
        residuals = where(rank < n, math.nan, residuals)
    elif numpy_resid and (m <= n or int(rank) < n):
        residuals = full_scalar((0,), 0, real_dtype)
    if vector:
        out = ops.reshape(out, shape=(n,))
    return out, residuals, rank, s


@_example("jnp.array([[2.0, 0.0], [0.0, 0.0]])", "Array([[0.5, 0. ],\n       [0. , 0. ]], dtype=float32)")
def pinv(
    a: ArrayLike, rtol: ArrayLike | None = None, hermitian: bool = False, *, rcond: ArrayLike | None = None
) -> Array:
    """The Moore-Penrose inverse; singular values below ``rtol`` times the largest count as zero.

    The derivative is that of Golub and Pereyra (1973), valid where the rank is constant.

    Raises:
        ShapeError: no matrices.
    """
    x = _matrix("pinv", a, square=hermitian)
    if 0 in x.shape:
        return matrix_transpose(x)
    cut = rcond if rtol is None else rtol
    cut = ops.stop_gradient(cut) if isinstance(cut, Array) else cut  # the rank does not change
    rule = custom_jvp(lambda v: _pinv(v, cut, hermitian))

    def push(primals: Any, tangents: Any) -> Any:
        (v,), (t,) = primals, tangents
        t = (t + _adjoint(t)) / 2 if hermitian else t
        p = rule(v)
        ph, th = _adjoint(p), _adjoint(t)
        # dP = -P dA P + P P^H dA^H (1 - A P) + (1 - P A) dA^H P^H P
        first = -matmul(matmul(p, t), p)
        second = matmul(matmul(p, ph), th - matmul(matmul(th, v), p))
        third = matmul(th - matmul(matmul(p, v), th), matmul(ph, p))
        return p, first + second + third

    rule.defjvp(push)
    # The derivative has third powers of P, which leave the range of floats where P itself is far from its ends.
    scale = convert(_power_of_two(ops.stop_gradient(max_(abs(x), axis=(-2, -1), keepdims=True))), x.dtype)
    return rule(x / scale) / scale


def _power_of_two(x: Array) -> Array:
    """The greatest one that is not above ``x``; 1 for 0."""
    m = frexp(x)[0]
    return where(m == 0, 1, x / where(m == 0, 1, 2 * m))


def _pinv(x: Array, cut: Any, hermitian: bool) -> Array:
    if cut is None:
        cut = 10.0 * max(x.shape[-2:]) * float(dtypes.float_info(x.dtype).eps)
    u, s, vh = svd(x, full_matrices=False, hermitian=hermitian)
    limit = as_operand(cut, "pinv")
    limit = convert(limit[..., None] if limit.ndim else limit, s.dtype) * s[..., :1]
    inverse = where(s > limit, 1 / where(s > limit, s, 1), 0)
    return matmul(_adjoint(vh) * convert(inverse, x.dtype)[..., None, :], _adjoint(u))


# --- numbers of a matrix ---


def _lu_sign(lu: Array, pivots: Array) -> Array:
    """1 or -1: the sign of the permutation."""
    own = broadcast_to_shape(iota(pivots.shape[-1], pivots.dtype), pivots.shape)
    swaps = sum_(convert(pivots != own, dtypes.int32), -1)
    return convert(1 - 2 * (swaps % 2), lu.dtype)


def slogdet(a: ArrayLike, *, method: str | None = None) -> SlogdetResult:
    """Sign and logarithm of the absolute value of the determinant.

    Raises:
        ShapeError: no square matrices.
        ValueError: another ``method`` than ``lu`` and ``qr``.

    >>> sign, logarithm = jnp.linalg.slogdet(jnp.diag(jnp.array([-1e30, 1e30])))
    >>> sign, logarithm.round(2)
    (Array(-1., dtype=float32), Array(138.16, dtype=float32))
    """
    x = _matrix("slogdet", a)
    if method not in (None, "lu", "qr"):
        raise ValueError(f"Unknown slogdet method '{method}'. Supported methods are 'lu' and 'qr'.")
    lu, pivots, _ = ops.lu(x)
    d = _diagonal(lu, 0, -2, -1)
    sign = _lu_sign(lu, pivots) * prod(ops.sign(d), -1)
    dtype = dtypes.to_inexact(as_operand(a, "slogdet").dtype)
    return SlogdetResult(convert(sign, dtype), convert(sum_(ops.log(ops.abs(d)), -1), dtypes.real_part(dtype)))


@_example("jnp.array([[1.0, 2.0], [3.0, 4.0]])", "Array(-2., dtype=float32)", raises=_SQUARE)
def det(a: ArrayLike) -> Array:
    """The determinant. Beyond size 3 its derivative needs a regular matrix."""
    x = _matrix("det", a)
    return convert(_det(x), dtypes.to_inexact(as_operand(a, "det").dtype))


def _det(x: Array) -> Array:
    n = x.shape[-1]
    if n == 2:
        return x[..., 0, 0] * x[..., 1, 1] - x[..., 0, 1] * x[..., 1, 0]
    if n == 3:
        return (
            x[..., 0, 0] * (x[..., 1, 1] * x[..., 2, 2] - x[..., 1, 2] * x[..., 2, 1])
            - x[..., 0, 1] * (x[..., 1, 0] * x[..., 2, 2] - x[..., 1, 2] * x[..., 2, 0])
            + x[..., 0, 2] * (x[..., 1, 0] * x[..., 2, 1] - x[..., 1, 1] * x[..., 2, 0])
        )
    lu, pivots, _ = ops.lu(x)
    return _moderate_product(_lu_sign(lu, pivots), _diagonal(lu, 0, -2, -1))


def _moderate_product(sign: Array, x: Array) -> Array:
    """``sign`` times the product along the last axis. Exponents are summed, so that only the result may overflow."""
    exponent: Array | int = 0
    while x.shape[-1]:
        size = ops.abs(x) if x.dtype not in dtypes.COMPLEX else maximum(ops.abs(ops.real(x)), ops.abs(ops.imag(x)))
        _, powers = frexp(size)
        x, exponent = times_power(x, -powers), exponent + sum_(powers, -1)
        # So many numbers of at least 1/2 do not vanish.
        rest = -x.shape[-1] % 64 if x.shape[-1] > 64 else 0
        x = pad(x, [(0, 0)] * (x.ndim - 1) + [(0, rest)], constant_values=1)
        width = min(x.shape[-1], 64)
        x = prod(reshape(x, (*x.shape[:-1], x.shape[-1] // width, width)), -1)
        if x.shape[-1] == 1:
            return times_power(sign * x[..., 0], exponent)
    return sign


@_example("jnp.ones((3, 3))", "Array(1, dtype=int32)", raises="ValueError: both ``rtol`` and ``tol``.")
def matrix_rank(
    M: ArrayLike, rtol: ArrayLike | None = None, *, hermitian: bool = False, tol: ArrayLike | None = None
) -> Array:
    """The number of singular values above ``rtol`` times the largest, or above ``tol``, as int32.

    ``hermitian`` says that the matrix is, which is quicker.
    """
    if tol is not None and rtol is not None:
        raise ValueError("matrix_rank: only one of tol or rtol may be specified.")
    (x,) = promote_inexact("matrix_rank", M)
    if x.ndim < 2:
        return convert(any_(x != 0), dtypes.int32)
    x = _matrix("matrix_rank", x, square=False)
    s = svd(x, False, False, hermitian)
    if tol is None:
        if rtol is None:
            rtol = float(dtypes.float_info(x.dtype).eps) * np.max(x.shape[-2:])
        tol = max_(s, -1) * rtol
    return sum_(convert(s > as_operand(tol, "matrix_rank")[..., None], dtypes.int32), -1)


@_example("jnp.diag(jnp.array([8.0, 2.0]))", "Array(4., dtype=float32)")
def cond(x: ArrayLike, p: str | ArrayLike | None = None) -> Array:
    """The condition number: the norm of x times that of its inverse; for 2-norms, a ratio of singular values.

    Raises:
        ShapeError: no matrices; with another norm than 2 and -2, no square ones.
    """
    v = _matrix("cond", x, square=p not in (None, 2, -2))
    if p in (None, 2, -2):
        s = svdvals(v)
        return s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    r = norm(v, p, (-2, -1)) * norm(inv(v), p, (-2, -1))
    nan_inside = ops.reduce_or(isnan(v), axes=(v.ndim - 2, v.ndim - 1))
    return where(isnan(r) & ~nan_inside, math.inf, r)


# --- powers and tensors ---


@_example(
    "jnp.array([[1, 1], [1, 0]]), 10",
    "Array([[89, 55],\n       [55, 34]], dtype=int32)",
    "jnp.array([[2.0, 0.0], [0.0, 4.0]]), -1",
    "Array([[0.5 , 0.  ],\n       [0.  , 0.25]], dtype=float32)",
)
def matrix_power(a: ArrayLike, n: int) -> Array:
    """``a`` times itself ``n`` times, by squaring; negative powers by the inverse.

    Raises:
        ShapeError: no square matrices.
        ConcretizationTypeError: ``n`` is traced.
    """
    x = as_operand(a, "matrix_power")
    if x.ndim < 2 or x.shape[-1] != x.shape[-2]:
        raise ShapeError("linalg.matrix_power: needs square matrices", got=x.type)
    n = static_int("matrix_power", n)
    if n == 0:
        return broadcast_to_shape(eye(x.shape[-1], dtype=x.dtype), x.shape)
    if n < 0:
        x, n = inv(x), -n
    out: Array | None = None
    while n:
        if n % 2:
            out = x if out is None else matmul(out, x)
        n //= 2
        x = matmul(x, x) if n else x
    assert out is not None
    return out


def tensorinv(a: ArrayLike, ind: int = 2) -> Array:
    """The inverse in the sense of `tensordot(x, y, ind)`.

    Raises:
        ValueError: there are not as many elements before ``ind`` as after it, or ``ind`` is not positive.

    >>> x = jnp.eye(6).reshape(2, 3, 6)
    >>> jnp.linalg.tensorinv(x).shape
    (6, 2, 3)
    >>> jnp.tensordot(jnp.linalg.tensorinv(x), jnp.ones((2, 3)), 2).shape
    (6,)
    """
    x = as_operand(a, "tensorinv")
    ind = static_int("tensorinv", ind)
    if ind <= 0:
        raise ValueError(f"ind must be a positive integer; got {ind=}")
    left, right = x.shape[:ind], x.shape[ind:]
    n, m = math.prod(left), math.prod(right)
    if n != m:
        raise ValueError(f"product of dimensions before ind and after ind must agree; got {n} and {m}")
    return ops.reshape(inv(ops.reshape(x, shape=(n, m))), shape=(*right, *left))


@_example("2 * jnp.eye(6).reshape(2, 3, 6), jnp.ones((2, 3))", "Array([0.5, 0.5, 0.5, 0.5, 0.5, 0.5], dtype=float32)")
def tensorsolve(a: ArrayLike, b: ArrayLike, axes: Sequence[int] | None = None) -> Array:
    """The x with tensordot(a, x, x.ndim) = b.

    Raises:
        ValueError: shapes that do not fit.
    """
    x, y = promote_inexact("tensorsolve", a, b)
    if axes is not None:
        where_ = [as_axis("tensorsolve", i, x.ndim) for i in axes]
        x = moveaxis(x, tuple(where_), tuple(range(x.ndim - len(where_), x.ndim)))
    shape = x.shape[y.ndim :]
    if math.prod(x.shape[: y.ndim]) != math.prod(shape) or math.prod(shape) != y.size:
        raise ValueError("After moving axes to end, leading shape of a must match shape of b, and be square")
    flat = ops.reshape(x, shape=(y.size, math.prod(shape)))
    return ops.reshape(solve(flat, ops.reshape(y, shape=(y.size,))), shape=shape)
