"""Polynomials as vectors of coefficients, the highest power first."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import ShapeError
from nxjax.numpy import linalg
from nxjax.numpy.calculus import convolve
from nxjax.numpy.contractions import dot, outer
from nxjax.numpy.creation import full_scalar
from nxjax.numpy.documented import example
from nxjax.numpy.elementwise import absolute
from nxjax.numpy.indexing import take
from nxjax.numpy.joining import concatenate, trim_zeros
from nxjax.numpy.promotion import (
    as_operand,
    broadcast_shape,
    broadcast_to_shape,
    concrete_or_error,
    convert,
    promote,
    promote_inexact,
    static_int,
)
from nxjax.numpy.ranges import vander
from nxjax.numpy.rearranging import roll
from nxjax.numpy.reductions import argmax
from nxjax.numpy.reductions import sum as sum_
from nxjax.numpy.selection import where
from nxjax.numpy.shapes import atleast_1d
from nxjax.numpy.sorting import argsort
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.transforms.control.scan import scan


@example("jnp.array([1, 0, -2]), jnp.array([2, 3])", "Array([2, 7], dtype=int32)")
def polyval(p: ArrayLike, x: ArrayLike, *, unroll: int = 16) -> Array:
    """The value at ``x``, by Horner's rule.

    Args:
        p: vector of coefficients, the highest power first; further axes hold several polynomials.
        x: points of any shape, which the result has; it broadcasts with the further axes of ``p``.
        unroll: has no effect here.

    Raises:
        ShapeError: ``p`` has no axis, or its further ones do not broadcast with ``x``.
    """
    c, v = promote("polyval", p, x)
    if c.ndim == 0:
        raise ShapeError("polyval: p is one-dimensional", got=c.type)
    v = broadcast_to_shape(v, broadcast_shape("polyval", c.shape[1:], v.shape)) if c.ndim > 1 else v
    y = broadcast_to_shape(full_scalar((), 0, c.dtype), v.shape)
    n = c.shape[0]
    if n <= 64:
        for k in range(n):
            y = ops.add(ops.mul(y, v), broadcast_to_shape(c[k], v.shape))
        return y

    return scan(lambda carry, k: (ops.add(ops.mul(carry, v), broadcast_to_shape(k, v.shape)), None), y, c)[0]


def _padded(x: Array, n: int) -> Array:
    return ops.pad(x, wrap(np.zeros((), x.dtype), x.type.weak), padding_config=((n - x.shape[0], 0, 0),))


@example("jnp.array([1, 2, 3]), jnp.array([10])", "Array([ 1,  2, 13], dtype=int32)")
def polyadd(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The sum of two polynomials; the shorter vector gets leading zeros."""
    x, y = promote("polyadd", a1, a2)
    x, y = (ops.reshape(v, shape=(1,)) if v.ndim == 0 else v for v in (x, y))
    if x.ndim != 1 or y.ndim != 1:  # rows of several polynomials
        x, y = (y, x) if x.shape[0] < y.shape[0] else (x, y)
        return x.at[x.shape[0] - y.shape[0] :].add(y)
    n = max(x.shape[0], y.shape[0])
    return ops.add(_padded(x, n), _padded(y, n))


@example("jnp.array([1, 2, 3]), jnp.array([1, 2])", "Array([1, 1, 1], dtype=int32)")
def polysub(a1: ArrayLike, a2: ArrayLike) -> Array:
    """The difference of two polynomials; leading zeros stay."""
    x, y = promote("polysub", a1, a2)
    return polyadd(x, ops.neg(y))


@example("jnp.array([1, 1]), jnp.array([1, -1])", "Array([ 1.,  0., -1.], dtype=float32)")
def polymul(a1: ArrayLike, a2: ArrayLike, *, trim_leading_zeros: bool = False) -> Array:
    """The product of two polynomials, in float or complex; ``trim_leading_zeros`` needs concrete input."""
    x, y = promote_inexact("polymul", a1, a2)
    if trim_leading_zeros and (x.size > 1 or y.size > 1):
        x, y = trim_zeros(x, "f"), trim_zeros(y, "f")
    one = wrap(np.zeros(1, x.dtype))
    return convolve(x if x.size else one, y if y.size else one, "full")


def polydiv(u: ArrayLike, v: ArrayLike, *, trim_leading_zeros: bool = False) -> tuple[Array, Array]:
    """Quotient and remainder of ``u / v``, in float or complex; ``trim_leading_zeros`` needs concrete input.

    >>> jnp.polydiv(jnp.array([1.0, 0.0, 1.0]), jnp.array([1.0, -1.0]))
    (Array([1., 1.], dtype=float32), Array([0., 0., 2.], dtype=float32))
    """
    x, y = promote_inexact("polydiv", u, v)
    m, n = x.shape[0] - 1, y.shape[0] - 1
    q = wrap(np.zeros(max(m - n + 1, 1), x.dtype))
    for k in range(m - n + 1):
        d = x[k] / y[0]
        q = q.at[k].set(d)
        x = x.at[k : k + n + 1].add(-d * y)
    if trim_leading_zeros:  # what rounding leaves is zero, too
        tiny = np.abs(concrete_or_error("polydiv", x)) < math.sqrt(float(dtypes.float_info(x.dtype).eps))
        x = x[int(np.argmin(tiny)) :]
    return q, x


@example(
    "jnp.array([1, 2, 3])", "Array([2., 2.], dtype=float32)", "jnp.array([1, 2, 3]), m=2", "Array([2.], dtype=float32)"
)
def polyder(p: ArrayLike, m: int = 1) -> Array:
    """The ``m``-th derivative, in float or complex.

    Raises:
        ValueError: ``m`` is negative.
    """
    (c,) = promote_inexact("polyder", p)
    m = static_int("polyder", m)
    if m < 0:
        raise ValueError("Order of derivative must be positive")
    if m == 0:
        return c
    powers = np.arange(c.shape[0] - 1, -1, -1)
    factors = np.ones(len(powers))
    for k in range(m):
        factors = factors * (powers - k)
    return c[: max(c.shape[0] - m, 0)] * wrap(factors[: max(c.shape[0] - m, 0)].astype(c.dtype))


@example("jnp.array([3, 2]), k=7", "Array([1.5, 2. , 7. ], dtype=float32)")
def polyint(p: ArrayLike, m: int = 1, k: ArrayLike | Sequence[ArrayLike] | None = None) -> Array:
    """The ``m``-th integral, with the constants ``k`` (a number, or ``m`` of them; zeros by default).

    Raises:
        ValueError: ``m`` is negative, or ``k`` has another length.
    """
    m = static_int("polyint", m)
    if m < 0:
        raise ValueError("Order of integral must be positive (see polyder)")
    c, constants = promote_inexact("polyint", p, 0 if k is None else np.asarray(k) if isinstance(k, list) else k)
    if m == 0:
        return c
    constants = atleast_1d(constants)
    if constants.shape == (1,):
        constants = broadcast_to_shape(constants, (m,))
    if constants.shape != (m,):
        raise ValueError("k must be a scalar or a rank-1 array of length 1 or m.")
    n = c.shape[0] + m
    powers = np.arange(n - 1, -1, -1)
    # A coefficient that ends at power q was integrated min(m, q) times: constants less often than `p`.
    divisors = np.asarray([math.prod(range(max(q - m, 0) + 1, q + 1)) for q in powers.tolist()])
    full = concatenate([c, constants])
    return full / wrap(divisors.astype(full.dtype))


def polyfit(
    x: ArrayLike,
    y: ArrayLike,
    deg: int,
    rcond: float | None = None,
    full: bool = False,
    w: ArrayLike | None = None,
    cov: bool | str = False,
) -> Array | tuple[Array, ...]:
    """Coefficients of the polynomial of degree ``deg`` nearest to the points in the least squares sense.

    Args:
        x: vector of places.
        y: vector of values, or one column of them per polynomial.
        deg: static degree.
        rcond: singular values below this share of the largest count as zero.
        full: also return residuals, rank, singular values and ``rcond``.
        w: vector of weights of the residuals.
        cov: also return the covariance of the coefficients; ``"unscaled"`` without the factor of the residuals.

    Raises:
        ValueError: ``deg`` is negative, or there are too few points for ``cov``.
        TypeError: ``x``, ``y`` or ``w`` has the wrong shape.

    >>> c = jnp.polyfit(jnp.array([0.0, 1.0, 2.0]), jnp.array([1.0, 3.0, 5.0]), 1)
    >>> bool(jnp.allclose(c, jnp.array([2.0, 1.0]), atol=1e-5))
    True
    """
    deg = static_int("polyfit", deg)
    if deg < 0:
        raise ValueError("expected deg >= 0")
    a, b = promote_inexact("polyfit", x, y)
    if a.ndim != 1 or a.size == 0:
        raise TypeError("expected 1D vector for x" if a.ndim != 1 else "expected non-empty vector for x")
    if b.ndim not in (1, 2):
        raise TypeError("expected 1D or 2D array for y")
    if a.shape[0] != b.shape[0]:
        raise TypeError("expected x and y to have same length")
    if rcond is None:
        rcond = a.shape[0] * float(dtypes.float_info(a.dtype).eps)
    left = vander(a, deg + 1)
    right = b
    if w is not None:
        weights = promote_inexact("polyfit", w)[0]
        if weights.ndim != 1 or weights.shape[0] != b.shape[0]:
            raise TypeError("expected a 1-d array for weights of the length of y")
        left = left * weights[:, None]
        right = right * (weights[:, None] if right.ndim == 2 else weights)
    scale = ops.sqrt(sum_(left * left, 0))
    c, residuals, rank, s = linalg.lstsq(left / scale[None, :], right, rcond)
    c = (c.T / scale).T
    if full:
        return c, residuals, rank, s, as_operand(rcond, "polyfit")
    if not cov:
        return c
    base = linalg.inv(dot(left.T, left) / outer(scale, scale)) / outer(scale, scale)
    if cov == "unscaled":
        factor: Any = 1
    else:
        if b.shape[0] <= deg + 1:
            raise ValueError("the number of data points must exceed order to scale the covariance matrix")
        factor = residuals / (b.shape[0] - deg - 1)
    if b.ndim == 1:
        return c, base * factor
    return c, base[:, :, None] * factor


@example("jnp.array([1.0, -2.0])", "Array([ 1.,  1., -2.], dtype=float32)")
def poly(seq_of_zeros: ArrayLike) -> Array:
    """The coefficients of the polynomial with these roots (for a square matrix: its eigenvalues).

    Raises:
        ValueError: neither a vector nor a square matrix.
    """
    (z,) = promote_inexact("poly", seq_of_zeros)
    if z.ndim == 2 and z.shape[0] == z.shape[1] and z.shape[0]:
        z = linalg.eigvals(z)
    elif z.ndim == 0:
        z = ops.reshape(z, shape=(1,))
    elif z.ndim != 1:
        raise ValueError("input must be 1d or non-empty square 2d array.")
    elif not z.size:
        return wrap(np.ones((), z.dtype))
    out = wrap(np.ones(1, z.dtype))
    for k in range(z.shape[0]):
        shifted = ops.pad(out, wrap(np.zeros((), z.dtype)), padding_config=((0, 1, 0),))
        moved = ops.pad(out, wrap(np.zeros((), z.dtype)), padding_config=((1, 0, 0),))
        out = shifted - z[k] * moved
    return out


def roots(p: ArrayLike, *, strip_zeros: bool = True) -> Array:
    """The roots, as eigenvalues of the companion matrix, in no order; under `jit` give ``strip_zeros=False``.

    Returns:
        Complex vector; leading zeros of ``p`` give no roots (nan, with ``strip_zeros=False``).

    Raises:
        ValueError: ``p`` is not a vector.
        ConcretizationTypeError: ``p`` is traced and ``strip_zeros`` is true.

    >>> jnp.round(jnp.sort(jnp.roots(jnp.array([1.0, -3.0, 2.0])).real), 3)
    Array([1., 2.], dtype=float32)
    >>> jnp.roots(jnp.array([0.0, 0.0, 5.0])).shape
    (0,)
    """
    (c,) = promote_inexact("roots", p)
    c = atleast_1d(c)
    if c.ndim != 1:
        raise ValueError("Input must be a rank-1 array.")
    complex_ = dtypes.complex_of(c.dtype)
    if c.size < 2:
        return wrap(np.zeros(0, complex_))
    zeros = 0
    if strip_zeros:
        nonzero = np.flatnonzero(
            concrete_or_error("roots", c, "leading zeros are looked for; or give strip_zeros=False") != 0
        )
        if not len(nonzero):
            return wrap(np.zeros(0, complex_))
        zeros = c.shape[0] - 1 - int(nonzero[-1])
        c = c[int(nonzero[0]) : int(nonzero[-1]) + 1]
        n = c.shape[0] - 1
        if n == 0:
            return wrap(np.zeros(zeros, complex_))
        found = linalg.eigvals(_companion(c, n))
        return concatenate([convert(found, complex_), wrap(np.zeros(zeros, complex_))]) if zeros else found
    return _roots_traced(c)


def _companion(c: Array, n: int) -> Array:
    below = wrap(np.eye(n, k=-1).astype(c.dtype))
    return below.at[0].set(-c[1:] / c[0])


def _roots_traced(c: Array) -> Array:
    """With leading zeros, the missing roots are nan; trailing zeros are roots 0."""
    n = c.shape[0] - 1
    first = argmax(c != 0)
    trailing = argmax(c[::-1] != 0)
    moved = roll(c, -first)
    found = linalg.eigvals(_companion(moved, n))
    # The companion matrix of the moved coefficients has `first` extra roots 0, which are put last.
    found = take(found, argsort(-absolute(found)), mode="clip")
    places = wrap(np.arange(n))
    found = where(places < n - first - trailing, found, 0)
    return where(places < n - first, found, complex(math.nan, math.nan))
