"""Discrete distributions: categorical, poisson, geometric, binomial, multinomial."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import as_axis, check_choice, promote_inexact
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.random.continuous import standard_gumbel
from nxjax.random.keys import split
from nxjax.random.sampler import (
    as_dtype_value,
    broadcast_parameter,
    checked_shape,
    float_dtype,
    int_dtype,
    jit_sampler,
    placed,
    sampler,
)
from nxjax.random.uniforms import split_key, unit_uniform
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape
from nxjax.transforms.control.scan import scan
from nxjax.transforms.control.while_loop import while_loop


@placed
@example("nx.random.key(0), nx.zeros((4, 10))", "(4,)", then=".shape")
def categorical(
    key: ArrayLike,
    logits: ArrayLike,
    axis: int = -1,
    shape: int | Sequence[int] | None = None,
    replace: bool = True,
    mode: str | None = None,
) -> Array:
    """Numbers of categories, drawn with probabilities softmax(logits).

    Args:
        key: a single key.
        logits: unnormalized log-probabilities; float.
        axis: the axis of the categories.
        shape: of the result; ends with the shape of ``logits`` without ``axis``, which is the default.
        replace: draw each category any number of times; else the leading part of ``shape`` is drawn without repetition.
        mode: of the Gumbel numbers, see `gumbel`.

    Returns:
        int32 array.

    Raises:
        KeyTypeError: ``key`` is not a single key.
        ShapeError: logits without an axis, or a ``shape`` that does not end as it has to.
        ParameterError: more draws without replacement than categories.
    """
    check_choice("random.categorical: mode", mode, None, "low", "high")
    (values,) = promote_inexact("random.categorical", logits)
    float_dtype("categorical", values.dtype)
    if not values.shape:
        raise ShapeError("random.categorical: logits need at least one axis", got=values.type)
    where = as_axis("random.categorical", axis, values.ndim)
    rest = values.shape[:where] + values.shape[where + 1 :]
    full = rest if shape is None else checked_shape("categorical", shape, np.broadcast_to(np.uint8(0), rest))
    prefix = full[: len(full) - len(rest)]
    if not replace and math.prod(prefix) > values.shape[where]:
        raise ParameterError(
            "random.categorical: more draws without replacement than categories",
            got=math.prod(prefix),
            expected=f"at most {values.shape[where]}",
        )
    return _categorical(key, values, axis=where, shape=full, replace=bool(replace), mode=mode)


@jit_sampler
def _categorical(key: Array, logits: Array, *, axis: int, shape: Shape, replace: bool, mode: str | None) -> Array:
    n = logits.ndim - 1
    prefix, rest = shape[: len(shape) - n], list(shape[len(shape) - n :])
    if replace:
        rest.insert(axis, logits.shape[axis])
        noise = standard_gumbel(key, (*prefix, *rest), logits.dtype, mode)
        return jnp.argmax(noise + broadcast_parameter(logits, noise.shape), axis=axis + len(prefix))

    noisy = jnp.moveaxis(logits + standard_gumbel(key, logits.shape, logits.dtype, mode), axis, -1)
    chosen = lax.top_k(noisy, math.prod(prefix))[1]
    return jnp.moveaxis(chosen, -1, 0).reshape(shape)


@sampler("p: float or array of probabilities.", kind="integer")
def geometric(
    key: ArrayLike, p: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """The number of tosses up to the first success of probability ``p``.

    >>> x = nx.random.geometric(nx.random.key(0), 0.5, (10000,))
    >>> x.dtype.name, int(x.min()), round(float(x.mean()), 1)
    ('int32', 1, 2.0)
    """
    (chance,) = promote_inexact("random.geometric", p)
    float_dtype("geometric", chance.dtype)
    found = int_dtype("geometric", dtype)
    return _geometric(key, chance, shape=checked_shape("geometric", shape, chance), dtype=found)


@jit_sampler
def _geometric(key: Array, p: Array, *, shape: Shape, dtype: DType) -> Array:
    u = unit_uniform(key, shape, p.dtype)
    u = jnp.where(u == 0, 1, u)  # log 0 would be infinite
    return (ops.floor(ops.log(u) / broadcast_parameter(ops.log1p(-p), shape)) + 1).astype(dtype)


@sampler("lam: number or array.", kind="integer")
def poisson(
    key: ArrayLike, lam: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """Poisson with mean ``lam``.

    Below 10 by Knuth's products of uniform numbers, above by Hörmann's transformed rejection (1993).

    >>> x = nx.random.poisson(nx.random.key(0), 3.0, (2000,))
    >>> x.dtype.name, int(x.min()), round(float(x.mean()), 1)
    ('int32', 0, 3.0)
    """
    found = int_dtype("poisson", dtype)
    full = checked_shape("poisson", shape, lam)
    return _poisson(key, as_dtype_value("poisson", lam, dtypes.float32), shape=full, dtype=found)


@jit_sampler
def _poisson(key: Array, lam: Array, *, shape: Shape, dtype: DType) -> Array:
    lam = broadcast_parameter(lam, shape)
    small = (lam != lam) | (lam < 10)
    steps = int(dtypes.integer_info(dtype).max)
    counted = _poisson_by_products(key, ops.select_n(small, like(lam, 0), lam), shape, dtype, steps)
    large = ops.select_n(small, lam, like(lam, 1e5))
    rejected = _poisson_by_rejection(ops.random_clone(key), large, shape, dtype, steps)
    drawn = ops.select_n(small, rejected, counted)
    return ops.select_n(lam == 0, drawn, like(drawn, 0))


def _poisson_by_products(key: Array, lam: Array, shape: Shape, dtype: DType, steps: int) -> Array:
    def unfinished(state: Any) -> Array:
        i, _, _, product = state
        return jnp.any(product > -lam) & (i < steps)

    def step(state: Any) -> Any:
        i, count, k, product = state
        k, use = split_key(k)
        count = ops.select_n(product > -lam, count, count + 1)
        return i + 1, count, k, product + ops.log(unit_uniform(use, shape, dtypes.float32))

    start = (_zero(dtype), jnp.zeros(shape, dtype), key, jnp.zeros(shape, dtypes.float32))
    return while_loop(unfinished, step, start)[1] - 1


def _poisson_by_rejection(key: Array, lam: Array, shape: Shape, dtype: DType, steps: int) -> Array:
    log_lam = ops.log(lam)
    b = 0.931 + 2.53 * jnp.sqrt(lam)
    a = -0.059 + 0.02483 * b
    inverse_alpha = 1.1239 + 1.1328 / (b - 3.4)
    v_r = 0.9277 - 3.6224 / (b - 2)

    def unfinished(state: Any) -> Array:
        i, _, done, _ = state
        return jnp.any(~done) & (i < steps)

    def step(state: Any) -> Any:
        i, found, done, k = state
        k, k0, k1 = split_key(k, 3)
        u = unit_uniform(k0, shape, lam.dtype) - 0.5
        v = unit_uniform(k1, shape, lam.dtype)
        us = 0.5 - abs(u)
        n = ops.floor((2 * a / us + b) * u + lam + 0.43)
        s = ops.log(v * inverse_alpha / (a / (us * us) + b))
        bound = -lam + n * log_lam - ops.lgamma(n + 1)
        quick = (us >= 0.07) & (v <= v_r)
        never = (n < 0) | ((us < 0.013) & (v > us))
        accept = quick | (~never & (s <= bound))
        return i + 1, ops.select_n(accept, found, n), done | accept, k

    start = (_zero(dtype), like(lam, -1), jnp.zeros(shape, bool), key)
    return while_loop(unfinished, step, start)[1].astype(dtype)


def _zero(dtype: DType) -> Array:
    return jnp.zeros((), dtypes.int32 if dtypes.bit_width(dtype) < 64 else dtype)


# --- binomial ---


@sampler("n, p: numbers or arrays.", sharded=False)
def binomial(
    key: ArrayLike, n: ArrayLike, p: ArrayLike, shape: int | Sequence[int] | None = None, dtype: DTypeLike | None = None
) -> Array:
    """The number of successes in ``n`` trials with success probability ``p``, as a float.

    Sums of geometric numbers where n p <= 10, else transformed rejection (Hörmann, 1993).

    >>> x = nx.random.binomial(nx.random.key(0), 10, 0.3, (2000,))
    >>> x.dtype.name, bool((x <= 10).all()), round(float(x.mean()), 1)
    ('float32', True, 3.0)
    """
    found = float_dtype("binomial", dtype)
    full = checked_shape("binomial", shape, n, p)
    (chance,) = promote_inexact("random.binomial", p)
    count = as_dtype_value("binomial", n, chance.dtype)
    return _binomial(key, count, chance, shape=full, dtype=found)


@jit_sampler
def _binomial(key: Array, count: Array, p: Array, *, shape: Shape, dtype: DType) -> Array:
    count, p = broadcast_parameter(count, shape), broadcast_parameter(p, shape)
    low = p < 0.5
    q = ops.select_n(low, 1.0 - p, p)
    no_count = (count != count) | (count < 0.0)
    endless = jnp.isinf(count)
    q_nan, q_negative = q != q, q < 0.0
    q = ops.select_n(q_nan | q_negative, q, like(q, 0.01))
    few = no_count | (count * q <= 10.0)
    count = ops.floor(count)
    steps = np.iinfo(np.int32).max
    summed = _binomial_by_sums(key, ops.select_n(few, like(count, 0), count), q, shape, dtype, steps)
    many, q = ops.select_n(few, count, like(count, 1e4)), ops.select_n(few, q, like(q, 0.5))
    rejected = _binomial_by_rejection(ops.random_clone(key), many, q, shape, dtype, steps)
    drawn = ops.select_n(few, rejected, summed)
    invalid = q_negative | q_nan | no_count
    drawn = ops.select_n(invalid, drawn, like(drawn, np.nan))
    drawn = ops.select_n(endless & ~invalid, drawn, like(drawn, np.inf))
    as_it_is = low | no_count | q_nan | endless
    return ops.select_n(as_it_is, count.astype(dtype) - drawn, drawn)


def _binomial_by_sums(key: Array, count: Array, p: Array, shape: Shape, dtype: DType, steps: int) -> Array:
    log_q = ops.log1p(-p)

    def unfinished(state: Any) -> Array:
        return jnp.any(state[2] <= count) & (state[0] < steps)

    def step(state: Any) -> Any:
        i, number, total, k = state
        use, k = split_key(k)
        number = ops.select_n(total <= count, number, number + 1)
        return i + 1, number, total + jnp.ceil(ops.log(unit_uniform(use, shape, p.dtype)) / log_q), k

    start = (_zero(dtypes.int32), like(p, 0), like(p, 0), key)
    return (while_loop(unfinished, step, start)[1] - 1).astype(dtype)


_TAILS = np.array(
    [
        0.0810614667953272, 0.0413406959554092, 0.0276779256849983, 0.02079067210376509, 0.0166446911898211,
        0.0138761288230707, 0.0118967099458917, 0.0104112652619720, 0.00925546218271273, 0.00833056343336287,
    ]
)  # fmt: skip


def _stirling_tail(k: Array) -> Array:
    """log k! less Stirling's approximation: from a table up to 9, by its series above."""
    table = jnp.asarray(_TAILS.astype(k.dtype))
    known = k <= 9
    k = jnp.clip(k, 0.0, 9.0)
    square = (k + 1) * (k + 1)
    series = (1.0 / 12 - (1.0 / 360 - 1.0 / 1260 / square) / square) / (k + 1)
    return ops.select_n(known, series, table[ops.floor(k).astype(dtypes.int32)])


def _binomial_by_rejection(key: Array, count: Array, p: Array, shape: Shape, dtype: DType, steps: int) -> Array:
    deviation = jnp.sqrt(count * p * (1 - p))
    b = 1.15 + 2.53 * deviation
    a = -0.0873 + 0.0248 * b + 0.01 * p
    c = count * p + 0.5
    v_r = 0.92 - 4.2 / b
    r = p / (1 - p)
    alpha = (2.83 + 5.1 / b) * deviation
    m = ops.floor((count + 1) * p)

    def unfinished(state: Any) -> Array:
        return jnp.any(~state[2]) & (state[0] < steps)

    def step(state: Any) -> Any:
        i, found, done, key = state
        key, k0, k1 = split_key(key, 3)
        u = unit_uniform(k0, shape, p.dtype)
        v = unit_uniform(k1, shape, p.dtype)
        u = u - 0.5
        us = 0.5 - abs(u)
        quick = (us >= 0.07) & (v <= v_r)
        k = ops.floor((2 * a / us + b) * u + c)
        never = (k < 0) | (k > count)
        v = ops.log(v * alpha / (a / (us * us) + b))
        bound = (
            (m + 0.5) * ops.log((m + 1) / (r * (count - m + 1)))
            + (count + 1) * ops.log((count - m + 1) / (count - k + 1))
            + (k + 0.5) * ops.log(r * (count - k + 1) / (k + 1))
            + _stirling_tail(m)
            + _stirling_tail(count - m)
            - _stirling_tail(k)
            - _stirling_tail(count - k)
        )
        accept = quick | (~never & (v <= bound))
        return i + 1, ops.select_n(accept, found, k), done | accept, key

    start = (_zero(dtypes.int32), like(p, -1), jnp.zeros(shape, bool), key)
    return while_loop(unfinished, step, start)[1].astype(dtype)


@sampler(
    "n: number of draws; broadcasts to ``p.shape[:-1]``.",
    "p: [..., outcomes].",
    "unroll: steps of the scan over outcomes to write out.",
    of="``p``",
    sharded=False,
)
def multinomial(
    key: ArrayLike,
    n: ArrayLike,
    p: ArrayLike,
    *,
    shape: int | Sequence[int] | None = None,
    dtype: DTypeLike | None = None,
    unroll: int | bool = 1,
) -> Array:
    """How often each outcome of probabilities ``p`` comes up in ``n`` draws, as floats along the last axis.

    >>> x = nx.random.multinomial(nx.random.key(0), 100, jnp.array([0.2, 0.3, 0.5]))
    >>> x.shape, x.dtype.name, float(x.sum())
    ((3,), 'float32', 100.0)
    """
    found = float_dtype("multinomial", dtype)
    count, chance = promote_inexact("random.multinomial", n, p)
    if not chance.shape:
        raise ShapeError("random.multinomial: p needs at least one axis", got=chance.type)
    if chance.dtype not in dtypes.FLOAT:
        raise DtypeError("random.multinomial: p is real", got=chance.type)
    full = checked_shape("multinomial", shape, chance)
    chance = jnp.moveaxis(broadcast_parameter(chance, full), -1, 0)
    left = jnp.flip(jnp.cumsum(jnp.flip(chance, 0), 0), 0)
    ratios = chance / jnp.where(left == 0, 1, left)

    def one(remaining: Array, given: tuple[Array, Array]) -> tuple[Array, Array]:
        ratio, k = given
        taken = binomial(k, remaining, jnp.clip(ratio, 0, 1), dtype=remaining.dtype)
        return remaining - taken, taken

    start = broadcast_parameter(as_value(count), full[:-1])
    _, counts = scan(one, start, (ratios, split(key, full[-1])), unroll=unroll)
    return jnp.moveaxis(counts, 0, -1).astype(found)
