"""Rules of random numbers: rng_bit_generator with XLA's bits, and rng with a seed that is asked for.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011): Threefry 2x32 with 20 rounds and Philox 4x32 with
10; how counters and results are laid out is XLA's choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from nxjax import random
from nxjax.ops.arithmetic import add, mul, sub
from nxjax.ops.base import like
from nxjax.ops.bitwise import or_, shift_left, shift_right_logical, xor
from nxjax.ops.compare import lt
from nxjax.ops.convert import bitcast_convert_type, convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.random import threefry2x32
from nxjax.ops.select import select_n
from nxjax.ops.shape import reshape
from nxjax.ops.slicing import concatenate
from nxjax.ops.slicing import slice as slice_op
from nxjax.random.keys import wrap_key_data
from nxjax.stablehlo.bits import mulhi
from nxjax.stablehlo.shapes import spread
from nxjax.stablehlo.walk import Operation, Scope, refused, result, rule
from nxjax.trace import dtypes
from nxjax.trace.array import wrap
from nxjax.trace.core import Array
from nxjax.trace.types import ArrayType, Shape


def _halves(x: Array) -> tuple[Array, Array]:
    """Low and high words of 64-bit ones."""
    return (
        convert_element_type(x, dtype=dtypes.uint32),
        convert_element_type(shift_right_logical(x, like(x, 32)), dtype=dtypes.uint32),
    )


def _joined(low: Array, high: Array) -> Array:
    wide = convert_element_type(high, dtype=dtypes.uint64)
    return or_(convert_element_type(low, dtype=dtypes.uint64), shift_left(wide, like(wide, 32)))


def _word(state: Array, i: int) -> Array:
    return reshape(slice_op(state, start_indices=(i,), limit_indices=(i + 1,), strides=None), shape=())


def _counters(start: Array, shape: Shape) -> Array:
    """``start`` plus the place of each element, the first dimension running fastest among those above 1."""
    total, factor = spread(start, shape, ()), 1
    for axis in reversed(range(len(shape))):
        if shape[axis] > 1:
            step = iota(dtype=dtypes.uint64, shape=shape, dimension=axis)
            total = add(total, mul(step, like(step, factor)))
            factor *= shape[axis]
    return total


def _threefry(key: Array, start: Array, shape: Shape) -> tuple[Array, Array]:
    low, high = _halves(_counters(start, shape))
    k0, k1 = (spread(k, shape, ()) for k in _halves(key))
    return threefry2x32(k0, k1, low, high)


def _threefry_words(key: Array, start: Array, shape: Shape) -> tuple[Array, int]:
    """32-bit words of a shape, and how far the counter goes on."""
    if not shape:
        first, _ = _threefry(key, start, (1,))
        return reshape(first, shape=()), 1
    # One dimension is halved: the first even one, else the longest.
    even = [i for i, n in enumerate(shape) if n % 2 == 0]
    axis = even[0] if even else max(range(len(shape)), key=lambda i: (shape[i], -i))
    half = -(-shape[axis] // 2)
    cut = (*shape[:axis], half, 1, *shape[axis + 1 :])
    pair = concatenate(*_threefry(key, start, cut), dimension=axis + 1)
    whole = reshape(pair, shape=(*shape[:axis], 2 * half, *shape[axis + 1 :]))
    if 2 * half != shape[axis]:
        whole = slice_op(whole, start_indices=(0,) * len(shape), limit_indices=shape, strides=None)
    return whole, math.prod(cut)


_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_RAISES: Final = (0x9E3779B9, 0xBB67AE85)


def _philox(counter: Sequence[Array], key: Sequence[Array]) -> list[Array]:
    x, k = list(counter), list(key)
    for _ in range(10):
        high0, high1 = (mulhi(x[i], like(x[i], m)) for i, m in zip((0, 2), _MULTIPLIERS, strict=True))
        low0, low1 = (mul(x[i], like(x[i], m)) for i, m in zip((0, 2), _MULTIPLIERS, strict=True))
        x = [xor(xor(high1, x[1]), k[0]), low1, xor(xor(high0, x[3]), k[1]), low0]
        k = [add(word, like(word, up)) for word, up in zip(k, _RAISES, strict=True)]
    return x


def _plus(low: Array, high: Array, n: Array) -> tuple[Array, Array]:
    """A 128-bit number plus a 64-bit one."""
    total = add(low, n)
    return total, select_n(lt(total, low), high, add(high, like(high, 1)))


def _philox_words(key: Array, low: Array, high: Array, count: int, wide: bool) -> tuple[Array, Array]:
    """``count`` words one after the other, four (or two of 64 bits) from each counter; and the counter after them."""
    each = 2 if wide else 4
    n = -(-count // each)
    counters = _plus(spread(low, (n,), ()), spread(high, (n,), ()), iota(dtype=dtypes.uint64, shape=(n,), dimension=0))
    words = _philox([h for c in counters for h in _halves(c)], [spread(k, (n,), ()) for k in _halves(key)])
    columns = [_joined(words[0], words[1]), _joined(words[2], words[3])] if wide else words
    rows = concatenate(*(reshape(c, shape=(n, 1)) for c in columns), dimension=1)
    flat = reshape(rows, shape=(n * each,))
    return slice_op(flat, start_indices=(0,), limit_indices=(count,), strides=None), add(low, like(low, n))


@rule("stablehlo.rng_bit_generator")
def _rng_bit_generator(_: Scope, op: Operation, given: Array) -> tuple[Array, Array]:
    state, out = given, result(op, 1)
    if out.dtype in dtypes.COMPLEX or out.dtype == dtypes.bool_:
        raise refused(op, "bits are drawn as integers or floats")
    if state.dtype != dtypes.uint64:
        raise refused(op, "the state is not made of 64-bit words")
    # XLA's default on CPUs is Philox.
    return drawn_bits(state, out, threefry=op.attributes["rng_algorithm"] == "THREE_FRY")


def drawn_bits(state: Array, out: ArrayType, threefry: bool) -> tuple[Array, Array]:
    """XLA's generators: the state of 64-bit words afterwards, and bits of the type of ``out``."""
    bits = dtypes.bit_width(out.dtype)
    key, n = _word(state, 0), state.shape[0]
    if threefry:
        start = _word(state, 1)
        if bits == 64:
            words, used = _joined(*_threefry(key, start, out.shape)), out.size
        else:
            words, used = _threefry_words(key, start, out.shape)
        end = [add(start, like(start, used))]
    else:
        low, high = (_word(state, 1), _word(state, 2)) if n >= 3 else (_word(state, 1), key)
        flat, last = _philox_words(key, low, high, out.size, bits == 64)
        words, end = reshape(flat, shape=out.shape), [last]
        if n >= 3:
            _low, over = _plus(low, high, sub(last, low))
            end.append(over)
    after = concatenate(*(reshape(w, shape=(1,)) for w in (key, *end)), dimension=0)
    if bits < 32:
        words = convert_element_type(words, dtype={8: dtypes.uint8, 16: dtypes.uint16, 4: dtypes.uint4}[bits])
    if words.dtype != out.dtype:
        words = bitcast_convert_type(words, dtype=out.dtype)
    return after, words


@rule("stablehlo.rng")
def _rng(scope: Scope, op: Operation, a: Array, b: Array, sizes: Array) -> Array:
    importer, out = scope.importer, result(op)
    if importer.seed is None:
        raise refused(
            op,
            "it draws from a hidden state, and functions here have none",
            "give from_stablehlo(..., seed=0), and it draws the same numbers in every call; or export the function "
            "with keys",
        )

    importer.draws += 1
    words = wrap([importer.seed & 0xFFFFFFFF, importer.draws])
    key = wrap_key_data(convert_element_type(words, dtype=dtypes.uint32))
    if op.attributes["rng_distribution"] == "NORMAL":
        drawn = random.normal(key, out.shape, out.dtype)
        return add(mul(drawn, spread(b, out.shape, ())), spread(a, out.shape, ()))
    if out.dtype == dtypes.bool_:
        return random.bernoulli(key, 0.5, out.shape)
    if out.dtype in dtypes.INTEGER:
        return random.randint(key, out.shape, a, b, out.dtype)
    return random.uniform(key, out.shape, out.dtype, a, b)
