"""The polar decomposition by the dynamically weighted Halley iteration; `linalg.qdwh` says whose it is."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.lax import linalg
from nxjax.trace import dtypes
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
    q, _ = linalg.qr(jnp.concatenate([u * c**0.5, jnp.eye(n, dtype=u.dtype)]), full_matrices=False)
    return u * (b / c) + jnp.matmul(q[:rows], jnp.conj(q[rows:]).T, precision="highest") * ((a - b / c) / c**0.5)


def _by_cholesky(u: Array, a: float, b: float, c: float) -> Array:
    x = jnp.matmul(jnp.conj(u).T, u, precision="highest") * c + jnp.eye(u.shape[1], dtype=u.dtype)
    low = linalg.cholesky(x, symmetrize_input=False)
    options = {"left_side": False, "lower": True}
    v = linalg.triangular_solve(low, u, transpose_a=True, conjugate_a=True, **options)
    return u * (b / c) + linalg.triangular_solve(low, v, **options) * (a - b / c)


def halley(x: Array, limit: int, eps: float | None) -> tuple[Array, Array, Array, Array]:
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
