"""Types of LLVM IR by their names, and constants as LLVM spells them. Knows no instruction."""

from __future__ import annotations

import math
import struct
from functools import lru_cache
from typing import Final

from nxjax.kernels.cpu.intrinsics import element, lanes_of, vector

FLOATS: Final = ("half", "bfloat", "float", "double")


@lru_cache(None)
def with_element(type: str, scalar: str) -> str:
    """``type`` with other elements and as many lanes."""
    return vector(scalar, lanes_of(type))


@lru_cache(None)
def bits_of(scalar: str) -> int:
    """Bits of a scalar type."""
    known = {"half": 16, "bfloat": 16, "float": 32, "double": 64, "ptr": 64}
    return known[scalar] if scalar in known else int(scalar[1:])


@lru_cache(None)
def is_float(type: str) -> bool:
    return element(type) in FLOATS


def number(scalar: str, value: float | int | bool) -> str:
    """A constant as LLVM spells it; floats by their bits, so that nothing is rounded twice.

    >>> number("double", 0.0) == number("double", -0.0)
    False
    """
    # Zeros are told apart, which are equal as keys.
    return _number(scalar, value, not value and math.copysign(1.0, value) < 0)


@lru_cache(4096)
def _number(scalar: str, value: float | int | bool, negative_zero: bool) -> str:
    if scalar == "float":
        (single,) = struct.unpack("<f", struct.pack("<f", _clipped(value)))
        return f"0x{struct.unpack('<Q', struct.pack('<d', single))[0]:016X}"
    if scalar == "double":
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if scalar == "half":
        return f"0xH{struct.unpack('<H', struct.pack('<e', value))[0]:04X}"
    if scalar == "bfloat":
        (word,) = struct.unpack("<I", struct.pack("<f", _clipped(value)))
        if word & 0xFFFF and value == value:
            word += 0x7FFF + (word >> 16 & 1)  # to nearest even
        return f"0xR{word >> 16:04X}"
    if scalar == "i1":
        return "true" if value else "false"
    if scalar == "ptr":
        assert not value, "the only pointer that is a constant is null"
        return "null"
    return str(int(value))


def _clipped(value: float) -> float:
    """``value``, or infinity where it is too large for float32."""
    return value if abs(value) <= 3.4028235677973366e38 or value != value else float("inf") * (1 if value > 0 else -1)
