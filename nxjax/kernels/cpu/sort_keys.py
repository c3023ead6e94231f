"""Elements as unsigned integers that order as the elements do, and several of them as one number.

NaNs come last, whatever their sign and payload; -0.0 equals 0.0; complex numbers are ordered by real, then imaginary
part. From the largest down the order is IEEE 754's total one instead: NaN, inf, ..., 0.0, -0.0, ..., -inf, -NaN.
Sign and magnitude of a float become one unsigned number by turning round all bits of negative ones, and only the
sign of others (Herf, "Radix tricks", 2001).
"""

from __future__ import annotations

from typing import Any, Final, final

import numpy as np

from nxjax.config.dataclass import dataclass
from nxjax.kernels.cpu import convert
from nxjax.kernels.cpu.ir import Function, Value, with_element
from nxjax.kernels.cpu.isa import Isa
from nxjax.trace import dtypes

DType = np.dtype[Any]
REAL: Final = dtypes.NUMERIC - dtypes.COMPLEX


@final
@dataclass(frozen=True, slots=True)
class SortKey:
    """A real number inside each element of an operand.

    Attributes:
        operand: which one.
        dtype: of the number.
        step, offset: bytes from element to element, and of the number inside one.
    """

    operand: int
    dtype: DType
    step: int
    offset: int = 0

    @property
    def bits(self) -> int:
        """Of the unsigned integer."""
        return 8 * self.dtype.itemsize

    def read(self, f: Function, isa: Isa, base: Value, index: Value, descending: bool) -> Value:
        """The key of element ``index`` as an ``i64`` of so many bits."""
        place = f.at(f.at(base, index, self.step), self.offset)
        key = ordered(f, isa, self.dtype, f.load(convert.memory_type(self.dtype), place, 1), descending)
        key = ~key if descending else key
        return key.convert("i64", signed=False)


def keys_of(operand: int, dtype: DType) -> tuple[SortKey, ...]:
    """The keys of an operand, most significant first."""
    if dtype in dtypes.COMPLEX:
        part, size = dtypes.real_part(dtype), dtype.itemsize
        return SortKey(operand, part, size), SortKey(operand, part, size, size // 2)
    return (SortKey(operand, dtype, dtype.itemsize),)


def ordered(f: Function, isa: Isa, dtype: DType, raw: Value, total: bool = False) -> Value:
    """An unsigned integer as wide as the word ``raw`` of a real element; ``total``: in the total order."""
    bits = 8 * dtype.itemsize
    sign = 1 << (bits - 1)
    if dtype in dtypes.FLOAT:
        word = raw.bitcast(with_element(raw.type, f"i{bits}"))
        if total:
            return f.select(word.lt(0), ~word, word | sign)
        x = convert.from_memory(f, isa, dtype, raw)
        word = f.select(x.eq(0.0), 0, word)
        word = f.select(word.lt(0), ~word, word | sign)
        return f.select(x.is_nan(), -1, word)
    x = convert.from_memory(f, isa, dtype, raw).convert(with_element(raw.type, f"i{bits}"), signed=False)
    return x ^ sign if dtype in dtypes.SIGNED else x


def restored(f: Function, dtype: DType, key: Value) -> Value:
    """The word of the element that has ``key``; for floats one that is neither NaN nor zero of negative sign."""
    bits = 8 * dtype.itemsize
    sign = 1 << (bits - 1)
    if dtype in dtypes.FLOAT:
        return f.select(key.lt(0), key ^ sign, ~key)
    return key ^ sign if dtype in dtypes.SIGNED else key


def is_ambiguous(f: Function, isa: Isa, dtype: DType, raw: Value) -> Value:
    """Whether other words have the same key: a NaN, or a zero of negative sign."""
    x = convert.from_memory(f, isa, dtype, raw)
    word = raw.bitcast(with_element(raw.type, f"i{8 * dtype.itemsize}"))
    return x.is_nan() | (x.eq(0.0) & word.ne(0))
