"""The gamma distribution, and those made of it: beta, dirichlet, chisquare, f, t, generalized normal, ball.

Samples are differentiable in the parameters, by implicit reparameterization (Figurnov et al., 2018).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from nxjax import numpy as jnp
from nxjax.errors import ShapeError
from nxjax.lax._incomplete import gamma_sample_slope
from nxjax.numpy.promotion import static_int
from nxjax.ops.arithmetic import pow, sqrt
from nxjax.ops.base import like
from nxjax.ops.composite_softmax import softmax
from nxjax.ops.elementary import exp, log
from nxjax.ops.random import random_split
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import slice as slice_
from nxjax.random.continuous import standard_exponential
from nxjax.random.normals import standard_normal
from nxjax.random.sampler import (
    as_dtype_value,
    as_shape,
    broadcast_parameter,
    checked_shape,
    float_dtype,
    jit_sampler,
    sample_parametric,
    sampler,
)
from nxjax.random.uniforms import rademacher, split_key, unit_uniform
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape
from nxjax.transforms.control.while_loop import while_loop
from nxjax.transforms.custom_jvp import custom_jvp


def _columns(keys: Array, num: int) -> list[Array]:
    """``num`` keys from each key of a vector."""
    n = keys.shape[0]
    new = random_split(keys, shape=(num,))
    return [
        reshape(slice_(new, start_indices=(0, i), limit_indices=(n, i + 1), strides=None), shape=(n,))
        for i in range(num)
    ]


def _rejection(keys: Array, alpha: Array, log_space: bool) -> Array:
    """One gamma number per key; both operands are vectors.

    Marsaglia and Tsang, "A simple method for generating gamma variables" (2000). Below 1, alpha + 1 is drawn for and
    the result multiplied by u^(1 / alpha); its logarithm is the sum of theirs, which does not underflow.
    """
    dtype = alpha.dtype
    large = alpha >= 1
    raised = select_n(large, alpha + 1, alpha)
    third = 1.0 / 3.0
    d = raised - third
    c = like(d, third) / sqrt(d)

    def proposal(x_keys: Array, going: Array) -> tuple[Array, Array]:
        """Normal x and 1 + c x, drawn again until the latter is positive."""

        def again(state: tuple[Array, Array, Array]) -> Array:
            return jnp.any(state[2] <= 0)

        def draw(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
            k, x, v = state
            next_k, use = _columns(k, 2)
            new = standard_normal(use, (), dtype)
            redo = v <= 0
            return select_n(redo, k, next_k), select_n(redo, x, new), select_n(redo, v, 1 + new * c)

        # Those that are done wait at a positive v.
        start = select_n(going, like(alpha, 1), like(alpha, -1))
        _, x, v = while_loop(again, draw, (x_keys, like(alpha, 0), start))
        return x, v

    def rejected(x2: Array, v: Array, u: Array) -> Array:
        squeeze = u >= 1 - 0.0331 * (x2 * x2)
        return squeeze & (log(u) >= x2 * 0.5 + d * (1 - v + log(v)))

    def unfinished(state: tuple[Array, Array, Array, Array]) -> Array:
        return jnp.any(rejected(*state[1:]))

    def step(state: tuple[Array, Array, Array, Array]) -> tuple[Array, Array, Array, Array]:
        k, x2, v3, u = state
        going = rejected(x2, v3, u)
        next_k, x_keys, u_keys = _columns(k, 3)
        x, v = proposal(x_keys, going)
        new = (next_k, x * x, v * v * v, unit_uniform(u_keys, (), dtype))
        return tuple(select_n(going, old, fresh) for old, fresh in zip(state, new, strict=True))  # type: ignore[return-value]

    keys, boost_keys = _columns(keys, 2)
    start = (keys, like(alpha, 0), like(alpha, 1), like(alpha, 2))
    v = while_loop(unfinished, step, start)[2]
    if log_space:
        tail = -standard_exponential(boost_keys, (), dtype)
        boost = select_n(large | (tail == 0), tail * (1 / alpha), like(alpha, 0))
        return log(d) + log(v) + boost
    boost = select_n(large, pow(1 - unit_uniform(boost_keys, (), dtype), 1 / alpha), like(alpha, 1))
    return d * v * boost


@functools.cache
def _differentiable(log_space: bool) -> Any:
    @custom_jvp
    def sample(key: Array, a: Array) -> Array:
        flat = _rejection(random_split(key, shape=(a.size,)), a.reshape(-1), log_space)
        return flat.reshape(a.shape)

    def with_tangent(primals: Any, tangents: Any) -> Any:
        (key, a), (_, t) = primals, tangents
        y = sample(key, a)
        if not log_space:
            return y, t * gamma_sample_slope(a, y)
        tiny = float(dtypes.float_info(a.dtype).tiny)
        x = exp(y)
        x = select_n(x == 0, x, like(x, tiny))
        return y, t * (gamma_sample_slope(a, x) / x)

    sample.defjvp(with_tangent)
    return sample


def gamma_values(key: Array, a: Array, shape: Shape, log_space: bool) -> Array:
    return _differentiable(log_space)(key, broadcast_parameter(a, shape))


def _gamma(key: Array, shape: Shape, dtype: DType, a: Array) -> Array:
    return gamma_values(key, a, shape, False)


def _loggamma(key: Array, shape: Shape, dtype: DType, a: Array) -> Array:
    return gamma_values(key, a, shape, True)


@sampler("a: positive number or array.")
def gamma(
    key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Gamma with shape parameter ``a`` and scale 1: density proportional to x^(a - 1) exp(-x).

    Samples are differentiable in ``a``. Very small ``a`` underflow; see `loggamma`.

    >>> x = nx.random.gamma(nx.random.key(0), 3.0, (2000,))
    >>> x.dtype.name, bool((x > 0).all()), round(float(x.mean()), 1)
    ('float32', True, 3.0)
    """
    return sample_parametric("gamma", _gamma, key, (a,), shape, dtype)


@sampler("a: positive number or array.")
def loggamma(
    key: ArrayLike, a: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """The logarithm of `gamma`, accurate for small ``a``.

    >>> key = nx.random.key(0)
    >>> float(nx.random.gamma(key, 1e-4, (100,)).min())
    0.0
    >>> bool(nx.random.loggamma(key, 1e-4, (100,)).min() > -jnp.inf)
    True
    """
    return sample_parametric("loggamma", _loggamma, key, (a,), shape, dtype)


@sampler("a, b: positive numbers or arrays.")
def beta(
    key: ArrayLike, a: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Beta: density proportional to x^(a - 1) (1 - x)^(b - 1) on [0, 1].

    >>> x = nx.random.beta(nx.random.key(0), 2.0, 3.0, (2000,))
    >>> x.dtype.name, bool((x >= 0).all() and (x <= 1).all()), round(float(x.mean()), 1)
    ('float32', True, 0.4)
    """
    return sample_parametric("beta", _beta, key, (a, b), shape, dtype)


def _beta(key: Array, shape: Shape, dtype: DType, a: Array, b: Array) -> Array:
    ka, kb = split_key(key)
    x, y = gamma_values(ka, a, shape, True), gamma_values(kb, b, shape, True)
    top = jnp.maximum(x, y)
    x, y = exp(x - top), exp(y - top)
    return x / (x + y)


@sampler(
    "alpha: positive, [..., n].",
    "shape: of the result without its last axis; that of ``alpha`` by default.",
    raises=["ShapeError: ``alpha`` is a number, or does not broadcast to ``shape``."],
)
def dirichlet(
    key: ArrayLike, alpha: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Dirichlet: vectors of positive numbers with sum 1.

    >>> x = nx.random.dirichlet(nx.random.key(0), jnp.array([1.0, 2.0, 3.0]), (500,))
    >>> x.shape, bool(jnp.allclose(x.sum(-1), 1))
    ((500, 3), True)
    """
    found = float_dtype("dirichlet", dtype)
    value = as_dtype_value("dirichlet", alpha, found)
    if not value.shape:
        raise ShapeError("random.dirichlet: alpha needs at least one axis", got=value.type)
    full = checked_shape("dirichlet", shape, jnp.zeros(value.shape[:-1]))
    return _dirichlet(key, value, shape=(*full, value.shape[-1]))


@jit_sampler
def _dirichlet(key: Array, alpha: Array, *, shape: Shape) -> Array:
    return softmax(gamma_values(key, alpha, shape, True), axis=len(shape) - 1)


def _chi2(key: Array, shape: Shape, dtype: DType, df: Array) -> Array:
    return exp(gamma_values(key, df / 2, shape, True)) * 2


@sampler("df: positive number or array.")
def chisquare(
    key: ArrayLike, df: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Chi-square with ``df`` degrees of freedom.

    >>> x = nx.random.chisquare(nx.random.key(0), 3.0, (2000,))
    >>> x.dtype.name, bool((x > 0).all()), round(float(x.mean()))
    ('float32', True, 3)
    """
    return sample_parametric("chisquare", _chi2, key, (df,), shape, dtype)


@sampler("dfnum, dfden: positive numbers or arrays.")
def f(
    key: ArrayLike,
    dfnum: ArrayLike,
    dfden: ArrayLike,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """F distribution: a ratio of mean squares with ``dfnum`` and ``dfden`` degrees of freedom.

    >>> x = nx.random.f(nx.random.key(0), 4.0, 40.0, (2000,))
    >>> x.dtype.name, bool((x > 0).all()), round(float(x.mean()))
    ('float32', True, 1)
    """
    return sample_parametric("f", _f, key, (dfnum, dfden), shape, dtype)


def _f(key: Array, shape: Shape, dtype: DType, dfnum: Array, dfden: Array) -> Array:
    below, above = split_key(key)
    return (_chi2(above, shape, dtype, dfnum) / dfnum) / (_chi2(below, shape, dtype, dfden) / dfden)


@sampler("df: positive number or array.")
def t(key: ArrayLike, df: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None) -> Array:
    """Student's t with ``df`` degrees of freedom.

    >>> x = nx.random.t(nx.random.key(0), 10.0, (2000,))
    >>> x.dtype.name, round(float(x.std()), 1), round((10 / 8) ** 0.5, 1)
    ('float32', 1.1, 1.1)
    """
    return sample_parametric("t", _t, key, (df,), shape, dtype)


def _t(key: Array, shape: Shape, dtype: DType, df: Array) -> Array:
    kn, kg = split_key(key)
    half = df / 2
    return standard_normal(kn, shape, dtype) * jnp.sqrt(half / gamma_values(kg, half, shape, False))


@sampler("p: positive number.")
def generalized_normal(
    key: ArrayLike, p: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Array:
    """Density proportional to exp(-|x|^p).

    >>> x = nx.random.generalized_normal(nx.random.key(0), 2.0, (2000,))
    >>> x.dtype.name, round(float(x.std()), 1), round(0.5**0.5, 1)
    ('float32', 0.7, 0.7)
    """
    found = float_dtype("generalized_normal", dtype)
    return _generalized_normal(key, as_value(p), shape=as_shape("generalized_normal", shape), dtype=found)


@jit_sampler
def _generalized_normal(key: Array, p: Array, *, shape: Shape, dtype: DType) -> Array:
    k1, k2 = split_key(key)
    g = gamma(k1, 1 / p, shape, dtype)
    return rademacher(k2, shape, dtype) * g ** (1 / p)


@sampler("d: number of dimensions.", "p: of the norm, positive.", "shape: of the result without its last axis.")
def ball(
    key: ArrayLike, d: int, p: ArrayLike = 2, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Array:
    """Uniform in the unit ball of the p-norm in ``d`` dimensions; the result has shape (*shape, d).

    Barthe, Guedon, Mendelson and Naor, "A probabilistic approach to the geometry of the l_p^n-ball" (2005).

    >>> x = nx.random.ball(nx.random.key(0), 3, shape=(500,))
    >>> x.shape, bool(((x * x).sum(-1) <= 1).all())
    ((500, 3), True)
    """
    full, found = as_shape("ball", shape), float_dtype("ball", dtype)
    return _ball(key, as_value(p), d=static_int("random.ball", d), shape=full, dtype=found)


@jit_sampler
def _ball(key: Array, p: Array, *, d: int, shape: Shape, dtype: DType) -> Array:
    k1, k2 = split_key(key)
    g = generalized_normal(k1, p, (*shape, d), dtype)
    e = standard_exponential(k2, shape, dtype)
    return g / (((abs(g) ** p).sum(-1) + e) ** (1 / p))[..., None]
