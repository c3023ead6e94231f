"""Blocks of ggml: weights of 2 to 8 bits that share scales, as floats.

Each format is a table row: elements and bytes of a block, and the formula. The formulas are those of
github.com/ggml-org/ggml, src/ggml-quants.c. Knows no file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import ml_dtypes
import numpy as np

NDArray = np.ndarray[Any, Any]


def _half(b: NDArray) -> NDArray:
    """Two bytes as a float16 number, in float32."""
    return np.ascontiguousarray(b).view(np.float16).astype(np.float32)


def _nibbles(b: NDArray) -> NDArray:
    """The low halves of bytes, then the high ones."""
    return np.concatenate([b & 15, b >> 4], -1)


def _bits(b: NDArray) -> NDArray:
    """The bits of little-endian 32-bit words: [n, 4] to [n, 32]."""
    return np.unpackbits(b, axis=-1, bitorder="little")


def _q4_0(b: NDArray) -> NDArray:
    return _half(b[:, :2]) * (_nibbles(b[:, 2:]).astype(np.float32) - 8)


def _q4_1(b: NDArray) -> NDArray:
    return _half(b[:, :2]) * _nibbles(b[:, 4:]) + _half(b[:, 2:4])


def _q5_0(b: NDArray) -> NDArray:
    return _half(b[:, :2]) * ((_nibbles(b[:, 6:]) | _bits(b[:, 2:6]) << 4).astype(np.float32) - 16)


def _q5_1(b: NDArray) -> NDArray:
    return _half(b[:, :2]) * (_nibbles(b[:, 8:]) | _bits(b[:, 4:8]) << 4) + _half(b[:, 2:4])


def _q8_0(b: NDArray) -> NDArray:
    return _half(b[:, :2]) * b[:, 2:].view(np.int8)


def _scales(b: NDArray) -> tuple[NDArray, NDArray]:
    """The 8 scales and the 8 minima of 6 bits each in 12 bytes: [n, 12] to two of [n, 8]."""
    low, high, rest = b[:, :4], b[:, 4:8], b[:, 8:]
    scale = np.concatenate([low & 63, (rest & 15) | (low >> 6) << 4], -1)
    least = np.concatenate([high & 63, (rest >> 4) | (high >> 6) << 4], -1)
    return scale.astype(np.float32), least.astype(np.float32)


def _parts(b: NDArray) -> NDArray:
    """128 bytes as 8 parts of 32 numbers of 4 bits: of each 32 bytes first the low halves, then the high ones."""
    four = b.reshape(-1, 4, 32)
    return np.stack([four & 15, four >> 4], 2).reshape(-1, 8, 32)


def _q4_k(b: NDArray) -> NDArray:
    scale, least = _scales(b[:, 4:16])
    y = (_half(b[:, :2]) * scale)[..., None] * _parts(b[:, 16:]) - (_half(b[:, 2:4]) * least)[..., None]
    return y.reshape(-1, 256)


def _fifth(b: NDArray) -> NDArray:
    """The fifth bits of Q5_K: bit i of 32 bytes is that of part i."""
    return (b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1


def _q5_k(b: NDArray) -> NDArray:
    scale, least = _scales(b[:, 4:16])
    q = _parts(b[:, 48:]) | _fifth(b) << 4
    y = (_half(b[:, :2]) * scale)[..., None] * q - (_half(b[:, 2:4]) * least)[..., None]
    return y.reshape(-1, 256)


def _six(b: NDArray) -> NDArray:
    """The numbers of blocks of Q6_K, in 16 groups."""
    low, high = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 1, 32)
    four = np.concatenate([low & 15, low >> 4], 2)
    two = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    return (four | two << 4).reshape(-1, 16, 16).view(np.int8) - np.int8(32)


def _q6_k(b: NDArray) -> NDArray:
    scale = _half(b[:, 208:210]) * b[:, 192:208].view(np.int8)
    return (scale[..., None] * _six(b).astype(np.float32)).reshape(-1, 256)


def _quarters(b: NDArray) -> NDArray:
    """64 bytes as 256 numbers of 2 bits: of each 32 bytes first the lowest two bits, then the next."""
    return ((b.reshape(-1, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3).reshape(-1, 256)


def _q2_k(b: NDArray) -> NDArray:
    scale, least = b[:, :16] & 15, b[:, :16] >> 4
    y = (_half(b[:, 80:82]) * scale)[..., None] * _quarters(b[:, 16:80]).reshape(-1, 16, 16)
    return (y - (_half(b[:, 82:84]) * least)[..., None]).reshape(-1, 256)


def _q3_k(b: NDArray) -> NDArray:
    low, high = _nibbles(b[:, 96:104]), b[:, None, 104:108] >> np.array([0, 2, 4, 6], np.uint8)[:, None] & 3
    scale = (low | high.reshape(-1, 16) << 4).astype(np.float32) - 32
    # Bit i of the 32 bytes is the third bit of part i; what lacks it is 4 less.
    third = (b[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    q = (_quarters(b[:, 32:96]) | third.reshape(-1, 256) << 2).astype(np.float32) - 4
    return ((_half(b[:, 108:110]) * scale)[..., None] * q.reshape(-1, 16, 16)).reshape(-1, 256)


# What 4 bits stand for, where that is no grid.
_UNEVEN: Final = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
_FP4: Final = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def _iq4_nl(b: NDArray) -> NDArray:
    return _half(b[:, :2]) * _UNEVEN[_nibbles(b[:, 2:])]


def _iq4_xs(b: NDArray) -> NDArray:
    low = np.stack([b[:, 4:8] & 15, b[:, 4:8] >> 4], -1).reshape(-1, 8)
    high = np.ascontiguousarray(b[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scale = (low | high.astype(np.uint8) << 4).astype(np.float32) - 32
    q = _UNEVEN[_nibbles(b[:, 8:].reshape(-1, 8, 16))]
    return ((_half(b[:, :2]) * scale)[..., None] * q).reshape(-1, 256)


def _mxfp4(b: NDArray) -> NDArray:
    return np.ldexp(np.float32(1), b[:, :1].astype(np.int32) - 128) * _FP4[_nibbles(b[:, 1:])]


def _tq1_0(b: NDArray) -> NDArray:
    # Five digits of base 3 to a byte, as a fraction of 256: the first is what is above after a product with 3.
    def digits(v: NDArray, count: int) -> NDArray:
        powers = (3 ** np.arange(count)).astype(np.uint8)[:, None]
        return ((v[:, None] * powers).astype(np.uint16) * 3 >> 8).reshape(len(v), -1)

    q = np.concatenate([digits(b[:, :32], 5), digits(b[:, 32:48], 5), digits(b[:, 48:52], 4)], -1)
    return _half(b[:, 52:54]) * (q.astype(np.float32) - 1)


def _tq2_0(b: NDArray) -> NDArray:
    return _half(b[:, 64:66]) * (_quarters(b[:, :64]).astype(np.float32) - 1)


# Number of the format -> elements and bytes of a block.
BLOCKS: Final[dict[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 30: (1, 2), 28: (1, 8), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    10: (256, 84), 11: (256, 110), 20: (32, 18), 23: (256, 136), 34: (256, 54), 35: (256, 66), 39: (32, 17),
}  # fmt: skip
_PLAIN: Final[dict[int, Any]] = {
    0: np.float32, 1: np.float16, 30: ml_dtypes.bfloat16, 28: np.float64, 24: np.int8, 25: np.int16, 26: np.int32,
    27: np.int64,
}  # fmt: skip
_FEW_BITS: Final[dict[int, Callable[[NDArray], NDArray]]] = {
    2: _q4_0, 3: _q4_1, 6: _q5_0, 7: _q5_1, 8: _q8_0, 12: _q4_k, 13: _q5_k, 14: _q6_k,
    10: _q2_k, 11: _q3_k, 20: _iq4_nl, 23: _iq4_xs, 34: _tq1_0, 35: _tq2_0, 39: _mxfp4,
}  # fmt: skip
# Formats that are whole numbers times scales, some plus a least number: the bits that a number is kept in. Those from 0
# to 15 do not fit in int4, which is signed.
INTEGERS: Final = {2: 4, 3: 8, 6: 8, 7: 8, 8: 8, 12: 8, 13: 8, 14: 8}


def integers(data: NDArray, kind: int) -> tuple[NDArray, NDArray, NDArray | None]:
    """Blocks in a row of a format of `INTEGERS`: int8 numbers [n, elements], float32 scales [n, groups], and what a
    number 0 stands for, of the scales' shape; None for 0."""
    b = np.asarray(data).reshape(-1, BLOCKS[kind][1])
    scale = _half(b[:, 208:210] if kind == 14 else b[:, :2])
    signed = lambda x, zero=0: x.view(np.int8) - np.int8(zero)
    if kind == 8:
        return b[:, 2:].view(np.int8), scale, None
    if kind == 2:
        return signed(_nibbles(b[:, 2:]), 8), scale, None
    if kind == 6:
        return signed(_nibbles(b[:, 6:]) | _bits(b[:, 2:6]) << 4, 16), scale, None
    if kind == 14:
        return _six(b).reshape(-1, 256), scale * b[:, 192:208].view(np.int8), None
    if kind in (3, 7):
        q = _nibbles(b[:, 4:]) if kind == 3 else _nibbles(b[:, 8:]) | _bits(b[:, 4:8]) << 4
        return signed(q), scale, _half(b[:, 2:4])
    each, least = _scales(b[:, 4:16])
    q = _parts(b[:, 16:]) if kind == 12 else _parts(b[:, 48:]) | _fifth(b) << 4
    return signed(q).reshape(-1, 256), scale * each, -(_half(b[:, 2:4]) * least)


def _to_q8_0(x: NDArray) -> NDArray:
    scale = np.abs(x).max(-1, keepdims=True) / np.float32(127)
    y = x * np.divide(1, scale, where=scale > 0, out=np.zeros_like(scale))
    # Halves go away from zero.
    q = np.trunc(y + np.copysign(np.float32(0.5), y)).astype(np.int8)
    return np.concatenate([scale.astype(np.float16).view(np.uint8), q.view(np.uint8)], -1)


_TO_FEW_BITS: Final[dict[int, Callable[[NDArray], NDArray]]] = {8: _to_q8_0}


def encoded(x: NDArray, kind: int) -> NDArray:
    """Finite elements as bytes of a format: one of plain numbers, or Q8_0, whose rows are whole blocks."""
    if kind in _PLAIN:
        return np.ascontiguousarray(x.astype(_PLAIN[kind], copy=False)).reshape(-1).view(np.uint8)
    blocks = np.ascontiguousarray(x, np.float32).reshape(-1, BLOCKS[kind][0])
    return _TO_FEW_BITS[kind](blocks).reshape(-1)


def dequantized(data: NDArray, kind: int, dtype: Any) -> NDArray:
    """The elements of some blocks in a row; ``dtype`` is that of formats of few bits, others have their own."""
    if kind in _PLAIN:
        plain = np.dtype(_PLAIN[kind])
        return np.frombuffer(data, plain) if data.size else np.zeros(0, plain)
    blocks = np.asarray(data).reshape(-1, BLOCKS[kind][1])
    with np.errstate(invalid="ignore", over="ignore"):
        # A scale in a damaged file may be infinite.
        return _FEW_BITS[kind](blocks).reshape(-1).astype(dtype, copy=False)
