"""`nx.scipy.sparse.linalg`: linear systems solved by products with the matrix alone.

Unknowns are pytrees, seen as one vector. Solutions are differentiated through the equation, not through the iterations.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ShapeError, TreeError
from nxjax.flatten_util import ravel_pytree
from nxjax.numpy.promotion import check_choice
from nxjax.scipy.linalg import solve_triangular
from nxjax.trace import dtypes, tree
from nxjax.trace.core import Array
from nxjax.transforms.control.implicit import custom_linear_solve
from nxjax.transforms.control.while_loop import fori_loop, while_loop

__all__ = ["bicgstab", "cg", "gmres"]

Product = Callable[[Any], Any]


def _dot(x: Array, y: Array) -> Array:
    return jnp.vdot(x, y, precision="highest")


def _times(a: Array, x: Array) -> Array:
    return jnp.matmul(a, x, precision="highest")


def _product(name: str, a: Any) -> Product:
    """A matrix, or a function that multiplies with one, as such a function."""
    if callable(a):
        return a
    if isinstance(a, (np.ndarray, Array)) or hasattr(a, "__matmul__"):
        if len(a.shape) != 2 or a.shape[0] != a.shape[1]:
            raise ShapeError(f"scipy.sparse.linalg.{name}: needs a square matrix", got=a.shape, expected="[n, n]")
        return lambda x: _times(a, x) if isinstance(a, (np.ndarray, Array)) else a @ x
    raise TypeError(f"scipy.sparse.linalg.{name}: a linear operator is a function or a matrix, not {a!r}")


def _solved(name: str, A: Any, b: Any, x0: Any, M: Any, solver: Callable[..., Array], symmetric: bool) -> Any:
    """The solution by ``solver(product, preconditioner, b, x0)`` of vectors."""
    apply, condition = _product(name, A), (None if M is None else _product(name, M))
    b = tree.map(jnp.asarray, b)
    x0 = tree.map(jnp.zeros_like, b) if x0 is None else tree.map(jnp.asarray, x0)
    if tree.flatten(x0)[1] != tree.flatten(b)[1]:
        raise TreeError(
            f"scipy.sparse.linalg.{name}: x0 and b differ in structure",
            got=tree.flatten(x0)[1],
            expected=tree.flatten(b)[1],
        )
    leaves = tree.leaves(b)
    shapes = [v.shape for v in tree.leaves(x0)]
    if shapes != [v.shape for v in leaves]:
        raise ShapeError(
            f"scipy.sparse.linalg.{name}: x0 and b differ in shape", got=shapes, expected=[v.shape for v in leaves]
        )
    inexact = lambda v: v if v.dtype in dtypes.INEXACT else v.astype(float)
    b, x0 = tree.map(inexact, b), tree.map(inexact, x0)
    start, _ = ravel_pytree(x0)

    def solve(product: Product, rhs: Any) -> Any:
        flat, back = ravel_pytree(rhs)
        line = lambda f: lambda v: ravel_pytree(f(back(v)))[0].astype(flat.dtype)
        first = (lambda v: v) if condition is None else line(condition)
        return back(solver(line(product), first, flat, start.astype(flat.dtype)))

    real = all(v.dtype not in dtypes.COMPLEX for v in tree.leaves(b))
    return custom_linear_solve(apply, b, solve, solve, symmetric=symmetric and real)


def _size(b: Any) -> int:
    return sum(int(np.prod(np.shape(v))) for v in tree.leaves(b))


def _enough(b: Array, tol: Any, atol: Any) -> Array:
    """The square of the residual's norm at which to stop."""
    return jnp.maximum(jnp.square(tol) * _dot(b, b).real, jnp.square(atol))


def cg(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """``(x, None)`` with A x = b for a positive definite A, by conjugate gradients (M. Hestenes and E. Stiefel, 1952).

    Args:
        A: a function that multiplies a pytree like b, or a matrix.
        b: right-hand side.
        x0: where to start; zeros by default.
        tol, atol: it stops where the residual's norm is below ``max(tol * norm(b), atol)``.
        maxiter: 10 times the number of unknowns by default.
        M: like A, an approximate inverse of it.

    >>> x, _ = cg(jnp.array([[4.0, 0.0], [0.0, 2.0]]), jnp.array([4.0, 4.0]))
    >>> jnp.round(x, 4).tolist()
    [1.0, 2.0]
    """
    limit = 10 * _size(b) if maxiter is None else maxiter

    def solver(product: Product, condition: Product, b: Array, x: Array) -> Array:
        enough = _enough(b, tol, atol)

        def unfinished(state: Any) -> Any:
            _, r, _, _, k = state
            return (_dot(r, r).real > enough) & (k < limit)

        def step(state: Any) -> Any:
            x, r, gamma, p, k = state
            ap = product(p)
            alpha = gamma / _dot(p, ap).real.astype(b.dtype)
            x, r = x + alpha * p, r - alpha * ap
            z = condition(r)
            following = _dot(r, z).real.astype(b.dtype)
            return x, r, following, z + following / gamma * p, k + 1

        r = b - product(x)
        z = condition(r)
        start = (x, r, _dot(r, z).real.astype(b.dtype), z, jnp.zeros((), int))
        return while_loop(unfinished, step, start)[0]

    return _solved("cg", A, b, x0, M, solver, True), None


def bicgstab(
    A: Any, b: Any, x0: Any = None, *, tol: float = 1e-5, atol: float = 0.0, maxiter: int | None = None, M: Any = None
) -> tuple[Any, None]:
    """``(x, None)`` with A x = b, by stabilized biconjugate gradients (H. van der Vorst, 1992).

    The arguments are those of `cg`; A may be any regular matrix.

    >>> x, _ = bicgstab(jnp.array([[4.0, 1.0], [0.0, 2.0]]), jnp.array([6.0, 4.0]))
    >>> jnp.round(x, 4).tolist()
    [1.0, 2.0]
    """
    limit = 10 * _size(b) if maxiter is None else maxiter

    def solver(product: Product, condition: Product, b: Array, x: Array) -> Array:
        enough = _enough(b, tol, atol)

        def unfinished(state: Any) -> Any:
            r, k = state[1], state[-1]
            return (_dot(r, r).real > enough) & (k < limit) & (k >= 0)

        def step(state: Any) -> Any:
            x, r, shadow, alpha, omega, rho, p, q, k = state
            following = _dot(shadow, r)
            beta = following / rho * alpha / omega
            p = r + beta * (p - omega * q)
            p_hat = condition(p)
            q = product(p_hat)
            alpha = following / _dot(shadow, q)
            s = r - alpha * q
            early = _dot(s, s).real < enough
            s_hat = condition(s)
            t = product(s_hat)
            omega = _dot(t, s) / _dot(t, t)
            half = x + alpha * p_hat
            x = jnp.where(early, half, half + omega * s_hat)
            r = jnp.where(early, s, s - omega * t)
            # Where a product vanishes, it cannot go on.
            stuck = (omega == 0) | (alpha == 0) | (following == 0)
            return x, r, shadow, alpha, omega, following, p, q, jnp.where(stuck, -1, k + 1)

        r = b - product(x)
        one = jnp.ones((), b.dtype)
        return while_loop(unfinished, step, (x, r, r, one, one, one, r, r, jnp.zeros((), int)))[0]

    return _solved("bicgstab", A, b, x0, M, solver, False), None


def _normalized(x: Array, least: Any) -> tuple[Array, Array]:
    """x of norm 1 and its norm, or zeros if that is not above ``least``."""
    norm = jnp.sqrt(_dot(x, x).real)
    large = norm > least
    return jnp.where(large, x / norm.astype(x.dtype), 0), jnp.where(large, norm, 0)


def _arnoldi(k: Any, apply: Product, v: Array, rows: Array) -> tuple[Array, Array, Array]:
    """One more orthonormal vector of the Krylov space, and row k of its Hessenberg matrix (columns, in rows)."""
    eps = float(dtypes.float_info(dtypes.real_part(v.dtype)).eps)
    w = apply(v[:, k])
    _, before = _normalized(w, eps)
    h = jnp.zeros(v.shape[1], v.dtype)
    for _ in range(2):  # Gram and Schmidt's, twice, as one is not orthogonal to rounding
        part = _times(jnp.conj(v).T, w)
        w, h = w - _times(v, part), h + part
    unit, norm = _normalized(w, eps * before)
    v = v.at[:, k + 1].set(unit)
    return v, rows.at[k].set(h.at[k + 1].set(norm.astype(v.dtype))), norm == 0


def _batched(apply: Product, unit: Array, norm: Array, restart: int, enough: Any) -> Array:
    """The step of least residual in a Krylov space of ``restart`` vectors."""
    v = jnp.zeros((unit.size, restart + 1), unit.dtype).at[:, 0].set(unit)

    def unfinished(state: Any) -> Any:
        return (state[3] < restart) & ~state[2]

    def step(state: Any) -> Any:
        v, rows, _, k = state
        return *_arnoldi(k, apply, v, rows), k + 1

    start = (v, jnp.eye(restart, restart + 1, dtype=v.dtype), jnp.zeros((), bool), jnp.zeros((), int))
    v, rows, *_ = while_loop(unfinished, step, start)
    rhs = jnp.zeros(restart + 1, v.dtype).at[0].set(norm.astype(v.dtype))
    q, r = jnp.linalg.qr(rows.T)
    return _times(v[:, :-1], solve_triangular(r, _times(jnp.conj(q).T, rhs)))


def _rotation(a: Array, b: Array) -> tuple[Array, Array]:
    """Cosine and sine that make b zero below a."""
    none, flat = jnp.abs(b) == 0, jnp.abs(a) < jnp.abs(b)
    t = -jnp.where(flat, a, b) / jnp.where(none, 1, jnp.where(flat, b, a))
    r = (1 / jnp.sqrt(1 + jnp.abs(t) ** 2)).astype(t.dtype)
    return jnp.where(none, 1, jnp.where(flat, r * t, r)), jnp.where(none, 0, jnp.where(flat, r, r * t))


def _rotated(x: Array, i: Any, c: Array, s: Array) -> Array:
    one, two = x[i], x[i + 1]
    return x.at[i].set(jnp.conj(c) * one - jnp.conj(s) * two).at[i + 1].set(s * one + c * two)


def _incremental(apply: Product, unit: Array, norm: Array, restart: int, enough: Any) -> Array:
    """The same, with the residual known at each vector, so that it may stop."""
    v = jnp.zeros((unit.size, restart + 1), unit.dtype).at[:, 0].set(unit)
    rhs = jnp.zeros(restart + 1, v.dtype).at[0].set(norm.astype(v.dtype))

    def unfinished(state: Any) -> Any:
        return (state[0] < restart) & (state[1] > enough)

    def step(state: Any) -> Any:
        k, _, v, rows, rhs, turns = state
        v, rows, _ = _arnoldi(k, apply, v, rows)
        row = fori_loop(0, k, lambda i, x: _rotated(x, i, turns[i, 0], turns[i, 1]), rows[k])
        c, s = _rotation(row[k], row[k + 1])
        turns = turns.at[k].set(jnp.stack([c, s]))
        rhs = _rotated(rhs, k, c, s)
        return k + 1, jnp.abs(rhs[k + 1]), v, rows.at[k].set(_rotated(row, k, c, s)), rhs, turns

    rows, turns = jnp.eye(restart, restart + 1, dtype=v.dtype), jnp.zeros((restart, 2), v.dtype)
    _, _, v, rows, rhs, _ = while_loop(unfinished, step, (jnp.zeros((), int), norm, v, rows, rhs, turns))
    return _times(v[:, :-1], solve_triangular(rows[:, :-1].T, rhs[:-1]))


def gmres(
    A: Any,
    b: Any,
    x0: Any = None,
    *,
    tol: float = 1e-5,
    atol: float = 0.0,
    restart: int = 20,
    maxiter: int | None = None,
    M: Any = None,
    solve_method: str = "batched",
) -> tuple[Any, Array]:
    """``(x, info)`` with A x = b, by least residuals in Krylov spaces (Y. Saad and M. Schultz, 1986); info -1 for NaN.

    The other arguments are those of `cg`; A may be any regular matrix.

    Args:
        restart: dimension of the spaces.
        maxiter: how many spaces; 10 times the number of unknowns by default.
        solve_method: ``"batched"``, or ``"incremental"``, which stops within a space.

    >>> x, info = gmres(jnp.array([[4.0, 1.0], [0.0, 2.0]]), jnp.array([6.0, 4.0]))
    >>> jnp.round(x, 4).tolist(), int(info)
    ([1.0, 2.0], 0)
    """
    check_choice("scipy.sparse.linalg.gmres: solve_method", solve_method, "batched", "incremental")
    size = _size(b)
    limit = 10 * size if maxiter is None else maxiter
    restart = min(restart, size)
    inner = _batched if solve_method == "batched" else _incremental

    def solver(product: Product, condition: Product, b: Array, x: Array) -> Array:
        eps = float(dtypes.float_info(dtypes.real_part(b.dtype)).eps)
        length = lambda v: jnp.sqrt(_dot(v, v).real)
        least = jnp.maximum(tol * length(b), atol)
        share = least / length(b)
        inside = length(condition(b)) * jnp.minimum(1.0, share)
        apply = lambda v: condition(product(v))

        def unfinished(state: Any) -> Any:
            _, k, _, norm = state
            return (k < limit) & (norm > least)

        def step(state: Any) -> Any:
            x, k, unit, norm = state
            x = x + inner(apply, unit, norm, restart, inside)
            return x, k + 1, *_normalized(condition(b - product(x)), eps)

        start = (x, jnp.zeros((), int), *_normalized(condition(b - product(x)), eps))
        return while_loop(unfinished, step, start)[0]

    x = _solved("gmres", A, b, x0, M, solver, False)
    flat, _ = ravel_pytree(x)
    return x, jnp.where(jnp.any(jnp.isnan(flat)), -1, 0)
