"""Functions of matrices: exponential and its derivative, square root, any function, Sylvester's equation."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.numpy.documented import example, shown
from nxjax.numpy.promotion import as_operand, check_choice, promote_inexact
from nxjax.scipy.linalg.factors import rsf2csf, schur
from nxjax.scipy.linalg.systems import adjoint, solve_triangular, square
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import fori_loop
from nxjax.transforms.jvp import jvp

# Whether in float64 -> an order, and the norm up to which it is exact to rounding (Higham, "The scaling and squaring
# method for the matrix exponential revisited", 2005; table 2.3, and its single-precision counterpart).
_ORDERS = {False: (7, 3.925724783138660), True: (13, 5.371920351148152)}


def _pade(order: int) -> list[float]:
    """Coefficients of the numerator of exp's diagonal Padé approximant."""
    top = math.factorial(2 * order)
    return [
        math.factorial(2 * order - j) * math.factorial(order) / (top * math.factorial(order - j) * math.factorial(j))
        for j in range(order + 1)
    ]


@example("jnp.zeros((2, 2))", "[[1.0, 0.0], [0.0, 1.0]]", then=".tolist()")
def expm(A: ArrayLike, *, upper_triangular: bool = False, max_squarings: int = 16) -> Array:
    """The matrix exponential, by scaling and squaring; NaN if more than ``max_squarings`` are needed.

    Args:
        A: ``[..., n, n]``.
        upper_triangular: A is upper triangular, and so are its tangents.
        max_squarings: Python int.
    """
    (a,) = square("expm", A)
    order, limit = _ORDERS[dtypes.real_part(a.dtype) == dtypes.float64]
    norm = jnp.max(jnp.sum(jnp.abs(a), axis=-2), axis=-1) if a.size else jnp.zeros(a.shape[:-2])
    scale = jnp.log2(jnp.maximum(norm, limit) / limit)
    needed = jnp.floor(scale)
    # One more than what is counted, so that the approximant is right to rounding.
    squarings = jnp.minimum(jnp.ceil(scale), max_squarings + 1)
    scaled = a / jnp.exp2(squarings)[..., None, None].astype(a.dtype)
    coefficients = _pade(order)
    identity = jnp.broadcast_to(jnp.eye(a.shape[-1], dtype=a.dtype), a.shape)
    second = jnp.matmul(scaled, scaled)
    power, odd, even = identity, identity * coefficients[1], identity * coefficients[0]
    for j in range(2, order + 1, 2):
        power = jnp.matmul(power, second)
        even = even + coefficients[j] * power
        if j + 1 <= order:
            odd = odd + coefficients[j + 1] * power
    odd = jnp.matmul(scaled, odd)
    numerator = jnp.broadcast_to(even + odd, a.shape)
    result = (solve_triangular if upper_triangular else jnp.linalg.solve)(even - odd, numerator)

    def again(i: Any, r: Array) -> Array:
        return jnp.where((i < squarings)[..., None, None], jnp.matmul(r, r), r)

    result = fori_loop(0, max_squarings + 1, again, result)
    return jnp.where((needed > max_squarings)[..., None, None], np.nan, result)


@example("jnp.zeros((1, 1)), jnp.ones((1, 1)), compute_expm=False", "[[1.0]]", then=".tolist()")
def expm_frechet(
    A: ArrayLike, E: ArrayLike, *, method: str | None = None, compute_expm: bool = True
) -> Array | tuple[Array, ...]:
    """``(expm(A), its derivative at A in direction E)``, or the derivative alone.

    Args:
        A, E: ``[..., n, n]``.
        method: has no effect.
        compute_expm: also return `expm`.

    Raises:
        ShapeError: ``A`` and ``E`` differ in shape, or are not square.
    """
    a, e = square("expm_frechet", A, E)
    if a.shape != e.shape:
        raise ShapeError("scipy.linalg.expm_frechet: A and E are of one shape", got=f"{a.type}, {e.type}")
    y, t = jvp(expm, (a,), (e,))
    return (y, t) if compute_expm else t


@example("jnp.array([[4.0, 0.0], [0.0, 9.0]])", "[[2.0, 0.0], [0.0, 3.0]]", then=".real.tolist()")
def sqrtm(A: ArrayLike, blocksize: int = 1) -> Array:
    """The principal square root of one matrix, complex, by its Schur form (A. Bjorck and S. Hammarling, 1983).

    Args:
        A: ``[n, n]``.
        blocksize: other values than 1 are not available.

    Raises:
        ShapeError: no square matrix, or several.
        NotImplementedError: another ``blocksize``.
    """
    if blocksize > 1:
        raise NotImplementedError("scipy.linalg.sqrtm: only blocksize=1")
    (a,) = square("sqrtm", A)
    if a.ndim != 2:
        raise ShapeError("scipy.linalg.sqrtm: needs one matrix", got=a.type, expected="[n, n]")
    t, z = _complex_schur(a)
    return _product(z, _triangular_root(t), adjoint(z))


def _complex_schur(a: Array) -> tuple[Array, Array]:
    """A triangular T and a unitary Z; a real matrix is factorized as one, which takes a third of the time."""
    return schur(a) if a.dtype in dtypes.COMPLEX else rsf2csf(*schur(a))


def _product(x: Array, y: Array, z: Array) -> Array:
    return jnp.matmul(jnp.matmul(x, y, precision="highest"), z, precision="highest")


def _triangular_root(t: Array) -> Array:
    """The square root of an upper triangular matrix, column by column, from the diagonal up."""
    n = t.shape[0]
    diagonal = jnp.sqrt(jnp.diagonal(t))
    places = jnp.arange(n)

    def element(step: Any, u: Array) -> Array:
        j = step // n
        i = jnp.maximum(j - 1 - step % n, 0)
        between = (places > i) & (places < j)
        rest = t[i, j] - jnp.sum(jnp.where(between, u[i] * u[:, j], 0))
        found = jnp.where(rest == 0, 0, rest / (diagonal[i] + diagonal[j]))
        return u.at[i, j].set(jnp.where(step % n < j, found, u[i, j]))

    return fori_loop(0, n * n, element, jnp.diag(diagonal)) if n else t


@example("jnp.array([[1.0, 0.0], [0.0, 4.0]]), jnp.sqrt", "[[1.0, 0.0], [0.0, 2.0]]", then=".real.tolist()")
def funm(A: ArrayLike, func: Callable[[Array], Array], disp: bool = True) -> Array | tuple[Array, ...]:
    """A function of one matrix, complex, from the function of numbers: Parlett's recurrence on the Schur form.

    Golub and Van Loan, "Matrix Computations", algorithm 11.1.1; wrong where eigenvalues are equal or close.

    Args:
        A: ``[n, n]``, n > 0.
        func: of a vector of eigenvalues.
        disp: without it, the result is ``(F, an estimate of the relative error)``.
    """
    (a,) = square("funm", A)
    if a.ndim != 2 or not a.size:
        raise ShapeError("scipy.linalg.funm: needs one matrix", got=a.type, expected="[n, n], n > 0")
    t, z = _complex_schur(a)
    n = t.shape[0]
    f = jnp.diag(as_operand(func(jnp.diagonal(t)), "funm")).astype(t.dtype)
    places = jnp.arange(n)

    def element(step: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        """Element i, i + p, diagonal after diagonal."""
        f, least = carry
        p, i = step // n + 1, step % n
        inside = i + p < n
        j = jnp.minimum(i + p, n - 1)
        between = (places > i) & (places < j)
        total = lambda x, y: jnp.sum(jnp.where(between, x[i] * y[:, j], 0))
        s = t[i, j] * (f[j, j] - f[i, i]) + total(t, f) - total(f, t)
        gap = t[j, j] - t[i, i]
        s = jnp.where(gap == 0, s, s / jnp.where(gap == 0, 1, gap))
        return (
            f.at[i, j].set(jnp.where(inside, s, f[i, j])),
            jnp.where(inside, jnp.minimum(least, jnp.abs(gap)), least),
        )

    f, least = fori_loop(0, n * (n - 1), element, (f, jnp.abs(t[0, 0])))
    y = _product(z, f, adjoint(z))
    if disp:
        return y
    eps = float(dtypes.float_info(dtypes.real_part(t.dtype)).eps)
    least = jnp.where(least == 0, eps, least)
    error = jnp.clip(eps / least * jnp.linalg.norm(jnp.triu(t, 1), 1), eps, 1)
    return y, jnp.where(jnp.any(jnp.isinf(y)), np.inf, error)


@shown("jnp.round(solve_sylvester(jnp.array([[1.0]]), jnp.array([[3.0]]), jnp.array([[8.0]])), 4).tolist()", "[[2.0]]")
def solve_sylvester(A: ArrayLike, B: ArrayLike, C: ArrayLike, *, method: str = "schur", tol: float = 1e-8) -> Array:
    """The X with A X + X B = C; NaN where eigenvalues of A and -B are closer than ``tol``.

    R. H. Bartels and G. W. Stewart, "Solution of the matrix equation AX + XB = C", Comm. ACM 15, 1972.

    Args:
        A, B, C: ``[..., m, m]``, ``[..., n, n]`` and ``[..., m, n]``.
        method: ``"schur"``, which has no derivative, or ``"eigen"``, for matrices with independent eigenvectors.

    Raises:
        ShapeError: sizes that do not fit.
        ParameterError: another ``method``.
    """
    a, b, c = promote_inexact("scipy.linalg.solve_sylvester", A, B, C)
    m, n = c.shape[-2:] if c.ndim > 1 else (-1, -1)
    if a.shape[-2:] != (m, m) or b.shape[-2:] != (n, n):
        got = ", ".join(repr(x.type) for x in (a, b, c))
        raise ShapeError(
            "scipy.linalg.solve_sylvester: operands do not fit", got=got, expected="[m, m], [n, n], [m, n]"
        )
    check_choice("scipy.linalg.solve_sylvester: method", method, "schur", "eigen")
    solver = _by_schur if method == "schur" else _by_eigenvectors

    def one(a: Array, b: Array, c: Array) -> Array:
        x, of_a, of_b = solver(a, b, c)
        x = x if c.dtype in dtypes.COMPLEX else x.real
        return jnp.where(jnp.any(jnp.abs(of_a[:, None] + of_b[None, :]) < tol), np.nan, x)

    return jnp.vectorize(one, signature="(m,m),(n,n),(m,n)->(m,n)")(a, b, c)


def _by_schur(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    """X, and the eigenvalues of a and b. With a = U R U^H, b^H = V S V^H: R Y + Y S^H = U^H c V."""
    r, u = _complex_schur(a)
    s, v = _complex_schur(adjoint(b))
    m, n = a.shape[0], b.shape[0]
    lower, f = adjoint(s), _product(adjoint(u), c.astype(r.dtype), v)

    def element(step: Any, y: Array) -> Array:
        i, j = m - 1 - step % m, n - 1 - step // m
        # Of the products with zeros some are with what is not known yet, which is 0.
        rest = f[i, j] - jnp.sum(r[i] * y[:, j]) - jnp.sum(y[i] * lower[:, j])
        return y.at[i, j].set(rest / (r[i, i] + lower[j, j]))

    y = fori_loop(0, m * n, element, jnp.zeros_like(f)) if f.size else f
    return _product(u, y, adjoint(v)), jnp.diagonal(r), jnp.diagonal(lower)


def _by_eigenvectors(a: Array, b: Array, c: Array) -> tuple[Array, Array, Array]:
    wa, ua = jnp.linalg.eig(a)
    wb, ub = jnp.linalg.eig(b)
    f = jnp.linalg.solve(ua, jnp.matmul(c.astype(wa.dtype), ub, precision="highest"))
    return _product(ua, f / (wa[:, None] + wb[None, :]), jnp.linalg.inv(ub)), wa, wb
