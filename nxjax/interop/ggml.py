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


def _q5_k(b: NDArray) -> NDArray:
    scale, least = _scales(b[:, 4:16])
    # Bit i of the 32 bytes is the fifth bit of part i.
    fifth = (b[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    q = _parts(b[:, 48:]) | fifth << 4
    y = (_half(b[:, :2]) * scale)[..., None] * q - (_half(b[:, 2:4]) * least)[..., None]
    return y.reshape(-1, 256)


def _q6_k(b: NDArray) -> NDArray:
    low, high = b[:, :128].reshape(-1, 2, 2, 32), b[:, 128:192].reshape(-1, 2, 1, 32)
    four = np.concatenate([low & 15, low >> 4], 2)
    two = (high >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & 3
    q = (four | two << 4).reshape(-1, 16, 16).astype(np.float32) - 32
    scale = _half(b[:, 208:210]) * b[:, 192:208].view(np.int8)
    return (scale[..., None] * q).reshape(-1, 256)


# Number of the format -> elements and bytes of a block.
BLOCKS: Final[dict[int, tuple[int, int]]] = {
    0: (1, 4), 1: (1, 2), 30: (1, 2), 28: (1, 8), 24: (1, 1), 25: (1, 2), 26: (1, 4), 27: (1, 8),
    2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 12: (256, 144), 13: (256, 176), 14: (256, 210),
}  # fmt: skip
_PLAIN: Final[dict[int, Any]] = {
    0: np.float32, 1: np.float16, 30: ml_dtypes.bfloat16, 28: np.float64, 24: np.int8, 25: np.int16, 26: np.int32,
    27: np.int64,
}  # fmt: skip
_FEW_BITS: Final[dict[int, Callable[[NDArray], NDArray]]] = {
    2: _q4_0, 3: _q4_1, 6: _q5_0, 7: _q5_1, 8: _q8_0, 12: _q4_k, 13: _q5_k, 14: _q6_k,
}  # fmt: skip


def dequantized(data: NDArray, kind: int, dtype: Any) -> NDArray:
    """The elements of some blocks in a row; ``dtype`` is that of formats of few bits, others have their own."""
    if kind in _PLAIN:
        plain = np.dtype(_PLAIN[kind])
        return np.frombuffer(data, plain) if data.size else np.zeros(0, plain)
    blocks = np.asarray(data).reshape(-1, BLOCKS[kind][1])
    with np.errstate(invalid="ignore", over="ignore"):
        # A scale in a damaged file may be infinite.
        return _FEW_BITS[kind](blocks).reshape(-1).astype(dtype, copy=False)
