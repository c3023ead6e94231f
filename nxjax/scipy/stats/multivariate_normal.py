"""Normal distribution of vectors."""

from __future__ import annotations

import math

from nxjax import numpy as jnp
from nxjax.errors import ParameterError, ShapeError
from nxjax.lax.linalg import triangular_solve
from nxjax.numpy.promotion import promote_inexact
from nxjax.scipy.stats.family import exp, log
from nxjax.trace.core import Array
from nxjax.typing import ArrayLike


def logpdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike, allow_singular: None = None) -> Array:
    """Logarithm of the density at ``x`` [..., n] with ``mean`` [..., n] and ``cov`` [..., n, n] or a number.

    Raises:
        ShapeError: ``cov`` does not fit ``mean``.
        ParameterError: ``allow_singular`` is given.

    >>> print(round(float(logpdf(jnp.array([1.0, 0.0]), jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 2.0]]))), 4))
    -2.7205
    """
    if allow_singular is not None:
        raise ParameterError("multivariate_normal.logpdf: allow_singular is not supported")
    x, mean, cov = promote_inexact("scipy.stats.multivariate_normal.logpdf", x, mean, cov)
    if not mean.shape:
        return -((x - mean) ** 2) / (2 * cov) - 0.5 * log(2 * math.pi * cov)
    n = mean.shape[-1]
    if not cov.shape:
        y = x - mean
        return -jnp.einsum("...i,...i->...", y, y) / (2 * cov) - n / 2 * log(2 * math.pi * cov)
    if cov.ndim < 2 or cov.shape[-2:] != (n, n):
        raise ShapeError("multivariate_normal.logpdf: cov does not fit", got=cov.type, expected=f"[..., {n}, {n}]")

    root = jnp.linalg.cholesky(cov)
    deviation = x - mean
    logdet = jnp.sum(log(jnp.diagonal(root, axis1=-2, axis2=-1)), axis=-1)
    if root.ndim == 2:  # one system with many right-hand sides
        y = _solved(root, jnp.moveaxis(deviation, -1, 0).reshape(n, math.prod(deviation.shape[:-1])))
        squares = jnp.einsum("ij,ij->j", y, y).reshape(deviation.shape[:-1])
    else:
        lead = jnp.broadcast_shapes(deviation.shape[:-1], root.shape[:-2])
        columns = jnp.broadcast_to(deviation, (*lead, n))[..., None]
        y = _solved(jnp.broadcast_to(root, (*lead, n, n)), columns)[..., 0]
        squares = jnp.einsum("...i,...i->...", y, y)
    return -0.5 * squares - n / 2 * math.log(2 * math.pi) - logdet


def _solved(root: Array, columns: Array) -> Array:
    return triangular_solve(root, columns, left_side=True, lower=True)


def pdf(x: ArrayLike, mean: ArrayLike, cov: ArrayLike) -> Array:
    """Density; arguments as `logpdf`.

    >>> print(round(float(pdf(jnp.array([1.0, 0.0]), jnp.zeros(2), jnp.array([[2.0, 1.0], [1.0, 2.0]]))), 4))
    0.0658
    """
    return exp(logpdf(x, mean, cov))
