"""Factorizations of matrices: singular values, eigenvalues, QR, Schur, Hessenberg and polar forms."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.lax import linalg as _lax
from nxjax.numpy.documented import example, shown
from nxjax.numpy.promotion import as_operand, check_choice, promote_inexact
from nxjax.scipy.linalg.systems import adjoint, square
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.cond import cond
from nxjax.transforms.control.while_loop import fori_loop


@example("jnp.array([[3.0, 0.0], [0.0, 4.0]]), compute_uv=False", "[4.0, 3.0]", then=".tolist()")
def svd(
    a: ArrayLike,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Array | tuple[Array, ...]:
    """``(U, s, V^H)`` with a = U diag(s) V^H and descending s, or ``s`` alone.

    Args:
        a: ``[..., m, n]``.
        full_matrices: U and V are square.
        compute_uv: also return U and V^H.
    """
    found = jnp.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(found) if compute_uv else found


@example("jnp.array([[2.0, 0.0], [0.0, 1.0]]), eigvals_only=True", "[1.0, 2.0]", then=".tolist()")
def eigh(
    a: ArrayLike,
    b: ArrayLike | None = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Array | tuple[Array, ...]:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix, of which (a + a^H) / 2 is taken.

    Args:
        a: ``[..., n, n]``.
        eigvals_only: return no eigenvectors.
        b, eigvals, type: other values than None, None and 1 are not available.

    Raises:
        ShapeError: no square matrices.
        NotImplementedError: ``b``, ``eigvals`` or another ``type``.
    """
    if b is not None or eigvals is not None or type != 1:
        raise NotImplementedError("scipy.linalg.eigh: only b=None, eigvals=None and type=1")
    (v,) = square("eigh", a)
    vectors, w = _lax.eigh(v, lower=lower)
    return w if eigvals_only else (w, vectors)


@example("jnp.array([0.0, 0.0]), jnp.array([1.0]), eigvals_only=True", "[-1.0, 1.0]", then=".tolist()")
def eigh_tridiagonal(
    d: ArrayLike,
    e: ArrayLike,
    *,
    eigvals_only: bool = False,
    select: str = "a",
    select_range: tuple[float, float] | None = None,
    tol: float | None = None,
    key: ArrayLike | None = None,
) -> Array | tuple[Array, ...]:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian tridiagonal matrix.

    Args:
        d: diagonal ``[n]``, whose real part counts.
        e: elements above the diagonal ``[n - 1]``, of the same dtype.
        eigvals_only: return no eigenvectors.
        select: ``"a"`` for all, ``"i"`` for those of the positions in ``select_range``, both ends included.
        tol, key: have no effect.

    Raises:
        ShapeError: ``e`` is not one shorter than ``d``.
        DtypeError: dtypes that differ, or no floats.
        ParameterError: another ``select``, or no pair ``select_range``.
        NotImplementedError: ``select="v"``, whose results have shapes that depend on values.
    """
    name = "scipy.linalg.eigh_tridiagonal"
    diagonal, above = as_operand(d, name), as_operand(e, name)
    if diagonal.dtype != above.dtype or diagonal.dtype not in (dtypes.float32, dtypes.float64, *dtypes.COMPLEX):
        got = f"{diagonal.type}, {above.type}"
        raise DtypeError(f"{name}: diagonals are of one float or complex dtype", got=got)
    n = diagonal.shape[0] if diagonal.ndim == 1 else -1
    if diagonal.ndim != 1 or above.ndim != 1 or above.shape[0] != max(n - 1, 0):
        raise ShapeError(f"{name}: diagonals do not fit", got=f"{diagonal.type}, {above.type}", expected="[n], [n - 1]")
    if select == "v":
        raise NotImplementedError(f"{name}: select='v' gives results whose shape depends on values")
    check_choice(f"{name}: select", select, "a", "i")
    if select == "i" and (select_range is None or select_range[0] > select_range[1]):
        raise ParameterError(f"{name}: select_range", got=select_range, expected="(first, last)")
    middle = jnp.diag(jnp.real(diagonal).astype(diagonal.dtype))
    whole = middle if n < 2 else middle + jnp.diag(above, 1) + jnp.diag(jnp.conj(above), -1)
    vectors, w = _lax.eigh(whole)
    if select == "i" and select_range is not None and n > 1:
        first, last = (int(i) for i in select_range)
        w, vectors = w[first : last + 1], vectors[:, first : last + 1]
    return w if eigvals_only else (w, vectors)


@shown('[x.shape for x in qr(jnp.ones((4, 2)), mode="economic", pivoting=True)]', "[(4, 2), (2, 2), (2,)]")
def qr(
    a: ArrayLike,
    overwrite_a: bool = False,
    lwork: int | None = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Array | tuple[Array, ...]:
    """``(Q, R)`` with a = Q R.

    Args:
        a: ``[..., m, n]``.
        mode: ``"full"``, ``"economic"`` (the smaller factors) or ``"r"`` (R alone, in a tuple).
        pivoting: factorize a[:, p] instead, and also return the permutation p.

    Raises:
        ParameterError: another ``mode``.
        ShapeError: no matrices.
    """
    check_choice("scipy.linalg.qr: mode", mode, "full", "economic", "r")
    (v,) = promote_inexact("scipy.linalg.qr", a)
    found = tuple(_lax.qr(v, pivoting=pivoting, full_matrices=mode != "economic"))
    return found[1:] if mode == "r" else found


@shown("jnp.abs(qr_multiply(jnp.array([[0.0], [2.0]]), jnp.array([1.0, 3.0]))[0]).tolist()", "[3.0]")
def qr_multiply(
    a: ArrayLike,
    c: ArrayLike,
    mode: str = "right",
    pivoting: bool = False,
    conjugate: bool = False,
    overwrite_a: bool = False,
    overwrite_c: bool = False,
) -> Array | tuple[Array, ...]:
    """``(c Q, R)`` (or ``(Q c, R)`` for ``mode="left"``) with a = Q R in economic size, without making Q.

    Args:
        a: ``[..., m, n]``.
        c: ``[..., p, m]``, or ``[..., min(m, n), p]`` for ``mode="left"``; or one vector.
        pivoting: factorize a[:, p] instead, and also return the permutation p.
        conjugate: multiply with the conjugate of Q.

    Raises:
        ParameterError: another ``mode``.
        ShapeError: ``c`` does not fit Q.
    """
    m, v = promote_inexact("scipy.linalg.qr_multiply", a, c)
    check_choice("scipy.linalg.qr_multiply: mode", mode, "right", "left")
    vector = v.ndim == 1
    if vector:
        v = v[:, None] if mode == "left" else v[None, :]
    rows, columns = m.shape[-2:]
    k = min(rows, columns)
    if v.ndim < 2 or (v.shape[-2] != k if mode == "left" else v.shape[-1] != rows):
        raise ShapeError(f"scipy.linalg.qr_multiply: c does not fit Q for mode={mode!r}", got=f"{m.type}, {v.type}")
    lead = jnp.broadcast_shapes(m.shape[:-2], v.shape[:-2])
    m = jnp.broadcast_to(m, (*lead, rows, columns))
    v = jnp.broadcast_to(v, (*lead, *v.shape[-2:]))
    found: tuple[Array, ...] = ()
    if pivoting:
        *_, order = _lax.qr(m, pivoting=True)
        found = (order,)
        m = jnp.take_along_axis(m, order[..., None, :], -1)
    packed, taus = _lax.geqrf(m)
    if mode == "left":
        v = jnp.concatenate([v, jnp.zeros((*lead, rows - k, v.shape[-1]), v.dtype)], -2)
    # conj(Q) v = conj(Q conj(v)).
    turn = jnp.conj if conjugate else lambda x: x
    y = turn(_lax.ormqr(packed, taus, turn(v), left=mode == "left"))
    y = y[..., :k] if mode == "right" else y
    return (y.ravel() if vector else y), jnp.triu(packed[..., :k, :]), *found


@example("jnp.array([[1.0, 2.0], [0.0, 3.0]])", "[[1.0, 2.0], [0.0, 3.0]]", then="[0].tolist()")
def schur(a: ArrayLike, output: str = "real") -> tuple[Array, Array]:
    """``(T, Z)`` with a = Z T Z^H, unitary Z and upper triangular T.

    T of a real matrix has a 2 by 2 block per pair of conjugate eigenvalues. Signs of the columns of Z are free. Has no
    derivative.

    Args:
        a: ``[..., n, n]``.
        output: ``"complex"`` makes real matrices complex first.

    Raises:
        ParameterError: another ``output``.
        ShapeError: no square matrices.
    """
    check_choice("scipy.linalg.schur: output", output, "real", "complex")
    (v,) = square("schur", a)
    t, z = _lax.schur(v.astype(dtypes.complex_of(v.dtype)) if output == "complex" else v)
    return t, z


def rsf2csf(T: ArrayLike, Z: ArrayLike, check_finite: bool = True) -> tuple[Array, Array]:
    """The complex Schur form of a real one, by a rotation per 2 by 2 block (Golub and Van Loan, 7.4).

    Args:
        T, Z: ``[..., n, n]``, from `schur`.

    Raises:
        ShapeError: no square matrices of one size.

    >>> t, z = rsf2csf(*schur(jnp.array([[0.0, 2.0], [-2.0, 0.0]])))
    >>> sorted(round(x.imag) for x in jnp.diag(t).tolist())
    [-2, 2]
    """
    t, z = (as_operand(x, "scipy.linalg.rsf2csf") for x in (T, Z))
    for x in (t, z):
        if x.ndim < 2 or x.shape[-1] != x.shape[-2] or x.shape[-1] != t.shape[-1]:
            raise ShapeError("scipy.linalg.rsf2csf: needs square matrices of one size", got=f"{t.type}, {z.type}")
    return jnp.vectorize(_rotated, signature="(n,n),(n,n)->(n,n),(n,n)")(t, z)


def _rotated(t: Array, z: Array) -> tuple[Array, Array]:
    t, z = promote_inexact("scipy.linalg.rsf2csf", t, z)
    dtype = dtypes.complex_of(t.dtype)
    t, z = t.astype(dtype), z.astype(dtype)
    n = t.shape[0]
    eps = float(dtypes.float_info(dtypes.real_part(dtype)).eps)
    place = np.arange(n)

    def turn(m: Any, t: Array, z: Array) -> tuple[Array, Array]:
        # An eigenvalue of the block less its last element: the larger one, or the one above the real axis.
        half = (t[m - 1, m - 1] - t[m, m]) * 0.5
        root = jnp.sqrt(half * half + t[m - 1, m] * t[m, m - 1])
        mu = half + jnp.where((half * jnp.conj(root)).real < 0, -root, root)
        r = jnp.sqrt(jnp.abs(mu) ** 2 + jnp.abs(t[m, m - 1]) ** 2).astype(dtype)
        c, s = mu / r, t[m, m - 1] / r
        g = jnp.stack([jnp.stack([jnp.conj(c), s]), jnp.stack([-s, c])])
        pair = jnp.stack([m - 1, m])
        rows, after = t[pair], jnp.asarray(place) >= m - 1
        t = t.at[pair].set(jnp.where(after, g @ rows, rows))
        columns, above = t[:, pair], (jnp.asarray(place) < m + 1)[:, None]
        t = t.at[:, pair].set(jnp.where(above, columns @ adjoint(g), columns))
        return t, z.at[:, pair].set(z[:, pair] @ adjoint(g))

    def step(i: Any, carry: Any) -> Any:
        t, z = carry
        m = n - i
        below = jnp.abs(t[m, m - 1])
        large = below > eps * (jnp.abs(t[m - 1, m - 1]) + jnp.abs(t[m, m]))
        t, z = cond(large, lambda t, z: turn(m, t, z), lambda t, z: (t, z), t, z)
        return t.at[m, m - 1].set(0), z

    return fori_loop(1, n, step, (t, z)) if n > 1 else (t, z)


def hessenberg(
    a: ArrayLike, *, calc_q: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> Array | tuple[Array, ...]:
    """Q^H a Q for a unitary Q, zero below the first subdiagonal; ``(H, Q)`` with ``calc_q``. Has no derivative.

    Args:
        a: ``[..., n, n]``.

    >>> h, q = hessenberg(jnp.ones((3, 3)), calc_q=True)
    >>> bool(jnp.allclose(q @ h @ q.T, 1.0, atol=1e-5))
    True
    """
    (v,) = square("hessenberg", a)
    n = v.shape[-1]
    if not n:
        return (v, v) if calc_q else v
    packed, taus = _lax.hessenberg(v)
    h = jnp.triu(packed, -1)
    if not calc_q:
        return h
    q = _lax.householder_product(packed[..., 1:, :-1], taus)
    edge = [(0, 0)] * (v.ndim - 2) + [(1, 0), (1, 0)]
    first = np.zeros((n, n))
    first[0, 0] = 1
    return h, jnp.pad(q, edge) + first.astype(v.dtype)


@shown("u, p = polar(jnp.array([[0.0, 2.0], [1.0, 0.0]]))", "", "jnp.round(jnp.diag(p), 4).tolist()", "[1.0, 2.0]")
def polar(
    a: ArrayLike,
    side: str = "right",
    *,
    method: str = "qdwh",
    eps: float | None = None,
    max_iterations: int | None = None,
) -> tuple[Array, Array]:
    """``(U, P)`` with a = U P (or P U for ``side="left"``), orthonormal U and positive semidefinite P.

    Args:
        a: ``[..., m, n]``.
        side: of P: ``"right"`` or ``"left"``.
        method: ``"qdwh"`` (see `lax.linalg.qdwh`; for m >= n on the right, m < n on the left) or ``"svd"``.
        eps, max_iterations: of ``"qdwh"``.

    Raises:
        ShapeError: no matrices.
        ParameterError: another ``side`` or ``method``.
        NotImplementedError: ``method="qdwh"`` of a shape and side that it has no form for.
    """
    (v,) = promote_inexact("scipy.linalg.polar", a)
    if v.ndim < 2:
        raise ShapeError("scipy.linalg.polar: not a matrix", got=v.type, expected="[..., m, n]")
    check_choice("scipy.linalg.polar: side", side, "right", "left")
    check_choice("scipy.linalg.polar: method", method, "qdwh", "svd")
    right = side == "right"
    m, n = v.shape[-2:]
    if method == "svd":
        u, s, vh = _lax.svd(v, full_matrices=False)
        s = s.astype(v.dtype)
        inner = adjoint(vh) * s[..., None, :]
        return u @ vh, inner @ vh if right else (u * s[..., None, :]) @ adjoint(u)
    if right != (m >= n):
        raise NotImplementedError(f"scipy.linalg.polar: method='qdwh' has no {side} form of {m} by {n} matrices")

    def one(x: Array) -> tuple[Array, Array]:
        u, p, *_ = _lax.qdwh(x if right else adjoint(x), eps=eps, max_iterations=max_iterations)
        return (u, p) if right else (adjoint(u), adjoint(p))

    k = "n" if right else "m"
    return jnp.vectorize(one, signature=f"(m,n)->(m,n),({k},{k})")(v)
