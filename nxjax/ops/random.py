"""Random keys and the counter-based generator behind them: Threefry-2x32 with 20 rounds.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A key is two 32-bit words; what is drawn from it
is a hash of the key and a 64-bit counter that runs over the elements in row-major order. So every element can be drawn
by itself, and each op of this file works on whole arrays of keys: the bits of key i are those it would give alone.

Knows no distribution; those are compositions in `nxjax.random`.
"""

from __future__ import annotations

import math
from typing import Any, Final, final

import numpy as np

from nxjax.errors import DtypeError, KeyTypeError, ShapeError
from nxjax.ops.arithmetic import add
from nxjax.ops.base import (
    Elementwise,
    NDArray,
    Nondifferentiable,
    check_shape,
    constant,
    equal_shapes,
    move_batch,
    require,
)
from nxjax.ops.bitwise import and_, or_, shift_left, shift_right_logical, xor
from nxjax.ops.convert import cast, convert_element_type
from nxjax.ops.create import iota
from nxjax.ops.shape import broadcast_in_dim, reshape
from nxjax.ops.slicing import concatenate, slice_axis
from nxjax.trace import dtypes
from nxjax.trace.core import Array, Arrays, Dims, Op
from nxjax.trace.dtypes import DType
from nxjax.trace.types import ArrayType, Shape

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA
_BLOCK: Final = 1 << 14  # elements that stay in the first levels of cache through all rounds
_UINT: Final[dict[int, DType]] = {
    8: dtypes.uint8,
    16: dtypes.uint16,
    32: dtypes.uint32,
    64: dtypes.uint64,
}


def _hash(k1: NDArray, k2: NDArray, x1: NDArray, x2: NDArray) -> tuple[NDArray, NDArray]:
    """Threefry-2x32 in NumPy; operands broadcast."""
    shape = np.broadcast_shapes(k1.shape, k2.shape, x1.shape, x2.shape)
    # One axis at least: NumPy makes scalars of what has none, and those warn when they wrap around.
    k1, k2, x1, x2 = (np.atleast_1d(x) for x in (k1, k2, x1, x2))
    keys = (k1, k2, k1 ^ k2 ^ np.uint32(_PARITY))
    full = shape or (1,)
    a = np.array(np.broadcast_to(x1 + k1, full), order="C")
    b = np.array(np.broadcast_to(x2 + k2, full), order="C")
    if a.size <= _BLOCK or any(k.size > 1 for k in keys):
        _rounds(a, b, keys)
    else:
        for start in range(0, a.size, _BLOCK):
            _rounds(a.reshape(-1)[start : start + _BLOCK], b.reshape(-1)[start : start + _BLOCK], keys)
    return a.reshape(shape), b.reshape(shape)


def _rounds(a: NDArray, b: NDArray, keys: tuple[NDArray, ...]) -> None:
    """The 20 rounds, in place."""
    if a.ndim == 1:
        keys = tuple(k.reshape(-1) for k in keys)
    spare = np.empty_like(b)
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            a += b
            np.left_shift(b, np.uint32(r), out=spare)
            b >>= np.uint32(32 - r)
            b |= spare
            b ^= a
        a += keys[(i + 1) % 3]
        b += keys[(i + 2) % 3] + np.uint32(i + 1)


def _words(keys: NDArray, rank: int) -> tuple[NDArray, NDArray]:
    """The two words of each key, with ``rank`` axes of size 1 behind."""
    words = keys["threefry"]
    shape = (*keys.shape, *(1,) * rank)
    return words[..., 0].reshape(shape), words[..., 1].reshape(shape)


def _counters(shape: Shape) -> tuple[NDArray, NDArray]:
    """High and low words of the element numbers of ``shape``."""
    n = math.prod(shape)
    if n < 2**32:
        return np.zeros((1,) * len(shape), np.uint32), np.arange(n, dtype=np.uint32).reshape(shape)
    wide = np.arange(n, dtype=np.uint64).reshape(shape)
    return (wide >> np.uint64(32)).astype(np.uint32), wide.astype(np.uint32)


def _as_keys(a: NDArray, b: NDArray) -> NDArray:
    return np.stack([a, b], -1).view(dtypes.key).reshape(a.shape)


def _split_words(keys: Array, shape: Shape) -> tuple[Array, Array]:
    """The two words of each key as values, repeated over trailing ``shape``."""
    words = random_unwrap(keys)
    n = keys.ndim
    found: list[Array] = []
    for i in range(2):
        word = reshape(slice_axis(words, n, i, i + 1), shape=keys.shape)
        if shape:
            word = broadcast_in_dim(word, shape=(*keys.shape, *shape), broadcast_dimensions=tuple(range(n)))
        found.append(word)
    return found[0], found[1]


def _counter_values(lead: Shape, shape: Shape) -> tuple[Array, Array]:
    """`_counters` as values, repeated over leading ``lead``."""
    full, n = (*lead, *shape), math.prod(shape)
    if not shape:
        zero = constant(0, dtypes.uint32, full)
        return zero, zero
    wide = n >= 2**32
    counter = iota(dtype=dtypes.uint64 if wide else dtypes.uint32, shape=(n,), dimension=0)
    if wide:
        low = convert_element_type(counter, dtype=dtypes.uint32)
        high = convert_element_type(shift_right_logical(counter, 32), dtype=dtypes.uint32)
    else:
        low, high = counter, None

    def spread(x: Array) -> Array:
        y = reshape(x, shape=shape)
        dims = tuple(range(len(lead), len(full)))
        return broadcast_in_dim(y, shape=full, broadcast_dimensions=dims) if lead else y

    return constant(0, dtypes.uint32, full) if high is None else spread(high), spread(low)


def _key_from_words(a: Array, b: Array) -> Array:
    pair = [reshape(x, shape=(*x.shape, 1)) for x in (a, b)]
    return random_wrap(concatenate(*pair, dimension=a.ndim))


def _need_keys(op: Op, keys: ArrayType) -> None:
    if keys.dtype != dtypes.key:
        raise KeyTypeError(f"{op.name}: needs a random key", got=keys, expected="key<fry>", fix="nx.random.key(0)")


class OnKeys(Nondifferentiable, Op):
    """One operand, an array of keys; what is drawn from each key stands in trailing axes."""

    def batch(self, size: int, args: Arrays, dims: Dims, **params: Any) -> tuple[Any, Any]:
        return self(move_batch(args[0], dims[0], size), **params), 0


@final
class RandomWrap(OnKeys):
    """Keys from their words: uint32[..., 2] to key[...]."""

    name = "random_wrap"

    def infer(self, x: ArrayType, /) -> ArrayType:
        if x.dtype != dtypes.uint32:
            raise KeyTypeError(f"{self}: key data is uint32", got=x, expected="u32[..., 2]", fix="nx.random.key(0)")
        if not x.shape or x.shape[-1] != 2:
            raise KeyTypeError(f"{self}: a key is two words", got=x, expected="u32[..., 2]", fix="nx.random.key(0)")
        return ArrayType(x.shape[:-1], dtypes.key)

    def eval(self, x: NDArray, /) -> NDArray:
        return np.ascontiguousarray(x).view(dtypes.key).reshape(x.shape[:-1])

    def stablehlo(self, b: Any, out: ArrayType, x: Any, /) -> Any:
        return b.op("stablehlo.bitcast_convert", (x,), out)


@final
class RandomUnwrap(OnKeys):
    """The words of keys: key[...] to uint32[..., 2]."""

    name = "random_unwrap"

    def infer(self, keys: ArrayType, /) -> ArrayType:
        _need_keys(self, keys)
        return ArrayType((*keys.shape, 2), dtypes.uint32)

    def eval(self, keys: NDArray, /) -> NDArray:
        return keys["threefry"]

    def stablehlo(self, b: Any, out: ArrayType, keys: Any, /) -> Any:
        return b.op("stablehlo.bitcast_convert", (keys,), out)


@final
class RandomClone(OnKeys):
    """The same keys, meant to be used a second time."""

    name = "random_clone"

    def infer(self, keys: ArrayType, /) -> ArrayType:
        _need_keys(self, keys)
        return keys

    def eval(self, keys: NDArray, /) -> NDArray:
        return keys

    def stablehlo(self, b: Any, out: ArrayType, keys: Any, /) -> Any:
        return keys


@final
class RandomSeed(Nondifferentiable, Elementwise):
    """A key for each integer seed. Its words are the high and low half of the seed; the high one is 0 below 64 bits."""

    name = "random_seed"

    def infer(self, seeds: ArrayType, /) -> ArrayType:
        if seeds.dtype not in dtypes.INTEGER:
            raise KeyTypeError(f"{self}: a seed is an integer", got=seeds, expected="an integer dtype")
        return ArrayType(seeds.shape, dtypes.key)

    def eval(self, seeds: NDArray, /) -> NDArray:
        low = seeds.astype(np.uint64) & np.uint64(0xFFFFFFFF)
        high = seeds.astype(np.uint64) >> np.uint64(32) if seeds.dtype.itemsize == 8 else np.zeros_like(low)
        return _as_keys(np.asarray(high, np.uint32), np.asarray(low, np.uint32))

    def expand(self, seeds: Array, /) -> Array:
        if seeds.dtype.itemsize == 8:
            high = convert_element_type(shift_right_logical(seeds, 32), dtype=dtypes.uint32)
            low = convert_element_type(and_(seeds, 0xFFFFFFFF), dtype=dtypes.uint32)
        else:
            high = constant(0, dtypes.uint32, seeds.shape)
            wide = convert_element_type(seeds, dtype=dtypes.int32) if seeds.dtype in dtypes.SIGNED else seeds
            low = convert_element_type(wide, dtype=dtypes.uint32)
        return _key_from_words(high, low)


@final
class Threefry2x32(Nondifferentiable, Elementwise):
    """Hash of two counter words under two key words, element by element; all uint32, two results."""

    name = "threefry2x32"
    multi = True

    def infer(self, k1: ArrayType, k2: ArrayType, x1: ArrayType, x2: ArrayType, /) -> tuple[ArrayType, ...]:
        for t in (k1, k2, x1, x2):
            if t.dtype != dtypes.uint32:
                raise DtypeError(f"{self}: operands are uint32", got=t, expected="u32")
        out = ArrayType(equal_shapes(self, k1, k2, x1, x2), dtypes.uint32)
        return (out, out)

    def eval(self, k1: NDArray, k2: NDArray, x1: NDArray, x2: NDArray, /) -> tuple[NDArray, NDArray]:
        return _hash(k1, k2, x1, x2)

    def expand(self, k1: Array, k2: Array, x1: Array, x2: Array, /) -> tuple[Array, Array]:
        keys = (k1, k2, xor(xor(k1, k2), _PARITY))
        a, b = add(x1, k1), add(x2, k2)
        for i in range(5):
            for r in _ROTATIONS[i % 2]:
                a = add(a, b)
                b = xor(a, or_(shift_left(b, r), shift_right_logical(b, 32 - r)))
            a = add(a, keys[(i + 1) % 3])
            b = add(add(b, keys[(i + 2) % 3]), i + 1)
        return a, b


@final
class RandomBits(OnKeys):
    """Uniform bits: ``shape`` unsigned integers of ``bit_width`` bits from each key; key[...] to uint[..., *shape].

    64 bits are both words of the hash, 32 their xor, 8 and 16 its low bits.
    """

    name = "random_bits"

    def infer(self, keys: ArrayType, /, *, bit_width: int, shape: Shape) -> ArrayType:
        _need_keys(self, keys)
        require(self, bit_width in _UINT, "bit_width", bit_width, "8, 16, 32 or 64")
        check_shape(self, shape)
        return ArrayType((*keys.shape, *shape), _UINT[bit_width])

    def eval(self, keys: NDArray, /, *, bit_width: int, shape: Shape) -> NDArray:
        a, b = _hash(*_words(keys, len(shape)), *_counters(shape))
        if bit_width == 64:
            return (a.astype(np.uint64) << np.uint64(32)) | b
        return np.asarray(a ^ b).astype(_UINT[bit_width], copy=False)

    def expand(self, keys: Array, /, *, bit_width: int, shape: Shape) -> Array:
        a, b = threefry2x32(*_split_words(keys, shape), *_counter_values(keys.shape, shape))
        if bit_width != 64:
            return cast(xor(a, b), _UINT[bit_width])
        high, low = (convert_element_type(x, dtype=dtypes.uint64) for x in (a, b))
        return or_(shift_left(high, 32), low)


@final
class RandomSplit(OnKeys):
    """``shape`` new keys from each key: key[...] to key[..., *shape]."""

    name = "random_split"

    def infer(self, keys: ArrayType, /, *, shape: Shape) -> ArrayType:
        _need_keys(self, keys)
        check_shape(self, shape)
        return ArrayType((*keys.shape, *shape), dtypes.key)

    def eval(self, keys: NDArray, /, *, shape: Shape) -> NDArray:
        return _as_keys(*_hash(*_words(keys, len(shape)), *_counters(shape)))

    def expand(self, keys: Array, /, *, shape: Shape) -> Array:
        return _key_from_words(*threefry2x32(*_split_words(keys, shape), *_counter_values(keys.shape, shape)))


@final
class RandomFoldIn(Nondifferentiable, Elementwise):
    """A new key from a key and a uint32, element by element."""

    name = "random_fold_in"

    def infer(self, keys: ArrayType, data: ArrayType, /) -> ArrayType:
        _need_keys(self, keys)
        if data.dtype != dtypes.uint32:
            raise DtypeError(f"{self}: folds in a uint32", got=data, expected="u32")
        if keys.shape != data.shape:
            raise ShapeError(f"{self}: one number per key", got=f"{keys} and {data}", expected="equal shapes")
        return keys

    def eval(self, keys: NDArray, data: NDArray, /) -> NDArray:
        return _as_keys(*_hash(*_words(keys, 0), np.zeros_like(data), data))

    def expand(self, keys: Array, data: Array, /) -> Array:
        zero = constant(0, dtypes.uint32, data.shape)
        return _key_from_words(*threefry2x32(*_split_words(keys, ()), zero, data))


random_wrap = RandomWrap()
random_unwrap = RandomUnwrap()
random_clone = RandomClone()
random_seed = RandomSeed()
threefry2x32 = Threefry2x32()
random_bits = RandomBits()
random_split = RandomSplit()
random_fold_in = RandomFoldIn()
