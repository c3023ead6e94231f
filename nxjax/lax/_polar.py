"""`lax.linalg.qdwh`: the polar decomposition by the dynamically weighted Halley iteration."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.linalg_base import FACTORIZABLE
from nxjax.ops.linalg_qr import qr
from nxjax.ops.linalg_triangular import cholesky, triangular_solve
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop

# Above this weight, the iteration by Cholesky factors loses digits.
_LARGE = 100


def weights(eps: float, limit: int) -> list[tuple[float, float, float]]:
    """a, b and c of the iterations u (a + b u^H u) (1 + c u^H u)^-1 until the smallest singular value is 1."""
    found: list[tuple[float, float, float]] = []
    low = eps
    while low + 5 * eps < 1 and len(found) < limit:
        square = low * low
        root = (4 * (1 / square - 1) / square) ** (1 / 3)
        s = (1 + root) ** 0.5
        a = s + (2 - root + 2 * (2 - square) / (square * s)) ** 0.5
        b = (a - 1) ** 2 / 4
        c = a + b - 1
        low = low * (a + b * square) / (1 + c * square)
        found.append((a, b, c))
    return found


def _by_qr(u: Array, a: float, b: float, c: float) -> Array:
    rows, n = u.shape
    q, _ = qr(jnp.concatenate([u * c**0.5, jnp.eye(n, dtype=u.dtype)]), full_matrices=False)
    return u * (b / c) + jnp.matmul(q[:rows], jnp.conj(q[rows:]).T, precision="highest") * ((a - b / c) / c**0.5)


def _by_cholesky(u: Array, a: float, b: float, c: float) -> Array:
    x = jnp.matmul(jnp.conj(u).T, u, precision="highest") * c + jnp.eye(u.shape[1], dtype=u.dtype)
    low = cholesky(x)
    options = {"left_side": False, "lower": True, "unit_diagonal": False}
    v = triangular_solve(low, u, transpose_a=True, conjugate_a=low.dtype in dtypes.COMPLEX, **options)
    return u * (b / c) + triangular_solve(low, v, transpose_a=False, conjugate_a=False, **options) * (a - b / c)


def _halley(x: Array, limit: int, eps: float | None) -> tuple[Array, Array, Array, Array]:
    """U, H, the number of iterations and whether they converged."""
    small = float(dtypes.float_info(dtypes.real_part(x.dtype)).eps) if eps is None else float(eps)
    size = jnp.sqrt(jnp.max(jnp.sum(jnp.abs(x), 0), initial=0)) * jnp.sqrt(jnp.max(jnp.sum(jnp.abs(x), 1), initial=0))
    u = x / jnp.where(size == 0, 1, size).astype(x.dtype)
    tolerance = float(np.cbrt(5 * small))
    moving: Any = jnp.asarray(True)
    steps = weights(small, limit)
    for a, b, c in steps:
        if c > _LARGE:
            u = _by_qr(u, a, b, c)
        else:
            following = _by_cholesky(u, a, b, c)
            moving, u = jnp.linalg.norm(following - u) > tolerance, following

    def unfinished(state: Any) -> Any:
        count, _, moving = state
        return moving & (count < limit)

    def again(state: Any) -> Any:
        count, u, _ = state
        following = _by_cholesky(u, 3.0, 1.0, 3.0)
        return count + 1, following, jnp.linalg.norm(following - u) > tolerance

    count, u, moving = while_loop(unfinished, again, (jnp.asarray(len(steps)), u, moving))
    # One step of Newton and Schulz' takes the rounding away.
    product = lambda p, q: jnp.matmul(p, q, precision="highest")
    u = 1.5 * u - 0.5 * product(u, product(jnp.conj(u).T, u))
    h = product(jnp.conj(u).T, x)
    return u, (h + jnp.conj(h).T) / 2, count, ~moving


def qdwh(
    x: ArrayLike,
    *,
    is_hermitian: bool = False,
    max_iterations: int | None = None,
    eps: float | None = None,
    dynamic_shape: tuple[int, int] | None = None,
) -> tuple[Array, Array, Array, Array]:
    """The polar form x = U H: orthonormal columns of U, positive semidefinite H; the iterations, and if they converged.

    The dynamically weighted Halley iteration (Y. Nakatsukasa, Z. Bai, F. Gygi, "Optimizing Halley's iteration for
    computing the matrix polar decomposition", SIAM J. Matrix Anal. Appl. 31, 2010).

    Args:
        x: one matrix ``[m, n]``, m >= n.
        is_hermitian: not looked at.
        max_iterations: 10 by default.
        eps: U is right to this, relatively; by default that of the dtype.
        dynamic_shape: not available.

    Raises:
        ShapeError: ``x`` is wider than high; DtypeError: it is not float or complex.

    >>> u, h, _, converged = qdwh(nx.array([[0.0, 2.0], [1.0, 0.0]]))
    >>> nx.numpy.round(nx.numpy.diag(h), 4).tolist(), bool(converged)
    ([1.0, 2.0], True)
    """
    if dynamic_shape is not None:
        raise NotImplementedError("qdwh: only dynamic_shape=None")
    a = as_value(x, "qdwh")
    if a.ndim != 2 or a.shape[0] < a.shape[1]:
        raise ShapeError("qdwh: needs one matrix with no more columns than rows", got=a.type, expected="[m, n], m >= n")
    if a.dtype not in FACTORIZABLE:
        raise DtypeError("qdwh: does not take this dtype", got=a.type, expected="float or complex")
    return _halley(a, 10 if max_iterations is None else int(max_iterations), eps)
