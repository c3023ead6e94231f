"""`jax.lax`'s generators of random bits, which take their state as it is: `rng_bit_generator`, `rng_uniform`.

The bits are XLA's on the CPU: Philox-4x32 with ten rounds (the default) and Threefry-2x32, both of Salmon et al.,
"Parallel random numbers: as easy as 1, 2, 3" (SC 2011). `nxjax.random` is what programs use.
"""

from __future__ import annotations

import enum
import functools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy

from nxjax import numpy as np
from nxjax.errors import DtypeError, ShapeError
from nxjax.lax._operands import aligned
from nxjax.ops.random import threefry2x32
from nxjax.trace import dtypes
from nxjax.trace.annotations import ArrayLike, DTypeLike, ShardingLike
from nxjax.trace.array import as_value
from nxjax.trace.core import Array
from nxjax.trace.types import ShapeDtypeStruct
from nxjax.transforms.callback import io_callback

_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)
_ROUNDS: Final = 10


class RandomAlgorithm(enum.IntEnum):
    """How `rng_bit_generator` makes bits.

    >>> str(RandomAlgorithm.RNG_DEFAULT)
    'RNG_DEFAULT'
    """

    RNG_DEFAULT = 0
    RNG_THREE_FRY = 1
    RNG_PHILOX = 2

    def __str__(self) -> str:
        return self.name


def _halves(x: Array) -> tuple[Array, Array]:
    """The low and high words of 64-bit integers."""
    return x.astype("uint32"), (x >> np.uint64(32)).astype("uint32")


def _joined(low: Array, high: Array) -> Array:
    return low.astype("uint64") | (high.astype("uint64") << np.uint64(32))


def _product(a: int, b: Array) -> tuple[Array, Array]:
    """The low and high words of a product of 32-bit integers."""
    return _halves(np.uint64(a) * b.astype("uint64"))


def _philox(key: Array, start: Array, blocks: int) -> list[Array]:
    """Four words for each of ``blocks`` counters from (start, key) on."""
    counter = start + np.arange(blocks, dtype="uint64")
    carried = (counter < start).astype("uint64")
    x = [*_halves(counter), *_halves(key + carried)]
    keys = list(_halves(key))
    for _ in range(_ROUNDS):
        (low0, high0), (low1, high1) = _product(_MULTIPLIERS[0], x[0]), _product(_MULTIPLIERS[1], x[2])
        x = [high1 ^ x[1] ^ keys[0], low1, high0 ^ x[3] ^ keys[1], low0]
        keys = [k + np.uint32(w) for k, w in zip(keys, _WEYL, strict=True)]
    return x


def _threefry(key: Array, start: Array, blocks: int) -> list[Array]:
    """Two words for each of ``blocks`` counters from ``start`` on."""
    low, high = _halves(start + np.arange(blocks, dtype="uint64"))
    keys = [np.broadcast_to(k, (blocks,)) for k in _halves(key)]
    return list(threefry2x32(*keys, low, high))


def _interleaved(key: Array, start: Array, sizes: tuple[int, ...]) -> tuple[Array, int]:
    """Threefry's words of 32 bits, and how many blocks they took.

    The two words of a block are neighbours along the first dimension of even size, else the first of the largest.
    """
    full = sizes or (1,)
    axis = next((i for i, n in enumerate(full) if n % 2 == 0), full.index(max(full)))
    half = (*full[:axis], -(-full[axis] // 2), *full[axis + 1 :])
    blocks = math.prod(half)
    words = [w.reshape(half) for w in _threefry(key, start, blocks)]
    both = np.stack(words, axis + 1).reshape((*half[:axis], 2 * half[axis], *half[axis + 1 :]))
    cut = (slice(None),) * axis + (slice(full[axis]),)
    return both[cut].reshape(sizes), blocks


def rng_bit_generator(
    key: ArrayLike,
    shape: Sequence[int],
    dtype: DTypeLike | None = np.uint32,
    algorithm: RandomAlgorithm = RandomAlgorithm.RNG_DEFAULT,
    *,
    out_sharding: ShardingLike = None,
) -> tuple[Array, Array]:
    """The next state, and uniform bits.

    Args:
        key: the state, ``u32[4]`` or ``u64[2]``.
        shape: of the bits.
        dtype: unsigned integer of 8 to 64 bits.
        algorithm: a `RandomAlgorithm`; the default is Philox, as on XLA's CPU.
        out_sharding: accepted for JAX programs; here it follows from the operands.

    Raises:
        DtypeError: another dtype.
        ShapeError: another state.

    >>> state, bits = rng_bit_generator(nx.array([1, 2, 3, 4], "uint32"), (3,))
    >>> state.tolist(), bits.dtype.name
    ([1, 2, 4, 4], 'uint32')
    """
    state = as_value(key, "rng_bit_generator")
    wanted = dtypes.as_dtype(dtype)
    if wanted not in (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64):
        raise DtypeError("rng_bit_generator: bits are unsigned integers", got=wanted, expected="u8, u16, u32 or u64")
    if (state.dtype, state.shape) not in ((dtypes.uint32, (4,)), (dtypes.uint64, (2,))):
        raise ShapeError("rng_bit_generator: not a state", got=state.type, expected="u32[4] or u64[2]")
    sizes = tuple(int(n) for n in shape)
    first, start = (
        (_joined(state[0], state[1]), _joined(state[2], state[3])) if state.ndim and state.shape[0] == 4 else state
    )
    wide = wanted == dtypes.uint64
    n = math.prod(sizes)
    if RandomAlgorithm(algorithm) is RandomAlgorithm.RNG_THREE_FRY:
        if wide:
            blocks = n
            bits = _joined(*_threefry(first, start, blocks)).reshape(sizes)
        else:
            bits, blocks = _interleaved(first, start, sizes)
    else:
        blocks = -(-n // 2) if wide else -(-n // 4)
        words = _philox(first, start, blocks)
        pairs = [_joined(words[0], words[1]), _joined(words[2], words[3])] if wide else words
        bits = np.stack(pairs, 1).reshape(-1)[:n].reshape(sizes)
    bits = bits.astype(wanted)
    after = start + np.uint64(blocks)
    if state.dtype == dtypes.uint64:
        return np.stack([first, after]), bits
    return np.stack([*_halves(first), *_halves(after)]), bits


def rng_uniform(a: ArrayLike, b: ArrayLike, shape: Sequence[int]) -> Array:
    """Numbers between ``a`` and ``b``, others at each call: from a generator that NumPy keeps.

    Args:
        a, b: scalars of one dtype, integer or floating point; ``b`` is not reached.
        shape: of the result.

    Raises:
        DtypeError: the bounds differ in dtype; ShapeError: they are not scalars, or a size is negative.

    >>> bool((rng_uniform(0.0, 1.0, (3,)) < 1).all())
    True
    """
    low, high = aligned("rng_uniform", a, b)
    if low.shape:
        raise ShapeError("rng_uniform: bounds are scalars", got=low.type, expected="a scalar")
    if any(n < 0 for n in shape):
        raise ShapeError("rng_uniform: sizes are not negative", got=tuple(shape))
    out = ShapeDtypeStruct(tuple(int(n) for n in shape), low.dtype)
    return io_callback(functools.partial(_draw, out.shape), out, low, high)


def _draw(shape: Sequence[int], low: Any, high: Any) -> Any:
    a, b = low.numpy(), high.numpy()
    if a.dtype.kind in "iu":
        return _source().integers(a, max(int(b), int(a) + 1), shape, a.dtype)
    x = (a + (b - a) * _source().random(shape)).astype(a.dtype)
    return numpy.where(x < b, x, a)  # rounding may reach the upper end


@functools.cache
def _source() -> numpy.random.Generator:
    return numpy.random.default_rng()
