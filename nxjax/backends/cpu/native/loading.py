"""Object code in memory that it can run in: packed into few mappings, and freed when its last user goes.

A process has some 65,000 mappings (``vm.max_map_count``), and a program that is traced again and again would use them
up if each had its own. Code lies in slabs: pages in a row of one private anonymous mapping, first writable, then
executable, never both. Neighbours in the same state are one mapping to the system. A page holds code of one object, so
nothing that runs is ever writable. A fork copies slabs, like all memory. Knows object files (ELF) and no kernel; what
differs from processor to processor is in `relocations`.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Final, final

from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.native.relocations import PROCESSORS, Processor, RelocationKind
from nxjax.errors import LoweringError, MemoryLimitError

PAGE: Final = mmap.PAGESIZE
_SLAB: Final = 1 << 20  # bytes; what is larger has one of its own
# What LLVM may need to make one object: bytes, and mappings of the C library's; not taken, only asked for.
_WORK: Final = 32 << 20
_WORK_MAPPINGS: Final = 4
_UNRESERVED: Final = getattr(mmap, "MAP_NORESERVE", 0)
_ALIGN: Final = 64  # of sections, at most
_LARGEST: Final = 1 << 26  # bytes of a section, at most
_READ, _WRITE, _RUN = 1, 2, 4  # of `mprotect`

# ELF: sections and symbols.
_NOBITS, _RELA, _SYMTAB = 8, 4, 2
_WRITABLE, _ALLOCATED, _THREADS = 1, 2, 0x400
_UNDEFINED, _ABSOLUTE = 0, 0xFFF1
_OFFSETS: Final = "_GLOBAL_OFFSET_TABLE_"  # a linker makes it
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")


class Unlinkable(Exception):
    """An object that this file does not read; the message says why."""


@final
class _Slab:
    """Pages in a row; ``free``: runs of them as (first, count), in order."""

    __slots__ = ("_held", "address", "free", "fresh", "memory", "pages")

    def __init__(self, pages: int) -> None:
        self.memory = mmap.mmap(
            -1, pages * PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, prot=mmap.PROT_READ | mmap.PROT_WRITE
        )
        self._held = ctypes.c_char.from_buffer(self.memory)
        self.address = ctypes.addressof(self._held)
        # The system joins neighbours again if memory was there before they were parted.
        self.memory[0] = 0
        self.pages = pages
        self.fresh = 0  # pages from here on were never executable
        self.free = [(0, pages)]

    def take(self, pages: int) -> int | None:
        """The first page of a free run; None where none is long enough."""
        for i, (first, count) in enumerate(self.free):
            if count >= pages:
                self.free[i : i + 1] = [(first + pages, count - pages)] if count > pages else []
                return first
        return None

    def put(self, first: int, pages: int) -> None:
        """A run is free again."""
        at = next((i for i, (start, _) in enumerate(self.free) if start > first), len(self.free))
        self.free.insert(at, (first, pages))
        for i in (at, at - 1):  # join it with those beside it
            if 0 <= i < len(self.free) - 1:
                (a, n), (b, m) = self.free[i : i + 2]
                if a + n == b:
                    self.free[i : i + 2] = [(a, n + m)]


@final
class LoadedCode:
    """The code of one object file. It stays in memory as long as this does.

    Attributes:
        addresses: where symbols are.
        file: which file of the cache it is from.
    """

    __slots__ = ("__weakref__", "_memory", "addresses", "file")

    def __init__(self, addresses: dict[str, int], memory: Any) -> None:
        self.addresses = addresses
        self.file = ""
        self._memory = memory


@final
class _Pages:
    """What an object lies in; its end gives them back."""

    __slots__ = ("_give", "_run")

    def __init__(self, give: Callable[[_Slab, int, int], None], *run: Any) -> None:
        self._give = give
        self._run = run

    def __del__(self) -> None:
        self._give(*self._run)


def keep(code: LoadedCode) -> None:
    """Leave code in memory to the very end: that of the interpreter itself may run it, when all modules are gone."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(code))


class Address(int):
    """Where code begins; it stays in memory as long as this number does."""

    code: LoadedCode

    @classmethod
    def of(cls, code: LoadedCode, symbol: str) -> Address:
        made = cls(code.addresses[symbol])
        made.code = code
        return made


@final
class Room:
    """The slabs of this process, for the code of one kind of processor."""

    def __init__(self, processor: Processor | None = None) -> None:
        self._processor = processor or PROCESSORS[platform.machine()]
        self._synchronize = None if self._processor.synchronized else _synchronize()
        self._slabs: list[_Slab] = []
        # What was freed, by whatever thread lost it: put back by who places code next.
        self._returned: deque[tuple[_Slab, int, int]] = deque()
        self._lock = COMPILING  # a fork waits for it
        protect: Any = ctypes.CDLL(None, use_errno=True).mprotect
        protect.argtypes, protect.restype = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int), ctypes.c_int
        self._protect = protect

    def place(self, data: bytes, outside: Callable[[str], int | None]) -> LoadedCode:
        """The code of an object file, ready to run.

        Args:
            data: the file.
            outside: where a function of the process is; None for none.

        Raises:
            Unlinkable: it is of another kind.
            MemoryLimitError: the system gives no memory, or no more mappings.
        """
        linked = _Linked(data, outside, self._processor)
        pages = -(-linked.size // PAGE)
        with self._lock:
            self._put_back()
            slab, first = self._taken(pages)
            address = slab.address + first * PAGE
            try:
                image, addresses, memory = linked.at(address)
                self._write(slab, first, pages, image)
            except OSError as error:
                slab.put(first, pages)
                raise _no_room(linked.size, error) from None
            except Unlinkable:
                slab.put(first, pages)
                raise
        return LoadedCode(addresses, (_Pages(self._give, slab, first, pages), memory))

    def check(self) -> None:
        """See that there is memory to compile in: LLVM ends the process where it is refused some.

        Raises:
            MemoryLimitError: there is not.
        """
        try:
            with mmap.mmap(-1, _WORK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _UNRESERVED) as memory:
                first = ctypes.c_char.from_buffer(memory)
                try:
                    for i in range(_WORK_MAPPINGS):
                        self._allow(ctypes.addressof(first) + 2 * PAGE * i, PAGE, _READ)
                finally:
                    del first
        except OSError as error:
            raise _no_room(_WORK, error) from None

    def settle(self) -> None:
        """Give slabs back that nothing lies in any more."""
        with self._lock:
            self._put_back()

    def _taken(self, pages: int) -> tuple[_Slab, int]:
        for slab in self._slabs:
            first = slab.take(pages)
            if first is not None:
                return slab, first
        try:
            slab = _Slab(max(_SLAB // PAGE, pages))
        except OSError as error:
            raise _no_room(pages * PAGE, error) from None
        self._slabs.append(slab)
        return slab, slab.take(pages) or 0

    def _write(self, slab: _Slab, first: int, pages: int, code: bytes) -> None:
        address, nbytes = slab.address + first * PAGE, pages * PAGE
        if first < slab.fresh:
            self._allow(address, nbytes, _READ | _WRITE)
        ctypes.memmove(address, code, len(code))
        self._allow(address, nbytes, _READ | _RUN)
        if self._synchronize is not None:
            self._synchronize(address, address + nbytes)
        slab.fresh = max(slab.fresh, first + pages)

    def _allow(self, address: int, nbytes: int, what: int) -> None:
        if self._protect(address, nbytes, what):
            number = ctypes.get_errno()
            raise OSError(number, "mprotect")

    def _give(self, slab: _Slab, first: int, pages: int) -> None:
        """What no thread runs any more. Called by the end of an object, wherever that comes: it takes no lock."""
        self._returned.append((slab, first, pages))

    def _put_back(self) -> None:
        while self._returned:
            slab, first, pages = self._returned.popleft()
            slab.put(first, pages)
            # One that is empty is kept for what comes next.
            if slab.free == [(0, slab.pages)] and any(s is not slab and s.free == [(0, s.pages)] for s in self._slabs):
                self._slabs.remove(slab)


def _synchronize() -> Any:
    """The compiler's library has the function that tells a processor's caches of instructions what was written.

    Raises:
        OSError, AttributeError: it is not here.
    """
    told: Any = getattr(ctypes.CDLL("libgcc_s.so.1"), "__clear_cache")
    told.argtypes, told.restype = (ctypes.c_void_p, ctypes.c_void_p), None
    return told


def _no_room(nbytes: int, error: OSError) -> MemoryLimitError:
    return MemoryLimitError(
        "cpu: the system has no memory for machine code",
        got=f"{nbytes:,} bytes were requested: {error}",
        fix="drop functions that are not needed any more (nx.clear_caches()), or raise vm.max_map_count",
    )


@final
class _Linked:
    """An object file, laid out in two images: what runs or is only read, and what is written to.

    Attributes:
        size: bytes of the first.
        symbols: those that it defines, as (image, offset).
    """

    def __init__(self, data: bytes, outside: Callable[[str], int | None], processor: Processor) -> None:
        self._processor = processor
        self._images = (bytearray(), bytearray())
        # Of sections: image and offset.
        self._places: dict[int, tuple[int, int]] = {}
        self.symbols: dict[str, tuple[int, int]] = {}
        # Where, kind, and what is meant: image (None: an address of the process) and value.
        self._relocations: list[tuple[tuple[int, int], RelocationKind, int | None, int]] = []
        # Of addresses that are reached through memory of ours: where that is, in the first image.
        self._slots: dict[tuple[str, int | None, int], int] = {}
        try:
            self._read(data, outside)
        except (struct.error, IndexError, OverflowError, ValueError) as error:
            raise Unlinkable(f"damaged: {error}") from None
        self.size = max(len(self._images[0]), 1)

    def _read(self, data: bytes, outside: Callable[[str], int | None]) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", data, 18)[0] != self._processor.number:
            raise Unlinkable("no object file for this processor")
        (table,) = struct.unpack_from("<Q", data, 40)
        (count,) = struct.unpack_from("<H", data, 60)
        sections = [_SECTION.unpack_from(data, table + _SECTION.size * i) for i in range(count)]
        for i, (_, kind, flags, _, start, size, _, _, align, _) in enumerate(sections):
            if not flags & _ALLOCATED or not size:
                continue
            if flags & _THREADS or align > _ALIGN or size > _LARGEST:
                raise Unlinkable("a section of another kind")
            which = int(bool(flags & _WRITABLE))
            image = self._images[which]
            image += bytes(-len(image) % max(align, 1))
            self._places[i] = which, len(image)
            image += bytes(size) if kind == _NOBITS else _part(data, start, size)
        values: list[tuple[int | None, int] | str | None] = []
        for _, kind, _, _, start, size, link, _, _, _ in sections:
            if kind == _SYMTAB:
                strings = _part(data, sections[link][4], sections[link][5])
                rows = _SYMBOL.iter_unpack(_part(data, start, size))
                values = [self._symbol(row, strings, outside) for row in rows]
        for _, kind, _, _, start, size, _, target, _, _ in sections:
            if kind != _RELA or target not in self._places:
                continue
            which, begin = self._places[target]
            for offset, info, added in _RELOCATION.iter_unpack(_part(data, start, size)):
                known, kind = values[info >> 32], self._processor.kinds.get(info & 0xFFFFFFFF)
                if isinstance(known, str):
                    raise LoweringError(
                        "cpu: machine code calls a function that this process does not have",
                        got=known,
                        fix="report it, with the program; NXJAX_EXECUTOR=reference runs it without machine code",
                    )
                if known is None or kind is None or offset + kind.size > sections[target][5]:
                    raise Unlinkable(f"a relocation of kind {info & 0xFFFFFFFF}")
                image, value = known[0], known[1] + added
                if kind.slot == "address" or (kind.slot == "call" and image is None):
                    image, value = 0, self._slot(kind.slot, image, value)
                self._relocations.append(((which, begin + offset), kind, image, value))

    def _slot(self, what: str, image: int | None, value: int) -> int:
        """Where in the first image an address lies, or an instruction that goes to it."""
        found = self._slots.get((what, image, value))
        if found is None:
            code = self._images[0]
            code += bytes(-len(code) % 8)
            found = self._slots[what, image, value] = len(code)
            code += self._processor.jump if what == "call" else b""
            self._relocations.append(((0, len(code)), self._processor.kinds[self._processor.absolute], image, value))
            code += bytes(8)
        return found

    def _symbol(
        self, row: Sequence[int], strings: bytes, outside: Callable[[str], int | None]
    ) -> tuple[int | None, int] | str | None:
        """Its image (None: it is outside) and where it is; its name where nothing has it; None for what is no place."""
        name, _, _, section, value, _ = row
        text = strings[name : strings.index(b"\0", name)].decode()
        if section in self._places:
            image, offset = self._places[section]
            if text:
                self.symbols[text] = image, offset + value
            return image, offset + value
        if section == _ABSOLUTE:
            return None, value
        if section != _UNDEFINED or not text or text == _OFFSETS:
            return None
        found = outside(text)
        if found:
            return None, found
        # LLVM's own loader knows those of the process; of others it makes calls of address 0.
        return None if hasattr(ctypes.pythonapi, text) or hasattr(ctypes.CDLL(None), text) else text

    def at(self, address: int) -> tuple[bytes, dict[str, int], Any]:
        """The bytes for this address, where symbols are then, and memory that is written to, which has its place."""
        memory: Any = (ctypes.c_char * (len(self._images[1]) + _ALIGN))()
        start = ctypes.addressof(memory)
        bases = address, start + -start % _ALIGN
        for (which, place), kind, image, value in self._relocations:
            symbol = value + (0 if image is None else bases[image])
            number = kind.number(symbol, bases[which] + place)
            if number is None:
                raise Unlinkable("a place too far away")
            held, end = self._images[which], place + kind.size
            word = kind.written(int.from_bytes(held[place:end], "little"), number)
            held[place:end] = word.to_bytes(kind.size, "little")
        ctypes.memmove(bases[1], bytes(self._images[1]), len(self._images[1]))
        return bytes(self._images[0]), {s: bases[i] + offset for s, (i, offset) in self.symbols.items()}, memory


def _part(data: bytes, start: int, size: int) -> bytes:
    if start + size > len(data):
        raise ValueError("the file ends too early")
    return data[start : start + size]


_rooms: list[Room] = []


def room() -> Room | None:
    """Where this process's code is packed; None where object files, or how to tell caches of code, are not known."""
    known = sys.platform.startswith(("linux", "freebsd")) and platform.machine() in PROCESSORS
    if not _rooms and known:
        with COMPILING, suppress(OSError, AttributeError):
            if not _rooms:
                _rooms.append(Room())
    return _rooms[0] if _rooms else None


def outside(name: str) -> int | None:
    """Where a function of the process is; None for none."""
    for library in (ctypes.pythonapi, ctypes.CDLL(None)):
        if hasattr(library, name):
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value
    return None
