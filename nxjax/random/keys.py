"""Keys: making them, splitting them, and what the samplers accept as one.

A key is an opaque scalar of dtype ``key<fry>``. Raw keys, uint32 arrays of two words as `PRNGKey` makes them, are
accepted wherever a key is; functions that give keys give raw ones for raw ones. The generator is Threefry-2x32 (see
`nxjax.ops.random`), and the words are those that JAX makes.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from nxjax.errors import KeyTypeError, ParameterError
from nxjax.numpy.documented import example, shown
from nxjax.ops import random as ops
from nxjax.ops.base import constant
from nxjax.ops.convert import convert_element_type
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike
from nxjax.trace.array import as_value, wrap
from nxjax.trace.core import Array
from nxjax.trace.types import Shape

IMPL = "threefry2x32"
_NEW = "nx.random.key(0)"


def as_key(where: str, key: Any, batched: bool = False) -> tuple[Array, bool]:
    """``key`` as a typed key, and whether it was a raw one.

    Raises:
        KeyTypeError: it is not a key, or an array of keys where one is needed.
    """
    if isinstance(key, (bool, int, float, complex)) or not (isinstance(key, Array) or hasattr(key, "__array__")):
        raise KeyTypeError(
            f"random.{where}: needs a random key",
            got=f"{type(key).__name__}: {str(key)[:40]}",
            expected="key<fry>[]",
            fix=f"make one with {_NEW}",
        )
    value = as_value(key, f"random.{where}")
    raw = value.dtype != dtypes.key
    if raw:
        if value.dtype != dtypes.uint32 or not value.shape or value.shape[-1] != 2:
            raise KeyTypeError(
                f"random.{where}: needs a random key",
                got=value.type,
                expected="key<fry>[], or u32[2] from PRNGKey",
                fix=f"make one with {_NEW}",
            )
        value = ops.random_wrap(value)
    if value.shape and not batched:
        raise KeyTypeError(
            f"random.{where}: needs a single key",
            got=f"an array of keys, {value.type}",
            expected="key<fry>[]",
            fix=f"nx.vmap(lambda k: nx.random.{where}(k, ...))(keys), or pick one: keys[0]",
        )
    return value, raw


def _given_back(key: Array, raw: bool) -> Array:
    return ops.random_unwrap(key) if raw else key


def _check_impl(where: str, impl: Any, dtype: Any = None) -> None:
    if impl is not None and dtype is not None:
        raise ParameterError(f"random.{where}: takes one of impl and dtype, not both")
    wanted = impl if impl is not None else dtype
    if (
        wanted is not None
        and wanted not in (IMPL, "fry")
        and not (isinstance(wanted, np.dtype) and wanted == dtypes.key)
    ):
        raise ParameterError(f"random.{where}: no such generator", got=repr(wanted), expected=repr(IMPL))


def _seeded(where: str, seed: Any) -> Array:
    if isinstance(seed, int):
        if not -(1 << 63) <= seed < 1 << 63:
            raise OverflowError(
                f"random.{where}: Python integer {seed} out of bounds for int64, which a seed is read as"
            )
        # As in JAX, the seed is cut to the default integer, so that any Python hash is a seed.
        return ops.random_seed(wrap(np.asarray(seed, np.int64).astype(dtypes.canonical(dtypes.int64))))
    value = as_value(seed, f"random.{where}")
    if value.dtype == dtypes.key:
        raise KeyTypeError(f"random.{where}: a seed is an integer", got=f"a key, {value.type}", expected="an int")
    if value.shape:
        raise KeyTypeError(
            f"random.{where}: a seed is a scalar",
            got=value.type,
            expected="a scalar integer",
            fix=f"nx.vmap(nx.random.{where})(seeds)",
        )
    if value.dtype not in dtypes.INTEGER:
        raise KeyTypeError(f"random.{where}: a seed is an integer", got=value.type, expected="an integer dtype")
    return ops.random_seed(value)


@example("0", "key<fry>[]", then=".type", raises="KeyTypeError: the seed is not an integer scalar.")
def key(seed: ArrayLike, *, impl: str | None = None, dtype: DTypeLike | None = None) -> Array:
    """A key, ``key<fry>[]``, from an integer seed.

    Args:
        seed: an integer, or an integer array without dimensions.
        impl, dtype: the generator; ``"threefry2x32"``, the only one.
    """
    _check_impl("key", impl, dtype)
    return _seeded("key", seed)


@example("42", "Array([ 0, 42], dtype=uint32)", raises="KeyTypeError: the seed is not an integer scalar.")
def PRNGKey(seed: ArrayLike, *, impl: str | None = None) -> Array:
    """A raw key, ``u32[2]``, from an integer seed. New programs use `key`."""
    _check_impl("PRNGKey", impl)
    return ops.random_unwrap(_seeded("PRNGKey", seed))


def as_key_shape(where: str, num: Any) -> Shape:
    """The shape that ``num``, an integer or a sequence of them, asks for."""
    sizes = tuple(num) if isinstance(num, (tuple, list)) else (num,)
    try:
        shape = tuple(operator.index(n) for n in sizes)
    except TypeError as error:
        if isinstance(error, KeyTypeError) or any(isinstance(n, Array) for n in sizes):
            raise
        raise ParameterError(f"random.{where}: num", got=repr(num), expected="an int or a tuple of ints") from None
    if any(n < 0 for n in shape):
        raise ParameterError(f"random.{where}: num is negative", got=repr(num))
    return shape


@example("nx.random.key(0), 3", "(3,)", then=".shape")
def split(key: ArrayLike, num: int | tuple[int, ...] = 2) -> Array:
    """``num`` new keys from one: ``key<fry>[num]``, or of shape ``num`` if that is a tuple. Do not use ``key`` again.

    Raises:
        KeyTypeError: ``key`` is not a single key.
        ParameterError: ``num`` is negative, or no integer or tuple of integers.
    """
    typed, raw = as_key("split", key)
    return _given_back(ops.random_split(typed, shape=as_key_shape("split", num)), raw)


@shown(
    "key = nx.random.key(0)", "", "nx.random.key_data(nx.random.fold_in(key, 7)).tolist()", "[2716826189, 292468403]"
)
def fold_in(key: ArrayLike, data: ArrayLike) -> Array:
    """A new key from ``key`` and an integer scalar, such as the number of a step.

    Args:
        key: a single key.
        data: a number, or an array without dimensions; used as 32 bits, floats without their fraction.

    Raises:
        KeyTypeError: ``key`` is not a single key, or ``data`` not a scalar, complex or a key.
        OverflowError: ``data`` is a Python integer that is negative or needs more than 32 bits.
    """
    typed, raw = as_key("fold_in", key)
    if isinstance(data, (bool, int)):
        if not 0 <= data < 1 << 32:
            raise OverflowError(
                f"random.fold_in: Python integer {data} out of bounds for uint32, which data is read as"
            )
        number = constant(np.uint32(data), dtypes.uint32)
    else:
        number = as_value(data, "random.fold_in")
        if number.shape:
            raise KeyTypeError(
                "random.fold_in: data is a scalar",
                got=number.type,
                expected="a scalar integer",
                fix="nx.vmap(nx.random.fold_in, (None, 0))(key, data)",
            )
        if number.dtype not in dtypes.BITS | dtypes.FLOAT:
            raise KeyTypeError("random.fold_in: data is an integer", got=number.type, expected="an integer dtype")
        if number.dtype != dtypes.uint32:
            number = convert_element_type(number, dtype=dtypes.uint32)
    return _given_back(ops.random_fold_in(typed, number), raw)


@shown("key = nx.random.key(0)", "", "bool(nx.random.bits(key) == nx.random.bits(nx.random.clone(key)))", "True")
def clone(key: ArrayLike) -> Array:
    """The same key, for intended reuse.

    Args:
        key: a key or an array of keys, typed or raw.
    """
    typed, raw = as_key("clone", key, batched=True)
    return _given_back(ops.random_clone(typed), raw)


@example("nx.random.key(42)", "Array([ 0, 42], dtype=uint32)", raises="KeyTypeError: not keys.")
def key_data(keys: ArrayLike) -> Array:
    """The words of keys: ``u32[..., 2]``."""
    typed, _ = as_key("key_data", keys, batched=True)
    return ops.random_unwrap(typed)


def wrap_key_data(key_bits_array: ArrayLike, *, impl: str | None = None, dtype: DTypeLike | None = None) -> Array:
    """Keys from their words, the inverse of `key_data`.

    Args:
        key_bits_array: ``u32[..., 2]``.
        impl, dtype: the generator, which has to be ``"threefry2x32"``.

    Raises:
        ParameterError: another generator.

    >>> nx.random.wrap_key_data(jnp.array([0, 42], jnp.uint32)) == nx.random.key(42)
    Array(True, dtype=bool)
    """
    _check_impl("wrap_key_data", impl, dtype)
    return ops.random_wrap(as_value(key_bits_array, "random.wrap_key_data"))


@shown("key_impl(nx.random.key(0))", "'threefry2x32'", raises="KeyTypeError: not keys.")
def key_impl(keys: ArrayLike) -> str:
    """The name of the keys' generator: always ``"threefry2x32"``."""
    as_key("key_impl", keys, batched=True)
    return IMPL


@shown("nx.random.key(0).dtype == key_dtype()", "True", raises="ParameterError: no such generator.")
def key_dtype(impl_spec: str | None = None) -> dtypes.DType:
    """The dtype of keys."""
    _check_impl("key_dtype", impl_spec)
    return dtypes.key
