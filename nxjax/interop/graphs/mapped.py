"""Files of weights in memory: nothing is read before it is used, and nothing is copied.

A mapped file must stay as it is while its tensors are in use. A writer that replaces a file, as nxjax does, leaves the
mapped one alone.
"""

from __future__ import annotations

import io
import math
import mmap
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, final

import numpy as np

from nxjax.errors import InvalidFileError
from nxjax.files import safe_io
from nxjax.trace.array import UNCHANGING, DeviceArray, readonly, readonly_view, unchanging, wrap
from nxjax.trace.types import ArrayType

NDArray = np.ndarray[Any, Any]


# A packed member may have so many bytes, or so many times those of its file.
_UNPACKED: Final = 1 << 28
_TIMES: Final = 100
_REPEATED: Final = 1 << 26  # elements of a tensor that repeats what is stored once


@final
class MappedFile(mmap.mmap):
    """The bytes of a file, which nothing in this process can write to."""


UNCHANGING.add(MappedFile)


def mapped(path: Path) -> NDArray:
    """The bytes of a file, uint8; arrays that are views of them enter nxjax without a copy.

    Raises:
        InvalidFileError: a pipe, a device or the like, or a file without bytes.
        OSError: no such file.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "numbers.bin"
    >>> _ = file.write_bytes(b"123")
    >>> mapped(file).tolist()
    [49, 50, 51]
    """
    with safe_io.opened(path) as f:
        if not f.seek(0, 2):
            raise InvalidFileError(f"{path.name}: the file is empty")
        return np.frombuffer(MappedFile(f.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def let_go(x: NDArray) -> None:
    """Let the system take back the memory that bytes of `mapped` files were read into; they are read again if used."""
    base: Any = x
    while isinstance(base, np.ndarray):
        base = base.base
    file = base.obj if isinstance(base, memoryview) else None
    if isinstance(file, MappedFile) and hasattr(mmap, "MADV_DONTNEED"):
        file.madvise(mmap.MADV_DONTNEED)


@final
class HeldFile(io.RawIOBase):
    """Bytes in memory as a file that is read, without a copy."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0, /) -> int:
        # Readers of short archives look for more than there is.
        self._at = max(0, offset + (0, self._at, len(self._data))[whence])
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        part = self._data[self._at : self._at + len(buffer)]
        buffer[: len(part)] = part
        self._at += len(part)
        return len(part)


@final
class UnalignedTensor:
    """Elements that lie in a file where no element of their dtype may: copied when something reads them."""

    def __init__(self, data: NDArray) -> None:
        self._data = data

    def to_numpy(self) -> NDArray:
        if not self._data.flags.aligned:
            self._data = readonly_view(np.array(self._data, order="C"))
        return self._data


def held(data: NDArray) -> DeviceArray:
    """An array of a file, which nothing writes to, as an array of nxjax: no element is read.

    >>> piece = np.frombuffer(b"_" + np.arange(3, dtype=np.float32).tobytes(), np.uint8)[1:]
    >>> held(piece.view(np.float32)).tolist()
    [0.0, 1.0, 2.0]
    """
    if data.flags.aligned or not unchanging(data):
        return wrap(readonly(data))
    return DeviceArray(None, ArrayType(data.shape, data.dtype), UnalignedTensor(data))


@final
class MappedZip:
    """A zip archive whose members are read where they lie, as a writer of tensors leaves them.

    Args:
        data: its bytes, uint8.

    Attributes:
        data: as given.
        names: of its members, without the folder that all of them are in, and with it.

    Raises:
        zipfile.BadZipFile: no archive.
    """

    def __init__(self, data: NDArray) -> None:
        self._zip, self.data = zipfile.ZipFile(HeldFile(data.data)), data  # pyright: ignore[reportArgumentType]
        self.names = {n.split("/", 1)[-1]: n for n in self._zip.namelist()}

    def size(self, name: str) -> int:
        return self._zip.getinfo(self.names[name]).file_size

    def packing(self, name: str) -> int:
        """How a member is compressed, as `zipfile` has it."""
        return self._zip.getinfo(self.names[name]).compress_type

    def text(self, name: str) -> bytes:
        """A member that says what is in others: its checksum is compared.

        Raises:
            as `bytes_of`.
        """
        return self._read(self._zip.getinfo(self.names[name]))

    def _read(self, found: zipfile.ZipInfo) -> bytes:
        if found.file_size > max(_UNPACKED, self.data.size * _TIMES):
            raise ValueError(f"{found.filename} unpacks to {found.file_size:,} bytes")
        return self._zip.read(found)

    def bytes_of(self, name: str) -> NDArray:
        """The bytes of a member: a view of the file if they are not packed.

        Raises:
            KeyError: no such member.
            ValueError: it lies beyond the end of the file, or unpacks to more than it may.
            zipfile.BadZipFile, zlib.error: a damaged one.
        """
        found = self._zip.getinfo(self.names[name])
        if found.compress_type != zipfile.ZIP_STORED:
            return np.frombuffer(self._read(found), np.uint8)
        head = self.data[found.header_offset : found.header_offset + 30].tobytes()
        start = found.header_offset + 30 + int.from_bytes(head[26:28], "little") + int.from_bytes(head[28:30], "little")
        if len(head) != 30 or start + found.file_size > self.data.size:
            raise ValueError(f"{name} lies beyond the end of the file")
        return self.data[start : start + found.file_size]


def strided(data: NDArray, dtype: Any, offset: int, shape: Sequence[int], strides: Sequence[int]) -> NDArray:
    """An array in the bytes of a storage: a view, with ``offset`` and ``strides`` in elements.

    Raises:
        ValueError: it lies beyond the end of the storage, or no array has this shape.

    >>> strided(np.arange(6, dtype=np.uint8), np.uint8, 1, (2, 2), (1, 2)).tolist()
    [[1, 3], [2, 4]]
    """
    size = np.dtype(dtype).itemsize
    if min((0, offset, *shape, *strides)) < 0 or len(shape) != len(strides):
        raise ValueError(f"a tensor of shape {tuple(shape)} and strides {tuple(strides)}")
    count = math.prod(shape)
    if count > max(data.size, _REPEATED):
        raise ValueError(f"a tensor of shape {tuple(shape)} repeats its {data.size} bytes")
    if not count:
        return np.zeros(tuple(shape), dtype)
    last = offset + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    if (last + 1) * size > data.size:
        raise ValueError(f"a tensor of shape {tuple(shape)} lies beyond its storage of {data.size} bytes")
    return np.ndarray(tuple(shape), dtype, data, offset * size, [s * size for s in strides])
