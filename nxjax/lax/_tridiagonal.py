"""`lax.linalg.tridiagonal_solve`: tridiagonal systems by elimination with partial pivoting."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ShapeError
from nxjax.ops.linalg_base import FACTORIZABLE
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.transforms.control.implicit import custom_linear_solve
from nxjax.transforms.control.scan import scan


def _size(x: Array) -> Array:
    """LAPACK's measure of a pivot."""
    return jnp.abs(x.real) + jnp.abs(x.imag) if x.dtype in dtypes.COMPLEX else jnp.abs(x)


def _eliminate(low: Array, mid: Array, high: Array, b: Array, perturb: bool) -> Array:
    first = lambda x: jnp.moveaxis(x, mid.ndim - 1, 0)
    rows = tuple(first(v) for v in (low, mid, high, b))

    def forth(carry: Any, row: Any) -> Any:
        d, u, r = carry
        below, d2, u2, r2 = row
        swap = _size(d) < _size(below)
        top, left = jnp.where(swap, below, d), jnp.where(swap, d, below)
        factor = left / jnp.where(top == 0, 1, top)
        wide, second = swap[..., None], jnp.where(swap, d2, u)
        kept = (top, second, jnp.where(swap, u2, 0), jnp.where(wide, r2, r))
        following = (
            jnp.where(swap, u, d2) - factor * second,
            jnp.where(swap, -factor * u2, u2),
            jnp.where(wide, r, r2) - factor[..., None] * kept[3],
        )
        return following, kept

    # A row of zeros after the last one, which no pivot is exchanged with.
    padded = tuple(jnp.concatenate([v[1:], jnp.zeros_like(v[:1])]) for v in rows)
    _, (d, u, u2, r) = scan(forth, (rows[1][0], rows[2][0], rows[3][0]), padded)
    u = u.at[-1].set(0)
    u2 = u2.at[-2:].set(0)
    if perturb:
        top = jnp.max(jnp.stack([jnp.abs(v) for v in (d, u, u2)]), axis=(0, 1))
        least = top * float(dtypes.float_info(dtypes.real_part(d.dtype)).eps)
        tiny = jnp.abs(d) < least
        phase = jnp.where(d == 0, 1, d / jnp.where(d == 0, 1, jnp.abs(d)))
        d = jnp.where(tiny, phase * least.astype(d.dtype), d)

    def back(carry: Any, row: Any) -> Any:
        one, two = carry
        d, u, u2, r = row
        x = (r - u[..., None] * one - u2[..., None] * two) / d[..., None]
        return (x, one), x

    nothing = jnp.zeros_like(rows[3][0])
    _, x = scan(back, (nothing, nothing), (d, u, u2, r), reverse=True)
    x = jnp.moveaxis(x, 0, mid.ndim - 1)
    return jnp.where(jnp.any(d == 0, axis=0)[..., None, None], np.nan, x)


def _solve(low: Array, mid: Array, high: Array, b: Array, perturb: bool) -> Array:
    """The x with A x = b, differentiable through this equation."""
    zero = jnp.zeros_like(low[..., :1])
    low = jnp.concatenate([zero, low[..., 1:]], -1)
    high = jnp.concatenate([high[..., :-1], zero], -1)

    def product(x: Array) -> Array:
        edge = jnp.zeros_like(x[..., :1, :])
        before = jnp.concatenate([edge, x[..., :-1, :]], -2)
        after = jnp.concatenate([x[..., 1:, :], edge], -2)
        return mid[..., None] * x + low[..., None] * before + high[..., None] * after

    def transposed(_: Any, ct: Array) -> Array:
        below = jnp.concatenate([zero, high[..., :-1]], -1)
        above = jnp.concatenate([low[..., 1:], zero], -1)
        return _eliminate(below, mid, above, ct, perturb)

    return custom_linear_solve(product, b, lambda _, r: _eliminate(low, mid, high, r, perturb), transposed)


def tridiagonal_solve(
    dl: ArrayLike, d: ArrayLike, du: ArrayLike, b: ArrayLike, *, perturb_singular: bool = False
) -> Array:
    """x with A x = b, where A has diagonals ``dl`` (below), ``d`` and ``du`` (above); NaN where A is singular.

    Elimination with partial pivoting, as LAPACK's gtsv; differentiated through the equation.

    Args:
        dl, d, du: ``[..., n]``; ``dl[..., 0]`` and ``du[..., -1]`` are not read.
        b: ``[..., n, k]``.
        perturb_singular: pivots that are zero but for rounding count as rounding, so that solutions are finite.

    Raises:
        ShapeError: the operands do not fit; DtypeError: their dtypes differ, or are not float or complex.

    >>> one = jnp.ones(2)
    >>> tridiagonal_solve(0 * one, 2 * one, 0 * one, jnp.ones((2, 1))).tolist()
    [[0.5], [0.5]]
    """
    name = "tridiagonal_solve"
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
    return _solve(below, middle, above, rhs, bool(perturb_singular)) if rhs.size else rhs
