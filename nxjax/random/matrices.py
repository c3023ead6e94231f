"""Random vectors with a covariance, and random orthogonal matrices."""

from __future__ import annotations

from collections.abc import Sequence

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.numpy.promotion import check_choice, promote_inexact, static_int
from nxjax.random.normals import normal
from nxjax.random.sampler import as_shape, broadcast_shapes, float_dtype, placed
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array


@placed
def multivariate_normal(
    key: ArrayLike,
    mean: ArrayLike,
    cov: ArrayLike,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    method: str = "cholesky",
) -> Array:
    """Normal vectors.

    Args:
        key: a single key.
        mean: [..., n].
        cov: [..., n, n], positive definite (``"svd"`` and ``"eigh"``: semidefinite).
        shape: of the result without its last axis; that of the parameters by default.
        dtype: a float dtype; that of the parameters by default.
        method: how the root of ``cov`` is found: ``"cholesky"``, ``"svd"`` or ``"eigh"``.

    Raises:
        KeyTypeError: ``key`` is not a single key.
        DtypeError: ``dtype`` is not a float dtype.
        ShapeError: ``mean`` and ``cov`` do not fit each other, or not ``shape``.
        ParameterError: another method.

    >>> cov = jnp.array([[2.0, 1.0], [1.0, 2.0]])
    >>> x = nx.random.multivariate_normal(nx.random.key(0), jnp.zeros(2), cov, (10000,))
    >>> print(jnp.cov(x.T).round())
    [[2. 1.]
     [1. 2.]]
    """
    check_choice("random.multivariate_normal: method", method, "cholesky", "svd", "eigh")
    mu, sigma = promote_inexact("random.multivariate_normal", mean, cov)
    found = float_dtype("multivariate_normal", mu.dtype if dtype is None else dtype)
    if mu.ndim < 1 or sigma.ndim < 2 or sigma.shape[-2:] != (mu.shape[-1],) * 2:
        raise ShapeError(
            "random.multivariate_normal: mean and cov do not fit",
            got=f"{mu.type}, {sigma.type}",
            expected="[n], [n, n]",
        )
    common = broadcast_shapes("multivariate_normal", mu.shape[:-1], sigma.shape[:-2])
    full = common if shape is None else as_shape("multivariate_normal", shape)
    if broadcast_shapes("multivariate_normal", full, common) != full:
        raise ShapeError("random.multivariate_normal: the parameters do not fit the shape", got=common, expected=full)
    if method == "cholesky":
        root = jnp.linalg.cholesky(sigma)
    elif method == "svd":
        u, s, _ = jnp.linalg.svd(sigma)
        root = u * jnp.sqrt(s[..., None, :])
    else:
        w, v = jnp.linalg.eigh(sigma)
        root = v * jnp.sqrt(w[..., None, :])
    noise = normal(key, (*full, mu.shape[-1]), found)
    return jnp.broadcast_to(mu, noise.shape) + jnp.einsum("...ij,...j->...i", root, noise)


@placed
def orthogonal(
    key: ArrayLike, n: int, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None, m: int | None = None
) -> Array:
    """Uniform orthogonal (for complex dtypes unitary) matrices, [*shape, n, m].

    QR of a normal matrix, with the signs of R's diagonal moved into Q (Mezzadri, 2007).

    Args:
        key: a single key.
        n: rows.
        shape: how many matrices.
        dtype: float or complex; float32 by default.
        m: columns; ``n`` by default. The shorter side is orthonormal.

    Raises:
        KeyTypeError: ``key`` is not a single key.
        ShapeError: a negative size.

    >>> x = nx.random.orthogonal(nx.random.key(0), 3)
    >>> x.shape, bool(jnp.allclose(x @ x.T, jnp.eye(3), atol=1e-5))
    ((3, 3), True)
    """
    rows = static_int("random.orthogonal", n)
    columns = rows if m is None else static_int("random.orthogonal", m)
    found = dtypes.as_dtype(float if dtype is None else dtype)
    if rows < 0 or columns < 0:
        raise ShapeError("random.orthogonal: negative size", got=(rows, columns))
    size = (*as_shape("orthogonal", shape), max(rows, columns), min(rows, columns))
    q, r = jnp.linalg.qr(normal(key, size, found))
    d = jnp.diagonal(r, axis1=-2, axis2=-1)
    x = q * jnp.expand_dims(jnp.sign(d), -2)
    return jnp.swapaxes(x, -1, -2) if rows < columns else x
