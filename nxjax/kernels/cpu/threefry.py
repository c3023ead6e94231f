"""Random bits as expressions: Threefry-2x32 with 20 rounds on registers.

Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). An element is a hash of its key and its number,
so that drawing fuses with whatever is made of the bits. Equal to `nxjax.ops.random` bit for bit.
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from nxjax.kernels.cpu.ir import Function, Value, element, with_element
from nxjax.kernels.cpu.ops import EmitContext, op
from nxjax.ops.random import random_fold_in
from nxjax.trace import dtypes
from nxjax.trace.core import Op
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]

_ROTATIONS: Final = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY: Final = 0x1BD11BDA


@final
class ThreefryDraw(Op):
    """What a key and a number below 2^32 give: ``dtype`` is an unsigned type, or a new key.

    An op of graphs that kernels compute, not of programs, and so in no table: `random_bits` and `random_split` are its
    values at the numbers of their elements.
    """

    name = "threefry"

    def __init__(self) -> None:
        pass

    def infer(self, keys: ArrayType, numbers: ArrayType, /, *, dtype: Any) -> ArrayType:
        return ArrayType(keys.shape, dtype)

    def eval(self, keys: NDArray, numbers: NDArray, /, *, dtype: Any) -> NDArray:
        keys, numbers = np.broadcast_arrays(keys, numbers)
        folded: Any = random_fold_in.eval(keys, numbers)
        if dtype == dtypes.key:
            return folded
        high, low = folded["threefry"][..., 0], folded["threefry"][..., 1]
        if dtype == dtypes.uint64:
            return (high.astype(np.uint64) << np.uint64(32)) | low
        return np.asarray(high ^ low).astype(dtype)


draw: Final = ThreefryDraw()


def _rotated(f: Function, x: Value, bits: int) -> Value:
    return f.intrinsic("fshl", x.type, x, x, f.constant(x.type, bits))


def hashed(f: Function, k1: Value, k2: Value, x1: Value | None, x2: Value) -> tuple[Value, Value]:
    """Both words of the hash; ``x1`` is 0 if None."""
    keys = (k1, k2, k1 ^ k2 ^ _PARITY)
    a, b = k1 if x1 is None else x1 + k1, x2 + k2
    for i in range(5):
        for r in _ROTATIONS[i % 2]:
            a = a + b
            b = _rotated(f, b, r) ^ a
        a = a + keys[(i + 1) % 3]
        b = b + (keys[(i + 2) % 3] + (i + 1))
    return a, b


def words_of(key: Value) -> tuple[Value, Value]:
    """The two words of a key."""
    i32 = with_element(key.type, "i32")
    return key.convert(i32), key.lshr(32).convert(i32)


def key_of(a: Value, b: Value) -> Value:
    i64 = with_element(a.type, "i64")
    return a.convert(i64, signed=False) | (b.convert(i64, signed=False) << 32)


@op("threefry", {dtypes.uint32}, exact=True)
def _threefry(s: EmitContext) -> Value:
    key, number = s.xs
    a, b = hashed(s.f, *words_of(key), None, number)
    if s.out == dtypes.key:
        return key_of(a, b)
    if s.out == dtypes.uint64:
        return key_of(b, a)
    bits = a ^ b
    return bits.convert(with_element(bits.type, f"i{8 * s.out.itemsize}"))


@op("random_fold_in", {dtypes.uint32}, exact=True)
def _fold_in(s: EmitContext) -> Value:
    return _threefry(s)


@op("random_seed", dtypes.INTEGER, exact=True)
def _seed(s: EmitContext) -> Value:
    """The high and the low half of the seed; the high one is 0 below 64 bits."""
    (x,) = s.xs
    if element(x.type) == "i64":
        return s.f.intrinsic("fshl", x.type, x, x, s.f.constant(x.type, 32))
    wide = x.convert(with_element(x.type, "i32"), signed=s.dtype in dtypes.SIGNED)
    return wide.convert(with_element(x.type, "i64"), signed=False) << 32
