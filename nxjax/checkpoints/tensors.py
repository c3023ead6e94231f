"""Tensors in safetensors files: written in a stream with a checksum each, read through a memory map, nothing copied.

Any safetensors library reads the files. What the format has no element type for is stored in one that it has: int4 two
to a byte, complex numbers as pairs, random keys as two words. Format: github.com/huggingface/safetensors, README.
"""

from __future__ import annotations

import json
import math
import mmap
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NoReturn, final

import numpy as np

from nxjax.checkpoints.disk import disk
from nxjax.errors import DtypeError, InvalidFileError, Shown
from nxjax.files import safe_io
from nxjax.trace import dtypes
from nxjax.trace.dtypes import DType

NDArray = np.ndarray[Any, Any]

# dtype -> (name in the file, NumPy dtype of its elements there, elements per value as a last dimension)
_STORED: Final[dict[DType, tuple[str, DType, int]]] = {
    dtypes.bool_: ("BOOL", np.dtype(np.uint8), 1),
    **{d: (f"I{8 * d.itemsize}", d, 1) for d in dtypes.SIGNED - {dtypes.int4}},
    **{d: (f"U{8 * d.itemsize}", d, 1) for d in dtypes.UNSIGNED - {dtypes.uint4}},
    dtypes.float16: ("F16", dtypes.float16, 1),
    dtypes.bfloat16: ("BF16", dtypes.bfloat16, 1),
    dtypes.float32: ("F32", dtypes.float32, 1),
    dtypes.float64: ("F64", dtypes.float64, 1),
    dtypes.float8_e4m3fn: ("F8_E4M3", dtypes.float8_e4m3fn, 1),
    dtypes.float8_e5m2: ("F8_E5M2", dtypes.float8_e5m2, 1),
    dtypes.float8_e4m3b11fnuz: ("U8", np.dtype(np.uint8), 1),
    dtypes.float8_e4m3fnuz: ("U8", np.dtype(np.uint8), 1),
    dtypes.float8_e5m2fnuz: ("U8", np.dtype(np.uint8), 1),
    dtypes.complex64: ("F32", dtypes.float32, 2),
    dtypes.complex128: ("F64", dtypes.float64, 2),
    dtypes.key: ("U32", dtypes.uint32, 2),
}
_HALF_BYTES: Final = (dtypes.int4, dtypes.uint4)
_SIZES: Final = {name: dtype.itemsize for name, dtype, _ in _STORED.values()}
METADATA: Final = "__metadata__"
CHECKSUMS: Final = "nxjax.crc32"
# Bytes checked and written at a time: they are still in the processor's cache when they are written.
_PIECE: Final = 1 << 20
_ALIGN: Final = 64
_LONGEST_HEADER: Final = 100_000_000  # as the format says


_NAMES: Final = {d: "key<fry>" if d == dtypes.key else d.name for d in (*_STORED, *_HALF_BYTES)}
_NAMED: Final = {name: d for d, name in _NAMES.items()}


def dtype_named(name: str, where: str) -> DType:
    """A dtype by its name in an index.

    Raises:
        InvalidFileError: no dtype of nxjax.
    """
    found = _NAMED.get(name)
    if found is None:
        raise InvalidFileError(f"{where}: an element type that nxjax does not have", got=repr(name)[:60])
    return found


def name_of(dtype: DType) -> str:
    """``bfloat16``, ``int4``, ``key<fry>``, ..."""
    return _NAMES[dtype]


def check_dtype(dtype: DType, name: str) -> None:
    """Raise `DtypeError` unless arrays of ``dtype`` can be stored."""
    if dtype not in _STORED and dtype not in _HALF_BYTES:
        raise DtypeError(f"checkpoint: {name} has an element type that files do not hold", got=dtype)


def layout(dtype: DType, shape: Sequence[int]) -> tuple[str, tuple[int, ...]]:
    """How an array lies in a file: the name of the element type, and the shape."""
    if dtype in _HALF_BYTES:
        return "U8", (-(-math.prod(shape) // 2),)
    name, _, width = _STORED[dtype]
    return name, (*shape, width) if width > 1 else tuple(shape)


def nbytes(dtype: DType, shape: Sequence[int]) -> int:
    """Bytes that an array takes in a file."""
    kind, stored = layout(dtype, shape)
    return math.prod(stored) * _SIZES[kind]


def memory(x: NDArray) -> memoryview:
    """The bytes of an array as a file has them; its own memory where it lies in order."""
    if x.dtype in _HALF_BYTES:
        flat = x.astype(np.int8).reshape(-1).view(np.uint8) & 15
        flat = np.append(flat, np.zeros(flat.size % 2, np.uint8))
        x = flat[0::2] | flat[1::2] << 4
    return memoryview(np.ascontiguousarray(x).reshape(-1).view(np.uint8))


def restored(data: NDArray, dtype: DType, shape: tuple[int, ...]) -> NDArray:
    """An array from the bytes that `memory` gave: a view of them, but for int4 and for bytes that are no bool."""
    if dtype in _HALF_BYTES:
        both = np.stack([data & 15, data >> 4], -1).reshape(-1)[: math.prod(shape)]
        values = ((both.astype(np.int8) ^ 8) - 8) if dtype == dtypes.int4 else both
        return values.astype(dtype).reshape(shape)
    if dtype == dtypes.bool_ and data.size and data.max() > 1:
        return (data != 0).reshape(shape)
    if not data.size:
        return np.zeros(shape, dtype)
    return data.view(dtype).reshape(shape)


def write(
    path: Path, tensors: Sequence[tuple[str, NDArray]], metadata: dict[str, str], done: Callable[[int], object]
) -> list[int]:
    """Write a file of tensors and wait until it is on the disk; gives the CRC-32 of each.

    Args:
        tensors: names, all different, and arrays.
        metadata: further texts in the header.
        done: told of each piece's bytes as it is written.

    Raises:
        OSError: the disk is full, or a similar problem.
    """
    # Those of whole cache lines first, so that all that can be aligned in a mapped file is.
    order = sorted(range(len(tensors)), key=lambda i: (tensors[i][1].nbytes % _ALIGN != 0, -tensors[i][1].itemsize))
    views = [memory(x) for _, x in tensors]
    header: dict[str, Any] = {METADATA: {**metadata, CHECKSUMS: "00000000" * len(tensors)}}
    end = 0
    for i in order:
        name, x = tensors[i]
        kind, shape = layout(x.dtype, x.shape)
        header[name] = {"dtype": kind, "shape": list(shape), "data_offsets": [end, end + views[i].nbytes]}
        end += views[i].nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-(len(text) + 8) % _ALIGN)
    file = disk().create(path)
    try:
        file.write(len(text).to_bytes(8, "little") + text)
        checksums = [0] * len(tensors)
        for i in order:
            for start in range(0, views[i].nbytes, _PIECE):
                piece = views[i][start : start + _PIECE]
                checksums[i] = zlib.crc32(piece, checksums[i])
                file.write(piece)
                done(piece.nbytes)
        if tensors:
            place = text.index(b'"' + CHECKSUMS.encode() + b'":"') + len(CHECKSUMS) + 4
            file.write_at(8 + place, "".join(f"{c:08x}" for c in checksums).encode())
        file.sync()
    finally:
        file.close()
    return checksums


@final
class TensorFile(Shown):
    """A file of tensors, mapped into memory. Its arrays keep it alive; none is read before it is used.

    Args:
        folder: the open folder that it is in, which may have another name by now.
        mapping: the class of the map, which says whether arrays of nxjax may be views of it.

    Raises:
        InvalidFileError: no safetensors file, cut or damaged.
        OSError: it cannot be opened.
    """

    def __init__(self, path: Path, folder: int | None = None, mapping: type[mmap.mmap] = mmap.mmap) -> None:
        self.path = path
        with safe_io.opened(path if folder is None else path.name, folder) as file:
            self.size = file.seek(0, 2)
            if self.size < 8:
                self._fail("shorter than its header")
            self._data: NDArray = np.frombuffer(mapping(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
        length = int.from_bytes(self._data[:8].tobytes(), "little")
        if not 2 <= length <= min(self.size - 8, _LONGEST_HEADER):
            self._fail(f"a header of {length} bytes")
        try:
            header: Any = safe_io.parsed(self._data[8 : 8 + length].tobytes(), unique=True)
        except (ValueError, RecursionError) as error:
            self._fail(f"a header that is no JSON: {str(error)[:80]}")
        if not isinstance(header, dict):
            self._fail("a header that is no object")
        self.header: dict[str, Any] = header
        self._start = 8 + length

    def _fail(self, why: str, tensor: str = "") -> NoReturn:
        raise InvalidFileError(
            f"checkpoint: {self.path}{f', tensor {tensor!r}' if tensor else ''}: the file is damaged",
            got=why,
            fix="restore another step",
        )

    def checksums(self, names: Sequence[str]) -> list[int]:
        """The CRC-32 of each tensor, as its writer noted them in the header."""
        found = self.header.get(METADATA)
        text = found.get(CHECKSUMS) if isinstance(found, dict) else None
        try:
            if not isinstance(text, str) or len(text) != 8 * len(names):
                raise ValueError
            return [int(text[8 * i : 8 * i + 8], 16) for i in range(len(names))]
        except ValueError:
            self._fail("checksums that are none")

    def read(self, name: str, dtype: DType, shape: tuple[int, ...], checksum: int | None = None) -> NDArray:
        """One tensor, as a read-only view of the file.

        Raises:
            InvalidFileError: it is not there, of another type, or not what was written.
        """
        row = self.header.get(name)
        kind, stored = layout(dtype, shape)
        if name == METADATA or not isinstance(row, dict):
            self._fail("it is not in the file", name)
        said = (row.get("dtype"), row.get("shape"), row.get("data_offsets"))
        if said[:2] != (kind, list(stored)):
            self._fail(f"{said[0]} {said[1]} instead of {kind} {list(stored)}", name)
        data = self._bytes(name, said[2], nbytes(dtype, shape))
        if checksum is not None and zlib.crc32(data) != checksum:
            self._fail("other bytes than were written: the checksum differs", name)
        return restored(data, dtype, shape)

    def check_places(self) -> None:
        """Check that the tensors fill the file one after another, as the format says: no byte lies in two, or in none.

        Raises:
            InvalidFileError: they do not.
        """
        spans = [(row.get("data_offsets"), k) for k, row in self.header.items() if k != METADATA]
        for span, name in spans:
            if not isinstance(span, list) or [type(n) for n in span] != [int, int]:
                self._fail(f"offsets {str(span)[:60]}", name)
        at = 0
        for (start, stop), name in sorted(spans):
            if start != at or stop < start:
                self._fail(f"bytes {start} to {stop}, where the tensor before it ends at {at}", name)
            at = stop
        if at != self.size - self._start:
            self._fail(f"{self.size - self._start} bytes of tensors, of which these have {at}")

    def raw(self, name: str, dtype: DType, shape: tuple[int, ...]) -> NDArray:
        """A tensor as the header says it is stored: a read-only view of the file.

        Raises:
            InvalidFileError: its bytes are not as many.
        """
        data = self._bytes(name, self.header[name].get("data_offsets"), math.prod(shape) * dtype.itemsize)
        return restored(data, dtype, shape)

    def _bytes(self, name: str, offsets: Any, size: int) -> NDArray:
        whole = isinstance(offsets, list) and len(offsets) == 2 and all(type(n) is int for n in offsets)
        if not whole or not 0 <= offsets[0] <= offsets[1] <= self.size - self._start or offsets[1] - offsets[0] != size:
            self._fail(f"offsets {offsets} in a file of {self.size} bytes", name)
        return self._data[self._start + offsets[0] : self._start + offsets[1]]
