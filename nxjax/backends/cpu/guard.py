"""Memory of guard mode: each piece lies directly at a page that may not be touched, and is never used again.

    Piece     bytes that end (``config.guard`` "end", "poison") or begin ("begin") at such a page
    runs      what a thread runs, for the report of a fault

What is written beside a piece on its own pages is seen when it is freed, what is read or written beyond them is a fault
at once, and so is any use of memory that was freed. Knows no program.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, final

from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.native import fault
from nxjax.backends.cpu.native.runtime import out_of_memory
from nxjax.backends.cpu.native.sync import SYSTEM
from nxjax.config import config
from nxjax.config.forks import fork_lock
from nxjax.errors import ExecutionError, SettingError

PAGE: Final = mmap.PAGESIZE
_PATTERNS: Final = fault.PATTERN * (1 << 15)
_NAME: Final = 64  # bytes of the name of a piece, at most
# Forbidden bytes on each side: at least, and at most where a piece is larger. A stride too far is within them, too.
_GAP, _MOST_GAP = 4 * PAGE, 1 << 20
_CHUNK: Final = 1 << 36  # bytes of addresses that are reserved at once; none is used twice
_FIX: Final = 'this is a defect of nxjax: guard "end" names a step that writes after memory, "begin" one before it'
_NOTHING, _READ, _WRITE = 0, 1, 3  # of `mmap` and `mprotect`
_FIXED: Final = 0x10
_FLAGS: Final = SYSTEM.map_flags | getattr(mmap, "MAP_NORESERVE", 0)


@final
class _Room:
    """The addresses of this process that guarded memory has, and the tables that the fault handler reads."""

    def __init__(self) -> None:
        if SYSTEM.name not in fault.SIGNALS:
            raise SettingError("config: guard", got=f"the system {SYSTEM.name}", expected="Linux or macOS")
        libc = ctypes.PyDLL(None)
        self.map: Callable[..., int | None] = libc.mmap
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
        self.protect: Callable[[int, int, int], int] = libc.mprotect
        libc.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        self.pieces: Any = (ctypes.c_uint64 * (fault.PIECE * fault.PIECES))()
        self.running: Any = (ctypes.c_uint64 * (fault.RUNNING * fault.THREADS))()
        # Rows of the table of pieces; one that was freed is told of for as long as possible.
        self.rows = deque(range(fault.PIECES))
        self.names: Any = (ctypes.c_char * (_NAME * fault.PIECES))()
        self.running[0] = 1  # no thread's
        self._lock = fork_lock()
        self._next = self._end = 0
        self._chunks: list[tuple[int, int]] = []
        self.functions = fault.install(ctypes.addressof(self.pieces), ctypes.addressof(self.running))

    def take(self, nbytes: int) -> int:
        """So many forbidden bytes that were never used."""
        with self._lock:
            if self._next + nbytes > self._end:
                size = max(_CHUNK, nbytes)
                at = self.map(None, size, _NOTHING, _FLAGS, -1, 0)
                if at is None or at == ctypes.c_void_p(-1).value:
                    raise out_of_memory(nbytes)
                self._next, self._end = at, at + size
                self._chunks.append((at, at + size))
            self._next += nbytes
            return self._next - nbytes

    def has(self, address: int) -> bool:
        return any(low <= address < high for low, high in self._chunks)


_rooms: list[_Room] = []


def _room() -> _Room:
    if not _rooms:
        with COMPILING:
            if not _rooms:
                _rooms.append(_Room())
    return _rooms[0]


def is_guarded(address: int) -> bool:
    """Whether there is, or was, a piece at an address."""
    return bool(_rooms) and _rooms[0].has(address)


def fill(address: int, nbytes: int) -> None:
    """Write `fault.PATTERN` over memory."""
    for start in range(0, nbytes, len(_PATTERNS)):
        ctypes.memmove(address + start, _PATTERNS, min(len(_PATTERNS), nbytes - start))


def address_of(text: bytes) -> int:
    """Where the bytes of a text are."""
    return ctypes.cast(ctypes.c_char_p(text), ctypes.c_void_p).value or 0


@final
class GuardedMemory:
    """``nbytes`` of memory, filled with `fault.PATTERN`, between forbidden pages.

    Args:
        name: what reports call it.
        align: what its address is a multiple of, if more than its size makes it.

    Raises:
        MemoryLimitError: the system gives no more.
    """

    __slots__ = ("_first", "_length", "_room", "_row", "_told", "address", "nbytes")

    def __init__(self, nbytes: int, name: str, align: int = 1) -> None:
        self._length = 0
        self._row = -1
        self._told = False
        self._room = room = _room()
        self.nbytes = nbytes
        length = -(-nbytes // PAGE) * PAGE
        gap = min(max(_GAP, length), _MOST_GAP)
        low = room.take(length + 2 * gap)
        self._first = first = low + gap
        if room.protect(first, length, _WRITE):
            raise out_of_memory(nbytes)
        self._length = length
        fill(first, length)
        self.address = first if config.guard == "begin" else (first + length - nbytes) & -align
        self._row = room.rows.popleft() if room.rows else -1
        if self._row >= 0:
            at = fault.PIECE * self._row
            row = (low, first + length + gap, self.address, nbytes, 0, fault.LIVE)
            room.pieces[at : at + fault.PIECE] = row
            self.name(name)

    def name(self, name: str) -> None:
        """What reports call it from now on."""
        if self._row >= 0:
            at = ctypes.addressof(self._room.names) + _NAME * self._row
            text = name.encode()[: _NAME - 1] + b"\0"
            ctypes.memmove(at, text, len(text))
            self._room.pieces[fault.PIECE * self._row + 4] = at

    def seal(self) -> None:
        """From now on it may only be read."""
        if self._length:
            self._room.protect(self._first, self._length, _READ)
        self._state(fault.READ_ONLY)

    def _state(self, state: int) -> None:
        if self._row >= 0:
            self._room.pieces[fault.PIECE * self._row + fault.PIECE - 1] = state

    def damage(self) -> str:
        """What was written beside it; empty if nothing was."""
        first, begin, end = self._first, self.address, self.address + self.nbytes
        for low, high in ((first, begin), (end, first + self._length)):
            if low < high:
                phase = (low - first) % len(fault.PATTERN)
                found = ctypes.string_at(low, high - low)
                if found != _PATTERNS[phase : phase + high - low]:
                    wrong = [i for i, byte in enumerate(found) if byte != _PATTERNS[phase + i]]
                    at = self._room.pieces[fault.PIECE * self._row + 4]
                    name = ctypes.string_at(at).decode() if self._row >= 0 else "memory"
                    where = (
                        f"byte {begin - low - wrong[-1]} before the beginning"
                        if low == first
                        else f"byte {wrong[0] + 1} after the end"
                    )
                    return f"{where} of {name} ({self.nbytes} bytes) was written"
        return ""

    def check(self) -> None:
        """
        Raises:
            ExecutionError: something was written beside it.
        """
        if damage := self.damage():
            self._told = True
            raise ExecutionError("cpu: guard mode", got=damage, fix=_FIX)

    def __del__(self) -> None:
        """Its pages are gone, and its addresses forbidden for good.

        A process in which something was written beside it after `check` ends here: nobody can be told otherwise.
        """
        if self._length:
            if not self._told and (damage := self.damage()):
                os.write(2, f"\nnxjax guard mode: {damage}\n".encode())
                os.abort()
            self._room.map(self._first, self._length, _NOTHING, _FLAGS | _FIXED, -1, 0)
        self._state(fault.FREED)
        if self._row >= 0:
            self._room.rows.append(self._row)


@contextmanager
def reported(text: int | None) -> Generator[None]:
    """Reports of faults in this thread name ``text``, the address of a C string; afterwards what they named before.

    Raises:
        ExecutionError: a kernel wrote beside its scratch memory.
    """
    room = _room()
    before = room.functions.run(text)
    try:
        yield
    finally:
        room.functions.run(before)
    if step := room.running[1]:
        room.running[1] = 0
        got = f"scratch memory was written beside, by {ctypes.string_at(step).decode()}"
        raise ExecutionError("cpu: guard mode", got=got, fix=_FIX)


def runs(text: int) -> None:
    """From now on reports of faults in this thread name ``text``, the address of a C string."""
    _room().functions.run(text)


def kernel() -> int:
    """The address of the kernel that calls those that it finds before its words; see `fault`."""
    return _room().functions.guarded


def copied(address: int, nbytes: int, name: str) -> GuardedMemory:
    """Memory with the same bytes as that at ``address``, which may only be read."""
    piece = GuardedMemory(nbytes, name)
    if nbytes:
        ctypes.memmove(piece.address, address, nbytes)
    piece.seal()
    return piece
