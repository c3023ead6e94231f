"""Messages between a process and its child: a JSON head, bytes, and arrays, of which large ones lie in shared memory.

A frame is ``NXC1``, the head's length (4 bytes), its CRC-32 (4), the body's length (8), the head, the body; numbers are
little-endian. Nothing that is received is executed, and nothing is believed: sizes, types and places are checked.
Imports the standard library and NumPy alone, for the child loads this file by its path.
"""

from __future__ import annotations

import contextlib
import json
import math
import mmap
import os
import socket
import struct
import tempfile
import time
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

MAGIC = b"NXC1"
PROTOCOL = 1
_HEADER = struct.Struct("<4sIIQ")
_MOST_HEAD = 1 << 24
_MOST_BODY = 1 << 32
# Arrays of at least so many bytes go through shared memory, at multiples of _ALIGN.
LARGE = 1 << 15
_ALIGN = 64


class WireError(Exception):
    """What came is no message, or says what cannot be."""


class ConnectionClosed(WireError):
    """The other side is gone."""


class SharedMemory:
    """Memory that two processes see. It has no name, so nothing is left of it when they die.

    Args:
        size: bytes. fd: of one that exists; otherwise it is made, and cannot be made smaller by anybody.
    """

    def __init__(self, size: int, fd: int = -1) -> None:
        self.size = size
        self._file: Any = None
        self.fd = fd
        if fd < 0 and hasattr(os, "memfd_create"):
            import fcntl

            self.fd = os.memfd_create("nxjax", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, size)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        elif fd < 0:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 (closed with the arena)
            self._file.truncate(size)
            self.fd = self._file.fileno()
        if os.fstat(self.fd).st_size < size:
            raise WireError("shared memory is smaller than it is said to be")
        self.memory = mmap.mmap(self.fd, size)

    def close(self) -> None:
        """Give it back; arrays that still lie in it keep it."""
        with contextlib.suppress(BufferError):
            self.memory.close()
        if self._file is not None:
            self._file.close()
        else:
            os.close(self.fd)


def room(arrays: Sequence[Any]) -> int:
    """Bytes of shared memory that ``pack`` takes for ``arrays``."""
    return sum(-(-a.nbytes // _ALIGN) * _ALIGN for a in arrays if a.nbytes >= LARGE)


def pack(arrays: Sequence[Any], arena: SharedMemory | None) -> tuple[list[list[Any]], list[bytes]]:
    """Rows (dtype, shape, place, offset) and what goes into the body; large arrays are written into ``arena``."""
    rows: list[list[Any]] = []
    parts: list[bytes] = []
    at = inside = 0
    for a in arrays:
        row = [a.dtype.name, list(a.shape)]
        if arena is not None and a.nbytes >= LARGE and at + a.nbytes <= arena.size:
            to = np.frombuffer(arena.memory, np.uint8, a.nbytes, at).view(a.dtype).reshape(a.shape)
            to[...] = a
            rows.append([*row, "shared", at])
            at += -(-a.nbytes // _ALIGN) * _ALIGN
        else:
            parts.append(np.ascontiguousarray(a).tobytes())
            rows.append([*row, "body", inside])
            inside += a.nbytes
    return rows, parts


def unpack(rows: Any, body: bytes, arena: SharedMemory | None, own: bool = True) -> list[Any]:
    """Arrays of their own memory; without ``own`` they lie where they came, and are not to be written to.

    Raises:
        WireError: a row that is none, a type that is no plain number, a place outside what was sent.
    """
    if not isinstance(rows, list):
        raise WireError("the arrays of a message are no list")
    found: list[Any] = []
    row: Any
    for row in rows:  # pyright: ignore[reportUnknownVariableType]
        try:
            name, shape, place, offset = row
            dtype = np.dtype(name)
            count = math.prod(shape)
            sound = (
                isinstance(name, str)
                and dtype.name == name
                and not dtype.hasobject
                and dtype.kind in "biufcV"
                and all(type(n) is int and n >= 0 for n in shape)
                and type(offset) is int
                and offset >= 0
            )
        except (TypeError, ValueError) as error:
            raise WireError(f"a row of arrays says {str(row)[:80]}") from error
        source: Any = body if place == "body" else arena.memory if place == "shared" and arena is not None else b""
        if not sound or offset + count * dtype.itemsize > len(source):
            raise WireError(f"a row of arrays says {str(row)[:80]}")
        if not count:
            found.append(np.empty(shape, dtype))
            continue
        raw = np.frombuffer(source, np.uint8, count * dtype.itemsize, offset)
        # A byte that is neither 0 nor 1 is no bool.
        array = raw != 0 if dtype == np.bool_ else raw.view(dtype)
        array = array.reshape(shape)
        if own:
            array = array.copy()
        else:
            array.flags.writeable = False
        found.append(array)
    return found


class Channel:
    """One end of a socket that frames go over."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock

    def send(
        self, head: dict[str, Any], body: Sequence[bytes] = (), fds: Sequence[int] = (), until: float | None = None
    ) -> None:
        """One message, with open files. ``until`` is a `time.monotonic`.

        Raises:
            Closed: the other side is gone. TimeoutError: it takes nothing.
        """
        text = json.dumps(head).encode()
        header = _HEADER.pack(MAGIC, len(text), zlib.crc32(text), sum(map(len, body)))
        try:
            self._patience(until)
            if fds:
                sent = socket.send_fds(self.socket, [header], list(fds))
                header = header[sent:]
            for part in (header + text, *body):
                self._patience(until)
                self.socket.sendall(part)
        except TimeoutError:
            raise
        except OSError as error:
            raise ConnectionClosed(str(error)) from None

    def receive(self, until: float | None = None) -> tuple[dict[str, Any], bytes, list[int]]:
        """The next message: head, body, open files.

        Raises:
            Closed: the other side is gone, perhaps in the middle. WireError: not a frame. TimeoutError: nothing came.
        """
        header, fds = self._exactly(_HEADER.size, until, files=True)
        magic, size, crc, nbytes = _HEADER.unpack(header)
        if magic != MAGIC or size > _MOST_HEAD or nbytes > _MOST_BODY:
            raise WireError(f"not a frame: {bytes(header)!r}")
        text, _ = self._exactly(size, until)
        if zlib.crc32(text) != crc:
            raise WireError("a damaged head")
        body, _ = self._exactly(nbytes, until)
        try:
            head: Any = json.loads(text)
        except (ValueError, RecursionError):
            head = None
        if not isinstance(head, dict):
            raise WireError("a head that is no object")
        return head, bytes(body), fds  # pyright: ignore[reportUnknownVariableType]

    def _exactly(self, n: int, until: float | None, files: bool = False) -> tuple[bytearray, list[int]]:
        found, fds = bytearray(), list[int]()
        while len(found) < n:
            self._patience(until)
            want = min(n - len(found), 1 << 20)
            try:
                if files:
                    part, new, _, _ = socket.recv_fds(self.socket, want, 4)
                    fds += new
                else:
                    part = self.socket.recv(want)
            except TimeoutError:
                raise
            except OSError as error:
                raise ConnectionClosed(str(error)) from None
            if not part:
                raise ConnectionClosed("in the middle of a message" if found else "")
            found += part
        return found, fds

    def _patience(self, until: float | None) -> None:
        if until is None:
            self.socket.settimeout(None)
            return
        left = until - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        self.socket.settimeout(left)
