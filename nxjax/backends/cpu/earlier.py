"""What earlier processes of the user have compiled, found again without the compiler.

A record says for which sources, which LLVM and which processor it is good, by what can be asked in a millisecond: sizes
of files and when they last changed, and what Linux says of the processor. Where that is not known there are no records.
The files are those of `backends.cache`, with its rules of whom to believe. Must not import the compiler or llvmlite.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from functools import lru_cache
from importlib.machinery import PathFinder
from typing import Final

from nxjax.backends import cache
from nxjax.backends.cpu.locks import COMPILING
from nxjax.backends.cpu.native.loading import LoadedCode, Unlinkable, keep, outside, room
from nxjax.config import config

# Rooms whose code makes programs what they are, and those of which only the files do.
_ROOMS: Final = ("backends/cpu", "kernels/cpu", "lower/cpu", "lower/passes", "ops", "trace", "transforms")
_FILES: Final = ("kernels", "lower")
ROOT: Final = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
# What Linux says of a processor, by its words for x86 and for ARM.
_PROCESSOR: Final = (
    "vendor_id", "cpu family", "model", "model name", "stepping", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features",
)  # fmt: skip
_CPUINFO: Final = "/proc/cpuinfo"


@lru_cache(1)
def _good_for() -> str | None:
    """What records of this process are good for; None where that cannot be told."""
    llvm = PathFinder.find_spec("llvmlite")
    if llvm is None or llvm.origin is None or not sys.platform.startswith("linux"):
        return None
    try:
        lines = _processor()
        files = [(llvm.origin, os.stat(llvm.origin)), *((e.path, e.stat()) for e in sources(_ROOMS, _FILES))]
    except OSError:
        return None
    if not lines:
        return None
    changed = "\n".join([f"{name} {found.st_size} {found.st_ctime_ns}" for name, found in files])
    return cache.key_of(sys.version, *sorted(lines), changed, str(_has_tiles(lines)))


def _processor() -> set[str]:
    """What there is to know of the processor. The cores of an x86 do not differ; those of an ARM may."""
    lines: set[str] = set()
    with open(_CPUINFO, encoding="utf-8", errors="replace") as file:
        for line in file:
            word = line.partition("\t")[0].strip()
            if word in _PROCESSOR:
                lines.add(line.rstrip("\n"))
            elif not word and any(x.startswith("flags") for x in lines):
                break
    return lines


def _has_tiles(lines: Iterable[str]) -> bool:
    """Whether code may use the matrix unit: the system has to be asked before any runs."""
    if not any("amx_tile" in line for line in lines):
        return False
    from nxjax.kernels.cpu.permission import has_tiles

    return has_tiles()


def sources(rooms: Iterable[str], flat: Iterable[str] = ()) -> list[os.DirEntry[str]]:
    """The source files of ``rooms`` and what is in them, and those in folders ``flat`` alone, in order."""
    found: list[os.DirEntry[str]] = []
    alone = [os.path.join(ROOT, name) for name in flat]
    folders = [*alone, *(os.path.join(ROOT, *name.split("/")) for name in rooms)]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name.endswith(".py"):
                    found.append(entry)
                elif folder not in alone and "." not in entry.name and entry.name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)
    return sorted(found, key=lambda entry: entry.path)


def _key(what: Sequence[str]) -> str | None:
    good_for = _good_for()
    settings = (config.cpu_isa, str(config.reproducible))
    return None if good_for is None else cache.key_of("cpu-earlier", good_for, *settings, *what)


def read(*what: str) -> bytes | None:
    """The record of ``what``, under the settings as they are; None if there is none."""
    key = _key(what)
    return None if key is None else cache.load(key)


def write(payload: bytes, *what: str) -> None:
    """Leave a record for later processes."""
    key = _key(what)
    if key is not None:
        cache.store(key, payload)


def code(file: str, symbols: Sequence[str]) -> LoadedCode | None:
    """The code in a file of the cache, if it has all ``symbols`` and can be loaded without LLVM."""
    data, place = cache.load(file), room()
    if data is None or place is None:
        return None
    # A line of symbols stands before the code of kernels.
    start = data.find(b"\x7fELF")
    try:
        with COMPILING:
            found = place.place(data[start:], outside) if start >= 0 else None
    except Unlinkable:
        return None
    return found if found is not None and all(s in found.addresses for s in symbols) else None


def module(symbols: Sequence[str], *what: str) -> list[int] | None:
    """Where ``symbols`` are in a module that stays for good, whose file the record of ``what`` names; None for none."""
    file = read(*what)
    found = None if file is None else code(file.decode(), symbols)
    if found is None:
        return None
    keep(found)
    return [found.addresses[s] for s in symbols]
