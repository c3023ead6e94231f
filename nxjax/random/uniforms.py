"""Bits, uniform numbers and integers, coin tosses: what every other sampler is made from."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nxjax.errors import DtypeError, SamplerDtypeError
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import check_choice
from nxjax.ops import vocabulary as ops
from nxjax.ops.base import like
from nxjax.random.sampler import (
    as_dtype_value,
    as_shape,
    broadcast_parameter,
    checked_shape,
    float_dtype,
    int_dtype,
    jit_sampler,
    placed,
    sampler,
)
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.dtypes import DType
from nxjax.trace.types import Shape

# Below this, NumPy draws faster than a compiled function is found.
_MANY = 1 << 12


@sampler(
    "dtype: uint8, uint16, uint32 or uint64; uint32 by default.",
    raises=["DtypeError: ``dtype`` is not an unsigned integer dtype."],
)
def bits(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None) -> Array:
    """Uniform random bits as unsigned integers.

    >>> nx.random.bits(nx.random.key(0), (2,)).dtype.name
    'uint32'
    """
    found = dtypes.canonical(dtypes.uint64) if dtype is None else dtypes.as_dtype(dtype)
    if found not in dtypes.UNSIGNED or dtypes.bit_width(found) < 8:
        raise SamplerDtypeError("random.bits: dtype must be an unsigned integer dtype", got=dtypes.short_name(found))
    return _drawn_bits(key, as_shape("bits", shape), dtypes.bit_width(found))


def _drawn_bits(key: Array, shape: Shape, width: int) -> Array:
    if math.prod(shape) < _MANY:
        return ops.random_bits(key, bit_width=width, shape=shape)
    return _many_bits(key, shape=shape, width=width)


@jit_sampler
def _many_bits(key: Array, *, shape: Shape, width: int) -> Array:
    return ops.random_bits(key, bit_width=width, shape=shape)


def split_key(key: Array, num: int = 2) -> list[Array]:
    """``num`` keys from one, apart."""
    keys = ops.random_split(key, shape=(num,))
    return [static_index(keys, i) for i in range(num)]


def static_index(xs: Array, i: int) -> Array:
    """``xs[i]``, by a static number."""
    rest = xs.shape[1:]
    row = ops.slice(xs, start_indices=(i, *(0,) * len(rest)), limit_indices=(i + 1, *rest), strides=None)
    return ops.reshape(row, shape=rest)


def unit_uniform(key: Array, shape: Shape, dtype: DType) -> Array:
    """Uniform in [0, 1): random mantissa bits under the exponent of 1, less 1."""
    info = dtypes.float_info(dtype)
    # Mantissas below 8 bits are filled from 8 random bits.
    drawn = 8 if info.nmant < 8 else info.bits
    word = np.dtype(f"uint{info.bits}")
    raw = ops.random_bits(key, bit_width=drawn, shape=shape)
    if drawn != info.bits:
        raw = ops.convert_element_type(raw, dtype=word)
    one = int(np.ones((), dtype).view(word))
    mantissa = ops.shift_right_logical(raw, drawn - info.nmant)
    return ops.sub(ops.bitcast_convert_type(ops.or_(mantissa, one), dtype=dtype), 1.0)


def uniform_in(key: Array, shape: Shape, dtype: DType, low: Any, high: Any) -> Array:
    """Uniform in [low, high); bounds are Python numbers, or arrays of ``dtype`` that broadcast to ``shape``."""
    x = unit_uniform(key, shape, dtype)
    a, b = (
        broadcast_parameter(v, shape) if isinstance(v, Array) else like(x, np.asarray(v).astype(dtype))
        for v in (low, high)
    )
    return ops.max(a, ops.add(ops.mul(x, ops.sub(b, a)), a))


@jit_sampler
def _unit(key: Array, *, shape: Shape, dtype: DType) -> Array:
    return unit_uniform(key, shape, dtype)


@jit_sampler
def _uniform(key: Array, low: Array, high: Array, *, shape: Shape, dtype: DType) -> Array:
    return uniform_in(key, shape, dtype, low, high)


@sampler("minval, maxval: bounds; arrays must broadcast to ``shape``.")
def uniform(
    key: ArrayLike,
    shape: int | Sequence[int] = (),
    dtype: DTypeLike | None = None,
    minval: ArrayLike = 0.0,
    maxval: ArrayLike = 1.0,
) -> Array:
    """Uniform random floats in [minval, maxval).

    >>> x = nx.random.uniform(nx.random.key(0), (1000,))
    >>> bool((x >= 0).all() and (x < 1).all())
    True
    """
    found, full = float_dtype("uniform", dtype), as_shape("uniform", shape)
    if type(minval) is float and type(maxval) is float and minval == 0.0 and maxval == 1.0:
        return unit_uniform(key, full, found) if math.prod(full) < _MANY else _unit(key, shape=full, dtype=found)
    low, high = as_dtype_value("uniform", minval, found), as_dtype_value("uniform", maxval, found)
    checked_shape("uniform", full, low, high)
    return _uniform(key, low, high, shape=full, dtype=found)


# --- integers ---


@sampler(
    "minval, maxval: integers or integer arrays that broadcast to ``shape``. Where maxval <= minval, it is minval.",
    kind="integer",
    raises=["ShapeError: the parameters do not broadcast to ``shape``."],
)
def randint(
    key: ArrayLike, shape: int | Sequence[int], minval: ArrayLike, maxval: ArrayLike, dtype: DTypeLike | None = None
) -> Array:
    """Uniform random integers in [minval, maxval).

    Twice the bits of ``dtype`` (at least 64) are drawn for each, which leaves a bias of at most 2**-32.

    >>> nx.random.randint(nx.random.key(0), (6,), 0, 10)
    Array([9, 0, 2, 3, 1, 7], dtype=int32)
    """
    found = int_dtype("randint", dtype)
    full = checked_shape("randint", shape, minval, maxval)
    low, high = as_value(minval, "random.randint"), as_value(maxval, "random.randint")
    for v in (low, high):
        if v.dtype not in dtypes.NUMERIC or v.dtype in dtypes.COMPLEX:
            raise DtypeError("random.randint: bounds are integers", got=v.type)
    drawn = found
    if dtypes.bit_width(found) < 32:
        # Small integers are drawn in 32 bits, else the bias would show.
        drawn, info = dtypes.int32, dtypes.integer_info(found)

        def clipped(v: Array, top: int) -> Array:
            wide = ops.convert_element_type(v, dtype=dtypes.int32)
            return ops.clamp(like(wide, int(info.min)), wide, like(wide, top))

        low, high = clipped(low, int(info.max)), clipped(high, int(info.max) + 1)
    drawn_values = _randint(key, low, high, shape=full, dtype=drawn)
    return drawn_values if drawn == found else ops.convert_element_type(drawn_values, dtype=found)


@jit_sampler
def _randint(key: Array, low: Array, high: Array, *, shape: Shape, dtype: DType) -> Array:
    info, width = dtypes.integer_info(dtype), dtypes.bit_width(dtype)
    word = np.dtype(f"uint{width}")
    low, high = (
        v if v.dtype in dtypes.INTEGER else ops.convert_element_type(v, dtype=dtypes.as_dtype(int)) for v in (low, high)
    )
    # maxval may be one above the largest value, as in randint(key, shape, 0, 256, uint8).
    top = min(int(info.max), int(dtypes.integer_info(high.dtype).max))
    beyond = broadcast_parameter(ops.gt(high, like(high, top)), shape)
    low, high = (broadcast_parameter(_clipped(v, dtype), shape) for v in (low, high))
    empty = ops.le(high, low)
    span = ops.convert_element_type(ops.sub(high, low), dtype=word)
    span = ops.select_n(empty, span, like(span, 1))
    # The largest span plus one wraps to 0, and the remainders below change nothing, as they should.
    span = ops.select_n(ops.and_(beyond, ops.gt(high, low)), span, ops.add(span, 1))
    k1, k2 = split_key(key)
    upper, lower = (ops.random_bits(k, bit_width=width, shape=shape) for k in (k1, k2))
    # (upper * 2**width + lower) mod span, without words of twice the width
    factor = ops.rem(like(span, 2 ** (width // 2)), span)
    factor = ops.rem(ops.mul(factor, factor), span)
    offset = ops.rem(ops.add(ops.mul(ops.rem(upper, span), factor), ops.rem(lower, span)), span)
    return ops.add(low, ops.convert_element_type(offset, dtype=dtype))


def _clipped(v: Array, dtype: DType) -> Array:
    """``v`` by value in the integer ``dtype``, at its limits where it does not fit."""
    ours, theirs = dtypes.integer_info(v.dtype), dtypes.integer_info(dtype)
    least, most = (int(f(a, b)) for f, a, b in ((max, ours.min, theirs.min), (min, ours.max, theirs.max)))
    return ops.convert_element_type(ops.clamp(like(v, least), v, like(v, most)), dtype=dtype)


# --- coin tosses ---


@sampler(
    "p: float or float array of probabilities.",
    'mode: ``"high"`` draws twice the bits, for probabilities near the resolution of the dtype.',
    of="``p``",
    raises=["DtypeError: ``p`` is not a float.", "ShapeError: ``p`` does not broadcast to ``shape``."],
)
def bernoulli(key: ArrayLike, p: ArrayLike = 0.5, shape: int | Sequence[int] | None = None, mode: str = "low") -> Array:
    """True with probability ``p``.

    >>> nx.random.bernoulli(nx.random.key(0), 0.5, (4,))
    Array([False, False,  True,  True], dtype=bool)
    >>> round(float(nx.random.bernoulli(nx.random.key(0), 0.3, (10000,)).mean()), 2)
    0.3
    """
    check_choice("random.bernoulli: mode", mode, "low", "high")
    chance = as_value(p, "random.bernoulli")
    if chance.dtype not in dtypes.FLOAT:
        raise DtypeError("random.bernoulli: p must be a float", got=chance.type, expected="a probability, such as 0.5")
    full = checked_shape("bernoulli", shape, chance)
    return _bernoulli(key, as_dtype_value("bernoulli", chance, chance.dtype), shape=full, mode=mode)


@jit_sampler
def _bernoulli(key: Array, p: Array, *, shape: Shape, mode: str) -> Array:
    p = broadcast_parameter(p, shape)
    if mode == "low":
        return ops.lt(unit_uniform(key, shape, p.dtype), p)
    both = unit_uniform(key, (2, *shape), p.dtype)
    fine = ops.mul(static_index(both, 1), 2.0 ** -dtypes.float_info(p.dtype).nmant)
    return ops.lt(fine, ops.sub(p, static_index(both, 0)))


@placed
@example("nx.random.key(0), (6,)", "Array([-1, -1,  1,  1, -1,  1], dtype=int32)")
def rademacher(key: ArrayLike, shape: int | Sequence[int] = (), dtype: DTypeLike | None = None) -> Array:
    """-1 or 1 with equal probability.

    Args:
        key: a single key.
        shape: of the result.
        dtype: a signed dtype; int32 by default.

    Raises:
        KeyTypeError: ``key`` is not a single key.
    """
    found = dtypes.as_dtype(int if dtype is None else dtype)
    toss = ops.convert_element_type(bernoulli(key, 0.5, as_shape("rademacher", shape)), dtype=found)
    return ops.sub(ops.mul(toss, 2), 1)
