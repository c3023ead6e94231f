"""Linear systems: triangular ones, Cholesky and LU factors, determinants and inverses."""

from __future__ import annotations

from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.lax import linalg as _lax
from nxjax.lax import stop_gradient
from nxjax.numpy.documented import example, shown
from nxjax.numpy.promotion import check_choice, promote_inexact
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.implicit import custom_linear_solve


def square(name: str, *xs: Any) -> list[Array]:
    """Float operands, the first of which holds square matrices."""
    found = promote_inexact(f"scipy.linalg.{name}", *xs)
    a = found[0]
    if a.ndim < 2 or a.shape[-1] != a.shape[-2]:
        raise ShapeError(f"scipy.linalg.{name}: needs square matrices", got=a.type, expected="[..., n, n]")
    return found


def adjoint(a: Array) -> Array:
    """Conjugate transposed matrices."""
    return jnp.conj(jnp.swapaxes(a, -1, -2))


@example("jnp.array([[4.0, 2.0], [2.0, 5.0]])", "[[2.0, 1.0], [0.0, 2.0]]", then=".tolist()")
def cholesky(a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The triangular factor of a positive definite matrix: U with U^H U = a, or L with L L^H = a if ``lower``.

    Args:
        a: ``[..., n, n]``, of which one triangle is read.
    """
    (v,) = square("cholesky", a)
    root = _lax.cholesky(v if lower else adjoint(v), symmetrize_input=False)
    return root if lower else adjoint(root)


@example("jnp.array([[4.0]])", "False", then="[1]")
def cho_factor(
    a: ArrayLike, lower: bool = False, overwrite_a: bool = False, check_finite: bool = True
) -> tuple[Array, bool]:
    """`cholesky` with ``lower``, for `cho_solve`."""
    return cholesky(a, lower), lower


@example("cho_factor(jnp.array([[4.0]])), jnp.array([2.0])", "[0.5]", then=".tolist()")
def cho_solve(
    c_and_lower: tuple[ArrayLike, Any], b: ArrayLike, overwrite_b: bool = False, check_finite: bool = True
) -> Array:
    """The solution of a x = b from `cho_factor` of a.

    Args:
        c_and_lower: a factor ``[..., n, n]``, and if it is the lower one.
        b: ``[n]`` or ``[..., n, k]``.
    """
    c, lower = c_and_lower
    first = solve_triangular(c, b, trans=0 if lower else 2, lower=bool(lower))
    return solve_triangular(c, first, trans=2 if lower else 0, lower=bool(lower))


def _is_vector(m: Array, b: Array) -> bool:
    """Whether a right-hand side is a vector (one per matrix), and not a matrix."""
    return b.ndim == 1 or (m.ndim == b.ndim + 1 and m.shape[-1] == b.shape[-1])


@example("jnp.array([[2.0, 9.0], [1.0, 1.0]]), jnp.array([2.0, 3.0]), lower=True", "[1.0, 2.0]", then=".tolist()")
def solve_triangular(
    a: ArrayLike,
    b: ArrayLike,
    trans: int | str = 0,
    lower: bool = False,
    unit_diagonal: bool = False,
    overwrite_b: bool = False,
    debug: bool | None = None,
    check_finite: bool = True,
) -> Array:
    """The solution of a x = b with triangular ``a``.

    Args:
        a: [..., n, n]; the other triangle is not read.
        b: [n] or [..., n, k].
        trans: 0 or "N" for a, 1 or "T" for its transpose, 2 or "C" for its adjoint.
        lower: the lower triangle of ``a`` is meant.
        unit_diagonal: the diagonal of ``a`` is 1 and not read.

    Raises:
        ShapeError: no square matrices, or a right-hand side of another size.
        ParameterError: another ``trans``.
    """
    m, v = square("solve_triangular", a, b)
    kinds = {0: 0, 1: 1, 2: 2, "N": 0, "T": 1, "C": 2}
    check_choice("scipy.linalg.solve_triangular: trans", trans, *kinds)
    kind = kinds[trans]
    vector = _is_vector(m, v)
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


@example('jnp.array([[2.0, 0.0], [0.0, 4.0]]), jnp.array([2.0, 2.0]), assume_a="pos"', "[1.0, 0.5]", then=".tolist()")
def solve(
    a: ArrayLike,
    b: ArrayLike,
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

    Raises:
        ShapeError: no square matrices, or a right-hand side of another size.
        ParameterError: another ``assume_a``.
    """
    check_choice("scipy.linalg.solve: assume_a", assume_a, "gen", "sym", "her", "pos")
    m, v = square("solve", a, b)
    if assume_a != "pos":
        return jnp.linalg.solve(m, v)
    vector = _is_vector(m, v)
    columns = v[..., None] if vector else v
    factor = cho_factor(stop_gradient(m), lower)
    x = custom_linear_solve(
        lambda y: jnp.matmul(m, y, precision="highest"),
        _fitted(m, columns),
        lambda _, y: cho_solve(factor, y),
        symmetric=True,
    )
    return x[..., 0] if vector else x


def _fitted(m: Array, columns: Array) -> Array:
    """Right-hand sides in the shape of the solutions."""
    if columns.ndim < 2 or columns.shape[-2] != m.shape[-1]:
        raise ShapeError("scipy.linalg.solve: right-hand side does not fit the matrix", got=f"{m.type}, {columns.type}")
    lead = jnp.broadcast_shapes(m.shape[:-2], columns.shape[:-2])
    return jnp.broadcast_to(columns, (*lead, *columns.shape[-2:]))


@example("jnp.array([[4.0]])", "[[0.25]]", then=".tolist()", raises="ShapeError: no square matrices.")
def inv(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The inverse of ``a`` ``[..., n, n]``."""
    return jnp.linalg.inv(*square("inv", a))


@shown("float(det(jnp.array([[2.0, 0.0], [0.0, 4.0]])))", "8.0", raises="ShapeError: no square matrices.")
def det(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> Array:
    """The determinant of ``a`` ``[..., n, n]``."""
    return jnp.linalg.det(*square("det", a))


@example("jnp.array([[1.0, 2.0], [4.0, 4.0]])", "[1, 1]", then="[1].tolist()")
def lu_factor(a: ArrayLike, overwrite_a: bool = False, check_finite: bool = True) -> tuple[Array, Array]:
    """L and U in one matrix, and the row that each row was exchanged with (int32), for `lu_solve`.

    Args:
        a: ``[..., m, n]``.
    """
    (v,) = promote_inexact("scipy.linalg.lu_factor", a)
    factors, pivots, _ = _lax.lu(v)
    return factors, pivots


@example("lu_factor(jnp.array([[1.0, 0.0], [4.0, 4.0]])), jnp.array([1.0, 8.0])", "[1.0, 1.0]", then=".tolist()")
def lu_solve(
    lu_and_piv: tuple[ArrayLike, Any],
    b: ArrayLike,
    trans: int = 0,
    overwrite_b: bool = False,
    check_finite: bool = True,
) -> Array:
    """The solution of a x = b from `lu_factor` of a; ``trans`` 1 and 2 are for its transpose and adjoint.

    Args:
        lu_and_piv: factors ``[..., n, n]`` and exchanges ``[..., n]``.
        b: ``[n]`` or ``[..., n, k]``.
    """
    factors, pivots = lu_and_piv
    m, v = square("lu_solve", factors, b)
    order = _lax.lu_pivots_to_permutation(pivots, m.shape[-1])
    vector = _is_vector(m, v)
    columns = v[..., None] if vector else v
    lead = jnp.broadcast_shapes(m.shape[:-2], columns.shape[:-2])
    spread = lambda x, k: jnp.broadcast_to(x, (*lead, *x.shape[x.ndim - k :]))
    x = _lax.lu_solve(spread(m, 2), spread(order, 1), spread(columns, 2), trans)
    return x[..., 0] if vector else x


@shown("p, l, u = lu(jnp.array([[1.0, 2.0], [4.0, 4.0]]))", "", "u.tolist()", "[[4.0, 4.0], [0.0, 1.0]]")
def lu(
    a: ArrayLike, permute_l: bool = False, overwrite_a: bool = False, check_finite: bool = True, p_indices: bool = False
) -> Array | tuple[Array, ...]:
    """``(P, L, U)`` with a = P L U, or ``(P L, U)`` with ``permute_l``; ``p_indices`` gives P as row numbers.

    Args:
        a: ``[..., m, n]``.
    """
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
