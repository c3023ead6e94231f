"""Random order and choice of given elements."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from nxjax import lax
from nxjax import numpy as jnp
from nxjax.errors import DtypeError, ParameterError, ShapeError
from nxjax.numpy.documented import shown
from nxjax.numpy.promotion import as_axis, as_shape, promote_inexact, static_int
from nxjax.ops.random import random_bits
from nxjax.random.continuous import standard_gumbel
from nxjax.random.keys import as_key
from nxjax.random.sampler import jit_sampler, placed
from nxjax.random.uniforms import randint, split_key, unit_uniform
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.core import Array
from nxjax.trace.types import Shape


def _shuffled(key: Array, x: Array, axis: int) -> Array:
    """Sorted by random words, so often that every pair has met different ones with near certainty.

    The number of rounds is the smallest after which equal words for two elements have probability n^-3 or less.
    """
    rounds = math.ceil(3 * math.log(max(1, x.size)) / math.log(2**32 - 1))
    for _ in range(rounds):
        key, use = split_key(key)
        words = random_bits(use, bit_width=32, shape=x.shape)
        _, x = lax.sort_key_val(words, x, axis)
    return x


@jit_sampler
def _permuted(key: Array, x: Array, *, axis: int, independent: bool) -> Array:
    if independent or x.ndim == 1:
        return _shuffled(key, x, axis)
    order = _shuffled(key, jnp.arange(x.shape[axis]), 0)
    return jnp.take(x, order, axis)


@jit_sampler
def _permuted_range(key: Array, *, n: int) -> Array:
    return _shuffled(key, jnp.arange(n), 0)


@placed
@shown("sorted(nx.random.permutation(nx.random.key(0), 4).tolist())", "[0, 1, 2, 3]")
def permutation(key: ArrayLike, x: ArrayLike, axis: int = 0, independent: bool = False) -> Array:
    """``x`` in random order along ``axis``.

    Args:
        key: a single key.
        x: array, or an integer n for a permutation of 0 .. n - 1.
        axis: along which to permute.
        independent: every line along ``axis`` has its own order.

    Raises:
        KeyTypeError: ``key`` is not a single key.
        DtypeError: ``x`` is a number, but no integer.
    """
    if not np.ndim(x) and not (isinstance(x, Array) and x.ndim):
        if isinstance(x, (float, complex)) or np.asarray(x).dtype.kind not in "iu":
            raise DtypeError("random.permutation: x is an integer or has an axis", got=repr(x)[:40])
        as_axis("random.permutation", axis, 1)
        return _permuted_range(key, n=static_int("random.permutation", x))
    values = jnp.asarray(x)
    where = as_axis("random.permutation", axis, values.ndim)
    return _permuted(key, values, axis=where, independent=bool(independent))


def choice(
    key: ArrayLike,
    a: ArrayLike,
    shape: int | Sequence[int] = (),
    replace: bool = True,
    p: ArrayLike | None = None,
    axis: int = 0,
    mode: str | None = None,
) -> Array:
    """Random elements of ``a``.

    Args:
        key: a single key.
        a: array, or an integer n for 0 .. n - 1.
        shape: takes the place of ``axis`` in the result.
        replace: an element may be chosen more than once.
        p: probabilities of the elements; equal by default.
        axis: of ``a``, along which to choose.
        mode: of the Gumbel numbers used for ``p`` without replacement, see `gumbel`.

    Raises:
        KeyTypeError: ``key`` is not a single key.
        ParameterError: nothing to choose from, or too little without replacement.
        ShapeError: ``p`` has another size than ``axis``.

    >>> nx.random.choice(nx.random.key(0), jnp.array([2, 3, 5, 7]), (3,), replace=False).shape
    (3,)
    >>> x = nx.random.choice(nx.random.key(0), 3, (10000,), p=jnp.array([0.2, 0.3, 0.5]))
    >>> [round(float((x == i).mean()), 1) for i in range(3)]
    [0.2, 0.3, 0.5]
    """
    typed, _ = as_key("choice", key)
    if not isinstance(shape, (tuple, list)):
        raise ParameterError("random.choice: shape is a tuple", got=repr(shape)[:40])
    drawn = as_shape("random.choice", shape)
    values = None if not np.ndim(a) and not (isinstance(a, Array) and a.ndim) else jnp.asarray(a)
    if values is None:
        where, n, full = 0, static_int("random.choice", a), drawn
    else:
        where = as_axis("random.choice", axis, values.ndim)
        n = values.shape[where]
        full = (*values.shape[:where], *drawn, *values.shape[where + 1 :])
    count = math.prod(drawn)
    if count == 0:
        return jnp.zeros(drawn, int if values is None else values.dtype)
    if n <= 0:
        raise ParameterError("random.choice: a has no elements to choose from", got=n)
    if not replace and count > n:
        raise ParameterError(
            "random.choice: more draws than elements, without replacement", got=count, expected=f"at most {n}"
        )
    if p is None and not replace:
        mixed = permutation(typed, n if values is None else values, where)
        return mixed[(slice(None),) * where + (slice(count),)].reshape(full)
    if p is None:
        picked = randint(typed, drawn, 0, n)
    else:
        (weights,) = promote_inexact("random.choice", p)
        if weights.shape != (n,):
            raise ShapeError("random.choice: p has one probability per element", got=weights.type, expected=f"({n},)")
        picked = _weighted(typed, weights, shape=drawn, replace=bool(replace), mode=mode)
    return (picked if values is None else jnp.take(values, picked, where)).reshape(full)


@jit_sampler
def _weighted(key: Array, p: Array, *, shape: Shape, replace: bool, mode: str | None) -> Array:
    if replace:
        total = jnp.cumsum(p)
        r = total[-1] * (1 - unit_uniform(key, shape, total.dtype))
        return jnp.searchsorted(total, r).astype(dtypes.as_dtype(int))

    # The k largest of Gumbel numbers shifted by log p are a draw without replacement.
    noisy = standard_gumbel(key, p.shape, p.dtype, mode) + jnp.log(p)
    return lax.top_k(noisy, math.prod(shape))[1].astype(dtypes.as_dtype(int))
