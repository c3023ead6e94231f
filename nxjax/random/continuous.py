"""Continuous distributions that are functions of uniform or normal numbers.

Each draws with the formula JAX draws with, so that equal keys give equal numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nxjax import numpy as jnp
from nxjax.numpy.documented import named
from nxjax.numpy.promotion import check_choice
from nxjax.ops import vocabulary as ops
from nxjax.random.normals import standard_normal
from nxjax.random.sampler import (
    as_dtype_value,
    as_shape,
    checked_shape,
    float_dtype,
    jit_sampler,
    sample_parametric,
    sampler,
)
from nxjax.random.uniforms import rademacher, split_key, static_index, uniform_in, unit_uniform
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape


def _standard(name: str, doc: str, draw: Callable[[Array, Shape, DType], Array], shown: str, result: str) -> Any:
    """A sampler without parameters; ``shown`` is a statistic of ten thousand numbers, ``result`` what it is."""

    example = f">>> x = nx.random.{name}(nx.random.key(0), (10000,))\n>>> x.dtype.name, {shown}\n('float32', {result})"

    @jit_sampler
    def sample(key: Array, *, shape: Shape, dtype: DType) -> Array:
        return draw(key, shape, dtype)

    @sampler()
    @named(name, f"{doc}\n\n{example}")
    def function(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None) -> Array:
        return sample(key, shape=as_shape(name, shape), dtype=float_dtype(name, dtype))

    return function


def standard_exponential(key: Array, shape: Shape, dtype: DType) -> Array:
    # 1 - u, as the logarithm needs (0, 1] and u is in [0, 1).
    return -ops.log1p(-unit_uniform(key, shape, dtype))


def _cauchy(key: Array, shape: Shape, dtype: DType) -> Array:
    u = uniform_in(key, shape, dtype, float(dtypes.float_info(dtype).eps), 1.0)
    return ops.tan(ops.sub(u, 0.5) * np.pi)


def _laplace(key: Array, shape: Shape, dtype: DType) -> Array:
    low = -1.0 + float(dtypes.float_info(dtype).epsneg)
    u = uniform_in(key, shape, dtype, low, 1.0)
    return ops.sign(u) * ops.log1p(-abs(u))


def _logistic(key: Array, shape: Shape, dtype: DType) -> Array:
    x = uniform_in(key, shape, dtype, float(dtypes.float_info(dtype).tiny), 1.0)
    return ops.log(x) - ops.log1p(-x)


def _maxwell(key: Array, shape: Shape, dtype: DType) -> Array:
    x = standard_normal(key, (*shape, 3), dtype)
    return jnp.sqrt(jnp.sum(x * x, axis=-1))


exponential = _standard(
    "exponential", "Exponential with rate 1: density exp(-x) for x >= 0.", standard_exponential,
    "bool((x >= 0).all()), round(float(x.mean()), 1)", "True, 1.0",
)  # fmt: skip
cauchy = _standard(
    "cauchy", "Cauchy: density 1 / (pi (1 + x^2)).", _cauchy, "round(float((abs(x) < 1).mean()), 1)", "0.5"
)
laplace = _standard("laplace", "Laplace: density exp(-|x|) / 2.", _laplace, "round(float(abs(x).mean()), 1)", "1.0")
logistic = _standard(
    "logistic", "Logistic: density exp(-x) / (1 + exp(-x))^2.", _logistic,
    "round(float(x.std()), 1), round(np.pi / 3**0.5, 1)", "1.8, 1.8",
)  # fmt: skip
maxwell = _standard(
    "maxwell", "Maxwell: the length of a vector of three normal numbers.", _maxwell,
    "round(float(x.mean()), 1), round(2 * (2 / np.pi) ** 0.5, 1)", "1.6, 1.6",
)  # fmt: skip


def _pareto(key: Array, shape: Shape, dtype: DType, b: Array) -> Array:
    return ops.exp(standard_exponential(key, shape, dtype) / b)


def _rayleigh(key: Array, shape: Shape, dtype: DType, scale: Array) -> Array:
    return scale * ops.sqrt(ops.log(unit_uniform(key, shape, dtype)) * -2.0)


def _triangular(key: Array, shape: Shape, dtype: DType, left: Array, mode: Array, right: Array) -> Array:
    u = unit_uniform(key, shape, dtype)
    low = left + ops.sqrt(u * (right - left) * (mode - left))
    high = right - ops.sqrt((1 - u) * (right - left) * (right - mode))
    return ops.select_n(u < (mode - left) / (right - left), high, low)


def _wald(key: Array, shape: Shape, dtype: DType, mean: Array) -> Array:
    # Michael, Schucany and Haas, "Generating random variates using transformations with multiple roots" (1976)
    k1, k2 = split_key(key)
    v = standard_normal(k1, shape, dtype)
    z = unit_uniform(k2, shape, dtype)
    y = ops.integer_pow(v, y=2)
    squared = ops.integer_pow(mean, y=2)
    root = ops.sqrt(4 * mean * y + squared * ops.integer_pow(y, y=2))
    x = mean + squared * y / 2 - mean / 2 * root
    return ops.select_n(z <= mean / (mean + x), squared / x, x)


@sampler("b: exponent, a number or an array.")
def pareto(
    key: ArrayLike, b: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Pareto: density b / x^(b + 1) for x >= 1.

    >>> x = nx.random.pareto(nx.random.key(0), 3.0, (10000,))
    >>> x.dtype.name, bool(x.min() >= 1), round(float(x.mean()), 1)
    ('float32', True, 1.5)
    """
    return sample_parametric("pareto", _pareto, key, (b,), shape, dtype)


@sampler("scale: number or array.")
def rayleigh(
    key: ArrayLike, scale: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Rayleigh: ``scale`` times the length of a vector of two normal numbers.

    >>> x = nx.random.rayleigh(nx.random.key(0), 2.0, (10000,))
    >>> x.dtype.name, round(float(x.mean()), 1), round(2 * (np.pi / 2) ** 0.5, 1)
    ('float32', 2.5, 2.5)
    """
    return sample_parametric("rayleigh", _rayleigh, key, (scale,), shape, dtype)


@sampler("left, mode, right: numbers or arrays.")
def triangular(
    key: ArrayLike,
    left: ArrayLike,
    mode: ArrayLike,
    right: ArrayLike,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
) -> Array:
    """Triangular between ``left`` and ``right`` with the top at ``mode``.

    >>> x = nx.random.triangular(nx.random.key(0), 0.0, 1.0, 2.0, (10000,))
    >>> x.dtype.name, bool((x >= 0).all() and (x <= 2).all()), round(float(x.mean()), 1)
    ('float32', True, 1.0)
    """
    return sample_parametric("triangular", _triangular, key, (left, mode, right), shape, dtype)


@sampler("mean: positive number or array.")
def wald(
    key: ArrayLike, mean: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Wald, the inverse Gaussian distribution, with mean ``mean`` and scale 1.

    >>> x = nx.random.wald(nx.random.key(0), 2.0, (10000,))
    >>> x.dtype.name, bool((x > 0).all()), round(float(x.mean()), 1)
    ('float32', True, 2.0)
    """
    return sample_parametric("wald", _wald, key, (mean,), shape, dtype)


@sampler(
    'mode: ``"low"`` (the default) draws one uniform number, ``"high"`` two, which reach further into the tail.',
    raises=["ParameterError: another mode."],
)
def gumbel(
    key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None, mode: str | None = None
) -> Array:
    """Gumbel: density exp(-(x + exp(-x))).

    >>> x = nx.random.gumbel(nx.random.key(0), (10000,))
    >>> x.dtype.name, round(float(x.mean()), 1), round(np.euler_gamma, 1)
    ('float32', 0.6, 0.6)
    """
    check_choice("random.gumbel: mode", mode, None, "low", "high")
    return _gumbel(key, shape=as_shape("gumbel", shape), dtype=float_dtype("gumbel", dtype), mode=mode or "low")


@jit_sampler
def _gumbel(key: Array, *, shape: Shape, dtype: DType, mode: str) -> Array:
    return standard_gumbel(key, shape, dtype, mode)


def standard_gumbel(key: Array, shape: Shape, dtype: DType, mode: str | None = None) -> Array:
    info = dtypes.float_info(dtype)
    if mode != "high":
        return -ops.log(-ops.log(uniform_in(key, shape, dtype, float(info.tiny), 1.0)))
    both = unit_uniform(key, (2, *shape), dtype)
    high, low = static_index(both, 0), static_index(both, 1)
    # Above one half the fine bits would only round up to 1.
    x = jnp.where(high >= 0.5, high, high + 2.0 ** -int(info.nmant) * low + float(info.tiny))
    return -ops.log(-ops.log1p(-x))


@sampler(
    "scale, concentration: numbers or arrays that broadcast with ``shape``.",
    "shape: of the uniform numbers drawn.",
    raises=["ShapeError: the parameters do not broadcast to ``shape``."],
    sharded=False,
)
def weibull_min(
    key: ArrayLike,
    scale: ArrayLike,
    concentration: ArrayLike,
    shape: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
) -> Array:
    """Weibull: density proportional to (x / scale)^(c - 1) exp(-(x / scale)^c) with c the ``concentration``.

    >>> x = nx.random.weibull_min(nx.random.key(0), 2.0, 1.0, (10000,))
    >>> x.dtype.name, bool((x >= 0).all()), round(float(x.mean()), 1)
    ('float32', True, 2.0)
    """
    found = float_dtype("weibull_min", dtype)
    values = [as_dtype_value("weibull_min", v, found) for v in (scale, concentration)]
    return _weibull_min(key, *values, shape=as_shape("weibull_min", shape), dtype=found)


@jit_sampler
def _weibull_min(key: Array, scale: Array, concentration: Array, *, shape: Shape, dtype: DType) -> Array:
    u = unit_uniform(key, shape, dtype)
    return jnp.power(-ops.log1p(-u), 1.0 / concentration) * scale


@sampler(
    "loc, scale: numbers or arrays.",
    "shape: prefix of the result's shape, before that of the parameters; if empty, theirs twice, as in JAX.",
    sharded=False,
)
def double_sided_maxwell(
    key: ArrayLike, loc: ArrayLike, scale: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None
) -> Array:
    """A Maxwell number with a random sign, times ``scale`` plus ``loc``.

    >>> x = nx.random.double_sided_maxwell(nx.random.key(0), 1.0, 2.0, (10000,))
    >>> x.dtype.name, x.shape, round(float(abs(x - 1).mean()), 1), round(4 * (2 / np.pi) ** 0.5, 1)
    ('float32', (10000,), 3.2, 3.2)
    """
    found = float_dtype("double_sided_maxwell", dtype)
    common = checked_shape("double_sided_maxwell", None, loc, scale)
    full = (as_shape("double_sided_maxwell", shape) or common) + common
    k1, k2 = split_key(key)
    size, signs = maxwell(k1, full, found), rademacher(k2, full, found)
    return signs * size * as_dtype_value("double_sided_maxwell", scale, found) + as_dtype_value(
        "double_sided_maxwell", loc, found
    )
