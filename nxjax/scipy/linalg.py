"""`nx.scipy.linalg`: solving, factorizing and functions of matrices, under SciPy's names, as `jax.scipy.linalg`.

Operands are batches ``[..., m, n]``; integers become float. The arguments ``overwrite_a``, ``overwrite_b`` and
``check_finite`` are accepted and have no effect.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.lax import linalg as _lax
from nxjax.numpy.promotion import promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.core import Array


def _square(name: str, *xs: Any) -> list[Array]:
    """Float operands, the first of which holds square matrices."""
    found = promote_inexact(f"scipy.linalg.{name}", *xs)
    a = found[0]
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"scipy.linalg.{name}: needs square matrices", got=a.type, expected="[..., n, n]")
    return found


def _adjoint(a: Array) -> Array:
    return jnp.conj(jnp.swapaxes(a, -1, -2))


def cholesky(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The triangular factor of a positive definite matrix: U with U^H U = a, or L with L L^H = a if ``lower``."""
    (v,) = _square("cholesky", a)
    root = _lax.cholesky(v if lower else _adjoint(v), symmetrize_input=False)
    return root if lower else _adjoint(root)


def cho_factor(a: Any, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, bool]:
    """`cholesky` with ``lower``, for `cho_solve`."""
    return cholesky(a, lower), lower


def cho_solve(c_and_lower: Any, b: Any, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """The solution of a x = b from `cho_factor` of a."""
    c, lower = c_and_lower
    first = solve_triangular(c, b, trans=0 if lower else 2, lower=bool(lower))
    return solve_triangular(c, first, trans=2 if lower else 0, lower=bool(lower))


def solve_triangular(
    a: Any,
    b: Any,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: Any = None,
    check_finite: bool = True,
) -> Array:
    """The solution of a x = b with triangular ``a``.

    Args:
        a: [..., n, n]; the other triangle is not read.
        b: [n] or [..., n, k].
        trans: 0 or "N" for a, 1 or "T" for its transpose, 2 or "C" for its adjoint.
        lower: the lower triangle of ``a`` is meant.
        unit_diagonal: the diagonal of ``a`` is 1 and not read.
    """
    m, v = _square("solve_triangular", a, b)
    kinds = {0: 0, "N": 0, 1: 1, "T": 1, 2: 2, "C": 2}
    if trans not in kinds:
        raise ParameterError(
            "scipy.linalg.solve_triangular: trans", got=repr(trans), expected="0, 1, 2, 'N', 'T' or 'C'"
        )
    kind = kinds[trans]
    vector = v.ndim == m.ndim - 1
    columns = v[..., None] if vector else v
    lead = jnp.broadcast_shapes(m.shape[:-2], columns.shape[:-2])
    m = jnp.broadcast_to(m, (*lead, *m.shape[-2:]))
    columns = jnp.broadcast_to(columns, (*lead, *columns.shape[-2:]))
    x = _lax.triangular_solve(
        m,
        columns,
        left_side=True,
        lower=bool(lower),
        transpose_a=kind > 0,
        conjugate_a=kind == 2,
        unit_diagonal=bool(unit_diagonal),
    )
    return x[..., 0] if vector else x


def solve(
    a: Any,
    b: Any,
    lower: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    debug: bool = False,
    check_finite: bool = True,
    assume_a: str = "gen",
) -> Array:
    """The solution of a x = b.

    Args:
        a: [..., n, n].
        b: [n] or [..., n, k].
        lower: for ``assume_a="pos"``, read the lower triangle of ``a``.
        assume_a: ``"gen"``, ``"sym"``, ``"her"`` (by LU) or ``"pos"`` (by Cholesky).
    """
    if assume_a not in ("gen", "sym", "her", "pos"):
        raise ParameterError("scipy.linalg.solve: assume_a", got=repr(assume_a), expected="gen, sym, her or pos")
    m, v = _square("solve", a, b)
    return cho_solve(cho_factor(m, lower), v) if assume_a == "pos" else jnp.linalg.solve(m, v)


def inv(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse."""
    return jnp.linalg.inv(*_square("inv", a))


def det(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant."""
    return jnp.linalg.det(*_square("det", a))


def svd(
    a: Any,
    full_matrices: bool = True,
    compute_uv: bool = True,
    overwrite_a: bool = False,
    check_finite: bool = True,
    lapack_driver: str = "gesdd",
) -> Any:
    """``(U, s, V^H)`` with a = U diag(s) V^H, or ``s`` alone."""
    found = jnp.linalg.svd(a, full_matrices=full_matrices, compute_uv=compute_uv)
    return tuple(found) if compute_uv else found


def eigh(
    a: Any,
    b: Any = None,
    lower: bool = True,
    eigvals_only: bool = False,
    overwrite_a: bool = False,
    overwrite_b: bool = False,
    turbo: bool = True,
    eigvals: None = None,
    type: int = 1,
    check_finite: bool = True,
) -> Any:
    """Eigenvalues, ascending, and eigenvectors of a Hermitian matrix; ``lower`` says which triangle is read."""
    if b is not None or eigvals is not None or type != 1:
        raise NotImplementedError("scipy.linalg.eigh: only b=None, eigvals=None and type=1")
    (v,) = _square("eigh", a)
    w, vectors = jnp.linalg.eigh(v, UPLO="L" if lower else "U", symmetrize_input=False)
    return w if eigvals_only else (w, vectors)


def qr(
    a: Any,
    overwrite_a: bool = False,
    lwork: Any = None,
    mode: str = "full",
    pivoting: bool = False,
    check_finite: bool = True,
) -> Any:
    """``(Q, R)`` with a = Q R.

    Args:
        a: [..., m, n].
        mode: ``"full"``, ``"economic"`` (the smaller factors) or ``"r"`` (R alone).
        pivoting: also give the permutation of columns that was factorized.
    """
    if mode not in ("full", "economic", "r"):
        raise ParameterError("scipy.linalg.qr: mode", got=repr(mode), expected="full, economic or r")
    (v,) = promote_inexact("scipy.linalg.qr", a)
    found = tuple(_lax.qr(v, pivoting=pivoting, full_matrices=mode != "economic"))
    return found[1:] if mode == "r" else found


def lu_factor(a: Any, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """L and U in one matrix, and the row that each row was exchanged with, for `lu_solve`."""
    (v,) = _square("lu_factor", a)
    factors, pivots, _ = _lax.lu(v)
    return factors, pivots


def lu_solve(lu_and_piv: Any, b: Any, trans: int = 0, overwrite_b: bool = False, check_finite: bool = True) -> Array:
    """The solution of a x = b from `lu_factor` of a; ``trans`` 1 and 2 are for its transpose and adjoint."""
    factors, pivots = lu_and_piv
    m, v = promote_inexact("scipy.linalg.lu_solve", factors, b)
    return _lax.lu_solve(m, _lax.lu_pivots_to_permutation(pivots, m.shape[-1]), v, trans)


def lu(
    a: Any, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False
) -> Any:
    """``(P, L, U)`` with a = P L U, or ``(P L, U)`` with ``permute_l``; ``p_indices`` gives P as row numbers."""
    (v,) = promote_inexact("scipy.linalg.lu", a)
    factors, _, order = _lax.lu(v)
    m, n = v.shape[-2:]
    k = min(m, n)
    lower = jnp.tril(factors, -1)[..., :, :k] + jnp.eye(m, k, dtype=v.dtype)
    upper = jnp.triu(factors)[..., :k, :]
    if p_indices and not permute_l:
        return jnp.argsort(order, axis=-1), lower, upper
    p = jnp.swapaxes(jnp.eye(m, dtype=dtypes.real_part(v.dtype))[order], -1, -2)
    return (jnp.matmul(p.astype(v.dtype), lower), upper) if permute_l else (p, lower, upper)


# Padé coefficients and the norms up to which an order is exact to rounding (Higham, "The scaling and squaring method
# for the matrix exponential revisited", 2005; table 2.3, and its single-precision counterpart).
_ORDERS = {
    False: ((3, 4.258730016922831e-1), (5, 1.880152677804762), (7, 3.925724783138660)),
    True: (
        (3, 1.495585217958292e-2),
        (5, 2.539398330063230e-1),
        (7, 9.504178996162932e-1),
        (9, 2.097847961257068),
        (13, 5.371920351148152),
    ),
}


def _pade(order: int) -> list[float]:
    """Coefficients of the numerator of exp's diagonal Padé approximant."""
    top = math.factorial(2 * order)
    return [
        math.factorial(2 * order - j) * math.factorial(order) / (top * math.factorial(order - j) * math.factorial(j))
        for j in range(order + 1)
    ]


def expm(A: Any, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The matrix exponential, by scaling and squaring; NaN if more than ``max_squarings`` are needed.

    ``upper_triangular`` is accepted; the result does not depend on it.
    """
    from nxjax.transforms.control.while_loop import fori_loop

    (a,) = _square("expm", A)
    order, limit = _ORDERS[dtypes.real_part(a.dtype) == dtypes.float64][-1]
    norm = jnp.max(jnp.sum(jnp.abs(a), axis=-2), axis=-1) if a.size else jnp.zeros(a.shape[:-2])
    needed = jnp.maximum(jnp.ceil(jnp.log2(jnp.maximum(norm, limit) / limit)), 0)
    squarings = jnp.minimum(needed, max_squarings)
    scaled = a / jnp.exp2(squarings)[..., None, None].astype(a.dtype)
    coefficients = _pade(order)
    identity = jnp.eye(a.shape[-1], dtype=a.dtype)
    square = jnp.matmul(scaled, scaled)
    power, odd, even = identity, identity * coefficients[1], identity * coefficients[0]
    for j in range(2, order + 1, 2):
        power = jnp.matmul(power, square)
        even = even + coefficients[j] * power
        if j + 1 <= order:
            odd = odd + coefficients[j + 1] * power
    odd = jnp.matmul(scaled, odd)
    result = jnp.linalg.solve(even - odd, jnp.broadcast_to(even + odd, a.shape))

    def again(i: Any, r: Array) -> Array:
        return jnp.where((i < squarings)[..., None, None], jnp.matmul(r, r), r)

    result = fori_loop(0, max_squarings, again, result)
    return jnp.where((needed > max_squarings)[..., None, None], np.nan, result)


def block_diag(*arrs: Any) -> Array:
    """A matrix with the given ones along its diagonal, zeros elsewhere."""
    blocks = [jnp.atleast_2d(jnp.asarray(x)) for x in (arrs or (jnp.zeros((1, 0)),))]
    for x in blocks:
        if x.ndim > 2:
            raise ShapeError("scipy.linalg.block_diag: blocks have at most 2 dimensions", got=x.type)
    width = sum(x.shape[1] for x in blocks)
    rows: list[Array] = []
    left = 0
    dtype = jnp.result_type(*blocks)
    for x in blocks:
        right = width - left - x.shape[1]
        rows.append(jnp.pad(x.astype(dtype), ((0, 0), (left, right))))
        left += x.shape[1]
    return jnp.concatenate(rows)


def toeplitz(c: Any, r: Any = None) -> Array:
    """Constant along diagonals, with first column ``c`` and first row ``r`` (by default the conjugate of ``c``)."""
    column = jnp.asarray(c).reshape(-1)
    row = jnp.conj(column) if r is None else jnp.asarray(r).reshape(-1)
    m, n = column.shape[0], row.shape[0]
    values = jnp.concatenate([jnp.flip(column, 0), row[1:]])
    index = (m - 1) - np.arange(m)[:, None] + np.arange(n)[None, :]
    return values[index]


def hilbert(n: int) -> Array:
    """The matrix 1 / (i + j + 1)."""
    i = np.arange(n)
    return jnp.asarray(1 / (i[:, None] + i[None, :] + 1), float)
