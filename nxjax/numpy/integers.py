"""Integers and bits: shifts, gcd and lcm, counting and packing bits, reading bits as another dtype."""

from __future__ import annotations

from typing import Any

import numpy as np

from nxjax.errors import DtypeError
from nxjax.numpy.documented import example
from nxjax.numpy.promotion import along, as_operand, convert, full_like, numeric_operands, operands
from nxjax.numpy.reductions import any as any_
from nxjax.numpy.shapes import moveaxis
from nxjax.ops import vocabulary as ops
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.transforms.control.while_loop import while_loop

_INTEGERS = "DtypeError: not integers."


def _integers(where: str, *xs: Any, truths: bool = False) -> list[Array]:
    """Operands that are integers; ``truths``: or booleans, which become that, since bits move into more than one."""
    out = numeric_operands(where, *xs) if truths else operands(where, *xs)
    if out[0].dtype not in dtypes.INTEGER:
        raise DtypeError(f"{where}: needs integers", got=", ".join(str(x.type) for x in out))
    return out


@example("jnp.array([1, 127], jnp.int8), 1", "Array([ 2, -2], dtype=int8)", raises=_INTEGERS)
def left_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x * 2**y by moving bits; bits shifted out are dropped. Broadcasts and promotes."""
    return ops.shift_left(*_integers("left_shift", x, y, truths=True))


@example("jnp.array([7, -7]), 1", "Array([ 3, -4], dtype=int32)", raises=_INTEGERS)
def right_shift(x: ArrayLike, y: ArrayLike, /) -> Array:
    """x divided by 2**y, rounded down, by moving bits; the sign stays. Broadcasts and promotes."""
    a, b = _integers("right_shift", x, y, truths=True)
    return (ops.shift_right_logical if a.dtype in dtypes.UNSIGNED else ops.shift_right_arithmetic)(a, b)


bitwise_left_shift, bitwise_right_shift = left_shift, right_shift


@example("jnp.array([7, -7, 8])", "Array([3, 3, 1], dtype=uint8)", raises="DtypeError: neither integers nor booleans.")
def bitwise_count(x: ArrayLike, /) -> Array:
    """The number of ones among the bits of |x|, as uint8."""
    v = as_operand(x, "bitwise_count")
    if v.dtype == dtypes.bool_:
        return convert(v, dtypes.uint8)
    if v.dtype not in dtypes.INTEGER:
        raise DtypeError("bitwise_count: needs integers", got=v.type)
    return convert(ops.population_count(ops.abs(v) if v.dtype in dtypes.SIGNED else v), dtypes.uint8)


@example("jnp.array([12, -12, 0]), 18", "Array([ 6,  6, 18], dtype=int32)", raises=_INTEGERS)
def gcd(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Greatest common divisor, by Euclid's algorithm; negative where the dtype can't hold it. Broadcasts, promotes."""
    a, b = _integers("gcd", x1, x2)
    dtype = a.dtype
    if dtype in dtypes.SIGNED:
        # The magnitude of the lowest number fits the unsigned dtype only.
        a, b = (convert(ops.abs(v), dtypes.as_dtype("u" + dtype.name)) for v in (a, b))
    zero = full_like(a, 0)

    def step(pair: Any) -> Any:
        p, q = pair
        done = ops.eq(q, zero)
        # A finished pair stays; the divisor 1 keeps its remainder defined.
        rest = ops.rem(p, ops.select_n(done, q, full_like(q, 1)))
        return ops.select_n(done, q, p), ops.select_n(done, rest, q)

    def running(pair: Any) -> Any:
        return any_(ops.ne(pair[1], zero))

    if a.type.weak:
        a, b = convert(a, a.dtype), convert(b, b.dtype)
    return convert(while_loop(running, step, (a, b))[0], dtype)


@example("jnp.array([4, -4, 0]), 6", "Array([12, 12,  0], dtype=int32)", raises=_INTEGERS)
def lcm(x1: ArrayLike, x2: ArrayLike) -> Array:
    """Least common multiple; never negative, 0 where either is. Broadcasts and promotes."""
    a, b = _integers("lcm", x1, x2)
    if a.dtype in dtypes.SIGNED:
        a, b = ops.abs(a), ops.abs(b)
    d = gcd(a, b)
    none = ops.eq(d, full_like(d, 0))
    product = ops.mul(a, ops.div(b, ops.select_n(none, d, full_like(d, 1))))
    return ops.select_n(none, product, full_like(product, 0))


def packbits(a: ArrayLike, axis: int | None = None, bitorder: str = "big") -> Array:
    """Eight truths into each byte along ``axis`` (of the flattened array without one), zeros at the end.

    Args:
        a: integers or booleans; nonzero is true.
        axis: static integer or None.
        bitorder: ``"big"`` puts the first truth into the highest bit, ``"little"`` into the lowest.

    Raises:
        TypeError: neither integers nor booleans.
        ValueError: another ``bitorder``.

    >>> jnp.packbits(jnp.array([True, False, True]))
    Array([160], dtype=uint8)
    >>> jnp.packbits(jnp.array([True, False, True]), bitorder="little")
    Array([5], dtype=uint8)
    """
    x = as_operand(a, "packbits")
    if x.dtype not in dtypes.BITS:
        raise TypeError("Expected an input array of integer or boolean data type")
    weights = _weights(bitorder)
    x, i = along("packbits", x, axis)
    x = moveaxis(convert(ops.ne(x, 0), dtypes.uint8), i, -1)
    n = x.shape[-1]
    zero = wrap(np.zeros((), np.uint8))
    x = ops.pad(x, zero, padding_config=(*((0, 0, 0),) * (x.ndim - 1), (0, -n % 8, 0)))
    x = ops.reshape(x, shape=(*x.shape[:-1], x.shape[-1] // 8, 8))
    w = ops.broadcast_in_dim(wrap(weights), shape=x.shape, broadcast_dimensions=(x.ndim - 1,))
    return moveaxis(ops.reduce_sum(ops.mul(x, w), axes=(x.ndim - 1,)), -1, i)


@example("jnp.array([160], jnp.uint8), count=4", "Array([1, 0, 1, 0], dtype=uint8)")
def unpackbits(a: ArrayLike, axis: int | None = None, count: int | None = None, bitorder: str = "big") -> Array:
    """Each byte into its eight bits along ``axis``, as uint8 zeros and ones; the first ``count`` of them.

    Raises:
        TypeError: not uint8.
        ValueError: another ``bitorder`` than ``"big"`` and ``"little"``.
    """
    x = as_operand(a, "unpackbits")
    if x.dtype != dtypes.uint8:
        raise TypeError(f"Expected an input array of unsigned byte data type, got {x.dtype.name}")
    shifts = np.log2(_weights(bitorder)).astype(np.uint8)
    x, i = along("unpackbits", x, axis)
    x = moveaxis(x, i, -1)
    shape = (*x.shape, 8)
    wide = ops.broadcast_in_dim(x, shape=shape, broadcast_dimensions=tuple(range(x.ndim)))
    by = ops.broadcast_in_dim(wrap(shifts), shape=shape, broadcast_dimensions=(x.ndim,))
    bits = ops.and_(ops.shift_right_logical(wide, by), full_like(wide, 1))
    bits = ops.reshape(bits, shape=(*x.shape[:-1], x.shape[-1] * 8))
    if count is not None:
        size = bits.shape[-1]
        bits = bits[..., :count]
        if count > size:
            bits = ops.pad(
                bits,
                wrap(np.zeros((), bits.dtype)),
                padding_config=(*((0, 0, 0),) * (x.ndim - 1), (0, count - size, 0)),
            )
    return moveaxis(bits, -1, i)


def _weights(bitorder: str) -> Any:
    if bitorder not in ("little", "big"):
        raise ValueError("'order' must be either 'little' or 'big'")
    powers = (1 << np.arange(8)).astype(np.uint8)
    return powers if bitorder == "little" else powers[::-1].copy()


def view(x: Array, dtype: Any) -> Array:
    """The same bits as ``dtype``; the last axis grows or shrinks with the width."""
    if dtype is None:
        return x
    new = dtypes.as_bits(dtype, "view")
    if new == x.dtype:
        return x
    if x.dtype == dtypes.bool_:
        return view(convert(x, dtypes.uint8), new)
    if new == dtypes.bool_:
        return ops.ne(view(x, dtypes.uint8), 0)
    if dtypes.COMPLEX & {x.dtype, new}:
        return _complex_view(x, new)
    old_bits, new_bits = dtypes.bit_width(x.dtype), dtypes.bit_width(new)
    if old_bits == new_bits:
        return ops.bitcast_convert_type(x, dtype=new)
    if not x.shape:
        raise ValueError("view() of a 0-d array is only supported if the itemsize is unchanged.")
    if old_bits > new_bits:
        out = ops.bitcast_convert_type(x, dtype=new)
        return ops.reshape(out, shape=(*x.shape[:-1], x.shape[-1] * (old_bits // new_bits)))
    ratio = new_bits // old_bits
    if x.shape[-1] % ratio:
        raise ValueError(
            "When changing to a larger dtype, its size must be a divisor of the total size in bytes of the last axis; "
            f"got {x.type} as {new.name}"
        )
    grouped = ops.reshape(x, shape=(*x.shape[:-1], x.shape[-1] // ratio, ratio))
    return ops.bitcast_convert_type(grouped, dtype=new)


def _complex_view(x: Array, new: Any) -> Array:
    if x.dtype in dtypes.COMPLEX:
        pair = [ops.reshape(p, shape=(*x.shape, 1)) for p in (ops.real(x), ops.imag(x))]
        parts = ops.concatenate(*pair, dimension=x.ndim)
        flat = ops.reshape(parts, shape=(*x.shape[:-1], x.shape[-1] * 2) if x.shape else (2,))
        return view(flat, new)
    parts = view(x, dtypes.real_part(new))
    if not parts.shape or parts.shape[-1] % 2:
        raise ValueError(f"view: the last axis does not hold whole numbers of {new.name}")
    grouped = ops.reshape(parts, shape=(*parts.shape[:-1], parts.shape[-1] // 2, 2))
    return ops.complex(grouped[..., 0], grouped[..., 1])
