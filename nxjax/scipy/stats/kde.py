"""Gaussian kernel density estimation (Scott, "Multivariate Density Estimation", 1992)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nxjax import numpy as jnp
from nxjax import random
from nxjax.errors import ParameterError, ShapeError, Shown
from nxjax.numpy.promotion import promote_inexact
from nxjax.numpy.softmaxes import logsumexp
from nxjax.scipy import linalg
from nxjax.scipy.special.errs import ndtr
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.trace.tree_nodes import register_pytree_node_class


@register_pytree_node_class
class gaussian_kde(Shown):
    """A density estimate: the mean of normal densities around the data.

    Args:
        dataset: real array [n] or [d, n] with at least two elements; integers become float.
        bw_method: the factor from the data's deviation to the kernels': "scott" (the default), "silverman", a number,
            or a function of this object.
        weights: array [n]; equal by default.

    Attributes:
        dataset, weights: [d, n] and [n], the weights with sum 1.
        neff: effective number of data points. d, n: sizes.
        covariance, inv_cov: of a kernel, [d, d].

    Raises:
        ParameterError: for fewer than two elements, or an unknown bandwidth. ShapeError: for weights that do not fit.
        NotImplementedError: for complex data.

    The estimate is a pytree: it goes through `jit` and `vmap`, and has derivatives.

    >>> kde = gaussian_kde(nx.array([-1.0, 0.0, 1.0, 3.0]))
    >>> print(kde(nx.array([0.0, 2.0])).round(4))
    [0.1967 0.1429]
    """

    __slots__ = ("covariance", "dataset", "inv_cov", "neff", "weights")

    neff: Any
    dataset: Any
    weights: Any
    covariance: Any
    inv_cov: Any

    def __init__(
        self,
        dataset: ArrayLike,
        bw_method: str | ArrayLike | Callable[..., Any] | None = None,
        weights: ArrayLike | None = None,
    ) -> None:
        data = jnp.atleast_2d(dataset)
        if data.dtype in dtypes.COMPLEX:
            raise NotImplementedError("gaussian_kde does not support complex data")
        if not data.size > 1:
            raise ParameterError("gaussian_kde: `dataset` input should have multiple elements.", got=data.type)
        if data.ndim != 2:
            raise ShapeError("gaussian_kde: dataset", got=data.type, expected="[n] or [d, n]")
        d, n = data.shape
        if weights is None:
            (data,) = promote_inexact("gaussian_kde", data)
            share = jnp.full(n, 1.0 / n, dtype=data.dtype)
        else:
            data, share = promote_inexact("gaussian_kde", data, weights)
            share = jnp.atleast_1d(share)
            if share.shape != (n,):
                raise ParameterError(
                    "gaussian_kde: `weights` input should be one-dimensional, of length n",
                    got=share.type,
                    expected=f"[{n}]",
                )
            share = share / jnp.sum(share)
        self._set(1 / jnp.sum(share**2), data, share, None, None)
        factor = self._factor("scott" if bw_method is None else bw_method, d)
        spread = jnp.atleast_2d(jnp.cov(data, rowvar=True, bias=False, aweights=share))
        self._set(self.neff, data, share, spread * factor**2, jnp.linalg.inv(spread) / factor**2)

    def _set(self, *values: Any) -> None:
        names = ("neff", "dataset", "weights", "covariance", "inv_cov")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"gaussian_kde: cannot assign to field {name!r}; make a new estimate")

    def _factor(self, method: Any, d: int) -> Any:
        if isinstance(method, str):
            if method == "scott":
                return self.neff ** (-1.0 / (d + 4))
            if method == "silverman":
                return (self.neff * (d + 2) / 4.0) ** (-1.0 / (d + 4))
        elif callable(method):
            return method(self)
        elif jnp.ndim(method) == 0:
            return method
        raise ParameterError(
            "gaussian_kde: `bw_method` should be 'scott', 'silverman', a scalar, or a callable.", got=repr(method)[:60]
        )

    def tree_flatten(self) -> tuple[tuple[Any, ...], None]:
        """The arrays, for pytrees."""
        return (self.neff, self.dataset, self.weights, self.covariance, self.inv_cov), None

    @classmethod
    def tree_unflatten(cls, aux_data: None, children: Any) -> gaussian_kde:
        """The estimate from its arrays."""
        kde = cls.__new__(cls)
        kde._set(*children)
        return kde

    @property
    def d(self) -> int:
        """The number of dimensions."""
        return self.dataset.shape[0]

    @property
    def n(self) -> int:
        """The number of data points."""
        return self.dataset.shape[1]

    def _points(self, points: Any) -> Array:
        x = jnp.atleast_2d(points)
        if x.dtype in dtypes.COMPLEX:
            raise NotImplementedError("gaussian_kde does not support complex coordinates")
        d, m = x.shape
        if d == self.d:
            return x
        if d == 1 and m == self.d:
            return x.reshape(self.d, 1)
        raise ParameterError("gaussian_kde: points have another dimension than the dataset", got=d, expected=self.d)

    def _terms(self, points: Any) -> tuple[Array, Array]:
        """Logarithms of the kernels [points, data], and the weights."""
        x, data, weights, precision = promote_inexact(
            "gaussian_kde", self._points(points), self.dataset, self.weights, self.inv_cov
        )
        root = linalg.cholesky(precision, lower=True)
        apart = (x.T @ root)[:, None, :] - (data.T @ root)[None, :, :]
        norm = jnp.sum(jnp.log(jnp.diag(root))) - 0.5 * self.d * math.log(2 * math.pi)
        return norm - 0.5 * jnp.sum(apart * apart, axis=-1), weights

    def evaluate(self, points: Any) -> Array:
        """The density at ``points`` [d, m] (or [m] for one dimension): an array [m]."""
        logs, weights = self._terms(points)
        return jnp.sum(weights * jnp.exp(logs), axis=1)

    def __call__(self, points: Any) -> Array:
        """As `evaluate`."""
        return self.evaluate(points)

    def pdf(self, x: Any) -> Array:
        """As `evaluate`."""
        return self.evaluate(x)

    def logpdf(self, x: Any) -> Array:
        """The logarithm of `evaluate`, without underflow."""
        logs, weights = self._terms(x)
        return logsumexp(logs + jnp.log(weights), axis=1)

    def _overlap(self, covariance: Any, means: Array) -> Array:
        """Integrals of this density times normal ones with these means [d, m]: an array [m]."""
        root = linalg.cho_factor(self.covariance + covariance)
        norm = 1 / (math.sqrt(2 * math.pi) ** self.d * jnp.prod(jnp.diag(root[0])))
        apart = self.dataset[:, :, None] - means[:, None, :]
        flat = apart.reshape(self.d, -1)
        square = jnp.sum(flat * linalg.cho_solve(root, flat), axis=0).reshape(apart.shape[1:])
        return norm * jnp.sum(self.weights[:, None] * jnp.exp(-0.5 * square), axis=0)

    def integrate_gaussian(self, mean: Any, cov: Any) -> Array:
        """The integral of the density times a normal one with ``mean`` [d] and ``cov`` [d, d]."""
        mean, cov = jnp.atleast_1d(jnp.squeeze(jnp.asarray(mean))), jnp.atleast_2d(cov)
        if mean.shape != (self.d,):
            raise ParameterError("integrate_gaussian: mean", got=mean.type, expected=f"[{self.d}]")
        if cov.shape != (self.d, self.d):
            raise ParameterError("integrate_gaussian: cov", got=cov.type, expected=f"[{self.d}, {self.d}]")
        return self._overlap(cov, mean[:, None])[0]

    def integrate_box_1d(self, low: Any, high: Any) -> Array:
        """The probability between two numbers; for one dimension."""
        if self.d != 1:
            raise ParameterError("integrate_box_1d() only handles 1D pdfs", got=f"{self.d} dimensions")
        if jnp.ndim(low) or jnp.ndim(high):
            raise ParameterError("integrate_box_1d: the limits of integration must be scalars")
        sigma = jnp.sqrt(self.covariance[0, 0])
        data = self.dataset[0]
        return jnp.sum(self.weights * (ndtr((high - data) / sigma) - ndtr((low - data) / sigma)))

    def integrate_kde(self, other: gaussian_kde) -> Array:
        """The integral of the product of two estimates."""
        if other.d != self.d:
            raise ParameterError("integrate_kde: KDEs are not the same dimensionality", got=other.d, expected=self.d)
        return jnp.sum(other.weights * self._overlap(other.covariance, other.dataset))

    def resample(self, key: Any, shape: Any = ()) -> Array:
        """Samples of the estimated density, [d, *shape]; ``key`` is a random key."""
        which, where = random.split(key)
        index = random.choice(which, self.n, shape=shape, p=self.weights)
        zero = jnp.zeros(self.d, self.covariance.dtype)
        noise = random.multivariate_normal(where, zero, self.covariance, shape=shape, dtype=self.dataset.dtype)
        return self.dataset[:, index] + jnp.moveaxis(noise, -1, 0)

    def integrate_box(self, low_bounds: Any, high_bounds: Any, maxpts: Any = None) -> Array:
        """Not supported, as in JAX: use `integrate_box_1d`."""
        raise NotImplementedError("only 1D box integrations are supported; use `integrate_box_1d`")

    def set_bandwidth(self, bw_method: Any = None) -> None:
        """Not supported, as in JAX: estimates do not change."""
        raise NotImplementedError("dynamically changing the bandwidth method is not supported")
