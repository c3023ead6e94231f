"""The normal distribution and what follows from it directly."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.random.sampler import (
    as_dtype_value,
    as_shape,
    broadcast_parameter,
    checked_shape,
    float_dtype,
    inexact_dtype,
    jit_sampler,
    sampler,
)
from nxjax.random.uniforms import split_key, uniform_in
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape


def standard_normal(key: Array, shape: Shape, dtype: DType) -> Array:
    """Normal with mean 0 and variance 1, real: the inverse distribution function of a uniform number."""
    low = np.nextafter(np.asarray(-1, dtype), np.asarray(0, dtype), dtype=dtype)
    return ops.mul(ops.erf_inv(uniform_in(key, shape, dtype, low, 1)), float(np.sqrt(2)))


@sampler(
    "dtype: a float or complex dtype; float32 by default. Complex numbers have variance 1 in both parts together.",
    raises=["DtypeError: ``dtype`` is not a float or complex dtype."],
)
def normal(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None) -> Array:
    """Normal random numbers with mean 0 and variance 1.

    >>> nx.random.normal(nx.random.key(0), (2, 3)).shape
    (2, 3)
    """
    return _normal(key, shape=as_shape("normal", shape), dtype=inexact_dtype("normal", dtype))


@jit_sampler
def _normal(key: Array, *, shape: Shape, dtype: DType) -> Array:
    if dtype not in dtypes.COMPLEX:
        return standard_normal(key, shape, dtype)

    parts = [standard_normal(k, shape, dtypes.real_part(dtype)) for k in split_key(key)]
    return ops.div(ops.complex(*parts), math.sqrt(2))


@sampler("lower, upper: bounds, floats or arrays.", of="the bounds")
def truncated_normal(
    key: ArrayLike,
    lower: ArrayLike,
    upper: ArrayLike,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Normal numbers, truncated to (lower, upper).

    >>> x = nx.random.truncated_normal(nx.random.key(0), -1.0, 2.0, (10000,))
    >>> x.dtype.name, bool((x > -1).all() and (x < 2).all()), round(float(x.mean()), 2)
    ('float32', True, 0.23)
    """
    found = float_dtype("truncated_normal", dtype)
    full = checked_shape("truncated_normal", shape, lower, upper)
    bounds = [as_dtype_value("truncated_normal", v, found) for v in (lower, upper)]
    return _truncated_normal(key, *bounds, shape=full, dtype=found)


@jit_sampler
def _truncated_normal(key: Array, lower: Array, upper: Array, *, shape: Shape, dtype: DType) -> Array:
    root = float(np.asarray(np.sqrt(2)).astype(dtype))
    a, b = (ops.erf(ops.div(v, root)) for v in (lower, upper))
    out = ops.mul(ops.erf_inv(uniform_in(key, shape, dtype, a, b)), root)
    # Rounding must not lead out of the open interval.
    least, most = ops.nextafter(lower, like(lower, np.inf)), ops.nextafter(upper, like(upper, -np.inf))
    return ops.min(ops.max(out, broadcast_parameter(least, shape)), broadcast_parameter(most, shape))


@sampler("sigma: number or array.", kind="float or complex")
def lognormal(
    key: ArrayLike, sigma: ArrayLike = 1.0, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """exp(sigma * n) with n normal.

    >>> x = nx.random.lognormal(nx.random.key(0), 0.5, (10000,))
    >>> x.dtype.name, round(float(nx.numpy.log(x).std()), 1)
    ('float32', 0.5)
    """
    value = as_dtype_value("lognormal", sigma, inexact_dtype("lognormal", dtype))
    return _lognormal(key, value, shape=checked_shape("lognormal", shape, sigma))


@jit_sampler
def _lognormal(key: Array, sigma: Array, *, shape: Shape) -> Array:
    return ops.exp(ops.mul(_normal(key, shape=shape, dtype=sigma.dtype), broadcast_parameter(sigma, shape)))
