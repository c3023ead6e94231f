"""Tensors as files that other projects read, one after another: safetensors and GGUF. Knows no model.

What a file will have is said first, so that one tensor at a time is in memory. Formats: see `interop.weights`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, BinaryIO, Final

import numpy as np

from nxjax.checkpoints.tensors import METADATA, layout, memory, nbytes
from nxjax.interop.ggml import BLOCKS, encoded

NDArray = np.ndarray[Any, Any]
_ALIGN: Final = 64
_UINT32: Final = 4


def write_safetensors(
    file: BinaryIO, rows: Sequence[tuple[str, tuple[int, ...]]], dtype: Any, tensors: Iterable[NDArray]
) -> None:
    """Write a safetensors file.

    Args:
        rows: names and shapes.
        dtype: of all tensors.
        tensors: in the order of ``rows``.
    """
    dtype, end = np.dtype(dtype), 0
    header: dict[str, Any] = {METADATA: {"format": "pt"}}
    for name, shape in rows:
        size = nbytes(dtype, shape)
        header[name] = {"dtype": layout(dtype, shape)[0], "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % _ALIGN)
    file.write(len(text).to_bytes(8, "little") + text)
    for x in tensors:
        file.write(memory(x.astype(dtype, copy=False)))


def gguf_key(key: str, value: int) -> bytes:
    """A row of a GGUF file's metadata: a number of 32 bits."""
    return _text(key) + struct.pack("<II", _UINT32, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def write_gguf(
    file: BinaryIO,
    keys: Mapping[str, bytes],
    rows: Sequence[tuple[str, tuple[int, ...], int]],
    tensors: Iterable[NDArray],
    align: int = 32,
) -> None:
    """Write a GGUF file of version 3.

    Args:
        keys: rows of its metadata, as `gguf_keys` and `gguf_key` give them.
        rows: names, shapes, and numbers of formats (`ggml`).
        tensors: in the order of ``rows``: elements, or bytes in that format already.
        align: bytes of which each tensor's place is a multiple, as ``general.alignment`` says.
    """
    table, end = b"", 0
    for name, shape, kind in rows:
        table += _text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape[::-1], kind, end)
        elements, size = BLOCKS[kind]
        end += -(-int(np.prod(shape, dtype=np.int64)) // elements * size // align) * align
    head = b"GGUF" + struct.pack("<IQQ", 3, len(rows), len(keys)) + b"".join(keys.values()) + table
    file.write(head + bytes(-len(head) % align))
    for x, (_, _, kind) in zip(tensors, rows, strict=True):
        data = x if x.dtype == np.uint8 else encoded(x, kind)
        file.write(data.tobytes() + bytes(-data.nbytes % align))
